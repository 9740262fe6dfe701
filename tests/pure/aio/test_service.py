"""A component starts, runs its tasks, and fails as a whole."""

from __future__ import annotations

import asyncio
import copy
import logging
import pickle
import subprocess
import sys
import tracemalloc
from collections.abc import Callable

import anyio
import pytest

from aiokafka_lite.aio.service import ServiceState, unwrapped
from aiokafka_lite.errors import IllegalStateError
from tests.pure.aio.recording_component import Boom, Probe, boom, other_tasks, turns
from tests.virtual import in_virtual_time
from tests.waiting import DEADLINE


async def test_it_starts_runs_children_and_closes() -> None:
    async with Probe() as probe:
        probe.service.start_child(probe.forever)
        await turns()
        assert repr(probe) == "<Probe RUNNING>"
    assert probe.notes == ["start", "close", "child ended"]
    assert probe.state is ServiceState.CLOSED
    assert not other_tasks()


async def test_start_and_close_may_come_from_different_tasks() -> None:
    probe = Probe()
    await asyncio.create_task(probe.start())
    probe.service.start_child(probe.forever)
    await asyncio.create_task(probe.close())
    assert probe.state is ServiceState.CLOSED


async def test_a_failed_start_raises_and_leaves_no_task() -> None:
    async def hook(probe: Probe) -> None:
        probe.service.start_child(probe.forever)
        await turns()
        raise Boom("no broker")

    probe = Probe(hook)
    with pytest.raises(Boom, match="no broker"):
        await probe.start()
    assert probe.notes == ["start", "child ended"]
    assert not other_tasks()
    with pytest.raises(Boom):
        await probe.close()


async def test_a_child_that_fails_during_the_start_fails_the_start() -> None:
    async def hook(probe: Probe) -> None:
        probe.service.start_child(boom)
        await asyncio.Event().wait()

    with pytest.raises(Boom):
        await Probe(hook).start()


@pytest.mark.parametrize("after", range(6))
async def test_a_start_cancelled_at_any_turn_leaves_no_task(after: int) -> None:
    async def hook(probe: Probe) -> None:
        probe.service.start_child(probe.forever)
        await asyncio.Event().wait()

    probe = Probe(hook)
    starting = asyncio.create_task(probe.start())
    await turns(after)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert not other_tasks()
    assert probe.state in (ServiceState.CLOSED, ServiceState.NEW)
    await probe.close()


async def test_closing_while_it_starts_ends_both_calls() -> None:
    async def hook(probe: Probe) -> None:
        await asyncio.Event().wait()

    for after in range(4):
        probe = Probe(hook)
        starting = asyncio.create_task(probe.start())
        await turns(after)
        await probe.close()
        with pytest.raises(IllegalStateError, match=r"closed|cannot be started"):
            await starting
        assert probe.state is ServiceState.CLOSED


async def test_the_failure_of_a_child_reaches_waiting_calls_the_next_call_and_close(
    caplog: pytest.LogCaptureFixture,
) -> None:
    probe = Probe()
    await probe.start()
    probe.service.start_child(probe.forever)
    waiting = asyncio.create_task(probe.service.while_running(asyncio.Event().wait()))
    await turns()
    probe.service.start_child(boom)
    with pytest.raises(Boom):
        await waiting
    with pytest.raises(Boom):
        probe.service.check()
    with pytest.raises(Boom):
        await probe.service.while_running(asyncio.sleep(1))
    with pytest.raises(Boom):
        probe.service.start_child(probe.forever)
    for _ in range(2):
        with pytest.raises(Boom):
            await probe.close()
    assert probe.state is ServiceState.FAILED
    assert "child ended" in probe.notes
    assert not other_tasks()
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


@in_virtual_time
async def test_a_failure_is_raised_at_once_although_other_tasks_end_later() -> None:
    async def says_goodbye() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            with anyio.CancelScope(shield=True):
                await asyncio.sleep(1.5)

    probe = Probe()
    await probe.start()
    probe.service.start_child(says_goodbye)
    await turns()
    probe.service.start_child(boom)
    loop = asyncio.get_running_loop()
    before = loop.time()
    with pytest.raises(Boom):
        await probe.service.while_running(asyncio.Event().wait())
    assert loop.time() == pytest.approx(before, abs=1e-3)
    with pytest.raises(Boom):
        await probe.close()
    assert loop.time() == pytest.approx(before + 1.5)


async def test_a_failure_is_unwrapped_from_exception_groups() -> None:
    async def nested() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(boom)

    probe = Probe()
    await probe.start()
    probe.service.start_child(nested)
    with pytest.raises(Boom):
        await probe.service.while_running(asyncio.Event().wait())
    with pytest.raises(Boom):
        await probe.close()


@pytest.mark.parametrize("end", [SystemExit(3), KeyboardInterrupt()])
def test_the_end_of_the_program_is_taken_out_of_several_errors(end: BaseException) -> None:
    errors = [ValueError(1), BaseExceptionGroup("inner", [ValueError(2), end]), SystemExit(4)]
    assert unwrapped(BaseExceptionGroup("outer", errors)) is end
    both = ExceptionGroup("outer", [ValueError(1), ValueError(2)])
    assert unwrapped(BaseExceptionGroup("outermost", [both])) is both


async def test_a_traceback_does_not_grow_with_every_raise() -> None:
    def length() -> int:
        try:
            probe.service.check()
        except Boom as error:
            traceback, count = error.__traceback__, 0
            while traceback is not None:
                traceback, count = traceback.tb_next, count + 1
            return count
        raise AssertionError

    probe = Probe()
    await probe.start()
    probe.service.start_child(boom)
    await turns()
    assert length() == length()
    with pytest.raises(Boom):
        await probe.close()


async def test_a_child_that_is_cancelled_from_outside_is_a_failure() -> None:
    probe = Probe()
    await probe.start()
    probe.service.start_child(probe.forever, name="victim")
    await turns()
    next(task for task in other_tasks() if task.get_name() == "victim").cancel()
    with pytest.raises(IllegalStateError, match=r"'victim'.*cancelled from outside"):
        await probe.service.while_running(asyncio.Event().wait())
    with pytest.raises(IllegalStateError):
        await probe.close()


async def test_a_child_that_is_cancelled_before_its_first_turn_is_a_failure() -> None:
    probe = Probe()
    await probe.start()
    before = other_tasks()
    probe.service.start_child(probe.forever, name="child")
    (child,) = other_tasks() - before
    child.cancel()
    await turns()
    with pytest.raises(IllegalStateError, match="task 'child' of"):
        await probe.close()
    assert not other_tasks()


async def test_a_child_that_starts_while_the_others_are_cancelled_is_cancelled_too() -> None:
    async def starts_another() -> None:
        try:
            await probe.forever()
        finally:
            probe.service.start_child(probe.forever)

    probe = Probe()
    await probe.start()
    probe.service.start_child(starts_another)
    await turns()
    await probe.close()
    assert probe.notes.count("child ended") == 2
    assert not other_tasks()


async def test_a_child_takes_little_memory() -> None:
    count = 100
    async with Probe() as probe:
        probe.service.start_child(probe.forever)
        await turns()
        tracemalloc.start()
        try:
            for _ in range(count):
                probe.service.start_child(probe.forever)
            await turns()
            size, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert size / count < 4_500  # with a task group of anyio, 5,800


async def test_a_root_task_that_is_cancelled_from_outside_is_a_failure() -> None:
    probe = Probe()
    await probe.start()
    next(task for task in other_tasks() if task.get_name() == "Probe").cancel()
    with pytest.raises(IllegalStateError, match="cancelled from outside"):
        await probe.service.while_running(asyncio.Event().wait())
    with pytest.raises(IllegalStateError):
        await probe.close()
    assert not other_tasks()


async def test_a_child_can_be_cancelled_alone() -> None:
    async with Probe() as probe:
        scope = probe.service.start_child(probe.forever)
        await turns()
        scope.cancel()
        await turns()
        assert probe.notes == ["start", "child ended"]
        probe.service.check()


async def test_a_child_that_returns_ends_nothing_else() -> None:
    async with Probe() as probe:
        probe.service.start_child(turns, 1)
        await turns()
        probe.service.check()


async def test_calls_before_start_and_after_close_are_refused_with_the_remedy() -> None:
    probe = Probe()
    with pytest.raises(IllegalStateError, match="is not started: use it in 'async with'"):
        probe.service.check()
    with pytest.raises(IllegalStateError, match="not started"):
        await probe.service.while_running(asyncio.sleep(0))
    await probe.start()
    with pytest.raises(IllegalStateError, match="is started already"):
        await probe.start()
    await probe.close()
    await probe.close()
    with pytest.raises(IllegalStateError, match=r"is closed.*create a new one"):
        probe.service.check()
    with pytest.raises(IllegalStateError, match="cannot be started again: create a new one"):
        await probe.start()


async def test_a_cancelled_call_stays_cancelled_if_the_component_fails_then() -> None:
    probe = Probe()
    await probe.start()
    waiting = asyncio.create_task(probe.service.while_running(asyncio.Event().wait()))
    await turns()
    waiting.cancel()
    probe.service.start_child(boom)
    with pytest.raises(asyncio.CancelledError):
        await waiting
    with pytest.raises(Boom):
        await probe.close()


async def test_while_running_passes_results_and_errors() -> None:
    async with Probe() as probe:
        assert await probe.service.while_running(asyncio.sleep(0, "result")) == "result"
        with pytest.raises(Boom):
            await probe.service.while_running(boom())
        probe.service.check()


def test_use_from_another_loop_is_refused() -> None:
    probe = Probe()
    with asyncio.Runner() as runner:
        runner.run(probe.start())
        with asyncio.Runner() as other, pytest.raises(IllegalStateError, match="another event loop"):
            other.run(probe.close())
        with pytest.raises(IllegalStateError, match="another event loop"):
            probe.service.check()


def test_a_component_whose_loop_has_ended_raises_a_clear_error() -> None:
    probe = Probe()
    asyncio.run(probe.start())
    with pytest.raises(IllegalStateError, match=r"event loop .* is closed"):
        asyncio.run(probe.close())
    with pytest.raises(IllegalStateError, match="cancelled from outside"):
        probe.service.check()


def test_a_loop_that_ends_before_close_logs_one_line_with_the_remedy(caplog: pytest.LogCaptureFixture) -> None:
    inner = Probe()

    async def forget_to_close() -> None:
        outer = Probe()
        await outer.start()
        await outer.service.attach(inner.service)
        for probe in (outer, inner, outer):
            probe.service.start_child(probe.forever)
        await turns()

    asyncio.run(forget_to_close())
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "use it in 'async with'" in caplog.text
    assert inner.service.failure is not None


FORKS = """
import asyncio, os
from aiokafka_lite.aio.component import Component

class Probe(Component):
    async def call(self):
        self._service.check()
        return "usable"

async def main():
    async with Probe() as probe:
        child = os.fork()
        if child == 0:
            try:
                print("child:", asyncio.run(probe.call()), flush=True)
            except Exception as error:
                print("child:", error, flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        print("parent:", await probe.call())

asyncio.run(main())
"""


def test_a_component_is_refused_in_a_forked_process() -> None:
    """In the child, no code would answer: the event loop runs in the parent."""
    ended = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, text=True, timeout=DEADLINE, check=True)
    child, parent = ended.stdout.splitlines()
    assert "belongs to another process: it was started before a fork" in child
    assert parent == "parent: usable"


@pytest.mark.parametrize("copied", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_component_is_not_copied(copied: Callable[[object], object]) -> None:
    with pytest.raises(TypeError, match=r"^Probe cannot be pickled or copied, as it has connections and tasks"):
        copied(Probe())


async def test_an_error_that_the_body_raises_in_a_group_is_not_logged_again(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ExceptionGroup):
        async with Probe() as probe, anyio.create_task_group() as tasks:
            tasks.start_soon(probe.service.while_running, asyncio.Event().wait())
            probe.service.start_child(boom)
    assert [record.levelname for record in caplog.records] == ["ERROR"]  # the failure itself


def test_a_component_that_lives_until_the_exit_of_the_interpreter_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    probe = Probe()
    # Python sets the names of a module to None before it drops what still refers to the module's classes.
    monkeypatch.setattr("aiokafka_lite.aio.service._UP", None)
    probe.__del__()
