"""The serializers of confluent-kafka and of this package read each other's bytes, and find each other's schemas."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient as TheirClient
from confluent_kafka.serialization import MessageField, SerializationContext

from aiokafka_lite.embedded import EmbeddedSchemaRegistry
from aiokafka_lite.schemas import SchemaRegistryClient
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
    given = tuple(Header(*header) for header in headers)
    assert await finished(format.deserializer(registry).deserialize("orders", data, given)) == format.order()


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
