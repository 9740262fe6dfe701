"""Checks of the arguments of ``send_many``, before anything is sent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from itertools import repeat, zip_longest

from ..arguments import shown
from ..errors import SerializationError

_MISSING = object()


def pairs_of(topic: str, values: Iterable[object], keys: Iterable[object] | None) -> Iterator[tuple[object, object]]:
    """Each value with its key. Raises SerializationError for other types and for different lengths.

    A difference in length is detected before anything is sent if both have a length, else when one of them ends.
    """
    for name, given in (("values", values), ("keys", keys if keys is not None else ())):
        if isinstance(given, str | bytes | bytearray | memoryview) or not isinstance(given, Iterable):
            raise SerializationError(
                f"{name} for topic {topic!r} must be an iterable with one item per record, got {shown(given)}"
            )
    if keys is None:
        return zip(values, repeat(None))
    if isinstance(values, Sized) and isinstance(keys, Sized) and len(values) != len(keys):
        raise SerializationError(
            f"values and keys for topic {topic!r} must have the same length, got {len(values)} values and {len(keys)}"
            " keys; use None for a record without a key"
        )
    return _zip_strictly(topic, values, keys)


def _zip_strictly(topic: str, values: Iterable[object], keys: Iterable[object]) -> Iterator[tuple[object, object]]:
    for number, (value, key) in enumerate(zip_longest(values, keys, fillvalue=_MISSING)):
        if value is _MISSING or key is _MISSING:
            more, fewer = ("keys", "values") if value is _MISSING else ("values", "keys")
            raise SerializationError(
                f"values and keys for topic {topic!r} must have the same length, got {number} {fewer} and more {more};"
                f" the first {number} records are sent"
            )
        yield value, key
