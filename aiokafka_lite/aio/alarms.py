"""Calls at a time of the event loop's clock, for waits that usually end before that time.

A timer of asyncio costs as much as the encoding of a small request, although nearly all timeouts are called off. So the
alarms of a loop share one timer. It is set to the earliest alarm when that is set, and alarms that are called off do
not change it: it fires once, finds a later alarm, and is set again. Without an alarm there is no timer.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable
from contextvars import Context
from heapq import heapify, heappop, heappush

from . import forks

_FEWEST_KEPT = 100
"""The number of alarms in the heap from which those that were called off are removed."""

_PRECISION = 1e-6
"""Seconds by which a timer of the loop may fire early."""


class Alarm:
    """A call that is due at some time, until it is called off."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[[], object]) -> None:
        self._function: Callable[[], object] | None = function

    @property
    def is_set(self) -> bool:
        """Whether the call has neither happened nor been called off."""
        return self._function is not None

    def call_off(self) -> None:
        """Drop the call. May be called at any time, more than once."""
        self._function = None

    def ring(self) -> None:
        """Make the call, unless it was called off."""
        function, self._function = self._function, None
        if function is not None:
            function()


class Alarms:
    """The alarms of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop: asyncio.AbstractEventLoop = loop
        self._generation = forks.generation
        self._heap: list[tuple[float, int, Alarm]] = []
        self._count = 0  # of all alarms so far; orders those of the same time
        self._most = _FEWEST_KEPT
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf

    @property
    def is_inherited(self) -> bool:
        """Whether the alarms are for the tasks of a parent of this process."""
        return self._generation != forks.generation

    def at(self, when: float, function: Callable[[], object]) -> Alarm:
        """Call ``function`` at the loop's time ``when``, in a context without variables.

        Its exception goes to the exception handler of the loop.
        """
        alarm = Alarm(function)
        heap = self._heap
        if len(heap) >= self._most:
            self._remove_called_off()
        self._count += 1
        heappush(heap, (when, self._count, alarm))
        if when < self._timer_at:
            self._set_timer(when)
        return alarm

    def after(self, seconds: float, function: Callable[[], object]) -> Alarm:
        """Call ``function`` after some seconds, as ``at`` does."""
        return self.at(self.loop.time() + seconds, function)

    def _set_timer(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = when
        # In a context of its own, because the timer is for the calls of many tasks.
        self._timer = self.loop.call_at(when, self._ring, context=Context())

    def _remove_called_off(self) -> None:
        heap = self._heap
        heap[:] = [entry for entry in heap if entry[2].is_set]
        heapify(heap)
        self._most = max(_FEWEST_KEPT, 2 * len(heap))

    def _ring(self) -> None:
        if self.is_inherited:
            return
        self._timer, self._timer_at = None, math.inf
        heap, now, due = self._heap, self.loop.time() + _PRECISION, list[Alarm]()
        while heap and (heap[0][0] <= now or not heap[0][2].is_set):
            due.append(heappop(heap)[2])
        if heap:
            self._set_timer(heap[0][0])  # before the calls, which may set earlier alarms
        for alarm in due:
            try:
                alarm.ring()
            except Exception as error:  # noqa: BLE001 - the other alarms must ring
                self.loop.call_exception_handler({"message": "an alarm failed", "exception": error})


_of_thread = threading.local()


def loop_alarms() -> Alarms:
    """Return the alarms of the running event loop."""
    loop = asyncio.get_running_loop()
    alarms: Alarms | None = getattr(_of_thread, "alarms", None)
    # A thread runs one loop at a time, and keeps the alarms of the last one. Those of another loop still ring.
    # A forked process may go on with its parent's loop, but not with the alarms, which ring no more.
    if alarms is None or alarms.loop is not loop or alarms.is_inherited:
        alarms = _of_thread.alarms = Alarms(loop)
    return alarms
