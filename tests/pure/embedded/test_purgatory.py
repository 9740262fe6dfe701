"""The purgatory: each operation completes once, and none is watched afterwards."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from aiokafka_lite.embedded.replicas.purgatory import DelayedOperation, DelayedOperationPurgatory

KEYS = ["a", "b", "c"]


class FakeTimers:
    """``call_later`` on a clock that the test moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.due: list[FakeTimer] = []

    def call_later(self, delay: float, callback: Callable[[], None]) -> FakeTimer:
        timer = FakeTimer(self.now + delay, callback)
        self.due.append(timer)
        return timer

    def advance(self, seconds: float) -> None:
        self.now += seconds
        for timer in [timer for timer in self.due if timer.at <= self.now]:
            self.due.remove(timer)
            if not timer.cancelled:
                timer.callback()


class FakeTimer:
    def __init__(self, at: float, callback: Callable[[], None]) -> None:
        self.at = at
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Counting(DelayedOperation[str]):
    """Completes when ``ready`` is set, and counts how often it was completed."""

    def __init__(self, timeout: float) -> None:
        super().__init__(timeout)
        self.ready = False
        self.completions = 0

    def try_complete(self) -> bool:
        return self.ready and self.force_complete()

    def force_complete(self) -> bool:
        done = super().force_complete()
        self.completions += done
        return done

    def result(self) -> str:
        return "expired" if self.expired else "completed"


def test_a_ready_operation_is_never_watched() -> None:
    purgatory = DelayedOperationPurgatory(FakeTimers().call_later)
    operation = Counting(1.0)
    operation.ready = True
    assert purgatory.try_complete_else_watch(operation, ["a"])
    assert len(purgatory) == 0


def test_an_operation_under_two_keys_leaves_both_at_once() -> None:
    purgatory = DelayedOperationPurgatory(FakeTimers().call_later)
    operation = Counting(1.0)
    assert not purgatory.try_complete_else_watch(operation, ["a", "b"])
    assert purgatory.check_and_complete("a") == 0
    operation.ready = True
    assert purgatory.check_and_complete("b") == 1
    assert purgatory.check_and_complete("a") == 0
    assert len(purgatory) == 0


async def test_a_cancelled_wait_leaves_the_purgatory() -> None:
    import anyio

    purgatory = DelayedOperationPurgatory()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await purgatory.wait(Counting(10.0), ["a"])
    assert len(purgatory) == 0


class PurgatoryMachine(RuleBasedStateMachine):
    operations = Bundle("operations")

    def __init__(self) -> None:
        super().__init__()
        self.timers = FakeTimers()
        self.purgatory = DelayedOperationPurgatory(self.timers.call_later)
        self.all: list[tuple[Counting, list[str], float]] = []

    @rule(target=operations, timeout=st.integers(1, 5), keys=st.lists(st.sampled_from(KEYS), min_size=1, unique=True))
    def watch(self, timeout: int, keys: list[str]) -> Counting:
        operation = Counting(float(timeout))
        self.purgatory.try_complete_else_watch(operation, keys)
        self.all.append((operation, keys, self.timers.now + timeout))
        return operation

    @rule(operation=operations)
    def make_ready(self, operation: Counting) -> None:
        operation.ready = True

    @rule(key=st.sampled_from(KEYS))
    def check(self, key: str) -> None:
        due = [op for op, keys, _ in self.all if key in keys and op.ready and not op.completed]
        assert self.purgatory.check_and_complete(key) == len(due)
        assert all(operation.completed for operation in due)

    @rule(seconds=st.integers(1, 3))
    def pass_time(self, seconds: int) -> None:
        self.timers.advance(seconds)

    @invariant()
    def nothing_completes_twice_and_nothing_is_overdue(self) -> None:
        for operation, _, deadline in self.all:
            assert operation.completions == int(operation.completed)
            assert operation.completed or deadline > self.timers.now

    @invariant()
    def only_what_waits_is_watched(self) -> None:
        assert len(self.purgatory) == sum(not operation.completed for operation, _, _ in self.all)


PurgatoryMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestPurgatoryAgainstAList = PurgatoryMachine.TestCase
