"""Which schemas of Avro read each other's data, as the embedded registry decides it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from aiokafka_lite.embedded.registry.avro_compatibility import AvroSchema, incompatibilities


def record(*fields: Any, name: str = "shop.Order", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


COLOR = {"type": "enum", "name": "Color", "symbols": ["RED", "BLUE"]}
TREE = record(field("left", ["null", "Tree"]), name="Tree")


@pytest.mark.parametrize(
    "reader, writer, wrong",
    [
        ("long", "int", None),
        ("int", "long", "long cannot be read as int"),
        ("bytes", "string", None),
        (record(), record(field("id", "int")), None),
        (record(field("id", "int")), record(), "/fields/id: the field has no default value"),
        (record(field("id", "int", default=0)), record(), None),
        (record(field("number", "int", aliases=["id"])), record(field("id", "int")), None),
        (record(field("id", "string")), record(field("id", "int")), "/fields/id: int cannot be read as string"),
        (record(), record(name="shop.Bill"), "the name changed from shop.Bill to shop.Order"),
        (record(aliases=["shop.Bill"]), record(name="shop.Bill"), None),
        (record(name="other.Order"), record(), None),
        (["null", "int"], "int", None),
        ("int", ["null", "int"], "null cannot be read as int"),
        (["null", "string"], "int", "no type of the union reads it"),
        ({"type": "array", "items": "int"}, {"type": "array", "items": "string"}, "/items: string"),
        ({"type": "map", "values": "long"}, {"type": "map", "values": "int"}, None),
        ({"type": "array", "items": "int"}, {"type": "map", "values": "int"}, "map cannot be read as array"),
        ({"type": "array", "items": "int"}, "int", "int cannot be read as array"),
        ("int", {"type": "array", "items": "int"}, "array cannot be read as int"),
        ("int", record(), "shop.Order cannot be read as int"),
        ({**COLOR, "symbols": ["RED"]}, COLOR, "symbols are missing: ['BLUE']"),
        ({**COLOR, "symbols": ["RED"], "default": "RED"}, COLOR, None),
        ({"type": "fixed", "name": "F", "size": 4}, {"type": "fixed", "name": "F", "size": 8}, "size of fixed F"),
        (TREE, TREE, None),
        ({"type": "long", "logicalType": "timestamp-millis"}, "long", None),
    ],
)
def test_a_reader_schema_reads_what_a_writer_schema_wrote(reader: Any, writer: Any, wrong: str | None) -> None:
    texts = incompatibilities(AvroSchema(json.dumps(reader)), AvroSchema(json.dumps(writer)))
    assert [wrong in text for text in texts] == [True] if wrong else texts == []


@pytest.mark.parametrize("schema", ["lung", {"type": "record"}, {"items": "int"}, 5, {"type": "array"}])
def test_a_text_that_is_no_schema_is_refused(schema: Any) -> None:
    with pytest.raises(ValueError, match=r"defined|name|must be"):
        AvroSchema(json.dumps(schema))
