"""In virtual time, waiting takes no time, and nothing else changes."""

from __future__ import annotations

import asyncio
import random
import time
from importlib.metadata import version
from itertools import pairwise

import anyio
import pytest
from packaging.version import Version

from aiokafka_lite.aio import virtual_time
from aiokafka_lite.aio.runtime import Runtime
from aiokafka_lite.aio.virtual_time import run


def test_an_hour_passes_at_once() -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        assert loop.time() == 0.0
        await asyncio.gather(asyncio.sleep(3600), asyncio.sleep(1800))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(400):
                await asyncio.Event().wait()
        return loop.time()

    before = time.process_time()
    assert run(main()) == pytest.approx(4000)
    assert time.process_time() - before < 5


def test_with_ticks_two_readings_of_the_clock_differ_and_a_seed_repeats() -> None:
    async def main() -> list[float]:
        loop = asyncio.get_running_loop()
        times = [loop.time() for _ in range(100)]
        await asyncio.sleep(1.0)
        return [*times, loop.time()]

    first = run(main(), ticks=True)
    assert all(later > earlier for earlier, later in pairwise(first))
    assert first[-1] == pytest.approx(1.0, abs=0.001)
    assert first == run(main(), ticks=True) != run(main(), ticks=True, seed=1)
    assert len(set(run(main())[:100])) == 1


def test_the_wall_clock_is_read_where_a_test_has_replaced_it(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = Runtime()
    monkeypatch.setattr(time, "time", lambda: 5.0)
    assert runtime.clock() == 5.0


def test_sockets_of_the_same_loop_work() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            await asyncio.sleep(3)
            writer.write(line)
        writer.close()
        await writer.wait_closed()

    async def main() -> float:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        for _ in range(50):
            writer.write(b"line\n")
            assert await reader.readline() == b"line\n"
        writer.close()
        await writer.wait_closed()
        server.close()
        await asyncio.sleep(1)
        return asyncio.get_running_loop().time()

    assert run(main()) == pytest.approx(151)


def test_the_same_seed_gives_the_same_numbers_and_restores_the_state() -> None:
    async def main() -> float:
        return random.random()

    random.seed(42)
    expected = random.random()
    random.seed(42)
    assert run(main(), seed=7) == run(main(), seed=7)
    assert run(main(), seed=7) != run(main(), seed=8)
    assert random.random() == expected


def test_the_same_seed_gives_the_same_ids_and_no_other_run_has_them() -> None:
    async def main() -> str:
        return Runtime().new_id()

    assert run(main(), seed=7) == run(main(), seed=7)
    random.seed(42)
    first = Runtime().new_id()
    random.seed(42)
    assert Runtime().new_id() != first


def test_a_deadlock_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(virtual_time, "STALL_LIMIT", 0.01)

    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(TimeoutError, match="stands still"):
        run(main())


@pytest.mark.skipif(Version(version("anyio")) < Version("4.14"), reason="older releases of anyio have no order")
def test_the_tasks_of_a_group_are_cancelled_in_the_order_in_which_they_began() -> None:
    ended: list[int] = []

    async def wait(number: int) -> None:
        try:
            if number % 2:
                with anyio.CancelScope():
                    await asyncio.sleep(10.0)
            else:
                await asyncio.sleep(10.0)
        finally:
            ended.append(number)

    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            for number in range(100):
                tasks.start_soon(wait, number)
            await asyncio.sleep(1.0)
            tasks.cancel_scope.cancel()

    run(main())
    assert ended == list(range(100))


def test_a_timer_does_not_run_before_its_time() -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(0.3090375601450468)
        reached = asyncio.Event()
        loop.call_at(32.45713163389775, reached.set)  # 0.309… + (32.457… - 0.309…) is rounded to less
        await reached.wait()
        return loop.time()

    assert run(main()) >= 32.45713163389775


def test_the_end_of_a_loop_waits_for_its_threads() -> None:
    """Since Python 3.12 the end has a timeout, which virtual time would reach at once."""

    async def begin_a_thread() -> None:
        _ = asyncio.get_running_loop().run_in_executor(None, time.sleep, 0.05)

    run(begin_a_thread())
