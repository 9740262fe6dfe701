"""Commands on partitions: offsets, records, leaders, replicas and their directories."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("typer")

from aiokafka_lite.protocol.messages import DeleteRecordsRequest
from aiokafka_lite.testing.server import EmbeddedKafkaServer
from tests.embedded.cli.conftest import CommandLine
from tests.waiting import DEADLINE


@pytest.fixture(autouse=True)
def orders(server: EmbeddedKafkaServer) -> Iterator[None]:
    """A topic of two partitions on three brokers, with 3 and 1 records a second apart."""
    from aiokafka_lite import Producer
    from aiokafka_lite.admin import Admin

    async def fill() -> None:
        await server.cluster.create_topic("orders", 2, 3)
        async with Producer(server.bootstrap_servers) as producer:
            for number, partition in enumerate([0, 0, 0, 1]):
                await producer.send("orders", b"x", partition=partition, timestamp=1767225600000 + number * 1000)

    async def delete() -> None:
        async with Admin(server.bootstrap_servers) as admin:
            await admin.topics.delete("orders")

    server.call(fill)
    yield
    server.call(delete)


def test_the_offsets_of_partitions(cli: CommandLine) -> None:
    assert cli.rows("offsets", "orders") == [["orders", "0", "0", "3", "3"], ["orders", "1", "0", "1", "1"]]
    assert cli.rows("offsets", "orders", "--at", "2026-01-01T00:00:01Z") == [
        ["orders", "0", "1", "2026-01-01T00:00:01.000Z"],
        ["orders", "1", "0", "2026-01-01T00:00:03.000Z"],
    ]
    assert cli.rows("offsets", "orders:0", "--at", "1s") == [["orders", "0", "-", "-"]]
    assert cli.objects("offsets", "orders:1", "--at", "latest") == [
        {"topic": "orders", "partition": 1, "offset": 1, "timestamp": None}
    ]
    assert "at must be earliest, latest, max-timestamp" in cli.fails("offsets", "orders", "--at", "x", status=2)


def test_records_are_deleted_up_to_an_offset_a_time_or_the_end(cli: CommandLine) -> None:
    assert cli.rows("records", "delete", "orders:0", "--before", "1") == [["orders", "0", "1"]]
    assert cli.rows("records", "delete", "orders", "--before", "@1767225602000") == [
        ["orders", "0", "2"],
        ["orders", "1", "0"],
    ]
    assert cli.rows("records", "delete", "orders", "--before", "end", "--yes") == [
        ["orders", "0", "3"],
        ["orders", "1", "1"],
    ]
    assert "orders-0 has no offset 77 to delete before; it ends at offset 3; --before end deletes all" in cli.fails(
        "records", "delete", "orders:0", "--before", "77"
    )
    assert "before must be end, an offset" in cli.fails("records", "delete", "orders", "--before", "x", status=2)


def test_records_that_are_written_during_a_deletion_by_time_stay(cli: CommandLine, server: EmbeddedKafkaServer) -> None:
    seen = len(server.cluster.history.of(DeleteRecordsRequest))
    cli.ask("records", "delete", "orders", "--before", "1s")
    sent = server.cluster.history.of(DeleteRecordsRequest)[seen:]
    partitions = [partition for exchange in sent for topic in exchange.request.topics for partition in topic.partitions]  # type: ignore[attr-defined]
    limits = {(partition.partition_index, partition.offset) for partition in partitions}
    assert limits == {(0, 3), (1, 1)}  # the ends that were found, not the end at the time of the deletion


def test_leaders_are_elected(cli: CommandLine) -> None:
    assert [row[:2] for row in cli.rows("elect-leaders", "orders")] == [["orders", "0"], ["orders", "1"]]


def test_replicas_move_to_other_brokers(cli: CommandLine, tmp_path: Path) -> None:
    def replicas() -> list[list[int]]:
        """Return the replicas of both partitions, once none moves."""
        deadline = time.monotonic() + DEADLINE
        while cli.rows("reassign", "list"):
            assert time.monotonic() < deadline
        return [object_["replicas"] for object_ in cli.objects("topics", "describe", "orders")["partitions"]]

    cli.ask("reassign", "start", "orders", "--brokers", "2,3")
    assert replicas() == [[2, 3], [3, 2]]
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": "orders", "partition": 1, "replicas": [1]}]}))
    cli.ask("reassign", "start", "--file", str(plan))
    assert replicas() == [[2, 3], [1]]
    assert "NO_REASSIGNMENT_IN_PROGRESS" in cli.fails("reassign", "cancel", "orders:0")


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("orders",), "requires topics with --brokers, or --file"),
        (("--brokers", "1"), "requires topics with --brokers, or --file"),
        (("orders", "--brokers", "1;2"), "brokers must be broker ids with commas, as in 1,2,3, got '1;2'"),
        (("--file", __file__), "file must be JSON in the form"),
    ],
)
def test_a_wrong_reassignment_is_explained(cli: CommandLine, arguments: tuple[str, ...], message: str) -> None:
    assert message in cli.fails("reassign", "start", *arguments, status=2)


def test_log_directories_and_their_replicas(cli: CommandLine) -> None:
    directories = cli.objects("log-dirs", "orders")
    assert [(directory["broker"], directory["replicas"]) for directory in directories] == [(1, 2), (2, 2), (3, 2)]
    assert directories[0]["size"] > 0
    (first, second) = cli.objects("log-dirs", "orders", "--broker", "2", "--replicas")
    assert (first["broker"], first["topic"], first["partition"], first["future"]) == (2, "orders", 0, False)
    assert (first["size"], second["partition"]) == (directories[1]["size"] - second["size"], 1)
