"""What members tell one another, as bytes that the coordinator carries unread: subscriptions and assignments.

Pure. Subscriptions are written in the newest version, since each only adds to the end of the one before and every
client reads what it knows; assignments in the oldest, since that format never changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

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
"""What groups of consumers are called in JoinGroup; Connect's workers, for one, call theirs otherwise."""

SUBSCRIPTION_VERSION = 3
ASSIGNMENT_VERSION = 0


def write_subscription(
    topics: Iterable[str],
    owned: Iterable[TopicPartition],
    generation: int,
    rack: str | None,
    user_data: bytes | None,
) -> bytes:
    """A member's subscription: what it wants, what it has and since which generation, and where it is."""
    return encode_versioned(
        ConsumerProtocolSubscription(
            topics=sorted(topics),
            user_data=user_data,
            owned_partitions=[
                ConsumerProtocolSubscriptionTopicPartition(topic=topic, partitions=numbers)
                for topic, numbers in _by_topic(owned).items()
            ],
            generation_id=generation,
            rack_id=rack,
        ),
        SUBSCRIPTION_VERSION,
    )


def read_subscription(member_id: str, instance_id: str | None, metadata: bytes) -> GroupMember:
    """What another member subscribed to, for the strategy; ProtocolError if it is no subscription."""
    try:
        read, _ = decode_versioned(ConsumerProtocolSubscription, metadata)
    except ProtocolError as error:
        raise ProtocolError(f"the subscription of member {member_id!r} cannot be read: {error}") from error
    owned = tuple(TopicPartition(each.topic, number) for each in read.owned_partitions for number in each.partitions)
    return GroupMember(
        member_id, tuple(read.topics), owned, read.generation_id, instance_id, read.rack_id or None, read.user_data
    )


def write_assignment(partitions: Sequence[TopicPartition]) -> bytes:
    """What a member gets."""
    return encode_versioned(
        ConsumerProtocolAssignment(
            assigned_partitions=[
                ConsumerProtocolAssignmentTopicPartition(topic=topic, partitions=numbers)
                for topic, numbers in _by_topic(partitions).items()
            ]
        ),
        ASSIGNMENT_VERSION,
    )


def read_assignment(data: bytes) -> frozenset[TopicPartition]:
    """What this member got; nothing at all is what the coordinator hands out where the leader left a member out."""
    if not data:
        return frozenset()
    read, _ = decode_versioned(ConsumerProtocolAssignment, data)
    return frozenset(
        TopicPartition(each.topic, number) for each in read.assigned_partitions for number in each.partitions
    )


def _by_topic(partitions: Iterable[TopicPartition]) -> Mapping[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        topics.setdefault(topic, []).append(number)
    return topics
