"""Find offsets by time, and the end of a leader epoch.

- ListOffsets v2 adds the isolation level, v4 leader epochs, v6 is flexible; v7 knows the timestamp -3 for the record
  with the greatest timestamp (KIP-734), v8 -4 for the local log's start (KIP-405), v9 -5 for the end of what is in
  tiered storage (KIP-1005), v10 adds a timeout, v11 -6 for the start of what waits to go there (KIP-1023). Always -1
  is the end and -2 the beginning. Version 0 answered lists and is not spoken here.
- OffsetForLeaderEpoch v3 tells followers from consumers, v4 is flexible.
"""

from __future__ import annotations

from ..schema import Request, Response, array, int8, int16, int32, int64, message, since, string, struct


@struct
class ListOffsetsResponsePartition:
    """The offset found, with its record's timestamp; -1 when there is none."""

    partition_index: int = int32()
    error_code: int = int16()
    timestamp: int = int64("1+", default=-1)
    offset: int = int64("1+", default=-1)
    leader_epoch: int = int32("4+", default=-1)


@struct
class ListOffsetsResponseTopic:
    """The partitions of one topic."""

    name: str = string()
    partitions: list[ListOffsetsResponsePartition] = array(ListOffsetsResponsePartition)


@message(key=2, versions=(1, 11), flexible=6)
class ListOffsetsResponse(Response):
    """An offset for each partition."""

    CLIENT_THROTTLES = since(3)

    throttle_time_ms: int = int32("2+", default=0, ignorable=True)
    topics: list[ListOffsetsResponseTopic] = array(ListOffsetsResponseTopic)


@struct
class ListOffsetsRequestPartition:
    """Which offset is wanted: of the first record not older than ``timestamp`` (ms), or a special one below zero."""

    partition_index: int = int32()
    current_leader_epoch: int = int32("4+", default=-1, ignorable=True)
    timestamp: int = int64()


@struct
class ListOffsetsRequestTopic:
    """The partitions of one topic."""

    name: str = string()
    partitions: list[ListOffsetsRequestPartition] = array(ListOffsetsRequestPartition)


@message(key=2, versions=(1, 11), flexible=6)
class ListOffsetsRequest(Request[ListOffsetsResponse]):
    """Ask leaders for offsets.

    Consumers send -1 as ``replica_id``; with read_committed the end is the last stable offset.
    """

    LEADER_EPOCHS = since(4)
    MAX_TIMESTAMP = since(7, kafka="3.0")
    EARLIEST_LOCAL = since(8, kafka="3.4")
    LATEST_TIERED = since(9, kafka="3.9")
    EARLIEST_PENDING_UPLOAD = since(11, kafka="4.2")

    replica_id: int = int32()
    isolation_level: int = int8("2+", default=0)
    topics: list[ListOffsetsRequestTopic] = array(ListOffsetsRequestTopic)
    timeout_ms: int = int32("10+", default=0, ignorable=True)


@struct
class OffsetForLeaderEpochResponsePartition:
    """Where the epoch ends; both fields are -1 when the broker does not know it."""

    error_code: int = int16()
    partition: int = int32()
    leader_epoch: int = int32("1+", default=-1, ignorable=True)
    end_offset: int = int64(default=-1)


@struct
class OffsetForLeaderEpochResponseTopic:
    """The partitions of one topic."""

    topic: str = string()
    partitions: list[OffsetForLeaderEpochResponsePartition] = array(OffsetForLeaderEpochResponsePartition)


@message(key=23, versions=(2, 4), flexible=4)
class OffsetForLeaderEpochResponse(Response):
    """The end of an epoch for each partition."""

    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: list[OffsetForLeaderEpochResponseTopic] = array(OffsetForLeaderEpochResponseTopic)


@struct
class OffsetForLeaderEpochRequestPartition:
    """The epoch whose end is wanted, and the one that the asker takes for the current."""

    partition: int = int32()
    current_leader_epoch: int = int32("2+", default=-1, ignorable=True)
    leader_epoch: int = int32()


@struct
class OffsetForLeaderEpochRequestTopic:
    """The partitions of one topic."""

    topic: str = string()
    partitions: list[OffsetForLeaderEpochRequestPartition] = array(OffsetForLeaderEpochRequestPartition)


@message(key=23, versions=(2, 4), flexible=4)
class OffsetForLeaderEpochRequest(Request[OffsetForLeaderEpochResponse]):
    """Ask leaders where epochs end, which tells whether a log was truncated. Consumers send -1 as ``replica_id``."""

    LEADER_EPOCHS = since(2, kafka="2.1")
    FOR_CONSUMERS = since(3)

    replica_id: int = int32("3+", default=-2, ignorable=True)
    topics: list[OffsetForLeaderEpochRequestTopic] = array(OffsetForLeaderEpochRequestTopic)
