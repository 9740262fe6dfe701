"""The check that a test left no task and no error behind."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any


@asynccontextmanager
async def nothing_left_behind(collect: Callable[[], object] = gc.collect) -> AsyncIterator[None]:
    """Fail if the body leaves a task behind, or if an error reaches the event loop's exception handler.

    If the body raises, its error gets a note about the findings. ``collect`` collects the body's garbage.
    """
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: complaints.append(context))
    before = asyncio.all_tasks()
    try:
        yield
    except BaseException as error:
        if complaint := await _found(before, complaints, collect):
            error.add_note(complaint)
        raise
    complaint = await _found(before, complaints, collect)
    assert not complaint, complaint


async def _found(
    before: set[asyncio.Task[Any]], complaints: list[dict[str, Any]], collect: Callable[[], object]
) -> str:
    """Cancel the remaining tasks. Returns a text with these tasks and the errors, or an empty text."""
    # A fixture may begin and end in different tasks.
    tasks = asyncio.all_tasks() - before - {asyncio.current_task()}
    names = sorted(repr(task) for task in tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    tasks.clear()
    collect()  # a future reports an exception that was never retrieved when it is collected
    await asyncio.sleep(0)
    lines = []
    if names:
        lines += ["the test left tasks behind:", *names]
    if complaints:
        lines += ["errors reached the event loop's exception handler:", *map(str, complaints)]
    return "\n".join(lines)
