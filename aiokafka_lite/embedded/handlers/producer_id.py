"""InitProducerId: a producer id and epoch for an idempotent producer.

- v0 to v2 return a new producer id with epoch 0; v3 (KIP-360) takes the old id and epoch.
- There is no transaction coordinator: the error for a transactional id is INVALID_REQUEST.
"""

from __future__ import annotations

from ...errors import ErrorCode
from ...protocol.messages import InitProducerIdRequest, InitProducerIdResponse
from ..handling import RequestContext, handles

NONE = -1


@handles(InitProducerIdRequest)
def init_producer_id(context: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    if request.transactional_id is not None:
        return _invalid()
    if (request.producer_id == NONE) != (request.producer_epoch == NONE):
        return _invalid()
    # As in Kafka: without a transactional id there is no stored epoch to bump, so the client gets a new producer id.
    producer_id = context.broker.controller.next_producer_id()
    return InitProducerIdResponse(
        throttle_time_ms=0, error_code=ErrorCode.NONE, producer_id=producer_id, producer_epoch=0
    )


def _invalid() -> InitProducerIdResponse:
    return InitProducerIdResponse(
        throttle_time_ms=0, error_code=ErrorCode.INVALID_REQUEST, producer_id=NONE, producer_epoch=NONE
    )
