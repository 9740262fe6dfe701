"""Lists of Python values to columns: records of one partition, as ``consumer.Batch`` has them.

``to_arrow`` makes a record batch of them. ``read`` decodes packed batches instead, and shares the types and the
timestamps of this module.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Protocol

from aiokafka_lite.arguments import must_be
from aiokafka_lite.errors import ConfigurationError, DeserializationError
from aiokafka_lite.extras import extra
from aiokafka_lite.types import Header, TimestampType

if TYPE_CHECKING:
    import numpy.typing
    import pyarrow

    Numbers = numpy.typing.NDArray[Any]

SPARK_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
"""The columns of Spark's own Kafka source, in its order. ``headers`` is optional there too."""

READ_COLUMNS = (*SPARK_COLUMNS, "headers")
"""All columns that records can be read into."""

_MICROSECONDS_END = (1 << 63) // 1000
_KEPT_ROWS = 1 << 16


@cache
def arrow_types() -> Mapping[str, pyarrow.DataType]:
    """Return the Arrow type of each of ``READ_COLUMNS``. Raises ConfigurationError if pyarrow is missing."""
    pa = extra("pyarrow")
    return {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestampType": pa.int32(),
        "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    }


@dataclass(frozen=True, slots=True)
class BytesColumn:
    """Keys or values in one buffer: entry ``i`` is ``data[offsets[i] : offsets[i + 1]]``; ``nulls`` has the null ones.

    ``offsets`` are 64-bit numbers, one more than there are entries. This is Arrow's layout of large binary columns.
    """

    data: bytes
    offsets: array[int]
    nulls: frozenset[int]


def bytes_column(values: Sequence[bytes | None]) -> BytesColumn:
    """Join keys or values into one buffer. Needs neither NumPy nor Arrow."""
    nulls: frozenset[int] = frozenset()
    if None in values:
        nulls = frozenset(index for index, value in enumerate(values) if value is None)
    present = [value or b"" for value in values] if nulls else values
    data = b"".join(present)  # type: ignore[arg-type]
    return BytesColumn(data, array("q", accumulate(map(len, present), initial=0)), nulls)  # type: ignore[arg-type]


def int64_array(numbers: Sequence[int]) -> Any:
    """Return numbers as a NumPy array."""
    return extra("numpy").array(numbers, dtype="int64")


class Columns(Protocol):
    """The records of one partition as lists of one length: ``consumer.Batch``."""

    topic: str
    partition: int
    timestamp_type: TimestampType
    offsets: Sequence[int]
    timestamps: Sequence[int]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    headers: Sequence[tuple[Header, ...]]


def to_arrow(records: Columns, names: Sequence[str] | None = None, *, headers: bool = False) -> pyarrow.RecordBatch:
    """Convert the columns ``names`` (``SPARK_COLUMNS`` if None), and headers if wanted, to an Arrow record batch.

    Raises ConfigurationError for an unknown column, and if pyarrow is missing. Raises DeserializationError for a
    timestamp that does not fit into microseconds.
    """
    pa, types = extra("pyarrow"), arrow_types()
    columns = column_names(names, headers=headers)
    arrays = [_FROM_LISTS[name](records, types[name]) for name in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([(name, types[name]) for name in columns]))


def column_names(names: Sequence[str] | None, *, headers: bool) -> list[str]:
    """Return the columns ``names`` (``SPARK_COLUMNS`` if None), and headers if wanted.

    Raises ConfigurationError for an unknown column.
    """
    columns = list(SPARK_COLUMNS if names is None else names) + (["headers"] if headers else [])
    for name in columns:
        if name not in READ_COLUMNS:
            raise ConfigurationError(must_be("columns", f"some of {', '.join(READ_COLUMNS)}", names))
    return columns


def repeated(value: str | int, count: int, kind: Any) -> Any:
    """Return a column of one value: a view of a longer column, which many columns of record batches share."""
    if count > _KEPT_ROWS:
        return _new_column(value, count, kind)
    # Powers of two, so that a few kept columns serve all sizes.
    return _kept_column(value, 1 << count.bit_length(), kind).slice(0, count)


def _new_column(value: str | int, count: int, kind: Any) -> Any:
    pa = extra("pyarrow")
    return pa.repeat(pa.scalar(value, kind), count)


_kept_column = lru_cache(maxsize=16)(_new_column)


def timestamp_column(times: Numbers, kind: Any, place: Callable[[int], tuple[str, int, int]]) -> Any:
    """Return milliseconds as UTC microseconds. -1, which means that a record has no timestamp, becomes null.

    ``place`` returns the topic, partition and offset of a row. Raises DeserializationError for a time that microseconds
    cannot hold, as Spark's own connector does.
    """
    pa, np = extra("pyarrow"), extra("numpy")
    if not len(times) or (times.min() >= 0 and times.max() < _MICROSECONDS_END):
        return pa.array(times * 1000).view(kind)
    too_large = (times >= _MICROSECONDS_END) | (times <= -_MICROSECONDS_END)
    if too_large.any():
        row = int(too_large.argmax())
        topic, partition, offset = place(row)
        raise DeserializationError(
            f"{topic}-{partition} at offset {offset}: a timestamp of {times[row]} ms does not fit into microseconds; "
            "the producer probably wrote nanoseconds. Read without the column 'timestamp', or skip the record",
            topic=topic,
            partition=partition,
            offset=offset,
        )
    nulls = times == -1
    return pa.array(np.where(nulls, 0, times) * 1000, mask=nulls).view(kind)


_FROM_LISTS: Mapping[str, Callable[[Columns, Any], Any]] = {
    "key": lambda records, kind: extra("pyarrow").array(records.keys, kind),
    "value": lambda records, kind: extra("pyarrow").array(records.values, kind),
    "topic": lambda records, kind: repeated(records.topic, len(records.offsets), kind),
    "partition": lambda records, kind: repeated(records.partition, len(records.offsets), kind),
    "offset": lambda records, kind: extra("pyarrow").array(records.offsets, kind),
    "timestamp": lambda records, kind: timestamp_column(
        int64_array(records.timestamps),
        kind,
        lambda row: (records.topic, records.partition, records.offsets[row]),
    ),
    "timestampType": lambda records, kind: repeated(int(records.timestamp_type), len(records.offsets), kind),
    "headers": lambda records, kind: extra("pyarrow").array([header or None for header in records.headers], kind),
}
