"""Batches of records as bytes to print. Pure.

A null prints as nothing, or as the text of ``--null``. JSON distinguishes a null from an empty value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from .read_range import iso_time
from .templates import header_text, or_null, parse_template, template_formatter

if TYPE_CHECKING:
    from ...consumer.columns import Batch
    from .decoding import Columns


class Format(StrEnum):
    """The values of ``--format``: which parts of a record are printed, and how."""

    VALUE = "value"
    KEY_VALUE = "key-value"
    JSON = "json"
    HEX = "hex"
    KEY_VALUE_HEX = "key-value-hex"


@dataclass(frozen=True, slots=True)
class Line:
    """The parts of a printed line, with tabs between: time, offset and headers if requested, then the record."""

    format: Format | str = Format.VALUE
    """A format string, if it is not one of the names."""
    separator: bytes = b"\t"
    null: bytes = b""
    timestamps: bool = False
    offsets: bool = False
    headers: bool = False


def parse_format(text: str) -> Format | str:
    """Parse the name of a format, or a format string. Raises ConfigurationError for any other text."""
    if text in _NAMES:
        return Format(text)
    if "%" not in text:
        from ...arguments import must_be
        from ...errors import ConfigurationError

        what = f"one of {', '.join(_NAMES)}, or a format string such as '%t %p %o %k %s\\n'"
        raise ConfigurationError(must_be("--format", what, text))
    parse_template(text)
    return text


_NAMES = tuple(map(str, Format))


def formatter(line: Line) -> Callable[[Batch, Columns | None], bytes]:
    """Return the function that prints the records of a batch: as lines with newlines, or by a format string.

    The second argument has the keys and values that a registry has decoded; None if nothing was decoded.
    """
    if line.format is Format.JSON:
        from .json_lines import to_json_lines

        return to_json_lines
    print_batch = _text_formatter(line)

    def print_decoded(batch: Batch, decoded: Columns | None = None) -> bytes:
        if decoded is not None and line.format not in (Format.HEX, Format.KEY_VALUE_HEX):
            from .decoding import as_text

            batch = replace(batch, keys=as_text(decoded.keys), values=as_text(decoded.values))
        return print_batch(batch)

    return print_decoded


def _text_formatter(line: Line) -> Callable[[Batch], bytes]:
    if not isinstance(line.format, Format):
        return template_formatter(line.format, line.null)
    record = _RECORDS[line.format]
    prefixes = _prefixes(line)
    if not prefixes:
        return lambda batch: _joined(record(batch, line))
    return lambda batch: _joined(map(b"\t".join, zip(*(prefix(batch) for prefix in prefixes), record(batch, line))))


def _joined(lines: Iterable[bytes]) -> bytes:
    return b"\n".join(lines) + b"\n"


def _bare(column: Sequence[bytes | None], null: bytes) -> Sequence[bytes]:
    """Return the column, in which ``null`` replaces each null. A column without nulls is returned without a copy."""
    if None in column:
        return or_null(column, null)
    return column  # type: ignore[return-value]


def _hex(column: Sequence[bytes | None], null: bytes) -> list[bytes]:
    return [null if cell is None else cell.hex().encode() for cell in column]


_RECORDS: dict[Format, Callable[[Batch, Line], Iterable[bytes]]] = {
    Format.VALUE: lambda batch, line: _bare(batch.values, line.null),
    Format.HEX: lambda batch, line: _hex(batch.values, line.null),
    Format.KEY_VALUE: lambda batch, line: map(
        line.separator.join, zip(_bare(batch.keys, line.null), _bare(batch.values, line.null))
    ),
    Format.KEY_VALUE_HEX: lambda batch, line: map(
        line.separator.join, zip(_hex(batch.keys, line.null), _hex(batch.values, line.null))
    ),
}


def _prefixes(line: Line) -> list[Callable[[Batch], Iterable[bytes]]]:
    prefixes: list[Callable[[Batch], Iterable[bytes]]] = []
    if line.timestamps:
        prefixes.append(lambda batch: (iso_time(timestamp).encode() for timestamp in batch.timestamps))
    if line.offsets:
        prefixes.append(_places)
    if line.headers:
        prefixes.append(lambda batch: (header_text(header, line.null) for header in batch.headers))
    return prefixes


def _places(batch: Batch) -> Iterable[bytes]:
    partition = f"{batch.topic}-{batch.partition}:".encode()
    return (partition + b"%d" % offset for offset in batch.offsets)
