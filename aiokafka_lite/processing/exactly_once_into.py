"""Exactly once from Kafka into a database: effects and offsets are one transaction of the user's database.

``ExactlyOnceInto`` joins a member of a group and a store (``stores.store``, whose rules 1 and 2 hold here too).

Rules of this file:

Rule 1: A record is returned only if its partition is claimed in the store, and only from the offset that the store has.
        Kafka's committed offsets are a copy for tools that show the lag, and where a group without a row begins.
Rule 2: While a commit runs, the offsets of its partitions are uncertain. They become certain when it succeeds. After
        any other end (an error, a lost connection, a cancellation), the partitions are claimed again, which waits for
        the outcome and returns it. So the outcome of a commit is never guessed.
Rule 3: A claim that is held during a rebalance does no harm: if another member has claimed the partition since, the
        store refuses the offsets, and the whole transaction is rolled back.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import weakref
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self

import anyio

from ..aio import forks
from ..aio.pace import Pace
from ..aio.retry import Backoff, is_retriable
from ..arguments import check_function, check_methods, must_be, plural, whole
from ..consumer import Consumer, RebalanceHandle, RebalanceListener
from ..errors import REBALANCED, BrokerError, CommitFailed, ConfigurationError, IllegalStateError, KafkaError
from ..types import GroupMetadata, K, OffsetAndMetadata, Record, TopicPartition, V
from .stores.store import OffsetChange, StaleClaim, Store

logger = logging.getLogger(__name__)

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    T = TypeVar("T", default=Any)
else:  # as in ``types``: a type variable after those with defaults has one too
    from typing import TypeVar

    T = TypeVar("T")

FIRST = 1
"""Records of the first batch, whose program is not known yet."""

SHORTEST_PAUSE, LONGEST_PAUSE = 0.05, 5.0
"""Seconds before records are read again after a failure. The pause doubles with each failure in a row."""

COPY_INTERVAL = 5.0
"""Seconds between two commits of the offsets to Kafka."""

ROLLBACK_TIMEOUT = 5.0
"""Seconds for a rollback. After them the connection is left to the driver: the server rolls back when it closes."""


@dataclass(slots=True)
class _Claim:
    """A partition's row in the store, as this member wrote it."""

    member: GroupMetadata
    next_offset: int
    is_certain: bool = True
    """False while a commit of the partition has no known outcome (rule 2)."""


@dataclass(slots=True)
class _Batch(Generic[T]):
    """Records at the program, and their transaction."""

    block: AbstractAsyncContextManager[T]
    transaction: T
    claims: dict[TopicPartition, _Claim]
    next_offsets: dict[TopicPartition, int]
    record_count: int

    @property
    def group_id(self) -> str:
        return next(iter(self.claims.values())).member.group_id

    def changes(self) -> dict[TopicPartition, OffsetChange]:
        return {
            partition: OffsetChange(
                claim.member.generation_id, claim.member.member_id, claim.next_offset, self.next_offsets[partition]
            )
            for partition, claim in self.claims.items()
        }


class ExactlyOnceInto(Generic[K, V, T]):
    """Iterates over batches of records, each with a transaction of a database that commits its effects and offsets.

    ::

        async with (
            Consumer(servers, topics=["orders"], group_id="billing", auto_commit=False) as consumer,
            ExactlyOnceInto(consumer, PostgresStore(pool)) as batches,
        ):
            async for records, connection in batches:
                for record in records:
                    await connection.execute("INSERT INTO bills VALUES ($1)", record.value.decode())

    The request for the next batch commits the present one. If the body raises, is cancelled or breaks, the transaction
    is rolled back when the ``async with`` block ends, or when a new iteration begins, which returns the records again.
    After a rebalance, a lost connection or a restart of the database, the offsets are read from the store, and the
    records that it does not have are returned again, here or by the new owner of their partition. Then only effects
    outside of the database happen again.

    An error of the database during a commit or between two batches is retried if the store calls it transient, with a
    WARNING, and raised otherwise. An error inside of the body reaches the program; ``run`` retries transient ones too.
    Cancelling the iteration during a commit leaves its outcome to the store, and the next iteration continues there.

    A batch has at most ``max_records`` records, and no more than the program processes in a quarter of
    ``max_poll_interval``; the first one has one record. For tools that show the lag, the offsets are also committed to
    Kafka, some seconds later. A group without a row in the store begins at the offsets that it has committed to Kafka.

    The consumer must be a member of a group with ``auto_commit=False``, and no other code may read it. Raises
    ConfigurationError for a wrong consumer or store, and TypeError or ValueError for wrong ``max_records``.
    """

    def __init__(self, consumer: Consumer[K, V], store: Store[T], *, max_records: int = 500) -> None:
        if not isinstance(consumer, Consumer):
            raise ConfigurationError(must_be("consumer", "a Consumer", consumer))
        check_methods("store", store, "transaction", "claim", "save", "is_transient")
        if consumer.auto_commit:
            raise ConfigurationError("consumer must have auto_commit=False: its offsets are committed to the store")
        self._max_records = whole("max_records", max_records, 1)
        self._consumer = consumer
        self._store = store
        self._claims: dict[TopicPartition, _Claim] = {}
        self._batch: _Batch[T] | None = None
        self._pace = Pace(FIRST)
        self._backoff = Backoff(SHORTEST_PAUSE, LONGEST_PAUSE)
        self._pause = 0.0
        self._copied_at = 0.0
        self._copies: dict[TopicPartition, int] = {}
        """Offsets that the store has and Kafka does not."""
        self._polling: anyio.CancelScope | None = None
        self._is_stopped = False
        self._process: int | None = None  # the fork generation of the process that iterates
        try:
            consumer.add_listener(_Listener(self))
        except IllegalStateError:
            raise ConfigurationError("consumer must have a group_id and topics, so that it is a member") from None

    def __repr__(self) -> str:
        return f"<ExactlyOnceInto {self._store!r} {self._consumer!r}>"

    # The user's calls.

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._leave_batch()
        await self._copy_offsets()

    def __aiter__(self) -> Self:
        if self._batch is not None:
            self._pace.abandoned()
            for claim in self._batch.claims.values():
                claim.is_certain = False
        return self

    async def __anext__(self) -> tuple[list[Record[K, V]], T]:
        self._check_process()
        loop = asyncio.get_running_loop()
        self._pace.begin_read(loop.time(), self._consumer.max_poll_interval / 2)
        if self._batch is not None and all(claim.is_certain for claim in self._batch.claims.values()):
            await self._commit(self._batch)
        await self._leave_batch()
        while True:
            pause, self._pause = self._pause, 0.0
            if pause:
                await asyncio.sleep(pause)
            if self._is_stopped:
                raise StopAsyncIteration
            if loop.time() - self._copied_at >= COPY_INTERVAL:
                await self._copy_offsets()
            if not await self._claim_missing():
                continue
            records = self._only_claimed(await self._poll())
            # No await between the read and this: a partition that is lost later keeps its claim in the batch (rule 3).
            if records and (batch := await self._begin(records)) is not None:
                self._batch = batch
                self._pace.returned(len(records), loop.time())
                return records, batch.transaction

    def stop(self) -> None:
        """End the iteration: commit after the present batch is processed, and return no more batches."""
        if self._process is not None:
            forks.check_process(self, self._process)
        self._is_stopped = True
        self._wake()

    async def run(self, process: Callable[[list[Record[K, V]], T], Awaitable[object]]) -> None:
        """Call ``process`` with each batch and its transaction, until ``stop``.

        After an error that the store calls transient, the records are processed again, with a growing pause. Other
        errors roll the transaction back and are raised, unless another member owns the records by now: its rows may be
        the reason. Raises ConfigurationError for something else than an async function.
        """
        check_function("process", process)
        while not self._is_stopped:
            batch: _Batch[T] | None = None
            try:
                async with self:
                    async for records, transaction in self:
                        batch = self._batch
                        awaitable = process(records, transaction)
                        if not inspect.isawaitable(awaitable):  # the transaction is rolled back
                            raise ConfigurationError(must_be("process", "an async function", process))
                        await awaitable
                        batch = None
            except Exception as error:
                if not self._store.is_transient(error) and (batch is None or not await self._is_stale(batch)):
                    raise
                self._retry_after(error, "process")

    # Claims.

    async def _claim_missing(self) -> bool:
        """Claim the assigned partitions that have no certain claim. Returns False if this has to be tried again."""
        missing = sorted(
            partition
            for partition in self._consumer.assignment
            if (claim := self._claims.get(partition)) is None or not claim.is_certain
        )
        if not missing:
            return True
        try:
            member = self._consumer.group_metadata()
            try:
                offsets = await self._claim(member, missing)
            except StaleClaim as stale:
                # The member is a former one, or its group was deleted and its generations began again. The coordinator
                # accepts a commit only from a present member.
                positions = {partition: await self._consumer.position(partition) for partition in missing}
                (await self._consumer.commit(positions)).raise_for_refused()
                logger.warning("%r claims partitions of a former group: %s", self, stale)
                offsets = await self._claim(member, missing, force=True)
        except Exception as error:
            if not self._passes(error):
                raise
            self._retry_after(error, "claim partitions")
            return False
        assigned = set(self._consumer.assignment)
        for partition, offset in offsets.items():
            if partition in assigned:
                self._claims[partition] = _Claim(member, offset)
                self._consumer.seek(partition, offset)
        return True

    async def _claim(
        self, member: GroupMetadata, partitions: Sequence[TopicPartition], *, force: bool = False
    ) -> dict[TopicPartition, int]:
        """Claim partitions, and return their offsets. A row without an offset gets the position of the consumer.

        So a member that ends before its first commit leaves the place where the next one begins.
        """
        async with self._store.transaction() as transaction:
            stored = await self._store.claim(transaction, member, partitions, force=force)
            offsets: dict[TopicPartition, int] = {}
            first: dict[TopicPartition, OffsetChange] = {}
            for partition, offset in stored.items():
                if offset is None:
                    offset = await self._consumer.position(partition)
                    first[partition] = OffsetChange(member.generation_id, member.member_id, None, offset)
                offsets[partition] = offset
            if first:
                await self._store.save(transaction, member.group_id, first)
        return offsets

    def _only_claimed(self, records: list[Record[K, V]]) -> list[Record[K, V]]:
        """Drop the records of partitions that are not claimed. They are read again when they are."""
        dropped: dict[TopicPartition, int] = {}
        claimed: list[Record[K, V]] = []
        for record in records:
            partition = TopicPartition(record.topic, record.partition)
            if partition in self._claims:
                claimed.append(record)
            else:
                dropped.setdefault(partition, record.offset)
        assigned = set(self._consumer.assignment)
        for partition, offset in dropped.items():
            if partition in assigned:
                self._consumer.seek(partition, offset)
        return claimed

    # Reading.

    async def _poll(self) -> list[Record[K, V]]:
        """Poll for records. Returns none if ``_wake`` was called, and from time to time."""
        with anyio.CancelScope() as self._polling:
            return await self._consumer.poll(self._pace.most_returned(self._max_records), COPY_INTERVAL)
        return []

    def _wake(self) -> None:
        if self._polling is not None:
            self._polling.cancel()

    async def _begin(self, records: Sequence[Record[K, V]]) -> _Batch[T] | None:
        """Begin the transaction of these records. Returns None if the database cannot: they are read again."""
        next_offsets = {TopicPartition(record.topic, record.partition): record.offset + 1 for record in records}
        claims = {partition: self._claims[partition] for partition in next_offsets}
        block = self._store.transaction()
        try:
            transaction = await block.__aenter__()
        except BaseException as error:
            _make_uncertain(claims)
            if not isinstance(error, Exception) or not self._store.is_transient(error):
                raise
            self._retry_after(error, "begin a transaction")
            return None
        return _Batch(block, transaction, claims, next_offsets, len(records))

    # Ending a transaction.

    async def _commit(self, batch: _Batch[T]) -> None:
        """Commit the batch. After a failure that passes, its records are read again."""
        changes = batch.changes()
        _make_uncertain(batch.claims)
        try:
            await self._store.save(batch.transaction, batch.group_id, changes)
            self._batch = None  # its block ends now, whatever the outcome
            await batch.block.__aexit__(None, None, None)
        except Exception as error:
            if not self._passes(error):
                raise
            self._retry_after(error, f"commit {plural(batch.record_count, 'record')}")
            return
        for partition, claim in batch.claims.items():
            claim.next_offset = batch.next_offsets[partition]
            claim.is_certain = True
        self._copies |= batch.next_offsets
        self._backoff.reset()

    async def _leave_batch(self) -> None:
        """Roll back the transaction of a batch that was not committed. Its records are read again."""
        batch, self._batch = self._batch, None
        if batch is None:
            return
        _make_uncertain(batch.claims)
        reason = _Left("the batch was left before it was committed")
        with anyio.move_on_after(ROLLBACK_TIMEOUT, shield=True), suppress(_Left):
            try:
                await batch.block.__aexit__(_Left, reason, None)
            except _Left:
                raise
            except Exception as error:  # noqa: BLE001 - the server rolls back when the connection is closed
                logger.info("%r could not roll back: %r", self, error)

    async def _is_stale(self, batch: _Batch[T]) -> bool:
        """Return whether another member has claimed or processed the records of a batch that was rolled back."""
        unchanged = {
            partition: OffsetChange(
                claim.member.generation_id, claim.member.member_id, claim.next_offset, claim.next_offset
            )
            for partition, claim in batch.claims.items()
        }
        try:
            async with self._store.transaction() as transaction:
                await self._store.save(transaction, batch.group_id, unchanged)
        except StaleClaim:
            return True
        except Exception as error:  # noqa: BLE001 - the program's own error is raised
            logger.info("%r could not check its claims: %r", self, error)
        return False

    def _passes(self, error: Exception) -> bool:
        if isinstance(error, CommitFailed):
            # The coordinator has removed this member, which has not heard of it yet.
            return all(
                isinstance(refusal, BrokerError) and (refusal.code in REBALANCED or is_retriable(refusal))
                for refusal in error.refused.values()
            )
        if isinstance(error, StaleClaim | IllegalStateError):
            # Not a member at the moment, or another member has the partitions. A rebalance is on its way.
            return isinstance(error, StaleClaim) or not self._is_member()
        return (isinstance(error, KafkaError) and is_retriable(error)) or self._store.is_transient(error)

    def _is_member(self) -> bool:
        try:
            self._consumer.group_metadata()
        except IllegalStateError:
            return False
        return True

    def _retry_after(self, error: Exception, what: str) -> None:
        self._pause = self._backoff.next()
        level = logging.INFO if isinstance(error, StaleClaim) else logging.WARNING
        logger.log(level, "%r could not %s, and tries again in %.2g s: %r", self, what, self._pause, error)

    async def _copy_offsets(self) -> None:
        """Commit the offsets that the store has to Kafka, for tools that show the lag. An error costs nothing."""
        self._copied_at = asyncio.get_running_loop().time()
        assigned = set(self._consumer.assignment)
        copies, self._copies = self._copies, {}
        offsets = {
            partition: OffsetAndMetadata(offset) for partition, offset in copies.items() if partition in assigned
        }
        if offsets:
            try:
                await self._consumer.commit(offsets, timeout=COPY_INTERVAL)
            except KafkaError as error:
                logger.info("%r could not commit offsets to Kafka: %s", self, error)

    def _check_process(self) -> None:
        if self._process is None:
            self._process = forks.generation
        forks.check_process(self, self._process)

    # The listener.

    def assigned(self) -> None:
        """Interrupt a read, so that the new partitions are claimed before it continues."""
        self._wake()

    def gone(self, partitions: Sequence[TopicPartition]) -> None:
        """Forget the claims of partitions that were revoked or lost. A batch keeps its own (rule 3)."""
        for partition in partitions:
            self._claims.pop(partition, None)


class _Left(Exception):
    """Rolls a transaction back. Users never see this exception."""


class _Listener(RebalanceListener):
    """Reports rebalances to an ``ExactlyOnceInto``, with a weak reference (rule 4 of ``aio.service``)."""

    def __init__(self, owner: ExactlyOnceInto[Any, Any, Any]) -> None:
        self._owner = weakref.ref(owner)

    async def on_assigned(self, handle: RebalanceHandle, partitions: Sequence[TopicPartition]) -> None:
        if (owner := self._owner()) is not None:
            owner.assigned()

    async def on_revoked(self, handle: RebalanceHandle, partitions: Sequence[TopicPartition]) -> None:
        if (owner := self._owner()) is not None:
            owner.gone(partitions)

    async def on_lost(self, handle: RebalanceHandle, partitions: Sequence[TopicPartition]) -> None:
        if (owner := self._owner()) is not None:
            owner.gone(partitions)


def _make_uncertain(claims: dict[TopicPartition, _Claim]) -> None:
    for claim in claims.values():
        claim.is_certain = False
