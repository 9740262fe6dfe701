"""Transactions as operators see them: listed, described, fenced, found hanging, and aborted."""

from __future__ import annotations

import asyncio
import json
import re
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import confluent_kafka
import pytest

from aiokafka_lite import BrokerError, Consumer, TopicPartition
from aiokafka_lite.admin import Admin, ConfigResource, ProducerState, TransactionState
from aiokafka_lite.cluster.client import Client
from aiokafka_lite.cluster.coordinators import CoordinatorKind
from aiokafka_lite.errors import ErrorCode, UnsupportedVersion
from aiokafka_lite.protocol.messages import (
    InitProducerIdRequest,
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
)
from aiokafka_lite.protocol.records.build import BatchBuilder
from aiokafka_lite.settings.client import ClientConfig
from tests.end_to_end.conftest import Kafka
from tests.end_to_end.terminal import run
from tests.real.jvm import java_problem, run_tool
from tests.real.releases import NEWEST, since
from tests.waiting import DEADLINE, TRANSACTION_TIMEOUT

OLD_VERIFICATION = "transaction.partition.verification.enable"

described = since("3.0", "coordinators describe transactions since Kafka 3.0")


@pytest.fixture
async def admin(kafka: Kafka) -> AsyncIterator[Admin]:
    async with Admin(kafka.bootstrap_servers, api_timeout=DEADLINE) as admin:
        yield admin


@asynccontextmanager
async def open_transaction(
    kafka: Kafka, partition: TopicPartition
) -> AsyncIterator[tuple[str, confluent_kafka.Producer]]:
    """Open a transaction of librdkafka with one record, and its transactional id."""
    name = f"orders-{uuid.uuid4().hex[:8]}"
    settings = {"transactional.id": name, "linger.ms": 0, "log_level": 0}
    settings["transaction.timeout.ms"] = int(TRANSACTION_TIMEOUT * 1000)
    producer = confluent_kafka.Producer({"bootstrap.servers": kafka.bootstrap_servers, **settings})
    await asyncio.to_thread(producer.init_transactions, DEADLINE)
    producer.begin_transaction()
    producer.produce(partition.topic, b"open", partition=partition.partition)
    assert await asyncio.to_thread(producer.flush, DEADLINE) == 0
    yield name, producer


async def test_an_open_transaction_is_listed_and_described(kafka: Kafka, admin: Admin) -> None:
    partition = TopicPartition(await kafka.create_topic(partitions=1), 0)
    async with open_transaction(kafka, partition) as (name, producer):
        if not kafka.speaks("3.0"):
            with pytest.raises(UnsupportedVersion, match=r"3\.0"):
                await admin.transactions.list()
            return
        listed = {listing.transactional_id: listing for listing in await admin.transactions.list(states=["ongoing"])}
        assert listed[name].state is TransactionState.ONGOING
        assert name not in {listing.transactional_id for listing in await admin.transactions.list(states=["Empty"])}
        (only,) = await admin.transactions.list(producer_ids=[listed[name].producer_id])
        assert only == listed[name]
        described = await admin.transactions.describe([name, "no-such-id"])
        transaction = described[name]
        assert (transaction.state, transaction.producer_id) == (TransactionState.ONGOING, only.producer_id)
        assert (transaction.partitions, transaction.timeout) == ((partition,), TRANSACTION_TIMEOUT)
        assert transaction.started_at is not None
        error = described.failed["no-such-id"]
        assert isinstance(error, BrokerError)
        assert error.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        (state,) = (await admin.transactions.describe_producers([partition]))[partition]
        assert (state.producer_id, state.start_offset, state.last_sequence) == (only.producer_id, 0, 0)
        assert await admin.transactions.find_hanging(partitions=[partition], max_transaction_timeout=0) == ()
        await asyncio.to_thread(producer.commit_transaction, DEADLINE)
        async with asyncio.timeout(DEADLINE):
            # Kafka may forget the partitions a moment before it calls the transaction complete.
            while transaction.state is not TransactionState.COMPLETE_COMMIT:
                await asyncio.sleep(0.05)
                transaction = (await admin.transactions.describe(name))[name]
        assert (transaction.partitions, transaction.started_at) == ((), None)


async def test_transactions_are_listed_by_duration_and_pattern(kafka: Kafka, admin: Admin) -> None:
    partition = TopicPartition(await kafka.create_topic(partitions=1), 0)
    async with open_transaction(kafka, partition) as (name, producer):
        if kafka.speaks("3.8"):
            assert name in {listing.transactional_id for listing in await admin.transactions.list(min_duration=0)}
            assert name not in {
                listing.transactional_id for listing in await admin.transactions.list(min_duration=3600)
            }
        else:
            with pytest.raises(UnsupportedVersion, match=r"3\.\d"):
                await admin.transactions.list(min_duration=0)
        if kafka.speaks("4.1"):
            (transaction,) = await admin.transactions.list(pattern=f"{name[:-1]}.")
            assert transaction.transactional_id == name
            assert await admin.transactions.list(pattern=name[:-1]) == ()
        else:
            with pytest.raises(UnsupportedVersion, match=r"4\.1|3\.0"):
                await admin.transactions.list(pattern=name)
        await asyncio.to_thread(producer.abort_transaction, DEADLINE)


async def test_a_fenced_producer_cannot_commit_and_its_records_are_aborted(kafka: Kafka, admin: Admin) -> None:
    partition = TopicPartition(await kafka.create_topic(partitions=1), 0)
    async with open_transaction(kafka, partition) as (name, producer):
        fenced = (await admin.transactions.fence_producers(name))[name]
        assert fenced.producer_epoch > 0
        with pytest.raises(confluent_kafka.KafkaException) as refused:
            await asyncio.to_thread(producer.commit_transaction, DEADLINE)
        assert refused.value.args[0].fatal()
    async with Consumer(kafka.bootstrap_servers, topics=[partition.topic]) as consumer:
        assert await consumer.poll(timeout=1.0) == []
        assert await consumer.lag() == {partition: 0}


async def write_hanging(kafka: Kafka, partition: TopicPartition) -> None:
    """Write transactional records without adding the partition to the transaction, as faults of old brokers did."""
    name = f"hanging-{uuid.uuid4().hex[:8]}"
    async with Client(ClientConfig(bootstrap_servers=kafka.bootstrap_servers)) as client:
        broker = await client.coordinator(name, CoordinatorKind.TRANSACTION)
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
        async with asyncio.timeout(DEADLINE):
            while (answer := await broker.send(request)).error_code:
                await asyncio.sleep(0.05)
        builder = BatchBuilder()
        builder.append(1_700_000_000_000, None, b"hanging")
        records = builder.build(
            producer_id=answer.producer_id, producer_epoch=answer.producer_epoch, base_sequence=0, transactional=True
        )
        data = ProduceRequestTopic(
            name=partition.topic, partition_data=[ProduceRequestPartition(index=partition.partition, records=records)]
        )
        produce = ProduceRequest(transactional_id=name, acks=-1, timeout_ms=10_000, topic_data=[data])
        view = await client.topic(partition.topic)
        (leader,) = [partition.leader for partition in view.partitions]
        assert leader is not None
        written = await client.broker(leader).send(produce, at_most=ProduceRequest.ADDS_PARTITIONS.before)
        assert [
            partition_response.error_code
            for topic in written.responses
            for partition_response in topic.partition_responses
        ] == [0]


@asynccontextmanager
async def unverified(kafka: Kafka, admin: Admin) -> AsyncIterator[None]:
    """Let brokers not check that a partition is in the transaction (KIP-890), as before Kafka 3.6."""
    everywhere = ConfigResource.all_brokers()
    if kafka.speaks("3.6"):
        (await admin.configs.alter({everywhere: {OLD_VERIFICATION: "false"}})).raise_for_errors()
    try:
        yield
    finally:
        if kafka.speaks("3.6"):
            (await admin.configs.alter({everywhere: {OLD_VERIFICATION: None}})).raise_for_errors()


async def hanging_partition(kafka: Kafka, admin: Admin) -> TopicPartition:
    partition = TopicPartition(await kafka.create_topic(partitions=1), 0)
    async with unverified(kafka, admin), asyncio.timeout(DEADLINE):
        while True:
            try:
                await write_hanging(kafka, partition)
            except AssertionError:  # the setting is not at the broker yet
                await asyncio.sleep(0.1)
            else:
                return partition


@described
async def test_a_hanging_transaction_is_found_and_aborted(kafka: Kafka, admin: Admin) -> None:
    partition = await hanging_partition(kafka, admin)
    async with Consumer(kafka.bootstrap_servers, topics=[partition.topic]) as consumer:
        assert await consumer.poll(timeout=0.5) == []
        assert await consumer.position(partition) == 0
        (hanging,) = await admin.transactions.find_hanging(partitions=[partition])
        assert (hanging.partition, hanging.producer.start_offset) == (partition, 0)
        node_ids = [node.node_id for node in (await admin.cluster.describe()).brokers]
        hanging_ones = [
            candidate for node_id in node_ids for candidate in await admin.transactions.find_hanging(broker=node_id)
        ]
        assert [candidate.producer for candidate in hanging_ones if candidate.partition == partition] == [
            hanging.producer
        ]
        with pytest.raises(ValueError, match=r"first offset of an open transaction.*begin at 0"):
            await admin.transactions.abort(partition, start_offset=5)
        await admin.transactions.abort(partition, start_offset=0)
        assert await admin.transactions.find_hanging(partitions=[partition]) == ()
        async with asyncio.timeout(DEADLINE):
            while await consumer.position(partition) < 2:  # past the record and the marker
                assert await consumer.poll(timeout=0.1) == []


@since("2.8", "admin clients write markers since Kafka 2.8")
async def test_a_transaction_is_aborted_by_its_producer(kafka: Kafka, admin: Admin) -> None:
    partition = await hanging_partition(kafka, admin)
    (state,) = (await admin.transactions.describe_producers([partition]))[partition]
    node_id = (await admin.cluster.describe()).brokers[0].node_id
    if kafka.kind != "embedded":
        assert (await admin.transactions.describe_producers([partition], broker=node_id))[partition] == (state,)
    stale = ProducerState(state.producer_id, state.producer_epoch - 1)
    await admin.transactions.abort(partition, producer=state)
    (after,) = (await admin.transactions.describe_producers([partition]))[partition]
    assert after.start_offset is None
    if stale.producer_epoch >= 0:
        with pytest.raises(BrokerError):
            await admin.transactions.abort(partition, producer=stale)


@described
async def test_the_command_line_shows_and_ends_transactions(kafka: Kafka, admin: Admin) -> None:
    partition = await hanging_partition(kafka, admin)
    server = ("-b", kafka.bootstrap_servers)
    async with open_transaction(kafka, partition) as (name, _):
        listed = json.loads((await run("transactions", "list", "--state", "ongoing", "--json", *server)).text)
        assert {"transactional_id": name, "state": "Ongoing"}.items() <= next(
            listing for listing in listed if listing["transactional_id"] == name
        ).items()
        described = await run("transactions", "describe", name, "no-such-id", *server)
        assert (described.status, described.rows[1][0], described.rows[1][4]) == (1, name, "Ongoing")
        assert "TRANSACTIONAL_ID_NOT_FOUND" in described.errors
        producers = await run("transactions", "describe-producers", partition.topic, *server)
        assert {row[7] for row in producers.rows[1:]} == {"0", "1"}
        hanging_row = await run("transactions", "find-hanging", f"{partition.topic}:0", *server)
        assert [row[:2] for row in hanging_row.rows[1:]] == [[partition.topic, "0"]]
        assert hanging_row.rows[1][5] == "0"
        place = f"{partition.topic}:{partition.partition}"
        aborted = await run("transactions", "abort", place, "--start-offset", "0", *server)
        assert aborted.status == 0, aborted.errors
        none = await run("transactions", "find-hanging", place, *server)
        assert (none.status, none.rows) == (0, [])
        assert "no transaction hangs" in none.errors
        fenced = await run("transactions", "fence", name, *server)
        assert fenced.rows[1][0] == name
        # Kafka's own tool, from the jars: the image has few tools.
        if kafka.server is not None and kafka.speaks("4.0") and java_problem() is None:
            arguments = ("describe", "--transactional-id", name)
            said = await asyncio.to_thread(run_tool, NEWEST, "transactions", kafka.bootstrap_servers, *arguments)
            assert re.search(rf"{name}\s+\d+\s+{fenced.rows[1][2]}\s+Empty", said), said


async def test_wrong_arguments_of_the_abort_command_are_refused(kafka: Kafka) -> None:
    for arguments in (("orders",), ("orders:0",), ("orders:0", "--start-offset", "1", "--producer-id", "1")):
        outcome = await run("transactions", "abort", *arguments, "-b", kafka.bootstrap_servers)
        assert outcome.status == 2, outcome.errors


async def test_the_lag_of_a_group_ends_where_its_isolation_level_ends(kafka: Kafka, admin: Admin) -> None:
    partition = TopicPartition(await kafka.create_topic(partitions=1), 0)
    group = f"group-{uuid.uuid4().hex[:8]}"
    (await admin.groups.alter_offsets(group, {partition: 0})).raise_for_errors()
    async with open_transaction(kafka, partition) as (_, producer):
        for isolation_level, expected in (("read_committed", "0"), ("read_uncommitted", "1")):
            (lag,) = (await admin.groups.lag(group, isolation_level=isolation_level))[group].partitions
            assert str(lag.lag) == expected
            shown = await run("lag", group, "--isolation-level", isolation_level, "-b", kafka.bootstrap_servers)
            assert shown.rows[1][4] == expected, shown.errors
        await asyncio.to_thread(producer.abort_transaction, DEADLINE)
