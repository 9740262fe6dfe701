"""Makes the records of columns. A compiled build does it in C (``rows.c``), which makes a record in one allocation.

There, the garbage collector does not look at records of bytes. So a list of 50,000 records costs as much per record as
a list of 50.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import repeat
from typing import TypeVar

from ..types import Header, TimestampType

C = TypeVar("C")
R = TypeVar("R", bound=tuple[object, ...])

Constants = tuple[str, int, TimestampType, int | None] | tuple[str, int, TimestampType, int | None, int]
"""What all records of a partition's batch have: topic, partition, timestamp type, leader epoch, and delivery count."""

Columns = tuple[list[int], list[int], list[bytes | None], list[bytes | None], list[tuple[Header, ...]]]
"""Offsets, timestamps, keys, values and headers."""


def iterate_rows(
    kind: type[R],
    constants: Constants,
    offsets: Iterable[int],
    timestamps: Sequence[int],
    keys: Sequence[object],
    values: Sequence[object],
    headers: Sequence[tuple[Header, ...]],
) -> Iterator[R]:
    """Return an iterator over the rows as ``kind``, which is ``Record``, or with a delivery count ``ShareRecord``.

    It takes an offset first, and ends when one of the columns ends. So an iterator over offsets shows how many records
    were made.
    """
    topic, partition, timestamp_type, leader_epoch = constants[:4]
    # kind(*fields) runs Python code for each record; this creates the same object in C. The offsets must be the first
    # finite column: ``zip`` takes from the left and stops at the first exhausted column. Only infinite columns may come
    # before it, because they lose nothing.
    return map(
        partial(tuple.__new__, kind),
        zip(
            repeat(topic),
            repeat(partition),
            offsets,
            timestamps,
            repeat(timestamp_type),
            keys,
            values,
            headers,
            repeat(leader_epoch),
            *map(repeat, constants[4:]),
        ),
    )


def list_rows(kind: type[R], constants: Constants, columns: Columns, start: int, stop: int) -> list[R]:
    """Return the rows from ``start`` to ``stop`` of columns that have as many, made like those of ``iterate_rows``."""
    rows = slice(start, stop)
    offsets, timestamps, keys, values, headers = columns
    return list(iterate_rows(kind, constants, offsets[rows], timestamps[rows], keys[rows], values[rows], headers[rows]))


def collectable(column: C) -> C:
    """Return a column for the program, which may change it. Decoded columns are hidden from the garbage collector."""
    return column
