"""An event loop whose clock jumps to the next timer, so that an hour of waiting takes no time.

For tests: with in-memory transports a cluster and its clients run in one loop on this clock, and the same seed gives
the same trace. Real sockets work too if both ends are in this loop: only then the loop sees data in transit before its
clock jumps.
"""

from __future__ import annotations

import asyncio
import random
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

STALL_LIMIT = 10.0
"""Real seconds without a timer and without I/O after which the loop raises TimeoutError: it is deadlocked."""


class _JumpingSelector(selectors.DefaultSelector):
    """Polls the real sockets, then moves the loop's clock by the time that the loop would sleep."""

    loop: VirtualTimeLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(0)
        if events or timeout == 0:
            return events
        if timeout is None:  # no timer: only a thread or another process can wake the loop
            events = super().select(STALL_LIMIT)
            if not events:
                raise TimeoutError("virtual time stands still: all tasks wait, and no timer is set")
            return events
        self.loop.now += max(timeout, 0.0)
        return []


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """A selector loop with its own clock: ``time()`` begins at 0.0 and moves only when no task can run."""

    def __init__(self) -> None:
        self.now = 0.0
        selector = _JumpingSelector()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.now


def run(main: Coroutine[Any, Any, T], *, seed: int = 0, debug: bool | None = None) -> T:
    """Run a coroutine in virtual time, with the ``random`` module seeded, and return its result.

    Restores the state of ``random``. Raises TimeoutError if all tasks wait and no timer is set.
    """
    state = random.getstate()
    random.seed(seed)
    try:
        with asyncio.Runner(loop_factory=VirtualTimeLoop, debug=debug) as runner:
            return runner.run(main)
    finally:
        random.setstate(state)
