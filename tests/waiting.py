"""Wait for a condition, in real time and in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

LOOK_AGAIN = 0.01
"""Seconds between two looks. A condition of another component cannot be awaited, and in virtual time this is free."""


async def until(condition: Callable[[], object], what: str = "", *, within: float = 60.0) -> None:
    """Return once ``condition()`` is true; AssertionError with ``what`` after ``within`` seconds.

    The bound is generous: it fails a test that hangs, and never one that runs on a busy machine.
    """
    try:
        async with asyncio.timeout(within):
            while not condition():
                await asyncio.sleep(LOOK_AGAIN)
    except TimeoutError:
        raise AssertionError(f"not within {within:g} s: {what or condition}") from None
