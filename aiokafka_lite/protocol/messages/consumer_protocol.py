"""consumer_protocol"""

from __future__ import annotations

from ..schema import Message, array, blob, int32, message, string, struct


@struct
class ConsumerProtocolSubscriptionTopicPartition:
    """The partitions that the member owns."""

    topic: str = string("1+", default="")
    partitions: list[int] = array(int32, "1+", default=[])


@message(key=-1, versions=(0, 3))
class ConsumerProtocolSubscription(Message):
    """ConsumerProtocolSubscription"""

    topics: list[str] = array(string)
    user_data: bytes | None = blob(nullable="0+", default=None)
    owned_partitions: list[ConsumerProtocolSubscriptionTopicPartition] = array(
        ConsumerProtocolSubscriptionTopicPartition, "1+", default=[], ignorable=True
    )
    generation_id: int = int32("2+", default=-1, ignorable=True)
    rack_id: str | None = string("3+", nullable="3+", default=None, ignorable=True)


@struct
class ConsumerProtocolAssignmentTopicPartition:
    """The list of topics and partitions assigned to this consumer."""

    topic: str = string()
    partitions: list[int] = array(int32)


@message(key=-1, versions=(0, 3))
class ConsumerProtocolAssignment(Message):
    """ConsumerProtocolAssignment"""

    assigned_partitions: list[ConsumerProtocolAssignmentTopicPartition] = array(
        ConsumerProtocolAssignmentTopicPartition
    )
    user_data: bytes | None = blob(nullable="0+", default=None)
