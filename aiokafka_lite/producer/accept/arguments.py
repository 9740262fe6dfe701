"""Checks of the arguments of ``send_many``, before anything is sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sized
from itertools import islice

from ...arguments import shown
from ...errors import SerializationError

# Python can iterate over these too, but no caller means a record for each byte, letter or key.
_SINGLE = (str, bytes, bytearray, memoryview, Mapping)


class ValuesAndKeys:
    """The values of a call and their keys, taken in pieces. ``keys`` is None if no record has a key.

    Raises SerializationError for other types, and for different lengths if both have a length.
    """

    __slots__ = ("_error", "_keys", "_taken", "_topic", "_values")

    def __init__(self, topic: str, values: Iterable[object], keys: Iterable[object] | None) -> None:
        for name, given in (("values", values), ("keys", keys if keys is not None else ())):
            if isinstance(given, _SINGLE) or not isinstance(given, Iterable):
                raise SerializationError(
                    f"{name} for topic {topic!r} must be an iterable with one item per record, got {shown(given)}"
                )
        if keys is not None and isinstance(values, Sized) and isinstance(keys, Sized) and len(values) != len(keys):
            raise SerializationError(
                f"values and keys for topic {topic!r} must have the same length, got {len(values)} values and"
                f" {len(keys)} keys; use None for a record without a key"
            )
        self._topic = topic
        self._values = iter(values)
        self._keys = None if keys is None else iter(keys)
        self._taken = 0
        self._error: BaseException | None = None

    def take(self, count: int) -> tuple[list[object], list[object] | None]:
        """Return the next values, at most ``count``, and their keys. An empty result means that there are no more
        values.

        One call returns the values before an error. The next call raises it: the error of an iterable, or
        SerializationError when one iterable ends first.
        """
        if self._error is not None:
            raise self._error
        values: list[object] = []
        keys: list[object] | None = None if self._keys is None else []
        try:
            values.extend(islice(self._values, count))
            if keys is not None and self._keys is not None:
                keys.extend(islice(self._keys, len(values)))
                if len(keys) == len(values) < count:
                    keys.extend(islice(self._keys, 1))
        except BaseException as error:  # noqa: BLE001 - raised by the next call
            self._error = error
        if keys is not None and len(keys) != len(values):
            both = min(len(keys), len(values))
            if self._error is None:
                self._error = self._lengths_differ(self._taken + both, len(keys) > len(values))
            del keys[both:], values[both:]
        self._taken += len(values)
        if self._error is not None and not values:
            raise self._error
        return values, keys

    def _lengths_differ(self, number: int, more_keys: bool) -> SerializationError:
        more, fewer = ("keys", "values") if more_keys else ("values", "keys")
        return SerializationError(
            f"values and keys for topic {self._topic!r} must have the same length, got {number} {fewer} and more"
            f" {more}; the first {number} are sent"
        )
