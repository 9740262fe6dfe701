"""Columns for others: buffers, NumPy arrays and Arrow record batches.

Nothing here makes an object for a record that was not there before. Batches are decoded to lists of bytes first, as
plain Python has no cheaper way (the decoding takes fifty times as long as what is done here; see
``benchmarks/consumer.py``). pyarrow and numpy come with the extra ``arrow`` and are imported when they are needed.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import accumulate
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import ConfigurationError
from ..types import Header, TimestampType

if TYPE_CHECKING:
    import pyarrow

SPARK_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
"""The columns that Spark's own Kafka source gives, in its order; ``headers`` comes on demand, as there."""

_MICROSECONDS_END = (1 << 63) // 1000


@dataclass(frozen=True, slots=True)
class BytesColumn:
    """Keys or values as one buffer: entry ``i`` is ``data[offsets[i] : offsets[i + 1]]``, or null if ``nulls`` has it.

    ``offsets`` are 64-bit numbers, one more than there are entries. That is Arrow's layout of large binary columns.
    """

    data: bytes
    offsets: array[int]
    nulls: frozenset[int]


def bytes_column(values: Sequence[bytes | None]) -> BytesColumn:
    """Join keys or values to one buffer."""
    nulls: frozenset[int] = frozenset()
    if None in values:
        nulls = frozenset(index for index, value in enumerate(values) if value is None)
    present = [value or b"" for value in values] if nulls else values
    data = b"".join(present)  # type: ignore[arg-type]
    return BytesColumn(data, array("q", accumulate(map(len, present), initial=0)), nulls)  # type: ignore[arg-type]


class Columns(Protocol):
    """What is needed of a batch here."""

    topic: str
    partition: int
    timestamp_type: TimestampType
    offsets: Sequence[int]
    timestamps: Sequence[int]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    headers: Sequence[tuple[Header, ...]]


def record_batch(batch: Columns, columns: Sequence[str] | None, headers: bool) -> pyarrow.RecordBatch:
    """The columns of these names (all of Spark's, if None) as an Arrow record batch; see ``Batch.to_arrow``."""
    pa = extra("pyarrow")
    names = list(SPARK_COLUMNS if columns is None else columns) + (["headers"] if headers else [])
    for name in names:
        if name not in _COLUMNS:
            raise ConfigurationError(f"columns={columns!r}: there are {', '.join(_COLUMNS)}")
    return pa.RecordBatch.from_arrays([_COLUMNS[name](pa, batch) for name in names], names=names)


def int64_array(numbers: Sequence[int]) -> Any:
    """Numbers as a NumPy array."""
    return extra("numpy").array(numbers, dtype="int64")


def extra(module: str) -> ModuleType:
    """Import what only the extra ``arrow`` brings; ConfigurationError where it was not installed."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ConfigurationError(f"{module} is missing: pip install aiokafka_lite[arrow]") from error


def _timestamps(pa: Any, batch: Columns) -> Any:
    """Microseconds of UTC, as Spark has them; null where the log has no timestamp, or one outside of that range."""
    kind = pa.timestamp("us", tz="UTC")
    try:
        in_ms = pa.array(batch.timestamps, pa.int64())
        if batch.timestamps and min(batch.timestamps) >= 0:
            return in_ms.cast(pa.timestamp("ms", tz="UTC")).cast(kind)
    except pa.ArrowInvalid:  # a timestamp that is no milliseconds, as of a producer that wrote other units
        pass
    fitting = [time * 1000 if 0 <= time < _MICROSECONDS_END else None for time in batch.timestamps]
    return pa.array(fitting, kind)


def _headers(pa: Any, batch: Columns) -> Any:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    entries = [[(key, value) for key, value in of_record] if of_record else None for of_record in batch.headers]
    return pa.array(entries, kind)


_COLUMNS: Mapping[str, Callable[[Any, Columns], Any]] = {
    "key": lambda pa, batch: pa.array(batch.keys, pa.binary()),
    "value": lambda pa, batch: pa.array(batch.values, pa.binary()),
    "topic": lambda pa, batch: pa.repeat(pa.scalar(batch.topic, pa.string()), len(batch.offsets)),
    "partition": lambda pa, batch: pa.repeat(pa.scalar(batch.partition, pa.int32()), len(batch.offsets)),
    "offset": lambda pa, batch: pa.array(batch.offsets, pa.int64()),
    "timestamp": _timestamps,
    "timestampType": lambda pa, batch: pa.repeat(
        pa.scalar(int(batch.timestamp_type), pa.int32()), len(batch.offsets)
    ),
    "headers": _headers,
}
