"""The calls of a ``Consumer`` about positions: seeks, pauses, lag, and offsets by time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from ..aio.deadline import deadline
from ..aio.service import ServiceState
from ..arguments import check_timeout
from ..arguments import offset as checked_offset
from ..arguments import partition as checked_partition
from ..arguments import partitions as checked_partitions
from ..errors import IllegalStateError
from ..types import OffsetAndMetadata, TopicPartition
from .consumer_core import ConsumerCore
from .offsets import LATEST, OffsetAndTimestamp, list_offsets
from .partition import AssignedPartition
from .position import ResetStrategy

Partitions = Iterable[TopicPartition] | None
"""Some of the assigned partitions; None means all of them."""


class PositionCalls:
    """Owner: the ``Consumer``, which documents each call."""

    def __init__(self, core: ConsumerCore) -> None:
        self._core = core
        self._subscription = core.subscription

    def limit(self, timeout: float | None) -> float:
        """Return the seconds that a call may take: ``timeout``, or ``api_timeout`` if it is None."""
        check_timeout(timeout)
        return self._core.options.client.api_timeout if timeout is None else timeout

    def select(self, partitions: Partitions) -> list[AssignedPartition]:
        """Return the assigned partitions. Raises IllegalStateError for a partition that is not assigned."""
        if partitions is None:
            return list(self._subscription)
        return [self._subscription[checked_partition] for checked_partition in checked_partitions(partitions)]

    def _select_some(self, partitions: Partitions) -> list[AssignedPartition]:
        """Select like ``select``. Raises IllegalStateError before the first assignment, when it has no effect."""
        if partitions is None and not self._subscription.partitions:
            group = self._core.group
            if group is None or not group.has_assignment:
                raise IllegalStateError("no partition is assigned yet; await wait_assigned() first")
        return self.select(partitions)

    async def wait_assigned(self, timeout: float | None) -> tuple[TopicPartition, ...]:
        core = self._core
        core.service.check()
        core.check_something_to_read()
        limit = self.limit(timeout)
        group, coordinator = core.group, core.coordinator
        if group is not None and coordinator is not None:

            def describe() -> str:
                waits = core.client.standstill.describe()
                text = f"no assignment within {limit:g} s; the membership is {coordinator.member!r}"
                return f"{text}: {waits}" if waits else text

            with deadline(limit, describe):
                await core.service.while_running(group.wait_assigned())
            core.service.check()  # while the consumer closes, it has no assignment any more
        return tuple(self._subscription.partitions)

    # Moving.

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self._core.check_usable()
        checked_offset(offset)
        assigned = self._subscription[checked_partition(partition)]
        self._subscription.change([assigned], lambda each: each.seek(offset), moves=True)

    async def seek_by(self, reset: ResetStrategy, partitions: Partitions, timeout: float | None) -> None:
        self._core.check_usable()
        limit = self.limit(timeout)
        chosen = self._select_some(partitions)
        self._subscription.change(chosen, lambda each: each.reset_by(reset), moves=True)
        if self._core.service.state is not ServiceState.NEW:
            await self._wait(chosen, limit)

    async def seek_to_committed(self, partitions: Partitions, timeout: float | None) -> None:
        self._core.service.check()
        group = self._core.require_group()
        limit = self.limit(timeout)
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + limit
        chosen = self._select_some(partitions)
        versions = {each.partition: each.position.version for each in chosen}
        lookup = group.offsets.fetch([each.partition for each in chosen], timeout=limit)
        committed = await self._core.service.while_running(lookup)

        def move(assigned: AssignedPartition) -> None:
            found: OffsetAndMetadata | None = committed[assigned.partition]
            if found is None:
                assigned.reset_by(self._subscription.reset_of(assigned.partition))
            else:
                assigned.seek(found.offset, found.leader_epoch)

        # A position that was moved during the lookup, for example by seek(), is newer than this call.
        unmoved = [each for each in chosen if each.position.version == versions[each.partition]]
        self._subscription.change(unmoved, move, moves=True)
        await self._wait(chosen, round(ends_at - loop.time(), 3))

    def set_paused(self, partitions: Partitions, paused: bool) -> None:
        self._core.check_usable()

        def apply(assigned: AssignedPartition) -> None:
            assigned.position.paused = paused
            # A pause may be long, and decoded records take several times the memory of a packed batch.
            if paused:
                assigned.buffer.pack()

        self._subscription.change(self._select_some(partitions) if paused else self.select(partitions), apply)

    # Asking.

    async def position(self, partition: TopicPartition, timeout: float | None) -> int:
        self._core.check_usable()
        assigned = self._subscription[checked_partition(partition)]
        return (await self._wait([assigned], self.limit(timeout)))[assigned.partition]

    async def _wait(self, chosen: Iterable[AssignedPartition], limit: float) -> dict[TopicPartition, int]:
        partitions = [each.partition for each in chosen]
        return await self._core.service.while_running(self._core.positions.until_known(partitions, limit))

    async def lag(self, partitions: Partitions, timeout: float | None) -> dict[TopicPartition, int]:
        self._core.service.check()
        chosen = self.select(partitions)
        limit = self.limit(timeout)
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + limit
        positions = await self._wait(chosen, limit)
        isolation = self._core.options.consumer.isolation
        ends = {each.partition: each.known_end(isolation) for each in chosen}
        unknown = [partition for partition, end in ends.items() if end is None]
        if unknown:
            found = await self.edges(unknown, LATEST, round(ends_at - loop.time(), 3))
            ends.update(found)
        return {each: max(0, (0 if end is None else end) - positions[each]) for each, end in ends.items()}

    def high_watermark(self, partition: TopicPartition) -> int | None:
        self._core.check_usable()
        return self._subscription[checked_partition(partition)].high_watermark

    async def edges(
        self, partitions: Iterable[TopicPartition], which: int, timeout: float | None
    ) -> dict[TopicPartition, int]:
        """Return the first or last offset of each partition: ``which`` is EARLIEST or LATEST."""
        found = await self.look_up(dict.fromkeys(checked_partitions(partitions), which), timeout)
        return {partition: 0 if at is None else at.offset for partition, at in found.items()}

    async def look_up(
        self, wanted: Mapping[TopicPartition, int], timeout: float | None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Offsets by time in milliseconds, or EARLIEST, LATEST."""
        core = self._core
        core.service.check()
        lookup = list_offsets(core.client, wanted, core.options.consumer.isolation, timeout=self.limit(timeout))
        return await core.service.while_running(lookup)
