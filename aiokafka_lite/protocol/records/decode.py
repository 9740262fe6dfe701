"""Shortcuts for the inner loops of reading. A compiled build has them in C (``decode.c``), plain Python has none.

The result of each function says whether it has done the work. If not, the caller does it with Python code, which is
the reference: it makes the errors of malformed records, and decodes rare forms. So both builds return the same. For a
record of 100 bytes, ``decode_records`` takes 117 ns compiled by mypyc, and 30 ns with its shortcut. The fields of a
record for Arrow take 150 ns with NumPy, and 17 ns with C.
"""

from __future__ import annotations

from ..codec import Buffer

Decoded = tuple[list[int], list[int], list[bytes | None], list[bytes | None], list[tuple[int, int, int]], int]
"""Offsets, timestamps, keys, values; the records with headers; and the position after the last record.

For each record with headers: its index, the position of its headers, and the position after the record.
"""


def decode_lists(
    data: Buffer,
    position: int,
    count: int,
    base_offset: int,
    base_timestamp: int,
    append_time: int | None,
    first_delta: int,
    max_headers: int,
) -> Decoded | None:
    """Decode as ``codec.decode_records`` does, without decoded headers. None if the caller must decode the records.

    ``max_headers`` bounds the headers of all records together.
    """
    return None


def find_fields(
    data: Buffer,
    position: int,
    count: int,
    base_offset: int,
    base_timestamp: int,
    has_append_time: bool,
    last_delta: int,
    table: Buffer,
    first: int,
) -> bool:
    """Write the places of the fields of all ``count`` records of ``data`` into columns of ``table``, from ``first`` on.

    ``table`` has eight rows of 64-bit numbers: offset, timestamp, position and size of the key, position and size of
    the value, position of the headers, position after the record. The size of a null is -1. The positions count
    from the first of several bodies; ``position`` is the place of the body ``data`` among them. With an append time,
    all records have the base timestamp. Returns False if the caller must find the fields.
    """
    # Nine parameters: C reads them without an object, for each batch.
    return False


def join_fields(data: Buffer, places: Buffer, sizes: Buffer, edges: Buffer, joined: Buffer) -> bool:
    """Copy the fields at ``places`` to ``joined``, one after another, and write the end of each field to ``edges``.

    Places and sizes are 64-bit numbers, a size below 0 counts as 0. ``edges``, of 32-bit numbers, begins with a 0. This
    is Arrow's layout of a binary column. Returns False if the caller must copy the fields.
    """
    return False
