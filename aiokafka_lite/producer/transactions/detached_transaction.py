"""Transactions that one process writes and another process ends.

An example is a job whose workers write and whose driver decides. Each worker flushes its records and returns the
identity of its open transaction (``Producer.detach_transaction``). The driver ends all transactions (``end_detached``),
and can add offsets to them before (``add_detached_offsets``). A transaction of offsets alone begins without a producer
(``begin_detached``).

The coordinator accepts offsets and the end of a transaction only under the newest epoch of its transactional id. So a
producer that starts later with the same transactional id fences the detached transaction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...aio.deadline import deadline
from ...cluster.client import Client
from ...types import GroupMetadata, OffsetAndMetadata, TopicPartition
from ..producer_ids import ProducerIdAndEpoch
from ..transactional_ids import TransactionalIds
from .coordinator import CoordinatorClient


@dataclass(frozen=True, slots=True)
class DetachedTransaction:
    """The identity of an open transaction. It can be pickled.

    ``generation`` is the protocol's generation, 1 or 2. ``transaction_timeout`` is the producer's setting, in seconds.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    generation: int
    transaction_timeout: float


async def begin_detached(client: Client, transactional_id: str, transaction_timeout: float) -> DetachedTransaction:
    """Begin a transaction without a producer. This fences earlier producers of the transactional id, and waits for the
    end of their transaction.

    Raises KafkaTimeout after ``api_timeout`` seconds.
    """
    ids = TransactionalIds(lambda: None)
    coordinator_client = CoordinatorClient(client, transactional_id, transaction_timeout, ids)
    with _bounded(client, coordinator_client, f"could not begin a transaction of {transactional_id!r}"):
        await coordinator_client.initialize()
    assert ids.newest is not None, "the coordinator has assigned it"
    return DetachedTransaction(
        transactional_id,
        ids.newest.producer_id,
        ids.newest.epoch,
        coordinator_client.channel.generation,
        transaction_timeout,
    )


async def add_detached_offsets(
    client: Client,
    detached: DetachedTransaction,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    group: GroupMetadata,
) -> None:
    """Commit offsets of a group in a detached transaction. ``end_detached`` ends the transaction.

    Raises ProducerFenced if another producer with the transactional id has started, and KafkaTimeout after
    ``api_timeout`` seconds.
    """
    coordinator_client = _coordinator_of(client, detached)
    what = f"the offsets were not added to the transaction of {detached.transactional_id!r}"
    with _bounded(client, coordinator_client, what):
        await coordinator_client.send_offsets(offsets, group, lambda: True)


async def end_detached(
    client: Client, detached: DetachedTransaction, *, committed: bool, timeout: float | None = None
) -> None:
    """Commit or abort a detached transaction.

    Raises ProducerFenced if another producer with the transactional id has started. Raises BrokerError with
    INVALID_TXN_STATE if the coordinator has aborted the transaction at its timeout. Raises KafkaTimeout after
    ``timeout`` seconds, by default ``api_timeout``: then the outcome is not known.
    """
    coordinator_client = _coordinator_of(client, detached)
    coordinator_client.has_started = True
    what = f"the outcome of the transaction of {detached.transactional_id!r} is not known"
    with _bounded(client, coordinator_client, what, timeout):
        await coordinator_client.end(committed=committed)


def _coordinator_of(client: Client, detached: DetachedTransaction) -> CoordinatorClient:
    ids = TransactionalIds(lambda: None)
    ids.received(ProducerIdAndEpoch(detached.producer_id, detached.producer_epoch))
    ids.begin(detached.generation)
    return CoordinatorClient(client, detached.transactional_id, detached.transaction_timeout, ids)


def _bounded(
    client: Client, coordinator_client: CoordinatorClient, text: str, timeout: float | None = None
) -> deadline:
    bound = client.config.api_timeout if timeout is None else timeout
    return deadline(
        bound, lambda: f"{text} after {bound:g} s; the last error was: {coordinator_client.channel.last_error}"
    )
