"""Ways to choose new offsets of a group. Only ``Reset.from_file`` does I/O.

A file has a line for each partition, ``topic,partition,offset``, as Kafka's own tool writes and reads it.
"""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from os import PathLike
from pathlib import Path

from .. import arguments
from ..aio.runtime import wall_clock
from ..errors import ErrorCode, OffsetOutOfRange
from ..types import OffsetAndMetadata, TopicPartition


class _Kind(Enum):
    EARLIEST = "to the first offset"
    LATEST = "to the end"
    CURRENT = "to the committed offset"
    OFFSET = "to an offset"
    TIME = "to the first record not older than a time"
    SHIFT = "by a number of records"
    OFFSETS = "to an offset of each partition"


@dataclass(frozen=True, slots=True)
class ResetOffset:
    """The committed offset of a partition before (None if there was none) and after the reset."""

    before: int | None
    after: int


@dataclass(frozen=True, slots=True)
class Reset:
    """A way to choose new offsets. Make one with a class method such as ``Reset.to_earliest()``."""

    kind: _Kind
    number: int = 0
    offsets: Mapping[TopicPartition, int] | None = None

    @classmethod
    def to_earliest(cls) -> Reset:
        return cls(_Kind.EARLIEST)

    @classmethod
    def to_latest(cls) -> Reset:
        return cls(_Kind.LATEST)

    @classmethod
    def to_current(cls) -> Reset:
        """Keep the committed offset, moved into the range of the partition. Without one, move to the end."""
        return cls(_Kind.CURRENT)

    @classmethod
    def to_offset(cls, offset: int) -> Reset:
        """Reset every partition to the same offset."""
        return cls(_Kind.OFFSET, arguments.offset(offset))

    @classmethod
    def to_timestamp(cls, timestamp: int) -> Reset:
        """Move to the first record at this time or later, or to the end if all records are older.

        The time is in milliseconds since the epoch.
        """
        return cls(_Kind.TIME, arguments.whole("timestamp", timestamp, 0, arguments.INT64_MAX))

    @classmethod
    def by_duration(cls, seconds: float, *, now: Callable[[], float] = wall_clock) -> Reset:
        """Move as ``to_timestamp`` does. The time is the number of seconds before this call."""
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= sys.float_info.max:
            raise ValueError(arguments.must_be("seconds", "a number >= 0", seconds))
        return cls(_Kind.TIME, round(max(0.0, now() - seconds) * 1000))

    @classmethod
    def shift_by(cls, records: int) -> Reset:
        """Move forward by this number of offsets; backward if it is negative."""
        return cls(_Kind.SHIFT, arguments.whole("records", records, -arguments.INT64_MAX, arguments.INT64_MAX))

    @classmethod
    def to_offsets(cls, offsets: Mapping[TopicPartition, int]) -> Reset:
        """Move each of these partitions to its offset, and no other partition."""
        checked_offsets = {
            partition: arguments.offset(offset, f"offset of {partition}")
            for partition, offset in arguments.by_partition("offsets", offsets).items()
        }
        return cls(_Kind.OFFSETS, 0, checked_offsets)

    @classmethod
    def from_file(cls, path: str | PathLike[str]) -> Reset:
        """Move as ``to_offsets`` does, to the offsets in a file in UTF-8. This call reads the file.

        Raises ValueError with the number of a wrong line, and OSError if the file cannot be read.
        """
        try:
            text = Path(path).read_text(encoding="utf-8-sig")
        except UnicodeDecodeError:
            raise ValueError(f"path must be a file of offsets in UTF-8, got {str(path)!r}") from None
        return cls.to_offsets(read_offsets(text))

    def chosen(self, committed: Mapping[TopicPartition, OffsetAndMetadata]) -> list[TopicPartition]:
        """Return the partitions that are moved if the caller names none."""
        return list(committed if self.offsets is None else self.offsets)

    def target(self, partition: TopicPartition, before: int | None, first: int, last: int, by_time: int | None) -> int:
        """Return the new offset of a partition with offsets ``first`` to ``last``. It may be outside of this range.

        ``by_time`` is the offset that the lookup by time found. Raises OffsetOutOfRange if no offset can be chosen.
        """
        match self.kind:
            case _Kind.EARLIEST:
                return first
            case _Kind.LATEST:
                return last
            case _Kind.CURRENT:
                return last if before is None else before
            case _Kind.OFFSET:
                return self.number
            case _Kind.TIME:
                return last if by_time is None else by_time
            case _Kind.SHIFT:
                if before is None:
                    text = f"{partition} has no committed offset to shift"
                    raise OffsetOutOfRange(ErrorCode.OFFSET_OUT_OF_RANGE, text)
                return before + self.number
            case _Kind.OFFSETS:
                offset = (self.offsets or {}).get(partition)
                if offset is None:
                    text = f"no offset is given for {partition}"
                    raise OffsetOutOfRange(ErrorCode.OFFSET_OUT_OF_RANGE, text)
                return offset


def needs_lookup(reset: Reset) -> int | None:
    """Return the time in milliseconds for which offsets must be looked up; None if no lookup is needed."""
    return reset.number if reset.kind is _Kind.TIME else None


def bounded(offset: int, first: int, last: int) -> int:
    """Return the offset in the range of the partition that is nearest to ``offset``."""
    return min(max(offset, first), last)


def read_offsets(text: str) -> dict[TopicPartition, int]:
    """Read lines of ``topic,partition,offset``. Raises ValueError with the number of a wrong line."""
    offsets: dict[TopicPartition, int] = {}
    for number, row in enumerate(_rows(text), 1):
        if not row:
            continue
        try:
            if len(row) != 3:
                raise ValueError(arguments.plural(len(row), "field"))
            topic, partition, offset = (field.strip() for field in row)
            offsets[arguments.partition((topic, int(partition)))] = arguments.offset(int(offset))
        except ValueError as error:
            raise ValueError(f"line {number} must be topic,partition,offset, got {','.join(row)!r}: {error}") from None
    return offsets


def _rows(text: str) -> Iterator[list[str]]:
    rows = csv.reader(io.StringIO(text))
    try:
        yield from rows
    except csv.Error as error:
        raise ValueError(f"line {rows.line_num} must be topic,partition,offset: {error}") from None


def write_offsets(offsets: Mapping[TopicPartition, int | ResetOffset | OffsetAndMetadata]) -> str:
    """Format offsets as a file for ``Reset.from_file`` and for Kafka's tool."""
    return "".join(
        f"{partition.topic},{partition.partition},{_number(offset)}\n" for partition, offset in sorted(offsets.items())
    )


def _number(offset: int | ResetOffset | OffsetAndMetadata) -> int:
    match offset:
        case ResetOffset():
            return offset.after
        case OffsetAndMetadata():
            return offset.offset
        case _:
            return offset
