"""Where to move a group to. Pure, but for reading and writing the file.

A file has a line for each partition, ``topic,partition,offset``, as Kafka's own tool writes and reads it.
"""

from __future__ import annotations

import csv
import io
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from os import PathLike
from pathlib import Path

from ..errors import ErrorCode, OffsetOutOfRange
from ..types import OffsetAndMetadata, TopicPartition
from . import arguments


class _Kind(Enum):
    EARLIEST = "to the begin"
    LATEST = "to the end"
    CURRENT = "to where the group is"
    OFFSET = "to an offset"
    TIME = "to the first record not older than a time"
    SHIFT = "by a number of records"
    OFFSETS = "to an offset of each partition"


@dataclass(frozen=True, slots=True)
class ResetOffset:
    """A move: the offset to read next, before (None if there was none) and after."""

    before: int | None
    after: int


@dataclass(frozen=True, slots=True)
class Reset:
    """A way to choose new offsets; one of the class methods makes it."""

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
        """Stay, but within what the partition still has; the end for a partition without a commit."""
        return cls(_Kind.CURRENT)

    @classmethod
    def to_offset(cls, offset: int) -> Reset:
        """The same offset in every partition."""
        return cls(_Kind.OFFSET, arguments.whole("offset", offset, 0, arguments.INT64_MAX))

    @classmethod
    def to_timestamp(cls, timestamp: int) -> Reset:
        """The first record that is not older, in milliseconds since the epoch; the end where all are."""
        return cls(_Kind.TIME, arguments.whole("timestamp", timestamp, 0, arguments.INT64_MAX))

    @classmethod
    def by_duration(cls, seconds: float, *, now: Callable[[], float] = time.time) -> Reset:
        """As ``to_timestamp`` for so many seconds ago, counted from this call on."""
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= sys.float_info.max:
            raise ValueError(f"seconds={seconds!r}: a number from 0 up")
        return cls(_Kind.TIME, round(max(0.0, now() - seconds) * 1000))

    @classmethod
    def shift_by(cls, records: int) -> Reset:
        """So many records on, or back if below zero."""
        return cls(_Kind.SHIFT, arguments.whole("records", records, -arguments.INT64_MAX, arguments.INT64_MAX))

    @classmethod
    def to_offsets(cls, offsets: Mapping[TopicPartition, int]) -> Reset:
        """An offset of its own for each partition; no others are moved."""
        checked = {
            each: arguments.whole(f"offset of {each}", offset, 0, arguments.INT64_MAX)
            for each, offset in arguments.by_partition(offsets).items()
        }
        return cls(_Kind.OFFSETS, 0, checked)

    @classmethod
    def from_file(cls, path: str | PathLike[str]) -> Reset:
        """As ``to_offsets``, from a file in UTF-8. Reads it here and now.

        Raises ValueError naming the line that is wrong, and OSError if the file cannot be read.
        """
        try:
            text = Path(path).read_text(encoding="utf-8-sig")
        except UnicodeDecodeError:
            raise ValueError(f"{str(path)!r} is not a file of offsets: it is not in UTF-8") from None
        return cls.to_offsets(read_offsets(text))

    def chosen(self, committed: Mapping[TopicPartition, OffsetAndMetadata]) -> list[TopicPartition]:
        """The partitions that are moved where the caller named none."""
        return list(committed if self.offsets is None else self.offsets)

    def target(self, partition: TopicPartition, before: int | None, first: int, last: int, by_time: int | None) -> int:
        """Where to move one partition that reaches from ``first`` to ``last``; perhaps beyond both.

        ``by_time`` is what a lookup for the time found. Raises OffsetOutOfRange where there is nothing to go by.
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
                    text = f"{partition}: nothing is committed that could be shifted"
                    raise OffsetOutOfRange(ErrorCode.OFFSET_OUT_OF_RANGE, text)
                return before + self.number
            case _Kind.OFFSETS:
                found = (self.offsets or {}).get(partition)
                if found is None:
                    text = f"{partition}: no offset is given for it"
                    raise OffsetOutOfRange(ErrorCode.OFFSET_OUT_OF_RANGE, text)
                return found


def needs_lookup(reset: Reset) -> int | None:
    """The time in milliseconds that offsets have to be looked up for, None for none."""
    return reset.number if reset.kind is _Kind.TIME else None


def bounded(offset: int, first: int, last: int) -> int:
    """The nearest offset that the partition has."""
    return min(max(offset, first), last)


def read_offsets(text: str) -> dict[TopicPartition, int]:
    """Lines of ``topic,partition,offset``; ValueError naming the line that is something else."""
    offsets: dict[TopicPartition, int] = {}
    for number, row in enumerate(_rows(text), 1):
        if not row:
            continue
        try:
            topic, partition, offset = (field.strip() for field in row)
            offsets[arguments.partition((topic, int(partition)))] = arguments.whole(
                "offset", int(offset), 0, arguments.INT64_MAX
            )
        except ValueError as error:
            raise ValueError(f"line {number}: {','.join(row)!r} is not topic,partition,offset: {error}") from None
    return offsets


def _rows(text: str) -> Iterator[list[str]]:
    rows = csv.reader(io.StringIO(text))
    try:
        yield from rows
    except csv.Error as error:
        raise ValueError(f"line {rows.line_num}: not topic,partition,offset: {error}") from None


def write_offsets(offsets: Mapping[TopicPartition, int | ResetOffset | OffsetAndMetadata]) -> str:
    """The text of a file that ``Reset.from_file`` and Kafka's tool read."""
    return "".join(f"{each.topic},{each.partition},{_number(offset)}\n" for each, offset in sorted(offsets.items()))


def _number(offset: int | ResetOffset | OffsetAndMetadata) -> int:
    match offset:
        case ResetOffset():
            return offset.after
        case OffsetAndMetadata():
            return offset.offset
        case _:
            return offset
