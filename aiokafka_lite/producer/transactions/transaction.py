"""The public interface of transactions: ``Transaction``, and the same as single calls of the producer."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Protocol, Self, TypedDict, Unpack

import anyio

from ...arguments import check_timeout, must_be, text, whole
from ...arguments import offsets as checked_offsets
from ...errors import IllegalStateError, KafkaError, ProducerFenced
from ...method_names import TRANSACTION, named_elsewhere
from ...serialization.headers import Headers
from ...types import GroupMetadata, K_contra, OffsetAndMetadata, RecordMetadata, TopicPartition, V_contra
from ..accept.bulk import BulkDelivery, Written
from ..delivery import Delivery
from ..results import SendResults

if TYPE_CHECKING:
    from .detached_transaction import DetachedTransaction
    from .transactions import TransactionManager

logger = logging.getLogger(__name__)

ABORT_TIMEOUT = 10.0
"""Seconds to wait for the abort when an exception leaves the body of a transaction. After that, the abort continues
without the caller."""


class SendOptions(TypedDict, Generic[K_contra], total=False):
    """The arguments of ``Producer.send`` and ``put`` besides topic and value."""

    key: K_contra | None
    headers: Headers
    partition: int | None
    timestamp: int | None
    timeout: float | None


class ManyOptions(TypedDict, Generic[K_contra], total=False):
    """The arguments of ``Producer.send_many`` besides topic and values."""

    keys: Iterable[K_contra | None] | None
    headers: Headers
    partition: int | None
    timestamp: int | None
    timeout: float | None


class Sends(Protocol[K_contra, V_contra]):
    """The part of ``Producer`` that a transaction uses."""

    async def send(
        self,
        topic: str,
        value: V_contra | None = None,
        *,
        key: K_contra | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp: int | None = None,
        timeout: float | None = None,
    ) -> RecordMetadata: ...

    async def put(
        self,
        topic: str,
        value: V_contra | None = None,
        *,
        key: K_contra | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp: int | None = None,
        timeout: float | None = None,
    ) -> Delivery: ...

    def send_nowait(
        self,
        topic: str,
        value: V_contra | None = None,
        *,
        key: K_contra | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> Delivery: ...

    async def send_many(
        self,
        topic: str,
        values: Iterable[V_contra | None],
        *,
        keys: Iterable[K_contra | None] | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp: int | None = None,
        timeout: float | None = None,
    ) -> SendResults: ...

    async def send_arrow(self, topic: str, table: object, *, timeout: float | None = None) -> list[Written]: ...

    async def put_arrow(self, topic: str, table: object, *, timeout: float | None = None) -> BulkDelivery: ...


class Transaction(Generic[K_contra, V_contra]):
    """One transaction: ``async with producer.transaction() as transaction``. Made by ``Producer.transaction``.

    Leaving the body commits: all records are flushed first. If the body raises, also by cancellation, or if a record or
    an offset was not written, the transaction is aborted. The caller gets the exception of the body, or otherwise the
    first failure. The text of a KafkaTimeout of the commit tells whether the outcome is known.

    Its methods are methods of the producer, and can be used inside the body. Records that are sent with the producer
    itself belong to the transaction too.
    """

    if not TYPE_CHECKING:
        __getattr__ = named_elsewhere(TRANSACTION)

    def __init__(
        self, producer: Sends[K_contra, V_contra], transactions: TransactionManager, timeout: float | None
    ) -> None:
        self._producer = producer
        self._transactions = transactions
        self._timeout = timeout
        self._number: int | None = None

    async def __aenter__(self) -> Self:
        if self._number is not None:
            raise IllegalStateError("a Transaction is used once: call producer.transaction() for each one")
        self._number = await self._transactions.begin(self._timeout)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # The body may have ended the transaction by an explicit call, and begun the next.
        if self._number != self._transactions.open_number:
            return
        if error is not None:
            await self._abort(error)
            return
        try:
            await self._transactions.commit(self._timeout)
        except BaseException as failure:
            await self._abort(failure)
            raise

    async def _abort(self, error: BaseException) -> None:
        """Abort, if that is possible. ``error`` is the exception that the caller gets."""
        if not self._transactions.can_abort:
            return
        try:
            # Shielded, because the exception may be the cancellation of this task, which would end the abort at its
            # first await.
            with anyio.CancelScope(shield=True), anyio.move_on_after(ABORT_TIMEOUT):
                await self._transactions.abort(ABORT_TIMEOUT)
        except ProducerFenced:
            pass  # the error is final, and Settlement has logged it
        except KafkaError as failure:
            if failure is not error:
                logger.warning("could not abort a transaction after %r: %s", error, failure)

    # Inside.

    async def send(
        self, topic: str, value: V_contra | None = None, **options: Unpack[SendOptions[K_contra]]
    ) -> RecordMetadata:
        """Write a record in this transaction, as ``Producer.send``."""
        self._check()
        return await self._producer.send(topic, value, **options)

    async def put(
        self, topic: str, value: V_contra | None = None, **options: Unpack[SendOptions[K_contra]]
    ) -> Delivery:
        """Accept a record for this transaction, as ``Producer.put``. The commit waits for it."""
        self._check()
        return await self._producer.put(topic, value, **options)

    def send_nowait(
        self,
        topic: str,
        value: V_contra | None = None,
        *,
        key: K_contra | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> Delivery:
        """Accept a record for this transaction, as ``Producer.send_nowait``. The commit waits for it."""
        # Hot: runs for each record. ``**options`` would make a dict for each call.
        if self._number != self._transactions.open_number:
            raise _not_open()
        return self._producer.send_nowait(
            topic, value, key=key, headers=headers, partition=partition, timestamp=timestamp
        )

    async def send_many(
        self, topic: str, values: Iterable[V_contra | None], **options: Unpack[ManyOptions[K_contra]]
    ) -> SendResults:
        """Write many records in this transaction, as ``Producer.send_many``.

        If one of them fails, the transaction fails.
        """
        self._check()
        return await self._producer.send_many(topic, values, **options)

    async def send_arrow(self, topic: str, table: object, *, timeout: float | None = None) -> list[Written]:
        """Write the rows of an Arrow table in this transaction, as ``Producer.send_arrow``."""
        self._check()
        return await self._producer.send_arrow(topic, table, timeout=timeout)

    async def put_arrow(self, topic: str, table: object, *, timeout: float | None = None) -> BulkDelivery:
        """Accept the rows of an Arrow table for this transaction, as ``Producer.put_arrow``."""
        self._check()
        return await self._producer.put_arrow(topic, table, timeout=timeout)

    async def send_offsets(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group_metadata: GroupMetadata,
        *,
        timeout: float | None = None,
    ) -> None:
        """Commit offsets of a group in this transaction, as ``Producer.send_offsets_to_transaction``."""
        self._check()
        await send_offsets(self._transactions, offsets, group_metadata, timeout)

    def _check(self) -> None:
        if self._number != self._transactions.open_number:
            raise _not_open()

    def __repr__(self) -> str:
        return f"<Transaction {self._number} of {self._transactions.transactional_id} {self._transactions.state.name}>"


def _not_open() -> IllegalStateError:
    return IllegalStateError("this transaction is not open: use it inside its 'async with' block")


async def send_offsets(
    transactions: TransactionManager,
    offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
    group_metadata: GroupMetadata,
    timeout: float | None,
) -> None:
    """Check the arguments, and commit the offsets in the open transaction."""
    check_timeout(timeout)
    checked = checked_offsets(offsets)
    for each in checked.values():
        text("metadata", each.metadata)
    await transactions.send_offsets(checked, _checked_group(group_metadata), timeout)


def _checked_group(given: object) -> GroupMetadata:
    if isinstance(given, GroupMetadata):
        text("group_metadata.group_id", given.group_id)
        whole("group_metadata.generation_id", given.generation_id, -1)
        if not isinstance(given.member_id, str):
            raise TypeError(must_be("group_metadata.member_id", "a string", given.member_id))
        if given.group_instance_id is not None:
            text("group_metadata.group_instance_id", given.group_instance_id)
        return given
    what = "a GroupMetadata, as consumer.group_metadata() returns it (or GroupMetadata('group') without a member)"
    raise TypeError(must_be("group_metadata", what, given))


class TransactionCalls(ABC):
    """The calls of ``Producer`` that need a ``transactional_id``. Each raises IllegalStateError without one."""

    @abstractmethod
    def _transactions(self) -> TransactionManager:
        """Return the transactions of the producer, which runs."""

    async def begin_transaction(
        self, *, timeout: float | None = None, defer: Callable[[KafkaError], bool] | None = None
    ) -> None:
        """Begin a transaction. Waits until the outcome of the previous one is known, for ``timeout`` seconds.

        ``defer`` is for a program that repeats its work in another transaction; ``ExactlyOnce`` uses it. If the
        transaction fails with an error for which ``defer`` returns True, ``commit_transaction`` raises the error, and
        the sends before it do not: a ``Delivery`` has the error, and ``send`` returns metadata with the offset -1.

        Raises IllegalStateError if one is open, KafkaTimeout, and the error that ended the producer: ProducerFenced if
        another producer with the same ``transactional_id`` has taken over.
        """
        check_timeout(timeout)
        await self._transactions().begin(timeout, defer)

    async def commit_transaction(self, *, timeout: float | None = None) -> None:
        """Flush, and commit. If it returns, all records and offsets of the transaction are visible together.

        Raises the first failure in the transaction; then nothing is committed, and ``abort_transaction`` must be
        called. Raises KafkaTimeout after ``timeout`` seconds, by default ``api_timeout``; its text says whether the
        outcome is known. If it is not, the producer continues to request it: call this again to wait for it. Raises
        ProducerFenced if another producer has taken over. If the call is cancelled before the records are flushed,
        nothing is committed. If it is cancelled later, the commit continues.
        """
        check_timeout(timeout)
        await self._transactions().commit(timeout)

    async def abort_transaction(self, *, timeout: float | None = None) -> None:
        """Abort: no record of the transaction becomes visible, and records that are not written yet fail.

        Raises KafkaTimeout after ``timeout`` seconds, by default ``api_timeout``; the abort continues, and the next
        transaction begins after it. Raises ProducerFenced if another producer has taken over.
        """
        check_timeout(timeout)
        await self._transactions().abort(timeout)

    async def detach_transaction(self, *, timeout: float | None = None) -> DetachedTransaction:
        """Flush, and leave the transaction open, so that another process can end it with ``end_detached``.

        Afterwards this producer can only be closed; that does not end the transaction. Another producer that starts
        with the same ``transactional_id`` aborts it, and so does the coordinator after ``transaction_timeout``.

        Raises the first failure in the transaction, and KafkaTimeout after ``timeout`` seconds, by default
        ``api_timeout``. The transaction is then not detached: call ``abort_transaction``, or close the producer.
        """
        check_timeout(timeout)
        return await self._transactions().detach(timeout)

    async def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group_metadata: GroupMetadata,
        *,
        timeout: float | None = None,
    ) -> None:
        """Commit offsets of a group in the open transaction: they are committed together with its records.

        ``offsets`` has the offset of the next record to read of each partition. ``group_metadata`` is the result of
        ``Consumer.group_metadata``. With it, the group's coordinator detects a former member. Brokers before Kafka 2.5
        do not check it; the first such call of a producer logs a warning.

        Raises CommitFailed if the group has taken the partitions away, KafkaTimeout after ``timeout`` seconds (by
        default ``api_timeout``), AuthorizationError, ProducerFenced. After an error, and after a cancellation, the
        transaction can only be aborted. Raises TypeError and ValueError for wrong arguments.
        """
        await send_offsets(self._transactions(), offsets, group_metadata, timeout)
