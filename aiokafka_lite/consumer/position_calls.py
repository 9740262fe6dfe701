"""The calls of ``Consumer`` about the positions of its partitions: seeks, pauses, lag, and offsets by time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from ..aio.deadline import deadline
from ..aio.service import ServiceState
from ..arguments import offset as checked_offset
from ..arguments import partition as checked_partition
from ..arguments import partitions as checked_partitions
from ..arguments import timestamps as checked_timestamps
from ..errors import IllegalStateError
from ..types import OffsetAndMetadata, TopicPartition
from .consumer_core import ConsumerCore
from .offsets import EARLIEST, LATEST, OffsetAndTimestamp, list_offsets
from .partition import AssignedPartition
from .position import ResetStrategy

Partitions = Iterable[TopicPartition] | None
"""Some of the assigned partitions; None means all of them."""


class PositionCalls:
    """The half of ``Consumer`` that does not read and knows its group only by the committed offsets."""

    def __init__(self, core: ConsumerCore) -> None:
        self._core = core

    async def wait_assigned(self, *, timeout: float | None = None) -> tuple[TopicPartition, ...]:
        """Wait until the group has made an assignment for this member, and return its partitions, perhaps none.

        Returns at once while there is an assignment. Raises KafkaTimeout after ``timeout`` seconds (``api_timeout`` by
        default), IllegalStateError without topics and assigned partitions, and errors of the membership.
        """
        core = self._core
        core.service.check()
        core.check_something_to_read()
        limit = core.client.limit(timeout)
        membership = core.membership
        if membership is not None:

            def describe() -> str:
                waits = core.client.standstill.describe()
                text = f"no assignment within {limit:g} s; the membership is {membership.member_runner.member!r}"
                return f"{text}: {waits}" if waits else text

            with deadline(limit, describe):
                await core.service.while_running(membership.wait_assigned())
            core.service.check()  # while the consumer closes, it has no assignment any more
        return tuple(core.subscription.partitions)

    # Pauses.

    def pause(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Stop returning records of these partitions until ``resume``, or until they are revoked.

        A rebalance by an eager strategy, such as range, revokes all partitions, also those that the member gets back.
        None pauses all assigned partitions. Raises IllegalStateError if one of ``partitions`` is not assigned, and for
        None before the first assignment.
        """
        self._core.check_usable()
        self._core.subscription.change(self._select_some(partitions), lambda assigned: assigned.pause(True))

    def resume(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Continue reading these paused partitions, or all. Raises IllegalStateError for an unassigned one."""
        self._core.check_usable()
        self._core.subscription.change(self._select(partitions), lambda assigned: assigned.pause(False))

    @property
    def paused(self) -> tuple[TopicPartition, ...]:
        """The partitions that ``pause`` has paused."""
        self._core.service.check_process()
        return tuple(assigned.partition for assigned in self._core.subscription if assigned.paused)

    # Seeks.

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Read the partition from ``offset`` on; fetched records of it are dropped.

        Raises IllegalStateError if the partition is not assigned, TypeError or ValueError for a wrong offset.
        """
        self._core.check_usable()
        checked_offset(offset)
        assigned = self._core.subscription[checked_partition(partition)]
        self._core.subscription.change([assigned], lambda assigned: assigned.seek(offset), moves=True)

    async def seek_to_beginning(
        self, partitions: Iterable[TopicPartition] | None = None, *, timeout: float | None = None
    ) -> None:
        """Read from the first offset of these partitions, or of all assigned ones.

        Returns when the offsets are known, or at once before the start. ``timeout`` (``api_timeout`` by default) bounds
        the wait, in seconds. Raises the errors of ``position``, and IllegalStateError before the first assignment; see
        ``wait_assigned``. If the call is cancelled, the lookup continues.
        """
        await self._seek_by(ResetStrategy.EARLIEST, partitions, timeout)

    async def seek_to_end(
        self, partitions: Iterable[TopicPartition] | None = None, *, timeout: float | None = None
    ) -> None:
        """Read only records that are written from now on. In other respects it is like ``seek_to_beginning``."""
        await self._seek_by(ResetStrategy.LATEST, partitions, timeout)

    async def _seek_by(self, reset: ResetStrategy, partitions: Partitions, timeout: float | None) -> None:
        self._core.check_usable()
        limit = self._core.client.limit(timeout)
        targets = self._select_some(partitions)
        self._core.subscription.change(targets, lambda assigned: assigned.reset_by(reset), moves=True)
        if self._core.service.state is not ServiceState.NEW:
            await self._until_known(targets, limit)

    async def seek_to_committed(
        self, partitions: Iterable[TopicPartition] | None = None, *, timeout: float | None = None
    ) -> None:
        """Read from the group's committed offsets. Without a committed offset, ``auto_offset_reset`` decides.

        Otherwise like ``seek_to_beginning``. Raises IllegalStateError without a ``group_id`` or before the start.
        """
        self._core.service.check()
        group, subscription = self._core.require_group(), self._core.subscription
        limit = self._core.client.limit(timeout)
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + limit
        targets = self._select_some(partitions)
        versions = {assigned.partition: assigned.position.version for assigned in targets}
        lookup = group.offsets.fetch([assigned.partition for assigned in targets], timeout=limit)
        committed = await self._core.service.while_running(lookup)

        def move(assigned: AssignedPartition) -> None:
            offset: OffsetAndMetadata | None = committed[assigned.partition]
            if offset is None:
                assigned.reset_by(subscription.reset_of(assigned.partition))
            else:
                assigned.seek(offset.offset, offset.leader_epoch)

        # A position that was moved during the lookup, for example by seek(), is newer than this call.
        unmoved = [assigned for assigned in targets if assigned.position.version == versions[assigned.partition]]
        subscription.change(unmoved, move, moves=True)
        await self._until_known(targets, round(ends_at - loop.time(), 3))

    # Positions and ends.

    async def position(self, partition: TopicPartition, *, timeout: float | None = None) -> int:
        """Wait until the offset of the next record to return is known, and return it.

        Raises KafkaTimeout after ``timeout`` seconds (``api_timeout`` by default), or the error that keeps the position
        from being known; IllegalStateError if the partition is not assigned.
        """
        core = self._core
        limit = core.client.limit(timeout)
        core.service.check_process()
        if core.service.state is ServiceState.CLOSING:  # ``on_revoked`` may store the positions in another system
            offset = core.subscription[checked_partition(partition)].offset
            if offset is not None:
                return offset
        core.check_usable()
        assigned = core.subscription[checked_partition(partition)]
        return (await self._until_known([assigned], limit))[assigned.partition]

    async def lag(
        self, partitions: Iterable[TopicPartition] | None = None, *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the lag of these partitions, or of all: the offsets from the position to the visible end.

        The isolation level decides which end is visible. For partitions that are being fetched, the end is known from
        the last answer. For all other partitions, such as paused ones, the leaders are asked. Offsets that compaction
        or transactions removed from the log count as well. Raises the errors of ``position`` and ``end_offsets``.
        ``timeout`` (``api_timeout`` by default) bounds the whole call, in seconds.
        """
        self._core.service.check()
        targets = self._select(partitions)
        limit = self._core.client.limit(timeout)
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + limit
        positions = await self._until_known(targets, limit)
        isolation = self._core.options.consumer.isolation
        ends = {assigned.partition: assigned.known_end(isolation) for assigned in targets}
        unknown = [partition for partition, end in ends.items() if end is None]
        if unknown:
            ends.update(await self.end_offsets(unknown, timeout=round(ends_at - loop.time(), 3)))
        return {partition: max(0, (end or 0) - positions[partition]) for partition, end in ends.items()}

    def high_watermark(self, partition: TopicPartition) -> int | None:
        """Return the offset after the last replicated record, as of the last fetch; None before the first one."""
        self._core.check_usable()
        return self._core.subscription[checked_partition(partition)].high_watermark

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Look up the first offset of each partition, assigned or not. Raises UnknownTopic, KafkaTimeout."""
        return await self._edges(partitions, EARLIEST, timeout)

    async def end_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Look up the offset after the last record of each partition that the isolation level shows.

        Raises UnknownTopic, KafkaTimeout.
        """
        return await self._edges(partitions, LATEST, timeout)

    async def _edges(
        self, partitions: Iterable[TopicPartition], edge: int, timeout: float | None
    ) -> dict[TopicPartition, int]:
        """Return the first or last offset of each partition: ``edge`` is EARLIEST or LATEST."""
        offsets = await self._look_up(dict.fromkeys(checked_partitions(partitions), edge), timeout)
        return {partition: 0 if offset is None else offset.offset for partition, offset in offsets.items()}

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], *, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Look up the first record of each partition at or after a time in milliseconds; None if all records are older.

        Raises UnknownTopic, KafkaTimeout after ``timeout`` seconds (``api_timeout`` by default).
        """
        return await self._look_up(checked_timestamps(timestamps), timeout)

    async def _look_up(
        self, timestamps: Mapping[TopicPartition, int], timeout: float | None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Look up offsets by time in milliseconds, or EARLIEST, LATEST."""
        core = self._core
        core.service.check()
        limit = core.client.limit(timeout)
        lookup = list_offsets(core.client, timestamps, core.options.consumer.isolation, timeout=limit)
        return await core.service.while_running(lookup)

    # Parts of the calls.

    def _select(self, partitions: Partitions) -> list[AssignedPartition]:
        """Return the assigned partitions. Raises IllegalStateError for a partition that is not assigned."""
        subscription = self._core.subscription
        if partitions is None:
            return list(subscription)
        return [subscription[partition] for partition in checked_partitions(partitions)]

    def _select_some(self, partitions: Partitions) -> list[AssignedPartition]:
        """Select like ``_select``. Raises IllegalStateError before the first assignment, when it has no effect."""
        if partitions is None and not self._core.subscription.partitions:
            membership = self._core.membership
            if membership is None or not membership.has_assignment:
                raise IllegalStateError("no partition is assigned yet; await wait_assigned() first")
        return self._select(partitions)

    async def _until_known(self, targets: Iterable[AssignedPartition], limit: float) -> dict[TopicPartition, int]:
        partitions = [assigned.partition for assigned in targets]
        return await self._core.service.while_running(self._core.positions.until_known(partitions, limit))
