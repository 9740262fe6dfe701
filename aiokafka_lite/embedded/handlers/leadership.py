"""ElectLeaders, AlterPartitionReassignments and ListPartitionReassignments.

- ElectLeaders v0 knows preferred elections only; v1 (KIP-460) also unclean ones, of partitions without a leader.
  Where all partitions were asked for, those that needed no election are left out.
- A reassignment (KIP-455) adds the new replicas, waits until they are in sync, and then takes the old ones out. Null
  calls it off. v1 (KIP-860) may insist on the number of replicas staying as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import ErrorCode
from ...protocol.messages import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectLeadersPartitionResult,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectLeadersTopicResult,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from ..authoriser import CLUSTER, Operation
from ..controller import Refused
from ..topics import PartitionKey

if TYPE_CHECKING:
    from ..connection import RequestContext

PREFERRED = 0
UNCLEAN = 1


def elect_leaders(context: RequestContext, request: ElectLeadersRequest) -> ElectLeadersResponse:
    if not _allowed(context, Operation.ALTER):
        return ElectLeadersResponse(
            throttle_time_ms=0, error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, replica_election_results=[]
        )
    controller = context.node.cluster.controller
    if request.topic_partitions is None:
        keys = [(topic.name, index) for topic in controller.topics.values() for index in range(len(topic.partitions))]
    else:
        keys = [(topic.topic, index) for topic in request.topic_partitions for index in topic.partitions]
    results: dict[str, ElectLeadersTopicResult] = {}
    for key in keys:
        result = _elect(context, key, request.election_type)
        if request.topic_partitions is None and result.error_code == ErrorCode.ELECTION_NOT_NEEDED:
            continue
        topic = results.setdefault(key[0], ElectLeadersTopicResult(topic=key[0], partition_result=[]))
        topic.partition_result.append(result)
    return ElectLeadersResponse(throttle_time_ms=0, replica_election_results=list(results.values()))


def _elect(context: RequestContext, key: PartitionKey, election_type: int) -> ElectLeadersPartitionResult:
    controller = context.node.cluster.controller
    result = ElectLeadersPartitionResult(partition_id=key[1], error_code=ErrorCode.NONE, error_message=None)
    try:
        if election_type not in (PREFERRED, UNCLEAN):
            raise Refused(ErrorCode.INVALID_REQUEST, f"there is no election of type {election_type}")
        if election_type == UNCLEAN:
            controller.elect_unclean(key)
        else:
            controller.elect_preferred(key)
    except Refused as refusal:
        result.error_code, result.error_message = refusal.code, str(refusal)
    return result


def _allowed(context: RequestContext, operation: Operation) -> bool:
    return context.node.cluster.authoriser.allows(context.principal, operation, CLUSTER)


def alter_partition_reassignments(
    context: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    response = AlterPartitionReassignmentsResponse(
        throttle_time_ms=0,
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=ErrorCode.NONE,
        error_message=None,
        responses=[],
    )
    if not _allowed(context, Operation.ALTER):
        response.error_code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return response
    controller = context.node.cluster.controller
    for topic in request.topics:
        answered = ReassignableTopicResponse(name=topic.name, partitions=[])
        for wanted in topic.partitions:
            result = ReassignablePartitionResponse(
                partition_index=wanted.partition_index, error_code=ErrorCode.NONE, error_message=None
            )
            try:
                controller.reassign(
                    (topic.name, wanted.partition_index),
                    wanted.replicas,
                    keep_factor=not request.allow_replication_factor_change,
                )
            except Refused as refusal:
                result.error_code, result.error_message = refusal.code, str(refusal)
            answered.partitions.append(result)
        response.responses.append(answered)
    return response


def list_partition_reassignments(
    context: RequestContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    response = ListPartitionReassignmentsResponse(
        throttle_time_ms=0, error_code=ErrorCode.NONE, error_message=None, topics=[]
    )
    if not _allowed(context, Operation.DESCRIBE):
        response.error_code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return response
    wanted = None
    if request.topics is not None:
        wanted = {(topic.name, index) for topic in request.topics for index in topic.partition_indexes}
    for topic in context.node.cluster.controller.topics.values():
        ongoing = [
            OngoingPartitionReassignment(
                partition_index=index,
                replicas=list(state.replicas),
                adding_replicas=list(state.adding),
                removing_replicas=list(state.removing),
            )
            for index, state in enumerate(topic.partitions)
            if (state.adding or state.removing) and (wanted is None or (topic.name, index) in wanted)
        ]
        if ongoing:
            response.topics.append(OngoingTopicReassignment(name=topic.name, partitions=ongoing))
    return response


HANDLERS = {
    ElectLeadersRequest: elect_leaders,
    AlterPartitionReassignmentsRequest: alter_partition_reassignments,
    ListPartitionReassignmentsRequest: list_partition_reassignments,
}
