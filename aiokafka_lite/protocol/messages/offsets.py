"""Find offsets by time, and the end of a leader epoch.

ListOffsets looks up a time or a special timestamp. -1 is the end and -2 the beginning, in all versions:

- v0: returns lists.
- v2: the isolation level.
- v4: leader epochs.
- v6: flexible.
- v7: the timestamp -3, for the record with the greatest timestamp (KIP-734).
- v8: -4, for the start of the local log (KIP-405).
- v9: -5, for the end of the tiered log (KIP-1005).
- v10: a timeout.
- v11: -6, for the first record that is not tiered yet (KIP-1023).

OffsetForLeaderEpoch v3 distinguishes followers and consumers, v4 is flexible.
"""

from __future__ import annotations

from ..schema import Request, Response, array, int8, int16, int32, int64, message, since, string, struct


@struct
class ListOffsetsResponsePartition:
    """The offset and the timestamp of its record. Both are -1 if there is no such record."""

    partition_index: int = int32()
    error_code: int = int16()
    old_style_offsets: list[int] = array(int64, "0", default=[])
    timestamp: int = int64("1+", default=-1)
    offset: int = int64("1+", default=-1)
    leader_epoch: int = int32("4+", default=-1)


@struct
class ListOffsetsResponseTopic:
    """The partitions of one topic."""

    name: str = string()
    partitions: list[ListOffsetsResponsePartition] = array(ListOffsetsResponsePartition)


@message(key=2, versions=(0, 11), flexible=6)
class ListOffsetsResponse(Response):
    """An offset for each partition."""

    CLIENT_THROTTLES = since(3)

    throttle_time_ms: int = int32("2+", default=0, ignorable=True)
    topics: list[ListOffsetsResponseTopic] = array(ListOffsetsResponseTopic)


@struct
class ListOffsetsRequestPartition:
    """A lookup of the first record with at least this ``timestamp`` (ms), or of a special negative timestamp."""

    partition_index: int = int32()
    current_leader_epoch: int = int32("4+", default=-1, ignorable=True)
    timestamp: int = int64()
    max_num_offsets: int = int32("0", default=1)


@struct
class ListOffsetsRequestTopic:
    """The partitions of one topic."""

    name: str = string()
    partitions: list[ListOffsetsRequestPartition] = array(ListOffsetsRequestPartition)


@message(key=2, versions=(0, 11), flexible=6)
class ListOffsetsRequest(Request[ListOffsetsResponse]):
    """Look up offsets, at the leaders.

    Consumers send -1 as ``replica_id``; with read_committed the end is the last stable offset.
    """

    ONE_OFFSET = since(1)
    LEADER_EPOCHS = since(4)
    OFFSET_NOT_AVAILABLE = since(5)  # KIP-207
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
    """The end offset of the epoch. Epoch and offset are -1 if the broker does not know the epoch."""

    error_code: int = int16()
    partition: int = int32()
    leader_epoch: int = int32("1+", default=-1, ignorable=True)
    end_offset: int = int64(default=-1)


@struct
class OffsetForLeaderEpochResponseTopic:
    """The partitions of one topic."""

    topic: str = string()
    partitions: list[OffsetForLeaderEpochResponsePartition] = array(OffsetForLeaderEpochResponsePartition)


@message(key=23, versions=(0, 4), flexible=4)
class OffsetForLeaderEpochResponse(Response):
    """The end of an epoch for each partition."""

    throttle_time_ms: int = int32("2+", default=0, ignorable=True)
    topics: list[OffsetForLeaderEpochResponseTopic] = array(OffsetForLeaderEpochResponseTopic)


@struct
class OffsetForLeaderEpochRequestPartition:
    """The epoch whose end is requested, and the current epoch as the client knows it."""

    partition: int = int32()
    current_leader_epoch: int = int32("2+", default=-1, ignorable=True)
    leader_epoch: int = int32()


@struct
class OffsetForLeaderEpochRequestTopic:
    """The partitions of one topic."""

    topic: str = string()
    partitions: list[OffsetForLeaderEpochRequestPartition] = array(OffsetForLeaderEpochRequestPartition)


@message(key=23, versions=(0, 4), flexible=4)
class OffsetForLeaderEpochRequest(Request[OffsetForLeaderEpochResponse]):
    """Request the end offsets of epochs from leaders, to detect truncation. Consumers send -1 as ``replica_id``."""

    LEADER_EPOCHS = since(2, kafka="2.1")
    FOR_CONSUMERS = since(3)  # the first version for which the permission to read the topic suffices

    replica_id: int = int32("3+", default=-2, ignorable=True)
    topics: list[OffsetForLeaderEpochRequestTopic] = array(OffsetForLeaderEpochRequestTopic)
