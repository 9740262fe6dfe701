"""Runs callbacks of a producer in the event loop. An exception in a callback ends the producer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from typing import TypeVar, TypeVarTuple

from ..aio import forks

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Timers:
    """Makes the producer's timers. A callback has no caller to raise to, so its exception goes to ``crash``.

    After ``stop``, no callback runs, nor in a process that was forked: the records are the parent's. Callbacks run in
    the context of the producer's start, because they handle records of many callers.
    """

    __slots__ = ("_context", "_crash", "_generation", "_loop", "now", "stopped")

    def __init__(self, crash: Callable[[BaseException], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()
        self._crash = crash
        self._generation = forks.generation
        self.now: Callable[[], float] = self._loop.time
        self.stopped: bool = False

    def at(self, when: float, function: Callable[[*Ts], object], *args: *Ts) -> asyncio.TimerHandle:
        """Call ``function(*args)`` at the loop's time ``when``, in seconds."""
        return self._loop.call_at(when, self.run, function, *args, context=self._context)

    def soon(self, function: Callable[[*Ts], object], *args: *Ts) -> None:
        """Call ``function(*args)`` in the next iteration of the loop."""
        self._loop.call_soon(self.run, function, *args, context=self._context)

    def when_done(
        self, future: asyncio.Future[T], function: Callable[[asyncio.Future[T], *Ts], object], *args: *Ts
    ) -> None:
        """Call ``function(future, *args)`` when the future is done."""
        future.add_done_callback(lambda done: self.run(function, done, *args), context=self._context)

    def run(self, function: Callable[[*Ts], object], *args: *Ts) -> None:
        """Call ``function(*args)`` now, unless stopped; an exception ends the producer."""
        if self.stopped or self._generation != forks.generation:
            return
        try:
            function(*args)
        except Exception as error:  # noqa: BLE001 - a callback has no caller to raise to; the whole producer ends
            self._crash(error)

    def stop(self) -> None:
        """Run no more callbacks."""
        self.stopped = True
