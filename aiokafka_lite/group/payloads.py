"""Subscriptions and assignments: bytes between the members of a group, which the coordinator does not read. No I/O.

Subscriptions are written in the newest version. Each version only appends fields, and every client reads the fields
that it knows. Assignments are written in the oldest version, because their format has never changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..arguments import by_topic
from ..errors import ProtocolError
from ..protocol.codec import decode_versioned, encode_versioned
from ..protocol.messages import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
)
from ..types import TopicPartition
from .strategies import GroupMember

PROTOCOL_TYPE = "consumer"
"""The protocol type of consumer groups in JoinGroup. Kafka Connect, for example, uses another one."""

MAX_ASSIGNED = 100_000
"""Partitions in the assignment of one member. A larger assignment would take hundreds of megabytes, and is probably an
error of the leader."""

SUBSCRIPTION_VERSION = 3
ASSIGNMENT_VERSION = 0


def write_subscription(
    topics: Iterable[str],
    owned: Iterable[TopicPartition],
    generation: int,
    rack: str | None,
    user_data: bytes | None,
) -> bytes:
    """Encode a member's subscription. ``generation`` is the generation in which it got the ``owned`` partitions."""
    return encode_versioned(
        ConsumerProtocolSubscription(
            topics=sorted(topics),
            user_data=user_data,
            owned_partitions=[
                ConsumerProtocolSubscriptionTopicPartition(topic=topic, partitions=numbers)
                for topic, numbers in by_topic(sorted(owned)).items()
            ],
            generation_id=generation,
            rack_id=rack,
        ),
        SUBSCRIPTION_VERSION,
    )


def read_subscription(member_id: str, instance_id: str | None, metadata: bytes) -> GroupMember:
    """Read another member's subscription, for the strategy. Raises ProtocolError if it cannot be read."""
    try:
        subscription, _ = decode_versioned(ConsumerProtocolSubscription, metadata)
    except ProtocolError as error:
        raise ProtocolError(f"the subscription of member {member_id!r} cannot be read: {error}") from error
    owned = tuple(
        TopicPartition(owned_partition.topic, number)
        for owned_partition in subscription.owned_partitions
        for number in owned_partition.partitions
    )
    return GroupMember(
        member_id,
        tuple(subscription.topics),
        owned,
        subscription.generation_id,
        instance_id,
        subscription.rack_id or None,
        subscription.user_data,
    )


def write_assignment(partitions: Sequence[TopicPartition], user_data: bytes | None = None) -> bytes:
    """Encode the partitions of one member, and the strategy's bytes for it."""
    return encode_versioned(
        ConsumerProtocolAssignment(
            assigned_partitions=[
                ConsumerProtocolAssignmentTopicPartition(topic=topic, partitions=numbers)
                for topic, numbers in by_topic(sorted(partitions)).items()
            ],
            user_data=user_data,
        ),
        ASSIGNMENT_VERSION,
    )


def read_assignment(data: bytes) -> frozenset[TopicPartition]:
    """Decode the partitions of this member. Empty data is an empty assignment: the leader left this member out.

    Raises ProtocolError if the data cannot be read, or has a negative partition or more than ``MAX_ASSIGNED``.
    """
    if not data:
        return frozenset()
    try:
        assignment, _ = decode_versioned(ConsumerProtocolAssignment, data)
    except ProtocolError as error:
        raise ProtocolError(f"the assignment by the leader of the group cannot be read: {error}") from error
    count = sum(len(assigned_partition.partitions) for assigned_partition in assignment.assigned_partitions)
    if count > MAX_ASSIGNED:
        raise ProtocolError(
            f"the leader of the group assigned {count} partitions to this member, more than {MAX_ASSIGNED}"
        )
    least = min(
        (number for assigned_partition in assignment.assigned_partitions for number in assigned_partition.partitions),
        default=0,
    )
    if least < 0:
        raise ProtocolError(f"the leader of the group assigned partition {least}; numbers must be >= 0")
    return frozenset(
        TopicPartition(assigned_partition.topic, number)
        for assigned_partition in assignment.assigned_partitions
        for number in assigned_partition.partitions
    )


def assignment_data(data: bytes) -> bytes | None:
    """Return the strategy's bytes in an assignment that ``read_assignment`` has accepted."""
    return decode_versioned(ConsumerProtocolAssignment, data)[0].user_data if data else None
