"""``topics``, ``groups``, ``configs``, ``lag``, ``cluster`` and ``bench``: on a terminal, in a pipe, and as JSON."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from aiokafka_lite import Consumer, OffsetAndMetadata, Producer, TopicPartition
from aiokafka_lite.admin import Admin
from tests.end_to_end.conftest import Kafka
from tests.end_to_end.terminal import DEADLINE, Outcome, embedded_kafka, run, started, terminal
from tests.real.releases import NEWEST


@pytest.fixture
async def embedded() -> AsyncIterator[Kafka]:
    async with embedded_kafka() as kafka:
        yield kafka


async def ask(kafka: Kafka, *arguments: str) -> Outcome:
    outcome = await run(*arguments, "-b", kafka.bootstrap_servers)
    assert outcome.status == 0, outcome.errors
    return outcome


async def on_screen(kafka: Kafka, *arguments: str) -> str:
    async with terminal(*arguments, "-b", kafka.bootstrap_servers) as person:
        assert await person.ended() == 0, person.screen
        return person.screen


@asynccontextmanager
async def member(kafka: Kafka, topic: str, group: str, client_id: str = "reader") -> AsyncIterator[None]:
    """Run a member of a group that has read and committed all records."""
    async with Consumer(kafka.bootstrap_servers, topics=[topic], group_id=group, client_id=client_id) as consumer:
        await consumer.poll(timeout=DEADLINE)
        await consumer.poll()
        await consumer.commit()
        yield


async def test_a_topic_is_created_altered_and_deleted(kafka: Kafka) -> None:
    name = f"life-of-a-topic-{kafka.version}"
    created = await ask(kafka, "topics", "create", name, "-p", "2", "-r", "1", "--set", "retention.ms=60000")
    assert created.rows[0] == ["TOPIC", "PARTITIONS", "REPLICAS", "TOPIC-ID"]
    assert created.rows[1][0] == name
    await ask(kafka, "topics", "create", name, "-p", "2", "-r", "1", "--if-not-exists")
    again = await run("topics", "create", name, "-p", "2", "-b", kafka.bootstrap_servers)
    assert (again.status, len(again.errors.splitlines())) == (1, 1)
    assert "TOPIC_ALREADY_EXISTS" in again.errors

    async with Admin(kafka.bootstrap_servers) as admin:
        while name not in {topic.name for topic in await admin.topics.list()}:
            pass
    described = await ask(kafka, "topics", "describe", name)
    assert [row[:2] for row in described.rows[:4]] == [["TOPIC", "PARTITION"], [name, "0"], [name, "1"], [""]]
    assert described.rows[4] == ["TOPIC", "SETTING", "VALUE", "SOURCE"]
    assert [name, "retention.ms", "60000", "topic"] in described.rows[5:]
    wrong = await run("topics", "alter", name, "--set", "retenton.ms=1", "-b", kafka.bootstrap_servers)
    assert (wrong.status, wrong.errors.count("did you mean")) == (1, 1), wrong.errors
    assert "retention.ms" in wrong.errors
    assert name in {load["topic"] for load in json.loads((await ask(kafka, "topics", "list", "--json")).text)}

    await ask(kafka, "topics", "alter", name, "--partitions", "3", "--set", "retention.ms=70000")
    settings = await ask(kafka, "configs", "describe", "topic", name, "--no-headings")
    assert [row[:3] for row in settings.rows if row[0] == "retention.ms"] == [["retention.ms", "70000", "topic"]]
    await ask(kafka, "configs", "alter", "topic", name, "--unset", "retention.ms", "--set", "segment.ms=80000")
    settings = await ask(kafka, "configs", "describe", "topic", name, "--json")
    assert {load["name"]: load["value"] for load in json.loads(settings.text) if load["source"] == "topic"} == {
        "segment.ms": "80000"
    }

    await ask(kafka, "topics", "delete", name)
    gone = await run("topics", "delete", f"{name}-unknown", "-b", kafka.bootstrap_servers)
    assert (gone.status, len(gone.errors.splitlines())) == (1, 1)
    await ask(kafka, "topics", "delete", f"{name}-unknown", "--if-exists")


async def test_the_offsets_of_a_group_are_shown_as_by_kafkas_own_tool(kafka: Kafka) -> None:
    if kafka.kind != "embedded" and kafka.version != NEWEST:
        pytest.skip("only the tool of the newest release is compared")
    topic, group = await kafka.create_topic(partitions=2), f"read-alike-{kafka.version}"
    async with Producer(kafka.bootstrap_servers) as producer:
        for number in range(5):
            await producer.send(topic, b"%d" % number, partition=0)
        async with member(kafka, topic, group):
            await producer.send(topic, b"more", partition=0)
            ours = await ask(kafka, "groups", "describe", group)
            theirs = await asyncio.to_thread(kafka.tool, "consumer-groups", "--describe", "--group", group)
    rows = [line.split() for line in theirs.splitlines() if line.strip()]
    assert "GROUP" in [row[0] for row in rows], theirs
    rows = rows[[row[0] for row in rows].index("GROUP") :]
    assert ours.rows[0] == rows[0]
    assert sorted(ours.rows[1:]) == sorted(rows[1:])
    first = next(row for row in ours.rows if row[2] == "0")
    assert (first[:6], first[8]) == ([group, topic, "0", "5", "6", "1"], "reader")


async def test_groups_with_their_members_and_states(embedded: Kafka) -> None:
    topic = await embedded.create_topic(partitions=2)
    async with Producer(embedded.bootstrap_servers) as producer:
        await producer.send(topic, b"value", partition=1)
    async with member(embedded, topic, "busy", "worker"):
        (row,) = json.loads((await ask(embedded, "groups", "describe", "busy", "--members", "--json")).text)
        assert (row["group"], row["client_id"], row["partitions"]) == ("busy", "worker", 2)
        assert row["assignment"] == f"{topic}(0,1)"
        states = (await ask(embedded, "groups", "describe", "--all", "--state", "--no-headings")).rows
        assert [states[0][index] for index in (0, 2, 3, 5)] == ["busy", "range", "Stable", "1"]
        assert (await ask(embedded, "groups", "list", "--state", "stable")).rows[1][:2] == ["busy", "Stable"]
        assert (await ask(embedded, "groups", "list", "--state", "empty", "--no-headings")).rows == []
        deleted = await run("groups", "delete", "busy", "-b", embedded.bootstrap_servers)
        assert (deleted.status, "NON_EMPTY_GROUP" in deleted.errors) == (1, True)
    await ask(embedded, "groups", "delete", "busy")
    described = await run("groups", "describe", "busy", "-b", embedded.bootstrap_servers)
    assert (described.status, described.output) == (1, b"")
    assert "there is no group" in described.errors


async def test_a_group_is_moved_only_with_execute(embedded: Kafka, tmp_path: Path) -> None:
    topic = await embedded.create_topic(partitions=2)
    async with Producer(embedded.bootstrap_servers) as producer:
        for number in range(10):
            await producer.send(topic, b"x", partition=0, timestamp=1767225600000 + number * 1000)
    partition = TopicPartition(topic, 0)

    async def committed() -> int | None:
        async with Admin(embedded.bootstrap_servers) as admin:
            committed = (await admin.groups.offsets("moved"))["moved"].get(partition)
            return None if committed is None else committed.offset

    async def reset(*options: str) -> list[list[str]]:
        return (await ask(embedded, "groups", "reset-offsets", "moved", "--no-headings", *options)).rows

    async with Admin(embedded.bootstrap_servers) as admin:
        await admin.groups.alter_offsets("moved", {partition: OffsetAndMetadata(4)})
    assert await reset("--to", "latest") == [["moved", topic, "0", "4", "10"]]
    assert await committed() == 4
    assert await reset("--to", "latest", "--execute") == [["moved", topic, "0", "4", "10"]]
    assert await committed() == 10
    for options, there in (
        (("--shift", "-3"), 7),
        (("--to", "earliest"), 0),
        (("--to", "5"), 5),
        (("--to", "2026-01-01T00:00:02Z"), 2),
        (("--to", "@1767225608000"), 8),
        (("--to", "latest", "--topic", f"{topic}:0"), 10),
    ):
        await reset(*options, "--execute")
        assert await committed() == there, options
    plan = tmp_path / "offsets.csv"
    plan.write_text(f"{topic},0,6\n")
    await reset("--file", str(plan), "--execute")
    assert await committed() == 6


async def test_a_group_with_nothing_to_move_is_a_failure(embedded: Kafka) -> None:
    moved = await run("groups", "reset-offsets", "unknown", "--to", "earliest", "-b", embedded.bootstrap_servers)
    assert (moved.status, moved.output) == (1, b"")
    assert "has no committed offsets; name topics with --topic" in moved.errors


async def test_a_terminal_a_pipe_and_json_show_the_same_table(embedded: Kafka) -> None:
    topic = await embedded.create_topic("orders", partitions=2)
    plain = (await ask(embedded, "topics", "describe", topic)).text
    rows = [["orders", "0", "1", "0", "1", "1", "-"], ["orders", "1", "1", "0", "1", "1", "-"]]
    headings = ["TOPIC", "PARTITION", "LEADER", "LEADER-EPOCH", "REPLICAS", "IN-SYNC", "OFFLINE"]
    partitions, settings = plain.split("\n\n")
    assert partitions + "\n" == "".join("\t".join(row) + "\n" for row in [headings, *rows])
    assert settings == "TOPIC\tSETTING\tVALUE\tSOURCE\norders\tretention.ms\t-1\ttopic\n"
    assert "\x1b" not in plain
    assert (await ask(embedded, "topics", "describe", topic, "--no-headings")).rows[:2] == rows
    described = json.loads((await ask(embedded, "topics", "describe", topic, "--json")).text)
    objects = described["partitions"]
    assert [setting["setting"] for setting in described["settings"]] == ["retention.ms"]
    assert objects[1] == {
        "topic": "orders",
        "partition": 1,
        "leader": 1,
        "leader_epoch": 0,
        "replicas": [1],
        "in_sync": [1],
        "offline": [],
    }
    screen = await on_screen(embedded, "topics", "describe", topic)
    assert "─" in screen
    assert [re.split(r"\s+", line.strip()) for line in screen.splitlines() if "orders" in line][:2] == rows
    assert json.loads(await on_screen(embedded, "topics", "describe", topic, "--json")) == described


async def test_the_cluster_and_its_versions(embedded: Kafka) -> None:
    plain = (await ask(embedded, "cluster")).text
    assert plain.startswith("cluster id\t")
    assert "BROKER\tHOST\tPORT\tRACK\tCONTROLLER\n1\t127.0.0.1\t" in plain
    described = json.loads((await ask(embedded, "cluster", "--versions", "--json")).text)
    assert (described["controller"], described["brokers"][0]["broker"]) == (1, 1)
    produce = next(version for version in described["versions"] if version["api"] == "Produce")
    assert produce["from"] <= produce["used"] <= produce["to"]
    assert "CONTROLLER" in await on_screen(embedded, "cluster")


async def test_a_brokers_settings_have_a_source(embedded: Kafka) -> None:
    everything = (await ask(embedded, "configs", "describe", "broker", "1", "--all", "--no-headings")).rows
    assert "default" in {row[2] for row in everything}
    assert "default" not in {row[2] for row in (await ask(embedded, "configs", "describe", "broker", "1")).rows}


async def test_lag_by_topic_once_and_repeatedly(embedded: Kafka) -> None:
    topic = await embedded.create_topic(partitions=2)
    async with Producer(embedded.bootstrap_servers) as producer:
        await producer.send(topic, b"read", partition=0)
        async with member(embedded, topic, "behind"):
            for _ in range(3):
                await producer.send(topic, b"unread", partition=0)
        row = ["behind", "Empty", topic, "1", "3", "3"]
        assert (await ask(embedded, "lag", "--no-headings")).rows == [row]
        assert json.loads((await ask(embedded, "lag", "behind", "--json")).text)[0]["lag"] == 3
        watch = ("lag", "behind", "--watch", "--every", "0.1", "-b", embedded.bootstrap_servers)
        async with terminal(*watch) as person:
            await person.until(lambda screen: re.search(r"behind\s+Empty\s+\S+\s+1\s+3\s+3", screen) is not None)
            await producer.send(topic, b"unread", partition=0)
            await person.until(lambda screen: re.search(r"behind\s+Empty\s+\S+\s+1\s+4\s+4", screen) is not None)
            person.type("\x03")
            assert await person.ended() == 130


async def test_lag_is_printed_repeatedly_into_a_pipe(embedded: Kafka) -> None:
    topic = await embedded.create_topic(partitions=1)
    async with Admin(embedded.bootstrap_servers) as admin:
        await admin.groups.alter_offsets("watched", {TopicPartition(topic, 0): OffsetAndMetadata(0)})
    watch = ("lag", "--watch", "--every", "0.1", "-b", embedded.bootstrap_servers)
    async with started(*watch, "--json") as process, Producer(embedded.bootstrap_servers) as producer:
        assert process.stdout is not None
        first = json.loads(await process.stdout.readline())
        assert (first["lag"][0]["group"], first["lag"][0]["lag"]) == ("watched", 0)
        await producer.send(topic, b"behind")
        async with asyncio.timeout(DEADLINE):
            while json.loads(await process.stdout.readline())["lag"][0]["lag"] != 1:
                pass
        process.send_signal(signal.SIGTERM)
        await process.communicate()
        assert process.returncode == 128 + signal.SIGTERM
    async with started(*watch) as process:
        assert process.stdout is not None
        lines = [(await process.stdout.readline()).decode().rstrip("\n").split("\t") for _ in range(3)]
        assert lines[0][:7] == ["TIME", "GROUP", "STATE", "TOPIC", "PARTITIONS", "LAG", "HIGHEST"]
        assert lines[0][7:] == ["LAG-PER-SECOND", "CATCH-UP-SECONDS"]
        first, second = ([*line[1:]] for line in lines[1:])
        assert first == ["watched", "Empty", topic, "1", "1", "1", "-", "-"]
        assert second == ["watched", "Empty", topic, "1", "1", "1", "0.0", "-"]
        process.stdout._transport.close()  # type: ignore[attr-defined]
        async with asyncio.timeout(DEADLINE):
            assert await process.wait() == 0
        assert process.stderr is not None
        assert await process.stderr.read() == b""


async def test_the_bench_measures_and_deletes_its_topic(embedded: Kafka) -> None:
    measured = json.loads((await ask(embedded, "bench", "--records", "2000", "--json")).text)
    assert [(row["what"], row["records"]) for row in measured["throughput"]] == [
        ("produce", 2000),
        ("consume", 2000),
    ]
    assert all(row["records_per_second"] > 0 for row in measured["throughput"])
    (latency,) = measured["latency"]
    assert 0 < latency["p50_ms"] <= latency["p95_ms"] <= latency["p99_ms"]
    async with Admin(embedded.bootstrap_servers) as admin:
        assert await admin.topics.list() == ()
