"""InitProducerId: a producer id and epoch, for an idempotent or a transactional producer.

- v0 to v2: a new producer id, or the next epoch of a transactional id.
- v3: the request may have the old id and epoch of a producer that continues after an error (KIP-360).
- v4: PRODUCER_FENCED in place of INVALID_PRODUCER_EPOCH.
- v6: the flags of two-phase commit (KIP-939), which Kafka refuses too unless it is enabled.
"""

from __future__ import annotations

from ...acls import AclOperation, AclResourceType
from ...errors import ErrorCode
from ...protocol.messages import InitProducerIdRequest, InitProducerIdResponse
from ..request_context import RequestContext, handles
from .transactions import fenced

NONE = -1


@handles(InitProducerIdRequest)
async def init_producer_id(context: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    old = (request.producer_id, request.producer_epoch)
    refusal = _refusal(context, request)
    if refusal is not ErrorCode.NONE:
        return _failed(refusal)
    if (old[0] == NONE) != (old[1] == NONE) or request.transactional_id == "":
        return _failed(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is None:
        # As in Kafka: without a transactional id no epoch is stored, so the client gets a new producer id.
        return _answer(context.broker.controller.next_producer_id(), 0)
    if request.enable2_pc:
        return _failed(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if request.keep_prepared_txn:
        return _failed(ErrorCode.UNSUPPORTED_VERSION)
    result = await context.broker.transactions.initialize(
        request.transactional_id, request.transaction_timeout_ms, None if old[0] == NONE else old
    )
    if result.error is ErrorCode.NONE:
        return _answer(result.producer_id, result.producer_epoch)
    return _failed(fenced(result.error, says_fenced=context.version >= InitProducerIdRequest.PRODUCER_FENCED))


def _refusal(context: RequestContext, request: InitProducerIdRequest) -> ErrorCode:
    """Return the error if access is denied. A client that may write to any topic may have a producer id."""
    if request.transactional_id is not None:
        if context.allows_transaction(AclOperation.WRITE, request.transactional_id):
            return ErrorCode.NONE
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if context.allows(AclOperation.IDEMPOTENT_WRITE) or context.allows_any(AclOperation.WRITE, AclResourceType.TOPIC):
        return ErrorCode.NONE
    return ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def _answer(producer_id: int, epoch: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=ErrorCode.NONE, producer_id=producer_id, producer_epoch=epoch)


def _failed(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=NONE, producer_epoch=NONE)
