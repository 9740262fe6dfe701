"""Columns through a schema registry: types, evolution, records that cannot be decoded."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import AsyncIterator
from datetime import UTC, date, datetime
from decimal import Context, Decimal
from typing import Any

import pyarrow
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from aiokafka_lite import Producer
from aiokafka_lite.embedded import EmbeddedSchemaRegistry
from aiokafka_lite.errors import ConfigurationError, KafkaTimeout, SchemaRegistryError
from aiokafka_lite.schemas import AvroSerializer, Schema, SchemaReference, SchemaRegistryClient
from aiokafka_lite.spark import from_registry, to_registry
from aiokafka_lite.spark.avro_columns import column_type
from aiokafka_lite.spark.registry_formats import record_format
from tests.end_to_end.conftest import Kafka
from tests.spark.conftest import batch_of, on_spark

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "city", "type": ["null", "string"], "default": None},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "key", "type": ["null", {"type": "string", "logicalType": "uuid"}]},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "before", "type": ["null", "State"]},
        {"name": "tags", "type": {"type": "map", "values": "int"}},
        {
            "name": "lines",
            "type": {
                "type": "array",
                "items": {"type": "record", "name": "Line", "fields": [{"name": "item", "type": "string"}]},
            },
        },
    ],
}
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


def order(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "city": "Rome" if number % 2 else None,
        "price": Decimal("12.50"),
        "at": NOON,
        "day": date(2026, 1, 2),
        "key": "3f2504e0-4f89-11d3-9a0c-0305e82c3301" if number % 2 else None,
        "state": "PAID",
        "before": "NEW" if number else None,
        "tags": {"a": number},
        "lines": [{"item": "coffee"}] * (number % 3),
    }


@pytest.fixture
async def server() -> AsyncIterator[EmbeddedSchemaRegistry]:
    async with EmbeddedSchemaRegistry() as server:
        yield server


async def written(kafka: Kafka, url: str, schema: Any, values: list[Any], *, raw: list[bytes] | None = None) -> str:
    topic = await kafka.create_topic(partitions=1)
    async with SchemaRegistryClient(url) as registry, Producer(kafka.bootstrap_servers) as producer:
        serializer = AvroSerializer[Any](registry, schema)
        for value in values:
            data = serializer.serialize(topic, value, [])
            await producer.send(topic, data if isinstance(data, bytes) else await data)
        for data in raw or []:
            await producer.send(topic, data)
    return topic


async def test_columns_have_the_types_and_values_of_the_schema(
    spark: SparkSession, kafka: Kafka, server: EmbeddedSchemaRegistry
) -> None:
    topic = await written(kafka, server.url, ORDER, [order(number) for number in range(5)])

    def read() -> tuple[str, list[Any]]:
        rows = batch_of(spark, kafka.bootstrap_servers, subscribe=topic).select(
            from_registry("value", url=server.url, subject=f"{topic}-value").alias("order")
        )
        kind = rows.select("order.*").schema.simpleString()
        return kind, [row.order.asDict(recursive=True) for row in rows.orderBy("order.id").collect()]

    kind, orders = await on_spark(read)
    assert kind == (
        "struct<id:bigint,city:string,price:decimal(10,2),at:timestamp,day:date,key:string,state:string,before:string,"
        "tags:map<string,int>,lines:array<struct<item:string>>>"
    )
    for decoded in orders:
        decoded["at"] = decoded["at"].astimezone(UTC)
    assert orders == [order(number) for number in range(5)]


async def test_each_record_is_read_by_its_own_schema_and_old_ones_get_defaults(
    spark: SparkSession, kafka: Kafka, server: EmbeddedSchemaRegistry
) -> None:
    old = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
    new = {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "id", "type": "long"}, {"name": "city", "type": "string", "default": "?"}],
    }
    topic = await written(kafka, server.url, old, [{"id": 1}])
    async with (
        SchemaRegistryClient(server.url) as registry,
        Producer(kafka.bootstrap_servers, value_serializer=AvroSerializer(registry, new)) as producer,
    ):
        await producer.send(topic, {"id": 2**40, "city": "Rome"})

    def read(**reader: Any) -> list[Any]:
        rows = batch_of(spark, kafka.bootstrap_servers, subscribe=topic)
        orders = rows.select("offset", from_registry("value", url=server.url, **reader).alias("order"))
        return [tuple(row.order) for row in orders.orderBy("offset").collect()]

    assert await on_spark(lambda: read(subject=f"{topic}-value")) == [(1, "?"), (2**40, "Rome")]
    wider = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "double"}]}
    assert await on_spark(lambda: read(schema=wider)) == [(1.0,), (float(2**40),)]


async def test_records_that_cannot_be_decoded_are_null_or_an_error(
    spark: SparkSession, kafka: Kafka, server: EmbeddedSchemaRegistry
) -> None:
    schema = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}
    bad = [b"no id", b"", b"\0" + struct.pack(">i", 999) + b"x", b"\0" + struct.pack(">i", 1) + b"\x7f"]
    topic = await written(kafka, server.url, schema, [{"id": "a"}], raw=bad)

    def read(**options: Any) -> list[Any]:
        rows = batch_of(spark, kafka.bootstrap_servers, subscribe=topic)
        orders = rows.select("offset", from_registry("value", url=server.url, schema=schema, **options).alias("order"))
        return [row.order and row.order.asDict() for row in orders.orderBy("offset").collect()]

    assert await on_spark(read) == [{"id": "a"}, None, None, None, None]
    first, *others = await on_spark(lambda: read(errors="_error"))
    assert first == {"id": "a", "_error": None}
    assert all(record["id"] is None for record in others)
    reasons = [record["_error"] for record in others]
    assert "do not begin with the id of a schema" in reasons[0]
    assert reasons[2].startswith("SchemaRegistryError")
    with pytest.raises(PySparkException, match="from_registry cannot decode a record"):
        await on_spark(lambda: read(mode="FAILFAST"))


@pytest.mark.parametrize("mode", ["PERMISSIVE", "FAILFAST"])
async def test_a_column_of_text_is_an_error(spark: SparkSession, server: EmbeddedSchemaRegistry, mode: Any) -> None:
    schema = record_of()

    def read() -> None:
        rows = spark.sql("SELECT 'text' AS value")
        rows.select(from_registry("value", url=server.url, schema=schema, mode=mode)).collect()

    with pytest.raises(PySparkException, match="from_registry requires a binary column, got string; do not cast it"):
        await on_spark(read)


async def test_one_bad_record_does_not_fail_the_query(
    spark: SparkSession, kafka: Kafka, server: EmbeddedSchemaRegistry
) -> None:
    def price(precision: int) -> dict[str, Any]:
        kind = {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": 2}
        return {"type": "record", "name": "Order", "fields": [{"name": "price", "type": kind}]}

    topic = await written(kafka, server.url, price(9), [{"price": Decimal("1.50")}, {"price": Decimal("1234567.89")}])
    async with SchemaRegistryClient(server.url) as registry, Producer(kafka.bootstrap_servers) as producer:
        other = await registry.register("other", Schema('{"type": "object"}', "JSON"))
        await producer.send(topic, b"\0" + struct.pack(">i", other.schema_id) + b"{}")

    def read() -> list[Any]:
        rows = batch_of(spark, kafka.bootstrap_servers, subscribe=topic)
        orders = from_registry("value", url=server.url, schema=price(4), errors="_error").alias("order")
        return [tuple(row.order) for row in rows.select("offset", orders).orderBy("offset").collect()]

    first, too_large, of_another_format = await on_spark(read)
    assert first == (Decimal("1.50"), None)
    assert too_large[0] is None
    assert "precision" in too_large[1]
    assert "requires a schema of type AVRO" in of_another_format[1]


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refused_login_fails_the_task_and_makes_no_record_null(spark: SparkSession, status: int) -> None:
    schema = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 %d Refused\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" % status)
        await writer.drain()
        writer.close()

    def read(port: int) -> Any:
        rows = spark.createDataFrame([(bytearray(b"\0\0\0\0\1\2"),)], "value binary")
        return rows.select(from_registry("value", url=f"http://127.0.0.1:{port}", schema=schema)).collect()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as refusing:
        port = refusing.sockets[0].getsockname()[1]
        with pytest.raises(PySparkException, match=str(status)):
            await on_spark(lambda: read(port))


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


def record_of(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}, *fields]}


async def decoded(url: str, old: Any, new: Any, values: list[Any]) -> list[Any]:
    """Write values with the old schema. Return the values of a column of the new one."""
    async with SchemaRegistryClient(url) as registry:
        serializer = AvroSerializer[Any](registry, old)
        written = [serializer.serialize("t", value, []) for value in values]
        records = [data if isinstance(data, bytes) else await data for data in written]
        avro = await record_format(registry, Schema(json.dumps(new)), None)
        read = await avro.reader(struct.unpack(">i", records[0][1:5])[0])
        rows: list[Any] = pyarrow.array([read(record, 5) for record in records], avro.kind.arrow).to_pylist()
        return rows


WIDE = Context(prec=50)
MORNING = datetime(2023, 11, 14, 22, 13, 20, 5000, tzinfo=UTC)


@pytest.mark.parametrize(
    ("plain", "kind", "raw", "value"),
    [
        ("long", logical("long", "timestamp-millis"), 1_700_000_000_005, MORNING),
        ("int", logical("long", "timestamp-millis"), -1, datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)),
        ("long", logical("long", "timestamp-micros"), 1_700_000_000_005_000, MORNING),
        ("long", logical("long", "local-timestamp-millis"), 1_700_000_000_005, MORNING.replace(tzinfo=None)),
        ("long", logical("long", "local-timestamp-micros"), 1_700_000_000_005_000, MORNING.replace(tzinfo=None)),
        ("int", logical("int", "date"), 1, date(1970, 1, 2)),
        ("int", logical("int", "time-millis"), 3_600_001, "01:00:00.001000"),
        ("long", logical("long", "time-micros"), 3_600_000_001, "01:00:00.000001"),
        ("bytes", logical("bytes", "decimal", precision=4, scale=2), b"\xff", Decimal("-0.01")),
        ("string", "bytes", "\xff", b"\xc3\xbf"),
    ],
)
async def test_a_record_that_was_written_without_the_logical_type_has_its_value(
    server: EmbeddedSchemaRegistry, plain: str, kind: Any, raw: Any, value: Any
) -> None:
    old, new = record_of({"name": "a", "type": plain}), record_of({"name": "a", "type": kind})
    assert await decoded(server.url, old, new, [{"id": 1, "a": raw}]) == [{"id": 1, "a": value}]


@pytest.mark.parametrize(
    ("kind", "default", "value"),
    [
        (logical("long", "timestamp-millis"), 1_700_000_000_005, MORNING),
        (logical("long", "timestamp-micros"), 1_700_000_000_005_000, MORNING),
        (logical("int", "time-millis"), 3_600_000, "01:00:00"),
        (logical("bytes", "decimal", precision=38, scale=2), "\xff" * 12, Decimal("-0.01")),
        (logical("bytes", "decimal", precision=38, scale=2), "\x40" + "\0" * 15, Decimal(2**126).scaleb(-2, WIDE)),
        ("bytes", "a\xff", b"a\xff"),
        ({"type": "fixed", "name": "F", "size": 1}, "\xff", b"\xff"),
        ({"type": "array", "items": "bytes"}, ["\xff"], [b"\xff"]),
        (
            {
                "type": "record",
                "name": "In",
                "fields": [
                    {"name": "at", "type": logical("long", "timestamp-millis")},
                    {"name": "counts", "type": {"type": "map", "values": "int"}},
                ],
            },
            {"at": 1_700_000_000_005, "counts": {"a": 1}},
            {"at": MORNING, "counts": [("a", 1)]},
        ),
    ],
)
async def test_each_record_without_a_field_has_the_default_of_the_schema(
    server: EmbeddedSchemaRegistry, kind: Any, default: Any, value: Any
) -> None:
    new = record_of({"name": "a", "type": kind, "default": default})
    rows = await decoded(server.url, record_of(), new, [{"id": 1}, {"id": 2}])
    assert rows == [{"id": 1, "a": value}, {"id": 2, "a": value}]


def test_a_decimal_without_a_precision_is_bytes() -> None:
    assert column_type({"type": "bytes", "logicalType": "decimal"}).ddl == "binary"


async def test_rows_are_encoded_for_other_clients(
    spark: SparkSession, kafka: Kafka, server: EmbeddedSchemaRegistry
) -> None:
    topic = await written(kafka, server.url, ORDER, [order(number) for number in range(5)])

    def copy() -> list[Any]:
        rows = batch_of(spark, kafka.bootstrap_servers, subscribe=topic)
        orders = rows.select(from_registry("value", url=server.url, subject=f"{topic}-value").alias("order"))
        encoded = to_registry("order", url=server.url, subject="copies-value", schema=json.dumps(ORDER))
        encoded_rows = orders.select(encoded.alias("value"))
        by_latest = to_registry("order", url=server.url, subject="copies-value").alias("value")
        return [encoded_rows.collect(), orders.select(by_latest).collect()]

    registered, latest = await on_spark(copy)
    assert registered == latest
    source = await on_spark(lambda: batch_of(spark, kafka.bootstrap_servers, subscribe=topic).select("value").collect())
    assert sorted(row.value[5:] for row in registered) == sorted(row.value[5:] for row in source)


async def test_a_schema_may_have_references(spark: SparkSession, kafka: Kafka, server: EmbeddedSchemaRegistry) -> None:
    item = {"type": "record", "name": "shop.Item", "fields": [{"name": "name", "type": "string"}]}
    whole = {"type": "record", "name": "shop.Cart", "fields": [{"name": "item", "type": "shop.Item"}]}
    async with SchemaRegistryClient(server.url) as registry:
        registered = await registry.register("items", Schema(json.dumps(item)))
        assert registered.version is not None
        reference = SchemaReference("shop.Item", "items", registered.version)
        topic = await written(
            kafka, server.url, Schema(json.dumps(whole), "AVRO", (reference,)), [{"item": {"name": "tea"}}]
        )

    def read() -> str:
        rows = batch_of(spark, kafka.bootstrap_servers, subscribe=topic)
        cart = from_registry("value", url=server.url, subject=f"{topic}-value").alias("cart")
        return str(rows.select(cart).select("cart.item.name").collect()[0].name)

    assert await on_spark(read) == "tea"


async def test_wrong_arguments_are_errors_of_one_line(server: EmbeddedSchemaRegistry) -> None:
    record = {"type": "record", "name": "R", "fields": [{"name": "a", "type": ["int", "string"]}]}
    with pytest.raises(ConfigurationError, match="either subject or schema"):
        from_registry("value", url=server.url)
    with pytest.raises(ConfigurationError, match="mode must be"):
        from_registry("value", url=server.url, subject="x", mode="DROP")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="field a is a union of int, string"):
        await asyncio.to_thread(from_registry, "value", url=server.url, schema=record)
    itself = {"type": "record", "name": "R", "fields": [{"name": "next", "type": ["null", "R"]}]}
    with pytest.raises(ConfigurationError, match="field next is R, which contains itself"):
        await asyncio.to_thread(from_registry, "value", url=server.url, schema=itself)
    with pytest.raises(ConfigurationError, match="a setting of the schema registry is wrong"):
        from_registry("value", url=server.url, subject="x", user="me")
    with pytest.raises(SchemaRegistryError):
        await asyncio.to_thread(from_registry, "value", url=server.url, subject="unknown")
    with pytest.raises(KafkaTimeout):
        await asyncio.to_thread(from_registry, "value", url="http://127.0.0.1:1", subject="orders-value", timeout=0.2)
