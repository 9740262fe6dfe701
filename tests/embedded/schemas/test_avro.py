"""Avro through producer and consumer, with schemas of a registry."""

from __future__ import annotations

from typing import Any

from aiokafka_lite import Consumer, Producer
from aiokafka_lite.embedded import EmbeddedCluster, EmbeddedSchemaRegistry
from aiokafka_lite.schemas import AvroDeserializer, AvroSerializer, SchemaRegistryClient

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [{"name": "id", "type": "long"}, {"name": "item", "type": "string"}],
}


async def test_records_are_written_and_read_as_avro(
    cluster: EmbeddedCluster, embedded_schema_registry: EmbeddedSchemaRegistry, registry: SchemaRegistryClient
) -> None:
    orders = [{"id": number, "item": f"item {number}"} for number in range(300)]
    async with Producer(
        cluster.bootstrap_servers,
        key_serializer=AvroSerializer(registry, "\"long\""),
        value_serializer=AvroSerializer(registry, ORDER),
    ) as producer:
        results = await producer.send_many("orders", orders, keys=[order["id"] for order in orders])
        assert [result.offset for result in results] == list(range(300))  # type: ignore[union-attr]
    got: list[Any] = []
    async with Consumer(
        cluster.bootstrap_servers,
        topics=["orders"],
        key_deserializer=AvroDeserializer(registry),
        value_deserializer=AvroDeserializer(registry),
    ) as consumer:
        async for record in consumer:
            got.append((record.key, record.value))
            if len(got) == 300:
                break
    assert got == [(order["id"], order) for order in orders]
    assert embedded_schema_registry.requests == [
        "POST /subjects/orders-key/versions",
        "POST /subjects/orders-value/versions",
        "GET /schemas/ids/1",
        "GET /schemas/ids/2",
    ]
