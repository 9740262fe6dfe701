"""Blocks the code of one process of a simulation, while the other processes and the brokers continue.

All processes share one event loop. A callback belongs to the process whose context variables it runs in. While a
process is blocked, its callbacks wait, and its timers are late, as in a process whose event loop is blocked.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from typing import Any, Protocol

from ...aio.virtual_time import VirtualTimeLoop

APART = 1e-6
"""Seconds between late timers, so that they fire in their order, after the callbacks that have waited."""


class OwnProcess(Protocol):
    """The parts of a process that its loop uses: what was refused, and its handlers of signals."""

    tasks: dict[asyncio.Task[Any], None]
    refused: list[str]
    signal_handlers: dict[int, Callable[[], object]]

    def note(self, text: str) -> None: ...


current_process: ContextVar[OwnProcess | None] = ContextVar("current_process", default=None)
"""The process of the service to which the running code belongs; None for the simulation and its brokers."""


def _owner(context: Context | None) -> OwnProcess | None:
    return current_process.get() if context is None else context.get(current_process)


class BlockingLoop(VirtualTimeLoop):
    """A loop in virtual time in which the code of one process can be blocked."""

    def __init__(self, ticks: int | None = None) -> None:
        super().__init__(ticks)
        self._blocked: dict[OwnProcess, float] = {}
        self._waiting: dict[OwnProcess, list[asyncio.Handle]] = {}

    def blocked_until(self, process: OwnProcess) -> float:
        """Return the time at which a process continues; 0.0 if it is not blocked."""
        return self._blocked.get(process, 0.0)

    def block(self, process: OwnProcess, seconds: float) -> None:
        """Run no code of a process for some seconds. A process that is blocked stays so for the longer time."""
        until = max(self.now + seconds, self.blocked_until(process))
        waiting = self._waiting.setdefault(process, [])
        self._blocked[process] = until
        self.is_plain = False
        for place, handle in enumerate(self._ready):
            if _owner(_context_of(handle)) is process:
                waiting.append(handle)
                self._ready[place] = self._nothing()
        late = sorted(
            (timer for timer in self._scheduled if timer.when() < until and _owner(_context_of(timer)) is process),
            key=asyncio.TimerHandle.when,
        )
        for number, timer in enumerate(late):
            timer._when = until + number * APART  # type: ignore[attr-defined]  # noqa: SLF001 - a loop's own handle
        heapq.heapify(self._scheduled)
        Context().run(self.call_at, until, self._unblock, process)

    def last_block_ends_at(self) -> float:
        """Return the time at which no process is blocked any more."""
        return max(self._blocked.values(), default=0.0)

    def _unblock(self, process: OwnProcess) -> None:
        if self.blocked_until(process) <= self.now + APART and self._blocked.pop(process, None) is not None:
            self._ready.extend(self._waiting.pop(process))
            self.is_plain = not self._blocked

    def _nothing(self) -> asyncio.Handle:
        """Return a cancelled handle, which takes the place of another one: the turn has counted its handles."""
        handle = asyncio.Handle(_pass, (), self, Context())
        handle.cancel()
        return handle

    # Calls while a process is blocked.

    def _call_soon_checked(
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        process = _owner(context)
        if process is None or process not in self._blocked:
            return super()._call_soon_checked(callback, *args, context=context)
        handle = asyncio.Handle(callback, args, self, copy_context() if context is None else context)
        self._waiting[process].append(handle)
        return handle

    def _call_at_checked(
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        process = _owner(context)
        if process is not None and process in self._blocked:
            when = max(when, self._blocked[process] + APART)
        return super()._call_at_checked(when, callback, *args, context=context)


def _context_of(handle: asyncio.Handle) -> Context:
    context: Context = handle._context  # type: ignore[attr-defined]  # noqa: SLF001 - get_context() is new in 3.12
    return context


def _pass() -> None:
    """Do nothing."""
