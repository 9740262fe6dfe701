"""FindCoordinator: the node that coordinates a group or a transactional id.

- v0 supports only groups, v1 adds the type of the key, v4 many keys in one request (KIP-699).
- The coordinator of a group is the leader of its partition of ``__consumer_offsets``. The coordinator of a
  transactional id is the leader of its partition of ``__transaction_state``. As in Kafka, the first request creates the
  topic. While the partition has no leader, the error is COORDINATOR_NOT_AVAILABLE, which clients retry.
- A share group has the coordinator of a group with its id. Since v6, keys of the type 2 name a share partition:
  ``group:topic id:partition``. Its coordinator is the leader of its partition of ``__share_group_state``.
"""

from __future__ import annotations

import base64

from ...acls import AclOperation
from ...errors import ErrorCode
from ...protocol import messages as m
from ..coordinators.groups.records import OFFSETS_TOPIC, partition_of
from ..coordinators.internal_topics import create_internal_topic
from ..coordinators.share.records import SHARE_STATE_TOPIC
from ..coordinators.transactions.records import TRANSACTION_TOPIC
from ..request_context import RequestContext, handles

GROUP = 0
TRANSACTION = 1
SHARE_PARTITION = 2
TOPICS = {GROUP: OFFSETS_TOPIC, TRANSACTION: TRANSACTION_TOPIC, SHARE_PARTITION: SHARE_STATE_TOPIC}
UUID_SIZE = 16


@handles(m.FindCoordinatorRequest)
def find_coordinator(context: RequestContext, request: m.FindCoordinatorRequest) -> m.FindCoordinatorResponse:
    if context.version >= m.FindCoordinatorRequest.MANY_KEYS:
        return m.FindCoordinatorResponse(
            coordinators=[_find(context, key, request.key_type) for key in request.coordinator_keys]
        )
    coordinator = _find(context, request.key, request.key_type)
    return m.FindCoordinatorResponse(
        error_code=coordinator.error_code,
        error_message=coordinator.error_message,
        node_id=coordinator.node_id,
        host=coordinator.host,
        port=coordinator.port,
    )


def _refusal(context: RequestContext, key: str, key_type: int) -> m.FindCoordinatorResponseCoordinator | None:
    """Return the answer to a request that is wrong or not allowed."""
    if key_type == GROUP and not context.allows_group(AclOperation.DESCRIBE, key):
        return _refused(key, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if key_type == TRANSACTION and not context.allows_transaction(AclOperation.DESCRIBE, key):
        return _refused(key, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if key_type == SHARE_PARTITION and context.version >= m.FindCoordinatorRequest.MANY_KEYS:
        if not context.allows(AclOperation.CLUSTER_ACTION):
            return _refused(key, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        if context.version < m.FindCoordinatorRequest.SHARE_PARTITIONS or not _is_share_partition(key):
            return _refused(key, ErrorCode.INVALID_REQUEST, "")
        return None
    return None if key_type in (GROUP, TRANSACTION) else _refused(key, ErrorCode.INVALID_REQUEST)


def _find(context: RequestContext, key: str, key_type: int) -> m.FindCoordinatorResponseCoordinator:
    if (refusal := _refusal(context, key, key_type)) is not None:
        return refusal
    broker, topic = context.broker, TOPICS[key_type]
    if topic not in broker.metadata.topics:
        create_internal_topic(topic, broker.controller, broker.settings)
    described = broker.metadata.topics.get(topic)
    state = None if described is None else described.partitions[partition_of(key, len(described.partitions))]
    leader = None if state is None else broker.metadata.brokers.get(state.leader)
    if leader is None or not leader.alive:
        return _refused(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return m.FindCoordinatorResponseCoordinator(
        key=key,
        node_id=leader.node_id,
        host=leader.host,
        port=context.port_of(leader),
        error_code=ErrorCode.NONE,
        error_message=None if context.version < m.FindCoordinatorRequest.MANY_KEYS else "",
    )


def _is_share_partition(key: str) -> bool:
    """Return whether a key has the form ``group:topic id:partition``. The group may have colons, too."""
    group, _, rest = key.rpartition(":")[0].rpartition(":")
    number = key.rpartition(":")[2]
    try:
        int(number)
        topic_id = base64.b64decode(rest + "==", altchars=b"-_", validate=True)
    except ValueError:
        return False
    return bool(group.strip()) and len(topic_id) == UUID_SIZE


def _refused(key: str, error: ErrorCode, message: str | None = None) -> m.FindCoordinatorResponseCoordinator:
    text = error.description if message is None else message
    return m.FindCoordinatorResponseCoordinator(
        key=key, node_id=-1, host="", port=-1, error_code=error, error_message=text
    )
