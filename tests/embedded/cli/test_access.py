"""``acls`` and ``users`` add, list and remove what the cluster has."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

pytest.importorskip("typer")

from typer.testing import CliRunner

from aiokafka_lite.acls import AclOperation, AclResourceType
from aiokafka_lite.cli.acls import Kind, Permitted
from aiokafka_lite.cli.commands import application
from aiokafka_lite.testing.server import EmbeddedKafkaServer


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedKafkaServer]:
    """A cluster with ACLs in a thread; the commands run as a super user."""
    with EmbeddedKafkaServer(super_users=["User:ANONYMOUS"]) as server:
        yield server


def ask(server: EmbeddedKafkaServer, *arguments: str, stdin: str | None = None) -> list[list[str]]:
    """The rows that a command prints."""
    outcome = CliRunner().invoke(
        application, [*arguments, "-b", server.bootstrap_servers, "--no-headings"], input=stdin
    )
    assert outcome.exit_code == 0, outcome.output
    return [line.split("\t") for line in outcome.output.splitlines()]


def test_acls_are_added_listed_and_removed(server: EmbeddedKafkaServer) -> None:
    added = ask(server, "acls", "add", "topic", "orders", "-p", "alice", "-p", "User:bob", "-o", "read", "-o", "write")
    assert len(added) == 4
    ask(server, "acls", "add", "topic", "ord", "--prefixed", "-p", "carol", "-o", "all", "--deny", "--host", "10.0.0.1")
    ask(server, "acls", "add", "cluster", "-p", "alice", "-o", "describe-configs")
    assert ask(server, "acls", "list", "cluster") == [
        ["cluster", "kafka-cluster", "literal", "User:alice", "*", "describe-configs", "allow"]
    ]
    assert len(ask(server, "acls", "list", "--principal", "alice")) == 3
    assert len(ask(server, "acls", "list", "topic", "orders")) == 4
    assert ["topic", "ord", "prefixed", "User:carol", "10.0.0.1", "all", "deny"] in ask(
        server, "acls", "list", "topic", "orders", "--matching"
    )
    removed = ask(server, "acls", "remove", "topic", "orders", "-p", "alice", "-o", "write")
    assert removed == [["topic", "orders", "literal", "User:alice", "*", "write", "allow"]]
    assert len(ask(server, "acls", "remove", "topic", "orders")) == 3
    assert {row[1] for row in ask(server, "acls", "list")} == {"ord", "kafka-cluster"}


def test_users_are_added_listed_and_removed(server: EmbeddedKafkaServer) -> None:
    ask(server, "users", "add", "alice", "--iterations", "8192", stdin="secret\n")
    ask(server, "users", "add", "alice", "--mechanism", "SCRAM-SHA-256", stdin="secret\n")
    assert ask(server, "users", "list") == [["alice", "SCRAM-SHA-256", "4096"], ["alice", "SCRAM-SHA-512", "8192"]]
    (shown,) = ask(server, "users", "list", "alice", "--json")
    assert json.loads(shown[0])[0] == {"user": "alice", "mechanism": "SCRAM-SHA-256", "iterations": 4096}
    ask(server, "users", "remove", "alice")
    assert ask(server, "users", "list") == [["alice", "SCRAM-SHA-256", "4096"]]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("acls", "add", "topic", "-p", "alice", "-o", "read"), "topic requires a name, or '*' for all"),
        (("acls", "add", "topic", "orders", "-o", "read"), "acls add requires --principal and --operation"),
        (("acls", "remove", "cluster", "another"), "cluster takes no name, got 'another'"),
        (("acls", "list", "--matching"), "--matching requires the name of a resource"),
        (("users", "add", "alice"), "users add requires a password on the first line of stdin"),
    ],
)
def test_a_wrong_argument_is_explained(server: EmbeddedKafkaServer, arguments: tuple[str, ...], said: str) -> None:
    outcome = CliRunner().invoke(application, [*arguments, "-b", server.bootstrap_servers])
    assert (outcome.exit_code, said in outcome.output) == (2, True), outcome.output


def test_the_options_name_every_type_and_operation() -> None:
    def names(kind: type[AclOperation | AclResourceType]) -> set[str]:
        return {each.name.lower().replace("_", "-") for each in kind if each.name not in ("UNKNOWN", "ANY")}

    assert {each.value for each in Permitted} == names(AclOperation)
    assert {each.value for each in Kind} == names(AclResourceType)
