"""One session of a ``ConsumerGroup`` while it runs: its claims, their tasks, and their refused transactions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import anyio

from ...aio.children import ChildScope
from ...aio.gradual import GradualEvent
from ...aio.light_event import LightEvent
from ...aio.retry import Backoff
from ...errors import KafkaError
from ...types import TopicPartition
from .claim import ClaimReader
from .session import ConsumerGroupSession, SessionEnded

logger = logging.getLogger(__name__)


class SessionRun:
    """One session: its claims, their tasks, and the progress of its end. Owner: the ``GroupCore``."""

    def __init__(self, session: ConsumerGroupSession, cancelled: GradualEvent, readers: Sequence[ClaimReader]) -> None:
        self.session = session
        self.readers: dict[TopicPartition, ClaimReader] = {reader.assigned.partition: reader for reader in readers}
        self.tasks: dict[TopicPartition, ChildScope] = {}
        self.lookups: set[anyio.CancelScope] = set()
        """Lookups of committed offsets that end with the session."""
        self.over: LightEvent = LightEvent()
        """Set when no claim runs any more."""
        self.needs_cleanup = True
        self._cancelled = cancelled
        self._has_begun_all = False

    def cancel(self) -> None:
        """End the iterations of the claims."""
        if not self._cancelled.is_set():
            self._cancelled.set()
            for reader in self.readers.values():
                reader.end()
            for scope in self.lookups:
                scope.cancel()

    def all_begun(self) -> None:
        """Record that no further claim begins. The session is over when those that run have ended."""
        assert not self._has_begun_all, "a session begins its claims once"
        self._has_begun_all = True
        if not self.tasks:
            self.over.set()

    def claim_ended(self, partition: TopicPartition) -> None:
        """Record that the claim of this partition has returned."""
        self.tasks.pop(partition, None)
        if not self.tasks and self._has_begun_all:
            self.over.set()

    async def wait_for_claims(self, timeout: float) -> None:
        """Wait ``timeout`` seconds for the claims, then cancel the claims that still run."""
        if self.tasks:
            with anyio.move_on_after(timeout):
                await self.over.wait()
        if self.tasks:
            late = ", ".join(map(str, self.tasks))
            logger.warning("%r: cancelled the claims of %s, which did not return in time", self.session, late)
            for scope in list(self.tasks.values()):
                scope.cancel()
            await self.over.wait()


class RefusedTransactions:
    """The transactions of one claim that were refused in a row, because the group had rebalanced.

    ``limit``: seconds within which a rebalance gives the member another generation. It is the session timeout, after
    which the coordinator evicts a member that delays the rebalance.
    """

    def __init__(self, session: ConsumerGroupSession, limit: float, pauses: Backoff) -> None:
        self._session = session
        self._limit = limit
        self._pauses = pauses
        self._position: int | None = None
        self._identity: tuple[str, int] | None = None
        self._first: float | None = None  # the time of the first refusal at this position under this identity
        self.count = 0

    def begin(self, position: int | None) -> None:
        """Begin an attempt. If the position has changed since the last attempt, a transaction was committed."""
        identity = self._session.member_id, self._session.generation_id
        if position != self._position:
            self.count = 0
            self._pauses.reset()
        if position != self._position or identity != self._identity:
            self._first = None
        self._position, self._identity = position, identity

    def add(self, error: KafkaError) -> bool:
        """Count a refusal. Returns whether another attempt can help: the membership has changed, or may change."""
        self.count += 1
        if isinstance(error, SessionEnded) or self._identity != (self._session.member_id, self._session.generation_id):
            return True
        now = asyncio.get_running_loop().time()
        if self._first is None:
            self._first = now
        return now - self._first <= self._limit
