"""offsets"""

from __future__ import annotations

from ..schema import Request, Response, array, int8, int16, int32, int64, message, string, struct


@struct
class ListOffsetsResponsePartition:
    """Each partition in the response."""

    partition_index: int = int32()
    error_code: int = int16()
    timestamp: int = int64("1+", default=-1)
    offset: int = int64("1+", default=-1)
    leader_epoch: int = int32("4+", default=-1)


@struct
class ListOffsetsResponseTopic:
    """Each topic in the response."""

    name: str = string()
    partitions: list[ListOffsetsResponsePartition] = array(ListOffsetsResponsePartition)


@message(key=2, versions=(1, 11), flexible=6)
class ListOffsetsResponse(Response):
    """ListOffsetsResponse"""

    throttle_time_ms: int = int32("2+", default=0, ignorable=True)
    topics: list[ListOffsetsResponseTopic] = array(ListOffsetsResponseTopic)


@struct
class ListOffsetsRequestPartition:
    """Each partition in the request."""

    partition_index: int = int32()
    current_leader_epoch: int = int32("4+", default=-1, ignorable=True)
    timestamp: int = int64()


@struct
class ListOffsetsRequestTopic:
    """Each topic in the request."""

    name: str = string()
    partitions: list[ListOffsetsRequestPartition] = array(ListOffsetsRequestPartition)


@message(key=2, versions=(1, 11), flexible=6)
class ListOffsetsRequest(Request[ListOffsetsResponse]):
    """ListOffsetsRequest"""

    replica_id: int = int32()
    isolation_level: int = int8("2+", default=0)
    topics: list[ListOffsetsRequestTopic] = array(ListOffsetsRequestTopic)
    timeout_ms: int = int32("10+", default=0, ignorable=True)


@struct
class OffsetForLeaderEpochResponsePartition:
    """Each partition in the topic we fetched offsets for."""

    error_code: int = int16()
    partition: int = int32()
    leader_epoch: int = int32("1+", default=-1, ignorable=True)
    end_offset: int = int64(default=-1)


@struct
class OffsetForLeaderEpochResponseTopic:
    """Each topic we fetched offsets for."""

    topic: str = string()
    partitions: list[OffsetForLeaderEpochResponsePartition] = array(OffsetForLeaderEpochResponsePartition)


@message(key=23, versions=(2, 4), flexible=4)
class OffsetForLeaderEpochResponse(Response):
    """OffsetForLeaderEpochResponse"""

    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: list[OffsetForLeaderEpochResponseTopic] = array(OffsetForLeaderEpochResponseTopic)


@struct
class OffsetForLeaderEpochRequestPartition:
    """Each partition to get offsets for."""

    partition: int = int32()
    current_leader_epoch: int = int32("2+", default=-1, ignorable=True)
    leader_epoch: int = int32()


@struct
class OffsetForLeaderEpochRequestTopic:
    """Each topic to get offsets for."""

    topic: str = string()
    partitions: list[OffsetForLeaderEpochRequestPartition] = array(OffsetForLeaderEpochRequestPartition)


@message(key=23, versions=(2, 4), flexible=4)
class OffsetForLeaderEpochRequest(Request[OffsetForLeaderEpochResponse]):
    """OffsetForLeaderEpochRequest"""

    replica_id: int = int32("3+", default=-2, ignorable=True)
    topics: list[OffsetForLeaderEpochRequestTopic] = array(OffsetForLeaderEpochRequestTopic)
