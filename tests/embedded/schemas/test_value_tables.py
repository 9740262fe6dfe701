"""Each value for each type of JSON Schema and Protobuf: refused, or written as Java and confluent-kafka write it.

``tests/pure/schemas/java`` has the tables, and the programs that filled in Java's results.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient as TheirClient
from confluent_kafka.schema_registry.avro import AvroDeserializer as TheirAvroDeserializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer as TheirProtobufDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer as TheirProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from aiokafka_lite.embedded import EmbeddedSchemaRegistry
from aiokafka_lite.schemas import (
    AvroDeserializer,
    AvroSerializer,
    JsonSchemaDeserializer,
    JsonSchemaSerializer,
    ProtobufDeserializer,
    ProtobufSerializer,
    Schema,
    SchemaRegistryClient,
)
from tests.embedded.schemas.formats import finished
from tests.pure.schemas.test_avro_table import PYTHON, TABLE, is_written, value_of

FOLDER = Path(__file__).parents[2] / "pure" / "schemas" / "java"
JSON_TABLE: list[dict[str, Any]] = json.loads((FOLDER / "json_table.json").read_text())
PROTOBUF_TABLE: list[dict[str, Any]] = json.loads((FOLDER / "protobuf_table.json").read_text())


@pytest.fixture
async def theirs(embedded_schema_registry: EmbeddedSchemaRegistry) -> AsyncIterator[TheirClient]:
    client = TheirClient({"url": embedded_schema_registry.url})
    yield client
    client.close()


def context(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


async def test_confluents_deserializer_reads_each_value_of_avro_as_we_do(
    registry: SchemaRegistryClient, theirs: TheirClient
) -> None:
    rows = [row for row in TABLE if is_written(row) and "ours" not in row and row["java"]]
    ours: list[tuple[bytes, Any]] = []
    for number, row in enumerate(rows):
        serializer = AvroSerializer(registry, Schema(json.dumps(row["schema"])))
        data = await finished(serializer.serialize(f"t{number}", value_of(row["value"]), []))
        ours.append((data, await finished(AvroDeserializer(registry).deserialize("t", data, ()))))
    read = await asyncio.to_thread(
        lambda: [TheirAvroDeserializer(theirs)(data, context("t")) for data, _ in ours if len(data) > 5]
    )
    assert repr(read) == repr([value for data, value in ours if len(data) > 5]), "repr, because NaN is not NaN"
    assert len(rows) > 90


def json_value(tagged: dict[str, Any]) -> Any:
    ((tag, content),) = tagged.items()
    others: dict[str, Callable[[Any], Any]] = {
        "big": int,
        "pairs": lambda pairs: {json_value(key): json_value(value) for key, value in pairs},
        "list": lambda items: [json_value(item) for item in items],
        "map": lambda items: {key: json_value(item) for key, item in items.items()},
    }
    return {**PYTHON, **others}[tag](content)


async def test_json_is_refused_or_written_as_java_and_confluent_kafka_write_it(
    registry: SchemaRegistryClient, theirs: TheirClient
) -> None:
    for number, row in enumerate(JSON_TABLE):
        topic = f"topic-{number}"
        value, note = json_value(row["value"]), row.get("ours", "")
        serializer = JsonSchemaSerializer(registry, row["schema"])
        if note.startswith("refused") or (not row["valid"] and not note):
            with pytest.raises(ValueError, match=r".+"):
                await finished(serializer.serialize(topic, value, []))
            continue
        data = await finished(serializer.serialize(topic, value, []))
        # The same number may have another text: Java writes 1.0E22 for 1e+22.
        assert json.loads(data[5:]) == json.loads(row["java"])
        if not isinstance(value, float):
            assert data[5:].decode() == row["java"]
        assert await finished(JsonSchemaDeserializer(registry).deserialize(topic, data, ())) == value
        if isinstance(value, dict):  # confluent-kafka's serializers are for objects
            text = json.dumps(row["schema"])
            their_data = await asyncio.to_thread(lambda: JSONSerializer(text, theirs)(value, context(topic)))  # noqa: B023
            assert json.loads(their_data[5:]) == value
            assert await finished(JsonSchemaDeserializer(registry).deserialize(topic, their_data, ())) == value
            read = await asyncio.to_thread(
                lambda: JSONDeserializer(text, schema_registry_client=theirs)(data, context(topic))  # noqa: B023
            )
            assert read == value


@cache
def message_type(kind: str, *, is_repeated: bool) -> Any:
    """Return the class of a message whose only field has this type."""
    file = FileDescriptorProto(name="m.proto", package="acme", syntax="proto3")
    label = FieldDescriptorProto.LABEL_REPEATED if is_repeated else FieldDescriptorProto.LABEL_OPTIONAL
    field_type = FieldDescriptorProto.Type.Value(f"TYPE_{kind.upper()}")
    field = file.message_type.add(name="M").field.add(name="f", number=1, label=label, type=field_type)
    if kind in ("enum", "message"):
        field.type_name = {"enum": ".acme.Kind", "message": ".acme.M"}[kind]
    kinds = file.enum_type.add(name="Kind")
    for number, name in enumerate(("NONE", "SOME")):
        kinds.value.add(name=name, number=number)
    pool = DescriptorPool()
    pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName("acme.M"))


def protobuf_value(tagged: dict[str, Any]) -> Any:
    ((tag, content),) = tagged.items()
    others: dict[str, Callable[[Any], Any]] = {
        **dict.fromkeys(("uint", "ulong", "enum"), lambda number: number),
        "float": float,
        "message": lambda _: {},
        "list": lambda items: [protobuf_value(item) for item in items],
    }
    return {**PYTHON, **others}[tag](content)


async def test_protobuf_is_refused_or_written_as_java_and_confluent_kafka_write_it(
    registry: SchemaRegistryClient, theirs: TheirClient
) -> None:
    for number, row in enumerate(PROTOBUF_TABLE):
        topic = f"topic-{number}"
        kind = message_type(row["type"], is_repeated="list" in row["value"])
        if not is_written(row):
            with pytest.raises((TypeError, ValueError)):  # Google's library refuses it, before a serializer sees it
                kind(f=protobuf_value(row["value"]))
            continue
        message = kind(f=protobuf_value(row["value"]))
        data = await finished(ProtobufSerializer(registry, kind).serialize(topic, message, []))
        assert data[6:].hex() == row["java"], row
        assert str(await finished(ProtobufDeserializer(kind).deserialize(topic, data, ()))) == str(message)
        if len(data) > 6:
            their_data = await asyncio.to_thread(
                lambda: TheirProtobufSerializer(kind, theirs, {})(message, context(topic))  # noqa: B023
            )
            assert their_data == data
            read = await asyncio.to_thread(
                lambda: TheirProtobufDeserializer(kind, {}, theirs)(data, context(topic))  # noqa: B023
            )
            assert str(read) == str(message)
