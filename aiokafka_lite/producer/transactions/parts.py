"""The parts of an open transaction besides its batches: partitions (generation 1) and offsets of groups.

A task of the producer adds each part. When the transaction is over, the task ends after its present attempt at the
latest. EndTxn is sent when no such task runs (``wait_quiet``), so none of their requests reaches a broker after EndTxn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial

from ...aio.light_event import LightEvent
from ...errors import KafkaError, TransactionAborted
from ...types import GroupMetadata, OffsetAndMetadata, TopicPartition
from ..accumulator import Spawn
from ..dispatch import Dispatcher
from ..settle import Settlement
from ..transactional_ids import TransactionalIds
from .coordinator import CoordinatorClient
from .state import ProducerTransactionState, TransactionMachine


class TransactionParts:
    """Adds partitions and offsets to the open transaction. ``fail`` is called with an error of a partition."""

    def __init__(
        self,
        machine: TransactionMachine,
        coordinator_client: CoordinatorClient,
        ids: TransactionalIds,
        settlement: Settlement,
        dispatcher: Dispatcher,
        spawn: Spawn,
        *,
        fail: Callable[[Exception], None],
    ) -> None:
        self._machine = machine
        self._coordinator_client = coordinator_client
        self._ids = ids
        self._settlement = settlement
        self._dispatcher = dispatcher
        self._spawn = spawn
        self._fail = fail
        self._tasks = 0
        self._quiet = LightEvent()
        self._quiet.set()
        self._is_adding = False
        self._offset_calls = 0
        self._offsets_in_order = asyncio.Lock()

    @property
    def sends_offsets(self) -> bool:
        """Whether a call of ``send_offsets`` is in progress."""
        return self._offset_calls > 0

    @property
    def is_quiet(self) -> bool:
        """Whether no request is in progress."""
        return not self._tasks

    async def wait_quiet(self) -> None:
        """Wait until no request is in progress."""
        await self._quiet.wait()

    def request_partitions(self) -> None:
        """Add waiting partitions to the transaction at the coordinator."""
        if not self._is_adding:
            self._is_adding = True
            self._begins()
            self._spawn(self._add_partitions, "transaction partitions")

    async def _add_partitions(self) -> None:
        def is_needed() -> bool:
            return self._machine.state in (ProducerTransactionState.IN_TRANSACTION, ProducerTransactionState.COMMITTING)

        def note(error: KafkaError) -> None:
            for partition in self._settlement.partitions():
                if partition.topic_partition in self._ids.waiting:
                    partition.delayed(error)

        try:
            await self._coordinator_client.add_partitions(is_needed, note)
        except KafkaError as error:
            self._fail(error)
        finally:
            self._is_adding = False
            self._ends()
        # This comes after ``_is_adding`` is reset, so that a partition that was added to ``waiting`` too late for the
        # last attempt starts another attempt.
        for partition in self._settlement.partitions():
            self._dispatcher.offer(partition)

    async def send_offsets(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata) -> None:
        """Commit offsets in the transaction. If the caller is cancelled, the present attempt continues."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._offset_calls += 1
        self._begins()
        self._spawn(partial(self._send_offsets, offsets, group, self._machine.number, done), "transaction offsets")
        try:
            await done
        finally:
            self._offset_calls -= 1

    async def _send_offsets(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group: GroupMetadata,
        number: int,
        done: asyncio.Future[None],
    ) -> None:
        def is_needed() -> bool:
            return self._machine.is_open and self._machine.number == number

        error: KafkaError | None = None
        try:
            # The calls run one after the other, so that the last one decides which offset is committed.
            async with self._offsets_in_order:
                await self._coordinator_client.send_offsets(offsets, group, is_needed)
        except KafkaError as failure:
            error = failure
        finally:
            self._ends()
        if error is None and not is_needed():
            error = self._machine.refusal() or TransactionAborted("the transaction of these offsets has ended")
        if done.done():  # the caller was cancelled
            return
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    def _begins(self) -> None:
        self._tasks += 1
        self._quiet.clear()

    def _ends(self) -> None:
        self._tasks -= 1
        assert self._tasks >= 0, "each task of a part ends once"
        if not self._tasks:
            self._quiet.set()
