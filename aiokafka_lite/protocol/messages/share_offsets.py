"""Look up, set and delete the offsets of share groups (KIP-932).

DescribeShareGroupOffsets v1 adds the lag (KIP-1226). Brokers keep the state of share partitions with other requests,
such as InitializeShareGroupState, which no client sends.
"""

from __future__ import annotations

from ..schema import Request, Response, array, int16, int32, int64, message, since, string, struct, uuid


@struct
class DescribeShareGroupOffsetsResponsePartition:
    """The first offset that is not processed, and the lag in records. Each is -1 if it is unknown."""

    partition_index: int = int32()
    start_offset: int = int64()
    leader_epoch: int = int32()
    lag: int = int64("1+", default=-1, ignorable=True)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@struct
class DescribeShareGroupOffsetsResponseTopic:
    """The partitions of one topic."""

    topic_name: str = string()
    topic_id: bytes = uuid()
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = array(DescribeShareGroupOffsetsResponsePartition)


@struct
class DescribeShareGroupOffsetsResponseGroup:
    """The offsets of one group, or an error."""

    group_id: str = string()
    topics: list[DescribeShareGroupOffsetsResponseTopic] = array(DescribeShareGroupOffsetsResponseTopic)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@message(key=90, versions=(0, 1), flexible=0)
class DescribeShareGroupOffsetsResponse(Response):
    """Offsets by group, topic and partition."""

    throttle_time_ms: int = int32(default=0)
    groups: list[DescribeShareGroupOffsetsResponseGroup] = array(DescribeShareGroupOffsetsResponseGroup)


@struct
class DescribeShareGroupOffsetsRequestTopic:
    """Partitions of one topic."""

    topic_name: str = string()
    partitions: list[int] = array(int32)


@struct
class DescribeShareGroupOffsetsRequestGroup:
    """One group. Null ``topics`` mean all topics that the group has read."""

    group_id: str = string()
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = array(
        DescribeShareGroupOffsetsRequestTopic, nullable="0+"
    )


@message(key=90, versions=(0, 1), flexible=0)
class DescribeShareGroupOffsetsRequest(Request[DescribeShareGroupOffsetsResponse]):
    """Look up the offsets of share groups, at their coordinator."""

    INTRODUCED = since(0, kafka="4.1")

    groups: list[DescribeShareGroupOffsetsRequestGroup] = array(DescribeShareGroupOffsetsRequestGroup)


@struct
class AlterShareGroupOffsetsResponsePartition:
    """Whether the offset of one partition was set."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@struct
class AlterShareGroupOffsetsResponseTopic:
    """The partitions of one topic."""

    topic_name: str = string()
    topic_id: bytes = uuid()
    partitions: list[AlterShareGroupOffsetsResponsePartition] = array(AlterShareGroupOffsetsResponsePartition)


@message(key=91, versions=(0, 0), flexible=0)
class AlterShareGroupOffsetsResponse(Response):
    """Results by topic and partition, or an error of the group."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    responses: list[AlterShareGroupOffsetsResponseTopic] = array(AlterShareGroupOffsetsResponseTopic)


@struct
class AlterShareGroupOffsetsRequestPartition:
    """The new start offset of one partition."""

    partition_index: int = int32()
    start_offset: int = int64()


@struct
class AlterShareGroupOffsetsRequestTopic:
    """The partitions of one topic."""

    topic_name: str = string()
    partitions: list[AlterShareGroupOffsetsRequestPartition] = array(AlterShareGroupOffsetsRequestPartition)


@message(key=91, versions=(0, 0), flexible=0)
class AlterShareGroupOffsetsRequest(Request[AlterShareGroupOffsetsResponse]):
    """Set the start offsets of a group that has no members, at its coordinator."""

    INTRODUCED = since(0, kafka="4.1")

    group_id: str = string()
    topics: list[AlterShareGroupOffsetsRequestTopic] = array(AlterShareGroupOffsetsRequestTopic)


@struct
class DeleteShareGroupOffsetsResponseTopic:
    """Whether the offsets of one topic were deleted."""

    topic_name: str = string()
    topic_id: bytes = uuid()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@message(key=92, versions=(0, 0), flexible=0)
class DeleteShareGroupOffsetsResponse(Response):
    """A result for each topic, or an error of the group."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    responses: list[DeleteShareGroupOffsetsResponseTopic] = array(DeleteShareGroupOffsetsResponseTopic)


@struct
class DeleteShareGroupOffsetsRequestTopic:
    """One topic."""

    topic_name: str = string()


@message(key=92, versions=(0, 0), flexible=0)
class DeleteShareGroupOffsetsRequest(Request[DeleteShareGroupOffsetsResponse]):
    """Delete the offsets of topics in a group that has no members, at its coordinator."""

    INTRODUCED = since(0, kafka="4.1")

    group_id: str = string()
    topics: list[DeleteShareGroupOffsetsRequestTopic] = array(DeleteShareGroupOffsetsRequestTopic)
