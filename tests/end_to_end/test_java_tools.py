"""The Java client's own tools on the embedded cluster: they write, read, and administer as on any Kafka.

Each start of a Java process takes a second or two, so that one test asks for many things in a row.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from aiokafka_lite import Admin, EmbeddedCluster, Producer
from aiokafka_lite.admin import ConfigResource
from aiokafka_lite.protocol.messages import EndTxnRequest, ProduceRequest
from aiokafka_lite.protocol.records import split_batches
from aiokafka_lite.types import Compression
from tests.end_to_end.conftest import missing
from tests.real.jvm import java_problem, run_tool
from tests.real.releases import NEWEST
from tests.waiting import DEADLINE

pytestmark = pytest.mark.long

PATIENT = ("--timeout-ms", str(int(DEADLINE * 1000)))
"""A console consumer ends with its last record. On a busy machine, the first one takes a while."""

Tool = Callable[..., Awaitable[str]]


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    if (problem := java_problem()) is not None:
        missing(f"Kafka's own tools cannot run here: {problem}")
    async with EmbeddedCluster(brokers=3) as cluster:
        yield cluster


@pytest.fixture
def tool(cluster: EmbeddedCluster) -> Tool:
    """Run a tool on the cluster and return its output."""

    async def run(name: str, *arguments: str, stdin: str = "") -> str:
        return await asyncio.to_thread(run_tool, NEWEST, name, cluster.bootstrap_servers, *arguments, stdin=stdin)

    return run


def written(cluster: EmbeddedCluster) -> set[tuple[Compression, int]]:
    """Return the compression and the acks of the Produce requests so far."""
    return {
        (batch.compression, exchange.request.acks)
        for exchange in cluster.history.of(ProduceRequest)
        if isinstance(exchange.request, ProduceRequest)
        for topic in exchange.request.topic_data
        for data in topic.partition_data
        for batch in split_batches(data.records or b"")
    }


async def test_the_perf_test_writes_in_each_compression_and_acks_and_a_group_reads(
    cluster: EmbeddedCluster, tool: Tool
) -> None:
    await cluster.create_topic("t", 3, 3)
    modes = list(zip(Compression, itertools.cycle((0, 1, -1)), strict=False))  # each tool takes two seconds
    for compression, acks in modes:
        said = await tool(
            "producer-perf-test",
            *("--topic", "t", "--num-records", "100", "--record-size", "100", "--throughput", "-1"),
            *("--command-property", f"acks={acks}", f"compression.type={compression.name.lower()}", "linger.ms=5"),
        )
        assert "100 records sent" in said
    assert written(cluster) == set(modes)

    read = await tool(
        "console-consumer",
        *("--topic", "t", "--group", "readers", "--from-beginning", "--max-messages", "500", *PATIENT),
    )
    assert [len(line) for line in read.splitlines()] == [100] * 500

    described = await tool("consumer-groups", "--describe", "--group", "readers")
    rows = [line.split() for line in described.splitlines() if line.startswith("readers")]
    assert sorted(row[2] for row in rows) == ["0", "1", "2"]
    assert sum(int(row[3]) for row in rows) == sum(int(row[4]) for row in rows) == 500
    assert {row[5] for row in rows} == {"0"}


async def test_the_console_consumer_reads_by_the_consumer_protocol(cluster: EmbeddedCluster, tool: Tool) -> None:
    await cluster.create_topic("t", 3, 3)
    async with Producer(cluster.bootstrap_servers) as producer:
        for number in range(90):
            await producer.send("t", b"%d" % number, key=b"%d" % number)
    read = await tool(
        "console-consumer",
        *("--topic", "t", "--group", "readers", "--from-beginning", "--max-messages", "90", *PATIENT),
        *("--command-property", "group.protocol=consumer"),
    )
    assert sorted(map(int, read.splitlines())) == list(range(90))
    described = await tool("consumer-groups", "--describe", "--group", "readers", "--state", "--verbose")
    (row,) = [line.split() for line in described.splitlines() if line.startswith("readers")]
    assert row[-4:-1] == ["Empty", "3", "2"], described


async def test_the_console_tools_pass_keys_and_headers(cluster: EmbeddedCluster, tool: Tool) -> None:
    await cluster.create_topic("t", 1, 3)
    lines = [f"origin:java,number:{number}\tkey-{number}\tvärde {number}" for number in range(100)]
    await tool(
        "console-producer",
        *("--topic", "t", "--compression-codec", "zstd", "--request-required-acks", "all"),
        *("--reader-property", "parse.key=true", "--reader-property", "parse.headers=true"),
        stdin="".join(f"{line}\n" for line in lines),
    )
    read = await tool(
        "console-consumer",
        *("--topic", "t", "--from-beginning", "--max-messages", "100", *PATIENT),
        *("--formatter-property", "print.key=true", "--formatter-property", "print.headers=true"),
    )
    assert read.splitlines() == lines


async def test_kafka_topics_creates_changes_shows_and_deletes(cluster: EmbeddedCluster, tool: Tool) -> None:
    settings = ("--config", "cleanup.policy=compact", "--config", "segment.bytes=2097152")
    await tool("topics", "--create", "--topic", "t", "--partitions", "2", "--replication-factor", "3", *settings)
    await tool("topics", "--alter", "--topic", "t", "--partitions", "5")
    described = await tool("topics", "--describe", "--topic", "t")
    assert re.search(r"PartitionCount: 5\s+ReplicationFactor: 3", described)
    assert re.search(r"Configs:.*cleanup\.policy=compact", described)
    assert len(re.findall(r"Partition: \d+\s+Leader: [123]\s", described)) == 5
    with pytest.raises(RuntimeError, match="TopicExistsException"):
        await tool("topics", "--create", "--topic", "t")
    await tool("topics", "--delete", "--topic", "t")
    assert "t" not in (await tool("topics", "--list")).split()


async def test_kafka_configs_sets_and_shows(cluster: EmbeddedCluster, tool: Tool) -> None:
    await cluster.create_topic("t")
    topic = ("--entity-type", "topics", "--entity-name", "t")
    await tool("configs", *topic, "--alter", "--add-config", "retention.ms=1000,max.message.bytes=2000000")
    await tool("configs", *topic, "--alter", "--delete-config", "retention.ms")
    described = await tool("configs", *topic, "--describe")
    assert "max.message.bytes=2000000" in described
    assert "retention.ms" not in described
    every = await tool("configs", *topic, "--describe", "--all")
    assert re.search(r"retention\.ms=604800000 sensitive=false", every)


async def test_a_group_is_listed_described_reset_and_deleted(
    cluster: EmbeddedCluster, tool: Tool, tmp_path: Path
) -> None:
    await cluster.create_topic("t", 2)
    await tool("console-producer", "--topic", "t", stdin="".join(f"{number}\n" for number in range(50)))
    read = ("--topic", "t", "--group", "g", "--max-messages", "50", *PATIENT)
    await tool("console-consumer", *read, "--from-beginning")
    assert re.search(r"g\s+Classic\s+Empty", await tool("consumer-groups", "--list", "--state", "--type"))
    await tool("consumer-groups", "--group", "g", "--topic", "t", "--reset-offsets", "--to-earliest", "--execute")
    described = await tool("consumer-groups", "--describe", "--group", "g")
    rows = [line.split() for line in described.splitlines() if line.startswith("g ")]
    assert {row[3] for row in rows} == {"0"}
    assert sum(int(row[5]) for row in rows) == 50

    ends = dict(line.rsplit(":", 1) for line in (await tool("get-offsets", "--topic", "t")).split())
    assert sum(map(int, ends.values())) == 50
    partitions = [{"topic": "t", "partition": index, "offset": -1} for index in range(2)]
    offsets_file = tmp_path / "delete.json"
    offsets_file.write_text(json.dumps({"version": 1, "partitions": partitions}))
    assert "low_watermark" in await tool("delete-records", "--offset-json-file", str(offsets_file))
    begins = dict(line.rsplit(":", 1) for line in (await tool("get-offsets", "--topic", "t", "--time", "-2")).split())
    assert begins == ends

    await tool("consumer-groups", "--delete", "--group", "g")
    assert "g" not in (await tool("consumer-groups", "--list")).split()


async def test_a_share_consumer_reads_and_its_group_is_described_reset_and_deleted(
    cluster: EmbeddedCluster, tool: Tool
) -> None:
    await cluster.create_topic("orders", 1)
    for number in range(5):
        await cluster.produce("orders", b"value-%d" % number)
    async with Admin(cluster.bootstrap_servers) as admin:
        changes = {ConfigResource.group("workers"): {"share.auto.offset.reset": "earliest"}}
        (await admin.configs.alter(changes)).raise_for_errors()
    about = ("--topic", "orders", "--group", "workers")
    options = ("--formatter-property", "print.delivery=true", "--formatter-property", "print.offset=true")
    read = await tool("console-share-consumer", *about, "--max-messages", "5", *PATIENT, *options)
    assert read.splitlines() == [f"Offset:{number}\tDelivery:1\tvalue-{number}" for number in range(5)]
    described = await tool("share-groups", "--describe", "--group", "workers", "--offsets")
    assert re.search(r"workers +orders +0 +5 +0\b", described)
    reset = await tool("share-groups", "--reset-offsets", *about, "--to-earliest", "--execute")
    assert re.search(r"workers +orders +0 +0\b", reset)
    assert re.search(r"workers +Empty", await tool("share-groups", "--list", "--state"))
    assert "was successful" in await tool("share-groups", "--delete", "--group", "workers")


async def test_the_java_producer_writes_transactions_that_its_consumer_and_its_tools_read(
    cluster: EmbeddedCluster, tool: Tool
) -> None:
    await cluster.create_topic("t", 2, 3)
    said = await tool(
        "producer-perf-test",
        *("--topic", "t", "--num-records", "300", "--record-size", "100", "--throughput", "1000"),
        *("--transactional-id", "perf", "--transaction-duration-ms", "50"),
    )
    assert "300 records sent" in said
    committed = {exchange.version for exchange in cluster.history.of(EndTxnRequest)}
    assert committed == {5}, "Java chose generation 2"
    read = await tool(
        "console-consumer",
        *("--topic", "t", "--from-beginning", "--max-messages", "300", *PATIENT),
        *("--isolation-level", "read_committed"),
    )
    assert len(read.splitlines()) == 300
    assert re.search(r"perf\S*\s+\d+\s+\d+\s+CompleteCommit", await tool("transactions", "list"))
    # The producer may have written to one partition only.
    describe = ("transactions", "describe-producers", "--topic", "t", "--partition")
    described = [await tool(*describe, number) for number in ("0", "1")]
    assert any("None" in table for table in described), "no transaction is open"


@pytest.mark.parametrize("release", ["2.8.2", NEWEST])
async def test_the_java_client_copies_a_topic_with_its_offsets_in_transactions(release: str) -> None:
    """Kafka's own test program for exactly-once, with random aborts."""
    if (problem := java_problem()) is not None:
        missing(f"Kafka's own tools cannot run here: {problem}")
    async with EmbeddedCluster(brokers=3, as_kafka=release) as cluster:
        await cluster.create_topic("in", 1, 3)
        await cluster.create_topic("out", 2, 3)
        for number in range(200):
            await cluster.produce("in", b"%d" % number)
        await asyncio.to_thread(
            run_tool,
            NEWEST,
            "transactional-message-copier",
            cluster.bootstrap_servers,
            *("--input-topic", "in", "--input-partition", "0", "--output-topic", "out", "--transaction-size", "15"),
            *("--transactional-id", "copier", "--consumer-group", "copiers", "--max-messages", "200"),
            *("--enable-random-aborts", "--group-mode", "--use-group-metadata"),
        )
        async with asyncio.timeout(DEADLINE):
            while len(cluster.records("out")) < 200:
                await asyncio.sleep(0.01)
        copied = sorted(int(record.value) for record in cluster.records("out"))
        assert copied == list(range(200))
