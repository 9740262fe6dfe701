"""``consume`` prints the records that are searched for, and stops when enough of them are found."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("typer")
pytest.importorskip("cel")

from aiokafka_lite.cli.terminal.search import Expression
from aiokafka_lite.errors import ConfigurationError
from aiokafka_lite.testing.server import EmbeddedKafkaServer
from tests.embedded.cli.conftest import CommandLine

RECORDS = [
    (b"de-1", b'{"amount":150.5,"city":"Bonn","lines":[{"n":2}]}', [("lang", b"de")]),
    (b"de-2", b'{"amount":7,"city":"Ulm"}', [("lang", b"de"), ("trace", b"x")]),
    (b"fr-3", b'{"amount":900,"city":"Nice"}', [("lang", b"fr")]),
    (b"fr-4", b"no json", []),
    (None, None, []),
    (b"\xff", b"\xff\xfe", []),
    (b"de-7", b'{"amount":"many"}', []),
]


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedKafkaServer]:
    """A cluster with the records above in one partition."""
    with EmbeddedKafkaServer(1) as server:
        server.create_topic("orders")
        for key, value, headers in RECORDS:
            server.produce("orders", value, key=key, headers=dict(headers))
        yield server


def offsets(cli: CommandLine, *options: str) -> list[int]:
    printed = cli.ask("consume", "orders", "--until", "end", "--format", r"%o\n", *options)
    return [int(line) for line in printed.split()]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ('value.amount > 100 && key.startsWith("de")', [0]),
        ("value.amount > 100", [0, 2]),
        ('value.city in ["Ulm", "Nice"]', [1, 2]),
        ("value.lines[0].n == 2", [0]),
        ("value.lines.exists(line, line.n > 1)", [0]),
        ('value == "no json"', [3]),
        ("value == null", [4]),
        ('headers.lang == "fr"', [2]),
        ("has(headers.trace)", [1]),
        ("offset >= 5 && partition == 0", [5, 6]),
        ('topic == "bills"', []),
        ('time > timestamp("2020-01-01T00:00:00Z") && timestamp > 0 && offset < 2', [0, 1]),
        ('key.matches("^fr")', [2, 3]),
        ("time.getFullYear() > 2020 && offset < 1", [0]),
    ],
)
def test_an_expression_selects_records(cli: CommandLine, where: str, expected: list[int]) -> None:
    assert offsets(cli, "--where", where) == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--grep", r"de-\d"), [0, 1, 6]),
        (("--grep", "Nice"), [2]),
        (("--grep", "^no json$"), [3]),
        (("--with-header", "lang=de"), [0, 1]),
        (("--with-header", "lang=de", "--with-header", "trace"), [1]),
        (("--grep", "de", "--with-header", "lang", "--where", "value.amount < 100"), [1]),
        (("--grep", "de", "--from", "1"), [1, 6]),
        (("--grep", "de", "--partition", "0", "-n", "2"), [0, 1]),
    ],
)
def test_patterns_and_headers_select_records(cli: CommandLine, options: tuple[str, ...], expected: list[int]) -> None:
    assert offsets(cli, *options) == expected


def test_the_search_ends_when_enough_is_found(cli: CommandLine) -> None:
    """Without --until, the command would wait for more records."""
    printed = cli.ask("consume", "orders", "--where", "value.amount > 0", "-n", "3", "--format", r"%o\n")
    assert printed.split() == ["0", "1", "2"]


def test_a_group_commits_no_record_that_the_search_did_not_reach(cli: CommandLine) -> None:
    search = ("consume", "orders", "--group", "searchers", "--where", "has(value.city)", "--format", r"%o\n")
    assert cli.ask(*search, "-n", "2").split() == ["0", "1"]
    (described,) = cli.objects("groups", "describe", "searchers")
    assert described["current_offset"] == 2
    assert cli.ask(*search, "--until", "end").split() == ["2"]
    (described,) = cli.objects("groups", "describe", "searchers")
    assert described["current_offset"] == len(RECORDS)


def test_records_that_cannot_be_compared_are_counted(cli: CommandLine) -> None:
    status, output, errors = cli.run("consume", "orders", "--until", "end", "--where", "value.amount > 100")
    assert (status, len(output.splitlines())) == (0, 2)
    assert "--where could not be compared with 4 records; the first is orders-0 at offset 3: " in errors
    assert errors.count("\n") == 1


@pytest.mark.parametrize(
    ("where", "count"),
    [("value.n / value.parts > 1", 1), ("value.n % value.parts == 0", 1), ("value.n / partition > 1", 2)],
)
def test_a_division_by_zero_is_no_match_and_does_not_end_the_search(
    cli: CommandLine, server: EmbeddedKafkaServer, where: str, count: int
) -> None:
    if "shares" not in cli.ask("topics", "list"):
        server.create_topic("shares")
        for value in (b'{"n":8,"parts":0}', b'{"n":8,"parts":4}'):
            server.produce("shares", value)
    status, output, errors = cli.run("consume", "shares", "--until", "end", "--where", where)
    assert (status, len(output.splitlines())) == (0, 2 - count), errors
    assert f"--where could not be compared with {count} records; the first is shares-0 at offset 0: " in errors
    assert "by zero" in errors


@pytest.mark.parametrize(
    ("where", "error"),
    [
        ("size(key) > 0", "offset 4: the function 'size' does not take its arguments: key is null"),
        ("size(value.amount) > 0", "offset 0: the function 'size' does not take its arguments: one may be null"),
    ],
)
def test_an_argument_that_is_null_is_named_and_not_an_unknown_function(
    cli: CommandLine, where: str, error: str
) -> None:
    _, _, errors = cli.run("consume", "orders", "--until", "end", "--where", where)
    assert error in errors
    assert "Undefined" not in errors


@pytest.mark.parametrize(
    ("where", "error"),
    [
        ("value.amount >", "--where is wrong at character 15: mismatched input the end; here: value.amount > >>>"),
        ("value.amount > > 5", "--where is wrong at character 16: "),
        ("foo == 1", "--where is wrong at character 1: there is no 'foo'; a record has topic, partition,"),
        ("key == 'a' && vaule.x > 1", "here: key == 'a' && >>>vaule.x > 1"),
        ("nope(key)", "--where is wrong at character 1: there is no function 'nope'; here: >>>nope(key)"),
        ("size(key) >= 0 && nope(1)", "here: size(key) >= 0 && >>>nope(1)"),
        ("offset + 1", "--where must be an expression that is true or false, got 1"),
        ("", "--where is wrong at character 1: "),
    ],
)
def test_a_wrong_expression_shows_the_place_of_the_mistake(cli: CommandLine, where: str, error: str) -> None:
    assert error in cli.fails("consume", "orders", "--until", "end", "--where", where, status=2)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (("--grep", "("), "--grep must be a regular expression, got '('"),
        (("--with-header", "=x"), "--with-header must be NAME or NAME=VALUE, got '=x'"),
        (("--share", "--group", "g", "--grep", "x"), "--share excludes --where, --grep and --with-header"),
    ],
)
def test_a_wrong_search_is_explained(cli: CommandLine, options: tuple[str, ...], error: str) -> None:
    assert error in cli.fails("consume", "orders", *options, status=2)


def test_an_expression_needs_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "cel", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'aiokafka_lite\[search\]'"):
        Expression("true")


@pytest.mark.thorough
def test_a_large_topic_is_searched_at_a_good_rate(cli: CommandLine, tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_text("".join(f'{{"amount":{number},"city":"Bonn"}}\n' for number in range(100_000)))
    cli.ask("produce", "large", "--file", str(path))
    began = time.perf_counter()
    printed = cli.ask("consume", "large", "--until", "end", "--where", "value.amount == 77777")
    assert json.loads(printed)["amount"] == 77777
    assert time.perf_counter() - began < 30  # 3 s here; the bound only excludes a search that is not linear
