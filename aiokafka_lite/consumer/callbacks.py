"""Calling what users gave: a handler, a listener. Bounded in time, and with what they raise told apart from our own.

User code may await something that is cancelled, and then raises CancelledError although nobody has cancelled the call.
Passed on as it is, it would look like a cancellation of the task that runs it, and end that without a word.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable

from ..errors import IllegalStateError, KafkaTimeout


async def call(what: str, awaitable: Awaitable[None], within: float | None = None) -> None:
    """Await user code that ``what`` names in errors, for ``within`` seconds at most; then it is cancelled.

    Raises what it raises, KafkaTimeout when the time is over, and IllegalStateError for a CancelledError of its own.
    TypeError if there is nothing to await, as after a plain function.
    """
    if not inspect.isawaitable(awaitable):
        raise TypeError(f"{what} gave {awaitable!r:.80}, which cannot be awaited: define it by 'async def'")
    task = asyncio.current_task()
    assert task is not None
    before = task.cancelling()
    try:
        async with asyncio.timeout(within) as scope:
            await awaitable
    except TimeoutError as error:
        if not scope.expired():  # its own
            raise
        raise KafkaTimeout(f"{what} took longer than {within:g} s, and was cancelled") from error
    except asyncio.CancelledError as error:
        if task.cancelling() > before:
            raise
        raise IllegalStateError(
            f"{what} raised CancelledError, and nobody has cancelled it: something that it awaited was cancelled"
        ) from error
