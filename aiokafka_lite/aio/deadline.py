"""One way to bound a call in time: ``with deadline(seconds, describe): ...`` raises KafkaTimeout.

Use it if a timeout becomes an error that a user sees. Use ``anyio.move_on_after`` if a timeout is part of the normal
flow, for example in a long poll that returns nothing. A deadline is cheap enough for calls that run for each record.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from types import TracebackType
from typing import Any

from ..errors import KafkaTimeout
from .alarms import Alarm, loop_alarms


class deadline:  # noqa: N801 - used as a statement, like contextlib.closing
    """Cancel the body after ``seconds`` and raise KafkaTimeout with the text that ``describe()`` returns then.

    With ``None`` there is no timeout. A timeout of zero or less expires at the first await. A KafkaTimeout or
    TimeoutError that the body itself raises passes through unchanged. So does a cancellation from outside.

    As in ``asyncio.timeout``, the task of the body is cancelled once, and ``uncancel`` shows any other cancellation.
    """

    __slots__ = ("_alarm", "_at", "_before", "_describe", "_has_cancelled", "_task")

    def __init__(self, seconds: float | None, describe: Callable[[], str]) -> None:
        self._at = math.inf if seconds is None else asyncio.get_running_loop().time() + seconds
        self._describe = describe
        self._alarm: Alarm | None = None
        self._task: asyncio.Task[Any] | None = None
        self._before = 0
        self._has_cancelled = False

    @classmethod
    def at(cls, time: float, describe: Callable[[], str]) -> deadline:
        """Make a deadline at a time of the loop's clock."""
        limit = cls(None, describe)
        limit._at = time
        return limit

    def __enter__(self) -> None:
        if self._at == math.inf:
            return
        task = self._task = asyncio.current_task()
        assert task is not None
        self._before = task.cancelling()
        alarms = loop_alarms()
        if self._at <= alarms.loop.time():
            self._expire()
        else:
            self._alarm = alarms.at(self._at, self._expire)

    def _expire(self) -> None:
        # In the next turn of the loop, so that an answer that the loop reads in this turn, for example after it was
        # blocked, is not lost.
        self._alarm = Alarm(self._cancel)
        asyncio.get_running_loop().call_soon(self._alarm.ring)

    def _cancel(self) -> None:
        assert self._task is not None
        self._has_cancelled = True
        self._task.cancel()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:  # never suppresses: a caught cancellation becomes an error
        if self._alarm is None:
            return
        self._alarm.call_off()
        if self._has_cancelled:
            assert self._task is not None
            remaining = self._task.uncancel()
            if isinstance(error, asyncio.CancelledError) and remaining <= self._before:
                late = KafkaTimeout(self._describe())
                late.__cause__ = None  # hides the cancellation: compiled code ignores the "from" of a raise
                raise late from None
