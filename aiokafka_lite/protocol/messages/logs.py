"""Describe the logs of a broker, move them between its directories, and delete records from their start.

- DeleteRecords v2 is flexible (KIP-107).
- AlterReplicaLogDirs v2 is flexible (KIP-113).
- DescribeLogDirs v2 is flexible, v3 has a top-level error, v4 the sizes of the volume (KIP-827), v5 names
  directories without new replicas.
- DescribeProducers helps to find hanging transactions (KIP-664).
"""

from __future__ import annotations

from ..schema import Request, Response, array, boolean, int16, int32, int64, message, since, string, struct


@struct
class DeleteRecordsPartitionResult:
    """The new start of a partition."""

    partition_index: int = int32()
    low_watermark: int = int64()
    error_code: int = int16()


@struct
class DeleteRecordsTopicResult:
    """The partitions of one topic."""

    name: str = string()
    partitions: list[DeleteRecordsPartitionResult] = array(DeleteRecordsPartitionResult)


@message(key=21, versions=(0, 2), flexible=2)
class DeleteRecordsResponse(Response):
    """A result for each partition."""

    CLIENT_THROTTLES = since(1)

    throttle_time_ms: int = int32(default=0)
    topics: list[DeleteRecordsTopicResult] = array(DeleteRecordsTopicResult)


@struct
class DeleteRecordsPartition:
    """The first offset to keep. -1 is the high watermark."""

    partition_index: int = int32()
    offset: int = int64()


@struct
class DeleteRecordsTopic:
    """The partitions of one topic."""

    name: str = string()
    partitions: list[DeleteRecordsPartition] = array(DeleteRecordsPartition)


@message(key=21, versions=(0, 2), flexible=2)
class DeleteRecordsRequest(Request[DeleteRecordsResponse]):
    """Delete records from the start of partitions."""

    topics: list[DeleteRecordsTopic] = array(DeleteRecordsTopic)
    timeout_ms: int = int32()


@struct
class DescribeLogDirsPartition:
    """The size of a replica and its lag."""

    partition_index: int = int32()
    partition_size: int = int64()
    offset_lag: int = int64()
    is_future_key: bool = boolean()


@struct
class DescribeLogDirsTopic:
    """A topic's replicas in a directory."""

    name: str = string()
    partitions: list[DescribeLogDirsPartition] = array(DescribeLogDirsPartition)


@struct
class DescribeLogDirsResult:
    """A directory of logs; sizes are in bytes."""

    error_code: int = int16()
    log_dir: str = string()
    topics: list[DescribeLogDirsTopic] = array(DescribeLogDirsTopic)
    total_bytes: int = int64("4+", default=-1, ignorable=True)
    usable_bytes: int = int64("4+", default=-1, ignorable=True)
    is_cordoned: bool = boolean("5+", default=False, ignorable=True)


@message(key=35, versions=(0, 5), flexible=2)
class DescribeLogDirsResponse(Response):
    """The directories of one broker."""

    CLIENT_THROTTLES = since(1)

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16("3+", default=0, ignorable=True)
    results: list[DescribeLogDirsResult] = array(DescribeLogDirsResult)


@struct
class DescribableLogDirTopic:
    """The requested partitions of one topic."""

    topic: str = string()
    partitions: list[int] = array(int32)


@message(key=35, versions=(0, 5), flexible=2)
class DescribeLogDirsRequest(Request[DescribeLogDirsResponse]):
    """Request the sizes of replicas. Null means all."""

    INTRODUCED = since(1, kafka="2.0")
    TOP_LEVEL_ERROR = since(3)

    topics: list[DescribableLogDirTopic] | None = array(DescribableLogDirTopic, nullable="0+")


@struct
class DescribeProducersState:
    """The state of an idempotent producer in a partition."""

    producer_id: int = int64()
    producer_epoch: int = int32()
    last_sequence: int = int32(default=-1)
    last_timestamp: int = int64(default=-1)
    coordinator_epoch: int = int32()
    current_txn_start_offset: int = int64(default=-1)


@struct
class DescribeProducersPartitionResult:
    """A partition's producers."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    active_producers: list[DescribeProducersState] = array(DescribeProducersState)


@struct
class DescribeProducersTopicResult:
    """The partitions of one topic."""

    name: str = string()
    partitions: list[DescribeProducersPartitionResult] = array(DescribeProducersPartitionResult)


@message(key=61, versions=(0, 0), flexible=0)
class DescribeProducersResponse(Response):
    """The producers of each partition."""

    throttle_time_ms: int = int32(default=0)
    topics: list[DescribeProducersTopicResult] = array(DescribeProducersTopicResult)


@struct
class DescribeProducersTopic:
    """The requested partitions of one topic."""

    name: str = string()
    partition_indexes: list[int] = array(int32)


@message(key=61, versions=(0, 0), flexible=0)
class DescribeProducersRequest(Request[DescribeProducersResponse]):
    """Request the active producers of partitions."""

    INTRODUCED = since(0, kafka="2.8")

    topics: list[DescribeProducersTopic] = array(DescribeProducersTopic)


@struct
class AlterReplicaLogDirsPartitionResult:
    """Whether a replica can move."""

    partition_index: int = int32()
    error_code: int = int16()


@struct
class AlterReplicaLogDirsTopicResult:
    """The partitions of one topic."""

    topic_name: str = string()
    partitions: list[AlterReplicaLogDirsPartitionResult] = array(AlterReplicaLogDirsPartitionResult)


@message(key=34, versions=(0, 2), flexible=2)
class AlterReplicaLogDirsResponse(Response):
    """A result for each replica."""

    CLIENT_THROTTLES = since(1)

    throttle_time_ms: int = int32(default=0)
    results: list[AlterReplicaLogDirsTopicResult] = array(AlterReplicaLogDirsTopicResult)


@struct
class AlterReplicaLogDirsTopic:
    """The replicas of one topic that move."""

    name: str = string()
    partitions: list[int] = array(int32)


@struct
class AlterReplicaLogDir:
    """A directory, by its absolute path, and the replicas that move to it."""

    path: str = string()
    topics: list[AlterReplicaLogDirsTopic] = array(AlterReplicaLogDirsTopic)


@message(key=34, versions=(0, 2), flexible=2)
class AlterReplicaLogDirsRequest(Request[AlterReplicaLogDirsResponse]):
    """Move replicas of the broker to other directories."""

    dirs: list[AlterReplicaLogDir] = array(AlterReplicaLogDir)
