"""Tests in virtual time: of a folder, by the hook that its conftest takes from here, or single ones, by a decorator."""

from __future__ import annotations

import asyncio
import gc
import inspect
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

import pytest

from aiokafka_lite.aio.virtual_time import VirtualTimeLoop, run

T = TypeVar("T")


def virtual_loops(config: pytest.Config, item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The hook ``pytest_asyncio_loop_factories`` of a folder whose tests and fixtures all run in virtual time."""
    return {"virtual": VirtualTimeLoop}


def run_clean(main: Coroutine[Any, Any, T]) -> T:
    """Run in virtual time. Fails if a task remains, or if the loop's exception handler was called."""

    async def watched() -> T:
        loop = asyncio.get_running_loop()
        complaints: list[dict[str, Any]] = []
        loop.set_exception_handler(lambda _, context: complaints.append(context))
        result = await main
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"tasks are left: {left}"
        gc.collect()
        assert not complaints
        return result

    return run(watched())


def in_virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test that runs by ``run_clean``. Its fixtures are not async."""

    def runs(*args: Any, **fixtures: Any) -> None:
        run_clean(test(*args, **fixtures))

    runs.__name__ = test.__name__
    runs.__doc__ = test.__doc__
    runs.__signature__ = inspect.signature(test)  # type: ignore[attr-defined]
    return runs
