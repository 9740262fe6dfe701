"""Cancel a call at every turn of the event loop that it takes."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

MOST_TURNS = 300


async def nothing() -> None:
    pass


async def at_every_turn(
    call: Callable[[], Awaitable[Any]], before: Callable[[], Awaitable[object]] = nothing
) -> list[Any]:
    """Cancel the call at each turn. Returns the results of the calls that finished."""
    results: list[Any] = []
    for turns in range(MOST_TURNS):
        await before()
        task = asyncio.ensure_future(call())
        for _ in range(turns):
            await asyncio.sleep(0)
        is_over = task.done()
        task.cancel()
        with suppress(asyncio.CancelledError):
            results.append(await task)
        if is_over:
            assert turns > 1  # it was interrupted at some await
            return results
    raise AssertionError(f"it did not come to an end in {MOST_TURNS} turns")


def public_coroutines(*classes: type) -> set[str]:
    """The public coroutines that these classes define, as ``Class.name``."""
    return {
        f"{kind.__name__}.{name}"
        for kind in classes
        for name, member in vars(kind).items()
        if inspect.iscoroutinefunction(member) and (not name.startswith("_") or name.startswith("__a"))
    }
