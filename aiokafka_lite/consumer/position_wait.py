"""Waiting until the positions of partitions are known."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from ..aio.deadline import deadline
from ..aio.light_event import LightEvent
from ..cluster.client import Client
from ..errors import KafkaTimeout
from ..types import TopicPartition
from .fetch.position_keeper import why_unknown
from .partition import AssignedPartition
from .position import PauseReason, ResetStrategy
from .subscription import Subscription

logger = logging.getLogger(__name__)


class PositionWait:
    """The calls that wait for positions of one subscription. Owner: the ``ReadingCore``, which calls ``notify``."""

    def __init__(self, client: Client, subscription: Subscription) -> None:
        self._client = client
        self._subscription = subscription
        self._changed = LightEvent()

    def notify(self) -> None:
        """Check again: a position may have become known, or can no longer become known."""
        self._changed.set()

    async def until_known(self, partitions: Iterable[TopicPartition], limit: float) -> dict[TopicPartition, int]:
        """Wait for the positions of all these partitions, ``limit`` seconds in all, and return them.

        Raises KafkaTimeout, the failure of a partition, IllegalStateError for a partition that is not assigned.
        """
        positions: dict[TopicPartition, int] = {}
        waiting = list(partitions)
        with deadline(limit, lambda: self._describe(waiting[len(positions)], limit)):
            for partition in waiting:
                # The state is read again after each wait, because the partition may have been assigned again, with a
                # new state.
                while (offset := self._subscription[partition].offset) is None:
                    failure = self._subscription[partition].failure
                    if failure is not None:
                        raise failure
                    await self._until_changed()
                positions[partition] = offset
        return positions

    async def until_fixed(self, partitions: Sequence[TopicPartition], limit: float) -> None:
        """Wait until later records cannot change where these partitions begin. Raises KafkaTimeout.

        A late lookup of the end skips the records written before it, so ``start`` and a rebalance wait here before they
        announce the partitions. A partition that fails, leaves the assignment or is about to be revoked is not waited
        for. If after ``limit`` seconds only partitions without a leader have no position, a warning is logged instead.
        An offline partition must not stop the reading of other partitions, and no record can be written to it.
        """
        unfixed: list[AssignedPartition] = []
        try:
            with deadline(limit, lambda: self._describe(unfixed[0].partition, limit)):
                while unfixed := list(filter(_depends_on_lookup_time, self._subscription.select(partitions))):
                    await self._until_changed()
        except KafkaTimeout as error:
            if any(self._client.view.leader_of(assigned.partition) is not None for assigned in unfixed):
                raise
            _warn(error)

    async def until_announced(self, partitions: Sequence[TopicPartition], limit: float) -> None:
        """Wait like ``until_fixed``, but at most ``limit`` seconds, so that the group need not wait for this member."""
        try:
            await self.until_fixed(partitions, limit)
        except KafkaTimeout as error:
            _warn(error)

    async def _until_changed(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _describe(self, partition: TopicPartition, limit: float) -> str:
        why = why_unknown(self._subscription[partition], self._client.view)
        return f"the position of {partition} was not found within {limit:g} s: {why}"


def _warn(error: KafkaTimeout) -> None:
    logger.warning("%s; the consumer may skip records that are written before it knows the position", error)


def _depends_on_lookup_time(assigned: AssignedPartition) -> bool:
    """Return whether the position is unknown, and would be another one if it were looked up later."""
    position = assigned.position
    # A new partition is waited for as well, because the group commits where its reading begins.
    depends_on_time = assigned.is_new or position.reset in (ResetStrategy.LATEST, ResetStrategy.BY_DURATION)
    return (
        not position.is_known
        and assigned.failure is None
        and depends_on_time
        and assigned.pause_reason is not PauseReason.REVOKING
    )
