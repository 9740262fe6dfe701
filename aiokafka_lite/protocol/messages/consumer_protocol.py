"""Messages between members of a consumer group, inside JoinGroup and SyncGroup. Brokers do not decode these bytes.

The version comes first, as an int16 (``codec.encode_versioned``). Later versions only append fields, so a newer
message is decoded as the newest version here. The versions of a subscription; the assignment never changed:

- v1: the partitions that the member owns (KIP-429).
- v2: the generation in which the member owned them (KIP-792).
- v3: the rack of the member (KIP-881).
"""

from __future__ import annotations

from ..schema import Message, array, blob, int32, message, string, struct


@struct
class ConsumerProtocolSubscriptionTopicPartition:
    """Partitions of one topic that the member owns when it joins."""

    topic: str = string("1+", default="")
    partitions: list[int] = array(int32, "1+", default=[])


@message(key=-1, versions=(0, 3))
class ConsumerProtocolSubscription(Message):
    """The topics of a member, and the partitions it owns. ``user_data`` belongs to the assignment strategy."""

    topics: list[str] = array(string)
    user_data: bytes | None = blob(nullable="0+", default=None)
    owned_partitions: list[ConsumerProtocolSubscriptionTopicPartition] = array(
        ConsumerProtocolSubscriptionTopicPartition, "1+", default=[], ignorable=True
    )
    generation_id: int = int32("2+", default=-1, ignorable=True)
    rack_id: str | None = string("3+", nullable="3+", default=None, ignorable=True)


@struct
class ConsumerProtocolAssignmentTopicPartition:
    """Assigned partitions of one topic."""

    topic: str = string()
    partitions: list[int] = array(int32)


@message(key=-1, versions=(0, 3))
class ConsumerProtocolAssignment(Message):
    """The assignment of a member."""

    assigned_partitions: list[ConsumerProtocolAssignmentTopicPartition] = array(
        ConsumerProtocolAssignmentTopicPartition
    )
    user_data: bytes | None = blob(nullable="0+", default=None)
