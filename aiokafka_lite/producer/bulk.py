"""What comes of many records that were given at once: one promise for all of them.

Tables of Arrow go to partitions in batches that are made whole (`columns`); this says which rows go where, and tells
afterwards where they are in the log. Nothing here knows a broker.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from ..errors import SerializationError
from ..extras import extra
from ..protocol.records.columns import Rows, by_number
from ..protocol.records.murmur2 import partitions_for_keys
from .batch import Batch
from .delivery import Fate

Choice: TypeAlias = Callable[[bytes | None, bytes | None], int]
"""The partition for a key and a value."""

ANY = -1
"""The place of a record that may go to any partition."""


class Written(NamedTuple):
    """A run of so many ``records`` in the log; ``base_offset`` is -1 where the broker did not tell it."""

    partition: int
    base_offset: int
    records: int


class BulkDelivery:
    """The promise of the records of a table: await it for where they are, or for the first error among them.

    It is done when none of them is open any more, also if some have failed. ``size`` is what was sent, in bytes before
    compression. Any number of tasks may await it, any number of times; cancelling an await abandons the wait only.
    """

    __slots__ = ("_error", "_open", "_written", "size")

    def __init__(self) -> None:
        self.size = 0
        self._open: deque[Fate] = deque()
        self._written: list[Written] = []
        self._error: Exception | None = None

    def add(self, batch: Batch, size: int) -> None:
        """Promise for this batch, too."""
        self._open.append(batch)
        self.size += size

    def done(self) -> bool:
        """Whether every record is acknowledged or given up."""
        self._take_settled()
        return not self._open

    def exception(self) -> Exception | None:
        """The first error among them, None if there is none so far."""
        self._take_settled()
        return self._error

    @property
    def acknowledged(self) -> int:
        """How many of them are in the log by now."""
        self._take_settled()
        return sum(run.records for run in self._written)

    def __await__(self) -> Generator[object, None, list[Written]]:
        while not self.done():
            fate = self._open[0]
            waiter = fate.wait()
            try:
                yield from waiter
            except asyncio.CancelledError:
                fate.forget(waiter)
                raise
        if self._error is not None:
            raise self._error.with_traceback(None)
        return list(self._written)

    def _take_settled(self) -> None:
        """Note what came of the batches at the head, and let go of them, as each holds its bytes."""
        while self._open and self._open[0].settled:
            fate = self._open.popleft()
            if fate.moved is not None:
                self._open.extendleft(reversed(dict.fromkeys(place for place, _ in fate.moved)))
            elif fate.error is not None:
                fate.observed = True
                self._error = self._error or fate.error
            else:
                assert isinstance(fate, Batch)
                self._written.append(Written(fate.partition, fate.base_offset, fate.count))

    def __repr__(self) -> str:
        return f"<BulkDelivery open={len(self._open)} written={sum(run.records for run in self._written)}>"


def rows_of(topic: str, table: object, now: int) -> list[Rows]:
    """The record batches of a table that have rows; SerializationError for what is none, or has a wrong column.

    ``now`` is the timestamp of rows without one, in milliseconds.
    """
    return [Rows(topic, batch, now) for batch in _record_batches(topic, table) if batch.num_rows]


def _record_batches(topic: str, table: object) -> Sequence[Any]:
    pa = extra("pyarrow")
    if isinstance(table, pa.RecordBatch):
        return [table]
    if isinstance(table, pa.Table):
        batches: list[Any] = table.to_batches()
        return batches
    if hasattr(table, "__arrow_c_stream__"):
        return _record_batches(topic, pa.table(table))
    raise SerializationError(
        f"records for topic {topic!r}: a Table or RecordBatch of Arrow is needed, not {type(table).__name__}"
    )


def placed(rows: Rows, count: int, choose: Choice | None) -> Iterator[tuple[int, Rows]]:
    """Divide rows by the partition that they go to, in their order; `ANY` where they name none and have no key.

    ``choose`` is asked for each row that names none, if it is given; else keys are placed by their hash.
    """
    np = extra("numpy")
    places = np.full(rows.count, ANY)
    if rows.partitions is not None:
        places = rows.partitions.fill_null(ANY).to_numpy(zero_copy_only=False).copy()
    free = np.flatnonzero(places == ANY)
    if choose is not None:
        keys = [None] * len(free) if rows.keys is None else rows.keys.take(free).to_pylist()
        places[free] = [choose(key, value) for key, value in zip(keys, rows.values.take(free).to_pylist())]
    elif rows.keys is not None and len(free):
        present = rows.keys.is_valid().to_numpy(zero_copy_only=False)
        places = np.where(present & (places == ANY), partitions_for_keys(rows.keys, count), places)
    if (places == places[0]).all():
        yield int(places[0]), rows
        return
    for partition, numbers in by_number(places):
        yield partition, rows.take(numbers)
