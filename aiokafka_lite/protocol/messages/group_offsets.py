"""group_offsets"""

from __future__ import annotations

from ..schema import ZERO_UUID, Request, Response, array, boolean, int16, int32, int64, message, string, struct, uuid


@struct
class OffsetCommitResponsePartition:
    """The responses for each partition in the topic."""

    partition_index: int = int32()
    error_code: int = int16()


@struct
class OffsetCommitResponseTopic:
    """The responses for each topic."""

    name: str = string("0-9", default="", ignorable=True)
    topic_id: bytes = uuid("10+", default=ZERO_UUID, ignorable=True)
    partitions: list[OffsetCommitResponsePartition] = array(OffsetCommitResponsePartition)


@message(key=8, versions=(2, 10), flexible=8)
class OffsetCommitResponse(Response):
    """OffsetCommitResponse"""

    throttle_time_ms: int = int32("3+", default=0, ignorable=True)
    topics: list[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic)


@struct
class OffsetCommitRequestPartition:
    """Each partition to commit offsets for."""

    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32("6+", default=-1, ignorable=True)
    committed_metadata: str | None = string(nullable="0+")


@struct
class OffsetCommitRequestTopic:
    """The topics to commit offsets for."""

    name: str = string("0-9", default="", ignorable=True)
    topic_id: bytes = uuid("10+", default=ZERO_UUID, ignorable=True)
    partitions: list[OffsetCommitRequestPartition] = array(OffsetCommitRequestPartition)


@message(key=8, versions=(2, 10), flexible=8)
class OffsetCommitRequest(Request[OffsetCommitResponse]):
    """OffsetCommitRequest"""

    group_id: str = string()
    generation_id_or_member_epoch: int = int32("1+", default=-1, ignorable=True)
    member_id: str = string("1+", ignorable=True)
    group_instance_id: str | None = string("7+", nullable="7+", default=None)
    retention_time_ms: int = int64("2-4", default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic)


@struct
class OffsetFetchResponsePartition:
    """The responses per partition."""

    partition_index: int = int32("0-7", default=0)
    committed_offset: int = int64("0-7", default=0)
    committed_leader_epoch: int = int32("5-7", default=-1, ignorable=True)
    metadata: str | None = string("0-7", nullable="0-7", default="")
    error_code: int = int16("0-7", default=0)


@struct
class OffsetFetchResponseTopic:
    """The responses per topic."""

    name: str = string("0-7", default="")
    partitions: list[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition, "0-7", default=[])


@struct
class OffsetFetchResponsePartitions:
    """The responses per partition."""

    partition_index: int = int32("8+", default=0)
    committed_offset: int = int64("8+", default=0)
    committed_leader_epoch: int = int32("8+", default=-1, ignorable=True)
    metadata: str | None = string("8+", nullable="8+", default="")
    error_code: int = int16("8+", default=0)


@struct
class OffsetFetchResponseTopics:
    """The responses per topic."""

    name: str = string("8-9", default="", ignorable=True)
    topic_id: bytes = uuid("10+", default=ZERO_UUID, ignorable=True)
    partitions: list[OffsetFetchResponsePartitions] = array(OffsetFetchResponsePartitions, "8+", default=[])


@struct
class OffsetFetchResponseGroup:
    """The responses per group id."""

    group_id: str = string("8+", default="")
    topics: list[OffsetFetchResponseTopics] = array(OffsetFetchResponseTopics, "8+", default=[])
    error_code: int = int16("8+", default=0)


@message(key=9, versions=(1, 10), flexible=6)
class OffsetFetchResponse(Response):
    """OffsetFetchResponse"""

    throttle_time_ms: int = int32("3+", default=0, ignorable=True)
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic, "0-7", default=[])
    error_code: int = int16("2-7", default=0, ignorable=True)
    groups: list[OffsetFetchResponseGroup] = array(OffsetFetchResponseGroup, "8+", default=[])


@struct
class OffsetFetchRequestTopic:
    """Each topic we would like to fetch offsets for, or null to fetch offsets for all topics."""

    name: str = string("0-7", default="")
    partition_indexes: list[int] = array(int32, "0-7", default=[])


@struct
class OffsetFetchRequestTopics:
    """Each topic we would like to fetch offsets for, or null to fetch offsets for all topics."""

    name: str = string("8-9", default="", ignorable=True)
    topic_id: bytes = uuid("10+", default=ZERO_UUID, ignorable=True)
    partition_indexes: list[int] = array(int32, "8+", default=[])


@struct
class OffsetFetchRequestGroup:
    """Each group we would like to fetch offsets for."""

    group_id: str = string("8+", default="")
    member_id: str | None = string("9+", nullable="9+", default=None, ignorable=True)
    member_epoch: int = int32("9+", default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None = array(OffsetFetchRequestTopics, "8+", nullable="8+", default=[])


@message(key=9, versions=(1, 10), flexible=6)
class OffsetFetchRequest(Request[OffsetFetchResponse]):
    """OffsetFetchRequest"""

    group_id: str = string("0-7", default="")
    topics: list[OffsetFetchRequestTopic] | None = array(OffsetFetchRequestTopic, "0-7", nullable="2-7", default=[])
    groups: list[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, "8+", default=[])
    require_stable: bool = boolean("7+", default=False)
