"""Exactly once from Kafka to Kafka: consume, transform, and produce in transactions (KIP-98, KIP-447).

``ExactlyOnce`` joins a member of a group and a transactional producer. The records that the user sends for a batch, and
the offsets of the batch, are one transaction.

Rules of this file:

Rule 1: A transaction is committed only for partitions that this member has held without a gap since their records were
        returned. ``_Transaction`` is created in the iteration of the event loop in which the records are returned. The
        listener marks it as failed when one of its partitions is lost or revoked. So a commit never uses the identity
        of a later generation, in which another member may own the partition.
Rule 2: The member's identity is read after the check of rule 1, without an await in between. If the member loses the
        partition afterwards, the coordinator refuses the identity, because it belongs to an older generation. Under the
        consumer protocol, a member that joins again may get the same identity. So the failure is checked again after
        the offsets are sent.
Rule 3: A partition is revoked only after its transaction has ended: a revocation waits until the batch is processed,
        and then the listener commits. If a transaction is still open, the new owner waits for its end, because the new
        owner asks for stable offsets.
Rule 4: The outcome of a commit is never guessed. A commit whose outcome is not known is awaited again.
Rule 5: After an abort, each partition that is still held is read again from the first record of the transaction. A
        partition that was lost or revoked is not moved: its position, if it was assigned again, is the committed one.
Rule 6: ``_finish`` can be cancelled anywhere and called again. It then continues with its earlier decision.
Rule 7: A batch must be processed and committed within ``transaction_timeout`` and ``max_poll_interval``. The first
        batch is one record, and the next ones are what the program processes in a quarter of that time. A batch that
        was too slow after all is returned again, in smaller batches. Until the program asks for the next batch, what it
        sends is dropped: an error of a send would end the program, and again after its restart.
"""

from __future__ import annotations

import asyncio
import logging
import math
import weakref
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Generic, Self

import anyio

from ..aio import forks
from ..aio.component import Component
from ..aio.pace import Pace
from ..aio.retry import Backoff, is_retriable
from ..aio.service import ServiceState
from ..arguments import must_be, plural, whole
from ..consumer import Consumer, RebalanceHandle, RebalanceListener
from ..errors import (
    REBALANCED,
    BrokerError,
    CommitFailed,
    ConfigurationError,
    ErrorCode,
    IllegalStateError,
    KafkaError,
    KafkaTimeout,
    TransactionAborted,
)
from ..producer import Producer
from ..types import K, OffsetAndMetadata, Record, TopicPartition, V

logger = logging.getLogger(__name__)

FIRST = 1
"""Records of the first batch, whose program is not known yet."""

SHORTEST_PAUSE, LONGEST_PAUSE = 0.05, 2.0
"""Seconds before the records of an aborted transaction are read again. The pause doubles with each abort in a row."""

_REPEATED = (
    *REBALANCED,
    ErrorCode.TRANSACTION_ABORTABLE,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
)
"""Errors after which the same records are processed again.

After INVALID_PRODUCER_EPOCH this happens only if an abort succeeds. The abort shows that no other producer has taken
over, and that the transaction was open for longer than ``transaction_timeout``. A fenced producer cannot abort.
"""


class _ReadAgain(KafkaError):
    """The transaction must not be committed, although nothing failed. Users never see this exception."""


@dataclass(slots=True)
class _Transaction:
    """An open transaction: the partitions that were read in it, and the failure that prevents its commit, if any."""

    begun_at: float
    starts: dict[TopicPartition, int] = field(default_factory=dict)
    """The offset of the first record of each partition. After an abort, reading continues there."""
    offsets: dict[TopicPartition, OffsetAndMetadata] = field(default_factory=dict)
    """The offsets to commit."""
    records: int = 0
    failure: KafkaError | None = None
    gone: set[TopicPartition] = field(default_factory=set)
    """The partitions that were lost or revoked after they were read."""
    is_begun: bool = False
    is_committing: bool = False
    """Whether the commit has begun. From then on, a loss of partitions cannot prevent it (rule 4)."""
    has_sent_offsets: bool = False
    is_aborted: bool = False
    took: float = 0.0
    """Seconds until the user has asked for the next batch."""

    def add(self, records: Sequence[Record[Any, Any]]) -> None:
        self.records += len(records)
        before = None
        for record in records:  # the records of one partition are neighbours
            if before is None or record.partition != before.partition or record.topic != before.topic:
                self.starts.setdefault(TopicPartition(record.topic, record.partition), record.offset)
                self._end_at(before)
            before = record
        self._end_at(before)

    def _end_at(self, last: Record[Any, Any] | None) -> None:
        if last is not None:
            partition = TopicPartition(last.topic, last.partition)
            self.offsets[partition] = OffsetAndMetadata(last.offset + 1, leader_epoch=last.leader_epoch)

    def fail(self, failure: KafkaError) -> None:
        """Record why the transaction cannot be committed. Only the first failure counts."""
        if self.failure is None:
            self.failure = failure

    def take_away(self, partitions: Sequence[TopicPartition], why: str) -> None:
        """Record that this member has lost these partitions."""
        gone = [partition for partition in partitions if partition in self.starts]
        self.gone.update(gone)
        if gone:
            self.fail(_ReadAgain(f"{', '.join(map(str, gone))} {why}"))


class ExactlyOnce(Generic[K, V]):
    """Iterates over batches of records, and commits each batch together with the records sent for it.

    ::

        async with (
            Consumer(servers, topics=["orders"], group_id="billing", auto_commit=False) as consumer,
            Producer(servers, transactional_id="billing-1") as producer,
        ):
            async for records in ExactlyOnce(consumer, producer):
                for record in records:
                    producer.send_nowait("bills", bill_of(record.value), key=record.key)

    The request for the next batch commits the present batch: its offsets, and the records that were sent for it, become
    visible together. With ``commit_interval`` in seconds, several batches are one transaction. It is committed at the
    first request after that time, or when the time ends and no records arrive. A batch has at most ``max_records``
    records, and no more than the program processes in a quarter of ``transaction_timeout`` or ``max_poll_interval``;
    the first one has one record.

    If the group revokes a partition before the commit, or the cluster aborts the transaction, consumers with
    ``read_committed`` get nothing of the transaction. The records are returned again, here or by the new owner of the
    partition. Then the effects of the loop's body outside of Kafka happen again. If the body raises or is cancelled,
    closing the producer aborts the transaction. A new iteration of the same object aborts it too, and continues with
    the records of that transaction.

    The consumer must be a member of a group with ``auto_commit=False``, and the producer must have its own
    ``transactional_id``. No other code may read the consumer, commit its offsets, or begin transactions of the
    producer. The constructor raises ConfigurationError for a wrong consumer, producer or argument. Iterating raises
    ProducerFenced if another producer has the same ``transactional_id``, and other errors if a retry does not help.
    If a transaction was open for longer than ``transaction_timeout``, brokers before Kafka 4.0 fence the producer.
    With newer brokers its records are returned again, in smaller batches, and a WARNING is logged. Until then, what the
    body sends is dropped: ``send`` returns metadata with the offset -1, and a ``Delivery`` has the error.
    """

    def __init__(
        self,
        consumer: Consumer[K, V],
        producer: Producer[Any, Any],
        *,
        max_records: int = 500,
        commit_interval: float = 0.0,
    ) -> None:
        if not isinstance(consumer, Consumer):
            raise ConfigurationError(must_be("consumer", "a Consumer", consumer))
        if not isinstance(producer, Producer):
            raise ConfigurationError(must_be("producer", "a Producer", producer))
        if producer.config.transactional_id is None:
            raise ConfigurationError(f"producer must have a transactional_id, got {producer!r}")
        if consumer.auto_commit:
            raise ConfigurationError("consumer must have auto_commit=False: its offsets are committed in transactions")
        timeout = producer.config.transaction_timeout
        is_number = isinstance(commit_interval, int | float) and not isinstance(commit_interval, bool)
        if not is_number or not 0 <= commit_interval < timeout:
            limit = f"a number of seconds >= 0 and less than transaction_timeout={timeout:g}"
            raise ConfigurationError(must_be("commit_interval", limit, commit_interval))
        self._max_records = whole("max_records", max_records, 1)
        self._pace = Pace(FIRST)
        self._timeout = timeout
        self._window = min(timeout, consumer.max_poll_interval)
        self._commit_interval = commit_interval
        self._consumer = consumer
        self._producer = producer
        self._open: _Transaction | None = None
        """The transaction to which new batches are added; None before the first batch."""
        self._ending: _Transaction | None = None
        """The transaction that is being committed or aborted. It stays here if the commit or abort is cancelled."""
        self._is_in_body = False
        """Whether the user processes a batch now."""
        self._is_stopped = False
        self._process: int | None = None  # the fork generation of the process that iterates
        self._polling: anyio.CancelScope | None = None
        self._finishing = asyncio.Lock()
        self._backoff = Backoff(SHORTEST_PAUSE, LONGEST_PAUSE, jitter=0.0)
        self._pause = 0.0
        try:
            consumer.add_listener(_Listener(self))
        except IllegalStateError:
            raise ConfigurationError("consumer must have a group_id and topics, so that it is a member") from None

    def __repr__(self) -> str:
        return f"<ExactlyOnce {self._producer.config.transactional_id} {self._consumer!r}>"

    # The user's calls.

    def __aiter__(self) -> Self:
        if self._is_in_body and self._open is not None:
            self._open.fail(_ReadAgain("the loop over batches was left before the batch was processed"))
            self._pace.abandoned()
        return self

    async def __anext__(self) -> list[Record[K, V]]:
        if self._process is None:
            self._process = forks.generation
        forks.check_process(self, self._process)
        self._leave_body()
        while True:
            if self._ending is not None or self._is_stopped or self._due_in() <= 0:
                await self._finish_at_positions()
            await self._wait_after_abort()
            if self._is_stopped:
                raise StopAsyncIteration
            records = await self._poll()
            # No await between the read and this (rule 1).
            if records and (self._add(records) or await self._begin()):
                return records

    def stop(self) -> None:
        """End the iteration: commit after the present batch is processed, and return no more batches."""
        if self._process is not None:
            forks.check_process(self, self._process)
        self._is_stopped = True
        self._wake()

    async def commit(self) -> None:
        """Commit all records that were read and sent until now, also the present batch.

        Nothing more can be sent until the next batch. If the commit is not possible, the transaction is aborted, and
        its records are returned again.
        """
        if self._process is not None:
            forks.check_process(self, self._process)
        self._leave_body()
        await self._finish_at_positions()

    async def abort(self) -> None:
        """Abort the transaction. Its records are returned again."""
        if self._open is not None:
            self._open.fail(_ReadAgain("abort() was called"))
        await self.commit()

    # Reading.

    def _leave_body(self) -> None:
        """Record that the program has processed the present batch."""
        now = asyncio.get_running_loop().time()
        if self._is_in_body and self._open is not None:
            self._open.took = now - self._open.begun_at
        # Half of the window is for batches that take longer than the one before, and for the commit.
        self._pace.begin_read(now, self._window / 2)
        self._is_in_body = False

    def _due_in(self) -> float:
        """Return the seconds until the open transaction has to end; infinite if there is none."""
        if self._open is None:
            return math.inf
        if self._open.failure is not None:
            return 0.0
        # The next batch may take a quarter of the window, and the commit needs time.
        interval = min(self._commit_interval, self._window / 2)
        return self._open.begun_at + interval - asyncio.get_running_loop().time()

    async def _poll(self) -> list[Record[K, V]]:
        """Poll for records. Returns no records if the transaction is due, or if ``_wake`` was called."""
        with anyio.CancelScope() as self._polling:
            return await self._consumer.poll(self._pace.most_returned(self._max_records), self._due_in())
        return []

    def _wake(self) -> None:
        if self._polling is not None:
            self._polling.cancel()

    async def _wait_after_abort(self) -> None:
        pause, self._pause = self._pause, 0.0
        if pause:
            await asyncio.sleep(pause)

    def _add(self, records: list[Record[K, V]]) -> bool:
        """Add a batch to the open transaction, or to a new one. Returns False if the transaction is new."""
        is_open, now = self._open is not None, asyncio.get_running_loop().time()
        if self._open is None:
            self._open = _Transaction(now)
        self._open.add(records)
        self._pace.returned(len(records), now)
        self._is_in_body = True
        return is_open

    async def _begin(self) -> bool:
        """Begin the new transaction. Returns False if the previous one failed, and its records are read again."""
        transaction = self._open
        assert transaction is not None
        try:
            async with self._finishing:
                await self._end()
                if transaction is self._open and transaction.failure is None:
                    await self._producer.begin_transaction(defer=_would_be_repeated)
                    transaction.is_begun = True
        finally:
            if not transaction.is_begun:
                self._is_in_body = False
                if transaction is self._open:  # otherwise its records are already being read again
                    self._open = None
                    self._rewind(transaction)
        return transaction.is_begun

    # Ending a transaction.

    async def _finish_at_positions(self) -> None:
        """Call ``_finish`` in the task that reads.

        No record is returned meanwhile, so the positions can be committed. They are after the transaction markers that
        follow the last records.
        """
        transaction = self._open
        if transaction is not None and transaction.failure is None:
            for partition, offset in list(transaction.offsets.items()):
                # Both errors mean that the partition has no position now: it was lost, or its position is being reset.
                with suppress(IllegalStateError, KafkaTimeout):
                    position = await self._consumer.position(partition)
                    if position > offset.offset:
                        transaction.offsets[partition] = OffsetAndMetadata(position, leader_epoch=offset.leader_epoch)
        await self._finish()

    async def _finish(self) -> None:
        """Commit the open transaction, or abort it if that fails. Raises an error that a repetition cannot help."""
        async with self._finishing:
            await self._end()  # a transaction whose end was cancelled
            # The reader may have returned a batch while this waited for the lock.
            if self._open is not None and self._open.is_begun and not self._is_in_body:
                self._ending, self._open = self._open, None
                await self._end()

    async def _end(self) -> None:
        transaction = self._ending
        if transaction is None:
            return
        if (transaction.failure is None or transaction.is_committing) and await self._commit(transaction):
            self._ending = None
            self._backoff.reset()
            return
        await self._abort(transaction)
        self._ending = None
        later, self._open = self._open, None
        if later is not None:  # the consumer returned this batch meanwhile, and it has not reached the user
            transaction.starts = {**later.starts, **transaction.starts}
            transaction.gone |= later.gone
        self._rewind(transaction)
        failure = transaction.failure
        assert failure is not None
        if not _would_be_repeated(failure):
            raise failure
        self._pause = self._backoff.next()
        if transaction.took > self._window:
            self._log_slow(transaction, failure)
            return
        level = logging.INFO if isinstance(failure, _ReadAgain) else logging.WARNING
        text = "%r aborted a transaction and will return %s again: %s"
        logger.log(level, text, self, plural(transaction.records, "record"), failure)

    def _log_slow(self, transaction: _Transaction, failure: KafkaError) -> None:
        limit = "transaction_timeout" if self._window == self._timeout else "max_poll_interval"
        logger.warning(
            "%r aborted a transaction: its %s took %.3g s, and %s is %g s. It will return them again, at most %s at "
            "once; if one record needs as long, raise %s: %s",
            *(self, plural(transaction.records, "record"), transaction.took, limit, self._window),
            *(self._pace.most_returned(self._max_records), limit, failure),
        )

    async def _commit(self, transaction: _Transaction) -> bool:
        """Try to commit. Returns False, and sets the failure, if the transaction has to be aborted."""
        try:
            if not transaction.has_sent_offsets:
                try:
                    group = self._consumer.group_metadata()  # rule 2
                except IllegalStateError as error:
                    raise _ReadAgain(str(error)) from None
                await self._producer.send_offsets_to_transaction(transaction.offsets, group)
                transaction.has_sent_offsets = True
            # Rule 2: a partition was lost while the offsets were sent. With the consumer protocol, a member that joins
            # again may get its former epoch and read the records again. The coordinator cannot notice this.
            if transaction.failure is not None and not transaction.is_committing:
                return False
            transaction.is_committing = True
            while True:
                try:
                    await self._producer.commit_transaction()
                except KafkaTimeout as timed_out:
                    try:
                        await self._abort(transaction)
                    except IllegalStateError:  # the commit may have happened: rule 4
                        logger.warning("%r waits for the outcome of a commit: %s", self, timed_out)
                    except asyncio.CancelledError:  # the abort has begun, and the next call continues it: rule 6
                        transaction.is_committing = False
                        transaction.fail(timed_out)
                        raise
                    else:
                        raise
                else:
                    return True
        except KafkaError as error:
            transaction.is_committing = False
            transaction.fail(error)
            return False

    async def _abort(self, transaction: _Transaction) -> None:
        """Abort the transaction, unless it is aborted already. Raises the error of a producer that cannot continue."""
        if not transaction.is_aborted:
            # If the coordinator does not answer in time, the producer continues to abort. The next transaction waits.
            with suppress(KafkaTimeout):
                await self._producer.abort_transaction()
            transaction.is_aborted = True

    def _rewind(self, transaction: _Transaction) -> None:
        readable = set(self._consumer.assignment) - transaction.gone
        for partition, offset in transaction.starts.items():
            if partition in readable:
                self._consumer.seek(partition, offset)

    # The listener.

    async def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """End the transaction of these partitions. The group revokes the partitions when the call returns."""
        if not self._is_in_body and _is_running(self._consumer) and _is_running(self._producer):
            self._wake()
            await self._finish()
        for transaction in (self._open, self._ending):
            if transaction is not None:
                transaction.take_away(partitions, "was revoked before its records were processed")

    def lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Fail the transaction of these partitions, which other members may own already."""
        for transaction in (self._open, self._ending):
            if transaction is not None:
                transaction.take_away(partitions, "was lost")
        self._wake()


class _Listener(RebalanceListener):
    """Reports rebalances to an ``ExactlyOnce``, with a weak reference (rule 4 of ``aio.service``)."""

    def __init__(self, owner: ExactlyOnce[K, V]) -> None:
        self._owner = weakref.ref(owner)

    async def on_revoked(self, handle: RebalanceHandle, partitions: Sequence[TopicPartition]) -> None:
        if (owner := self._owner()) is not None:
            await owner.revoked(partitions)

    async def on_lost(self, handle: RebalanceHandle, partitions: Sequence[TopicPartition]) -> None:
        if (owner := self._owner()) is not None:
            owner.lost(partitions)


def _is_running(component: Component) -> bool:
    return component.state is ServiceState.RUNNING


def _would_be_repeated(error: Exception) -> bool:
    """Return whether the records should be processed again in another transaction, which may succeed."""
    if isinstance(error, CommitFailed):
        return all(_would_be_repeated(refusal) for refusal in error.refused.values())
    if isinstance(error, BrokerError) and error.code in _REPEATED:
        return True
    return isinstance(error, _ReadAgain | TransactionAborted) or is_retriable(error)
