"""Run tests in virtual time: a conftest takes ``virtual_loops`` for its folder, a single test has the decorator
``in_virtual_time``.

The clock moves a little at each reading, as a real one does. ``AIOKAFKA_LITE_TICKS=5`` takes other ticks, by that
seed.
"""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, TypeVar

import pytest

from aiokafka_lite.aio.virtual_time import VirtualTimeLoop, run
from tests.left_behind import nothing_left_behind

T = TypeVar("T")

TICKS = int(os.environ.get("AIOKAFKA_LITE_TICKS", "0"))
"""The seed of the ticks of the clock."""


def virtual_loops(config: pytest.Config, item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Return the hook ``pytest_asyncio_loop_factories`` of a folder whose tests and fixtures all run in virtual
    time."""
    return {"virtual": partial(VirtualTimeLoop, TICKS)}


def run_clean(main: Coroutine[Any, Any, T]) -> T:
    """Run in virtual time, with the check of ``nothing_left_behind``."""

    async def watched() -> T:
        async with nothing_left_behind():
            return await main

    return run(watched(), seed=TICKS, ticks=True)


def in_virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Return a test that runs by ``run_clean``. Its fixtures are not async."""

    def runs(*args: Any, **fixtures: Any) -> None:
        run_clean(test(*args, **fixtures))

    runs.__dict__.update(test.__dict__)  # the marks of decorators below this one
    runs.__name__ = test.__name__
    runs.__module__ = test.__module__
    runs.__doc__ = test.__doc__
    runs.__signature__ = inspect.signature(test)  # type: ignore[attr-defined]
    return runs
