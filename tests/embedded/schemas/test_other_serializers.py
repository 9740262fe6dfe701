"""The serializers of confluent-kafka and of this package read each other's bytes, and find each other's schemas."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema as TheirSchema
from confluent_kafka.schema_registry import SchemaReference as TheirReference
from confluent_kafka.schema_registry import SchemaRegistryClient as TheirClient
from confluent_kafka.schema_registry import record_subject_name_strategy, topic_record_subject_name_strategy
from confluent_kafka.schema_registry.avro import AvroDeserializer as TheirAvroDeserializer
from confluent_kafka.schema_registry.avro import AvroSerializer as TheirAvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from aiokafka_lite.embedded import EmbeddedSchemaRegistry
from aiokafka_lite.schemas import (
    AvroDeserializer,
    AvroSerializer,
    JsonSchemaDeserializer,
    JsonSchemaSerializer,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    record_name,
    topic_record_name,
)
from aiokafka_lite.types import Header
from tests.embedded.schemas.formats import FORMATS, THEIR_PLACES, Format, finished

each_format = pytest.mark.parametrize("format", FORMATS.values(), ids=FORMATS)
each_place = pytest.mark.parametrize("id_in", ["prefix", "header"])


@pytest.fixture
async def theirs(embedded_schema_registry: EmbeddedSchemaRegistry) -> AsyncIterator[TheirClient]:
    client = TheirClient({"url": embedded_schema_registry.url})
    yield client
    client.close()


@each_format
@each_place
async def test_confluents_deserializer_reads_what_we_write(
    registry: SchemaRegistryClient,
    theirs: TheirClient,
    format: Format,  # noqa: A002
    id_in: str,
) -> None:
    headers = [Header("trace", b"1")]
    data = await finished(format.serializer(registry, id_in=id_in).serialize("orders", format.order(), headers))
    assert len(headers) == (2 if id_in == "header" else 1)
    context = SerializationContext("orders", MessageField.VALUE, [tuple(header) for header in headers])
    got = await asyncio.to_thread(lambda: format.their_deserializer(theirs)(data, context))
    assert got == format.order()


@each_format
@each_place
async def test_we_read_what_confluents_serializer_writes(
    registry: SchemaRegistryClient,
    theirs: TheirClient,
    format: Format,  # noqa: A002
    id_in: str,
) -> None:
    headers: list[Any] = []
    context = SerializationContext("orders", MessageField.VALUE, headers)
    serializer = await asyncio.to_thread(format.their_serializer, theirs, {"schema.id.serializer": THEIR_PLACES[id_in]})
    data = await asyncio.to_thread(serializer, format.order(), context)
    our_headers = tuple(Header(*header) for header in headers)
    assert await finished(format.deserializer(registry).deserialize("orders", data, our_headers)) == format.order()


@each_format
async def test_a_schema_that_confluents_serializer_has_registered_is_found(
    registry: SchemaRegistryClient,
    theirs: TheirClient,
    format: Format,  # noqa: A002
) -> None:
    context = SerializationContext("orders", MessageField.VALUE)
    serializer = await asyncio.to_thread(format.their_serializer, theirs, {})
    expected = await asyncio.to_thread(serializer, format.order(), context)
    assert await finished(format.serializer(registry, resolve="lookup").serialize("orders", format.order(), []))
    assert await finished(format.serializer(registry).serialize("orders", format.order(), [])) == expected


ITEM = {"type": "record", "name": "Item", "fields": [{"name": "name", "type": "string"}]}
AVRO_ORDER = {"type": "record", "name": "Order", "fields": [{"name": "item", "type": "Item"}]}
JSON_ITEM = {"$id": "http://shop/item.json", "type": "object", "properties": {"name": {"type": "string"}}}
JSON_ORDER = {
    "$id": "http://shop/order.json",
    "title": "Order",
    "type": "object",
    "properties": {"item": {"$ref": "item.json"}},
}
REFERRING: dict[str, tuple[Any, ...]] = {
    "avro": (
        *("AVRO", "Item", ITEM, AVRO_ORDER, AvroSerializer, AvroDeserializer),
        lambda client, schema: TheirAvroSerializer(client, schema),
        lambda client, schema: TheirAvroDeserializer(client),
    ),
    "json": (
        *("JSON", "item.json", JSON_ITEM, JSON_ORDER, JsonSchemaSerializer, JsonSchemaDeserializer),
        lambda client, schema: JSONSerializer(schema, client),
        lambda client, schema: JSONDeserializer(schema, schema_registry_client=client),
    ),
}


@pytest.mark.parametrize("case", REFERRING.values(), ids=REFERRING)
async def test_a_schema_with_references_is_the_same_for_both(
    registry: SchemaRegistryClient, theirs: TheirClient, case: tuple[Any, ...]
) -> None:
    kind, name, item, order, serializer, deserializer, their_serializer, their_deserializer = case
    value = {"item": {"name": "two coffees"}}
    await registry.register("item", Schema(json.dumps(item), kind))
    schema = Schema(json.dumps(order), kind, (SchemaReference(name, "item", 1),))
    their_schema = TheirSchema(json.dumps(order), kind, [TheirReference(name, "item", 1)])
    context = SerializationContext("orders", MessageField.VALUE)

    data = await finished(serializer(registry, schema).serialize("orders", value, []))
    assert await asyncio.to_thread(lambda: their_deserializer(theirs, their_schema)(data, context)) == value
    assert await asyncio.to_thread(lambda: their_serializer(theirs, their_schema)(value, context)) == data
    assert await finished(deserializer(registry).deserialize("orders", data, ())) == value


@pytest.mark.parametrize(
    ("subject", "their_subject"),
    [(topic_record_name, topic_record_subject_name_strategy), (record_name, record_subject_name_strategy)],
)
async def test_both_find_a_schema_by_the_name_of_its_record(
    registry: SchemaRegistryClient, theirs: TheirClient, subject: Any, their_subject: Any
) -> None:
    value, context = {"name": "two coffees"}, SerializationContext("orders", MessageField.VALUE)
    data = await finished(AvroSerializer(registry, ITEM, subject=subject).serialize("orders", value, []))
    settings = {"subject.name.strategy": their_subject, "auto.register.schemas": False}
    serializer = TheirAvroSerializer(theirs, json.dumps(ITEM), conf=settings)
    assert await asyncio.to_thread(serializer, value, context) == data
