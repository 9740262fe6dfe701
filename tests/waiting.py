"""Wait for a condition, in real time and in virtual time."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable

import pytest

from aiokafka_lite.errors import KafkaError

DEADLINE = 120.0
"""Seconds after which a test counts as hanging. Even on a busy machine no wait takes so long."""

TRANSACTION_TIMEOUT = 600.0
"""Seconds. Even on a busy machine no test has a transaction open for so long. Brokers allow 15 minutes by default."""

LONGER_AND_LONGER = (0.5, 5.0, 50.0)
"""Timeouts in seconds, to try in turn, for a call whose error names a cause that it finds before its timeout. Usually
the first one is enough; on a busy machine it may not be."""

LOOK_AGAIN = 0.01
"""Seconds between two looks. A condition of another component cannot be awaited, and in virtual time this is free."""


async def until(condition: Callable[[], object], what: str = "", *, within: float = DEADLINE) -> None:
    """Return once ``condition()`` is true; AssertionError with ``what`` after ``within`` seconds."""
    try:
        async with asyncio.timeout(within):
            while not condition():
                await asyncio.sleep(LOOK_AGAIN)
    except TimeoutError:
        raise AssertionError(f"not within {within:g} s: {what or condition}") from None


async def error_of(call: Callable[[float], Awaitable[object]], *causes: str) -> KafkaError:
    """The error of a call that is given a timeout, and time to find these causes (patterns)."""
    for timeout in LONGER_AND_LONGER:
        with pytest.raises(KafkaError) as caught:
            await call(timeout)
        if all(re.search(cause, str(caught.value)) for cause in causes):
            break
    return caught.value
