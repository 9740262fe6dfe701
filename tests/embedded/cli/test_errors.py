"""Errors of commands: one line on stderr, in the words of the command line, and nothing else."""

from __future__ import annotations

import pytest

pytest.importorskip("typer")

from aiokafka_lite.cli.terminal.run import with_options
from aiokafka_lite.embedded import Security
from aiokafka_lite.testing.server import EmbeddedKafkaServer
from tests.embedded.cli.conftest import CommandLine


@pytest.mark.parametrize("command", [("lag",), ("groups", "describe"), ("users", "list"), ("transactions", "describe")])
def test_a_name_that_does_not_exist_prints_no_headings(cli: CommandLine, command: tuple[str, ...]) -> None:
    status, output, errors = cli.run(*command, "nope")
    assert (status, output, errors.count("\n")) == (1, "", 1)
    assert "nope" in errors


@pytest.mark.thorough
def test_an_error_of_the_connection_names_the_property(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with EmbeddedKafkaServer(security=Security("SASL_PLAINTEXT", users={"alice": "secret"})) as server:
        error = CommandLine(server, monkeypatch, capfd).fails("topics", "list")
    assert "security.protocol" in error
    assert "sasl.mechanism" in error
    assert "security_protocol" not in error


def test_a_time_that_the_option_sets_is_named_as_the_option() -> None:
    text = "not acknowledged within delivery_timeout=5 s; buffer_memory=7 bytes are in use"
    assert with_options(text) == "not acknowledged within --timeout=5 s; buffer.memory=7 bytes are in use"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("the topic does not allow this compression", "the topic does not allow this compression"),
        ("compression must be one of none, gzip", "compression.type must be one of none, gzip"),
        ("idempotence=True requires acks", "enable.idempotence=True requires acks"),
    ],
)
def test_an_ordinary_word_is_not_named_as_a_property(text: str, expected: str) -> None:
    assert with_options(text) == expected
