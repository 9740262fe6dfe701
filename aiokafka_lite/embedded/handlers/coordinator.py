"""FindCoordinator: the node that coordinates a group or a transactional id.

- v0 supports only groups, v1 adds the type of the key, v4 many keys in one request (KIP-699).
- The coordinator of a group is the leader of its partition of ``__consumer_offsets``, that of a transactional id the
  leader of its partition of ``__transaction_state``. As in Kafka, the first request creates the topic. While the
  partition has no leader the error is COORDINATOR_NOT_AVAILABLE, which clients retry.
- The coordinator of a share group is that of a group. In Kafka, keys of the type 2 name share partitions, for requests
  between brokers; here they are INVALID_REQUEST.
"""

from __future__ import annotations

from ...acls import AclOperation
from ...errors import ErrorCode
from ...protocol.messages import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    FindCoordinatorResponseCoordinator,
)
from ..group_records import OFFSETS_TOPIC
from ..handling import RequestContext, handles
from ..internal_topics import create_internal_topic
from ..transaction_records import TRANSACTION_TOPIC

GROUP = 0
TRANSACTION = 1


@handles(FindCoordinatorRequest)
def find_coordinator(context: RequestContext, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    if context.version >= FindCoordinatorRequest.MANY_KEYS:
        return FindCoordinatorResponse(
            coordinators=[_find(context, key, request.key_type) for key in request.coordinator_keys]
        )
    found = _find(context, request.key, request.key_type)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _find(context: RequestContext, key: str, key_type: int) -> FindCoordinatorResponseCoordinator:
    if key_type == GROUP and not context.allows_group(AclOperation.DESCRIBE, key):
        return _refused(key, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if key_type == TRANSACTION and not context.allows_transaction(AclOperation.DESCRIBE, key):
        return _refused(key, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if key_type not in (GROUP, TRANSACTION):
        return _refused(key, ErrorCode.INVALID_REQUEST)
    broker = context.broker
    topic = OFFSETS_TOPIC if key_type == GROUP else TRANSACTION_TOPIC
    if topic not in broker.metadata.topics:
        create_internal_topic(topic, broker.controller, broker.settings)
    log = broker.groups.log if key_type == GROUP else broker.transactions.log
    index = log.partition_for(key)
    state = None if index is None else broker.metadata.partition_state((topic, index))
    leader = None if state is None else broker.metadata.brokers.get(state.leader)
    if leader is None or not leader.alive:
        return _refused(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return FindCoordinatorResponseCoordinator(
        key=key,
        node_id=leader.node_id,
        host=leader.host,
        port=context.port_of(leader),
        error_code=ErrorCode.NONE,
        error_message=None if context.version < FindCoordinatorRequest.MANY_KEYS else "",
    )


def _refused(key: str, error: ErrorCode) -> FindCoordinatorResponseCoordinator:
    return FindCoordinatorResponseCoordinator(
        key=key, node_id=-1, host="", port=-1, error_code=error, error_message=error.description
    )
