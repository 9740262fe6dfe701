"""InitProducerId: an identity for an idempotent producer.

- v0 to v2 give a new producer id with epoch 0 each time; v3 (KIP-360) takes the old id and epoch and bumps the epoch.
- Transactional ids are refused with INVALID_REQUEST, as there is no transaction coordinator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import ErrorCode
from ...protocol.messages import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from ..connection import RequestContext

NONE = -1


def init_producer_id(context: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    if request.transactional_id is not None:
        return _invalid()
    if (request.producer_id == NONE) != (request.producer_epoch == NONE):
        return _invalid()
    # Without a transactional id nobody remembers the old identity, so that a new one takes its place, as in Kafka.
    producer_id = context.node.cluster.controller.next_producer_id()
    return InitProducerIdResponse(
        throttle_time_ms=0, error_code=ErrorCode.NONE, producer_id=producer_id, producer_epoch=0
    )


def _invalid() -> InitProducerIdResponse:
    return InitProducerIdResponse(
        throttle_time_ms=0, error_code=ErrorCode.INVALID_REQUEST, producer_id=NONE, producer_epoch=NONE
    )


HANDLERS = {InitProducerIdRequest: init_producer_id}
