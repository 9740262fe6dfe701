"""Context variables: one that user code sets for a record, a rebalance or a commit is not set in another call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

import pytest

from aiokafka_lite import ConsumerGroup, EmbeddedCluster, Producer, TopicPartition, Workers
from aiokafka_lite.cluster.metadata import ClusterView
from aiokafka_lite.consumer import (
    Claim,
    Consumer,
    ConsumerGroupHandler,
    ConsumerGroupSession,
    RebalanceHandle,
    RebalanceListener,
    ResetReason,
)
from aiokafka_lite.embedded import Security
from aiokafka_lite.errors import SerializationError
from aiokafka_lite.processing import Rule, retry, skip
from aiokafka_lite.producer import ProducerRecord
from aiokafka_lite.types import Header, OffsetAndMetadata, Record, RecordMetadata
from tests.embedded.share.billing_consumers import begin_at_the_first_record, read, share_consumer
from tests.virtual import virtual_loops
from tests.waiting import until

pytest_asyncio_loop_factories = virtual_loops

ORDERS = TopicPartition("orders", 0)

order: ContextVar[str] = ContextVar("order", default="")


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(brokers=1, tcp=False, seed=1) as cluster:
        await cluster.create_topic("orders", partitions=1)
        yield cluster


class Notes:
    """What the variable was when user code began, and its value while the code works on something else."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def begin(self, value: str) -> None:
        self.seen.append(order.get())
        order.set(value)

    @property
    def distinct(self) -> set[str]:
        return set(self.seen)


def group_of(cluster: EmbeddedCluster, **settings: Any) -> ConsumerGroup:
    return ConsumerGroup(cluster.bootstrap_servers, group_id="billing", connector=cluster.connector, **settings)


async def consume(
    cluster: EmbeddedCluster, handler: ConsumerGroupHandler[Any, Any], seen: list[Any], calls: int
) -> None:
    """Consume in a task that has its own value, until the handler has noted this many calls."""
    order.set("consume")
    group = group_of(cluster, session_timeout=10.0)
    task = asyncio.create_task(group.consume(["orders"], handler))
    await until(lambda: len(seen) >= calls)
    await group.close()
    await task


async def write(cluster: EmbeddedCluster, count: int) -> None:
    for number in range(count):
        await cluster.produce("orders", f"order-{number}", key=f"customer-{number % 3}")


@pytest.mark.parametrize("by", ["key", "partition", "none"])
async def test_each_attempt_of_a_record_begins_with_the_variables_of_consume(cluster: EmbeddedCluster, by: Any) -> None:
    await write(cluster, 6)
    notes, attempts = Notes(), dict[int, int]()

    async def handle(record: Record[Any, Any]) -> None:
        notes.begin(str(record.offset))
        attempts[record.offset] = attempts.get(record.offset, 0) + 1
        await asyncio.sleep(0.1)
        assert order.get() == str(record.offset)
        if attempts[record.offset] == 1:
            raise ValueError("once more")

    await consume(
        cluster, Workers(handle, concurrency=2, order=by, rules=[retry(Exception, attempts=2)]), notes.seen, 12
    )
    assert notes.distinct == {"consume"}


async def test_a_rule_sees_the_variables_of_the_last_attempt_of_its_record(cluster: EmbeddedCluster) -> None:
    await write(cluster, 4)
    failed: list[tuple[int, str]] = []

    async def handle(record: Record[Any, Any]) -> None:
        order.set(str(record.offset))
        raise ValueError("never")

    async def decide(error: Exception, record: Record[Any, Any], attempt: int) -> Rule:
        await asyncio.sleep(0.1)
        failed.append((record.offset, order.get()))
        order.set("leaked")
        return skip()

    await consume(cluster, Workers(handle, concurrency=1, rules=[decide]), failed, 4)
    assert failed == [(number, str(number)) for number in range(4)]


async def test_each_call_of_a_handler_begins_with_the_variables_of_consume(cluster: EmbeddedCluster) -> None:
    class Handler(ConsumerGroupHandler[Any, Any]):
        async def setup(self, session: ConsumerGroupSession) -> None:
            notes.begin("setup")

        async def consume_claim(self, session: ConsumerGroupSession, claim: Claim[Any, Any]) -> None:
            notes.begin("claim")
            async for _ in claim:
                pass

        async def cleanup(self, session: ConsumerGroupSession) -> None:
            notes.begin("cleanup")

    notes = Notes()
    await consume(cluster, Handler(), notes.seen, 2)
    assert notes.seen == ["consume"] * 3


class Audit(RebalanceListener):
    """Every kind of code that a consumer calls in its own tasks."""

    def __init__(self) -> None:
        self.listeners, self.commits, self.resets = Notes(), Notes(), Notes()

    async def on_assigned(self, handle: RebalanceHandle, partitions: Sequence[TopicPartition]) -> None:
        self.listeners.begin("assigned")

    async def on_revoked(self, handle: RebalanceHandle, partitions: Sequence[TopicPartition]) -> None:
        self.listeners.begin("revoked")

    def on_consume(self, records: Sequence[Record[Any, Any]]) -> Sequence[Record[Any, Any]]:
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self.commits.begin("commit")

    def on_reset(self, partition: TopicPartition, old: int, new: int, reason: ResetReason) -> None:
        self.resets.begin("reset")


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_listeners_and_commits_see_the_variables_of_the_start(cluster: EmbeddedCluster, protocol: Any) -> None:
    await write(cluster, 2)
    audit = Audit()
    order.set("start")
    consumer = Consumer(
        cluster.bootstrap_servers,
        topics=["orders"],
        group_id="billing",
        group_protocol=protocol,
        listener=audit,
        interceptors=[audit],
        on_offset_reset=audit.on_reset,
        auto_commit_interval=0.1,
        connector=cluster.connector,
    )
    async with consumer:
        order.set("request")
        await consumer.poll(1, timeout=5.0)
        await consumer.poll(1, timeout=5.0)
        consumer.seek(ORDERS, 99)
        await until(lambda: audit.resets.seen)
        consumer.seek(ORDERS, 98)
        await until(lambda: len(audit.resets.seen) == 2)
        consumer.subscribe([])
        await until(lambda: len(audit.listeners.seen) == 2)
        consumer.subscribe(["orders"])
        await until(lambda: len(audit.listeners.seen) == 3)
    assert audit.listeners.distinct == {"start"}
    assert audit.commits.distinct == {"start"}
    assert audit.resets.distinct == {"start"}


class Tracking:
    """An interceptor that notes the variable of each acknowledgement, and sets it."""

    def __init__(self) -> None:
        self.acknowledged: list[tuple[int, str]] = []

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None, headers: Sequence[Header]) -> None:
        self.acknowledged.append((metadata.offset, order.get()))
        order.set("acknowledged")


async def test_an_acknowledgement_sees_the_variables_of_its_send(cluster: EmbeddedCluster) -> None:
    tracking = Tracking()
    reports: list[str] = []

    def note(metadata: RecordMetadata, error: Exception | None) -> None:
        reports.append(order.get())
        order.set("reported")

    async with Producer(cluster.bootstrap_servers, interceptors=[tracking], connector=cluster.connector) as producer:
        deliveries = []
        for number in range(4):
            order.set(f"request {number}")
            deliveries.append(await producer.put("orders", b"x"))
            order.set(f"report {number}")
            deliveries[-1].report(note)
        order.set("later")
        await asyncio.gather(*deliveries)
        deliveries[0].report(note)  # it is settled, so the function runs at once
        assert order.get() == "later"
        with pytest.raises(SerializationError):
            await producer.put("orders", 5)
        assert order.get() == "later"
    assert tracking.acknowledged[:4] == [(number, f"request {number}") for number in range(4)]
    assert reports == [*(f"report {number}" for number in range(4)), "later"]


async def test_a_partitioner_sets_no_variable_for_another_record(cluster: EmbeddedCluster) -> None:
    class Custom:
        def partition(self, topic: str, key: bytes | None, value: bytes | None, view: ClusterView) -> int:
            notes.begin("partition")
            return 0

        def on_new_batch(self, topic: str, partition: int, size: int, view: ClusterView) -> None:
            notes.begin("batch")

        def on_topic_removed(self, topic: str) -> None:
            notes.begin("removed")

    notes = Notes()
    async with Producer(cluster.bootstrap_servers, partitioner=Custom(), connector=cluster.connector) as producer:
        for _ in range(4):
            await producer.send("orders", b"x")
    assert notes.distinct == {""}
    assert len(notes.seen) > 4


async def test_acknowledgements_of_a_share_group_see_the_variables_of_the_start(cluster: EmbeddedCluster) -> None:
    await begin_at_the_first_record(cluster)
    await write(cluster, 2)
    notes = Notes()
    order.set("start")

    def on_acknowledged(partition: TopicPartition, offsets: tuple[int, ...], error: Exception | None) -> None:
        notes.begin("acknowledged")

    async with share_consumer(cluster, on_acknowledged=on_acknowledged) as consumer:
        for _ in range(2):
            await read(consumer, 1)
            await consumer.commit()
    assert notes.seen == ["start", "start"]


async def test_a_token_provider_sees_the_variables_of_the_start() -> None:
    notes = Notes()

    async def provide() -> str:
        notes.begin("provided")
        await asyncio.sleep(0.1)
        return "alice"

    security = Security("SASL_PLAINTEXT", check_token=lambda token: {"sub": token})
    async with EmbeddedCluster(brokers=2, tcp=False, seed=1, security=security) as cluster:
        settings = cluster.client_settings() | {"sasl_oauth_token_provider": provide}
        order.set("start")
        async with Producer(**settings) as producer:
            for number in range(3):
                order.set(f"request {number}")
                await producer.send(f"orders-{number}", b"x")
    assert len(notes.seen) > 1
    assert notes.distinct == {"start"}
