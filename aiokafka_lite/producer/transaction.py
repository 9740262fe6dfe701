"""``Transaction``: one transaction of a producer, for ``async with``."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self

import anyio

from ..errors import IllegalStateError, KafkaError, ProducerFenced
from ..method_names import TRANSACTION, named_elsewhere
from ..types import GroupMetadata, K_contra, OffsetAndMetadata, TopicPartition, V_contra
from .pipeline import Pipeline
from .record_calls import RecordCalls

logger = logging.getLogger(__name__)

ABORT_TIMEOUT = 10.0
"""Seconds to wait for the abort when an exception leaves the body of a transaction. After that, the abort continues
without the caller."""


class Transaction(RecordCalls[K_contra, V_contra]):
    """One transaction: ``async with producer.transaction() as transaction``. Made by ``Producer.transaction``.

    Leaving the body commits: all records are flushed first. If the body raises, also by cancellation, or if a record or
    an offset was not written, the transaction is aborted. The caller gets the exception of the body, or otherwise the
    first failure. The text of a KafkaTimeout of the commit tells whether the outcome is known.

    Its methods for records are those of the producer, and can be used inside the body. Records that are sent with the
    producer itself belong to the transaction too.
    """

    if not TYPE_CHECKING:
        __getattr__ = named_elsewhere(TRANSACTION)

    def __init__(self, pipeline: Pipeline, timeout: float | None) -> None:
        self._pipeline = pipeline
        self._acceptor = pipeline.acceptor
        self._transactions = pipeline.required_transactions()
        self._timeout = timeout
        self._set_number(None)

    def _set_number(self, number: int | None) -> None:
        self._number = number
        # Not a method of this object: a reference to itself would keep it until the next garbage collection.
        self._check = partial(self._transactions.check_number, number)

    async def __aenter__(self) -> Self:
        if self._number is not None:
            raise IllegalStateError("a Transaction is used once: call producer.transaction() for each one")
        self._set_number(await self._transactions.begin(self._timeout))
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

    async def send_offsets(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group_metadata: GroupMetadata,
        *,
        timeout: float | None = None,
    ) -> None:
        """Commit offsets of a group in this transaction, as ``Producer.send_offsets_to_transaction``."""
        self._check()
        await self._transactions.send_offsets(offsets, group_metadata, timeout)

    def __repr__(self) -> str:
        return f"<Transaction {self._number} of {self._transactions.transactional_id} {self._transactions.state.name}>"
