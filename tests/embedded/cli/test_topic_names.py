"""A misspelled topic is answered at once with the nearest name, and names are completed in the shell."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path

import pytest

pytest.importorskip("typer")

from aiokafka_lite.cli.terminal import completion
from aiokafka_lite.errors import ErrorCode
from aiokafka_lite.protocol.messages import ListGroupsRequest
from aiokafka_lite.testing.server import EmbeddedKafkaServer
from tests.embedded.cli.conftest import CommandLine
from tests.waiting import DEADLINE


@pytest.fixture(scope="module", autouse=True)
def orders(server: EmbeddedKafkaServer) -> None:
    """A topic and a group."""
    from aiokafka_lite import TopicPartition
    from aiokafka_lite.admin import Admin

    async def create() -> None:
        await server.cluster.create_topic("orders", partitions=3)
        async with Admin(server.bootstrap_servers) as admin:
            (await admin.groups.alter_offsets("billing", {TopicPartition("orders", 0): 0})).raise_for_errors()

    server.call(create)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "arguments",
    [
        ("consume", "odrers"),
        ("consume", "orders", "odrers", "--group", "g"),
        ("produce", "odrers", "-X", "allow.auto.create.topics=false", "--file", __file__),
        ("topics", "describe", "odrers"),
        ("groups", "reset-offsets", "billing", "--to", "earliest", "--topic", "odrers"),
        ("topics", "alter", "odrers", "--partitions", "3"),
        ("topics", "alter", "odrers", "--partitions", "3", "--set", "retention.ms=1"),
        ("topics", "delete", "odrers"),
        ("offsets", "odrers"),
        ("offsets", "odrers:0"),
        ("elect-leaders", "odrers:0"),
        ("records", "delete", "odrers", "--before", "end"),
        ("configs", "describe", "topic", "odrers"),
        ("configs", "alter", "topic", "odrers", "--set", "retention.ms=1"),
    ],
    ids=" ".join,
)
def test_a_misspelled_topic_is_answered_with_the_nearest_name(cli: CommandLine, arguments: tuple[str, ...]) -> None:
    assert cli.fails(*arguments) == "aiokafka-lite: there is no topic 'odrers'; did you mean 'orders'?\n"


@pytest.mark.parametrize(
    "arguments",
    [("offsets", "orders:9"), ("elect-leaders", "orders:0,9"), ("records", "delete", "orders:9", "--before", "end")],
    ids=" ".join,
)
def test_a_partition_that_does_not_exist_is_answered_with_those_that_do(
    cli: CommandLine, arguments: tuple[str, ...]
) -> None:
    assert "topic 'orders' has the partitions 0 to 2, and no partition 9\n" in cli.fails(*arguments)


def test_the_only_partition_of_a_topic_is_named(cli: CommandLine, server: EmbeddedKafkaServer) -> None:
    server.create_topic("single")
    assert "topic 'single' has only partition 0\n" in cli.fails("offsets", "single:9")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("consume", "orders:2"), "got 'orders:2'; instead write: orders --partition 2"),
        (("consume", "orders:0,1"), "got 'orders:0,1'; instead write: orders --partition 0 --partition 1"),
        (("consume", "orders:all"), "got 'orders:all'"),
        (("consume", "orders:2", "audit"), "got 'orders:2'"),
        (("consume", "orders:2", "--group", "g"), "got 'orders:2'"),
        (("consume", "orders:2", "--group", "g", "--share"), "got 'orders:2'"),
        (("produce", "orders:2", "--file", __file__), "got 'orders:2'; instead write: orders --partition 2"),
        (("produce", "orders:0,1", "--file", __file__), "got 'orders:0,1'"),
    ],
)
def test_a_partition_in_the_name_of_a_topic_is_answered_with_the_option_if_the_command_takes_it(
    cli: CommandLine, arguments: tuple[str, ...], message: str
) -> None:
    errors = cli.fails(*arguments, status=2)
    assert errors == f"aiokafka-lite: topic must be a name without a colon, {message}\n"


def test_a_topic_that_the_user_may_not_see_is_not_called_missing(cli: CommandLine, server: EmbeddedKafkaServer) -> None:
    server.create_topic("secret")
    server.call(server.cluster.authorizer.deny_topic, "secret")
    assert "TOPIC_AUTHORIZATION_FAILED" in cli.fails("consume", "secret")


@pytest.mark.parametrize("command", ["describe", "delete"])
def test_a_missing_group_is_answered_with_the_nearest_name(cli: CommandLine, command: str) -> None:
    assert cli.fails("groups", command, "biling") == (
        "aiokafka-lite: there is no group 'biling'; did you mean 'billing'?\n"
    )


def test_a_change_is_reported_although_the_names_for_a_hint_cannot_be_listed(
    cli: CommandLine, server: EmbeddedKafkaServer
) -> None:
    cli.ask("groups", "reset-offsets", "old", "--topic", "orders", "--to", "earliest", "--execute")
    fault = server.call(lambda: server.cluster.on(ListGroupsRequest, times=None))
    server.call(fault.fail, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    status, output, _ = cli.run("groups", "delete", "old", "biling", "--yes", "--json")
    server.call(fault.remove)
    result = json.loads(output)
    assert (status, result["done"]) == (1, [{"group": "old"}])
    assert [failed["group"] for failed in result["failed"]] == ["biling"]


@pytest.mark.parametrize("arguments", [("elect-leaders", "hidden:0"), ("reassign", "cancel", "hidden:0")], ids=" ".join)
def test_partitions_of_a_topic_that_the_user_may_not_describe_can_be_named(
    cli: CommandLine, server: EmbeddedKafkaServer, arguments: tuple[str, ...]
) -> None:
    if "hidden" not in server.cluster.controller.topics:
        server.create_topic("hidden")
        server.call(server.cluster.authorizer.deny_topic, "hidden")
    assert "AUTHORIZATION" not in cli.run(*arguments)[2]


def test_a_topic_that_a_producer_creates_is_reported(cli: CommandLine, tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_text("one\n")
    status, _, errors = cli.run("produce", "order-items", "--file", str(path))
    assert status == 0
    assert "there is no topic 'order-items'; the cluster creates it" in errors
    assert cli.run("produce", "order-items", "--file", str(path)) == (0, "", "")


def complete(cli: CommandLine, typed: str) -> tuple[list[str], str]:
    """Return the words that bash shows for the typed text, and the errors. Bash makes several words of ``orders:0``."""
    words = [piece for word in typed.split(" ") for piece in re.split("([:=]+)", word) if piece or not word]
    cli.monkeypatch.setenv("_AIOKAFKA_LITE_COMPLETE", "complete_bash")
    cli.monkeypatch.setenv("COMP_WORDS", "\n".join(["aiokafka-lite", *words]))
    cli.monkeypatch.setenv("COMP_CWORD", str(len(words)))
    status, output, errors = cli.run()
    assert status == 0
    return output.split(), errors


@pytest.mark.parametrize(
    "typed, completed",
    [
        ("consume orders", ["orders"]),
        ("topics describe orders", ["orders"]),
        ("groups describe bi", ["billing"]),
        ("consume orders --group b", ["billing"]),
        ("offsets orders", ["orders"]),
        ("offsets orders:", ["0", "1", "2"]),
        ("offsets orders:1", ["1"]),
        ("topics alter orders --set retention.m", ["retention.ms="]),
        ("topics alter orders --unset retention.m", ["retention.ms"]),
        ("configs alter topic orders --set retention.m", ["retention.ms="]),
        ("configs describe topic orders", ["orders"]),
        ("configs describe broker ", ["1", "2", "3"]),
        ("configs alter brokers --set log.retention.min", ["log.retention.minutes="]),
        ("configs alter brokers --set=log.retention.min", ["log.retention.minutes="]),
        ("acls list topic orders", ["orders"]),
        ("topics list -X security.pr", ["security.protocol="]),
        ("produce -k : orders", ["orders"]),
        ("produce --key-separator=: orders", ["orders"]),
    ],
)
def test_names_are_completed(cli: CommandLine, typed: str, completed: list[str]) -> None:
    cli.monkeypatch.setattr(completion, "LIMIT", DEADLINE)
    assert complete(cli, typed) == (completed, "")
    assert logging.getLogger("aiokafka_lite").level == logging.NOTSET, "the log is as before"


@pytest.mark.parametrize("typed", ["o", "orders:", "nosuch:", "--config nosuch o", "-X no o"])
def test_completion_without_a_cluster_is_silent(cli: CommandLine, typed: str) -> None:
    assert complete(cli, f"offsets -b 127.0.0.1:1 {typed}") == ([], "")
