"""The compiled build and plain Python do the same: equal bytes, equal records, and equal errors for damaged input."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import aiokafka_lite.protocol
from aiokafka_lite.compiled import COMPILED, SourceFinder
from aiokafka_lite.errors import KafkaError
from aiokafka_lite.protocol import records
from aiokafka_lite.protocol.records import scan, varint

pytestmark = pytest.mark.skipif(not COMPILED, reason="no module is compiled here; `make build` compiles them")

PROTOCOL = Path(aiokafka_lite.protocol.__path__[0])


class Build(NamedTuple):
    """The modules of one build."""

    records: ModuleType
    scan: ModuleType
    varint: ModuleType


THIS = Build(records, scan, varint)


@cache
def plain() -> Build:
    """Return the same modules as plain Python: loaded from their sources under other names, in this process."""
    package = "aiokafka_lite.protocol.plain_records"
    sys.meta_path.insert(0, SourceFinder(package))
    spec = spec_from_file_location(package, PROTOCOL / "records" / "__init__.py")
    assert spec is not None
    assert spec.loader is not None
    sys.modules[package] = module_from_spec(spec)
    spec.loader.exec_module(sys.modules[package])
    build = Build(*map(import_module, (package, f"{package}.scan", f"{package}.varint")))
    assert all(
        str(module.__file__).endswith(".py")
        for module in (*build, build.records.batch, build.records.build, build.records.record_format)
    )
    return build


DATA = st.none() | st.binary(max_size=40) | st.binary(min_size=60, max_size=300)
HEADERS = st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=20)), max_size=3)
TIMES = st.integers(0, 10**13) | st.integers(0, (1 << 63) - 1)
ROWS = st.lists(st.tuples(TIMES, DATA, DATA, HEADERS), min_size=1, max_size=12)
Row = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]
Outcome = tuple[str, object]


def outcome(function: Callable[[], object]) -> Outcome:
    """Return the result, or the type and the text of the error."""
    try:
        return "returned", function()
    except (KafkaError, ValueError, OverflowError) as error:
        return type(error).__name__, str(error)


def columns_of(build: Build, data: bytes) -> Outcome:
    def decode() -> object:
        outcomes = []
        for batch in build.records.split_batches(data):
            columns = batch.columns()
            outcomes.append(
                (
                    columns.offsets,
                    columns.timestamps,
                    columns.keys,
                    columns.values,
                    columns.headers,
                    columns.header_count,
                )
            )
        return outcomes

    return outcome(decode)


def spans_of(build: Build, data: bytes) -> Outcome:
    return outcome(
        lambda: [
            [tuple(span) for span in build.scan.scan(batch, batch.body())]
            for batch in build.records.split_batches(data)
            if batch.magic == 2
        ]
    )


def decoded(build: Build, body: bytes, count: int, base_timestamp: int = 0, first_delta: int = 0) -> Outcome:
    def decode() -> object:
        columns, end = build.records.decode_records(body, 0, count, 5, base_timestamp, None, first_delta)
        return columns.offsets, columns.timestamps, columns.keys, columns.values, columns.headers, end

    return outcome(decode)


def damaged(data: bytes, damages: list[tuple[int, int]]) -> bytes:
    changed = bytearray(data)
    for position, value in damages:
        changed[position % len(changed)] = value
    return bytes(changed)


@given(ROWS, st.integers(70, 2000))
def test_both_builds_encode_the_same_bytes(rows: list[Row], max_size: int) -> None:
    def encode(build: Build) -> Outcome:
        builder = build.records.BatchBuilder(max_size=max_size)
        return outcome(lambda: ([builder.append(*row) for row in rows], builder.build(7, 1, 5), builder.size))

    assert encode(THIS) == encode(plain())


@given(ROWS, st.sampled_from(["NONE", "GZIP", "LZ4"]))
def test_both_builds_decode_the_same_records(rows: list[Row], codec: str) -> None:
    data = records.encode_batch(rows, base_offset=3, compression=records.build.Compression[codec])
    assert columns_of(THIS, data) == columns_of(plain(), data)
    assert columns_of(THIS, data)[0] == "returned"
    assert spans_of(THIS, data) == spans_of(plain(), data)


@given(ROWS, st.lists(st.tuples(st.integers(61, 4000), st.integers(0, 255)), min_size=1, max_size=4))
def test_both_builds_have_the_same_error_for_damaged_records(rows: list[Row], damages: list[tuple[int, int]]) -> None:
    data = records.encode_batch(rows)
    data = data[:61] + damaged(data[61:], damages)
    assert columns_of(THIS, data) == columns_of(plain(), data)
    assert spans_of(THIS, data) == spans_of(plain(), data)


@given(ROWS, st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 255)), max_size=4), st.integers(0, 80))
def test_both_builds_have_the_same_error_for_damaged_and_short_batches(
    rows: list[Row], damages: list[tuple[int, int]], cut: int
) -> None:
    data = damaged(records.encode_batch(rows), damages)
    data = data[: len(data) - cut]
    assert columns_of(THIS, data) == columns_of(plain(), data)


@given(st.binary(max_size=120), st.integers(0, 3))
@example(bytes((13, 0, 0, 0, 1, 1, 0)), 1)  # a negative length of the record
@example(bytes((36, 0, 0, 0, 1, 1, 2, 0, 20)), 1)  # a header's value that ends after the data
def test_both_builds_read_the_same_from_any_bytes(body: bytes, count: int) -> None:
    def decode(build: Build) -> list[Outcome]:
        return [
            decoded(build, body, count, (1 << 62) - 1),
            outcome(lambda: build.varint.read_raw_varint(body, 0)),
            outcome(lambda: build.varint.read_raw_varlong(body, 0)),
        ]

    assert decode(THIS) == decode(plain())


@given(st.lists(st.integers(-70, 9000), min_size=1, max_size=4), st.integers(0, 2))
@example([0, 0], 0)  # repeated
@example([1, 0], 0)  # lower
@example([0, -1], 0)
@example([0, 2], 0)  # a gap, as compaction leaves it
@example([0], 1)
def test_both_builds_accept_the_same_offset_deltas(deltas: list[int], first_delta: int) -> None:
    body = bytes(records.encode_records(0, deltas, [None] * len(deltas), [None] * len(deltas), offset_deltas=deltas))
    outcome = decoded(THIS, body, len(deltas), first_delta=first_delta)
    assert outcome == decoded(plain(), body, len(deltas), first_delta=first_delta)
    increasing = all(low < high for low, high in pairwise([first_delta - 1, *deltas]))
    assert outcome[0] == ("returned" if increasing else "CorruptRecord")


INT64 = st.integers(-(1 << 63), (1 << 63) - 1)


@given(INT64, INT64)
@example((1 << 63) - 1, 1)
@example(-(1 << 63), -1)
def test_both_builds_accept_timestamps_of_64_bits(base: int, delta: int) -> None:
    body = bytes(records.encode_records(0, [delta], [None], [None]))
    outcome = decoded(THIS, body, 1, base)
    assert outcome == decoded(plain(), body, 1, base)
    assert outcome[0] == ("returned" if -(1 << 63) <= base + delta < 1 << 63 else "CorruptRecord")


@given(st.binary(max_size=100) | st.binary(min_size=250, max_size=300))
def test_both_builds_hash_keys_alike(key: bytes) -> None:
    for data in (key, bytearray(key), memoryview(key)):
        assert records.murmur2(data) == plain().records.murmur2(data)


@given(st.integers(-(1 << 64), 1 << 64) | st.integers(-9000, 9000))
def test_both_builds_encode_the_same_numbers(number: int) -> None:
    def encode(build: Build) -> list[Outcome]:
        return [outcome(lambda: build.varint.encode_varint(number)), outcome(lambda: build.varint.ENCODINGS[number])]

    assert encode(THIS) == encode(plain())
