"""Waits for a future that several callers share."""

from __future__ import annotations

import asyncio
from typing import TypeVar

T = TypeVar("T")


async def result_of(future: asyncio.Future[T]) -> T:
    """Wait for the result of a future that others own; a cancelled caller leaves the future as it is.

    ``asyncio.shield`` does the same, but since Python 3.15 it reports the later error of a future whose waiter was
    cancelled to the event loop's exception handler, although another caller handles that error.
    """
    if not future.done():
        await asyncio.wait((future,))
    return future.result()
