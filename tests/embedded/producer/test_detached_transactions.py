"""A transaction that one producer writes and leaves open, and another client ends, in both generations."""

from __future__ import annotations

import asyncio
import pickle
from contextlib import nullcontext

import pytest

from aiokafka_lite import Admin, OffsetAndMetadata, TopicPartition
from aiokafka_lite.cluster.client import Client
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import BrokerError, IllegalStateError, KafkaError, ProducerFenced
from aiokafka_lite.producer import Producer
from aiokafka_lite.producer.transactions.detached_transaction import (
    DetachedTransaction,
    add_detached_offsets,
    begin_detached,
    end_detached,
)
from aiokafka_lite.protocol.messages import OffsetFetchRequest
from aiokafka_lite.settings.client import ClientConfig
from tests.embedded.producer.transaction_requests import GROUP, HERE, committed_offset, committed_values, transactional


def client_of(cluster: EmbeddedCluster) -> Client:
    return Client(ClientConfig(bootstrap_servers=cluster.bootstrap_servers), connector=cluster.connector)


async def detached(cluster: EmbeddedCluster, **settings: float) -> DetachedTransaction:
    """Return a transaction with one record, whose producer is closed. It goes through a pickle, as to another
    process."""
    async with transactional(cluster, **settings) as producer:
        await producer.begin_transaction()
        producer.send_nowait("t", b"1", partition=0)
        transaction = await producer.detach_transaction()
        with pytest.raises(IllegalStateError):
            await producer.send("t", b"2", partition=0)
    copy: DetachedTransaction = pickle.loads(pickle.dumps(transaction))
    return copy


async def test_another_client_commits_the_records_with_offsets(cluster: EmbeddedCluster, generation: int) -> None:
    transaction = await detached(cluster)
    assert transaction.generation == generation
    async with client_of(cluster) as client:
        await add_detached_offsets(client, transaction, {HERE: OffsetAndMetadata(7)}, GROUP)
        await end_detached(client, transaction, committed=True)
    assert await committed_values(cluster) == [1]
    assert await committed_offset(cluster) == 7


@pytest.mark.usefixtures("generation")
async def test_offsets_alone_are_committed_without_a_producer(cluster: EmbeddedCluster) -> None:
    async with client_of(cluster) as client:
        first = await begin_detached(client, "p", 60.0)
        second = await begin_detached(client, "p", 60.0)  # fences the first one
        for transaction, offset in ((second, 8), (first, 7)):
            with pytest.raises(KafkaError) if transaction is first else nullcontext():
                await add_detached_offsets(client, transaction, {HERE: OffsetAndMetadata(offset)}, GROUP)
        await end_detached(client, second, committed=True)
    assert await committed_offset(cluster) == 8


@pytest.mark.usefixtures("generation")
async def test_another_client_aborts_the_records(cluster: EmbeddedCluster) -> None:
    async with client_of(cluster) as client:
        await end_detached(client, await detached(cluster), committed=False)
    assert await committed_values(cluster) == []


@pytest.mark.usefixtures("generation")
async def test_a_later_producer_fences_the_detached_transaction(cluster: EmbeddedCluster) -> None:
    transaction = await detached(cluster)
    async with transactional(cluster), client_of(cluster) as client:
        with pytest.raises(ProducerFenced):
            await end_detached(client, transaction, committed=True)
    assert await committed_values(cluster) == []


@pytest.mark.usefixtures("generation")
async def test_after_the_timeout_the_error_names_the_timeout_of_the_producer(cluster: EmbeddedCluster) -> None:
    transaction = await detached(cluster, transaction_timeout=5.0)
    await asyncio.sleep(60.0)
    async with client_of(cluster) as client:
        with pytest.raises(BrokerError, match=r"transaction_timeout=5 s"):
            await end_detached(client, transaction, committed=True)


async def test_stable_offsets_wait_for_the_transaction_that_commits_them(
    cluster: EmbeddedCluster, producer: Producer
) -> None:
    """As in Kafka, a request for all partitions waits only for partitions that already have an offset."""
    async with Admin(cluster.bootstrap_servers, connector=cluster.connector) as admin:

        async def offsets(partitions: list[TopicPartition] | None = None) -> dict[TopicPartition, int]:
            groups = await admin.groups.offsets(GROUP.group_id, partitions=partitions, require_stable=True)
            return {partition: offset.offset for partition, offset in groups[GROUP.group_id].items()}

        for partitions, offset in (([HERE], 7), (None, 8)):
            async with producer.transaction() as transaction:
                await transaction.send_offsets({HERE: OffsetAndMetadata(offset)}, GROUP)
                if offset == 7:
                    assert await offsets() == {}
                cluster.history.clear()
                stable = asyncio.create_task(offsets(partitions))
                while not cluster.history.of(OffsetFetchRequest):
                    await asyncio.sleep(0.01)
            assert await stable == {HERE: offset}
