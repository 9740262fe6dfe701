"""The lifetime of clients, and the inner consumer of an ``AIOKafkaConsumer``, which may be replaced."""

from __future__ import annotations

import asyncio
import math
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

from ... import consumer as native
from ...aio import forks
from ...aio.component import NotCopyable
from ...aio.light_event import result_of
from ...errors import KafkaError
from .client import ClientOwner
from .errors import connecting, translating


class Managed(ClientOwner, NotCopyable, ABC):
    """The base of producers, consumers and admin clients: they run inside ``async with``."""

    @abstractmethod
    async def start(self) -> None:
        """Connect to the cluster."""

    @abstractmethod
    async def stop(self) -> None:
        """Close the client."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()


class RunningConsumer:
    """Starts and closes the consumers that ``make`` makes. Owner: the ``AIOKafkaConsumer``.

    ``has_topics`` returns whether there are topics for the subscription. Without them there is no assignment to wait
    for.
    """

    def __init__(
        self, make: Callable[[], native.Consumer], has_topics: Callable[[native.Consumer], Awaitable[bool]]
    ) -> None:
        self._make = make
        self._has_topics = has_topics
        self.now: native.Consumer[bytes, bytes] = make()
        """The consumer of the present subscription or assignment."""
        self.is_running: bool = False
        self._retired: list[native.Consumer] = []
        self._starting = asyncio.Lock()
        self._closing: asyncio.Task[None] | None = None
        """The task that closes the oldest replaced consumer. A cancelled caller does not end it."""
        self._replacing: asyncio.Task[None] | None = None
        self._process: int | None = None  # the fork generation of the first start
        self._loop: asyncio.AbstractEventLoop | None = None  # stored, since ``subscribe()`` may be called outside of it

    def check_process(self) -> None:
        """Raise aiokafka's IllegalStateError in a forked process, if its parent started the consumer."""
        if self._process is not None:
            with translating():
                forks.check_process(self.now, self._process)

    def replace(self) -> None:
        """Use another consumer, made now. The next ``start`` starts it and closes the present consumer.

        Raises ValueError for wrong settings.
        """
        self.check_process()
        replacement = self._make()
        self._retired.append(self.now)
        self.is_running = False
        self.now = replacement

    def start_soon(self) -> None:
        """Start in the background, so that a member whose subscription has ended leaves its group."""
        if self.is_running or self._loop is None:
            return
        if self._replacing is not None:
            self._replacing.cancel()
        self._replacing = self._loop.create_task(forks.OwnProcess(self._replaced()))

    async def _replaced(self) -> None:
        with suppress(Exception):  # the next start() tries again, and raises the error
            await self.start()

    async def start(self) -> native.Consumer:
        """Start the consumer if necessary, and return it. A member of a group then has its first assignment.

        The exception is a member whose pattern matches no topic.
        """
        self.check_process()
        if not self.is_running:
            self._loop = asyncio.get_running_loop()
            async with self._starting:
                await self._close_retired()
                if not self.is_running:
                    await self._start()
        return self.now

    async def _start(self) -> None:
        consumer = self.now
        self._process = forks.generation
        try:
            with connecting():
                await consumer.start()
            with translating():
                if consumer.membership is not None and await self._has_topics(consumer):
                    await consumer.wait_assigned(timeout=math.inf)
        except BaseException:
            # A consumer can be started only once: another start() needs a new consumer.
            if consumer is self.now:
                self.replace()
            await self._close_retired()
            raise
        self.is_running = consumer is self.now

    async def retire(self) -> None:
        """Close the running consumer after a ``start()`` that was cancelled; another ``start`` is possible.

        ``async with`` calls no ``stop()`` then, and a member would keep its partitions.
        """
        if self.is_running:
            self.replace()
        await self._close_retired()

    async def close(self) -> None:
        """Close all consumers. Raises aiokafka's exception of the last close."""
        self.check_process()
        if self._replacing is not None:
            self._replacing.cancel()
            await asyncio.wait([self._replacing])
        try:
            with translating():
                await self.now.close()
        finally:
            await self._close_retired()

    async def _close_retired(self) -> None:
        while self._retired:
            if self._closing is None or self._closing.done():
                self._closing = asyncio.create_task(forks.OwnProcess(self._close_oldest()))
            # A cancelled start() must not leave a consumer half closed, so the close is a task of its own.
            await result_of(self._closing)

    async def _close_oldest(self) -> None:
        try:
            with suppress(KafkaError):  # the call that used this consumer has raised the error
                await self._retired[0].close()
        finally:
            del self._retired[0]
