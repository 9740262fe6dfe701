"""Calls user code (a handler, a listener) in bounded time, and distinguishes its exceptions from a cancellation.

Each call runs in a copy of the context (``aio/user_context.py``).

User code may await something that another task has cancelled. It then raises CancelledError although no task has
cancelled the call. Passed on unchanged, the exception would look like a cancellation of the task that runs the call,
and would end that task silently.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from contextvars import copy_context

import anyio

from ...aio.alarms import loop_alarms
from ...aio.user_context import InContext
from ...errors import IllegalStateError, KafkaTimeout


async def call(what: str, function: Callable[[], Awaitable[object]], within: float | None = None) -> None:
    """Call an async function of the user in a copy of the present context. Raises the same as ``wait``."""
    context = copy_context()
    awaitable = context.run(function)
    await wait(what, InContext(awaitable, context) if inspect.isawaitable(awaitable) else awaitable, within)


async def wait(what: str, awaitable: Awaitable[object], within: float | None = None) -> None:
    """Await user code for ``within`` seconds at most, then cancel it; ``what`` names it in errors.

    Code that catches the cancellation is cancelled again at its next await. A ``CancelScope(shield=True)`` protects a
    part of it. Code that returns nevertheless has succeeded.

    Raises the exceptions of the user code, and KafkaTimeout when the time has passed. Raises IllegalStateError if the
    user code raises a CancelledError of its own, and TypeError if there is nothing to await, as for a plain function.
    """
    if not inspect.isawaitable(awaitable):
        raise TypeError(f"{what} must be defined by 'async def', but it returned {awaitable!r:.80}")
    task = asyncio.current_task()
    assert task is not None
    if within is None:
        await _wait(what, awaitable, task)
        return
    # A scope, because it cancels each await of user code that catches a cancellation, and leaves shielded code alone.
    # Hot: Workers call this for each record, so an alarm replaces the timer of the scope.
    scope = anyio.CancelScope()
    alarm = loop_alarms().after(within, scope.cancel)
    try:
        with scope:
            await _wait(what, awaitable, task)
    finally:
        alarm.call_off()
    if scope.cancelled_caught:
        raise KafkaTimeout(took_longer(what, within))


async def _wait(what: str, awaitable: Awaitable[object], task: asyncio.Task[object]) -> None:
    before = task.cancelling()
    try:
        await awaitable
    except asyncio.CancelledError as error:
        if task.cancelling() > before:
            raise
        raise IllegalStateError(
            f"{what} raised CancelledError although no task cancelled it: something that it awaited was cancelled"
        ) from error


def took_longer(what: str, within: float) -> str:
    """Return the text of the KafkaTimeout."""
    return f"{what} took longer than {within:g} s and was cancelled"
