"""``aiokafka-lite exporter`` as a process: Prometheus' own parser reads it, and its lag is that of the group."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

from aiokafka_lite import Admin, Producer, TopicPartition
from tests.end_to_end.conftest import Kafka
from tests.waiting import DEADLINE


@asynccontextmanager
async def exporter(kafka: Kafka, *options: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """Run the command. Yields the process and the first line of its errors, once it has one."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "aiokafka_lite", "exporter", "-b", kafka.bootstrap_servers, *options),
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    try:
        yield process, (await process.stderr.readline()).decode()
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await process.communicate()


def read(address: str) -> dict[str, dict[tuple[str, ...], float]]:
    with urlopen(address, timeout=DEADLINE) as answer:
        families = text_string_to_metric_families(answer.read().decode())
        return {
            family.name: {tuple(sample.labels.values()): sample.value for sample in family.samples}
            for family in families
        }


async def test_prometheus_reads_the_lag_of_a_group(kafka: Kafka) -> None:
    topic = await kafka.create_topic(partitions=2)
    async with Producer(kafka.bootstrap_servers) as producer, Admin(kafka.bootstrap_servers) as admin:
        await producer.send_many(topic, [b"x"] * 50, partition=0)
        await producer.send_many(topic, [b"x"] * 20, partition=1)
        offsets = {TopicPartition(topic, 0): 10, TopicPartition(topic, 1): 20}
        altered = await admin.groups.alter_offsets(f"{topic}-readers", offsets)
        assert not altered.failed
        (group,) = (await admin.groups.lag(f"{topic}-readers")).done.values()
        await admin.records.delete({TopicPartition(topic, 0): 4})
    options = ("--topic", topic, "--group", f"{topic}-.*", "--topic-setting", "cleanup.policy")
    async with exporter(kafka, "--listen", "127.0.0.1:0", *options) as (process, line):
        address = re.search(r"http://\S+", line)
        assert address is not None, line
        figures = await asyncio.to_thread(read, address[0].rstrip(","))
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 128 + signal.SIGTERM
    assert figures["kafka_group_lag_records"] == {(f"{topic}-readers", topic): 40}
    assert group.total == 40
    assert figures["kafka_group_committed_offsets"] == {(f"{topic}-readers", topic): 30}
    assert figures["kafka_topic_start_offsets"] == {(topic,): 4}
    assert figures["kafka_topic_end_offsets"] == {(topic,): 70}
    assert figures["kafka_topic_info"] == {("delete", "1", topic): 1}
    sizes = figures.get("kafka_topic_log_bytes", {})  # brokers tell them since Kafka 2.0
    assert [size > 0 for size in sizes.values()] == [True] * kafka.speaks("2.0.0")
    assert figures["kafka_exporter_up"] == {(): 1}
    assert figures["kafka_exporter_failures"] == {(): 0}


async def test_wrong_arguments_and_a_port_in_use_are_one_line(kafka: Kafka) -> None:
    await kafka.create_topic()
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    cases = {
        ("--listen", "9308"): (2, "listen must be HOST:PORT"),
        ("--group", "("): (2, "group must be a regular expression"),
        ("--topic-setting", "cleanup.polcy"): (
            2,
            "topics have no setting 'cleanup.polcy'; did you mean 'cleanup.policy'?",
        ),
        ("--topic-setting", "Cleanup"): (2, "topic-setting must be a setting of topics, as in cleanup.policy"),
        ("--topic-setting", "topic"): (2, "topic-setting must be given once for each setting"),
        ("--listen", f"127.0.0.1:{port}"): (1, f"cannot listen at 127.0.0.1:{port}: Address already in use"),
    }
    async with server:
        for options, (status, message) in cases.items():
            async with exporter(kafka, *options) as (process, line):
                assert message in line
                assert await process.wait() == status
