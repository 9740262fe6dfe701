"""The state of share partitions (KIP-932), for the brokers of a cluster: initialize, read, write, delete, summarize.

The share coordinator of each share partition answers. The embedded brokers call it directly, so only tests and foreign
brokers send these requests. All of them read and change the state that members of the group use.

- A request without a group, and a topic without partitions, gets an answer without results, as in Kafka.
- Initialize: an older state epoch is FENCED_STATE_EPOCH. A newer one, or the same, makes the state again.
- Read and Write: a share partition without state is INVALID_REQUEST, an older leader epoch FENCED_LEADER_EPOCH.
- Delete succeeds without state. The summary of a share partition without state has the start offset -1.
- Kafka stores any delivery state and any range of offsets. Here those that no record can have are INVALID_REQUEST.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ...acls import AclOperation
from ...errors import ErrorCode
from ...protocol import messages as m
from ..coordinators.groups.assignors import TopicIdPartition
from ..coordinators.groups.heartbeat_group import GroupRefusal
from ..coordinators.share.group import ShareState
from ..coordinators.share.partition import UNINITIALIZED
from ..coordinators.share.records import DELIVERY_STATES, batches_as, read_batches
from ..coordinators.share.state_batches import combine
from ..metadata.features import SHARE_VERSION
from ..request_context import RequestContext, handles, refusal_in
from .share_offsets import UNKNOWN

NEGATIVE = "The partition id cannot be a negative number."
NO_STATE = "{} operation on uninitialized share partition not allowed."


R = TypeVar("R")
T = TypeVar("T")


def _results(
    context: RequestContext,
    request: Any,
    topic_result: Callable[..., T],
    partition_result: Callable[..., R],
    operation: Callable[[TopicIdPartition, Any, R], None],
) -> list[T]:
    """Do an operation for each share partition of a request; a refusal goes into its result."""
    results = []
    for topic in request.topics if request.group_id else ():
        partitions = []
        for partition in topic.partitions:
            result = partition_result(partition=partition.partition, error_code=ErrorCode.NONE)
            with refusal_in(result):
                if partition.partition < 0:
                    raise GroupRefusal(ErrorCode.INVALID_REQUEST, NEGATIVE)
                key = (topic.topic_id, partition.partition)
                groups = context.broker.share_groups
                if groups.state_leader(request.group_id, key) != context.broker.node_id:
                    raise _refusal(ErrorCode.NOT_COORDINATOR)
                operation(key, partition, result)
            partitions.append(result)
        if partitions:
            results.append(topic_result(topic_id=topic.topic_id, partitions=partitions))
    return results


def _refusal(error: ErrorCode) -> GroupRefusal:
    return GroupRefusal(error, error.description)


def _require_partition(context: RequestContext, key: TopicIdPartition) -> None:
    """Raise GroupRefusal unless the partition exists."""
    name = context.broker.metadata.topic_name(key[0])
    if name is None or context.broker.metadata.partition_state((name, key[1])) is None:
        raise GroupRefusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN)


def _require_state(context: RequestContext, group_id: str, key: TopicIdPartition, epoch: int, what: str) -> ShareState:
    """Return the state for a leader of this epoch. Raises GroupRefusal."""
    state = context.broker.share_groups.stored_state(group_id, key)
    if state is None:
        raise GroupRefusal(ErrorCode.INVALID_REQUEST, NO_STATE.format(what))
    if state.leader_epoch > epoch:
        raise _refusal(ErrorCode.FENCED_LEADER_EPOCH)
    return state


@handles(m.InitializeShareGroupStateRequest, requires=AclOperation.CLUSTER_ACTION, feature=SHARE_VERSION)
def initialize_share_group_state(
    context: RequestContext, request: m.InitializeShareGroupStateRequest
) -> m.InitializeShareGroupStateResponse:
    groups = context.broker.share_groups

    def initialize(
        key: TopicIdPartition,
        partition: m.InitializeShareGroupStateRequestPartition,
        result: m.InitializeShareGroupStateResponsePartition,
    ) -> None:
        state = groups.stored_state(request.group_id, key)
        if state is not None and state.state_epoch > partition.state_epoch:
            raise _refusal(ErrorCode.FENCED_STATE_EPOCH)
        _require_partition(context, key)
        _require_offsets(partition.start_offset >= UNINITIALIZED)
        # Leaders of older epochs stay fenced.
        epoch = -1 if state is None else state.leader_epoch
        new = ShareState(partition.start_offset, state_epoch=partition.state_epoch, leader_epoch=epoch)
        groups.store_state(request.group_id, key, new)

    kinds = m.InitializeShareGroupStateResponseTopic, m.InitializeShareGroupStateResponsePartition
    return m.InitializeShareGroupStateResponse(results=_results(context, request, *kinds, initialize))


def _require_offsets(is_right: bool) -> None:
    if not is_right:
        raise GroupRefusal(ErrorCode.INVALID_REQUEST, "The offsets, states or counts of a state are wrong.")


@handles(m.ReadShareGroupStateRequest, requires=AclOperation.CLUSTER_ACTION, feature=SHARE_VERSION)
def read_share_group_state(
    context: RequestContext, request: m.ReadShareGroupStateRequest
) -> m.ReadShareGroupStateResponse:
    def read(
        key: TopicIdPartition,
        partition: m.ReadShareGroupStateRequestPartition,
        result: m.ReadShareGroupStateResponsePartition,
    ) -> None:
        state = _require_state(context, request.group_id, key, partition.leader_epoch, "Read")
        state.leader_epoch = partition.leader_epoch
        context.broker.share_groups.store_state(request.group_id, key, state)
        result.state_epoch, result.start_offset = state.state_epoch, state.start_offset
        result.state_batches = batches_as(m.ReadShareGroupStateResponseBatch, state.batches)

    kinds = m.ReadShareGroupStateResponseTopic, m.ReadShareGroupStateResponsePartition
    return m.ReadShareGroupStateResponse(results=_results(context, request, *kinds, read))


@handles(m.WriteShareGroupStateRequest, requires=AclOperation.CLUSTER_ACTION, feature=SHARE_VERSION)
def write_share_group_state(
    context: RequestContext, request: m.WriteShareGroupStateRequest
) -> m.WriteShareGroupStateResponse:
    def write(
        key: TopicIdPartition,
        partition: m.WriteShareGroupStateRequestPartition,
        result: m.WriteShareGroupStateResponsePartition,
    ) -> None:
        state = _require_state(context, request.group_id, key, partition.leader_epoch, "Write")
        if state.state_epoch > partition.state_epoch:
            raise _refusal(ErrorCode.FENCED_STATE_EPOCH)
        context.broker.share_groups.store_state(request.group_id, key, _written(state, partition))

    kinds = m.WriteShareGroupStateResponseTopic, m.WriteShareGroupStateResponsePartition
    return m.WriteShareGroupStateResponse(results=_results(context, request, *kinds, write))


def _written(state: ShareState, partition: m.WriteShareGroupStateRequestPartition) -> ShareState:
    """Return a new state, so that the leader of the partition drops the records in flight of the old one."""
    _require_offsets(
        partition.start_offset >= UNINITIALIZED
        and all(
            0 <= batch.first_offset <= batch.last_offset
            and batch.delivery_state in DELIVERY_STATES
            and batch.delivery_count >= 0
            for batch in partition.state_batches
        )
    )
    start = state.start_offset if partition.start_offset == UNINITIALIZED else partition.start_offset
    return ShareState(
        start,
        combine([*state.batches, *read_batches(partition.state_batches)], start),
        partition.delivery_complete_count,
        partition.leader_epoch,
        state.state_epoch,
    )


@handles(m.DeleteShareGroupStateRequest, requires=AclOperation.CLUSTER_ACTION, feature=SHARE_VERSION)
def delete_share_group_state(
    context: RequestContext, request: m.DeleteShareGroupStateRequest
) -> m.DeleteShareGroupStateResponse:
    def delete(key: TopicIdPartition, partition: object, result: object) -> None:
        _require_partition(context, key)
        context.broker.share_groups.delete_state(request.group_id, key)

    kinds = m.DeleteShareGroupStateResponseTopic, m.DeleteShareGroupStateResponsePartition
    return m.DeleteShareGroupStateResponse(results=_results(context, request, *kinds, delete))


@handles(m.ReadShareGroupStateSummaryRequest, requires=AclOperation.CLUSTER_ACTION, feature=SHARE_VERSION)
def read_share_group_state_summary(
    context: RequestContext, request: m.ReadShareGroupStateSummaryRequest
) -> m.ReadShareGroupStateSummaryResponse:
    def summarize(
        key: TopicIdPartition, partition: object, result: m.ReadShareGroupStateSummaryResponsePartition
    ) -> None:
        _require_partition(context, key)
        state = context.broker.share_groups.stored_state(request.group_id, key)
        result.start_offset = UNINITIALIZED if state is None else state.start_offset
        if state is not None:
            result.state_epoch, result.leader_epoch = state.state_epoch, max(state.leader_epoch, 0)
            if state.start_offset != UNINITIALIZED:
                result.delivery_complete_count = state.delivery_complete_count

    kinds = m.ReadShareGroupStateSummaryResponseTopic, m.ReadShareGroupStateSummaryResponsePartition
    return m.ReadShareGroupStateSummaryResponse(results=_results(context, request, *kinds, summarize))
