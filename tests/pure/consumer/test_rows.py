"""Records from columns: the same from C and from Python, and no work of the garbage collector for records of bytes."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import build_backend
from aiokafka_lite.compiled import COMPILED
from aiokafka_lite.consumer import rows
from aiokafka_lite.consumer.chunk import Chunk
from aiokafka_lite.consumer.columns import take
from aiokafka_lite.protocol.records import encode_batch, split_batches
from aiokafka_lite.types import Header, Record, ShareRecord, TimestampType, TopicPartition

compiled_only = pytest.mark.skipif(not COMPILED, reason="no module is compiled here; `make build` compiles them")

CONSTANTS = ("orders", 3, TimestampType.CREATE_TIME, 5)
HEADERS = (Header("source", b"checkout"),)
IterateRows = Callable[..., Iterator[Any]]


def rows_of_python() -> ModuleType:
    path = Path(build_backend.ROOT, "aiokafka_lite/consumer/rows.py")
    spec = spec_from_file_location("aiokafka_lite.consumer.plain_rows", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


each_build = pytest.mark.parametrize(
    "iterate_rows", [rows.iterate_rows, rows_of_python().iterate_rows], ids=["this build", "plain Python"]
)


def columns(**changes: object) -> dict[str, object]:
    return {
        "offsets": [10, 11, 13],
        "timestamps": [1_700_000_000_000, -1, 0],
        "keys": [b"a", None, b""],
        "values": [b"1", b"2", None],
        "headers": [(), HEADERS, ()],
        **changes,
    }


@each_build
def test_each_row_becomes_a_record(iterate_rows: IterateRows) -> None:
    kind = TimestampType.CREATE_TIME
    expected = [
        Record("orders", 3, 10, 1_700_000_000_000, kind, b"a", b"1", (), 5),
        Record("orders", 3, 11, -1, kind, None, b"2", HEADERS, 5),
        Record("orders", 3, 13, 0, kind, b"", None, (), 5),
    ]
    records = list(iterate_rows(Record, CONSTANTS, *columns().values()))
    assert records == expected
    assert list(map(type, records)) == [Record] * 3
    assert list(map(hash, records)) == list(map(hash, expected))
    assert records[0]._replace(value=b"x").value == b"x"
    shared = list(iterate_rows(ShareRecord, (*CONSTANTS, 2), *columns().values()))
    assert shared == [ShareRecord(*record, delivery_count=2) for record in expected]


@each_build
def test_the_end_is_the_end_of_the_shortest_column(iterate_rows: IterateRows) -> None:
    for short in ("timestamps", "keys", "values", "headers"):
        cut = columns(**{short: columns()[short][:2]})  # type: ignore[index]
        assert [record.offset for record in iterate_rows(Record, CONSTANTS, *cut.values())] == [10, 11]
    values = [b"1", b"2", b"3"]
    records = iterate_rows(Record, CONSTANTS, *columns(values=values).values())
    assert next(records).value == b"1"
    values.clear()
    assert list(records) == []


@each_build
def test_an_iterator_over_offsets_shows_how_many_records_were_made(iterate_rows: IterateRows) -> None:
    offsets = iter([10, 11, 13])
    records = iterate_rows(Record, CONSTANTS, *columns(offsets=offsets).values())
    assert next(records).offset == 10
    assert offsets.__length_hint__() == 2  # type: ignore[attr-defined]
    assert [record.offset for record in records] == [11, 13]


@pytest.mark.parametrize("module", [rows, rows_of_python()], ids=["this build", "plain Python"])
def test_a_list_of_rows_has_the_records_of_these_rows(module: ModuleType) -> None:
    lists = tuple(columns().values())
    every = list(module.iterate_rows(Record, CONSTANTS, *lists))
    for start, stop in ((0, 3), (1, 2), (1, 3), (3, 3)):
        assert module.list_rows(Record, CONSTANTS, lists, start, stop) == every[start:stop]
    column: list[int] = []
    assert module.collectable(column) is column


@compiled_only
def test_rows_that_the_lists_do_not_have_are_refused() -> None:
    for start, stop in ((-1, 2), (2, 1), (0, 4)):
        with pytest.raises(IndexError, match="no rows"):
            rows.list_rows(Record, CONSTANTS, tuple(columns().values()), start, stop)  # type: ignore[arg-type]


@compiled_only
def test_the_garbage_collector_sees_decoded_columns_only_when_a_program_has_them() -> None:
    data = encode_batch([(1_700_000_000_000, None, b"value", ())] * 3)
    decoded = split_batches(data)[0].columns()
    chunk = Chunk(TopicPartition("orders", 3), split_batches(data)[0], decoded, 0)
    assert [gc.is_tracked(column) for column in (chunk.offsets, chunk.values)] == [False, False]
    batch = take(chunk, 3)
    assert [gc.is_tracked(column) for column in (batch.offsets, batch.timestamps, batch.keys, batch.values)] == [
        True
    ] * 4


@compiled_only
def test_the_garbage_collector_looks_only_at_records_that_can_be_part_of_a_cycle() -> None:
    plain = rows.iterate_rows(Record, CONSTANTS, *columns().values())  # type: ignore[arg-type]
    assert [gc.is_tracked(record) for record in plain] == [False] * 3
    parsed: list[object] = [b"1", {"deserialized": True}, None]
    mixed = rows.iterate_rows(Record, CONSTANTS, *columns(values=parsed).values())  # type: ignore[arg-type]
    assert [gc.is_tracked(record) for record in mixed] == [False, True, False]


@compiled_only
def test_no_reference_is_lost_or_kept() -> None:
    value, headers = bytes(100), (Header("a", None),)
    of_columns = columns(values=[value] * 3, headers=[headers] * 3)
    counts = [sys.getrefcount(counted) for counted in (value, headers, Record)]
    for _ in range(10):
        records = rows.iterate_rows(Record, CONSTANTS, *of_columns.values())  # type: ignore[arg-type]
        kept = [next(records), list(records)]
        del records, kept
    assert [sys.getrefcount(counted) for counted in (value, headers, Record)] == counts


@compiled_only
def test_a_class_that_is_no_plain_tuple_is_refused() -> None:
    class WithAttributes(tuple[object, ...]):  # noqa: SLOT001 - that is the point
        pass

    for kind in (int, tuple, WithAttributes):
        with pytest.raises(TypeError, match="NamedTuple"):
            rows.iterate_rows(kind, CONSTANTS, *columns().values())  # type: ignore[arg-type]
