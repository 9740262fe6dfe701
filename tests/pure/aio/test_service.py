"""A component starts, fails and closes as a whole."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from collections.abc import Awaitable, Callable

import anyio
import pytest

from aiokafka_lite.aio.service import CANCEL_TIMEOUT, Component, Service, ServiceState
from aiokafka_lite.aio.virtual_time import VirtualTimeLoop, run
from aiokafka_lite.errors import IllegalStateError
from tests.waiting import DEADLINE


class Boom(Exception):
    pass


class Probe(Component):
    """Records its calls. Hooks are optional."""

    def __init__(
        self,
        on_start: Callable[[Probe], Awaitable[object]] | None = None,
        on_close: Callable[[Probe], Awaitable[object]] | None = None,
    ) -> None:
        super().__init__()
        self.notes: list[str] = []
        self.hooks = on_start, on_close

    async def _on_start(self) -> None:
        self.notes.append("start")
        if self.hooks[0] is not None:
            await self.hooks[0](self)

    async def _on_close(self) -> None:
        self.notes.append("close")
        if self.hooks[1] is not None:
            await self.hooks[1](self)

    @property
    def service(self) -> Service:
        return self._service

    async def forever(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            self.notes.append("child ended")


async def boom(delay: float = 0.0) -> None:
    await asyncio.sleep(delay)
    raise Boom("dead")


async def turns(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def others() -> set[asyncio.Task[object]]:
    return asyncio.all_tasks() - {asyncio.current_task()}  # type: ignore[arg-type]


async def test_it_starts_runs_children_and_closes() -> None:
    async with Probe() as probe:
        probe.service.start_child(probe.forever)
        await turns()
        assert repr(probe) == "<Probe RUNNING>"
    assert probe.notes == ["start", "close", "child ended"]
    assert probe.state is ServiceState.CLOSED
    assert not others()


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
    assert not others()
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
    assert not others()
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
    assert not others()
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


def test_a_failure_is_raised_at_once_although_other_tasks_end_later() -> None:
    async def main() -> None:
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
        assert loop.time() == before
        with pytest.raises(Boom):
            await probe.close()
        assert loop.time() == pytest.approx(before + 1.5)

    run(main())


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
    next(task for task in others() if task.get_name() == "victim").cancel()
    with pytest.raises(IllegalStateError, match=r"'victim'.*cancelled from outside"):
        await probe.service.while_running(asyncio.Event().wait())
    with pytest.raises(IllegalStateError):
        await probe.close()


async def test_a_root_task_that_is_cancelled_from_outside_is_a_failure() -> None:
    probe = Probe()
    await probe.start()
    next(task for task in others() if task.get_name() == "Probe").cancel()
    with pytest.raises(IllegalStateError, match="cancelled from outside"):
        await probe.service.while_running(asyncio.Event().wait())
    with pytest.raises(IllegalStateError):
        await probe.close()
    assert not others()


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


async def test_calls_before_start_and_after_close_are_refused() -> None:
    probe = Probe()
    with pytest.raises(IllegalStateError, match="not started"):
        probe.service.check()
    with pytest.raises(IllegalStateError, match="not started"):
        await probe.service.while_running(asyncio.sleep(0))
    await probe.start()
    with pytest.raises(IllegalStateError, match="cannot be started: it is RUNNING"):
        await probe.start()
    await probe.close()
    await probe.close()
    with pytest.raises(IllegalStateError, match="is closed"):
        probe.service.check()
    with pytest.raises(IllegalStateError, match="cannot be started: it is CLOSED"):
        await probe.start()


async def test_closing_what_never_started_is_allowed() -> None:
    probe = Probe()
    await probe.close()
    assert probe.state is ServiceState.CLOSED
    assert not probe.notes


async def test_a_waiting_call_ends_at_the_close() -> None:
    probe = Probe()
    await probe.start()
    waiting = asyncio.create_task(probe.service.while_running(asyncio.Event().wait()))
    await turns()
    await probe.close()
    with pytest.raises(IllegalStateError, match="closed during the call"):
        await waiting
    assert waiting.cancelling() == 0


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


async def test_the_error_of_the_body_is_raised_not_that_of_close() -> None:
    async def hook(probe: Probe) -> None:
        raise OSError("and the goodbye failed, too")

    with pytest.raises(Boom, match="body"):
        async with Probe(on_close=hook):
            raise Boom("body")


async def test_an_error_while_closing_is_raised_by_close() -> None:
    probe = Probe(on_close=lambda _: boom())
    await probe.start()
    with pytest.raises(Boom):
        await probe.close()
    assert probe.state is ServiceState.FAILED


def test_on_close_is_cancelled_at_the_timeout() -> None:
    async def main() -> float:
        probe = Probe(on_close=lambda _: asyncio.sleep(3600))
        await probe.start()
        probe.service.start_child(probe.forever)
        loop = asyncio.get_running_loop()
        before = loop.time()
        await probe.close(timeout=1.5)
        assert not others()
        return loop.time() - before

    assert run(main()) == pytest.approx(1.5)


def test_a_second_close_can_shorten_the_first_but_not_extend_it() -> None:
    async def main() -> float:
        probe = Probe(on_close=lambda _: asyncio.sleep(3600))
        await probe.start()
        loop = asyncio.get_running_loop()
        before = loop.time()
        await asyncio.gather(probe.close(timeout=60), probe.close(timeout=1), probe.close(timeout=100))
        return loop.time() - before

    assert run(main()) == pytest.approx(1.0)


def test_a_cancelled_close_becomes_abrupt_and_leaves_no_task() -> None:
    async def main() -> float:
        probe = Probe(on_close=lambda _: asyncio.sleep(3600))
        await probe.start()
        probe.service.start_child(probe.forever)
        loop = asyncio.get_running_loop()
        before = loop.time()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await probe.close(timeout=100)
        assert probe.state is ServiceState.CLOSED
        assert not others()
        await probe.close()
        return loop.time() - before

    assert run(main()) == pytest.approx(1.0)


def test_close_in_a_cancelled_scope_still_runs_on_close() -> None:
    async def main() -> list[str]:
        async def hook(probe: Probe) -> None:
            await asyncio.sleep(0.5)
            probe.notes.append("flushed")

        probe = Probe(on_close=hook)
        with anyio.CancelScope() as scope:
            async with probe:
                scope.cancel()
                await asyncio.sleep(0)
        return probe.notes

    assert run(main()) == ["start", "close", "flushed"]


def test_a_task_that_resists_cancellation_is_named() -> None:
    async def main() -> None:
        async def stubborn() -> None:
            with anyio.CancelScope(shield=True):
                await asyncio.sleep(60)

        probe = Probe()
        await probe.start()
        probe.service.start_child(stubborn, name="stubborn")
        await turns()
        before = asyncio.get_running_loop().time()
        with pytest.raises(TimeoutError, match="stubborn"):
            await probe.close(timeout=0.5)
        assert asyncio.get_running_loop().time() - before == pytest.approx(0.5 + CANCEL_TIMEOUT)
        await asyncio.sleep(60)
        await probe.close()
        assert not others()

    run(main())


@pytest.mark.parametrize("after", [0.0, 0.7, 1.0])
def test_a_blocked_event_loop_does_not_count_as_a_task_that_resists_cancellation(after: float) -> None:
    async def main() -> None:
        probe = Probe(on_close=lambda _: asyncio.sleep(60))
        await probe.start()
        probe.service.start_child(probe.forever)
        await turns()
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)

        def block() -> None:
            loop.now += 15.0

        loop.call_later(after, block)
        await probe.close(timeout=1.0)
        assert probe.state is ServiceState.CLOSED
        assert not others()

    run(main())


async def test_a_child_that_closes_the_component_does_not_wait_for_itself() -> None:
    probe = Probe()
    await probe.start()
    probe.service.start_child(probe.close, None)
    await turns(20)
    assert probe.state is ServiceState.CLOSED


async def test_an_attached_component_lives_within_the_owner() -> None:
    inner = Probe()
    outer = Probe(lambda probe: probe.service.attach(inner.service))
    async with outer:
        inner.service.check()

        async def uses_inner() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                outer.notes.append(f"inner is {inner.state.name}")

        outer.service.start_child(uses_inner)
        await turns()
    assert outer.notes == ["start", "close", "inner is RUNNING"]
    assert inner.state is ServiceState.CLOSED
    assert not others()


async def test_only_the_owner_of_dropped_components_is_a_warning() -> None:
    components = [Probe()]
    components.append(Probe(lambda probe: probe.service.attach(components[0].service)))
    service = components[1].service
    await components[1].start()
    with pytest.warns(ResourceWarning, match="unclosed Probe: use it in 'async with'") as caught:
        components.clear()
    assert len(caught) == 1
    await service.close()


async def test_the_failure_of_an_attached_component_is_the_owners() -> None:
    inner = Probe()
    outer = Probe(lambda probe: probe.service.attach(inner.service))
    await outer.start()
    inner.service.start_child(boom)
    with pytest.raises(Boom):
        await outer.service.while_running(asyncio.Event().wait())
    with pytest.raises(Boom):
        await outer.close()
    assert not others()


async def test_an_attached_component_is_closed_when_the_owner_fails_to_start() -> None:
    inner = Probe()

    async def hook(probe: Probe) -> None:
        await probe.service.attach(inner.service)
        raise Boom

    with pytest.raises(Boom):
        await Probe(hook).start()
    assert inner.state is ServiceState.CLOSED


async def test_an_attached_component_that_cannot_start_fails_the_owner() -> None:
    inner = Probe(lambda _: boom())
    with pytest.raises(Boom):
        await Probe(lambda probe: probe.service.attach(inner.service)).start()
    assert not others()


async def test_an_attached_component_that_is_closed_directly_fails_its_owner() -> None:
    inner = Probe()
    outer = Probe(lambda probe: probe.service.attach(inner.service))
    await outer.start()
    await inner.close()
    with pytest.raises(IllegalStateError, match="closed by another component"):
        await outer.service.while_running(asyncio.Event().wait())
    with pytest.raises(IllegalStateError):
        await outer.close()
    assert not others()


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


async def test_errors_before_start_and_after_close_name_the_remedy() -> None:
    probe = Probe()
    with pytest.raises(IllegalStateError, match="is not started: use it in 'async with'"):
        probe.service.check()
    async with probe:
        pass
    with pytest.raises(IllegalStateError, match=r"is closed.*create a new one"):
        probe.service.check()


FORKS = """
import asyncio, os
from aiokafka_lite.aio.service import Component

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
    """There, nothing would answer: its event loop runs in the parent."""
    ended = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, text=True, timeout=DEADLINE, check=True)
    child, parent = ended.stdout.splitlines()
    assert "belongs to another event loop" in child
    assert parent == "parent: usable"
