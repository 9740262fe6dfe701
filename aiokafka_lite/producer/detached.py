"""Transactions that one process writes and another process ends.

A job whose workers write and whose driver decides can commit in this way. Each worker flushes its records and returns
the identity of its open transaction (``Producer.detach_transaction``). The driver ends all transactions
(``end_detached``).

The coordinator accepts the end of a transaction only under the newest epoch of its transactional id. So a producer that
has started since, with the same transactional id, has fenced the detached transaction: ``end_detached`` is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..aio.deadline import deadline
from ..cluster.client import Client
from ..types import GroupMetadata, OffsetAndMetadata, TopicPartition
from .producer_ids import ProducerIdAndEpoch
from .transaction_coordinator import TransactionCoordinator
from .transactional_ids import TransactionalIds


@dataclass(frozen=True, slots=True)
class DetachedTransaction:
    """The identity of an open transaction. It can be pickled.

    ``generation`` is that of the protocol, 1 or 2. ``transaction_timeout`` is that of the producer, in seconds.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    generation: int
    transaction_timeout: float


async def end_detached(
    client: Client,
    detached: DetachedTransaction,
    *,
    committed: bool,
    offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None,
    group: GroupMetadata | None = None,
) -> None:
    """Commit or abort a detached transaction. ``offsets`` of ``group`` are committed in it, if there are any.

    Raises ProducerFenced if another producer with the transactional id has started. Raises BrokerError with
    INVALID_TXN_STATE if the coordinator has aborted the transaction at its timeout. Raises KafkaTimeout after
    ``api_timeout`` seconds: then the outcome is not known.
    """
    ids = TransactionalIds(lambda: None)
    ids.received(ProducerIdAndEpoch(detached.producer_id, detached.producer_epoch))
    ids.begin(detached.generation)
    coordinator = TransactionCoordinator(client, detached.transactional_id, detached.transaction_timeout, ids)
    coordinator.has_started = True
    bound = client.config.api_timeout

    def late() -> str:
        return (
            f"the outcome of the transaction of {detached.transactional_id!r} is not known after {bound:g} s; the last"
            f" error was: {coordinator.last_error}"
        )

    with deadline(bound, late):
        if committed and offsets and group is not None:
            await coordinator.send_offsets(offsets, group, lambda: True)
        await coordinator.end(committed=committed)
