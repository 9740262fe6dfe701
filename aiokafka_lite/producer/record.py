"""A record before it is in a batch: its headers are checked, and ``buffer_memory`` is charged for its bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from ..errors import SerializationError
from ..types import Header

Headers = Iterable[tuple[str, bytes | None]] | Mapping[str, bytes | None]
"""Headers of a send: pairs of a name and bytes (or None), or a mapping if no name occurs twice."""

RECORD_OVERHEAD: Final = 24
"""The maximum number of bytes of a record besides key, value and headers: its lengths and deltas."""

HEADER_OVERHEAD: Final = 10
"""The maximum number of bytes of a header besides its name and value."""

BATCH_OVERHEAD = 1_000
"""Approximate bytes of an unsettled batch besides its records. If a batch is smaller than eight times this number, its
records are charged for a share of this number."""

PENDING_OVERHEAD = 256
"""Additional bytes of a record while it is pending for its topic, because it consists of Python objects then."""

_NO_HEADERS: tuple[Header, ...] = ()
_new_tuple: Final = tuple.__new__  # creates a NamedTuple without the Python call of its constructor


class PreparedRecord(NamedTuple):
    """A serialized record. ``timestamp`` is in milliseconds.

    ``size`` is the number of bytes of ``buffer_memory`` that the record uses. ``surplus`` of them are released when a
    pending record moves into a batch, where it takes less memory.
    """

    topic: str
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    partition: int | None
    timestamp: int
    size: int
    surplus: int = 0


# Hot: runs for each record with headers.
def headers_of(topic: object, headers: Headers) -> tuple[Header, ...]:
    """The headers as pairs of a name and bytes or None. Raises SerializationError for other types.

    ``topic`` is only named in errors, and may be of a wrong type: it is checked later.
    """
    if not headers:
        return _NO_HEADERS
    checked: list[Header] = []
    try:
        # Lists are checked first, because the check for a Mapping takes much longer.
        pairs: Iterable[object] = headers
        if not isinstance(headers, (list, tuple)) and isinstance(headers, Mapping):
            pairs = headers.items()
        for pair in pairs:
            if not isinstance(pair, (tuple, list)) or len(pair) != 2:
                raise SerializationError(
                    f"the headers of a record for topic {topic!r} must be pairs of a name and bytes, as in"
                    f" [('trace', b'1')], got {type(headers).__name__} with an item of type {type(pair).__name__}"
                )
            name, value = pair[0], pair[1]
            if not isinstance(name, str) or not (value is None or isinstance(value, bytes)):
                raise SerializationError(
                    f"a header of a record for topic {topic!r} must be a str and bytes or None,"
                    f" got ({type(name).__name__}, {type(value).__name__})"
                )
            # Only a lone surrogate cannot be encoded, and ASCII has none.
            if not name.isascii():
                name.encode()
            checked.append(pair if isinstance(pair, Header) else _new_tuple(Header, (name, value)))
    except UnicodeEncodeError as wrong_text:
        failure = SerializationError(
            f"the name of a header of a record for topic {topic!r} must be text that UTF-8 can encode: {wrong_text}"
        )
        failure.__cause__ = wrong_text  # compiled code ignores the "from" of a raise
        raise failure from wrong_text
    except SerializationError:
        raise
    except Exception as error:  # the headers may be an iterator of the user
        failure = SerializationError(
            f"the headers of a record for topic {topic!r} must be pairs of a name and bytes: {error}"
        )
        failure.__cause__ = error
        raise failure from error
    return tuple(checked)


# Hot: runs for each record with headers.
def size_of_headers(headers: tuple[Header, ...]) -> int:
    """The bytes of ``buffer_memory`` that the headers of a record use."""
    size = 0
    for header in headers:
        value: bytes | None = header[1]
        # An upper estimate for most names. Encoding a name only to measure it would cost more than these bytes.
        size += HEADER_OVERHEAD + 3 * len(header[0])
        if value is not None:
            size += len(value)
    return size
