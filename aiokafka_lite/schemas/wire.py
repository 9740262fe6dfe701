"""Confluent's wire format: how a key or value names the schema that it was written with.

- A prefix of the bytes: magic byte 0, and the id in 4 bytes, big-endian.
- Or a header (Confluent Platform 8): magic byte 1, and the GUID in 16 bytes. The name of the header says whether it
  belongs to the key or to the value.
- Protobuf adds the path of the message type in its file: a count, and the indexes as zigzag varints. The path ``[0]``
  is the single byte 0.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import NamedTuple

from ..arguments import INT32_MAX
from ..protocol.records.varint import encode_varint
from ..types import Header
from .schema import Part

HEADER_NAMES: dict[Part, str] = {"key": "__key_schema_id", "value": "__value_schema_id"}

LARGEST_ID = INT32_MAX
"""The largest id of a schema: registries keep ids as signed numbers of 4 bytes."""

_ID, _GUID = 0, 1
_ID_END, _GUID_END = 5, 17
_MOST_INDEXES = 1000
"""The largest number of indexes in a path. Protobuf's compilers refuse types that are nested deeper."""


class SchemaName(NamedTuple):
    """The id or GUID that bytes begin with, and the position after it."""

    name: int | str
    end: int


def prefix(schema_id: int) -> bytes:
    """Return the bytes in front of a key or value."""
    return b"\0" + schema_id.to_bytes(4, "big")


def is_guid(text: str) -> bool:
    """Return whether a header can carry this GUID."""
    try:
        return bool(uuid.UUID(text))
    except ValueError:
        return False


def header(part: Part, guid: str, indexes: bytes = b"") -> Header:
    """Return the header that takes the place of a prefix."""
    return Header(HEADER_NAMES[part], b"\1" + uuid.UUID(guid).bytes + indexes)


def find_header(part: Part, headers: Sequence[Header]) -> bytes | None:
    """Return the content of the last header with a GUID; None if there is no such header."""
    name = HEADER_NAMES[part]
    return next((value for key, value in reversed(headers) if key == name), None)


def remove_header(part: Part, headers: list[Header]) -> None:
    """Remove the header with the GUID.

    A record that was read and is written again still has the header that belongs to its old bytes.
    """
    name = HEADER_NAMES[part]
    if any(key == name for key, _ in headers):
        headers[:] = [header for header in headers if header.key != name]


def read_name(data: bytes) -> SchemaName:
    """Read the schema's id or GUID at the start. Raises ValueError."""
    if len(data) >= _ID_END and data[0] == _ID:
        return SchemaName(int.from_bytes(data[1:_ID_END], "big"), _ID_END)
    if len(data) >= _GUID_END and data[0] == _GUID:
        return SchemaName(str(uuid.UUID(bytes=data[1:_GUID_END])), _GUID_END)
    raise ValueError(
        f"the bytes do not begin with the id of a schema: {data[:_ID_END]!r}; they were not written by a serializer"
        " of a schema registry"
    )


def write_indexes(path: Sequence[int]) -> bytes:
    """Encode the path of a message type in its file."""
    # The wire format has a short form for the most frequent path, the first type of a file.
    if list(path) == [0]:
        return b"\0"
    return b"".join(map(encode_varint, (len(path), *path)))


def read_indexes(data: bytes, start: int) -> tuple[tuple[int, ...], int]:
    """Read the path that begins at ``start``. Returns it with the position after it. Raises ValueError."""
    count, end = _varint(data, start)
    if not 0 <= count <= _MOST_INDEXES:
        raise ValueError(f"the path of the message type has {count} indexes; at most {_MOST_INDEXES} are accepted")
    if count == 0:
        return (0,), end
    path = []
    for _ in range(count):
        index, end = _varint(data, end)
        path.append(index)
    return tuple(path), end


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ValueError("the path of the message type is cut short")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
