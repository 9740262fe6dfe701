"""Checks the headers that a user gives with a record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from ..errors import SerializationError
from ..types import Header

Headers = Iterable[tuple[str, bytes | None]] | Mapping[str, bytes | None]
"""Headers of a send: pairs of a name and bytes (or None), or a mapping if no name occurs twice."""

_NO_HEADERS: tuple[Header, ...] = ()
_new_tuple: Final = tuple.__new__  # creates a NamedTuple without the Python call of its constructor


# Hot: runs for each record with headers.
def headers_of(topic: object, headers: Headers) -> tuple[Header, ...]:
    """Return the headers as pairs of a name and bytes or None. Raises SerializationError for other types.

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
        failure.__cause__ = error  # compiled code ignores the "from" of a raise
        raise failure from error
    return tuple(checked)
