"""Cancel a call at every turn of the event loop that it takes."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Any

MOST_TURNS = 300
TURNS_WITHOUT_PAUSE = 50
"""In virtual time, the clock does not move while a task takes its turns, so a call that pauses would not continue."""


async def nothing() -> None:
    pass


def turns_to_try() -> Iterator[int]:
    """Yield the numbers of turns after which a call is cancelled. The caller stops when the call has ended.

    Raises AssertionError after ``MOST_TURNS``: otherwise the test of a call that never ends would pass.
    """
    yield from range(MOST_TURNS)
    raise AssertionError(f"it did not come to an end in {MOST_TURNS} turns")


async def cancel_after(turns: int, call: Awaitable[object]) -> bool:
    """Cancel a call after some turns of the event loop. Returns whether it ended in another way than by this
    cancellation.
    """
    task = asyncio.ensure_future(call)
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    return not task.cancelled()


async def at_every_turn(
    call: Callable[[], Awaitable[Any]], before: Callable[[], Awaitable[object]] = nothing, *, pause: float = 0.0
) -> list[Any]:
    """Cancel the call at each turn. Returns the results of the calls that finished.

    ``pause`` is a number of seconds that the call waits between two attempts of a request.
    """
    results: list[Any] = []
    for turns in turns_to_try():
        await before()
        task = asyncio.ensure_future(call())
        for turn in range(turns):
            await asyncio.sleep(0 if (turn + 1) % TURNS_WITHOUT_PAUSE else pause)
        is_over = task.done()
        task.cancel()
        with suppress(asyncio.CancelledError):
            results.append(await task)
        if is_over:
            assert turns > 1  # it was interrupted at some await
            break
    return results


async def until_no_other_tasks(before: set[asyncio.Task[Any]]) -> None:
    """Wait until clients have no other tasks. Brokers may notice the end of a connection later."""
    try:
        async with asyncio.timeout(60):
            while tasks := [task for task in asyncio.all_tasks() - before if not task.get_name().startswith("node ")]:
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"tasks are left behind: {tasks}") from None


class Covered(set[str]):
    """The names of the coroutines that tests cancel. As a decorator it adds names: ``@covers("Admin.start")``."""

    def __call__(self, *names: str) -> Callable[[Any], Any]:
        self.update(names)
        return lambda test: test


def public_coroutines(*classes: type) -> set[str]:
    """Return the public coroutines that these classes define, as ``Class.name``."""
    return {
        f"{kind.__name__}.{name}"
        for kind in classes
        for name, member in vars(kind).items()
        if inspect.iscoroutinefunction(member) and (not name.startswith("_") or name.startswith("__a"))
    }
