"""Serializers with a registry: subjects, ids, references, evolution, and a registry that fails."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from typing import Any

import pytest

from aiokafka_lite import Consumer, Producer
from aiokafka_lite.embedded import EmbeddedCluster, EmbeddedSchemaRegistry
from aiokafka_lite.errors import (
    ConfigurationError,
    DeserializationError,
    IllegalStateError,
    KafkaTimeout,
    SchemaRegistryError,
    SerializationError,
)
from aiokafka_lite.schemas import (
    AvroDeserializer,
    AvroSerializer,
    JsonSchemaDeserializer,
    JsonSchemaSerializer,
    ProtobufSerializer,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    record_name,
    topic_record_name,
)
from aiokafka_lite.types import Header
from tests.embedded.schemas.formats import AVRO, FORMATS, JSON, ORDER, Format, finished, order_type
from tests.waiting import DEADLINE

NEXT = {**AVRO, "fields": [*AVRO["fields"], {"name": "note", "type": "string", "default": "none"}]}


@pytest.mark.parametrize("format", FORMATS.values(), ids=FORMATS)
async def test_records_are_written_and_read_without_a_request_for_each(
    cluster: EmbeddedCluster,
    embedded_schema_registry: EmbeddedSchemaRegistry,
    registry: SchemaRegistryClient,
    format: Format,  # noqa: A002
) -> None:
    serializer, deserializer = format.serializer(registry, id_in="header"), format.deserializer(registry)
    orders = [format.order()] * 300
    async with Producer(cluster.bootstrap_servers, key_serializer=serializer, value_serializer=serializer) as producer:
        with pytest.raises(IllegalStateError, match="the first schema of a topic"):
            producer.send_nowait("orders", orders[0])
        results = await producer.send_many("orders", orders, keys=orders)
        assert [result.offset for result in results] == list(range(300))  # type: ignore[union-attr]
        await producer.send_nowait("orders", orders[0])
    requests = len(embedded_schema_registry.requests)
    assert requests <= 4, embedded_schema_registry.requests
    async with Consumer(
        cluster.bootstrap_servers, topics=["orders"], key_deserializer=deserializer, value_deserializer=deserializer
    ) as consumer:
        got: list[Any] = []
        while len(got) < 301:
            got += [(record.key, record.value) for record in await consumer.poll(timeout=10.0)]
    assert got == [*zip(orders, orders), (None, orders[0])]
    assert len(embedded_schema_registry.requests) <= requests + 1


async def test_subjects_have_the_name_of_the_topic_the_record_or_both(
    embedded_schema_registry: EmbeddedSchemaRegistry, registry: SchemaRegistryClient
) -> None:
    for subject in (record_name, topic_record_name, lambda topic, part, record: f"{part}!"):
        await finished(AvroSerializer(registry, AVRO, subject=subject).serialize("orders", ORDER, []))
    await finished(AvroSerializer(registry, AVRO).for_part("key").serialize("orders", ORDER, []))
    assert await registry.subjects() == ["orders-key", "orders-shop.Order", "shop.Order", "value!"]
    protobuf = ProtobufSerializer(registry, order_type(), subject=record_name)
    await finished(protobuf.serialize("orders", order_type()(), []))
    assert await registry.subjects("shop") == ["shop.Order", "shop.Orders.Order", "shop/item.proto"]


async def test_a_reader_schema_fills_in_defaults(registry: SchemaRegistryClient) -> None:
    data = await finished(AvroSerializer(registry, AVRO).serialize("orders", ORDER, []))
    reader = AvroDeserializer(registry, NEXT)
    assert await finished(reader.deserialize("orders", data, ())) == {**ORDER, "note": "none"}


async def test_the_latest_schema_is_used_without_one_of_the_serializer(registry: SchemaRegistryClient) -> None:
    await registry.register("orders-value", Schema(json.dumps(AVRO)))
    newest = await registry.register("orders-value", Schema(json.dumps(NEXT)))
    data = await finished(AvroSerializer(registry, resolve="latest").serialize("orders", {**ORDER, "note": "x"}, []))
    assert data[:5] == b"\0" + newest.schema_id.to_bytes(4, "big")
    assert (await finished(AvroDeserializer(registry).deserialize("orders", data, ())))["note"] == "x"


async def test_calls_that_wait_for_the_latest_schema_share_one_request(
    embedded_schema_registry: EmbeddedSchemaRegistry, registry: SchemaRegistryClient
) -> None:
    await registry.register("orders-value", Schema(json.dumps(AVRO)))
    embedded_schema_registry.requests.clear()
    serializer = AvroSerializer(registry, resolve="latest")
    messages = await asyncio.gather(*(finished(serializer.serialize("orders", ORDER, [])) for _ in range(10)))
    assert len(set(messages)) == 1
    assert embedded_schema_registry.requests == ["GET /subjects/orders-value/versions/latest"]


@pytest.mark.parametrize("id_in", ["prefix", "header"])
async def test_a_record_that_is_written_again_names_the_schema_of_its_new_bytes(
    registry: SchemaRegistryClient, id_in: Any
) -> None:
    old = b"\1" + bytes(16)
    headers = [Header("__value_schema_id", old), Header("__key_schema_id", old)]
    data = await finished(AvroSerializer(registry, AVRO, id_in=id_in).serialize("orders", ORDER, headers))
    assert await finished(AvroDeserializer(registry).deserialize("orders", data, tuple(headers))) == ORDER
    assert headers[0] == Header("__key_schema_id", old), "the header of the key is not that of the value"


async def test_schemas_of_avro_and_json_may_refer_to_others(registry: SchemaRegistryClient) -> None:
    await registry.register("order", Schema(json.dumps(AVRO)))
    await registry.register("order.json", Schema(json.dumps(JSON), "JSON"))
    avro = Schema('{"type": "array", "items": "shop.Order"}', references=(SchemaReference("shop.Order", "order", 1),))
    text = '{"type": "array", "items": {"$ref": "order.json"}}'
    listed = Schema(text, "JSON", (SchemaReference("order.json", "order.json", 1),))
    data = await finished(AvroSerializer(registry, avro).serialize("orders", [ORDER], []))
    assert await finished(AvroDeserializer(registry).deserialize("orders", data, ())) == [ORDER]
    serializer = JsonSchemaSerializer(registry, listed)
    data = await finished(serializer.serialize("lists", [ORDER], []))
    assert await finished(JsonSchemaDeserializer(registry).deserialize("lists", data, ())) == [ORDER]
    with pytest.raises(ValueError, match=r"'id' is a required property at \$\[0\]"):
        serializer.serialize("lists", [{}], [])


async def test_objects_become_dicts_and_dicts_objects(registry: SchemaRegistryClient) -> None:
    @dataclasses.dataclass
    class Order:
        id: int
        item: str

    serializer: AvroSerializer[Order] = AvroSerializer(registry, AVRO, to_dict=dataclasses.asdict)
    deserializer = AvroDeserializer(registry, from_dict=lambda fields: Order(**fields))
    order = Order(**ORDER)  # type: ignore[arg-type]
    data = await finished(serializer.serialize("orders", order, []))
    assert await finished(deserializer.deserialize("orders", data, ())) == order


async def test_data_that_the_schema_does_not_describe_is_refused(
    cluster: EmbeddedCluster, registry: SchemaRegistryClient
) -> None:
    serializer = AvroSerializer(registry, AVRO)
    async with Producer(cluster.bootstrap_servers, value_serializer=serializer) as producer:
        for _ in range(2):  # with the first record, and when the schema is known
            with pytest.raises(SerializationError, match="of type dict and cannot be serialized by AvroSerializer"):
                await producer.send("orders", {"id": "seven"})
    protobuf = ProtobufSerializer(registry, order_type())
    with pytest.raises(TypeError, match="the message must be of type Order, got "):
        await finished(protobuf.serialize("messages", ORDER, []))


def consumer_that_skips(cluster: EmbeddedCluster, registry: SchemaRegistryClient) -> Consumer[Any, Any]:
    """Skips records that cannot be deserialized."""
    return Consumer(
        cluster.bootstrap_servers,
        topics=["orders"],
        value_deserializer=AvroDeserializer(registry),
        on_deserialization_error="skip",
    )


async def test_a_registry_that_does_not_answer_skips_no_record(
    cluster: EmbeddedCluster, embedded_schema_registry: EmbeddedSchemaRegistry
) -> None:
    url = embedded_schema_registry.url
    async with SchemaRegistryClient(url) as registry:
        data = await finished(AvroSerializer(registry, AVRO).serialize("orders", ORDER, []))
    for value in (b"no schema", data):
        await cluster.produce("orders", value)
    embedded_schema_registry.fail(503, times=100_000)
    async with (
        SchemaRegistryClient(url, timeout=0.05, retry_backoff=0.001) as registry,
        Producer(cluster.bootstrap_servers, value_serializer=AvroSerializer(registry, AVRO)) as producer,
        consumer_that_skips(cluster, registry) as consumer,
    ):
        with pytest.raises(KafkaTimeout):
            await producer.send("orders", ORDER)
        with pytest.raises(DeserializationError, match="offset 1") as caught:
            await consumer.poll(timeout=10.0)
        assert isinstance(caught.value.__cause__, KafkaTimeout)
        embedded_schema_registry.fail(503)
    async with (
        SchemaRegistryClient(url, retry_backoff=0.001) as registry,
        consumer_that_skips(cluster, registry) as consumer,
    ):
        assert [record.value for record in await consumer.poll(timeout=10.0)] == [ORDER]


@pytest.mark.parametrize("is_closed", [False, True], ids=["refusing", "closed"])
async def test_a_registry_that_refuses_the_credentials_or_is_closed_skips_no_record(
    cluster: EmbeddedCluster, embedded_schema_registry: EmbeddedSchemaRegistry, *, is_closed: bool
) -> None:
    await cluster.produce("orders", b"\0\0\0\0\7x")
    async with (
        SchemaRegistryClient(embedded_schema_registry.url) as registry,
        consumer_that_skips(cluster, registry) as consumer,
    ):
        if is_closed:
            await registry.close()
        else:
            embedded_schema_registry.fail(401)
        with pytest.raises(DeserializationError, match="offset 0") as caught:
            await consumer.poll(timeout=10.0)
        assert isinstance(caught.value.__cause__, IllegalStateError if is_closed else SchemaRegistryError)


async def test_a_poll_that_does_not_wait_returns_a_record_once_its_schema_has_come(
    cluster: EmbeddedCluster, embedded_schema_registry: EmbeddedSchemaRegistry, registry: SchemaRegistryClient
) -> None:
    await cluster.produce("orders", await finished(AvroSerializer(registry, AVRO).serialize("orders", ORDER, [])))
    async with (
        SchemaRegistryClient(embedded_schema_registry.url) as other,
        Consumer(cluster.bootstrap_servers, topics=["orders"], value_deserializer=AvroDeserializer(other)) as consumer,
    ):
        records: list[Any] = []
        async with asyncio.timeout(DEADLINE):
            while not records:
                records = await consumer.poll()
    assert [record.value for record in records] == [ORDER]
    assert embedded_schema_registry.requests.count("GET /schemas/ids/1") == 1


async def test_bytes_without_the_id_of_a_schema_are_refused(registry: SchemaRegistryClient) -> None:
    with pytest.raises(ValueError, match="do not begin with the id of a schema"):
        AvroDeserializer(registry).deserialize("orders", b'{"id": 7}', (Header("trace", b"1"),))


@pytest.mark.parametrize(
    "make, text",
    [
        (lambda registry: AvroSerializer(registry), "schema is required, unless resolve is 'latest'"),
        (lambda registry: AvroSerializer(registry, "{"), "schema must be JSON"),
        (lambda registry: AvroSerializer(registry, {"type": "recrod"}), "schema must be a schema of Avro"),
        (lambda registry: AvroSerializer(registry, '"long"', subject=record_name), "subject requires a schema"),
        (lambda registry: AvroSerializer(registry, AVRO, resolve="newest"), "resolve must be 'register', 'lookup'"),
        (lambda registry: AvroSerializer(registry, AVRO, id_in="value"), "id_in must be 'prefix' or 'header'"),
        (lambda registry: AvroSerializer("http://localhost", AVRO), "registry must be an object with register()"),
        (lambda registry: JsonSchemaSerializer(registry, {"type": "objekt"}), "schema must be a JSON Schema"),
        (lambda registry: ProtobufSerializer(registry, dict), "message_type must be a class of messages"),
    ],
)
async def test_wrong_arguments_are_refused(registry: SchemaRegistryClient, make: Any, text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        make(registry)
    assert text in str(caught.value)
