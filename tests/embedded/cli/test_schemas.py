"""Keys and values through a schema registry: ``consume``, ``produce`` and ``schemas``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio.from_thread
import pytest

pytest.importorskip("typer")
pytest.importorskip("fastavro")
pytest.importorskip("grpc_tools")

from aiokafka_lite.embedded import EmbeddedSchemaRegistry
from aiokafka_lite.testing.server import EmbeddedKafkaServer
from tests.embedded.cli.conftest import CommandLine


@pytest.fixture(scope="module")
def registry() -> Iterator[EmbeddedSchemaRegistry]:
    """A registry in a thread."""
    with anyio.from_thread.start_blocking_portal() as portal:
        registry = EmbeddedSchemaRegistry()
        with portal.wrap_async_context_manager(registry):
            yield registry


@pytest.fixture(autouse=True)
def address(registry: EmbeddedSchemaRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIOKAFKA_LITE_SCHEMA_REGISTRY_URL", registry.url)


AVRO = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}], "default": None},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "tags", "type": {"type": "map", "values": "long"}},
        {"name": "raw", "type": ["null", "bytes"], "default": None},
        {
            "name": "buyer",
            "type": [
                "null",
                {"type": "record", "name": "Person", "fields": [{"name": "name", "type": "string"}]},
                {"type": "record", "name": "Company", "fields": [{"name": "firm", "type": "string"}]},
            ],
        },
        {"name": "next", "type": ["null", "Order"], "default": None},
    ],
}
ORDER: dict[str, Any] = {
    "id": "6b3e0a52-9c0f-4d0c-8f5c-2f6a2a9d1b11",
    "at": "2026-01-31T12:00:00.250000+00:00",
    "day": "2026-02-01",
    "price": "19.90",
    "tags": {"a": 9007199254740993},
    "raw": "/wA=",
    "buyer": {"name": "Ada"},
    "next": None,
}
PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "money.proto";
message Ignored { string x = 1; }
message Order {
  message Item { string name = 1; int64 count = 2; }
  string id = 1;
  repeated Item items = 2;
  google.protobuf.Timestamp at = 3;
  map<string, int64> tags = 4;
  oneof paid { shop.Money money = 5; bool free = 6; }
  bytes raw = 7;
}
"""
MONEY = 'syntax = "proto3"; package shop; message Money { int64 units = 1; string currency = 2; }'
JSON = {
    "title": "order",
    "type": "object",
    "properties": {"id": {"type": "integer"}, "city": {"$ref": "city.json"}},
    "required": ["id"],
}


def write(folder: Path, name: str, content: object) -> str:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return str(path)


def produce(cli: CommandLine, folder: Path, topic: str, values: list[Any], *options: str) -> None:
    path = write(folder, "lines", "".join(json.dumps(value) + "\n" for value in values))
    cli.run("topics", "create", topic)
    cli.ask("produce", topic, "--file", path, *options)


def consume(cli: CommandLine, topic: str, *options: str) -> list[Any]:
    return [json.loads(line) for line in cli.ask("consume", topic, "--until", "end", *options).splitlines()]


def test_avro_is_written_and_read_with_logical_types_unions_and_recursion(cli: CommandLine, tmp_path: Path) -> None:
    nested = {**ORDER, "buyer": {"shop.Company": {"firm": "ACME"}}, "next": ORDER}
    produce(cli, tmp_path, "avro", [ORDER, nested], "--value-schema", write(tmp_path, "order.avsc", AVRO))
    assert consume(cli, "avro") == [ORDER, {**nested, "buyer": {"firm": "ACME"}}]
    (first, _) = consume(cli, "avro", "--json")
    assert first["value"] == ORDER
    assert isinstance(first["value_schema"], int)
    raw = cli.ask("consume", "avro", "--until", "end", "--raw", "--format", "hex")
    assert raw.startswith("00000000")


def test_decoded_records_are_copied_with_the_newest_schema(cli: CommandLine, tmp_path: Path) -> None:
    schema = write(tmp_path, "order.avsc", AVRO)
    produce(cli, tmp_path, "original", [ORDER], "--value-schema", schema)
    cli.ask("schemas", "register", "copied-value", schema)
    printed = cli.ask("consume", "original", "--until", "end", "--json")
    path = write(tmp_path, "printed", printed)
    cli.ask("produce", "copied", "--file", path, "--json-in", "--value-schema", "latest")
    assert consume(cli, "copied") == [ORDER]
    assert consume(cli, "copied", "--format", r"%s\n") == [ORDER]


def test_a_union_in_which_two_records_fit_needs_the_name_of_one(cli: CommandLine, tmp_path: Path) -> None:
    records = [{"type": "record", "name": name, "fields": [{"name": "x", "type": "int"}]} for name in ("A", "B")]
    schema = write(tmp_path, "union.avsc", records)
    produce(cli, tmp_path, "union", [{"B": {"x": 1}}], "--value-schema", schema)
    status, _, errors = cli.run(
        "produce", "union", "--file", write(tmp_path, "two", '{"x":1}\n'), "--value-schema", schema
    )
    assert status == 1
    assert 'line 1: value: the data fits A and B; name the type, as in {"A": {...}}' in errors


def test_keys_have_schemas_too(cli: CommandLine, tmp_path: Path) -> None:
    key, value = write(tmp_path, "key.avsc", '{"type":"long"}'), write(tmp_path, "value.avsc", '"string"')
    path = write(tmp_path, "lines", '{"key":7,"value":"seven"}\n')
    cli.ask("produce", "keyed-avro", "--file", path, "--json-in", "--key-schema", key, "--value-schema", value)
    (record,) = consume(cli, "keyed-avro", "--json")
    assert (record["key"], record["value"]) == (7, "seven")
    assert cli.ask("consume", "keyed-avro", "--until", "end", "--format", "key-value") == '7\t"seven"\n'


def test_protobuf_is_written_and_read_without_its_classes(cli: CommandLine, tmp_path: Path) -> None:
    cli.ask("schemas", "register", "money", write(tmp_path, "money.proto", MONEY))
    cli.ask(
        *("schemas", "register", "proto-value", write(tmp_path, "order.proto", PROTO)),
        *("--reference", "money.proto=money:1"),
    )
    order = {
        "id": "o1",
        "items": [{"name": "pen", "count": 9007199254740993}],
        "at": "2026-01-31T12:00:00Z",
        "tags": {"a": 1},
        "money": {"units": 5, "currency": "EUR"},
        "raw": "/wA=",
    }
    produce(cli, tmp_path, "proto", [order], "--value-schema", "latest", "--value-message", "shop.Order")
    item = {"name": "ink", "count": 3}
    produce(cli, tmp_path, "proto", [item], "--value-schema", "latest", "--value-message", "shop.Order.Item")
    assert consume(cli, "proto") == [order, item]
    error = cli.run("produce", "proto", "--file", write(tmp_path, "x", '{"idd":1}\n'), "--value-schema", "latest")[2]
    assert "line 1: value: the value is not a shop.Ignored: " in error
    assert '"idd"' in error


@pytest.mark.parametrize("value", ['{"kind":"\\ud800"}', '{"kind":Infinity}', '{"kind":"\\ud800x"}', '"\\ud800"'])
def test_a_value_that_protobuf_itself_does_not_expect_is_an_error_of_its_line(
    cli: CommandLine, tmp_path: Path, value: str
) -> None:
    schema = write(tmp_path, "kind.proto", 'syntax = "proto3"; message A { Kind kind = 1; } enum Kind { NONE = 0; }')
    cli.run("topics", "create", "kinds")
    path = write(tmp_path, "lines", f"{value}\n")
    errors = cli.run("produce", "kinds", "--file", path, "--value-schema", schema)[2]
    assert "line 1: value: the value is not a A: " in errors


def test_json_schema_is_checked_when_it_is_written(cli: CommandLine, tmp_path: Path) -> None:
    cli.ask("schemas", "register", "cities", write(tmp_path, "city.json", {"type": "string"}))
    path = write(tmp_path, "order.json", JSON)
    cli.ask("schemas", "register", "json-value", path, "--reference", "city.json=cities:1")
    produce(cli, tmp_path, "json", [{"id": 1, "city": "Bonn"}], "--value-schema", "latest")
    assert consume(cli, "json") == [{"id": 1, "city": "Bonn"}]
    wrong = write(tmp_path, "wrong", '{"id":1,"city":"Bonn"}\n{"id":1,"city":7}\n')
    status, _, errors = cli.run("produce", "json", "--file", wrong, "--value-schema", "latest")
    assert status == 1
    assert "line 2: value: 7 is not of type 'string' at $.city" in errors


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('{"id":"x"', "must be JSON for its schema; character"),
        (json.dumps({**ORDER, "day": "tomorrow"}), "day must be a date in ISO 8601, got 'tomorrow'"),
        (json.dumps({**ORDER, "raw": "?"}), "raw must be base64, got '?'"),
        (json.dumps({**ORDER, "price": "1.999"}), "price must be a Decimal"),
        (json.dumps({**ORDER, "prise": 1}), "prise"),
        (json.dumps({**ORDER, "buyer": {"nam": "Ada"}}), "buyer"),
    ],
)
def test_a_line_that_the_schema_does_not_describe_names_the_place(
    cli: CommandLine, tmp_path: Path, line: str, problem: str
) -> None:
    schema = write(tmp_path, "order.avsc", AVRO)
    cli.run("topics", "create", "wrong-avro")
    path = write(tmp_path, "lines", json.dumps(ORDER) + "\n" + line + "\n")
    status, _, errors = cli.run("produce", "wrong-avro", "--file", path, "--value-schema", schema)
    assert status == 1
    assert "line 2: value: " in errors
    assert problem in errors


def test_what_cannot_be_decoded_is_printed_as_it_is_with_a_note(
    cli: CommandLine, tmp_path: Path, server: EmbeddedKafkaServer
) -> None:
    produce(cli, tmp_path, "mixed", [1], "--value-schema", write(tmp_path, "number.avsc", '"long"'))
    for value in (b"plain", b"more", b"\0\0\1\0\0unknown", None):
        server.produce("mixed", value, key=b"k")
    status, output, errors = cli.run("consume", "mixed", "--until", "end", "--null", "NULL")
    assert status == 0, errors
    assert output.splitlines() == ["1", "plain", "more", "\0\0\1\0\0unknown", "NULL"]
    assert "the value of mixed-0 at offset 1 has no id of a schema; it is printed as it is" in errors
    assert "has the unknown schema 65536" in errors
    assert "1 more keys or values were printed as they are" in errors
    assert errors.count("\n") == 3


def test_a_value_that_is_cut_off_does_not_end_the_command(
    cli: CommandLine, tmp_path: Path, server: EmbeddedKafkaServer
) -> None:
    produce(cli, tmp_path, "cut", [ORDER], "--value-schema", write(tmp_path, "order.avsc", AVRO))
    (whole,) = server.records("cut")
    assert whole.value is not None
    server.produce("cut", whole.value[:9])
    status, output, errors = cli.run("consume", "cut", "--until", "end", "--format", "json")
    assert (status, len(output.splitlines())) == (0, 2)
    assert "cannot be decoded" in errors


def test_what_only_other_writers_put_into_json_does_not_end_the_command(
    cli: CommandLine, tmp_path: Path, server: EmbeddedKafkaServer
) -> None:
    produce(cli, tmp_path, "loose", [{"a": "ö"}], "--value-schema", write(tmp_path, "any.json", {"type": "object"}))
    (whole,) = server.records("loose")
    assert whole.value is not None
    for value in (b'{"half":"\\ud800 \\u00e9"}', b'{"numbers":[NaN,1e999,-Infinity,1.5]}'):
        server.produce("loose", whole.value[:5] + value)
    expected = [{"a": "ö"}, {"half": "\ud800 é"}, {"numbers": ["NaN", "Infinity", "-Infinity", 1.5]}]

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    printed = cli.ask("consume", "loose", "--until", "end").splitlines()
    assert printed[0] == '{"a":"ö"}'
    assert [json.loads(line, parse_constant=refuse) for line in printed] == expected
    records = cli.ask("consume", "loose", "--until", "end", "--json").splitlines()
    assert [json.loads(line, parse_constant=refuse)["value"] for line in records] == expected
    assert len(cli.ask("consume", "loose", "--until", "end", "--grep", "half|a").splitlines()) == 3


def test_a_registry_that_does_not_answer_ends_the_command(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, registry: EmbeddedSchemaRegistry
) -> None:
    produce(cli, tmp_path, "down", [1], "--value-schema", write(tmp_path, "number.avsc", '"long"'))
    monkeypatch.setenv("AIOKAFKA_LITE_SCHEMA_REGISTRY_URL", "http://127.0.0.1:1")
    for command in (("consume", "down", "--until", "end"), ("schemas", "list")):
        status, output, errors = cli.run(*command, "--timeout", "1")
        assert (status, output) == (1, "")
        assert "was not answered within timeout=1 s by http://127.0.0.1:1" in errors
    monkeypatch.delenv("AIOKAFKA_LITE_SCHEMA_REGISTRY_URL")
    assert "no schema registry is given: use --registry URL" in cli.fails("schemas", "list", status=2)


def test_schemas_are_registered_listed_shown_checked_and_deleted(cli: CommandLine, tmp_path: Path) -> None:
    first = write(tmp_path, "a.avsc", {"type": "record", "name": "A", "fields": []})
    registered = cli.objects("schemas", "register", "life-value", first)
    assert (registered["version"], registered["type"]) == (1, "AVRO")
    assert ["life-value", "1", str(registered["id"]), "AVRO"] in cli.rows("schemas", "list", "life")
    assert json.loads(cli.ask("schemas", "get", "life-value")) == json.loads(Path(first).read_text())
    assert cli.objects("schemas", "get", "--id", str(registered["id"]))["type"] == "AVRO"
    assert cli.objects("schemas", "get", "life-value", "--version", "1")["id"] == registered["id"]
    worse = {"type": "record", "name": "A", "fields": [{"name": "x", "type": "int"}]}
    status, output, errors = cli.run("schemas", "check", "life-value", write(tmp_path, "b.avsc", worse), "--json")
    assert status == 1
    assert json.loads(output)["compatible"] is False
    assert errors
    assert cli.ask("schemas", "check", "life-value", first) == "compatible\n"
    deleted = cli.objects("schemas", "delete", "life-value", "--yes")
    assert deleted["done"] == [{"subject": "life-value", "version": 1}]
    assert "life-value" in cli.fails("schemas", "get", "life-value")
    assert cli.rows("schemas", "list", "life") == []


def test_a_schema_is_printed_as_it_was_registered(cli: CommandLine, tmp_path: Path) -> None:
    text = '{"type":"object","title":"\\ud800","description":"\\u00e9","maximum":1e999,"minimum":1.10}'
    (tmp_path / "odd.json").write_text(f" {text}\n")
    cli.ask("schemas", "register", "odd", str(tmp_path / "odd.json"))
    assert cli.ask("schemas", "get", "odd").splitlines() == [
        "{",
        '  "type": "object",',
        '  "title": "\\ud800",',
        '  "description": "é",',
        '  "maximum": 1e999,',
        '  "minimum": 1.10',
        "}",
    ]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("get",), "schemas get requires a subject, or --id"),
        (("get", "a", "--id", "1"), "schemas get requires a subject, or --id"),
        (("check", "a", "FILE", "--against", "x"), "--against must be a version or latest, got 'x'"),
        (("register", "a", "FILE", "--reference", "x"), "--reference must be NAME=SUBJECT:VERSION, got 'x'"),
        (("register", "a", "OTHER"), "must be an .avsc, .json or .proto file"),
    ],
)
def test_wrong_arguments_of_schemas_are_explained(
    cli: CommandLine, tmp_path: Path, arguments: tuple[str, ...], error: str
) -> None:
    files = {"FILE": write(tmp_path, "a.avsc", '"long"'), "OTHER": write(tmp_path, "a.txt", '"long"')}
    assert error in cli.fails("schemas", *(files.get(word, word) for word in arguments), status=2)


def test_a_file_that_protobuf_does_not_compile_is_explained(cli: CommandLine, tmp_path: Path) -> None:
    broken = write(tmp_path, "broken.proto", 'syntax = "proto3"; message A { strin x = 1; }')
    cli.run("topics", "create", "broken")
    status, _, errors = cli.run("produce", "broken", "--file", write(tmp_path, "l", "{}\n"), "--value-schema", broken)
    assert status == 2
    assert '"strin" is not defined' in errors


def test_the_password_of_a_registry_is_no_argument(cli: CommandLine) -> None:
    error = cli.fails("schemas", "list", "-X", "schema.registry.basic.auth.user.info=a:hunter2", status=2)
    assert "must not be given in plain text" in error
    assert "hunter2" not in error
    error = cli.fails("schemas", "list", "--registry", "http://alice:hunter2@127.0.0.1:1", status=2)
    assert "--registry must have no user and password" in error
    assert "hunter2" not in error
    assert "did you mean schema.registry.url" in cli.fails(
        "schemas", "list", "-X", "schema.registry.uri=http://x", status=2
    )
