"""Gives partitions to the reader and takes them back, one handover after the other.

Rules of this file:

Rule 1: Handovers are performed in the order in which the member decides them, each completely before the next.
Rule 2: ``stop`` is the exception: it is called at once, so that no record of a leaving partition is returned while an
  earlier handover still runs.
Rule 3: A partition that has to leave before its assignment was performed is never shown to the user.
Rule 4: The time to wait for the user starts at the last heartbeat before the rebalance, because the other members may
  have waited since then. It does not start when the previous handover ends, or when the member detects the rebalance.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

import anyio

from ..cluster.client import Client
from ..settings.group import GroupConfig
from ..types import OffsetAndMetadata, TopicPartition
from .committer import CurrentMember
from .events import Assign, Fail, Lose, Released, Revoke
from .offsets import Offsets
from .partition_events import PartitionEvents
from .reading import Reading

logger = logging.getLogger(__name__)

COMMIT_TIMEOUT_AT_CLOSE = 2.0
"""Seconds for the last commit of a member that closes. Together with LEAVE_TIMEOUT, it is below the time limit of
closing."""


class Handovers:
    """The handover task of one member. Owner: the ``MemberRunner``.

    ``on_released`` is called when the reader has released partitions, and the client's ``on_event`` when partitions
    were assigned, revoked or lost.
    """

    def __init__(
        self,
        client: Client,
        config: GroupConfig,
        current: CurrentMember,
        reading: Reading,
        offsets: Offsets,
        *,
        on_released: Callable[[Released], None],
    ) -> None:
        self._config = config
        self._api_timeout = client.config.api_timeout
        self._events = None if client.on_event is None else PartitionEvents(config.group_id, client.on_event)
        self._current = current
        self._reading = reading
        self._offsets = offsets
        self._on_released = on_released
        self._queue: asyncio.Queue[Assign | Revoke | Lose | Fail] = asyncio.Queue()
        self._leaving: set[TopicPartition] = set()  # the partitions of unfinished revocations and losses (rule 3)
        self._deadlines: dict[int, float] = {}  # the loop's time until which a revocation waits for the user (rule 4)
        # The two waits that a newer decision cuts short: for the user, and for the committed offsets. It does not cut
        # short a third wait: when the reader of a ``ConsumerGroup`` looks up the offsets of kept partitions again. That
        # wait ends within ``time_to_revoke``.
        self._waiting: anyio.CancelScope | None = None
        self._locating: anyio.CancelScope | None = None
        self._closing = False
        self.step: str = ""
        """What the present assignment waits for; empty without one."""

    def put(self, action: Assign | Revoke | Lose | Fail, *, calm_at: float) -> None:
        """Perform this action after the earlier ones.

        ``calm_at`` is the loop's time at which the group was last known not to rebalance (rule 4).
        """
        if isinstance(action, Revoke | Lose):
            self._reading.stop(action.partitions)
            self._leaving.update(action.partitions)
            if self._locating is not None:
                self._locating.cancel()  # these may include partitions whose offsets are being looked up
        if isinstance(action, Revoke):
            self._deadlines[action.number] = calm_at + self._config.time_to_revoke
        # Other members may own the partitions already, so waiting for the user would protect nothing.
        if isinstance(action, Lose):
            self._offsets.forget(action.partitions)  # at once: a late commit must not overwrite one of the next owner
            self._stop_waiting()
        self._queue.put_nowait(action)

    def close(self) -> None:
        """Stop waiting for the user, now and in later handovers."""
        self._closing = True
        self._stop_waiting()

    async def run(self) -> None:
        """Perform handovers until cancelled. Raises the error of ``Fail``, and exceptions of the user's listener."""
        while True:
            action = await self._queue.get()
            match action:
                case Assign():
                    await self._assign(action)
                case Revoke():
                    await self._revoke(action)
                case Lose():
                    if self._events is not None:
                        self._events.lost(action.partitions)  # before the listener, as others may own them already
                    await self._reading.lost(action.partitions)
                    self._released(action)
                case Fail():
                    raise action.error

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()

    async def _assign(self, action: Assign) -> None:
        committed: dict[TopicPartition, OffsetAndMetadata | None] = {}
        partitions: set[TopicPartition] | None = None
        # A newer decision cancels the lookup; then only the partitions that stay are looked up again.
        while partitions is None or partitions != set(committed):
            partitions = set(action.added) - self._leaving  # rule 3
            assert self._locating is None, "handovers are performed one after the other (rule 1)"
            with anyio.CancelScope() as self._locating:
                committed = await self._locate(sorted(partitions))
            self._locating = None
        # This comes before the listener runs, because the listener may ask for the committed offsets, or commit.
        for partition, offset in committed.items():
            self._offsets.begin(partition, offset)
        # Partitions in ``_leaving`` are excluded, because they may have left while the offsets were looked up (rule 3).
        self.step = "its program has not returned from on_assigned() of its listener, or from setup() of its handler"
        await self._reading.assigned(committed, action.owned - self._leaving)
        self.step = ""
        if self._events is not None:
            self._events.assigned(committed)

    async def _locate(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        self.step = "the committed offsets have not been read yet"
        try:
            return await self._offsets.lookups.locate(partitions)
        finally:
            self.step = ""

    async def _revoke(self, action: Revoke) -> None:
        closing = action.closing or self._closing
        if not closing:
            await self._wait_for_user(action)
            # ``close()`` may have been called during the wait.
            closing = self._closing
        await self._reading.finish(action.partitions, closing=closing)
        # The commit comes after ``finish``, which adds the last marks, and before the release, because the next owner
        # reads from the committed offset.
        if self._config.auto_commit:
            await self._offsets.commit_marked(action.partitions, timeout=self._commit_timeout(action))
        # The listener may still commit, so the offsets are dropped only after it.
        await self._reading.revoked(action.partitions)
        self._offsets.forget(action.partitions)
        del self._deadlines[action.number]
        if self._events is not None:
            self._events.revoked(action.partitions)
        self._released(action)

    async def _wait_for_user(self, action: Revoke) -> None:
        """Wait until the user has processed the returned records, so that none is repeated. Rule 4 limits the wait."""
        assert self._waiting is None, "handovers are performed one after the other (rule 1)"
        with anyio.CancelScope(deadline=self._deadlines[action.number]) as self._waiting:
            await self._reading.wait_until_done(action.partitions)
        # No other member waits for a member that was fenced or leaves, so there is no warning.
        if self._waiting.cancelled_caught and not self._closing and self._current.is_revoking:
            logger.warning(
                "%r is releasing partitions whose records the user still processes: the group waited for %.1f s",
                self._current.member,
                self._config.time_to_revoke,
            )
        self._waiting = None

    def _commit_timeout(self, action: Revoke) -> float:
        if action.closing or self._closing:
            return COMMIT_TIMEOUT_AT_CLOSE
        # Half of the rebalance timeout, because the member has to join again within the timeout.
        return min(self._api_timeout, self._config.time_to_rebalance / 2)

    def _released(self, action: Revoke | Lose) -> None:
        # Handovers run in order, so a later assignment in the queue may contain the partitions again.
        self._leaving.difference_update(action.partitions)
        self._on_released(Released(action.number))
