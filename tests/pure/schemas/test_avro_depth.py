"""Data that is nested too deeply is refused before fastavro reads it, which would end the process."""

from __future__ import annotations

from typing import Any

import pytest

from aiokafka_lite.schemas.avro_depth import DEEPEST, MOST_EMPTY, depth_check
from aiokafka_lite.schemas.avro_names import resolved
from aiokafka_lite.schemas.avro_writing import writer

NODE = {
    "type": "record",
    "name": "Node",
    "namespace": "shop",
    "fields": [
        {"name": "name", "type": ["null", "string"]},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "id", "type": {"type": "fixed", "name": "Id", "size": 3}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": "double"},
        {"name": "kinds", "type": {"type": "array", "items": "Kind"}},
        {"name": "children", "type": {"type": "map", "values": {"type": "array", "items": "Node"}}},
    ],
}


def node(**children: Any) -> dict[str, Any]:
    return {
        "name": "x" * 70,
        "kind": "B",
        "id": b"abc",
        "at": 5,
        "price": 2.5,
        "kinds": ["A"] * 70,
        "children": children,
    }


def chain(depth: int) -> bytes:
    """Return records of the type ["null", itself] inside each other."""
    return b"\x02" * depth + b"\0"


CHAIN = {"type": "record", "name": "Chain", "fields": [{"name": "next", "type": ["null", "Chain"]}]}


def test_data_that_is_nested_too_deeply_is_refused() -> None:
    check = depth_check(resolved(CHAIN))
    assert check is not None
    check(b"12345" + chain(DEEPEST // 2 - 2), 5)
    for depth in (DEEPEST // 2 + 2, 1_000_000):
        with pytest.raises(ValueError, match=f"the data is nested more than {DEEPEST} levels deep"):
            check(b"12345" + chain(depth), 5)


def test_a_record_that_always_contains_another_one_is_refused_without_any_bytes() -> None:
    check = depth_check(resolved({"type": "record", "name": "A", "fields": [{"name": "a", "type": "A"}]}))
    assert check is not None
    with pytest.raises(ValueError, match="levels deep"):
        check(b"", 0)


def test_the_walk_ends_where_the_data_ends() -> None:
    inner = node(a=[node(), node(b=[])], b=[node(c=[node()])])
    schema = resolved(NODE)
    check = depth_check(schema)
    assert check is not None
    data = writer(schema)(inner)
    assert len(data) > 400
    check(data, 0)
    for end in range(0, len(data), 7):
        check(data[:end], 0)
    # The last node may be followed by one that is too deep, if the walk has read all before it.
    pair = resolved(
        {"type": "record", "name": "Pair", "fields": [{"name": "a", "type": NODE}, {"name": "b", "type": CHAIN}]}
    )
    check_pair = depth_check(pair)
    assert check_pair is not None
    with pytest.raises(ValueError, match="nested more than"):
        check_pair(data + chain(DEEPEST), 0)


def test_damaged_data_is_left_to_the_reader() -> None:
    check = depth_check(resolved({"type": "array", "items": CHAIN}))
    assert check is not None
    for data in (
        b"\xff" * 2000,
        b"\x03" * 2000,
        b"\x04" * 2000,
        b"\x01" + b"\x80" * 2000,
        b"\xfe\xff\xff\xff\x0f" + b"\0" * 2000,
    ):
        check(data, 0)


def test_a_schema_that_does_not_contain_itself_needs_no_check() -> None:
    item = {"type": "record", "name": "Item", "fields": [{"name": "x", "type": "int"}]}
    twice = {"type": "record", "name": "R", "fields": [{"name": "a", "type": item}, {"name": "b", "type": "Item"}]}
    for schema in ("string", ["null", "int"], twice, {"type": "map", "values": twice}):
        assert depth_check(resolved(schema)) is None


EMPTY = {"type": "record", "name": "Empty", "fields": [{"name": "x", "type": "null"}]}


@pytest.mark.parametrize(
    "items", ["null", EMPTY, {"type": "fixed", "name": "F", "size": 0}], ids=["null", "record", "0"]
)
def test_many_items_without_bytes_are_refused(items: Any) -> None:
    schema = resolved(
        {"type": "record", "name": "R", "fields": [{"name": "f", "type": {"type": "array", "items": items}}]}
    )
    check = depth_check(schema)
    assert check is not None
    check(b"\x04\0", 0)
    with pytest.raises(ValueError, match=f"arrays with more than {MOST_EMPTY} items without bytes"):
        check(b"\x80\x80\x80\x10\0", 0)
    with pytest.raises(ValueError, match="items without bytes"):
        check(b"\x80\x10" * 100 + b"\0", 0)
