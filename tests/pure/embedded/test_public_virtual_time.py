"""``aiokafka_lite.testing.virtual_time``, as users' tests use it."""

from __future__ import annotations

import asyncio
import time

from aiokafka_lite.testing.virtual_time import VirtualTimeLoop, run


async def an_hour() -> float:
    await asyncio.sleep(3600)
    return asyncio.get_running_loop().time()


def test_an_hour_takes_no_time() -> None:
    before = time.monotonic()
    assert run(an_hour(), seed=1) == 3600.0
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        assert runner.run(an_hour()) == 3600.0
    assert time.monotonic() - before < 60
