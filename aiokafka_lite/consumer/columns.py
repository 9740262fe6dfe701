"""Records as columns: the batches of ``Consumer.batches()``.

The columns are lists of the decoded chunk, so no object is created for each record. ``protocol.records.columns`` turns
them into buffers, NumPy arrays and Arrow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from ..protocol.records.columns import BytesColumn as BytesColumn
from ..protocol.records.columns import bytes_column, int64_array, to_arrow
from ..types import Header, Record, TimestampType
from .chunk import Chunk
from .rows import collectable, iterate_rows

if TYPE_CHECKING:
    import numpy
    import numpy.typing
    import pyarrow


@dataclass(slots=True, eq=False)
class Batch:
    """Consecutive records of one partition, as columns of one length. Iterating over a batch yields ``Record`` objects.

    Timestamps are in milliseconds, -1 if the log has none. Keys and values are None if they are null. Offsets rise,
    with gaps from compaction and transactions. The lists belong to the caller. Methods that need NumPy or Arrow
    raise ConfigurationError without the extra ``arrow``.
    """

    topic: str
    partition: int
    timestamp_type: TimestampType
    leader_epoch: int | None
    offsets: Sequence[int]
    timestamps: Sequence[int]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    headers: Sequence[tuple[Header, ...]]

    def __len__(self) -> int:
        return len(self.offsets)

    def __iter__(self) -> Iterator[Record]:
        return iterate_rows(
            Record,
            (self.topic, self.partition, self.timestamp_type, self.leader_epoch),
            self.offsets,
            self.timestamps,
            self.keys,
            self.values,
            self.headers,
        )

    def key_buffer(self) -> BytesColumn:
        """Return all keys in one buffer, with the offsets of the keys in it."""
        return bytes_column(self.keys)

    def value_buffer(self) -> BytesColumn:
        """Return all values in one buffer, with the offsets of the values in it."""
        return bytes_column(self.values)

    def offsets_array(self) -> numpy.typing.NDArray[numpy.int64]:
        """Return the offsets as a NumPy array."""
        array: numpy.typing.NDArray[numpy.int64] = int64_array(self.offsets)
        return array

    def timestamps_array(self) -> numpy.typing.NDArray[numpy.int64]:
        """Return the timestamps, in milliseconds, as a NumPy array."""
        array: numpy.typing.NDArray[numpy.int64] = int64_array(self.timestamps)
        return array

    def to_arrow(self, columns: Sequence[str] | None = None, *, headers: bool = False) -> pyarrow.RecordBatch:
        """Return an Arrow record batch with the columns, names and types of Spark's own Kafka source.

        key and value: binary; topic: string; partition: int32; offset: int64; timestamp: microseconds of UTC, null if
        there is none; timestampType: int32 (0 create time, 1 log append time, -1 none). ``headers=True`` adds a list of
        key (string) and value (binary), null for a record without headers. ``columns`` selects columns, in their order.
        Raises ConfigurationError for an unknown column, and without pyarrow; DeserializationError for a timestamp that
        does not fit into microseconds (after the year 294246).
        """
        return to_arrow(self, columns, headers=headers)

    def __repr__(self) -> str:
        span = f"{self.offsets[0]}..{self.offsets[-1]}" if self.offsets else "none"
        return f"<Batch {self.topic}-{self.partition} offsets={span} count={len(self)}>"


def take(chunk: Chunk, max_records: int) -> Batch:
    """Deliver up to ``max_records`` of a chunk as a batch. The chunk must be settled."""
    rows = chunk.advance(max_records)
    # In this case, the batch gets the lists without a copy.
    is_whole = rows.start == 0 and rows.stop == len(chunk.offsets)
    return Batch(
        chunk.topic,
        chunk.partition,
        chunk.timestamp_type,
        chunk.leader_epoch,
        collectable(chunk.offsets) if is_whole else chunk.offsets[rows],
        collectable(chunk.timestamps) if is_whole else chunk.timestamps[rows],
        collectable(chunk.keys) if is_whole else chunk.keys[rows],
        collectable(chunk.values) if is_whole else chunk.values[rows],
        chunk.headers if is_whole else chunk.headers[rows],
    )


def records_of(chunk: Chunk, keys: Sequence[object], values: Sequence[object]) -> Iterator[Record]:
    """Return the next records of a settled chunk, with these keys and values. This does not deliver them."""
    rows = slice(chunk.index, chunk.index + len(values))
    return iterate_rows(
        Record,
        (chunk.topic, chunk.partition, chunk.timestamp_type, chunk.leader_epoch),
        chunk.offsets[rows],
        chunk.timestamps[rows],
        keys,
        values,
        chunk.headers[rows],
    )


def continues(batch: Batch, chunk: Chunk) -> bool:
    """Return whether a batch can be extended by ``chunk``: same partition, leader epoch and timestamp type."""
    return (
        batch.topic == chunk.topic
        and batch.partition == chunk.partition
        and batch.timestamp_type is chunk.timestamp_type
        and batch.leader_epoch == chunk.leader_epoch
    )


def joined(batches: Sequence[Batch]) -> Batch:
    """Join consecutive batches into the first of them."""
    first = batches[0]
    if len(batches) > 1:
        first.offsets = list(chain.from_iterable([batch.offsets for batch in batches]))
        first.timestamps = list(chain.from_iterable([batch.timestamps for batch in batches]))
        first.keys = list(chain.from_iterable([batch.keys for batch in batches]))
        first.values = list(chain.from_iterable([batch.values for batch in batches]))
        first.headers = list(chain.from_iterable([batch.headers for batch in batches]))
    return first
