"""FindCoordinator: which node keeps a group.

- v0 knows groups only, v1 adds the type of key, v4 asks for many keys at once (KIP-699).
- A group is kept by the leader of its partition of ``__consumer_offsets``, which is made when first asked for, as Kafka
  does. While that has no leader the answer is COORDINATOR_NOT_AVAILABLE, which clients take as "ask again".
- Transactions and share groups have no coordinator here. They are refused with INVALID_REQUEST, as Kafka refuses share
  groups where they are off: clients give up at this, while at anything that may pass they ask until their time is
  over (Java's admin client without a pause).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import ErrorCode
from ...protocol.messages import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    FindCoordinatorResponseCoordinator,
)
from ..authoriser import Operation
from ..controller import Refused
from ..group_records import OFFSETS_TOPIC
from .group_membership import may

if TYPE_CHECKING:
    from ..connection import RequestContext

GROUP = 0
UNKNOWN_TYPES = {1: "this broker keeps no transactions", 2: "this broker keeps no share groups"}
MANY_KEYS = 4
DEFAULT_PARTITIONS = 50
DEFAULT_REPLICATION_FACTOR = 3


def find_coordinator(context: RequestContext, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    if context.version >= MANY_KEYS:
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
    if key_type == GROUP and not may(context, Operation.DESCRIBE, key):
        return _nobody(key, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if key_type != GROUP:
        return _nobody(key, ErrorCode.INVALID_REQUEST, UNKNOWN_TYPES.get(key_type))
    node = context.node
    if OFFSETS_TOPIC not in node.topics:
        _make_offsets_topic(context)
    index = node.groups.partition_for(key)
    state = None if index is None else node.partition_state((OFFSETS_TOPIC, index))
    leader = None if state is None else node.endpoint(state.leader)
    if leader is None or not leader.alive:
        return _nobody(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return FindCoordinatorResponseCoordinator(
        key=key,
        node_id=leader.node_id,
        host=leader.host,
        port=leader.port,
        error_code=ErrorCode.NONE,
        error_message=None if context.version < MANY_KEYS else "",
    )


def _nobody(key: str, error: ErrorCode, message: str | None = None) -> FindCoordinatorResponseCoordinator:
    return FindCoordinatorResponseCoordinator(
        key=key, node_id=-1, host="", port=-1, error_code=error, error_message=message or error.description
    )


def _make_offsets_topic(context: RequestContext) -> None:
    controller = context.node.cluster.controller
    settings = controller.broker_configs
    wanted = int(settings.get("offsets.topic.replication.factor", DEFAULT_REPLICATION_FACTOR))
    try:
        controller.create_topic(
            OFFSETS_TOPIC,
            int(settings.get("offsets.topic.num.partitions", DEFAULT_PARTITIONS)),
            max(1, min(wanted, len(controller.live_brokers()))),
            configs={"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "104857600"},
        )
    except Refused:
        return  # another node was faster, or no broker lives: the answer is that nobody is there yet


HANDLERS = {FindCoordinatorRequest: find_coordinator}
