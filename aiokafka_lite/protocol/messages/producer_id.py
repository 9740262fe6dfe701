"""Get the id and epoch that make a producer idempotent (KIP-98).

- v2: flexible.
- v3: a producer may request a higher epoch of its id (KIP-360).
- v4: may return PRODUCER_FENCED.
- v6: two-phase commit (KIP-939).
"""

from __future__ import annotations

from ..schema import Request, Response, boolean, int16, int32, int64, message, since, string


@message(key=22, versions=(0, 6), flexible=2)
class InitProducerIdResponse(Response):
    """The producer id and epoch."""

    CLIENT_THROTTLES = since(1)

    throttle_time_ms: int = int32(default=0, ignorable=True)
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()
    ongoing_txn_producer_id: int = int64("6+", default=-1)
    ongoing_txn_producer_epoch: int = int16("6+", default=-1)


@message(key=22, versions=(0, 6), flexible=2)
class InitProducerIdRequest(Request[InitProducerIdResponse]):
    """Request the producer id of a transactional id, or a new producer id if that is null."""

    EPOCH_BUMP = since(3, kafka="2.5")
    PRODUCER_FENCED = since(4, kafka="2.7")
    TWO_PHASE_COMMIT = since(6, kafka="4.1")

    transactional_id: str | None = string(nullable="0+")
    transaction_timeout_ms: int = int32()
    producer_id: int = int64("3+", default=-1)
    producer_epoch: int = int16("3+", default=-1)
    enable2_pc: bool = boolean("6+", default=False)
    keep_prepared_txn: bool = boolean("6+", default=False)
