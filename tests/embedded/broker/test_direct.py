"""Records that a test writes to the cluster, or reads from it, without a client."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokafka_lite import ConfigurationError, Consumer, EmbeddedCluster, KafkaTimeout, Producer
from aiokafka_lite.embedded import Refused
from aiokafka_lite.errors import ErrorCode
from aiokafka_lite.protocol.records import partition_for_key


async def test_a_client_reads_what_produce_has_written() -> None:
    async with EmbeddedCluster(brokers=3, tcp=False) as cluster:
        await cluster.create_topic("orders", partitions=3, replication_factor=3)
        offset = await cluster.produce("orders", "two coffees", key="table-7", headers={"by": b"web"})
        async with Consumer(cluster.bootstrap_servers, topics=["orders"], connector=cluster.connector) as consumer:
            record = await anext(consumer)
    assert (record.key, record.value, record.offset, offset) == (b"table-7", b"two coffees", 0, 0)
    assert record.partition == partition_for_key(b"table-7", 3)
    assert [tuple(header) for header in record.headers] == [("by", b"web")]


async def test_records_returns_what_a_client_has_written_in_order() -> None:
    async with EmbeddedCluster(brokers=1, tcp=False) as cluster:
        await cluster.create_topic("orders", partitions=2)
        async with Producer(cluster.bootstrap_servers, connector=cluster.connector, compression="zstd") as producer:
            for partition, value in [(1, b"c"), (0, b"a"), (0, b"b")]:
                await producer.send("orders", value, partition=partition)
        records = cluster.records("orders")
        second = cluster.records("orders", 1)
    assert [(record.partition, record.offset, record.value) for record in records] == [
        (0, 0, b"a"),
        (0, 1, b"b"),
        (1, 0, b"c"),
    ]
    assert [record.value for record in second] == [b"c"]


@pytest.mark.thorough
async def test_records_omits_records_that_are_not_committed_yet() -> None:
    async with EmbeddedCluster(brokers=2, tcp=False) as cluster:
        await cluster.create_topic("orders", replication_factor=2)
        leader = cluster.leader_of("orders", 0)
        await cluster.produce("orders", b"committed")
        await cluster.freeze(({1, 2} - {leader}).pop())
        async with Producer(
            cluster.bootstrap_servers, connector=cluster.connector, acks=1, idempotence=False
        ) as producer:
            await producer.send("orders", b"not replicated")
        assert [record.value for record in cluster.records("orders")] == [b"committed"]


async def test_produce_creates_the_topic_and_refuses_a_partition_that_does_not_exist() -> None:
    async with EmbeddedCluster(brokers=1, tcp=False) as cluster:
        assert [await cluster.produce("orders", None), await cluster.produce("orders", b"b")] == [0, 1]
        assert [record.value for record in cluster.records("orders")] == [None, b"b"]
        with pytest.raises(Refused) as wrong:
            await cluster.produce("orders", b"c", partition=7)
        with pytest.raises(Refused) as unknown:
            cluster.records("misspelled")
    assert wrong.value.code is unknown.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_produce_reports_the_code_of_the_broker() -> None:
    async with EmbeddedCluster(brokers=1, tcp=False, configs={"message.max.bytes": "200"}) as cluster:
        with pytest.raises(Refused) as refused:
            await cluster.produce("orders", b"x" * 1000)
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"value": 5}, "value must be bytes, a str or None, got 5"),
        ({"key": 5}, "key must be bytes, a str or None, got 5"),
        ({"headers": [("a", b"b")]}, r"headers must be .*, got \[\('a', b'b'\)\]"),
        ({"headers": {"a": "b"}}, "the value of header 'a' must be bytes or None, got 'b'"),
        ({"partition": "0"}, "partition must be a whole number >= 0, got '0'"),
        ({"topic": 5}, "topic must be a string, got 5"),
    ],
)
async def test_produce_names_an_argument_of_a_wrong_type(arguments: dict[str, Any], text: str) -> None:
    async with EmbeddedCluster(brokers=1, tcp=False) as cluster:
        with pytest.raises(TypeError, match=text):
            await cluster.produce(**{"topic": "orders", "value": b"v", **arguments})
        assert not cluster.controller.topics


async def test_wait_for_records_returns_when_a_program_has_written_them() -> None:
    async with EmbeddedCluster(brokers=1, tcp=False) as cluster:
        waiting = asyncio.create_task(cluster.wait_for_records("bills", 3))
        async with Producer(cluster.bootstrap_servers, connector=cluster.connector) as producer:
            for number in range(3):
                assert not waiting.done()
                await producer.send("bills", b"%d" % number)
        assert [record.value for record in await waiting] == [b"0", b"1", b"2"]
        assert len(await cluster.wait_for_records("bills")) == 3, "it returns all records that are there"


async def test_wait_for_records_says_how_many_there_are() -> None:
    async with EmbeddedCluster(brokers=1, tcp=False) as cluster:
        with pytest.raises(KafkaTimeout, match=r"^topic 'bills' has 0 records after 0\.01 s, expected 1$"):
            await cluster.wait_for_records("bills", timeout=0.01)
        await cluster.create_topic("bills", partitions=2)
        await cluster.produce("bills", b"x", partition=0)
        with pytest.raises(KafkaTimeout, match=r"^bills-1 has 0 records after 0\.01 s, expected 2$"):
            await cluster.wait_for_records("bills", 2, partition=1, timeout=0.01)
        with pytest.raises(KafkaTimeout, match=r"^topic 'bills' has 1 record after 0\.01 s, expected 2$"):
            await cluster.wait_for_records("bills", 2, timeout=0.01)


async def test_wait_for_records_does_not_count_records_of_an_open_transaction() -> None:
    async with EmbeddedCluster(brokers=1, tcp=False) as cluster:
        settings = {"connector": cluster.connector, "transactional_id": "billing"}
        async with Producer(cluster.bootstrap_servers, **settings) as producer:
            async with producer.transaction():
                await producer.send("bills", b"x")
                with pytest.raises(KafkaTimeout):
                    await cluster.wait_for_records("bills", timeout=0.02)
            assert len(await cluster.wait_for_records("bills")) == 1


async def test_wait_for_records_survives_an_election() -> None:
    async with EmbeddedCluster(brokers=1, tcp=False) as cluster:
        await cluster.produce("bills", b"x")
        await cluster.kill(1)
        waiting = asyncio.create_task(cluster.wait_for_records("bills"))
        await asyncio.sleep(0)
        await cluster.start_node(1)
        assert len(await waiting) == 1


@pytest.mark.parametrize(
    ("arguments", "error"),
    [({"count": 0}, ValueError), ({"count": "3"}, TypeError), ({"timeout": "5"}, ConfigurationError)],
)
async def test_wait_for_records_refuses_wrong_arguments(arguments: Any, error: type[Exception]) -> None:
    async with EmbeddedCluster(brokers=1, tcp=False) as cluster:
        with pytest.raises(error):
            await cluster.wait_for_records("bills", **arguments)
