"""DeleteRecords, DescribeLogDirs, AlterReplicaLogDirs and DescribeProducers: the logs of this node.

- DeleteRecords moves the start of a log to an offset; -1 is the high watermark. Followers copy the start by fetching.
- DescribeLogDirs: each node has one directory, ``log.dirs``, which is in memory. v4 adds its size: the storage limit,
  if there is one.
- AlterReplicaLogDirs: a replica is in that directory already, so there is nothing to move. Another directory is
  LOG_DIR_NOT_FOUND, a partition without a replica here REPLICA_NOT_AVAILABLE.
- DescribeProducers lists the producers whose state a log keeps, with the first offsets of their open transactions.
  A follower answers too: the tool that finds hanging transactions asks each broker about all its replicas.
"""

from __future__ import annotations

from ...acls import AclOperation
from ...errors import ErrorCode
from ...protocol import messages as m
from ..metadata.controller import Refused
from ..metadata.topics import INTERNAL_TOPICS, PartitionKey, is_legal_name
from ..replicas.partition import NotLeader
from ..request_context import RequestContext, handles, refusal_in

HIGH_WATERMARK = -1


@handles(m.DeleteRecordsRequest)
def delete_records(context: RequestContext, request: m.DeleteRecordsRequest) -> m.DeleteRecordsResponse:
    offsets: dict[str, dict[int, m.DeleteRecordsPartition]] = {}
    for topic in request.topics:  # of a partition that is named twice, the last offset counts
        offsets.setdefault(topic.name, {}).update(
            (partition.partition_index, partition) for partition in topic.partitions
        )
    return m.DeleteRecordsResponse(
        topics=[
            m.DeleteRecordsTopicResult(
                name=name, partitions=[_delete(context, name, partition) for partition in partitions.values()]
            )
            for name, partitions in offsets.items()
        ],
    )


def _delete(context: RequestContext, topic: str, request: m.DeleteRecordsPartition) -> m.DeleteRecordsPartitionResult:
    result = m.DeleteRecordsPartitionResult(
        partition_index=request.partition_index, low_watermark=-1, error_code=ErrorCode.NONE
    )
    try:
        partition = context.leader((topic, request.partition_index), AclOperation.DELETE)
    except NotLeader as error:
        refused_before = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        is_internal = topic in INTERNAL_TOPICS and error.code not in refused_before
        result.error_code = ErrorCode.INVALID_TOPIC_EXCEPTION if is_internal else error.code
        return result
    log = partition.log
    offset = log.high_watermark if request.offset == HIGH_WATERMARK else request.offset
    if topic in INTERNAL_TOPICS:
        result.error_code = ErrorCode.INVALID_TOPIC_EXCEPTION
    elif partition.config.compacted and not partition.config.deleted:
        result.error_code = ErrorCode.POLICY_VIOLATION  # the topic is compacted, and never deletes
    elif not 0 <= offset <= log.high_watermark:
        result.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
    else:
        context.broker.replica_manager.delete_records(partition, offset)
        result.low_watermark = log.start_offset
    return result


@handles(m.DescribeLogDirsRequest)
def describe_log_dirs(context: RequestContext, request: m.DescribeLogDirsRequest) -> m.DescribeLogDirsResponse:
    if not context.allows(AclOperation.DESCRIBE):
        code = (
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            if context.version >= m.DescribeLogDirsRequest.TOP_LEVEL_ERROR
            else ErrorCode.NONE
        )
        return m.DescribeLogDirsResponse(error_code=code, results=[])
    manager = context.broker.replica_manager
    keys = None
    if request.topics is not None:
        keys = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    topics: dict[str, m.DescribeLogDirsTopic] = {}
    for (name, index), partition in manager.partitions.items():
        if keys is None or (name, index) in keys:
            topic = topics.setdefault(name, m.DescribeLogDirsTopic(name=name, partitions=[]))
            lag = 0 if partition.is_leader else max(0, partition.log.high_watermark - partition.log.end_offset)
            topic.partitions.append(
                m.DescribeLogDirsPartition(
                    partition_index=index, partition_size=partition.log.size, offset_lag=lag, is_future_key=False
                )
            )
    limit = manager.storage_limit
    directory = context.broker.settings.value("log.dirs")
    result = m.DescribeLogDirsResult(error_code=ErrorCode.NONE, log_dir=directory, topics=list(topics.values()))
    if limit is not None:
        result.total_bytes, result.usable_bytes = limit, max(0, limit - manager.stored_bytes)
    return m.DescribeLogDirsResponse(results=[result])


@handles(m.AlterReplicaLogDirsRequest)
def alter_replica_log_dirs(
    context: RequestContext, request: m.AlterReplicaLogDirsRequest
) -> m.AlterReplicaLogDirsResponse:
    return m.AlterReplicaLogDirsResponse(
        results=[
            m.AlterReplicaLogDirsTopicResult(
                topic_name=topic.name,
                partitions=[
                    m.AlterReplicaLogDirsPartitionResult(
                        partition_index=index, error_code=_move(context, (topic.name, index), directory.path)
                    )
                    for index in topic.partitions
                ],
            )
            for directory in request.dirs
            for topic in directory.topics
        ],
    )


def _move(context: RequestContext, key: PartitionKey, directory: str) -> ErrorCode:
    if not context.allows(AclOperation.ALTER):
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    if directory != context.broker.settings.value("log.dirs"):
        return ErrorCode.LOG_DIR_NOT_FOUND
    if key in context.broker.replica_manager.partitions:
        return ErrorCode.NONE
    exists = context.broker.metadata.partition_state(key) is not None
    return ErrorCode.REPLICA_NOT_AVAILABLE if exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@handles(m.DescribeProducersRequest)
def describe_producers(context: RequestContext, request: m.DescribeProducersRequest) -> m.DescribeProducersResponse:
    return m.DescribeProducersResponse(
        topics=[
            m.DescribeProducersTopicResult(
                name=topic.name,
                partitions=[_producers(context, topic.name, index) for index in topic.partition_indexes],
            )
            for topic in request.topics
        ],
    )


def _producers(context: RequestContext, topic: str, index: int) -> m.DescribeProducersPartitionResult:
    result = m.DescribeProducersPartitionResult(partition_index=index, error_code=ErrorCode.NONE, active_producers=[])
    with refusal_in(result):
        if not is_legal_name(topic):
            raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic!r} is not a legal topic name")
        producers = context.replica((topic, index), AclOperation.READ).producers
        result.active_producers = [
            m.DescribeProducersState(
                producer_id=producer_id,
                producer_epoch=entry.epoch,
                last_sequence=entry.window[-1].last_sequence if entry.window else -1,
                last_timestamp=entry.last_timestamp,
                coordinator_epoch=entry.coordinator_epoch,
                current_txn_start_offset=producers.transactions.open.get(producer_id, -1),
            )
            for producer_id, entry in producers.entries.items()
        ]
    return result
