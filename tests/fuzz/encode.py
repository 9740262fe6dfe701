"""Compare ``encode.c`` with ``encode.py``: ``python -m tests.fuzz.encode LIBRARY COUNT``, with AIOKAFKA_LITE_PURE=1.

LIBRARY is the extension module, built with the sanitizers of the compiler: ``tests/pure/records/test_encode.py`` does
that. The inputs are records, lists, columns of Arrow and, at last, columns whose offsets are damaged.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from random import Random
from typing import Any

import pyarrow as pa

from aiokafka_lite.protocol.records import RecordLists, encode, encode_records

SIZES = (0, 1, 5, 63, 64, 100, 8_191, 8_192, 16_385)
DELTAS = (0, 1, 63, 64, 8_192, -1, -65, 1 << 40, (1 << 63) - 1, -(1 << 63), 1 << 63)
WRONG: tuple[Any, ...] = ("text", 5, [1])


def outcome(function: Callable[..., object], *arguments: object) -> tuple[object, bytes]:
    """Return the result, or that it raised, and the buffer afterwards."""
    buffer = bytearray(b"before")
    try:
        return function(buffer, *arguments), bytes(buffer)
    except (TypeError, ValueError):
        return "raised", bytes(buffer)


class Fuzzer:
    """Random inputs, by seed, for the functions of an extension module."""

    def __init__(self, native: Any, seed: int) -> None:
        self._native = native
        self._random = Random(seed)

    def _bytes(self) -> bytes:
        return self._random.randbytes(self._random.choice(SIZES))

    def _maybe(self, wrong: bool = False) -> Any:
        kinds: list[Callable[[], object]] = [lambda: None, self._bytes, lambda: bytearray(self._bytes())]
        kinds.append(lambda: memoryview(self._bytes()))
        if wrong:
            kinds.append(lambda: self._random.choice(WRONG))
        return self._random.choice(kinds)()

    def record(self) -> None:
        choose = self._random.choice
        limit, headers = choose((6, 10, 100, 10_000, 1 << 40)), self._bytes() or b"\0"
        arguments = (limit, choose(DELTAS), choose(DELTAS), self._maybe(True), self._maybe(True), headers)
        assert outcome(self._native.append_record, *arguments) == outcome(encode.append_record, *arguments), arguments

    def lists(self) -> None:
        count = self._random.randrange(1, 40)
        values, keys = [self._bytes() for _ in range(count)], [self._bytes() for _ in range(count)]
        key_column = self._random.choice((None, keys))
        start, delta, limit = self._random.randrange(count), self._random.choice((0, 3, 60)), 20_000
        lists = RecordLists(values, key_column, (), 0)
        expected = outcome(lists.append_to, limit, delta, 7, start, count)
        assert expected == outcome(self._native.append_lists, limit, delta, 7, key_column, values, b"\0", start, count)

    def rows(self) -> None:
        count = self._random.randrange(1, 40)
        keys, values = ([self._maybe() for _ in range(count)] for _ in range(2))
        keys, values = ([None if item is None else bytes(item) for item in column] for column in (keys, values))
        times = [self._random.randrange(1 << 40) for _ in range(count)]
        numbers = self._random.choice((None, self._random.sample(range(count), count)))
        order = range(count) if numbers is None else numbers
        columns = [
            (width, column.offset, *column.buffers())
            for width, kind, entries in ((4, pa.binary(), keys), (8, pa.large_binary(), values))
            for column in [pa.array([b"skipped", *entries], kind).slice(1)]
        ]
        buffers = None if numbers is None else pa.array(numbers, pa.int64()).buffers()[1]
        buffer = bytearray()
        size = self._native.append_rows(
            buffer, 1 << 40, 0, count, buffers, 0, pa.array(times, pa.int64()).buffers()[1], *columns, None
        )
        in_order = [[column[index] for index in order] for column in (times, keys, values)]
        assert size == (count, in_order[0][0], max(times))
        assert buffer == encode_records(in_order[0][0], *in_order)

    def damaged_rows(self) -> None:
        column = pa.array([self._bytes() for _ in range(5)], pa.binary())
        _, offsets, data = column.buffers()
        damaged = bytearray(offsets)
        for _ in range(self._random.randrange(1, 4)):
            damaged[self._random.randrange(len(damaged))] = self._random.randrange(256)
        first = self._random.choice((0, 0, 3, -1, 1 << 62))
        validity = self._random.choice((None, b"", b"\xff"))
        arguments = (
            self._random.choice((4, 8)),
            first,
            validity,
            bytes(damaged[: self._random.choice((24, 9, 0))]),
            data,
        )
        numbers = self._random.choice((None, self._random.randbytes(40)))
        before = bytearray(b"before")
        try:
            self._native.append_rows(before, 1 << 20, 0, 5, numbers, 0, None, None, arguments, None)
        except ValueError:
            assert before == b"before"

    def headers(self) -> None:
        choose = self._random.choice
        names = ("", "trace", "grün", "鍵", "\ud800", b"bytes", 5)
        headers: list[Any] = [(choose(names), choose((None, self._bytes(), "text"))) for _ in range(choose((0, 1, 70)))]
        if headers and choose((True, False)):
            headers = [(name, value) for name, value in headers if name in names[:4] and value != "text"]
        header_values = choose((headers, tuple(headers)))
        assert self._headers(self._native, header_values) == self._headers(encode, header_values), header_values

    @staticmethod
    def _headers(module: Any, header_values: object) -> object:
        try:
            return module.encode_headers(header_values)
        except (AttributeError, KeyError, TypeError, ValueError):
            return "raised"

    def key(self) -> None:
        key = self._random.randbytes(self._random.randrange(80))
        count = self._random.randrange(1, 1 << 31)
        assert self._native.murmur2(key) == encode.murmur2(key), key
        assert self._native.partition_for_key(key, count) == encode.partition_for_key(key, count), key


def main() -> None:
    loader = ExtensionFileLoader("encode", sys.argv[1])
    spec = spec_from_loader("encode", loader)
    assert spec is not None
    native = module_from_spec(spec)
    loader.exec_module(native)
    assert str(encode.__file__).endswith(".py"), "the reference must be plain Python: set AIOKAFKA_LITE_PURE=1"
    fuzzer = Fuzzer(native, seed=1)
    for _ in range(int(sys.argv[2])):
        for compare in (fuzzer.record, fuzzer.lists, fuzzer.rows, fuzzer.damaged_rows, fuzzer.headers, fuzzer.key):
            compare()


if __name__ == "__main__":
    main()
