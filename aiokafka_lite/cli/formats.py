"""Batches of records as bytes to print. Pure.

A null prints as nothing. JSON distinguishes a null from an empty value.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from .starts import iso_time

if TYPE_CHECKING:
    from ..consumer.columns import Batch
    from ..types import Header


class Format(StrEnum):
    """The values of ``--format``: which parts of a record are printed, and how."""

    VALUE = "value"
    KEY_VALUE = "key-value"
    JSON = "json"
    HEX = "hex"
    KEY_VALUE_HEX = "key-value-hex"


@dataclass(frozen=True, slots=True)
class Line:
    """The parts of a printed line: time, offset and headers of the record if wanted, tabs between, then the record."""

    format: Format = Format.VALUE
    separator: str = "\t"
    timestamps: bool = False
    offsets: bool = False
    headers: bool = False


def formatter(line: Line) -> Callable[[Batch], bytes]:
    """The function that formats the records of a batch as lines, each with a newline at its end."""
    if line.format is Format.JSON:
        return _json
    record = _RECORDS[line.format]
    separator = line.separator.encode()
    prefixes = _prefixes(line)
    if not prefixes:
        return lambda batch: _joined(record(batch, separator))
    return lambda batch: _joined(
        map(b"\t".join, zip(*(prefix(batch) for prefix in prefixes), record(batch, separator)))
    )


def _joined(lines: Iterable[bytes]) -> bytes:
    return b"\n".join(lines) + b"\n"


def _bare(column: Sequence[bytes | None]) -> Sequence[bytes]:
    """A column with empty bytes for its nulls. Without nulls it is returned as it is, without a copy."""
    if None in column:
        return [b"" if each is None else each for each in column]
    return column  # type: ignore[return-value]


def _hex(column: Sequence[bytes | None]) -> list[bytes]:
    return [each.hex().encode() for each in _bare(column)]


def _pairs(keys: Iterable[bytes], separator: bytes, values: Iterable[bytes]) -> Iterable[bytes]:
    return map(separator.join, zip(keys, values))


_RECORDS: dict[Format, Callable[[Batch, bytes], Iterable[bytes]]] = {
    Format.VALUE: lambda batch, _: _bare(batch.values),
    Format.HEX: lambda batch, _: _hex(batch.values),
    Format.KEY_VALUE: lambda batch, separator: _pairs(_bare(batch.keys), separator, _bare(batch.values)),
    Format.KEY_VALUE_HEX: lambda batch, separator: _pairs(_hex(batch.keys), separator, _hex(batch.values)),
}


def _prefixes(line: Line) -> list[Callable[[Batch], Iterable[bytes]]]:
    prefixes: list[Callable[[Batch], Iterable[bytes]]] = []
    if line.timestamps:
        prefixes.append(lambda batch: (iso_time(each).encode() for each in batch.timestamps))
    if line.offsets:
        prefixes.append(_places)
    if line.headers:
        prefixes.append(lambda batch: map(_header_text, batch.headers))
    return prefixes


def _places(batch: Batch) -> Iterable[bytes]:
    partition = f"{batch.topic}-{batch.partition}:".encode()
    return (partition + b"%d" % offset for offset in batch.offsets)


def _header_text(headers: tuple[Header, ...]) -> bytes:
    return b",".join(header.key.encode() + b"=" + (header.value or b"") for header in headers)


def _json(batch: Batch) -> bytes:
    return b"".join(
        json.dumps(
            {
                "topic": batch.topic,
                "partition": batch.partition,
                "offset": record.offset,
                "timestamp": record.timestamp,
                "timestamp_type": batch.timestamp_type.name.lower(),
                **_text("key", record.key),
                **_text("value", record.value),
                "headers": [{"key": header.key, **_text("value", header.value)} for header in record.headers],
            },
            ensure_ascii=False,
            separators=(",", ":"),
        ).encode()
        + b"\n"
        for record in batch
    )


def _text(name: str, data: bytes | None) -> dict[str, str | None]:
    """``name`` with the text, or ``name_base64`` if the bytes are not UTF-8."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(data).decode()}
