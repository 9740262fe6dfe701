"""The page on schemas quotes the errors of a registry as users see them."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from aiokafka_lite.embedded import EmbeddedSchemaRegistry
from aiokafka_lite.errors import KafkaError
from aiokafka_lite.schemas import AvroDeserializer, AvroSerializer, JsonSchemaSerializer, Schema, SchemaRegistryClient
from tests.embedded.schemas.formats import finished

PAGE = Path(__file__).parents[3] / "docs" / "schemas.md"
NUMBER, TEXT = Schema('"int"'), Schema('"string"')


async def other_type(registry: SchemaRegistryClient) -> None:
    await registry.register("orders-value", NUMBER)
    await registry.register("orders-value", TEXT)


async def not_registered(registry: SchemaRegistryClient) -> None:
    await finished(AvroSerializer(registry, TEXT, resolve="lookup").serialize("orders", "a", []))


async def unknown_id(registry: SchemaRegistryClient) -> None:
    await finished(AvroDeserializer(registry).deserialize("orders", b"\0\0\0\0\7x", []))


async def read_only(registry: SchemaRegistryClient) -> None:
    await registry.set_mode("READONLY")
    await registry.register("orders-value", TEXT)


async def no_prefix(registry: SchemaRegistryClient) -> None:
    await finished(AvroDeserializer(registry).deserialize("orders", b'{"id": 7}', []))


async def wrong_data(registry: SchemaRegistryClient) -> None:
    schema = {"type": "object", "properties": {"id": {"type": "integer"}}}
    await finished(JsonSchemaSerializer(registry, schema).serialize("orders", {"id": "seven"}, []))


async def wrong_credentials(registry: SchemaRegistryClient) -> None:
    async with (
        EmbeddedSchemaRegistry(username="billing", password="secret") as guarded,
        SchemaRegistryClient(guarded.url, username="billing", password="wrong") as client,
    ):
        await client.subjects()


CASES = [other_type, not_registered, unknown_id, read_only, no_prefix, wrong_data, wrong_credentials]


@pytest.mark.parametrize("case", CASES)
async def test_the_page_has_the_text_of_the_error(
    embedded_schema_registry: EmbeddedSchemaRegistry, case: Callable[[SchemaRegistryClient], Awaitable[None]]
) -> None:
    async with SchemaRegistryClient(embedded_schema_registry.url) as registry:
        with pytest.raises((KafkaError, ValueError)) as raised:
            await case(registry)
    text = re.sub(r"http://127\.0\.0\.1:\d+", "http://registry:8081", str(raised.value))
    assert re.sub(r"\s+", " ", text) in re.sub(r"\s+", " ", PAGE.read_text())
