"""Encodes lists of keys and values together: no Python code runs for a record of less than 8 KiB.

In the compiled build, one call of ``encode.append_lists`` encodes them. In plain Python, ``codec.append_record`` takes
about a microsecond per record. The passes here take a third of that, because ``map``, ``accumulate``, slices and
``join`` loop over the lists in C. The format is in ``record_format``.

A record is its size, two constant fields, the offset delta, the key, the value and the headers. All records of a call
have the same timestamp and the same headers. So the size of a record depends only on the sizes of its key and value,
and on the length of its offset delta. That length changes only at ``_BOUNDARIES``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, repeat
from operator import add

from .encode import append_lists, encode_headers
from .record_format import ZERO_HEADERS, Headers
from .varint import ENCODINGS

_BOUNDARIES = (1 << 6, 1 << 13, 1 << 20, 1 << 27, 1 << 34)
"""The offset deltas at which the varint becomes one byte longer."""

_CACHED_BELOW = 1 << 13


class _WithPrefix(dict[int, int]):
    """The encoded size of ``size`` bytes, with the varint in front of them. It caches the results for short sizes."""

    def __missing__(self, size: int) -> int:
        whole = size + len(ENCODINGS[size])
        if size < _CACHED_BELOW:
            self[size] = whole
        return whole


_WITH_PREFIX = _WithPrefix()


class RecordLists:
    """Records with one timestamp in milliseconds, and the same headers. ``keys`` is None if no record has a key.

    ``keys`` and ``values`` are lists of bytes of equal length. ``key_sizes`` and ``value_sizes`` are their lengths.
    """

    __slots__ = ("_contents", "_ends", "_headers", "key_sizes", "keys", "timestamp", "value_sizes", "values")

    def __init__(self, values: list[bytes], keys: list[bytes] | None, headers: Headers, timestamp: int) -> None:
        self.values: list[bytes] = values
        self.keys: list[bytes] | None = keys
        self.timestamp: int = timestamp
        self.value_sizes: list[int] = list(map(len, values))
        self.key_sizes: list[int] | None = None if keys is None else list(map(len, keys))
        self._headers = encode_headers(headers) if headers else ZERO_HEADERS
        self._contents: list[int] = []
        self._ends: list[int] = []

    def append_to(
        self, buffer: bytearray, limit: int, first_delta: int, timestamp_delta: int, start: int, stop: int
    ) -> int:
        """Append records from ``start`` up to ``stop``, as many as ``limit`` bytes hold. Returns their number.

        ``first_delta`` is the offset delta of the first record. If it is 0, that record is appended in any case.
        """
        count = append_lists(
            buffer, limit, first_delta, timestamp_delta, self.keys, self.values, self._headers, start, stop
        )
        if count is None:
            count = self._append_by_passes(buffer, limit, first_delta, timestamp_delta, start, stop)
        return count

    def _measure(self) -> None:
        self._contents = list(map(_WITH_PREFIX.__getitem__, self.value_sizes))
        if self.key_sizes is not None:
            self._contents = list(map(add, self._contents, map(_WITH_PREFIX.__getitem__, self.key_sizes)))
        self._ends = list(accumulate(self._contents))

    def _append_by_passes(
        self, buffer: bytearray, limit: int, first_delta: int, timestamp_delta: int, start: int, stop: int
    ) -> int:
        if not self._ends:
            self._measure()
        encodings = ENCODINGS
        fields = b"\0" + encodings[timestamp_delta]
        constant = len(fields) + len(self._headers) + (self.keys is None)
        position, delta = start, first_delta
        while position < stop:
            room = limit - len(buffer)
            # More records cannot fit, because their keys and values alone exceed the limit. The passes below skip them.
            before = self._ends[position - 1] if position else 0
            most = bisect_right(self._ends, before + room, position, stop) + 1
            # Up to the next boundary all offset deltas have the same length, so one constant serves the whole pass.
            boundary = next(edge for edge in _BOUNDARIES if delta < edge)
            end = min(stop, most, position + boundary - delta)
            fixed = constant + len(encodings[delta])
            bodies = list(map(add, self._contents[position:end], repeat(fixed)))
            ends = list(accumulate(map(_WITH_PREFIX.__getitem__, bodies)))
            count = bisect_right(ends, room)
            if not count:
                if delta:
                    break
                count = 1
            self._join(buffer, bodies[:count], fields, delta, position)
            position += count
            delta += count
            if count < len(bodies):
                break
        return position - start

    def _join(self, buffer: bytearray, bodies: list[int], fields: bytes, delta: int, start: int) -> None:
        encode, count = ENCODINGS.__getitem__, len(bodies)
        stop = start + count
        columns: list[Sequence[bytes]] = [
            list(map(encode, bodies)),
            [fields] * count,
            list(map(encode, range(delta, delta + count))),
        ]
        if self.keys is None or self.key_sizes is None:
            columns.append([b"\1"] * count)  # the length -1 of a null key
        else:
            columns += (list(map(encode, self.key_sizes[start:stop])), self.keys[start:stop])
        columns += (
            list(map(encode, self.value_sizes[start:stop])),
            self.values[start:stop],
            [self._headers] * count,
        )
        width = len(columns)
        parts: list[bytes] = [b""] * (width * count)
        for place, column in enumerate(columns):
            parts[place::width] = column
        buffer += b"".join(parts)
