"""What members of a consumer group tell one another through JoinGroup and SyncGroup.

Brokers carry these bytes unread. Each is preceded by its version as an int16 (``codec.encode_versioned``) and later
versions only add to the end, so a newer one is read as the newest known here. v1 adds the partitions a member owns
(KIP-429), v2 the generation it owned them in (KIP-792), v3 its rack (KIP-881); the assignment never changed.
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
    """What a member wants, and what it has. ``user_data`` belongs to the assignment strategy."""

    topics: list[str] = array(string)
    user_data: bytes | None = blob(nullable="0+", default=None)
    owned_partitions: list[ConsumerProtocolSubscriptionTopicPartition] = array(
        ConsumerProtocolSubscriptionTopicPartition, "1+", default=[], ignorable=True
    )
    generation_id: int = int32("2+", default=-1, ignorable=True)
    rack_id: str | None = string("3+", nullable="3+", default=None, ignorable=True)


@struct
class ConsumerProtocolAssignmentTopicPartition:
    """Partitions of one topic that the member gets."""

    topic: str = string()
    partitions: list[int] = array(int32)


@message(key=-1, versions=(0, 3))
class ConsumerProtocolAssignment(Message):
    """What a member gets."""

    assigned_partitions: list[ConsumerProtocolAssignmentTopicPartition] = array(
        ConsumerProtocolAssignmentTopicPartition
    )
    user_data: bytes | None = blob(nullable="0+", default=None)
