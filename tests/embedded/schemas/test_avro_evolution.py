"""Avro that was written with another schema than the reader's: the defaults of the reader, and schemas that Java
accepts in a registry."""

from __future__ import annotations

import json
import time as time_module
import uuid
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pytest

from aiokafka_lite.schemas import AvroDeserializer, AvroSerializer, Schema, SchemaRegistryClient
from tests.embedded.schemas.formats import finished
from tests.embedded.schemas.test_hostile_registry import registry_that_sends

ITEM = {
    "type": "record",
    "name": "Item",
    "fields": [
        {"name": "name", "type": "string"},
        {"name": "count", "type": "int", "default": 7},
        {"name": "image", "type": "bytes", "default": "\u00fe"},
    ],
}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}

DEFAULTS: dict[str, tuple[Any, Any, Any]] = {
    "bytes": ("bytes", "\u00ff", b"\xff"),
    "fixed": ({"type": "fixed", "name": "Pair", "size": 2}, "\u0001\u00ff", b"\x01\xff"),
    "timestamp": (MILLIS, 0, datetime(1970, 1, 1, tzinfo=UTC)),
    "date": ({"type": "int", "logicalType": "date"}, 1, date(1970, 1, 2)),
    "time": ({"type": "int", "logicalType": "time-millis"}, 1000, time(0, 0, 1)),
    "decimal": (DECIMAL, "\u0001", Decimal("0.01")),
    "uuid": ({"type": "string", "logicalType": "uuid"}, str(uuid.UUID(int=5)), uuid.UUID(int=5)),
    "double": ("double", 2, 2.0),
    "first of a union": ([MILLIS, "null"], 5, datetime(1970, 1, 1, 0, 0, 0, 5000, tzinfo=UTC)),
    "second of a union": (["null", "bytes"], "\u00ff", b"\xff"),
    "null": (["null", "bytes"], None, None),
    "array": ({"type": "array", "items": "bytes"}, ["\u00ff"], [b"\xff"]),
    "map": ({"type": "map", "values": MILLIS}, {"a": 0}, {"a": datetime(1970, 1, 1, tzinfo=UTC)}),
    "record": (ITEM, {"name": "tea"}, {"name": "tea", "count": 7, "image": b"\xfe"}),
    "array of records": (
        {"type": "array", "items": ITEM},
        [{"name": "tea", "count": 1}],
        [{"name": "tea", "count": 1, "image": b"\xfe"}],
    ),
    "enum": ({"type": "enum", "name": "Size", "symbols": ["SMALL", "LARGE"]}, "LARGE", "LARGE"),
}


def record(*fields: dict[str, Any], name: str = "shop.Order") -> dict[str, Any]:
    """Return the schema of an order with an id and these fields."""
    return {"type": "record", "name": name, "fields": [{"name": "id", "type": "int"}, *fields]}


async def written(registry: SchemaRegistryClient, schema: Any, data: object) -> bytes:
    """Return a value with its schema's id."""
    return await finished(AvroSerializer(registry, Schema(json.dumps(schema))).serialize("orders", data, []))


async def read(deserializer: AvroDeserializer[Any], data: bytes) -> Any:
    """Read a value."""
    return await finished(deserializer.deserialize("orders", data, ()))


@pytest.mark.parametrize(("avro_type", "default", "value"), DEFAULTS.values(), ids=DEFAULTS)
async def test_a_default_of_the_reader_has_the_python_type_of_its_field(
    registry: SchemaRegistryClient, avro_type: Any, default: Any, value: object
) -> None:
    data = await written(registry, record(), {"id": 1})
    reader = AvroDeserializer[Any](registry, record({"name": "new", "type": avro_type, "default": default}))
    order = await read(reader, data)
    assert order == {"id": 1, "new": value}
    assert repr(order["new"]) == repr(value)  # 2 == 2.0


async def test_a_default_inside_containers_and_in_several_types_is_converted(registry: SchemaRegistryClient) -> None:
    old_item = {**ITEM, "fields": ITEM["fields"][:1]}
    old = record({"name": "items", "type": {"type": "array", "items": old_item}}, {"name": "gift", "type": "Item"})
    new = record({"name": "items", "type": {"type": "array", "items": ITEM}}, {"name": "gift", "type": "Item"})
    data = await written(registry, old, {"id": 1, "items": [{"name": "tea"}], "gift": {"name": "cake"}})
    assert await read(AvroDeserializer[Any](registry, new), data) == {
        "id": 1,
        "items": [{"name": "tea", "count": 7, "image": b"\xfe"}],
        "gift": {"name": "cake", "count": 7, "image": b"\xfe"},
    }


@pytest.mark.parametrize("wrap", [lambda schema: schema, lambda schema: ["null", schema]], ids=["record", "union"])
async def test_records_share_no_default_that_a_program_may_change(registry: SchemaRegistryClient, wrap: Any) -> None:
    data = await written(registry, wrap(record()), {"id": 1})
    new = record(
        {"name": "tags", "type": {"type": "array", "items": {"type": "map", "values": "int"}}, "default": [{"a": 1}]},
        {"name": "counts", "type": {"type": "map", "values": "int"}, "default": {}},
        {"name": "gift", "type": ITEM, "default": {"name": "cake"}},
    )
    reader = AvroDeserializer[Any](registry, wrap(new))
    first = await read(reader, data)
    first["tags"][0]["a"] = 2
    first["tags"].append({})
    first["counts"]["tea"] = 1
    first["gift"]["name"] = "none"
    assert await read(reader, data) == {
        "id": 1,
        "tags": [{"a": 1}],
        "counts": {},
        "gift": {"name": "cake", "count": 7, "image": b"\xfe"},
    }


@pytest.mark.parametrize("kind", ["array", "map", "union"])
@pytest.mark.parametrize("name", ["Order", "shop.Order"])
async def test_a_reader_whose_schema_is_no_record_converts_defaults(
    registry: SchemaRegistryClient, kind: str, name: str
) -> None:
    def around(schema: Any) -> Any:
        if kind == "union":
            return ["null", schema]
        return {"type": kind, "items" if kind == "array" else "values": schema}

    def of(value: Any) -> Any:
        return {"array": [value, value], "map": {"a": value, "b": value}, "union": value}[kind]

    data = await written(registry, around(record(name=name)), of({"id": 1}))
    fields = {"name": "image", "type": "bytes", "default": "\u00ff"}, {"name": "at", "type": MILLIS, "default": 0}
    new = record(*fields, name=name)
    order = {"id": 1, "image": b"\xff", "at": datetime(1970, 1, 1, tzinfo=UTC)}
    assert await read(AvroDeserializer[Any](registry, around(new)), data) == of(order)


@pytest.mark.parametrize(
    "schema", [None, record({"name": "amount", "type": "int", "default": 3})], ids=["no schema of the reader", "other"]
)
async def test_a_writer_with_a_default_that_does_not_match_its_type_is_read(schema: Any) -> None:
    """Registries accepted such schemas until Confluent Platform 5.5. No read needs the defaults of the writer."""
    old = record({"name": "amount", "type": "int", "default": "none"})
    async with registry_that_sends(json.dumps({"schema": json.dumps(old)}).encode()) as registry:
        assert await read(AvroDeserializer[Any](registry, schema), b"\0\0\0\0\1\x02\x04") == {"id": 1, "amount": 2}


@pytest.mark.parametrize(
    "decimal",
    [
        {"type": "fixed", "name": "Amount", "size": 1, "logicalType": "decimal", "precision": 4},
        {"type": "fixed", "name": "Amount", "size": 1, "logicalType": "decimal", "precision": 2, "scale": 3},
        {"type": "fixed", "name": "Amount", "size": 1, "logicalType": "decimal", "scale": 1},
        {"type": "fixed", "name": "Amount", "size": 1, "logicalType": "decimal", "precision": 2, "scale": -1},
    ],
    ids=["too long", "scale above the precision", "no precision", "scale below 0"],
)
async def test_an_invalid_decimal_of_the_writer_is_read_as_bytes_as_java_does(
    registry: SchemaRegistryClient, decimal: dict[str, Any]
) -> None:
    schema = record({"name": "amount", "type": decimal})
    registered = await registry.register("orders-value", Schema(json.dumps(schema)))
    data = b"\0" + registered.schema_id.to_bytes(4, "big") + b"\x02\x05"
    assert await read(AvroDeserializer[Any](registry), data) == {"id": 1, "amount": b"\x05"}


async def test_a_reader_with_an_invalid_default_says_which_field(
    registry: SchemaRegistryClient,
) -> None:
    data = await written(registry, record(), {"id": 1})
    field = {"name": "day", "type": {"type": "int", "logicalType": "date"}, "default": 2**31 - 1}
    with pytest.raises(ValueError, match="day is missing, and its default does not match the schema"):
        await read(AvroDeserializer[Any](registry, record(field)), data)


UNIONS: dict[str, tuple[Any, Any, Any]] = {
    "long beside double": ("long", ["null", "double", "long"], 2**60 + 1),
    "int beside double": ("int", ["float", "long"], 2**31 - 1),
    "long of a union": (["null", "long"], ["null", "double", "long"], 2**60 + 1),
    "float beside double": ("float", ["double", "float"], 0.5),
    "str beside bytes": ("string", ["bytes", "string"], "tea"),
    "bytes beside str": (["string", "bytes"], ["null", "string", "bytes"], b"\xff"),
    "str beside bytes that are written too": (["string", "bytes"], ["null", "bytes", "string"], "tea"),
    "bytes in a list": ({"type": "array", "items": "bytes"}, ["null", {"type": "array", "items": "bytes"}], [b"tea"]),
    "items of a type": (
        {"type": "array", "items": "long"},
        {"type": "array", "items": ["double", "long"]},
        [2**60 + 1],
    ),
}


@pytest.mark.parametrize(("old", "new", "value"), UNIONS.values(), ids=UNIONS)
async def test_a_type_that_the_union_of_the_reader_has_is_not_converted(
    registry: SchemaRegistryClient, old: Any, new: Any, value: Any
) -> None:
    data = await written(registry, record({"name": "new", "type": old}), {"id": 1, "new": value})
    order = await read(AvroDeserializer[Any](registry, record({"name": "new", "type": new})), data)
    assert repr(order["new"]) == repr(value)


def version(namespace: str, *names: str, **settings: Any) -> dict[str, Any]:
    """Return a version of the record Order with these fields."""
    fields = [{"name": name, "type": "int", "default": 0} for name in names]
    return {"type": "record", "name": f"{namespace}.Order", "fields": fields, **settings}


@pytest.mark.parametrize("is_field", [False, True])
async def test_a_record_is_not_read_as_one_of_another_namespace_in_a_union(
    registry: SchemaRegistryClient, is_field: bool
) -> None:
    def around(union: list[Any]) -> Any:
        return record({"name": "new", "type": union}, name="shop.Event") if is_field else union

    old, new = version("v1", "a"), version("v2", "a", "b")
    reader = AvroDeserializer[Any](registry, around([version("v1", "a", "c"), new]))
    for value, result in (
        (("v1.Order", {"a": 1}), {"a": 1, "c": 0}),
        (("v2.Order", {"a": 1, "b": 2}), {"a": 1, "b": 2}),
    ):
        data = await written(registry, around([old, new]), {"id": 1, "new": value} if is_field else value)
        event = await read(reader, data)
        assert (event["new"] if is_field else event) == result


@pytest.mark.parametrize(
    ("old", "new", "result"),
    [
        (version("v0", "a"), [version("v1", "b"), version("v2", "a", "b")], {"b": 0}),
        (version("v0", "a"), version("v2", "a", "b"), {"a": 1, "b": 0}),
        (version("v0", "a"), [version("v1", "b"), version("v2", "a", "b", aliases=["v0.Bill"])], {"b": 0}),
        (version("v0", "a") | {"name": "v0.Bill"}, version("v2", "a", "b", aliases=["v0.Bill"]), {"a": 1, "b": 0}),
        (
            version("v0", "a") | {"name": "v0.Bill"},
            [version("v1", "b"), version("v2", "a", "b", aliases=["v0.Bill"])],
            {"a": 1, "b": 0},
        ),
    ],
    ids=["first of a union", "record", "first of a union, not the alias", "alias", "alias in a union"],
)
async def test_a_record_that_the_reader_does_not_have_is_read_as_one_of_its_name_or_alias(
    registry: SchemaRegistryClient, old: Any, new: Any, result: Any
) -> None:
    data = await written(registry, old, {"a": 1})
    assert await read(AvroDeserializer[Any](registry, new), data) == result


async def test_a_field_may_change_to_the_record_of_another_namespace(registry: SchemaRegistryClient) -> None:
    v1, v2 = version("v1", "a"), version("v2", "a", "b")
    old = record({"name": "x", "type": v1}, {"name": "y", "type": v2}, {"name": "z", "type": "v1.Order"})
    new = record({"name": "x", "type": v2}, {"name": "y", "type": "v2.Order"}, {"name": "z", "type": v1})
    data = await written(registry, old, {"id": 1, "x": {"a": 1}, "y": {"a": 2, "b": 3}, "z": {"a": 4}})
    order = await read(AvroDeserializer[Any](registry, new), data)
    assert order == {"id": 1, "x": {"a": 1, "b": 0}, "y": {"a": 2, "b": 3}, "z": {"a": 4}}


NEW_YEAR = datetime(2024, 1, 1, tzinfo=UTC)
MICROS = {"type": "long", "logicalType": "timestamp-micros"}
TIME = {"type": "long", "logicalType": "time-micros"}
DAY = {"type": "int", "logicalType": "date"}
UUID = {"type": "string", "logicalType": "uuid"}
FIVE = datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC)
LOGICAL: dict[str, tuple[Any, Any, Any, Any]] = {
    "new": ("long", MILLIS, 5000, FIVE),
    "new in a union": (["null", "long"], ["null", MILLIS], 5000, FIVE),
    "new decimal": ("bytes", DECIMAL, b"\x7b", Decimal("1.23")),
    "new uuid": ("string", UUID, str(uuid.UUID(int=5)), uuid.UUID(int=5)),
    "dropped": (MILLIS, "long", NEW_YEAR, int(NEW_YEAR.timestamp() * 1000)),
    "dropped in a union": (MILLIS, ["null", "long"], NEW_YEAR, int(NEW_YEAR.timestamp() * 1000)),
    "dropped decimal": (DECIMAL, "bytes", Decimal("1.23"), b"\x7b"),
    "converted": (DAY, "double", date(1970, 1, 3), 2.0),
    "other unit": (MILLIS, MICROS, NEW_YEAR, NEW_YEAR),
    "other unit and type": ({"type": "int", "logicalType": "time-millis"}, TIME, time(0, 0, 1), time(0, 0, 1)),
    "other scale": (DECIMAL, {**DECIMAL, "scale": 1}, Decimal("1.23"), Decimal("1.23")),
    "no longer local": ({"type": "long", "logicalType": "local-timestamp-micros"}, MILLIS, 5_000_000, FIVE),
    "another": (TIME, MILLIS, 5000, FIVE),
    "unknown": ({"type": "long", "logicalType": "ticks"}, MILLIS, 5000, FIVE),
    "dropped for an unknown one": (MILLIS, {"type": "long", "logicalType": "ticks"}, FIVE, 5000),
    "new with a larger type": ("int", ["null", MILLIS], 5000, FIVE),
    "new with a larger type in a union": (["int", "long"], MILLIS, 5000, FIVE),
    "new decimal of a str": ("string", DECIMAL, "{", Decimal("1.23")),
    "new uuid of bytes": ("bytes", UUID, str(uuid.UUID(int=5)).encode(), uuid.UUID(int=5)),
    "same": ({"type": "array", "items": MILLIS}, {"type": "array", "items": ["null", MILLIS]}, [NEW_YEAR], [NEW_YEAR]),
    "in a map": ({"type": "map", "values": "int"}, {"type": "map", "values": DAY}, {"a": 2}, {"a": date(1970, 1, 3)}),
    "in a record": (
        {"type": "record", "name": "Visit", "fields": [{"name": "day", "type": "int"}]},
        ["null", {"type": "record", "name": "Visit", "fields": [{"name": "on", "aliases": ["day"], "type": DAY}]}],
        {"day": 2},
        {"on": date(1970, 1, 3)},
    ),
    "fixed": (
        {"type": "fixed", "name": "Amount", "size": 2},
        {"type": "fixed", "name": "Amount", "size": 2, "logicalType": "decimal", "precision": 4, "scale": 1},
        b"\0\x0f",
        Decimal("1.5"),
    ),
}


@pytest.mark.parametrize(("old", "new", "value", "result"), LOGICAL.values(), ids=LOGICAL)
async def test_the_readers_schema_decides_on_the_logical_type(
    registry: SchemaRegistryClient, old: Any, new: Any, value: Any, result: Any
) -> None:
    data = await written(registry, record({"name": "at", "type": old}), {"id": 1, "at": value})
    order = await read(AvroDeserializer[Any](registry, record({"name": "at", "type": new})), data)
    assert repr(order["at"]) == repr(result)


@pytest.mark.parametrize("is_array", [False, True])
async def test_a_type_that_a_dropped_field_defined_has_the_logical_types_of_the_reader(
    registry: SchemaRegistryClient, is_array: bool
) -> None:
    def visit(at: Any) -> Any:
        return {"type": "record", "name": "Visit", "fields": [{"name": "at", "type": at}]}

    first = {"type": "array", "items": visit("long")} if is_array else visit("long")
    old = record({"name": "first", "type": first}, {"name": "last", "type": "Visit"})
    value = {"id": 1, "first": [{"at": 0}] if is_array else {"at": 0}, "last": {"at": 5000}}
    data = await written(registry, old, value)
    new = record({"name": "last", "type": visit(MILLIS)})
    assert await read(AvroDeserializer[Any](registry, new), data) == {"id": 1, "last": {"at": FIVE}}


async def test_many_defaults_take_little_time(registry: SchemaRegistryClient) -> None:
    fields = [{"name": f"f{number}", "type": ["null", "bytes"], "default": None} for number in range(6_000)]
    data = await written(registry, record(), {"id": 1})
    reader = AvroDeserializer[Any](registry, record(*fields))
    began = time_module.perf_counter()
    assert len(await read(reader, data)) == 6_001
    assert time_module.perf_counter() - began < 5  # 0.3 s here; the bound only excludes a time that is quadratic
