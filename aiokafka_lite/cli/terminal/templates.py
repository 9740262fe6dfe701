"""Format strings of ``consume --format``, with kcat's fields: ``%t %p %o %k %s\\n``. Pure.

A format string is printed for each record exactly as it is written: it adds no newline.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import chain, repeat
from typing import TYPE_CHECKING

from .arguments import unescape
from .read_range import iso_time

if TYPE_CHECKING:
    from ...consumer.columns import Batch
    from ...types import Header

Column = Callable[["Batch", bytes], Iterable[bytes]]
"""Returns the texts of one field, one for each record of a batch. The bytes argument replaces nulls."""

_FIELD = re.compile(rb"%(.?)", re.DOTALL)


def or_null(column: Iterable[bytes | None], null: bytes) -> list[bytes]:
    """Return a copy of the column, in which ``null`` replaces each null."""
    return [null if cell is None else cell for cell in column]


def header_text(headers: tuple[Header, ...], null: bytes) -> bytes:
    """Return headers as ``name=value,name=value``."""
    return b",".join(
        header.key.encode() + b"=" + (null if header.value is None else header.value) for header in headers
    )


def _sizes(column: Iterable[bytes | None]) -> list[bytes]:
    return [b"-1" if cell is None else b"%d" % len(cell) for cell in column]


FIELDS: dict[bytes, Column] = {
    b"s": lambda batch, null: or_null(batch.values, null),
    b"S": lambda batch, _: _sizes(batch.values),
    b"k": lambda batch, null: or_null(batch.keys, null),
    b"K": lambda batch, _: _sizes(batch.keys),
    b"h": lambda batch, null: [header_text(header, null) for header in batch.headers],
    b"t": lambda batch, _: repeat(batch.topic.encode(), len(batch)),
    b"p": lambda batch, _: repeat(b"%d" % batch.partition, len(batch)),
    b"o": lambda batch, _: [b"%d" % offset for offset in batch.offsets],
    b"T": lambda batch, _: [b"%d" % timestamp for timestamp in batch.timestamps],
    b"D": lambda batch, _: [iso_time(timestamp).encode() for timestamp in batch.timestamps],
}
"""kcat's letters, and ``%D`` for a time that people read."""


def parse_template(text: str) -> list[bytes | Column]:
    """Parse a format string into bytes and fields. Raises ConfigurationError for an unknown field."""
    parts: list[bytes | Column] = []
    start = 0
    raw = text.encode()
    for match in _FIELD.finditer(raw):
        parts.append(unescape(raw[start : match.start()].decode()))
        start = match.end()
        field = FIELDS.get(match[1])
        if field is None and match[1] != b"%":
            from ...errors import ConfigurationError

            fields = " ".join(f"%{letter.decode()}" for letter in FIELDS)
            raise ConfigurationError(f"format must have fields of {fields}, and %% for a percent sign, got {text!r}")
        parts.append(b"%" if field is None else field)
    parts.append(unescape(raw[start:].decode()))
    return [part for part in parts if part != b""]


def template_formatter(text: str, null: bytes) -> Callable[[Batch], bytes]:
    """Return the function that prints the records of a batch by a format string."""
    parts = parse_template(text)

    def print_batch(batch: Batch) -> bytes:
        columns = (repeat(part, len(batch)) if isinstance(part, bytes) else part(batch, null) for part in parts)
        return b"".join(chain.from_iterable(zip(*columns)))

    return print_batch
