"""``Batches``: which records of a claim go into the next call of the user's function.

A lane has the records of one key, or of the whole partition. A batch may have several records of a lane, in the order
of their offsets, and no other batch has records of that lane at the same time. Without batches, each record is a batch
of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from typing import Generic

from ..types import K, V
from .progress import Item

NO_LANE = object()
"""The lane of records that wait for no other record."""


class Batches(Generic[K, V]):
    """The ready and the waiting records of one claim. Owner: its ``ClaimWork``.

    ``on_ready`` is called when a batch is ready. ``on_open`` is called with a batch that waits to be full: call
    ``end_wait`` with it after the batch timeout. If ``waits_to_be_full`` is False, batches do not wait.
    """

    def __init__(
        self,
        size: int,
        waits_to_be_full: bool,
        *,
        on_ready: Callable[[], None],
        on_open: Callable[[list[Item[K, V]]], None],
    ) -> None:
        self.ready: deque[list[Item[K, V]]] = deque()
        self._size = size
        self._waits_to_be_full = waits_to_be_full
        self._on_ready = on_ready
        self._on_open = on_open
        self._open: list[Item[K, V]] | None = None
        self._open_lanes: set[Hashable] = set()
        self._lanes: dict[Hashable, deque[Item[K, V]]] = {}
        """The records that wait for an unfinished record of their lane."""

    def add(self, item: Item[K, V]) -> None:
        """Add a record that was read."""
        if item.lane is not NO_LANE:
            waiting = self._lanes.get(item.lane)
            if waiting is not None:
                if item.lane in self._open_lanes:
                    self._fill(item)
                else:
                    waiting.append(item)
                return
            self._lanes[item.lane] = deque()
        self._begin(item)

    def again(self, batch: list[Item[K, V]]) -> None:
        """Make a batch ready again after the pause behind a failed attempt."""
        self.ready.append(batch)
        self._on_ready()

    def end_wait(self, batch: list[Item[K, V]]) -> None:
        """Make a batch ready that is not full after the batch timeout."""
        if batch is self._open:
            self._close()

    def take(self) -> list[Item[K, V]]:
        """Return the next batch, filled with other ready records. Call it only if ``ready`` is not empty."""
        batch = self.ready.popleft()
        if self._size == 1 or not self._is_open(batch):
            return batch
        self._add_followers(batch, batch)
        kept = []
        while self.ready and len(batch) < self._size:
            other = self.ready.popleft()
            if self._is_open(other) and len(batch) + len(other) <= self._size:
                batch.extend(other)
                self._add_followers(batch, other)
            else:
                kept.append(other)
        self.ready.extendleft(reversed(kept))
        batch.sort(key=_offset)
        return batch

    def release(self, batch: list[Item[K, V]], paused: Item[K, V] | None = None) -> None:
        """Make the unfinished records of a batch ready again, except the paused one, or the next ones of its lanes."""
        lanes: dict[Hashable, list[Item[K, V]]] = {}
        for item in batch:
            if item.lane is not NO_LANE:
                unfinished = lanes.setdefault(item.lane, [])
                if not item.finished:
                    unfinished.append(item)
            elif not item.finished and item is not paused:
                self._begin(item)
        for lane, unfinished in lanes.items():
            waiting = self._lanes[lane]
            waiting.extendleft(reversed(unfinished))
            if not waiting:
                del self._lanes[lane]
            elif (following := waiting.popleft()) is not paused:
                self._begin(following)

    def _begin(self, item: Item[K, V]) -> None:
        """Make a record ready, or put it into the open batch."""
        if not self._waits_to_be_full or item.is_alone:
            self.ready.append([item])
            self._on_ready()
            return
        if self._open is None:
            self._open = []
            self._on_open(self._open)
        self._fill(item)
        waiting = self._lanes.get(item.lane)
        while waiting and item.lane in self._open_lanes and not waiting[0].is_alone:
            self._fill(waiting.popleft())

    def _fill(self, item: Item[K, V]) -> None:
        assert self._open is not None, "a lane is open while its batch is"
        self._open.append(item)
        if item.lane is not NO_LANE:
            self._open_lanes.add(item.lane)
        if len(self._open) == self._size:
            self._close()

    def _close(self) -> None:
        assert self._open, "an open batch has a record"
        self._open.sort(key=_offset)
        self.ready.append(self._open)
        self._open = None
        self._open_lanes.clear()
        self._on_ready()

    def _is_open(self, batch: list[Item[K, V]]) -> bool:
        """Return whether other records may be added: a failed batch is repeated as it was."""
        return len(batch) < self._size and not batch[0].failures and not batch[0].is_alone

    def _add_followers(self, batch: list[Item[K, V]], items: Iterable[Item[K, V]]) -> None:
        for item in list(items):
            waiting = self._lanes.get(item.lane) if item.lane is not NO_LANE else None
            while waiting and len(batch) < self._size and not waiting[0].is_alone:
                batch.append(waiting.popleft())


def _offset(item: Item[K, V]) -> int:
    return item.record.offset
