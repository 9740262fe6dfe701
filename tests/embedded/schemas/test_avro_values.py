"""Avro between this package and Confluent's: raw bytes, references, and the errors that a program sees."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient as TheirClient
from confluent_kafka.schema_registry.avro import AvroDeserializer as TheirDeserializer
from confluent_kafka.schema_registry.avro import AvroSerializer as TheirSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from aiokafka_lite import Producer
from aiokafka_lite.embedded import EmbeddedCluster, EmbeddedSchemaRegistry
from aiokafka_lite.errors import ConfigurationError, SerializationError
from aiokafka_lite.schemas import AvroDeserializer, AvroSerializer, Schema, SchemaReference, SchemaRegistryClient
from aiokafka_lite.schemas.avro_writing import writer
from tests.embedded.schemas.formats import finished
from tests.pure.schemas.test_avro_table import TABLE, is_written

CONTEXT = SerializationContext("documents", MessageField.VALUE)


async def test_what_java_writes_is_read_and_written_again_as_the_same_bytes(registry: SchemaRegistryClient) -> None:
    rows = [row for row in TABLE if is_written(row) and "ours" not in row]
    for number, row in enumerate(rows):
        registered = await registry.register(f"topic-{number}-value", Schema(json.dumps(row["schema"])))
        data = b"\0" + registered.schema_id.to_bytes(4, "big") + bytes.fromhex(row["java"])
        value = await finished(AvroDeserializer(registry).deserialize("t", data, ()))
        again = AvroSerializer(registry, Schema(json.dumps(row["schema"])))
        assert await finished(again.serialize(f"topic-{number}", value, [])) == data, (row, value)
    assert len(rows) > 90


async def test_a_record_that_is_nested_too_deeply_is_an_error_and_ends_no_process(
    registry: SchemaRegistryClient,
) -> None:
    schema = {"type": "record", "name": "Chain", "fields": [{"name": "next", "type": ["null", "Chain"]}]}
    data = await finished(AvroSerializer(registry, schema).serialize("chains", {"next": None}, []))
    with pytest.raises(ValueError, match="nested more than 2000 levels deep"):
        await finished(AvroDeserializer(registry).deserialize("chains", data[:5] + b"\x02" * 100_000 + b"\0", ()))


async def test_a_type_inside_a_type_is_known_to_the_registry(registry: SchemaRegistryClient) -> None:
    schema = {"type": "array", "items": {"type": {"type": "string", "avro.java.string": "String"}}}
    data = await finished(AvroSerializer(registry, schema).serialize("names", ["tea"], []))
    assert await finished(AvroDeserializer(registry).deserialize("names", data, ())) == ["tea"]


@pytest.mark.parametrize("schema", ["bytes", {"type": "bytes"}], ids=["name", "object"])
@pytest.mark.parametrize("content", [b"%PDF-1.7", b"\x04abcdef"])
async def test_a_schema_of_bytes_alone_has_no_length_before_the_bytes(
    registry: SchemaRegistryClient, embedded_schema_registry: EmbeddedSchemaRegistry, schema: Any, content: bytes
) -> None:
    text = json.dumps(schema)
    theirs = TheirClient({"url": embedded_schema_registry.url})
    ours = await finished(AvroSerializer(registry, text).serialize("documents", content, []))
    assert ours == await asyncio.to_thread(lambda: TheirSerializer(theirs, text)(content, CONTEXT))
    assert await asyncio.to_thread(lambda: TheirDeserializer(theirs)(ours, CONTEXT)) == content
    for reader in (AvroDeserializer(registry), AvroDeserializer(registry, text)):
        assert await finished(reader.deserialize("documents", ours, ())) == content
    theirs.close()
    with pytest.raises(ValueError, match="the data must be bytes, got 'text'"):
        await finished(AvroSerializer(registry, text).serialize("documents", "text", []))


@pytest.mark.parametrize(
    ("schema", "value"),
    [("string", "two coffees"), ("int", -7), ("long", 2**40), ("float", 0.5), ("double", 0.1), ("boolean", True)],
)
async def test_other_primitive_schemas_are_the_same_for_both(
    registry: SchemaRegistryClient, embedded_schema_registry: EmbeddedSchemaRegistry, schema: str, value: object
) -> None:
    text = json.dumps(schema)
    theirs = TheirClient({"url": embedded_schema_registry.url})
    ours = await finished(AvroSerializer(registry, text).serialize("documents", value, []))
    assert ours == await asyncio.to_thread(lambda: TheirSerializer(theirs, text)(value, CONTEXT))
    assert await asyncio.to_thread(lambda: TheirDeserializer(theirs)(ours, CONTEXT)) == value
    assert await finished(AvroDeserializer(registry).deserialize("documents", ours, ())) == value
    theirs.close()


@dataclass
class Order:
    id: int


@pytest.mark.parametrize("part", ["key", "value"])
async def test_a_send_names_the_field_that_does_not_match(
    cluster: EmbeddedCluster, registry: SchemaRegistryClient, part: str
) -> None:
    schema = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
    arguments: Any = {f"{part}_serializer": AvroSerializer(registry, schema)}
    async with Producer(cluster.bootstrap_servers, **arguments) as producer:

        async def send(data: object) -> None:
            await (producer.send("orders", data) if part == "value" else producer.send("orders", b"", key=data))  # type: ignore[arg-type]

        await send({"id": 7})
        with pytest.raises(
            SerializationError, match=rf"the {part} of a record .*: id must be a whole number .* 19\.99"
        ):
            await send({"id": 19.99})
        with pytest.raises(SerializationError, match=r"pass to_dict=dataclasses\.asdict to the serializer"):
            await send(Order(7))
    assert len(cluster.records("orders")) == 1


ADDRESS = {
    "type": "record",
    "name": "com.acme.Address",
    "fields": [
        {"name": "street", "type": "string"},
        {"name": "country", "type": {"type": "enum", "name": "Country", "symbols": ["DE", "FR"]}},
    ],
}
CUSTOMER = {"type": "record", "name": "Customer", "fields": [{"name": "home", "type": "com.acme.Address"}]}
ORDER = {
    "type": "record",
    "name": "com.acme.Order",
    "fields": [
        {"name": "origin", "type": "Country"},
        {"name": "to", "type": "Address"},
        {"name": "customer", "type": "Customer"},
        {"name": "again", "type": ["null", "Customer"], "default": None},
    ],
}


@pytest.mark.parametrize("names", [("com.acme.Address", "Customer"), ("address", "any name")], ids=["full", "other"])
async def test_types_that_references_define_are_known_at_any_depth_and_order(
    registry: SchemaRegistryClient, names: tuple[str, str]
) -> None:
    await registry.register("address", Schema(json.dumps(ADDRESS)))
    address, customer = names
    to_address = SchemaReference(address, "address", 1)
    await registry.register("customer", Schema(json.dumps(CUSTOMER), references=(to_address,)))
    schema = Schema(json.dumps(ORDER), references=(SchemaReference(customer, "customer", 1), to_address))
    home = {"street": "x", "country": "FR"}
    order = {"origin": "DE", "to": home, "customer": {"home": home}, "again": {"home": home}}
    data = await finished(AvroSerializer(registry, schema).serialize("orders", order, []))
    assert data[5:] == b"\x00" + b"\x02x\x02" * 2 + b"\x02" + b"\x02x\x02"
    assert await finished(AvroDeserializer(registry).deserialize("orders", data, ())) == order
    assert await finished(AvroDeserializer(registry, schema).deserialize("orders", data, ())) == order


@pytest.mark.parametrize("value", [("Money", {"cents": 5}), ("shop.Order", {"price": {"cents": 5}})])
async def test_a_union_of_references_has_a_type_without_a_namespace_that_another_type_uses(
    registry: SchemaRegistryClient, value: tuple[str, object]
) -> None:
    money = {"type": "record", "name": "Money", "fields": [{"name": "cents", "type": "int"}]}
    order = {"type": "record", "name": "shop.Order", "fields": [{"name": "price", "type": "Money"}]}
    await registry.register("money", Schema(json.dumps(money)))
    to_money = SchemaReference("Money", "money", 1)
    await registry.register("order", Schema(json.dumps(order), references=(to_money,)))
    schema = Schema('["shop.Order", "Money"]', references=(SchemaReference("shop.Order", "order", 1), to_money))
    data = await finished(AvroSerializer(registry, schema).serialize("orders", value, []))
    assert await finished(AvroDeserializer(registry).deserialize("orders", data, ())) == value[1]
    assert await finished(AvroDeserializer(registry, schema).deserialize("orders", data, ())) == value[1]


R = {"type": "record", "name": "R"}


@pytest.mark.parametrize(
    "schema",
    [
        *(7, None, True, [7], {"type": 7}, {"type": None}, {"type": "recrod"}, {"type": {}}, {"type": [None]}),
        *(R, {**R, "fields": 7}, {**R, "fields": [7]}, {**R, "fields": ["f"]}, {**R, "fields": [{"name": "f"}]}),
        *({**R, "fields": [{"type": "int"}]}, {**R, "name": 7, "fields": []}, {**R, "namespace": 7, "fields": []}),
        *({"type": "enum", "name": "E"}, {"type": "enum", "name": "E", "symbols": 7}, {"type": "enum", "symbols": []}),
        *(
            {"type": "fixed", "name": "F"},
            {"type": "fixed", "name": "F", "size": -1},
            {"type": "array"},
            {"type": "map"},
        ),
        *({"type": "array", "items": 7}, ["int", "int"], [R, "Unknown"]),
    ],
    ids=json.dumps,
)
async def test_a_text_that_is_no_schema_is_refused(registry: SchemaRegistryClient, schema: Any) -> None:
    text = json.dumps(schema)
    for make in (AvroSerializer, AvroDeserializer):
        with pytest.raises(ConfigurationError, match="schema must be a schema of Avro"):
            make(registry, text)


async def test_a_decimal_without_a_valid_precision_is_plain_bytes() -> None:
    for more in ({}, {"precision": 0}, {"precision": 2, "scale": 3}, {"precision": "2"}):
        schema = {"type": "record", "name": "R", "fields": [{"name": "f", "type": {"type": "bytes", **more}}]}
        schema["fields"][0]["type"]["logicalType"] = "decimal"  # type: ignore[index]
        assert writer(schema)({"f": b"x"}) == b"\x02x"
