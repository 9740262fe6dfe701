"""JSON Schema: values that JSON cannot hold, references by name and by id, and schemas of unknown drafts."""

from __future__ import annotations

import enum
import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from aiokafka_lite import Producer
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import SerializationError
from aiokafka_lite.schemas import (
    JsonSchemaDeserializer,
    JsonSchemaSerializer,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
)
from tests.embedded.schemas.formats import finished

ANYTHING: dict[str, Any] = {"title": "Anything"}


async def refusal(
    registry: SchemaRegistryClient, data: object, *, validate: bool = True, schema: Any = ANYTHING
) -> str:
    serializer = JsonSchemaSerializer(registry, schema, validate=validate)
    with pytest.raises(ValueError, match=r".+") as caught:
        await finished(serializer.serialize("orders", data, []))
    return str(caught.value)


class Level(enum.IntEnum):
    HIGH = 2


CIRCLE: list[Any] = []
CIRCLE.append(CIRCLE)


@pytest.mark.parametrize("validate", [True, False])
async def test_a_value_that_json_cannot_hold_is_refused_with_its_place(
    registry: SchemaRegistryClient, *, validate: bool
) -> None:
    for data, text in (
        ({"a": [1, float("nan")]}, "a[1] must be a finite number: JSON has no NaN and no infinity, got nan"),
        ({"a": float("-inf")}, "a must be a finite number"),
        ({"price": Decimal("1.50")}, "a Decimal is no JSON: pass str(...), or float(...) if digits may be lost"),
        ({"at": datetime(2026, 11, 28, tzinfo=UTC)}, "JSON has no dates and times: pass isoformat()"),
        ({"a": {1: "x"}}, "a must be a dict whose keys are of type str, got {1: 'x'}"),
        ({"two words": {None: 1}}, "['two words'] must be a dict whose keys"),
        ({"a": b"x"}, "a must be a str, a number, a bool, None, a list or a dict, got b'x'"),
        ({"a": {1, 2}}, "a must be a str, a number"),
        ({"a": "\ud800"}, "a must be a str that UTF-8 can hold"),
        ({"\ud800": 1}, "a str that UTF-8 can hold"),
        (CIRCLE, " is nested too deeply, or contains itself"),
    ):
        assert text in await refusal(registry, data, validate=validate)
    data = {"a": [1, 2.5, True, None, "ä", Level.HIGH, 2**70]}
    written = await finished(JsonSchemaSerializer(registry, ANYTHING).serialize("orders", data, []))
    assert written[5:] == b'{"a":[1,2.5,true,null,"\xc3\xa4",2,1180591620717411303424]}'
    assert await finished(JsonSchemaDeserializer(registry).deserialize("orders", written, ())) == data


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("integer", 19.99),
        ("integer", "7"),
        ("integer", True),
        ("number", "1"),
        ("boolean", 1),
        ("string", 1),
        ("null", 0),
    ],
)
async def test_a_value_of_another_type_is_refused(registry: SchemaRegistryClient, kind: str, value: object) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "array", "items": {"type": kind}}}}
    assert f"is not of type '{kind}' at $.a[0]" in await refusal(registry, {"a": [value]}, schema=schema)


@pytest.mark.parametrize("part", ["key", "value"])
async def test_a_property_that_the_schema_does_not_allow_is_named(
    cluster: EmbeddedCluster, registry: SchemaRegistryClient, part: str
) -> None:
    schema = {"type": "object", "properties": {"note": {"type": "string"}}, "additionalProperties": False}
    arguments: Any = {f"{part}_serializer": JsonSchemaSerializer(registry, schema)}
    async with Producer(cluster.bootstrap_servers, **arguments) as producer:
        with pytest.raises(SerializationError, match=r"\('nte' was unexpected\)"):
            data: Any = {"nte": "leave at the door"}
            await (producer.send("orders", data) if part == "value" else producer.send("orders", b"", key=data))


DIALECTS = {
    "none": {},
    "draft 4": {"$schema": "http://json-schema.org/draft-04/schema#"},
    "draft 7 with https": {"$schema": "https://json-schema.org/draft-07/schema"},
    "2019-09": {"$schema": "https://json-schema.org/draft/2019-09/schema"},
    "2020-12": {"$schema": "https://json-schema.org/draft/2020-12/schema"},
}
ITEM: dict[str, Any] = {"type": "object", "required": ["name"], "definitions": {"price": {"type": "number"}}}
REFERENCES = {  # the id of the order, the name and the id of the item, and the $ref in the order
    "name": (None, "item.json", None, "item.json"),
    "dotted name": (None, "item.json", None, "./item.json"),
    "name with a folder": (None, "shop/item.json", None, "shop/item.json"),
    "absolute name": (None, "http://shop/item.json", None, "http://shop/item.json"),
    "urn": (None, "urn:shop:item", "urn:shop:item", "urn:shop:item"),
    "name relative to the id": ("http://shop/v1/order.json", "item.json", None, "item.json"),
    "name in a folder of the id": ("http://shop/v1/order.json", "parts/item.json", None, "parts/item.json"),
    "name above the id": ("http://shop/v1/order.json", "../item.json", None, "../item.json"),
    "absolute ref, relative name": ("http://shop/v1/order.json", "item.json", None, "http://shop/v1/item.json"),
    "absolute name, relative ref": ("http://shop/v1/order.json", "http://shop/v1/item.json", None, "item.json"),
    "both have ids": ("http://shop/order.json", "item.json", "http://shop/item.json", "item.json"),
    "an id elsewhere": ("http://shop/order.json", "item.json", "http://else/where.json", "item.json"),
    "the id is referred to": (None, "any name", "http://else/where.json", "http://else/where.json"),
}


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
@pytest.mark.parametrize("case", REFERENCES.values(), ids=REFERENCES)
async def test_a_reference_is_found_by_its_name_and_by_its_id(
    registry: SchemaRegistryClient, case: tuple[str | None, str, str | None, str], dialect: dict[str, str]
) -> None:
    order_id, name, item_id, ref = case
    key = "id" if "draft-04" in str(dialect) else "$id"
    item = {**ITEM, **({key: item_id} if item_id else {}), **dialect}
    order: dict[str, Any] = {
        **dialect,
        **({key: order_id} if order_id else {}),
        "type": "object",
        "properties": {
            "item": {"$ref": ref},
            "price": {"$ref": f"{ref}#/definitions/price"},
            "tip": {"$ref": f"{ref}#/$defs/price"},
        },
    }
    await registry.register("item", Schema(json.dumps(item), "JSON"))
    schema = Schema(json.dumps(order), "JSON", (SchemaReference(name, "item", 1),))
    value = {"item": {"name": "tea"}, "price": 1.5, "tip": 1}
    serializer = JsonSchemaSerializer(registry, schema)
    data = await finished(serializer.serialize("orders", value, []))
    assert await finished(JsonSchemaDeserializer(registry).deserialize("orders", data, ())) == value
    for wrong, place in (({"item": {}}, r"\$\.item"), ({"price": "x"}, r"\$\.price"), ({"tip": "x"}, r"\$\.tip")):
        with pytest.raises(ValueError, match=place):
            serializer.serialize("orders", wrong, [])


async def test_a_reference_may_refer_to_another_one(registry: SchemaRegistryClient) -> None:
    colour = {"enum": ["red"]}
    await registry.register("colour", Schema(json.dumps(colour), "JSON"))
    item = {"$id": "http://shop/parts/item.json", "properties": {"colour": {"$ref": "colour.json"}}}
    to_colour = SchemaReference("colour.json", "colour", 1)
    await registry.register("item", Schema(json.dumps(item), "JSON", (to_colour,)))
    order = {"$id": "http://shop/order.json", "properties": {"item": {"$ref": "parts/item.json"}}}
    schema = Schema(json.dumps(order), "JSON", (SchemaReference("parts/item.json", "item", 1),))
    serializer = JsonSchemaSerializer(registry, schema)
    assert await finished(serializer.serialize("orders", {"item": {"colour": "red"}}, []))
    with pytest.raises(ValueError, match=r"'blue' is not one of \['red'\] at \$\.item\.colour"):
        serializer.serialize("orders", {"item": {"colour": "blue"}}, [])


async def test_a_reference_to_the_schema_of_schemas_needs_no_registry(registry: SchemaRegistryClient) -> None:
    schema = {"properties": {"schema": {"$ref": "http://json-schema.org/draft-07/schema#"}}}
    assert "is not valid under any" in await refusal(registry, {"schema": {"type": "objekt"}}, schema=schema)


async def test_a_reference_that_is_missing_is_named(registry: SchemaRegistryClient) -> None:
    written_with = await registry.register("orders-value", Schema(json.dumps(ANYTHING), "JSON"))
    reader = JsonSchemaDeserializer(registry, {"properties": {"item": {"$ref": "item.json"}}})
    data = b"\0" + written_with.schema_id.to_bytes(4, "big") + b'{"item": 1}'
    with pytest.raises(ValueError, match=r"the schema refers to 'item\.json', and no reference has this name"):
        await finished(reader.deserialize("orders", data, ()))


async def test_an_unknown_draft_is_a_warning(registry: SchemaRegistryClient, caplog: pytest.LogCaptureFixture) -> None:
    schema = {"$schema": "http://shop.example/schema", "properties": {"id": {"type": "integer"}}}
    data = await finished(JsonSchemaSerializer(registry, schema).serialize("orders", {"id": 7}, []))
    assert caplog.messages == ["the $schema 'http://shop.example/schema' is not known; the data is checked as draft 7"]
    assert await finished(JsonSchemaDeserializer(registry).deserialize("orders", data, ())) == {"id": 7}
    for dialect in DIALECTS.values():
        caplog.clear()
        assert await finished(JsonSchemaSerializer(registry, {**dialect, "title": "O"}).serialize("others", {}, []))
        assert not caplog.messages
