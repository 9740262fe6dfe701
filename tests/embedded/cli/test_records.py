"""``produce`` and ``consume`` are each other's inverse, and begin and end at the given places."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

pytest.importorskip("typer")

from aiokafka_lite.testing.server import EmbeddedKafkaServer
from tests.embedded.cli.conftest import CommandLine

WRITTEN = [
    {"partition": 1, "timestamp": 1767225600123, "key": "k", "value": "v", "headers": []},
    {"partition": 0, "timestamp": 1767225600124, "key": None, "value": None, "headers": []},
    {"partition": 1, "timestamp": 1767225600125, "key": "", "value": "", "headers": []},
    {"partition": 1, "timestamp": 5, "key_base64": "/w==", "value_base64": "/wA=", "headers": []},
    {
        "partition": 0,
        "timestamp": 0,
        "key": "\u00fc",
        "value": "two\nlines",
        "headers": [{"key": "a", "value": "1"}, {"key": "a", "value": None}, {"key": "b", "value_base64": "/w=="}],
    },
]


def produce(cli: CommandLine, folder: Path, topic: str, lines: bytes, *options: str) -> None:
    path = folder / "lines"
    path.write_bytes(lines)
    cli.ask("produce", topic, "--file", str(path), *options)


def consume(cli: CommandLine, *arguments: str) -> str:
    return cli.ask("consume", *arguments, *(() if "--until" in arguments else ("--until", "end")))


def test_produce_writes_the_json_that_consume_prints(cli: CommandLine, tmp_path: Path) -> None:
    for topic in ("first", "copy"):
        cli.ask("topics", "create", topic, "-p", "2")
    produce(cli, tmp_path, "first", "".join(json.dumps(record) + "\n" for record in WRITTEN).encode(), "--json-in")
    printed = consume(cli, "first", "--json")
    produce(cli, tmp_path, "copy", printed.encode(), "--json-in")

    def records(topic: str) -> list[dict[str, object]]:
        lines = sorted(
            map(json.loads, consume(cli, topic, "--json").splitlines()), key=lambda record: record["timestamp"]
        )
        return [
            {name: record[name] for name in record if name in WRITTEN[0] or name.endswith("64")} for record in lines
        ]

    assert records("copy") == records("first") == sorted(WRITTEN, key=lambda record: record["timestamp"])  # type: ignore[arg-type, return-value]


def test_a_line_that_is_no_record_ends_the_command_with_its_number(cli: CommandLine, tmp_path: Path) -> None:
    cli.ask("topics", "create", "wrong")
    path = tmp_path / "lines"
    path.write_text('{"value":"good"}\n{"vaule":"bad"}\n')
    status, _, errors = cli.run("produce", "wrong", "--json-in", "--file", str(path))
    assert status == 1
    assert "line 2: has the unknown member 'vaule'" in errors


def test_a_value_may_be_any_json_and_headers_an_object(
    cli: CommandLine, tmp_path: Path, server: EmbeddedKafkaServer
) -> None:
    lines = (
        '{"key":7,"value":{"city":"K\u00f6ln","tags":[1,2.5,null]},"headers":{"lang":"de","gone":null}}\n'
        '{"key":["a"],"value":true}\n'
    )
    produce(cli, tmp_path, "objects", lines.encode(), "--json-in")
    first, second = sorted(server.records("objects"), key=lambda record: record.key or b"")
    assert (first.key, first.value) == (b"7", '{"city":"K\u00f6ln","tags":[1,2.5,null]}'.encode())
    assert [(header.key, header.value) for header in first.headers] == [("lang", b"de"), ("gone", None)]
    assert (second.key, second.value) == (b'["a"]', b"true")


def test_a_number_that_json_does_not_have_is_refused(cli: CommandLine, tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_text('{"value":{"a":NaN}}\n')
    cli.ask("topics", "create", "numbers")
    status, _, errors = cli.run("produce", "numbers", "--json-in", "--file", str(path))
    assert status == 1
    assert "line 1: value must have numbers that JSON allows" in errors


@pytest.mark.parametrize("lines", [4, pytest.param(700_000, marks=pytest.mark.thorough)])
def test_produce_prints_the_offsets_it_has_written(cli: CommandLine, tmp_path: Path, lines: int) -> None:
    topic = f"written-{lines}"
    cli.ask("topics", "create", topic, "-p", "2")
    path = tmp_path / "lines"
    path.write_bytes(b"a\n")
    cli.ask("produce", topic, "--partition", "1", "--file", str(path))
    path.write_bytes(b"12345678\n" * lines)  # the longer input is sent as columns
    printed = json.loads(cli.ask("produce", topic, "--partition", "1", "--json", "--file", str(path)))
    assert printed["records"] == lines
    assert printed["partitions"] == [{"partition": 1, "first_offset": 1, "last_offset": lines, "records": lines}]


@pytest.mark.parametrize(
    ("lines", "options"),
    [("1\n", ("--partition", "5")), ('{"value":1}\n{"value":2,"partition":5}\n', ("--json-in",))],
)
def test_a_partition_that_does_not_exist_is_not_waited_for_silently(
    cli: CommandLine, tmp_path: Path, lines: str, options: tuple[str, ...]
) -> None:
    (tmp_path / "lines").write_text(lines)
    cli.run("topics", "create", "narrow")
    status, _, errors = cli.run("produce", "narrow", "--timeout", "1", "--file", str(tmp_path / "lines"), *options)
    assert status == 1
    assert errors.count("topic 'narrow' has 1 partition: waiting until partition 5 exists\n") == 1, errors
    assert "topic 'narrow' has partitions 0 to 0, got partition=5" in errors


def test_a_rate_may_be_infinite(cli: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("1\n2\n")
    cli.ask("topics", "create", "fast")
    cli.ask("produce", "fast", "--rate", "inf", "--file", str(tmp_path / "lines"))
    assert cli.ask("consume", "fast", "--until", "end") == "1\n2\n"


def test_every_record_has_the_key_of_the_option(cli: CommandLine, tmp_path: Path, server: EmbeddedKafkaServer) -> None:
    produce(cli, tmp_path, "keyed", b"a\nb\n", "--key", r"k\x31")
    assert [(record.key, record.value) for record in server.records("keyed")] == [(b"k1", b"a"), (b"k1", b"b")]
    for other in (("--key-separator", ":"), ("--json-in",)):
        assert "excludes" in cli.fails("produce", "keyed", "--key", "k", *other, status=2)


def test_tombstones_are_written_and_printed(cli: CommandLine, tmp_path: Path, server: EmbeddedKafkaServer) -> None:
    produce(cli, tmp_path, "deleted", rb"a:" + b"\n" + rb":b" + b"\n", "-k", ":", "--null", "")
    assert {(record.key, record.value) for record in server.records("deleted")} == {(b"a", None), (None, b"b")}
    printed = consume(cli, "deleted", "--format", "key-value", "--null", "NULL")
    assert sorted(printed.splitlines()) == ["NULL\tb", "a\tNULL"]


def test_separators_may_be_escaped(cli: CommandLine, tmp_path: Path) -> None:
    produce(cli, tmp_path, "escaped", b"a\tb\n", "--key-separator", r"\t")
    assert consume(cli, "escaped", "--format", r"%k\x3d%s\n") == "a=b\n"


@pytest.fixture(scope="module")
def hours(server: EmbeddedKafkaServer, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A topic of two partitions with the values 0 to 9, an hour apart, the last one a second ago."""
    from aiokafka_lite import Producer

    last = int(time.time() * 1000) - 1000
    server.create_topic("hours", partitions=2)

    async def fill() -> None:
        async with Producer(server.bootstrap_servers) as producer:
            for number in range(10):
                await producer.send(
                    "hours", b"%d" % number, timestamp=last - 3_600_000 * (9 - number), partition=number % 2
                )

    server.call(fill)
    return "hours"


@pytest.mark.parametrize(
    "options, printed",
    [
        (("--from", "-1"), "89"),
        (("--from", "-2"), "6789"),
        (("--from", "-100"), "0123456789"),
        (("--until", "90m"), "01234567"),
        (("--from", "150m", "--until", "90m"), "7"),
        (("--until", "1d"), ""),
        (("--from", "-2", "--until", "90m"), "67"),
        (("--from", "-1", "--partition", "1"), "9"),
        (("--from", "-1", "--group", "new"), "89"),
        (("--until", "90m", "--group", "other"), "01234567"),
    ],
)
def test_reading_begins_and_ends_at_the_given_places(
    cli: CommandLine, hours: str, options: tuple[str, ...], printed: str
) -> None:
    assert "".join(sorted(consume(cli, hours, *options).split())) == printed


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("produce", "t", "--json-in", "-k", ":"), "--json-in excludes --key, --key-separator and --null"),
        (("consume", "t", "--until", "2100-01-01"), "until must be a time in the past, got '2100-01-01'"),
        (("consume", "t", "--format", "keys"), "format must be one of value, key-value, json"),
        (("consume", "t", "--format", "%k", "--headers"), "a format string has its own fields"),
    ],
)
def test_a_wrong_argument_is_explained(cli: CommandLine, arguments: tuple[str, ...], message: str) -> None:
    assert message in cli.fails(*arguments, status=2)
