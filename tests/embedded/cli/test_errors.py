"""Errors of commands: one line on stderr, in the words of the command line, and nothing else."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("typer")

from aiokafka_lite.cli.terminal.run import with_options
from aiokafka_lite.cli.terminal.setting_names import explained_settings
from aiokafka_lite.embedded import Security
from aiokafka_lite.errors import BrokerError, ErrorCode
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


def test_a_refusal_by_acls_names_the_user_and_the_operation(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    security = Security("SASL_PLAINTEXT", users={"alice": "secret"})
    with EmbeddedKafkaServer(super_users=["User:admin"], security=security) as server:
        cli = CommandLine(server, monkeypatch, capfd)
        for name in ("security_protocol", "sasl_mechanism", "sasl_username", "sasl_password"):
            value = server.call(server.cluster.client_settings)[name]
            monkeypatch.setenv(f"AIOKAFKA_LITE_{name.upper()}", value)
        assert "the user alice needs the operation read on the topic" in cli.fails("consume", "orders")
        assert "the user alice needs the operation alter on the cluster" in cli.fails(
            "acls", "add", "topic", "orders", "-p", "bob", "-o", "read"
        )
        assert "the user alice needs the operation describe on the group" in cli.fails("groups", "describe", "g")
        assert "secret" not in cli.fails("topics", "delete", "orders", "--yes")


def test_a_refusal_names_a_user_without_a_login(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with EmbeddedKafkaServer(super_users=["User:admin"]) as server:
        error = CommandLine(server, monkeypatch, capfd).fails("produce", "orders", "--file", "/dev/null")
    assert "the user ANONYMOUS (a connection without a login) needs the operation write on the topic" in error


def test_diagnose_checks_the_group_although_the_topic_does_not_exist(cli: CommandLine) -> None:
    cli.ask("topics", "create", "read-once")
    cli.ask("consume", "read-once", "--group", "readers-once", "--until", "end")
    status, output, _ = cli.run("diagnose", "--topic", "no-such-topic", "--group", "readers-once", "--json")
    report = json.loads(output)
    assert (status, report["group"], report["state"]) == (1, "readers-once", "Empty")
    topic, group = [row["finding"] for row in report["findings"]]
    assert "no-such-topic" in topic
    assert group == "group readers-once has no members: no consumer reads its topics now"
    _, output, _ = cli.run("diagnose", "--topic", "read-once", "--group", "no-such-group", "--json")
    assert [row["partition"] for row in json.loads(output)["topic"]] == [0]


def test_diagnose_names_settings_as_properties(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with EmbeddedKafkaServer(security=Security("SASL_PLAINTEXT", users={"alice": "secret"})) as server:
        status, output, _ = CommandLine(server, monkeypatch, capfd).run("diagnose", "--timeout", "2")
    assert status == 1
    assert "security.protocol" in output
    assert "security_protocol" not in output


@pytest.mark.parametrize(
    ("command", "suggestion"),
    [
        (("topics", "create", "new", "--set", "retenton.ms=1"), "retention.ms"),
        (("topics", "alter", "known", "--set", "clenup.policy=compact"), "cleanup.policy"),
        (("configs", "alter", "topic", "known", "--set", "segmnt.ms=1"), "segment.ms"),
        (("configs", "alter", "group", "g", "--set", "consumer.sesion.timeout.ms=1"), "consumer.session.timeout.ms"),
    ],
    ids=str,
)
def test_a_wrong_name_of_a_setting_has_a_suggestion(
    cli: CommandLine, command: tuple[str, ...], suggestion: str
) -> None:
    cli.run("topics", "create", "known")
    error = cli.fails(*command)
    assert error.count("did you mean") == 1
    assert suggestion in error


def test_a_broker_without_suggestions_gets_one() -> None:
    refused = {"orders": BrokerError(ErrorCode.INVALID_CONFIG, reason="Unknown topic config name: retenton.ms")}
    (error,) = explained_settings(refused, "topic", ["retenton.ms", "segment.ms"]).values()
    assert str(error) == "Unknown topic config name: retenton.ms (INVALID_CONFIG); did you mean 'retention.ms'?"
    wrong_value = {"orders": BrokerError(ErrorCode.INVALID_CONFIG, reason="must be positive")}
    assert explained_settings(wrong_value, "topic", ["retention.ms"]) == wrong_value
