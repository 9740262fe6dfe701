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
"""Seconds. Even on a busy machine no test keeps a transaction open for so long. Brokers allow 15 minutes by default."""

LONGER_AND_LONGER = (0.5, 5.0, 50.0)
"""Timeouts in seconds for a call that has to find the cause of its error before its timeout. They are tried in turn,
because the first one may be too short on a busy machine."""

LOOK_AGAIN = 0.01
"""Seconds between two checks. The tests cannot await a condition of another component. In virtual time a check is
free."""


async def until(condition: Callable[[], object], what: str = "", *, within: float = DEADLINE) -> None:
    """Return when ``condition()`` is true. Raises AssertionError with ``what`` after ``within`` seconds."""
    try:
        async with asyncio.timeout(within):
            while not condition():
                await asyncio.sleep(LOOK_AGAIN)
    except TimeoutError:
        raise AssertionError(f"not within {within:g} s: {what or condition}") from None


async def error_of(call: Callable[[float], Awaitable[object]], *causes: str) -> KafkaError:
    """Return the error of a call. The timeout of the call leaves it the time to find these causes, which are
    patterns."""
    for timeout in LONGER_AND_LONGER:
        with pytest.raises(KafkaError) as caught:
            await call(timeout)
        if all(re.search(cause, str(caught.value)) for cause in causes):
            break
    return caught.value
