"""The records of one claim of ``Workers``: which are finished, and what waits for the end of a pause."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from typing import Generic

from ..group.finished_offsets import encode, finished_runs
from ..types import K, Record, V


class Item(Generic[K, V]):
    """A record that was read: its lane, its failed attempts, and whether it is finished."""

    __slots__ = ("failures", "finished", "is_alone", "lane", "progress", "raw", "record")

    def __init__(self, record: Record[K, V], lane: Hashable, progress: Progress[K, V], raw: Record | None) -> None:
        self.record = record
        self.raw = raw  # only for rules that send records to other topics
        self.lane = lane
        self.progress = progress
        self.failures = 0
        self.is_alone = False  # in a batch of its own, because its last batch failed and named no record
        self.finished = False


class Progress(Generic[K, V]):
    """The records of one claim, in the order of their offsets, from the first unfinished one on."""

    def __init__(self, mark: Callable[[Record[K, V]], object]) -> None:
        self.last_offset = -1
        self.has_changed = False
        """Whether a record was finished since ``annotation`` was called."""
        self._mark = mark
        self._items: deque[Item[K, V]] = deque()

    def __len__(self) -> int:
        return len(self._items)

    @property
    def first_unfinished(self) -> int | None:
        """The offset of the first unfinished record; None if all records are finished."""
        return self._items[0].record.offset if self._items else None

    def add(self, item: Item[K, V]) -> None:
        self._items.append(item)
        self.last_offset = item.record.offset

    def finish(self, item: Item[K, V]) -> None:
        """Finish a processed record, and mark the partition up to the first unfinished record."""
        item.finished = True
        self.has_changed = True
        last = None
        while self._items and self._items[0].finished:
            last = self._items.popleft()
        if last is not None:
            self._mark(last.record)

    def annotation(self, marked: int | None, later: Iterable[tuple[int, int]]) -> tuple[int, str] | None:
        """Return an offset and the metadata for its commit: what is finished ahead of it. None if it tells nothing.

        ``marked`` is the last mark or commit; without one, the offset of the first unfinished record is returned.
        ``later`` are the runs of offsets that were finished before, also those that are not read yet.
        """
        self.has_changed = False
        if marked is not None:
            offset = marked
        elif self._items:
            offset = self._items[0].record.offset
        else:
            return None
        runs = finished_runs((item.record.offset, item.finished) for item in self._items)
        # The committed offset has to count as unfinished.
        unread = max(self.last_offset, offset) + 1
        for start, end in later:
            if runs and start <= runs[-1][1] == unread < end:  # the run is read in part
                runs[-1] = (runs[-1][0], end)
            elif unread < end:
                runs.append((max(start, unread), end))
        if not self._items and not runs:
            return None
        return offset, encode(offset, runs)

    def mark_by(self, mark: Callable[[Record[K, V]], object]) -> None:
        self._mark = mark

    def retire(self) -> None:
        """Mark nothing from now on, because the position has moved back."""
        self._mark = lambda record: None


class Pauses:
    """What the work on one claim does later. ``has_been_used``: there was any pause."""

    def __init__(self) -> None:
        self.has_been_used = False
        self._timers: set[asyncio.TimerHandle] = set()
        self._due: asyncio.Queue[Callable[[], None] | None] = asyncio.Queue()
        """What is to be done now, and None at the stop."""

    def begin(self, then: Callable[[], None], seconds: float) -> None:
        """Begin a pause, after which ``next`` returns ``then``."""
        self.has_been_used = True

        def end() -> None:
            self._timers.discard(timer)
            self._due.put_nowait(then)

        timer = asyncio.get_running_loop().call_later(seconds, end)
        self._timers.add(timer)

    async def next(self) -> Callable[[], None] | None:
        """Wait for the end of a pause, and return what is to be done; None at the stop."""
        return await self._due.get()

    def stop(self) -> None:
        """Let ``next`` return None."""
        self._due.put_nowait(None)

    def cancel(self) -> None:
        for timer in self._timers:
            timer.cancel()
