"""JSON Schema and Protobuf as columns: values of each type, there and back, and records that do not fit."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession

from aiokafka_lite.embedded import EmbeddedSchemaRegistry
from aiokafka_lite.errors import ConfigurationError
from aiokafka_lite.schemas import Schema, SchemaRegistryClient
from aiokafka_lite.spark import from_registry, to_registry
from aiokafka_lite.spark.registry_formats import record_format
from tests.spark.conftest import on_spark

JSON = Schema(
    json.dumps(
        {
            "type": "object",
            "properties": {
                "id": {"type": "integer"},
                "city": {"type": ["string", "null"]},
                "price": {"type": "number"},
                "tags": {"type": "array", "items": {"type": "string"}},
                "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
                "place": {"$ref": "#/definitions/Place"},
                "either": {"oneOf": [{"type": "integer"}, {"type": "string"}]},
                "tree": {"$ref": "#/definitions/Tree"},
            },
            "required": ["id", "city"],
            "definitions": {
                "Place": {"type": "object", "properties": {"x": {"type": "integer"}}},
                "Tree": {"type": "object", "properties": {"left": {"$ref": "#/definitions/Tree"}}},
            },
        }
    ),
    "JSON",
)
JSON_TYPE = (
    "struct<`id`:bigint,`city`:string,`price`:double,`tags`:array<string>,`counts`:map<string,bigint>,"
    "`place`:struct<`x`:bigint>,`either`:string,`tree`:struct<`left`:string>>"
)
JSON_RECORDS: list[dict[str, Any]] = [
    {"id": 1, "city": None},
    {
        "id": 2,
        "city": "Rome",
        "price": 1.5,
        "tags": ["a"],
        "counts": {"b": 2},
        "place": {"x": 3},
        "either": "text",
        "tree": {"left": {"left": {}}},
    },
]
PROTOBUF = Schema(
    """
    syntax = "proto3";
    package shop;
    import "google/protobuf/duration.proto";
    import "google/protobuf/struct.proto";
    import "google/protobuf/timestamp.proto";
    import "google/protobuf/wrappers.proto";
    message Other { string name = 1; }
    message Order {
      enum State { NEW = 0; PAID = 1; }
      message Line { string item = 1; bytes data = 2; }
      int64 id = 1;
      optional string city = 2;
      State state = 3;
      repeated Line lines = 4;
      map<string, Line> by_name = 5;
      google.protobuf.Timestamp at = 6;
      uint64 large = 7;
      repeated uint32 numbers = 8;
      google.protobuf.DoubleValue discount = 9;
      map<int32, double> shares = 10;
      google.protobuf.Duration lasts = 11;
      google.protobuf.Struct details = 12;
    }
    """,
    "PROTOBUF",
)
PROTOBUF_TYPE = (
    "struct<`id`:bigint,`city`:string,`state`:string,`lines`:array<struct<`item`:string,`data`:binary>>,"
    "`by_name`:map<string,struct<`item`:string,`data`:binary>>,`at`:timestamp,`large`:decimal(20,0),"
    "`numbers`:array<bigint>,`discount`:double,`shares`:map<int,double>,"
    "`lasts`:interval day to second,`details`:string>"
)
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
PROTOBUF_RECORDS: list[dict[str, Any]] = [
    {"id": 1},
    {
        "id": 2,
        "city": "",
        "state": "PAID",
        "lines": [{"item": "tea", "data": b"\xff"}],
        "by_name": [("a", {"item": "milk", "data": b""})],
        "at": NOON,
        "large": 2**64 - 1,
        "numbers": [2**32 - 1],
        "discount": 0.0,
        "shares": [(1, 0.5)],
        "lasts": timedelta(minutes=1, microseconds=5),
        "details": '{"a": 1.5}',
    },
]
DEFAULTS = {
    "city": None,
    "state": "NEW",
    "lines": [],
    "by_name": [],
    "at": None,
    "large": 0,
    "numbers": [],
    "shares": [],
}


@pytest.fixture
async def server() -> AsyncIterator[EmbeddedSchemaRegistry]:
    async with EmbeddedSchemaRegistry() as server:
        yield server


@pytest.mark.parametrize(
    ("schema", "message", "ddl", "records"),
    [
        pytest.param(JSON, None, JSON_TYPE, JSON_RECORDS, id="JSON"),
        pytest.param(PROTOBUF, "shop.Order", PROTOBUF_TYPE, PROTOBUF_RECORDS, id="Protobuf"),
    ],
)
async def test_values_of_all_types_come_back_from_arrow(
    server: EmbeddedSchemaRegistry, schema: Schema, message: str | None, ddl: str, records: list[dict[str, Any]]
) -> None:
    async with SchemaRegistryClient(server.url) as client:
        registered = await client.register("orders-value", schema)
        formats = await record_format(client, schema, message)
        assert formats.kind.ddl == ddl
        write, read = await formats.writer("orders-value"), await formats.reader(registered.schema_id)
        in_arrow = pyarrow.array(_for_arrow(records), formats.kind.arrow).to_pylist()
        data = [write(record) for record in in_arrow]
        again = pyarrow.array([read(record, 5) for record in data], formats.kind.arrow).to_pylist()
    if message is not None:
        in_arrow = [
            {**record, **{name: record[name] or value for name, value in DEFAULTS.items()}} for record in in_arrow
        ]
        in_arrow[1]["city"] = ""
    assert again == in_arrow
    if message is None:
        assert [json.loads(record[5:]) for record in data] == records


def _for_arrow(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return records whose parts without a type of Spark are text, and whose maps are pairs."""
    converted = [dict(record) for record in records]
    for record in converted:
        if isinstance(record.get("counts"), dict):
            record["counts"] = list(record["counts"].items())
            record["either"] = json.dumps(record["either"])
            record["tree"] = {"left": json.dumps(record["tree"]["left"])}
    return converted


async def test_columns_of_both_formats_are_decoded_and_encoded(
    spark: SparkSession, server: EmbeddedSchemaRegistry
) -> None:
    schema = Schema(json.dumps({"type": "object", "properties": {"id": {"type": "integer"}}}), "JSON")

    def run() -> tuple[list[Row], list[Row], list[Row]]:
        rows = spark.range(3).selectExpr("struct(id) AS order")
        as_json = to_registry("order", url=server.url, subject="json-value", schema=schema)
        as_protobuf = to_registry(
            "order", url=server.url, subject="protobuf-value", schema=PROTOBUF, message="shop.Order"
        )
        encoded = rows.select(as_json.alias("json"), as_protobuf.alias("protobuf"))
        decoded = encoded.select(
            from_registry("json", url=server.url, subject="json-value").alias("json"),
            from_registry("protobuf", url=server.url, subject="protobuf-value", message="shop.Order").alias("protobuf"),
        )
        other = from_registry("protobuf", url=server.url, subject="protobuf-value", errors="_error").alias("other")
        bad = spark.sql("SELECT concat(X'0000000001', CAST('{\"id\": \"x\"}' AS BINARY)) AS value")
        not_valid = from_registry("value", url=server.url, subject="json-value", errors="_error").alias("order")
        with pytest.raises(PySparkException, match="'x' is not of type 'integer'"):
            bad.select(from_registry("value", url=server.url, subject="json-value", mode="FAILFAST")).collect()
        return decoded.collect(), encoded.select(other).limit(1).collect(), bad.select(not_valid).collect()

    decoded, others, invalid = await on_spark(run)
    assert [(row.json.id, row.protobuf.id, row.protobuf.state) for row in decoded] == [(n, n, "NEW") for n in range(3)]
    assert others[0].other["_error"] == "ValueError: the record is a shop.Order, and no shop.Other"
    assert invalid[0].order["_error"] == "ValueError: 'x' is not of type 'integer' at $.id"


@pytest.mark.parametrize(
    ("record", "complaint"),
    [
        ({"id": 1, "CITY": "Rome"}, "CITY is not a field of shop.Order"),
        ({"inside": {"A": 1}}, "A is not a field of shop.Inside"),
        ({"email": "a", "phone": "b"}, "phone must be null, because email is not: shop.Order has only one of them"),
        ({"all": [None]}, "the data must be a struct with the fields of shop.Inside, got None"),
        ({"by_name": [("a", None)]}, "the data must be a struct with the fields of shop.Inside, got None"),
        (1, "the data must be a struct with the fields of shop.Order, got 1"),
    ],
)
async def test_a_value_that_has_no_place_in_the_message_is_an_error(
    server: EmbeddedSchemaRegistry, record: Any, complaint: str
) -> None:
    text = """
        syntax = "proto3";
        package shop;
        message Order {
          int64 id = 1;
          optional string city = 2;
          Inside inside = 3;
          oneof contact { string email = 4; string phone = 5; }
          repeated Inside all = 6;
          map<string, Inside> by_name = 7;
        }
        message Inside { int32 a = 1; }
        """
    async with SchemaRegistryClient(server.url) as client:
        schema = (await client.register("orders-value", Schema(text, "PROTOBUF"))).schema
        write = await (await record_format(client, schema, "shop.Order")).writer("orders-value")
        write({"id": 1, "city": None, "email": None, "phone": "b"})
        with pytest.raises(ValueError, match=f"^{complaint}$"):
            write(record)


@pytest.mark.parametrize("number", [2**53 + 1, 10**20, 1, 1.5])
async def test_every_number_of_json_is_a_double(server: EmbeddedSchemaRegistry, number: float) -> None:
    properties = {"price": {"type": "number"}, "prices": {"type": "array", "items": {"type": "number"}}}
    async with SchemaRegistryClient(server.url) as client:
        schema = Schema(json.dumps({"type": "object", "properties": properties}), "JSON")
        registered = await client.register("orders-value", schema)
        formats = await record_format(client, schema, None)
        write, read = await formats.writer("orders-value"), await formats.reader(registered.schema_id)
        record = read(write({"price": number, "prices": [number]}), 5)
    assert pyarrow.array([record], formats.kind.arrow).to_pylist() == [
        {"price": float(number), "prices": [float(number)]}
    ]


@pytest.mark.parametrize(
    ("schema", "message", "complaint"),
    [
        (Schema('"string"'), "shop.Order", "message is for schemas of type PROTOBUF, got a schema of type AVRO"),
        (PROTOBUF, "shop.Cart", "message: the schema has no message shop.Cart; it has shop.Other, shop.Order"),
        (
            Schema('syntax = "proto3"; message Loop { Loop next = 1; }', "PROTOBUF"),
            None,
            "field next is Loop, which contains itself",
        ),
        (Schema('syntax = "proto3"; enum State { NEW = 0; }', "PROTOBUF"), None, "the schema has no message$"),
        (
            Schema('syntax = "proto3"; message Empty { }', "PROTOBUF"),
            None,
            "the schema is Empty, a message without fields",
        ),
    ],
)
async def test_wrong_messages_are_errors_of_one_line(
    server: EmbeddedSchemaRegistry, schema: Schema, message: str | None, complaint: str
) -> None:
    async with SchemaRegistryClient(server.url) as client:
        with pytest.raises(ConfigurationError, match=f"^{complaint}"):
            await record_format(client, schema, message)
