"""The promise of the records of an Arrow table, and the partition of each row. This module does not depend on brokers.

Tables go to partitions in whole batches (``protocol.records.columns``), so one ``BulkDelivery`` stands for all records.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from ...errors import SerializationError
from ...extras import extra
from ...protocol.records.columns import Rows, by_number
from ...protocol.records.murmur2 import partitions_for_keys
from ..batch import ProducerBatch
from ..delivery import BatchResult

Chooser: TypeAlias = Callable[[bytes | None, bytes | None], int]
"""Returns the partition for a key and a value."""

ANY = -1
"""The partition of a row that may go to any partition."""


class Written(NamedTuple):
    """``records`` consecutive records in the log; ``base_offset`` is -1 if the broker did not report it."""

    partition: int
    base_offset: int
    records: int


class BulkDelivery:
    """The promise of the records of a table. Await it for the list of ``Written``, or for the first error.

    It is done when all records are settled, even if some have failed. ``size`` is the number of bytes before
    compression. Any number of tasks may await it, any number of times; cancelling an await ends only the wait.
    """

    __slots__ = ("_error", "_open", "_written", "size")

    def __init__(self) -> None:
        self.size: int = 0
        self._open: deque[BatchResult] = deque()
        self._written: list[Written] = []
        self._error: Exception | None = None

    def add(self, batch: ProducerBatch, size: int) -> None:
        """Include this batch of ``size`` bytes."""
        self._open.append(batch)
        self.size += size

    def done(self) -> bool:
        """Return whether every record is acknowledged or has failed."""
        self._take_settled()
        return not self._open

    def exception(self) -> Exception | None:
        """Return the first error so far; None if there is none."""
        self._take_settled()
        return self._error

    @property
    def acknowledged(self) -> int:
        """The number of records that are acknowledged so far."""
        self._take_settled()
        return sum(run.records for run in self._written)

    def __await__(self) -> Generator[object, None, list[Written]]:
        while not self.done():
            result = self._open[0]
            waiter = result.wait()
            try:
                yield from waiter
            except asyncio.CancelledError:
                result.stop_waiting(waiter)
                raise
        if self._error is not None:
            raise self._error.with_traceback(None)
        return list(self._written)

    def _take_settled(self) -> None:
        """Store the results of the first settled batches, and drop these batches to free their bytes."""
        while self._open and self._open[0].settled:
            result = self._open.popleft()
            if result.moved is not None:
                # The parts take the place of the whole, so that the results stay in the order of the rows.
                self._open.extendleft(reversed(dict.fromkeys(place for place, _ in result.moved)))
            elif result.has_failed:
                result.observe()
                self._error = self._error or result.error
            else:
                assert isinstance(result, ProducerBatch)
                self._written.append(Written(result.partition, result.base_offset, result.count))

    def __repr__(self) -> str:
        return f"<BulkDelivery open={len(self._open)} written={sum(run.records for run in self._written)}>"


def rows_of(topic: str, table: object, now: int) -> list[Rows]:
    """Return the record batches of a table that have rows.

    ``now`` is the timestamp of rows without one, in milliseconds. Raises SerializationError for an object that is not a
    table, and for a wrong column.
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
        f"records for topic {topic!r} must be a Table or RecordBatch of Arrow, got {type(table).__name__}"
    )


def by_partition(rows: Rows, count: int, choose: Chooser | None) -> Iterator[tuple[int, Rows]]:
    """Divide rows by their partition, in their order; ``ANY`` for rows that name no partition and have no key.

    ``choose`` is called for each row that names no partition. If it is None, partitions are chosen by the hash of keys.
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
