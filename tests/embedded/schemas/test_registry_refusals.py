"""The embedded registry refuses the schemas that a real one refuses."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from aiokafka_lite.embedded.registry.referring_schemas import KNOWN_IMPORTS
from aiokafka_lite.errors import SchemaRegistryError
from aiokafka_lite.schemas import Schema, SchemaReference, SchemaRegistryClient
from aiokafka_lite.schemas.protobuf import BUILT_IN


def record(*fields: Any, name: str = "R") -> Any:
    return {"type": "record", "name": name, "fields": list(fields)}


def field(name: str, kind: Any = "int") -> Any:
    return {"name": name, "type": kind}


ENUM = {"type": "enum", "name": "E", "symbols": ["A"]}


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (["int", {"type": "int", "logicalType": "date"}], "a union has the type 'int' twice"),
        (["null", record(), record()], "a union has the type 'R' twice"),
        (record(field("a"), field("a")), "R has the field 'a' twice"),
        ({"type": "enum", "name": "E", "symbols": ["A", "A"]}, "E has the symbol 'A' twice"),
        ({"type": "enum", "name": "E"}, "symbols"),
        ({"type": "fixed", "name": "F"}, "size"),
        ({"type": "record", "name": "R"}, "fields"),
        (record(name="a-b"), "the name 'a-b' has other characters"),
        (record(field("a", ENUM), field("b", {**ENUM, "symbols": ["B"]})), "the type 'E' is defined twice"),
        *(
            (record({**field("a", kind), "default": wrong}), "of R.a is wrong")
            for kind, wrong in (
                *(("int", "x"), ("int", True), ("int", 2**31), ("int", 1.5), ("int", None), ("long", 2**63)),
                *(("double", "NaN"), ("string", 1), ("bytes", 1), ("boolean", 0), ("null", 0), (ENUM, 1)),
                *(
                    (["null", "int"], "x"),
                    ({"type": "array", "items": "int"}, ["x"]),
                    ({"type": "array", "items": "int"}, {}),
                ),
                *(({"type": "map", "values": "int"}, {"a": "x"}), (record(field("b"), name="B"), {})),
            )
        ),
        (record(field("a", "Unknown")), "the type 'Unknown' is not defined"),
    ],
)
async def test_a_schema_that_is_no_avro_is_refused(registry: SchemaRegistryClient, schema: Any, reason: str) -> None:
    with pytest.raises(SchemaRegistryError, match="Invalid schema") as caught:
        await registry.register("orders-value", Schema(json.dumps(schema)))
    assert caught.value.code == 42201
    assert reason in str(caught.value)


def descriptor(*imports: str) -> str:
    file = FileDescriptorProto(name="acme/report.proto", package="acme", dependency=imports)
    file.message_type.add(name="Report")
    return base64.b64encode(file.SerializeToString()).decode()


def text(*imports: str) -> str:
    lines = [f'import "{name}"; // import "no.proto";' for name in imports]
    return "\n".join(['syntax = "proto3";', *lines, '/* import "no.proto"; */ message Report { string a = 1; }'])


def test_the_serializer_and_the_registry_know_the_same_files() -> None:
    assert BUILT_IN == KNOWN_IMPORTS


@pytest.mark.parametrize("form", [descriptor, text])
async def test_an_import_that_the_registry_does_not_have_must_be_a_reference(
    registry: SchemaRegistryClient, form: Any
) -> None:
    built_in = ("google/protobuf/timestamp.proto", "google/type/money.proto", "confluent/meta.proto")
    await registry.register("known", Schema(form(*built_in), "PROTOBUF"))
    for name in ("google/rpc/status.proto", "google/api/annotations.proto", "google/type/localized_text.proto"):
        schema = Schema(form(*built_in, name), "PROTOBUF")
        answer = await registry.check_compatibility("known", schema)
        assert not answer.is_compatible
        assert f"{name} is not found" in answer.messages[0]
        for call in (registry.register, registry.lookup):
            with pytest.raises(SchemaRegistryError, match=f"{name} is not found"):
                await call("known", schema)
        await registry.register(name, Schema(form(), "PROTOBUF"))
        reference = SchemaReference(name, name, 1)
        assert await registry.register(f"with {name}", Schema(schema.text, "PROTOBUF", (reference,)))


@pytest.mark.parametrize("schema", ["no schema", "message A {", '{"type": "object"}', "AAAA", "CgR4"])
async def test_a_text_that_is_no_protobuf_file_is_refused(registry: SchemaRegistryClient, schema: str) -> None:
    with pytest.raises(SchemaRegistryError, match="Invalid schema"):
        await registry.register("orders-value", Schema(schema, "PROTOBUF"))


@pytest.mark.parametrize("ref", ["item.json", "http://shop/item.json#/definitions/a", "../item.json"])
async def test_a_document_of_a_json_schema_must_be_a_reference(registry: SchemaRegistryClient, ref: str) -> None:
    with pytest.raises(SchemaRegistryError, match=r"item\.json is not found; a \$ref needs it"):
        await registry.register("orders-value", Schema(json.dumps({"properties": {"a": {"$ref": ref}}}), "JSON"))
    with pytest.raises(SchemaRegistryError, match="must be an object or a boolean"):
        await registry.register("orders-value", Schema("[]", "JSON"))


async def test_valid_defaults_are_accepted(registry: SchemaRegistryClient) -> None:
    inner = record(field("b"), {**field("c"), "default": 1}, name="B")
    fields = [
        {**field("a", ["null", "int"]), "default": None},
        {**field("d", ["null", "int"]), "default": 5},
        {**field("e", inner), "default": {"b": 1}},
        {**field("f", {"type": "map", "values": "double"}), "default": {"a": 1, "b": 1.5}},
        {**field("g", {"type": "array", "items": ["null", "R"]}), "default": [None]},
        {**field("h", ENUM), "default": "A"},
        {**field("i", "bytes"), "default": "\u00ff"},
        {**field("j", "boolean"), "default": True},
    ]
    assert await registry.register("orders-value", Schema(json.dumps(record(*fields))))
