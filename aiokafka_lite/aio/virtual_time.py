"""An event loop whose clock jumps to the next timer, so that an hour of waiting takes no time.

For tests: with in-memory transports, a cluster and its clients run in one loop on this clock. The same seed gives the
same trace. Real sockets work too if both ends are in this loop. Otherwise the clock jumps while data is in transit.

While tasks run, the clock stands still, so that times are exact. But code that reads the clock twice for one decision
works then, and fails on a real clock. With ``ticks``, each reading moves the clock a little, as real code does.
"""

from __future__ import annotations

import asyncio
import random
import selectors
from collections import deque
from collections.abc import Callable, Coroutine, Hashable, Iterator
from contextlib import contextmanager
from contextvars import Context
from functools import partial
from heapq import heappop, heappush
from typing import Any, TypeVar

import anyio._backends._asyncio as anyio_asyncio

from .runtime import is_seeded

T = TypeVar("T")

STALL_LIMIT = 10.0
"""Real seconds without a timer and without I/O, after which the loop raises TimeoutError, because it is deadlocked."""

ROUNDING = 1e-6
"""Seconds. After a jump, a timer that is due within this time is the timer of the jump."""

RESOLUTION = 1e-9
"""Seconds. A timer that is due within this time is due now, as in asyncio."""

CANCELLED_TIMERS = 100
"""The number of cancelled timers above which asyncio may remove them all."""

TICK = 1e-8
"""Seconds by which a reading of the clock moves it at most, with ``ticks``."""


class _JumpingSelector(selectors.DefaultSelector):
    """Polls the real sockets, then moves the loop's clock by the time that the loop would sleep."""

    loop: VirtualTimeLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(0) if self.loop.has_sockets else []
        if events or timeout == 0:
            return events
        if timeout is None:  # no timer: only a thread or another process can wake the loop
            events = super().select(STALL_LIMIT)
            if not events:
                raise TimeoutError("virtual time stands still: all tasks wait, and no timer is set")
            return events
        self.loop.jump(max(timeout, 0.0))
        return []


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """A selector loop with its own clock: ``time()`` begins at 0.0 and moves only when no task can run.

    With ``ticks``, the seed of random numbers, each reading moves the clock by at most ``TICK``.
    """

    has_sockets = True
    """Whether real sockets are polled at each turn. Without them, a turn has no system call."""

    is_plain = True
    """Whether callbacks are queued as they come. A subclass that holds some back sets this to False meanwhile."""

    # Of BaseEventLoop:
    _scheduled: list[asyncio.TimerHandle]  # a heap, by time
    _ready: deque[asyncio.Handle]  # the callbacks of the next turn
    _timer_cancelled_count: int  # timers of the heap that are cancelled
    _debug: bool
    _closed: bool
    _stopping: bool

    def __init__(self, ticks: int | None = None) -> None:
        self.now: float = 0.0
        self._tick = None if ticks is None else random.Random(ticks).random
        selector = _JumpingSelector()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        if self._tick is not None:
            self.now += TICK * self._tick()
        return self.now

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Wait for the threads of the executor, without a timeout: the clock would jump to its end at once."""
        await super().shutdown_default_executor()

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> asyncio.Handle:  # type: ignore[override]
        """Call in the next turn. Without debug mode, this skips the checks of the base class: half of the time."""
        if self._debug or self._closed or not self.is_plain:
            return self._call_soon_checked(callback, *args, context=context)
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Call at a time, without the checks of the base class, as ``call_soon``."""
        if self._debug or self._closed or not self.is_plain:
            return self._call_at_checked(when, callback, *args, context=context)
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heappush(self._scheduled, timer)
        timer._scheduled = True  # type: ignore[attr-defined]  # noqa: SLF001 - as the base class does
        return timer

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        now = self.now if self._tick is None else self.time()
        return self.call_at(now + delay, callback, *args, context=context)

    def _call_soon_checked(
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        return super().call_soon(callback, *args, context=context)

    def _call_at_checked(
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return super().call_at(when, callback, *args, context=context)

    def _run_once(self) -> None:
        """Run one turn. Without sockets and debug mode, this skips the selector and the clock of the base class."""
        ready, timers = self._ready, self._scheduled
        if self.has_sockets or self._debug or self._timer_cancelled_count > CANCELLED_TIMERS or not (ready or timers):
            super()._run_once()  # type: ignore[misc]
            return
        while timers and timers[0]._cancelled:  # noqa: SLF001 - as the base class does
            heappop(timers)._scheduled = False  # type: ignore[attr-defined]  # noqa: SLF001 - as above
            self._timer_cancelled_count -= 1
        if timers and not ready and not self._stopping:
            self.jump(max(timers[0].when() - self.now, 0.0))
        due = self.now + RESOLUTION
        while timers and timers[0].when() < due:
            timer = heappop(timers)
            timer._scheduled = False  # type: ignore[attr-defined]  # noqa: SLF001 - as above
            ready.append(timer)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:  # noqa: SLF001 - as above
                handle._run()  # noqa: SLF001 - as above

    def jump(self, seconds: float) -> None:
        """Move the clock to the next timer, which is ``seconds`` away."""
        self.now += seconds
        # The sum may be rounded to a time just before the timer, but the loop still runs the timer. Code that waits
        # until that time would then wait again and again, because the clock does not move meanwhile.
        if self._scheduled and 0 < self._scheduled[0].when() - self.now < ROUNDING:
            self.now = self._scheduled[0].when()


def run(
    main: Coroutine[Any, Any, T],
    *,
    seed: int = 0,
    debug: bool | None = None,
    ticks: bool = False,
    loop: Callable[[int | None], VirtualTimeLoop] = VirtualTimeLoop,
) -> T:
    """Run a coroutine in virtual time, with the ``random`` module seeded, and return its result.

    The same seed gives the same run, in any process. ``main`` must not depend on the time of day, on threads or on the
    order of a set. With ``ticks``, each reading of the clock moves it by at most 10 ns, so that two readings
    differ as on a real clock. ``loop`` makes the event loop from the seed of the ticks. Restores the
    state of ``random``. Raises TimeoutError if all tasks wait and no timer is set.
    """
    results: list[T] = []

    async def keep() -> None:
        # The Runner's handler of signals holds the task, and Python 3.11 makes texts of the handler.
        results.append(await main)

    state = random.getstate()
    random.seed(seed)
    seeded = is_seeded.set(True)
    make_loop = partial(loop, seed if ticks else None)
    try:
        with _ordered_cancellation(), asyncio.Runner(loop_factory=make_loop, debug=debug) as runner:
            runner.run(keep())
            return results[0]
    finally:
        is_seeded.reset(seeded)
        random.setstate(state)


class _OrderedSet(dict[Hashable, None]):
    """A set that iterates over its elements in the order in which they were added."""

    __slots__ = ()

    def add(self, item: Hashable) -> None:
        self[item] = None

    def remove(self, item: Hashable) -> None:
        del self[item]

    def discard(self, item: Hashable) -> None:
        self.pop(item, None)

    def __iter__(self) -> Iterator[Hashable]:
        return iter(list(super().__iter__()))


@contextmanager
def _ordered_cancellation() -> Iterator[None]:
    """Make anyio cancel the tasks of a scope in the order in which they entered it.

    anyio keeps them in a set. The order of the set depends on memory addresses, which differ in every run.
    """
    scope: Any = anyio_asyncio.CancelScope
    initialize: Callable[..., None] = scope.__init__

    def initialize_ordered(self: Any, *args: Any, **settings: Any) -> None:
        if not hasattr(self, "_child_scopes"):  # ``anyio.CancelScope()`` calls this twice
            initialize(self, *args, **settings)
            self._tasks, self._child_scopes = _OrderedSet(), _OrderedSet()

    scope.__init__ = initialize_ordered
    try:
        yield
    finally:
        scope.__init__ = initialize
