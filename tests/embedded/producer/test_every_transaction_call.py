"""Every public coroutine of transactions, cancelled at every turn of the event loop that it takes, in both generations.

Each turn has a transaction of its own, with its number in two records. Whatever was cancelled, the transaction is read
whole or not at all, the producer stays usable, and no task stays behind.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pyarrow
import pytest

from aiokafka_lite import OffsetAndMetadata
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import ErrorCode, KafkaTimeout
from aiokafka_lite.producer import Producer
from aiokafka_lite.producer.record_calls import RecordCalls
from aiokafka_lite.producer.transaction import Transaction
from aiokafka_lite.producer.transactions.detached_transaction import (
    DetachedTransaction,
    add_detached_offsets,
    begin_detached,
    end_detached,
)
from tests.cancelling import at_every_turn, public_coroutines, until_no_other_tasks
from tests.embedded.producer.test_detached_transactions import client_of
from tests.embedded.producer.transaction_requests import (
    GROUP,
    HERE,
    committed_offset,
    committed_values,
    metrics_of,
    transactional,
)
from tests.embedded.transactions.raw_producer import TransactionalPeer

FILLER = b" " * 800
OTHER = b"-1" + FILLER

LONG_ENOUGH = 1.0
"""Seconds of virtual time in which a transaction ends, so that no call has to wait for the previous one."""


class Numbered:
    """A producer whose transactions have numbers. ``transaction`` is the open one."""

    def __init__(self, producer: Producer) -> None:
        self.producer = producer
        self.number = 0
        self.transaction = producer.transaction()

    def send(self) -> None:
        """Accept two records, which leave no room for a third one. Both are in one partition: in generation 2 the
        coordinator adds one partition at a time, and another one waits for some milliseconds."""
        for _ in range(2):
            self.producer.send_nowait("t", b"%d" % self.number + FILLER, partition=0)

    async def end(self) -> None:
        """End the transaction that a call has left open, and wait until the coordinator has ended it."""
        match metrics_of(self.producer).state:
            case "IN_TRANSACTION":
                await self.producer.commit_transaction()
            case "ABORTABLE_ERROR":
                await self.producer.abort_transaction()
        await asyncio.sleep(LONG_ENOUGH)
        self.number += 1

    async def abort_soon(self) -> None:
        """End the transaction that a call has left open, and leave another one that is being aborted."""
        await self.flush()
        with suppress(KafkaTimeout):
            await self.producer.abort_transaction(timeout=0.0)
        self.number += 1

    async def begin(self) -> None:
        """Begin the next transaction."""
        await self.end()
        self.transaction = self.producer.transaction()
        await self.transaction.__aenter__()

    async def write(self) -> None:
        """Begin the next transaction, and accept its records."""
        await self.begin()
        self.send()

    async def flush(self) -> None:
        """Begin the next transaction, and write its records."""
        await self.write()
        await self.producer.flush()


Call = Callable[[Numbered], Awaitable[object]]


async def whole_block(numbered: Numbered) -> None:
    async with numbered.producer.transaction():
        numbered.send()


async def whole_block_that_raises(numbered: Numbered) -> None:
    with pytest.raises(ZeroDivisionError):
        async with numbered.producer.transaction() as transaction:
            await transaction.put("t", b"%d" % numbered.number, partition=0)
            raise ZeroDivisionError


OFFSETS = {HERE: OffsetAndMetadata(1)}
TABLE = pyarrow.table({"value": [OTHER], "partition": pyarrow.array([0], pyarrow.int32())})

WHILE_ABORTING: dict[str, Call] = {
    "Producer.begin_transaction": lambda numbered: numbered.producer.begin_transaction(),
    "Transaction.__aenter__": lambda numbered: numbered.producer.transaction().__aenter__(),
}
"""Calls while the previous transaction is being aborted."""

BETWEEN: dict[str, Call] = {
    "Transaction.__aexit__": whole_block,
    "Transaction.__aexit__ after an exception": whole_block_that_raises,
}
"""Calls while no transaction is open."""

WITH_UNWRITTEN: dict[str, Call] = {
    "RecordCalls.send": lambda numbered: numbered.transaction.send("t", OTHER, partition=0),
    "RecordCalls.put": lambda numbered: numbered.transaction.put("t", OTHER, partition=0),
    "RecordCalls.send_many": lambda numbered: numbered.transaction.send_many("t", [OTHER], partition=0),
    "RecordCalls.send_arrow": lambda numbered: numbered.transaction.send_arrow("t", TABLE),
    "RecordCalls.put_arrow": lambda numbered: numbered.transaction.put_arrow("t", TABLE),
    "Producer.commit_transaction": lambda numbered: numbered.producer.commit_transaction(),
}
"""Calls in a transaction whose records are not written yet. They leave no room for another one."""

WITH_WRITTEN: dict[str, Call] = {
    "Producer.abort_transaction": lambda numbered: numbered.producer.abort_transaction(),
    "Transaction.send_offsets": lambda numbered: numbered.transaction.send_offsets(OFFSETS, GROUP),
    "Producer.send_offsets_to_transaction": lambda numbered: numbered.producer.send_offsets_to_transaction(
        OFFSETS, GROUP
    ),
}
"""Calls in a transaction whose records are written."""

ALL = {**WHILE_ABORTING, **BETWEEN, **WITH_UNWRITTEN, **WITH_WRITTEN}


def before(numbered: Numbered, name: str) -> Callable[[], Awaitable[None]]:
    """Return the function that brings the producer into the state for a call."""
    if name in WHILE_ABORTING:
        return numbered.abort_soon
    if name in BETWEEN:
        return numbered.end
    return numbered.write if name in WITH_UNWRITTEN else numbered.flush


@pytest.mark.thorough
@pytest.mark.usefixtures("generation")
@pytest.mark.parametrize("name", ALL)
async def test_a_cancelled_call_leaves_a_whole_transaction_or_none(cluster: EmbeddedCluster, name: str) -> None:
    async with transactional(cluster, buffer_memory=2_300) as producer:
        numbered = Numbered(producer)
        await whole_block(numbered)  # connects
        await numbered.end()
        tasks = len(asyncio.all_tasks())
        await at_every_turn(lambda: ALL[name](numbered), before(numbered, name))
        await numbered.end()
        await whole_block(numbered)
        await asyncio.sleep(LONG_ENOUGH)
        assert len(asyncio.all_tasks()) <= tasks
    numbers = [committed_value for committed_value in await committed_values(cluster) if committed_value != int(OTHER)]
    assert numbers == sorted(numbers)
    assert set(Counter(numbers).values()) == {2}
    assert numbers[-1] == numbered.number
    if name == "Producer.abort_transaction":
        assert len(set(numbers)) < numbered.number  # an abort that has begun goes on


@pytest.mark.usefixtures("generation")
async def test_a_detachment_that_is_cancelled_leaves_an_open_transaction(cluster: EmbeddedCluster) -> None:
    producers: list[Producer] = []
    transactions: list[DetachedTransaction] = []

    async def open_one() -> None:
        for producer in producers:
            await producer.close()
        producers[:] = [transactional(cluster)]
        await producers[0].start()
        await producers[0].begin_transaction()
        producers[0].send_nowait("t", b"1", partition=0)

    async def detach() -> None:
        transactions.append(await producers[0].detach_transaction())

    await at_every_turn(detach, open_one)
    await producers[0].close()
    async with client_of(cluster) as client:
        await end_detached(client, transactions[-1], committed=True)
    assert await committed_values(cluster) == [1]


@pytest.mark.usefixtures("generation")
@pytest.mark.parametrize("committed", [True, False])
async def test_the_end_of_a_detached_transaction_can_be_cancelled_and_repeated(
    cluster: EmbeddedCluster, committed: bool
) -> None:
    async with transactional(cluster) as producer:
        await producer.begin_transaction()
        producer.send_nowait("t", b"1", partition=0)
        transaction = await producer.detach_transaction()
    async with client_of(cluster) as client:
        await at_every_turn(lambda: end_detached(client, transaction, committed=committed))
    assert await committed_values(cluster) == [1] * committed


@pytest.mark.usefixtures("generation")
async def test_the_begin_and_the_offsets_of_a_detached_transaction_can_be_cancelled_and_repeated(
    cluster: EmbeddedCluster,
) -> None:
    begun: list[DetachedTransaction] = []

    async def begin() -> None:
        begun.append(await begin_detached(client, "p", 60.0))

    async with client_of(cluster) as client:
        await at_every_turn(begin)
        await at_every_turn(lambda: add_detached_offsets(client, begun[-1], OFFSETS, GROUP), begin)
        await end_detached(client, begun[-1], committed=True)
    assert await committed_offset(cluster) == 1


@pytest.mark.usefixtures("generation")
@pytest.mark.parametrize("is_open", [True, False])
async def test_a_start_that_is_cancelled_leaves_nothing_and_does_not_prevent_the_next_one(
    cluster: EmbeddedCluster, is_open: bool
) -> None:
    """The coordinator aborts an open transaction before the new producer gets its epoch."""
    before = asyncio.all_tasks()

    async def open_one() -> None:
        if is_open:
            async with TransactionalPeer(cluster, "orders-1") as peer:
                assert await peer.initialize() is ErrorCode.NONE
                assert await peer.write("t", b"-2") is ErrorCode.NONE

    async def start() -> None:
        producer = transactional(cluster)
        try:
            await producer.start()
        finally:
            await producer.close()

    await at_every_turn(start, open_one, pause=0.1)
    async with transactional(cluster) as producer, producer.transaction() as transaction:
        await transaction.send("t", b"0", partition=0)
    await until_no_other_tasks(before)
    assert await committed_values(cluster) == [0]


@pytest.mark.usefixtures("generation")
@pytest.mark.parametrize("is_written", [True, False])
async def test_a_close_that_is_cancelled_aborts_or_leaves_the_transaction_to_the_next_producer(
    cluster: EmbeddedCluster, is_written: bool
) -> None:
    before = asyncio.all_tasks()
    producer = transactional(cluster)

    async def open_one() -> None:
        nonlocal producer
        await producer.close()  # the call may have been cancelled before it began
        producer = transactional(cluster)
        await producer.start()
        await producer.begin_transaction()
        producer.send_nowait("t", b"-2", partition=0)
        if is_written:
            await producer.flush()

    await at_every_turn(lambda: producer.close(), open_one, pause=0.1)
    async with transactional(cluster) as successor, successor.transaction() as transaction:
        await transaction.send("t", b"1", partition=0)
    await until_no_other_tasks(before)
    assert await committed_values(cluster) == [1]


def test_every_public_coroutine_is_covered_here() -> None:
    covered = {*ALL, "Producer.detach_transaction", "Producer.prepare_transaction"}  # test_two_phase_commit
    of_producer = {name for name in public_coroutines(Producer) if "transaction" in name}
    assert of_producer | public_coroutines(RecordCalls, Transaction) <= covered
