"""Starts a client, and prints on a terminal after a second what the command waits for."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

from .run import say, with_options

if TYPE_CHECKING:
    from ... import Admin, Consumer, Producer, ShareConsumer

C = TypeVar("C", bound="Admin | Consumer | Producer | ShareConsumer")

NOTICE_AFTER = 1.0
"""Seconds after which a notice tells what the command waits for."""


@asynccontextmanager
async def started(client: C) -> AsyncIterator[C]:
    """Start a client, and close it at the end. On a terminal, print after ``NOTICE_AFTER`` what it waits for."""
    async with AsyncExitStack() as stack:
        notice = asyncio.get_running_loop().call_later(NOTICE_AFTER, _report, client)
        try:
            await stack.enter_async_context(client)
        finally:
            notice.cancel()
        yield client


def _report(client: Admin | Consumer | Producer | ShareConsumer) -> None:
    if not sys.stderr.isatty():
        return  # a script needs only the error at the end
    outages = client.diagnose().outages
    kind, _, reason = outages[0].error.partition(": ") if outages else ("", "", "no broker has answered yet")
    say(with_options(f"still connecting: {reason or kind}"))
