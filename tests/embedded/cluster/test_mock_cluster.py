"""This client on librdkafka's mock cluster: a broker whose messages are not quite Kafka's."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

import pytest

from aiokafka_lite import Consumer, Producer

VALUES = [b"value-%d" % number for number in range(20)]


@pytest.fixture(scope="module")
def mock_cluster() -> Iterator[str]:
    confluent_kafka = pytest.importorskip("confluent_kafka")
    owner = confluent_kafka.Producer({"bootstrap.servers": "replaced", "test.mock.num.brokers": 3})
    brokers = owner.list_topics(timeout=10).brokers.values()
    yield ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    owner.flush(0)  # the cluster lives as long as this producer


async def fill(servers: str, topic: str) -> None:
    async with Producer(servers) as producer:
        await asyncio.gather(*(producer.send(topic, value) for value in VALUES))


async def test_records_are_written_and_read(mock_cluster: str) -> None:
    """The mock writes one byte too many after a flexible Metadata response."""
    await fill(mock_cluster, "plain")
    async with Consumer(mock_cluster, topics=["plain"], auto_offset_reset="earliest") as consumer:
        values = [(await anext(consumer)).value for _ in VALUES]
    assert sorted(values) == sorted(VALUES)


@pytest.mark.thorough
async def test_a_group_reads_commits_and_leaves(mock_cluster: str, caplog: pytest.LogCaptureFixture) -> None:
    """The mock offers flexible versions of JoinGroup, SyncGroup and LeaveGroup that it cannot parse."""
    await fill(mock_cluster, "grouped")
    caplog.set_level(logging.INFO, "aiokafka_lite.group")
    async with Consumer(mock_cluster, topics=["grouped"], group_id="g", auto_offset_reset="earliest") as consumer:
        values = [(await anext(consumer)).value for _ in VALUES]
        consumer.mark()
        committed = await consumer.commit()
    assert sorted(values) == sorted(VALUES)
    assert not committed.refused
    assert sum(offset.offset for offset in committed.committed.values()) == len(VALUES)
    assert not [record.getMessage() for record in caplog.records if "cannot be decoded" in record.getMessage()]


async def test_a_transaction_commits(mock_cluster: str) -> None:
    async with Producer(mock_cluster, transactional_id="writer") as producer, producer.transaction():
        await producer.send("transactional", b"value")
    async with Consumer(
        mock_cluster, topics=["transactional"], auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        assert (await anext(consumer)).value == b"value"
