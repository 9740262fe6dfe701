"""FindCoordinator: the node that coordinates a group.

- v0 supports only groups, v1 adds the type of the key, v4 many keys in one request (KIP-699).
- The coordinator of a group is the leader of its partition of ``__consumer_offsets``. As in Kafka, the first request
  creates that topic. While the partition has no leader the error is COORDINATOR_NOT_AVAILABLE, which clients retry.
- There is no coordinator for transactions and share groups. The error is INVALID_REQUEST, as in a Kafka without share
  groups: it is not retriable, so clients fail at once. Java's admin client retries any retriable error in a busy loop.
"""

from __future__ import annotations

from ...errors import ErrorCode
from ...protocol.messages import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    FindCoordinatorResponseCoordinator,
)
from ..authorizer import Operation
from ..controller import Refused
from ..group_records import OFFSETS_TOPIC
from ..handling import RequestContext, handles

GROUP = 0
UNSUPPORTED_TYPES = {1: "this broker does not support transactions", 2: "this broker does not support share groups"}


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
    if key_type == GROUP and not context.allows_group(Operation.DESCRIBE, key):
        return _refused(key, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if key_type != GROUP:
        return _refused(key, ErrorCode.INVALID_REQUEST, UNSUPPORTED_TYPES.get(key_type))
    broker = context.broker
    if OFFSETS_TOPIC not in broker.metadata.topics:
        _create_offsets_topic(context)
    index = broker.groups.log.partition_for(key)
    state = None if index is None else broker.metadata.partition_state((OFFSETS_TOPIC, index))
    leader = None if state is None else broker.metadata.brokers.get(state.leader)
    if leader is None or not leader.alive:
        return _refused(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return FindCoordinatorResponseCoordinator(
        key=key,
        node_id=leader.node_id,
        host=leader.host,
        port=leader.port,
        error_code=ErrorCode.NONE,
        error_message=None if context.version < FindCoordinatorRequest.MANY_KEYS else "",
    )


def _refused(key: str, error: ErrorCode, message: str | None = None) -> FindCoordinatorResponseCoordinator:
    return FindCoordinatorResponseCoordinator(
        key=key, node_id=-1, host="", port=-1, error_code=error, error_message=message or error.description
    )


def _create_offsets_topic(context: RequestContext) -> None:
    controller = context.broker.controller
    settings = context.broker.settings
    factor = min(settings.number("offsets.topic.replication.factor"), len(controller.live_brokers()))
    try:
        controller.create_topic(
            OFFSETS_TOPIC,
            settings.number("offsets.topic.num.partitions"),
            max(1, factor),
            configs={"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "104857600"},
        )
    except Refused:
        return  # another node created it first, or no broker is alive: the coordinator is not available yet
