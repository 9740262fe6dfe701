"""What is given to a producer's calls, looked at before anything is sent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from itertools import repeat, zip_longest

from ..errors import SerializationError

_MISSING = object()


def pairs_of(topic: str, values: Iterable[object], keys: Iterable[object] | None) -> Iterator[tuple[object, object]]:
    """Each value with its key; SerializationError, before anything is sent if it can be told by then."""
    for name, given in (("values", values), ("keys", keys if keys is not None else ())):
        if isinstance(given, str | bytes | bytearray | memoryview) or not isinstance(given, Iterable):
            raise SerializationError(
                f"{name}={given!r:.80} for topic {topic!r}: a list or the like with one for each record is needed"
            )
    if keys is None:
        return zip(values, repeat(None))
    if isinstance(values, Sized) and isinstance(keys, Sized) and len(values) != len(keys):
        raise SerializationError(
            f"{len(values)} values and {len(keys)} keys for topic {topic!r}: as many are needed, None for no key"
        )
    return _zip_strictly(topic, values, keys)


def _zip_strictly(topic: str, values: Iterable[object], keys: Iterable[object]) -> Iterator[tuple[object, object]]:
    for number, (value, key) in enumerate(zip_longest(values, keys, fillvalue=_MISSING)):
        if value is _MISSING or key is _MISSING:
            more, fewer = ("keys", "values") if value is _MISSING else ("values", "keys")
            raise SerializationError(
                f"there are {number} {fewer} and more {more} for topic {topic!r}: as many are needed; those {number}"
                " records are on their way"
            )
        yield value, key
