"""Two tasks that read one member at once: the second is refused, because its read would commit the first one's record.

Reads that follow one another are allowed, in any tasks.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from typing import Any

import pytest

from aiokafka_lite.consumer import Consumer
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import IllegalStateError
from tests.embedded.consumer.direct_writes import fill, take
from tests.embedded.group.recording_members import ORDERS, member_of, read_all
from tests.embedded.group.test_offsets import committed
from tests.waiting import until

FIRST = ORDERS[0]
REFUSED = r"another task reads this consumer: .*, use ConsumerGroup\(\.\.\.\)\.consume\(topics, Workers\(handle\)\)$"


@pytest.fixture(autouse=True)
async def records(cluster: EmbeddedCluster) -> None:
    fill(cluster, FIRST, 20)


async def test_a_record_of_a_task_that_crashes_is_not_committed_by_another_iteration(cluster: EmbeddedCluster) -> None:
    refused: list[BaseException] = []

    async def worker(consumer: Consumer) -> None:
        async for record in consumer:
            if record.offset == 0:
                await asyncio.sleep(50.0)
                raise RuntimeError("crashed")
            await asyncio.sleep(1.0)

    async with member_of(cluster) as consumer:
        with suppress(ExceptionGroup):
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(worker(consumer))
                try:
                    await asyncio.sleep(20.0)
                    await worker(consumer)
                except IllegalStateError as error:
                    refused.append(error)
    assert re.match(REFUSED, str(refused[0]))
    assert await committed(cluster) is None


@pytest.mark.parametrize("read", ["next", "poll", "batch", "iterate"])
async def test_every_way_to_read_is_refused_while_another_task_iterates(cluster: EmbeddedCluster, read: str) -> None:
    holds = asyncio.Event()

    async def hold(consumer: Consumer) -> None:
        async for _ in consumer:
            holds.set()
            await asyncio.sleep(100.0)

    async with member_of(cluster) as consumer:
        reads: dict[str, Any] = {
            "next": lambda: anext(consumer),
            "poll": lambda: consumer.poll(timeout=1.0),
            "batch": lambda: anext(consumer.batches()),
            "iterate": lambda: anext(aiter(consumer)),
        }
        holder = asyncio.create_task(hold(consumer))
        await holds.wait()
        with pytest.raises(IllegalStateError, match=REFUSED):
            await reads[read]()
        consumer.mark()  # the record is processed, so nothing can be lost
        assert await reads[read]()
        holder.cancel()


async def test_two_reads_that_wait_at_once_are_refused(cluster: EmbeddedCluster) -> None:
    async with member_of(cluster) as consumer:
        await read_all(consumer, 20)
        waiting = asyncio.create_task(consumer.poll(timeout=30.0))
        await asyncio.sleep(1.0)
        with pytest.raises(IllegalStateError, match=REFUSED):
            await consumer.poll(timeout=1.0)
        waiting.cancel()
        assert await consumer.poll(timeout=1.0) == []  # a read that is being cancelled is over


async def test_a_task_for_each_read_is_legal(cluster: EmbeddedCluster) -> None:
    async with member_of(cluster) as consumer:
        iteration = aiter(consumer)
        offsets = [(await asyncio.create_task(anext(iteration))).offset for _ in range(5)]  # type: ignore[arg-type]
        offsets += [record.offset for _ in range(5) for record in await asyncio.create_task(consumer.poll(1, 5.0))]
        assert offsets == list(range(10))


@pytest.mark.parametrize("iterates", [False, True])
async def test_tasks_that_take_turns_with_one_iterator_are_one_reader(cluster: EmbeddedCluster, iterates: bool) -> None:
    """``asyncio.wait_for`` may read in a task of its own, while the task that read before lives on."""
    async with member_of(cluster) as consumer:
        iterator = aiter(consumer) if iterates else consumer
        assert (await anext(iterator)).offset == 0
        for offset in range(1, 5):
            other = asyncio.create_task(anext(iterator))  # type: ignore[arg-type]
            assert (await other).offset == offset
            await consumer.commit()
            assert await committed(cluster) == offset  # the record before it counts as processed


async def test_tasks_that_live_on_may_poll_one_after_another(cluster: EmbeddedCluster) -> None:
    """As tasks of a web server's connections do, which stay open between two requests."""

    async def connection(consumer: Consumer, ready: asyncio.Event, offsets: list[int]) -> None:
        offsets += [record.offset for record in await consumer.poll(5, timeout=30.0)]
        ready.set()
        await asyncio.sleep(1000.0)

    offsets: list[int] = []
    async with member_of(cluster) as consumer:
        connections = []
        for _ in range(3):
            ready = asyncio.Event()
            connections.append(asyncio.create_task(connection(consumer, ready, offsets)))
            await ready.wait()
        assert offsets == list(range(15))
        for task in connections:
            task.cancel()


async def test_one_task_may_nest_its_reads(cluster: EmbeddedCluster) -> None:
    async with member_of(cluster) as consumer:
        seen: list[int] = []
        async for record in consumer:
            seen.append(record.offset)
            async for inner in consumer:
                seen.append(inner.offset)
                break
            seen += [record.offset for record in await consumer.poll(2)]
            if len(seen) >= 12:
                break
        assert seen == list(range(12))


async def test_an_iteration_that_was_left_does_not_hold_the_consumer(cluster: EmbeddedCluster) -> None:
    async with member_of(cluster) as consumer:
        assert len(await take(consumer, 3)) == 3  # leaves its loop by ``break``; this task lives on
        assert (await asyncio.create_task(consumer.poll(1, timeout=5.0)))[0].offset == 3


async def test_an_iteration_of_a_task_that_ended_does_not_hold_the_consumer(cluster: EmbeddedCluster) -> None:
    iterations = []

    async def one(consumer: Consumer) -> None:
        iterations.append(aiter(consumer))
        await anext(iterations[0])

    async with member_of(cluster) as consumer:
        await asyncio.create_task(one(consumer))
        assert (await take(consumer, 1))[0].offset == 1


async def test_an_iteration_before_the_last_poll_does_not_hold_the_consumer(cluster: EmbeddedCluster) -> None:
    async with member_of(cluster) as consumer:
        iteration = aiter(consumer)
        await anext(iteration)
        consumer.mark()
        for _ in range(2):  # the second poll finds records in hand, but not the records of the iteration
            assert await asyncio.create_task(consumer.poll(2, timeout=5.0))
        assert (await anext(iteration)).offset == 5


async def test_several_tasks_may_read_without_a_group(cluster: EmbeddedCluster) -> None:
    offsets: list[int] = []

    async def worker(consumer: Consumer) -> None:
        async for record in consumer:
            offsets.append(record.offset)
            await asyncio.sleep(1.0)

    async with member_of(cluster, group_id=None) as consumer:
        workers = [asyncio.create_task(worker(consumer)) for _ in range(3)]
        await until(lambda: len(offsets) == 20)
        assert sorted(offsets) == list(range(20))
        for task in workers:
            task.cancel()
        await asyncio.gather(*workers, return_exceptions=True)


async def test_a_loop_that_is_left_after_each_record_continues_in_the_same_chunk(cluster: EmbeddedCluster) -> None:
    """A new iterator must not copy the rest of the chunk, or a loop with a ``break`` would take quadratic time."""
    async with member_of(cluster) as consumer:
        chunks = []
        for offset in range(8):
            assert [record.offset for record in await take(consumer, 1)] == [offset]
            chunks.append(consumer._core.reader._cursor.current)
            await consumer.commit()
            assert await committed(cluster) == (offset or None)  # the last record is in hand
        assert len({id(chunk) for chunk in chunks}) == 1
        assert [record.offset for record in await consumer.poll(2)] == [8, 9]
        consumer.mark()
