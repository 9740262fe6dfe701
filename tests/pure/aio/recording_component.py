"""A component that records its calls, for the tests of ``aio/service.py``."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from aiokafka_lite.aio.component import Component
from aiokafka_lite.aio.service import Service


class Boom(Exception):
    pass


class Probe(Component):
    """Records its calls. Hooks are optional."""

    def __init__(
        self,
        on_start: Callable[[Probe], Awaitable[object]] | None = None,
        on_close: Callable[[Probe], Awaitable[object]] | None = None,
    ) -> None:
        super().__init__()
        self.notes: list[str] = []
        self.hooks = on_start, on_close

    async def _on_start(self) -> None:
        self.notes.append("start")
        if self.hooks[0] is not None:
            await self.hooks[0](self)

    async def _on_close(self) -> None:
        self.notes.append("close")
        if self.hooks[1] is not None:
            await self.hooks[1](self)

    @property
    def service(self) -> Service:
        return self._service

    async def forever(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            self.notes.append("child ended")


async def boom(delay: float = 0.0) -> None:
    await asyncio.sleep(delay)
    raise Boom("dead")


async def turns(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def other_tasks() -> set[asyncio.Task[object]]:
    return asyncio.all_tasks() - {asyncio.current_task()}  # type: ignore[arg-type]
