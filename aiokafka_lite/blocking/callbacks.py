"""Code of the program that the asyncio client calls, and that may block: it runs in threads.

A thread cannot be ended. When a call is cancelled, because its session ends or other members wait no longer, its thread
is left alone, and what it calls in the session raises IllegalStateError.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Generic

import anyio
import anyio.to_thread

from ..arguments import must_be
from ..consumer import Claim as AsyncClaim
from ..consumer import ConsumerGroupHandler as AsyncHandler
from ..consumer import ConsumerGroupSession as AsyncSession
from ..consumer import RebalanceHandle as AsyncHandle
from ..consumer import RebalanceListener as AsyncListener
from ..errors import ConfigurationError
from ..types import K, Record, TopicPartition, V
from .session import Claim, ConsumerGroupSession, RebalanceHandle


class RebalanceListener:
    """Override the methods that you need. They run in a thread, not in the event loop, and may block.

    If one raises, the next read, or ``close()``, raises the exception once. The group waits until each call has
    returned. If a call takes longer than ``rebalance_timeout``, the consumer may lose its membership.
    """

    def on_assigned(self, handle: RebalanceHandle, partitions: Sequence[TopicPartition]) -> None:
        """Prepare for the new partitions of a rebalance, perhaps none. Reading begins when the call returns."""

    def on_revoked(self, handle: RebalanceHandle, partitions: Sequence[TopicPartition]) -> None:
        """Finish the work on these partitions, before they go to other members.

        With ``auto_commit``, their marked offsets are committed already.
        """

    def on_lost(self, handle: RebalanceHandle, partitions: Sequence[TopicPartition]) -> None:
        """Drop the work on these lost partitions, which other members may already read."""


class ConsumerGroupHandler(Generic[K, V]):
    """Override ``consume_claim``, and the other methods if you need them.

    Each method but ``in_progress`` and ``before_commit`` runs in a thread, and may block. An exception ends
    ``consume``, which raises it after the member has left the group. A ``setup`` or ``cleanup`` that takes longer than
    the rebalance timeout is left alone, because the other members wait for it; ``consume`` then raises KafkaTimeout.
    Each call begins with a copy of the context variables of ``consume``.
    """

    def setup(self, session: ConsumerGroupSession) -> None:
        """Prepare for a session that begins. Its claims begin to read when this call returns."""

    def consume_claim(self, session: ConsumerGroupSession, claim: Claim[K, V]) -> None:
        """Read one partition, in a thread of its own: ``for record in claim``, which ends with the session."""
        raise NotImplementedError(f"{type(self).__name__} must override consume_claim()")

    def in_progress(self) -> Iterable[tuple[Record[K, V], float]] | None:
        """Return the records that are processed now, with the ``time.monotonic()`` at which the work on each began.

        Override it in a handler that reads ahead, so that ``health()`` detects a record that never ends. With None, the
        time since a claim last asked for a record counts. It runs in the event loop, and must not block.
        """
        return None

    def before_commit(self, session: ConsumerGroupSession) -> None:
        """Add what is to be committed with the marks, such as ``session.annotate``.

        Called in the event loop before each commit of marked offsets, so it must not block. Its exceptions are logged.
        """

    def cleanup(self, session: ConsumerGroupSession) -> None:
        """Clean up when a session ends and all claims have returned.

        The marked offsets are committed next, unless the partitions were lost. At a close, this has 1.5 seconds.
        """


async def in_thread(function: Callable[..., object], *args: object) -> None:
    """Call a function in a thread. The number of threads is not limited: the group has one for each claim."""
    await anyio.to_thread.run_sync(function, *args, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(math.inf))


class ListenerInThreads(AsyncListener):
    """Calls a blocking listener in a thread."""

    def __init__(self, listener: RebalanceListener) -> None:
        self._listener = listener

    async def on_assigned(self, handle: AsyncHandle, partitions: Sequence[TopicPartition]) -> None:
        await self._call(self._listener.on_assigned, handle, partitions)

    async def on_revoked(self, handle: AsyncHandle, partitions: Sequence[TopicPartition]) -> None:
        await self._call(self._listener.on_revoked, handle, partitions)

    async def on_lost(self, handle: AsyncHandle, partitions: Sequence[TopicPartition]) -> None:
        await self._call(self._listener.on_lost, handle, partitions)

    async def _call(
        self, method: Callable[..., object], handle: AsyncHandle, partitions: Sequence[TopicPartition]
    ) -> None:
        await in_thread(method, RebalanceHandle(handle), partitions)


class HandlerInThreads(AsyncHandler[K, V]):
    """Calls a blocking handler in threads."""

    def __init__(self, handler: ConsumerGroupHandler[K, V]) -> None:
        self._handler = handler

    async def setup(self, session: AsyncSession) -> None:
        await in_thread(self._handler.setup, self._session(session))

    async def consume_claim(self, session: AsyncSession, claim: AsyncClaim[K, V]) -> None:
        await in_thread(self._handler.consume_claim, self._session(session), Claim(claim))

    def in_progress(self) -> Iterable[tuple[Record[K, V], float]] | None:
        return self._handler.in_progress()

    def before_commit(self, session: AsyncSession) -> None:
        self._handler.before_commit(self._session(session))

    async def cleanup(self, session: AsyncSession) -> None:
        await in_thread(self._handler.cleanup, self._session(session))

    def _session(self, session: AsyncSession) -> ConsumerGroupSession:
        return ConsumerGroupSession(session)


def listener_of(listener: object) -> AsyncListener | None:
    """Return the listener for the asyncio consumer, None for None; see ``checked_listener``."""
    return None if listener is None else checked_listener(listener)


def checked_listener(listener: object) -> AsyncListener:
    """Return the listener for the asyncio consumer. Raises ConfigurationError for an object of another class."""
    if not isinstance(listener, RebalanceListener):
        expected = "an instance of aiokafka_lite.blocking.RebalanceListener"
        raise ConfigurationError(must_be("listener", expected, listener))
    return ListenerInThreads(listener)


def check_handler(handler: object) -> None:
    """Raise TypeError unless this is a blocking handler of a group."""
    if not isinstance(handler, ConsumerGroupHandler):
        expected = "a ConsumerGroupHandler of aiokafka_lite.blocking, or its Workers(function)"
        raise TypeError(must_be("handler", expected, handler))
