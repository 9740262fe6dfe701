"""The alarms of a loop share one timer, ring in order, and cost no timer when they are called off."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib.metadata import version

import anyio
import pytest
from packaging.version import Version

from aiokafka_lite import KafkaTimeout
from aiokafka_lite.aio import forks
from aiokafka_lite.aio.alarms import Alarms, loop_alarms
from aiokafka_lite.aio.deadline import deadline
from aiokafka_lite.aio.light_event import LightEvent
from tests.virtual import in_virtual_time


class CountingLoop:
    """A loop of which only the timers matter. It counts them."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.timers = 0
        self.time = self.loop.time
        self.call_soon = self.loop.call_soon

    def call_at(self, when: float, callback: Callable[[], object], *, context: object) -> asyncio.TimerHandle:
        self.timers += 1
        return self.loop.call_at(when, callback)


@in_virtual_time
async def test_alarms_ring_at_their_times_in_order_except_those_called_off() -> None:
    loop, rung = asyncio.get_running_loop(), list[tuple[str, float]]()

    def note(name: str) -> Callable[[], None]:
        return lambda: rung.append((name, loop.time()))

    alarms = loop_alarms()
    assert alarms is loop_alarms()
    alarms.at(3.0, note("late"))
    dropped = alarms.at(1.0, note("dropped"))
    alarms.after(2.0, note("early"))
    alarms.at(3.0, note("late, too"))
    dropped.call_off()
    dropped.call_off()
    await asyncio.sleep(1000.0)
    assert [name for name, _ in rung] == ["early", "late", "late, too"]
    assert [when for _, when in rung] == pytest.approx([2.0, 3.0, 3.0], abs=1e-6)


@in_virtual_time
async def test_an_alarm_that_fails_is_reported_and_the_others_ring() -> None:
    loop, reported, rung = asyncio.get_running_loop(), list[str](), list[str]()
    loop.set_exception_handler(lambda _, context: reported.append(context["message"]))
    loop_alarms().at(1.0, lambda: {}["missing"])
    loop_alarms().at(1.0, lambda: rung.append("now"))
    loop_alarms().at(2.0, lambda: rung.append("later"))
    await asyncio.sleep(3.0)
    assert reported == ["an alarm failed"]
    assert rung == ["now", "later"]


@in_virtual_time
async def test_a_thousand_alarms_that_are_called_off_take_one_timer_and_little_memory() -> None:
    counting = CountingLoop()
    alarms = Alarms(counting)  # type: ignore[arg-type]
    kept = alarms.at(50.0, lambda: rung.append(1))
    rung: list[int] = []
    for _ in range(1_000):
        alarms.at(60.0, lambda: rung.append(2)).call_off()
    assert counting.timers == 1
    assert len(alarms._heap) <= 100  # the memory
    await asyncio.sleep(100.0)
    assert rung == [1]
    assert not kept.is_set
    assert counting.timers == 1, "no alarm is left, so no timer is set again"


@in_virtual_time
async def test_an_answer_in_the_turn_of_the_alarm_is_not_lost() -> None:
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[str] = loop.create_future()
    loop.call_at(1.0, lambda: answer.set_result("in time"))
    with deadline.at(1.0, lambda: "too late"):
        assert await answer == "in time"


@in_virtual_time
async def test_a_scope_of_anyio_around_a_deadline_of_the_same_time_keeps_its_cancellation() -> None:
    loop_alarms().at(100.0, lambda: None)  # so that the timer of the alarms fires before that of the scope
    with anyio.CancelScope(deadline=100.0) as scope:
        with deadline.at(100.0, lambda: "too late"):
            await asyncio.sleep(1000.0)
    assert scope.cancelled_caught
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


@pytest.mark.skipif(
    Version(version("anyio")) < Version("4.16"), reason="older scopes of anyio take any cancellation for their own"
)
@in_virtual_time
async def test_a_deadline_around_a_scope_of_anyio_of_the_same_time_expires() -> None:
    with pytest.raises(KafkaTimeout), deadline.at(100.0, lambda: "too late"):
        with anyio.CancelScope(deadline=100.0):
            await asyncio.sleep(1000.0)
        await asyncio.sleep(1000.0)  # if the scope was first
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


@in_virtual_time
async def test_an_event_is_waited_for_until_a_time() -> None:
    loop, event = asyncio.get_running_loop(), LightEvent()
    assert not await event.wait_until(loop.time() + 1.0)
    assert loop.time() == pytest.approx(1.0)
    loop.call_later(1.0, event.set)
    assert await event.wait_until(loop.time() + 5.0)
    assert loop.time() == pytest.approx(2.0)
    assert await event.wait_until(0.0)


@in_virtual_time
async def test_alarms_of_the_parent_do_not_ring_in_a_forked_process(monkeypatch: pytest.MonkeyPatch) -> None:
    event = asyncio.Event()
    alarm = loop_alarms().after(1.0, event.set)
    monkeypatch.setattr(forks, "generation", forks.generation + 1)  # as in the child
    await asyncio.sleep(2.0)
    assert alarm.is_set
    assert not event.is_set()
    # The child may go on with the loop object of its parent.
    loop_alarms().after(1.0, event.set)
    await asyncio.sleep(2.0)
    assert event.is_set()
