"""``acls`` and ``users`` add, list and remove what the cluster has."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("typer")

from aiokafka_lite.acls import AclOperation, AclResourceType
from aiokafka_lite.cli.acls import AclTarget, Permitted
from aiokafka_lite.testing.server import EmbeddedKafkaServer
from tests.embedded.cli.conftest import CommandLine


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedKafkaServer]:
    """A cluster with ACLs in a thread; the commands run as a super user."""
    with EmbeddedKafkaServer(super_users=["User:ANONYMOUS"]) as server:
        yield server


@contextmanager
def stdin(cli: CommandLine, path: str | Path) -> Iterator[None]:
    """Make a file the standard input. It has a descriptor, which commands read."""
    with Path(path).open(encoding="utf-8") as opened, cli.monkeypatch.context() as patch:
        patch.setattr(sys, "stdin", opened)
        yield


def test_acls_are_added_listed_and_removed(cli: CommandLine) -> None:
    added = cli.rows("acls", "add", "topic", "orders", "-p", "alice", "-p", "User:bob", "-o", "read", "-o", "write")
    assert len(added) == 4
    cli.rows("acls", "add", "topic", "ord", "--prefixed", "-p", "carol", "-o", "all", "--deny", "--host", "10.0.0.1")
    cli.rows("acls", "add", "cluster", "-p", "alice", "-o", "describe-configs")
    assert cli.rows("acls", "list", "cluster") == [
        ["cluster", "kafka-cluster", "literal", "User:alice", "*", "describe-configs", "allow"]
    ]
    assert len(cli.rows("acls", "list", "--principal", "alice")) == 3
    assert len(cli.rows("acls", "list", "topic", "orders")) == 4
    assert ["topic", "ord", "prefixed", "User:carol", "10.0.0.1", "all", "deny"] in cli.rows(
        "acls", "list", "topic", "orders", "--matching"
    )
    removed = cli.rows("acls", "remove", "topic", "orders", "-p", "alice", "-o", "write")
    assert removed == [["topic", "orders", "literal", "User:alice", "*", "write", "allow"]]
    assert len(cli.rows("acls", "remove", "topic", "orders")) == 3
    assert {row[1] for row in cli.rows("acls", "list")} == {"ord", "kafka-cluster"}


def test_users_are_added_listed_and_removed(cli: CommandLine, tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("secret\n")
    for arguments in (("--iterations", "8192"), ("--mechanism", "SCRAM-SHA-256")):
        with stdin(cli, password):
            cli.ask("users", "add", "alice", *arguments)
    assert cli.rows("users", "list") == [["alice", "SCRAM-SHA-256", "4096"], ["alice", "SCRAM-SHA-512", "8192"]]
    assert cli.objects("users", "list", "alice")[0] == {
        "user": "alice",
        "mechanism": "SCRAM-SHA-256",
        "iterations": 4096,
    }
    cli.rows("users", "remove", "alice")
    assert cli.rows("users", "list") == [["alice", "SCRAM-SHA-256", "4096"]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("acls", "add", "topic", "-p", "alice", "-o", "read"), "topic requires a name, or '*' for all"),
        (("acls", "add", "topic", "orders", "-o", "read"), "acls add requires --principal and --operation"),
        (("acls", "remove", "cluster", "another"), "cluster takes no name, got 'another'"),
        (("acls", "list", "--matching"), "--matching requires the name of a resource"),
        (("users", "add", "alice"), "users add requires a password on the first line of stdin"),
    ],
)
def test_a_wrong_argument_is_explained(cli: CommandLine, arguments: tuple[str, ...], message: str) -> None:
    with stdin(cli, os.devnull):
        assert message in cli.fails(*arguments, status=2)


def test_the_options_name_every_type_and_operation() -> None:
    def names(kind: type[AclOperation | AclResourceType]) -> set[str]:
        return {member.name.lower().replace("_", "-") for member in kind if member.name not in ("UNKNOWN", "ANY")}

    assert {operation.value for operation in Permitted} == names(AclOperation)
    assert {target.value for target in AclTarget} == names(AclResourceType)
