"""ElectLeaders, AlterPartitionReassignments and ListPartitionReassignments.

- ElectLeaders v0 supports only preferred elections; v1 (KIP-460) adds unclean ones, for partitions without a leader.
  The response to a request for all partitions leaves out partitions that needed no election.
- AlterPartitionReassignments (KIP-455): null replicas cancel a reassignment. v1 (KIP-860) can demand that the number
  of replicas does not change.
"""

from __future__ import annotations

from ...acls import AclOperation
from ...errors import ErrorCode
from ...protocol import messages as m
from ..metadata.controller import Refused, require_time
from ..metadata.topics import PartitionKey
from ..request_context import RequestContext, handles, refusal_in

PREFERRED = 0
UNCLEAN = 1


@handles(m.ElectLeadersRequest, requires=AclOperation.ALTER)
def elect_leaders(context: RequestContext, request: m.ElectLeadersRequest) -> m.ElectLeadersResponse:
    controller = context.broker.controller
    require_time(request.timeout_ms)
    if request.topic_partitions is None:
        keys = [(topic.name, index) for topic in controller.topics.values() for index in range(len(topic.partitions))]
    else:
        keys = [(topic.topic, index) for topic in request.topic_partitions for index in topic.partitions]
    results: dict[str, m.ElectLeadersTopicResult] = {}
    for key in keys:
        result = _elect(context, key, request.election_type)
        if request.topic_partitions is None and result.error_code == ErrorCode.ELECTION_NOT_NEEDED:
            continue
        topic = results.setdefault(key[0], m.ElectLeadersTopicResult(topic=key[0], partition_result=[]))
        topic.partition_result.append(result)
    is_supported = request.election_type in (PREFERRED, UNCLEAN)
    return m.ElectLeadersResponse(
        error_code=ErrorCode.NONE if is_supported else ErrorCode.INVALID_REQUEST,
        replica_election_results=list(results.values()),
    )


def _elect(context: RequestContext, key: PartitionKey, election_type: int) -> m.ElectLeadersPartitionResult:
    leadership = context.broker.leadership
    result = m.ElectLeadersPartitionResult(partition_id=key[1], error_code=ErrorCode.NONE, error_message=None)
    with refusal_in(result):
        if election_type not in (PREFERRED, UNCLEAN):
            raise Refused(ErrorCode.INVALID_REQUEST, f"unknown election type {election_type}")
        if election_type == UNCLEAN:
            leadership.elect_unclean(key)
        else:
            leadership.elect_preferred(key)
    return result


@handles(m.AlterPartitionReassignmentsRequest, requires=AclOperation.ALTER)
def alter_partition_reassignments(
    context: RequestContext, request: m.AlterPartitionReassignmentsRequest
) -> m.AlterPartitionReassignmentsResponse:
    require_time(request.timeout_ms)
    response = m.AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=ErrorCode.NONE,
        error_message=None,
        responses=[],
    )
    for topic in request.topics:
        answered = m.ReassignableTopicResponse(name=topic.name, partitions=[])
        for partition in topic.partitions:
            result = m.ReassignablePartitionResponse(
                partition_index=partition.partition_index, error_code=ErrorCode.NONE, error_message=None
            )
            with refusal_in(result):
                context.broker.leadership.reassign(
                    (topic.name, partition.partition_index),
                    partition.replicas,
                    keep_factor=not request.allow_replication_factor_change,
                )
            answered.partitions.append(result)
        response.responses.append(answered)
    return response


@handles(m.ListPartitionReassignmentsRequest, requires=AclOperation.DESCRIBE)
def list_partition_reassignments(
    context: RequestContext, request: m.ListPartitionReassignmentsRequest
) -> m.ListPartitionReassignmentsResponse:
    response = m.ListPartitionReassignmentsResponse(error_code=ErrorCode.NONE, error_message=None, topics=[])
    keys = None
    if request.topics is not None:
        keys = {(topic.name, index) for topic in request.topics for index in topic.partition_indexes}
    for topic in context.broker.controller.topics.values():
        ongoing = [
            m.OngoingPartitionReassignment(
                partition_index=index,
                replicas=list(state.replicas),
                adding_replicas=list(state.adding),
                removing_replicas=list(state.removing),
            )
            for index, state in enumerate(topic.partitions)
            if (state.adding or state.removing) and (keys is None or (topic.name, index) in keys)
        ]
        if ongoing:
            response.topics.append(m.OngoingTopicReassignment(name=topic.name, partitions=ongoing))
    return response
