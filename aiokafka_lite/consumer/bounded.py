"""A read up to given offsets, for a job that ends: ``Consumer.read_until``.

The read takes records of one partition at a time, and never one at or behind the end, so a group commits no record that
was not returned. The last offsets of a partition may hold no record, after a transaction or compaction; the position
passes them by itself.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import Any, Generic, Self, cast

import anyio
import anyio.lowlevel

from ..arguments import by_partition, check_max_records
from ..arguments import offset as checked_offset
from ..errors import IllegalStateError
from ..group.states import MemberState
from ..types import K, Record, TopicPartition, V
from .consumer_core import ConsumerCore
from .iteration import intercepted
from .position_calls import PositionCalls

_LOOK_AGAIN = 0.2
"""Seconds after which the positions are checked again: data without records, such as the markers of transactions, wakes
no read."""


class BoundedRead(Generic[K, V]):
    """The iteration that ``Consumer.read_until`` returns. Each item is a list of records of one partition."""

    def __init__(
        self,
        core: ConsumerCore,
        calls: PositionCalls,
        ends: Mapping[TopicPartition, int] | None,
        max_records: int,
    ) -> None:
        check_max_records(max_records)
        self._core = core
        self._calls = calls
        self._max_records = max_records
        self._ends = None if ends is None else by_partition("ends", ends)
        for partition, end in (self._ends or {}).items():
            checked_offset(end, f"end of {partition}")
        self._finished: dict[TopicPartition, int] = {}
        """The positions at which the next record is behind the end, because of a gap. A seek may go back further."""
        self._is_checked = False

    def __repr__(self) -> str:
        return f"<BoundedRead {'not begun' if self._ends is None else self._ends}>"

    @property
    def ends(self) -> dict[TopicPartition, int]:
        """The offsets at which the read ends, by partition. Empty before the first step looks them up."""
        return dict(self._ends or {})

    def __aiter__(self) -> Self:
        self._core.service.check()
        return self

    async def __anext__(self) -> list[Record[K, V]]:
        core = self._core
        core.service.check()
        if not self._is_checked:
            self._ends = await self._find_ends()
            self._is_checked = True
        most = core.most_records(self._max_records)
        # Also at the end: entering it says that the records of the last list are processed.
        with core.reading(self):
            while behind := self._behind() or await self._behind_after_rebalance():
                records = await self._take(behind, most)
                if records:
                    break
                with anyio.move_on_after(_LOOK_AGAIN):
                    await core.service.while_running(core.reader.wait(only=behind))
            else:
                raise StopAsyncIteration
            records = intercepted(core, records)
        core.returned(len(records))
        return cast("list[Record[K, V]]", records)

    async def _find_ends(self) -> dict[TopicPartition, int]:
        subscription = self._core.subscription
        for partition in self._ends if self._ends is not None else subscription.partitions:
            if subscription[partition].has_reader:  # raises for a partition that is not assigned
                raise IllegalStateError(f"{partition} is read by the reader that partition() returned")
        if self._ends is not None:
            return self._ends
        return await self._calls.end_offsets(await self._calls.wait_assigned())

    def _behind(self) -> frozenset[TopicPartition]:
        """Return the assigned partitions whose positions are before their ends, or not known yet."""
        assert self._ends is not None
        ends = self._ends | self._finished
        return frozenset(
            assigned.partition
            for assigned in self._core.subscription
            if assigned.partition in ends and (assigned.offset is None or assigned.offset < ends[assigned.partition])
        )

    async def _behind_after_rebalance(self) -> frozenset[TopicPartition]:
        """Check again when the group has an assignment: a rebalance may leave a member without one for a moment."""
        core = self._core
        if core.membership is None or not core.is_subscribed:
            return frozenset()
        runner = core.membership.member_runner
        while runner.member.state is not MemberState.STABLE:
            await core.service.while_running(anyio.sleep(_LOOK_AGAIN))
            core.check_something_to_read()
        await self._calls.wait_assigned()
        return self._behind()

    async def _take(self, behind: frozenset[TopicPartition], most: int) -> list[Record[Any, Any]]:
        """Take records of one partition that are before its end; none if nothing is buffered."""
        assert self._ends is not None
        reader, deserializing = self._core.reader, self._core.options.deserializing
        if reader.must_yield:
            await anyio.lowlevel.checkpoint()
        peeked = reader.peek(behind)
        if peeked is None:
            return []
        assigned, chunk = peeked
        partition, end = assigned.partition, self._ends[assigned.partition]
        count = bisect_left(chunk.offsets, end, chunk.index) - chunk.index
        if count <= 0:  # the next record is behind the end, and what is before it are gaps
            self._finished[partition] = chunk.position
            return []
        only, count = frozenset((partition,)), min(count, most)
        if deserializing is None:
            return cast("list[Record[Any, Any]]", reader.take(count, only))
        return await self._core.service.while_running(deserializing.take(reader, count, only))
