"""The JSON of commands that change something: the changed items, and the errors of the others."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("typer")

from tests.embedded.cli.conftest import CommandLine


def outcome(cli: CommandLine, *arguments: str, status: int = 0) -> dict[str, Any]:
    """Return the JSON of a command. Its exit status is 1 if it has errors, which are also lines on stderr."""
    ended, printed, errors = cli.run(*arguments, "--json")
    assert ended == status, errors
    changes = json.loads(printed)
    assert list(changes) == ["executed", "done", "failed"]
    assert [line.removeprefix("aiokafka-lite: ") for line in errors.splitlines() if "nothing was" not in line] == [
        failure["error"] for failure in changes["failed"]
    ]
    assert bool(changes["failed"]) == (status == 1)
    return changes


def done(cli: CommandLine, *arguments: str) -> Any:
    changes = outcome(cli, *arguments)
    assert changes["executed"]
    return changes["done"]


def test_topics_are_changed_with_a_result_for_each(cli: CommandLine) -> None:
    created = outcome(cli, "topics", "create", "json", "json", "bare", "-p", "2")["done"]
    assert [(topic["topic"], topic["partitions"]) for topic in created] == [("json", 2), ("bare", 2)]
    again = outcome(cli, "topics", "create", "json", status=1)
    assert (again["done"], again["failed"][0]["topic"]) == ([], "json")

    altered = outcome(cli, "topics", "alter", "json", "jsno", "-p", "3", "--set", "retention.ms=1000", status=1)
    assert altered["done"] == [{"topic": "json", "partitions": 3, "settings": ["retention.ms"]}]
    assert altered["failed"] == [{"topic": "jsno", "error": "there is no topic 'jsno'; did you mean 'json'?"}]
    wrong = outcome(cli, "topics", "alter", "json", "-p", "4", "--set", "no.such=1", status=1)
    assert wrong["done"] == [{"topic": "json", "partitions": 4, "settings": []}]

    deleted = outcome(cli, "topics", "delete", "json", "nope", "bare", status=1)
    assert deleted["done"] == [{"topic": "json"}, {"topic": "bare"}]
    assert [failure["topic"] for failure in deleted["failed"]] == ["nope"]


@pytest.mark.parametrize(
    "command", [("create", "checked"), ("alter", "kept", "-p", "9"), ("alter", "kept", "--set=a=b")], ids=" ".join
)
def test_a_change_that_is_only_checked_is_not_executed(cli: CommandLine, command: tuple[str, ...]) -> None:
    cli.run("topics", "create", "kept")
    status = int("--set=a=b" in command)
    changes = outcome(cli, "topics", *command, "--validate-only", status=status)
    assert not changes["executed"]
    assert len(changes["done"]) == 1 - status
    assert cli.rows("topics", "describe", "kept")[1:] == []


def test_a_described_topic_has_the_settings_that_differ_from_the_defaults(cli: CommandLine) -> None:
    cli.ask("topics", "create", "described", "--set", "retention.ms=1000")
    described = cli.objects("topics", "describe", "described")
    assert len(described["partitions"]) == 1
    assert described["settings"] == [
        {"topic": "described", "setting": "retention.ms", "value": "1000", "source": "topic"}
    ]
    assert cli.ask("topics", "describe", "described").endswith("described\tretention.ms\t1000\ttopic\n")


def test_settings_and_quotas_are_named_without_their_values(cli: CommandLine) -> None:
    cli.ask("topics", "create", "set")
    altered = done(cli, "configs", "alter", "topic", "set", "--set", "segment.ms=80000", "--unset", "retention.ms")
    assert altered == [{"type": "topic", "name": "set", "settings": ["segment.ms", "retention.ms"]}]
    failed = outcome(cli, "configs", "alter", "topic", "sett", "--set", "segment.ms=80000", status=1)["failed"]
    assert failed == [{"type": "topic", "name": "sett", "error": "there is no topic 'sett'; did you mean 'set'?"}]
    (quota,) = done(cli, "quotas", "alter", "--user", "alice", "--set", "producer_byte_rate=1024")
    assert quota == {"user": "alice", "client_id": None, "ip": None, "quotas": ["producer_byte_rate"]}


def test_groups_are_moved_and_deleted_with_a_result_for_each(cli: CommandLine) -> None:
    cli.ask("topics", "create", "moves", "-p", "1")
    move = ("groups", "reset-offsets", "mover", "--topic", "moves", "--to", "earliest")
    assert not outcome(cli, *move)["executed"]
    moved = {"group": "mover", "topic": "moves", "partition": 0}
    assert done(cli, *move, "--execute") == [{**moved, "current_offset": None, "new_offset": 0}]
    assert done(cli, "groups", "delete-offsets", "mover", "moves") == [{"topic": "moves", "partition": 0}]
    removed = outcome(cli, "groups", "remove-member", "mover", "--member", "x", status=1)
    assert [failure["member"] for failure in removed["failed"]] == ["x"]
    deleted = outcome(cli, "groups", "delete", "mover", "missing", status=1)
    assert deleted["done"] == [{"group": "mover"}]
    assert [failure["group"] for failure in deleted["failed"]] == ["missing"]


def test_partitions_are_changed_with_a_result_for_each(cli: CommandLine) -> None:
    cli.ask("topics", "create", "parts", "--assignment", "1/2")
    first, second = ({"topic": "parts", "partition": number} for number in (0, 1))
    assert done(cli, "records", "delete", "parts", "--before", "end") == [
        {**first, "first_offset": 0},
        {**second, "first_offset": 0},
    ]
    beyond = outcome(cli, "records", "delete", "parts:1", "--before", "7", status=1)
    assert {**beyond["failed"][0], "error": ""} == {**second, "error": ""}
    started = done(cli, "reassign", "start", "parts:0", "--brokers", "2,3")
    assert started == [{**first, "replicas": [2, 3]}]
    idle = outcome(cli, "reassign", "cancel", "parts:1", status=1)
    assert [failure["partition"] for failure in idle["failed"]] == [1]
    assert done(cli, "elect-leaders", "parts:1") == [{**second, "elected": False}]


def test_access_is_changed_with_a_result_for_each(cli: CommandLine) -> None:
    acl = ("topic", "parts", "--principal", "alice", "--operation", "read")
    refused = outcome(cli, "acls", "add", *acl, status=1)
    assert [(failure["name"], failure["principal"]) for failure in refused["failed"]] == [("parts", "User:alice")]
    refused = outcome(cli, "acls", "remove", *acl, status=1)
    assert [(failure["name"], failure["principal"]) for failure in refused["failed"]] == [("parts", "User:alice")]
    removed = outcome(cli, "users", "remove", "alice", status=1)
    assert [failure["user"] for failure in removed["failed"]] == ["alice"]


def test_fenced_producers_are_listed(cli: CommandLine) -> None:
    (fenced,) = done(cli, "transactions", "fence", "orders-1")
    assert fenced["transactional_id"] == "orders-1"


@pytest.mark.parametrize("command", ["topics", "configs", "quotas"])
def test_a_setting_is_not_set_and_unset_at_once(cli: CommandLine, command: str) -> None:
    resource = {"topics": ["x"], "configs": ["topic", "x"], "quotas": ["--user", "x"]}[command]
    error = cli.fails(command, "alter", *resource, "--set", "a=1", "--unset", "a", status=2)
    assert "a must not be both set and unset" in error
