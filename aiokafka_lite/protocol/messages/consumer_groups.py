"""The consumer group protocol (KIP-848): one request joins, stays alive, subscribes, assigns and leaves.

The coordinator assigns the partitions. ConsumerGroupHeartbeat v1 adds regular expressions, and members choose their
own ids (KIP-1082).
"""

from __future__ import annotations

from ..schema import Request, Response, array, int16, int32, message, nested, since, string, struct, uuid


@struct
class ConsumerGroupHeartbeatTopicPartitions:
    """Partitions of one topic."""

    topic_id: bytes = uuid()
    partitions: list[int] = array(int32)


@struct
class ConsumerGroupHeartbeatAssignment:
    """The partitions that the member may use now."""

    topic_partitions: list[ConsumerGroupHeartbeatTopicPartitions] = array(ConsumerGroupHeartbeatTopicPartitions)


@message(key=68, versions=(0, 1), flexible=0)
class ConsumerGroupHeartbeatResponse(Response):
    """The epoch of the member, and its assignment if that changed; null means no change."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: ConsumerGroupHeartbeatAssignment | None = nested(
        ConsumerGroupHeartbeatAssignment, nullable="0+", default=None
    )


@message(key=68, versions=(0, 1), flexible=0)
class ConsumerGroupHeartbeatRequest(Request[ConsumerGroupHeartbeatResponse]):
    """A member's heartbeat. Fields that did not change since the last one are null, or -1.

    ``member_epoch`` is 0 to join, -1 to leave, -2 for a static member that will return. ``topic_partitions`` are the
    partitions that the member owns.
    """

    CONSUMER_GROUPS = since(0, kafka="4.0")
    REGEX = since(1, kafka="4.0")
    MEMBER_CHOOSES_ID = since(1)

    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = string(nullable="0+", default=None)
    rack_id: str | None = string(nullable="0+", default=None)
    rebalance_timeout_ms: int = int32(default=-1)
    subscribed_topic_names: list[str] | None = array(string, nullable="0+", default=None)
    subscribed_topic_regex: str | None = string("1+", nullable="1+", default=None)
    server_assignor: str | None = string(nullable="0+", default=None)
    topic_partitions: list[ConsumerGroupHeartbeatTopicPartitions] | None = array(
        ConsumerGroupHeartbeatTopicPartitions, nullable="0+", default=None
    )
