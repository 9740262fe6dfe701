"""Consume, transform, produce: each record once in the output, while batches fail and members come and go."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import confluent_kafka
import pytest

from aiokafka_lite import (
    Consumer,
    ConsumerGroup,
    ConsumerGroupHandler,
    ConsumerGroupSession,
    ExactlyOnce,
    OffsetAndMetadata,
    Producer,
    TopicPartition,
)
from aiokafka_lite.admin import Admin
from aiokafka_lite.consumer import Claim
from aiokafka_lite.errors import ProducerFenced
from aiokafka_lite.group import CooperativeStickyStrategy, RangeStrategy
from tests.end_to_end.conftest import Kafka
from tests.end_to_end.read_topic import read
from tests.real.releases import since
from tests.waiting import DEADLINE

COUNT = 600
STRATEGIES = {"eager": RangeStrategy(), "cooperative": CooperativeStickyStrategy()}


pytestmark = since("2.5", "coordinators of groups fence former members since Kafka 2.5 (KIP-447)")


class Pipe:
    """An input topic with ``COUNT`` records, an output topic, and the workers between them."""

    def __init__(self, kafka: Kafka, source: str, target: str) -> None:
        self.kafka = kafka
        self.source = source
        self.target = target
        self.group = f"group-{uuid.uuid4().hex[:8]}"

    @asynccontextmanager
    async def worker(
        self, *, consumer: dict[str, Any] | None = None, **settings: Any
    ) -> AsyncIterator[tuple[ExactlyOnce, Producer]]:
        servers = self.kafka.bootstrap_servers
        own = {"session_timeout": 6.0, "heartbeat_interval": 0.5, **(consumer or {})}
        async with (
            Consumer(servers, topics=[self.source], group_id=self.group, auto_commit=False, **own) as reader,
            Producer(servers, transactional_id=f"worker-{uuid.uuid4().hex[:8]}") as producer,
        ):
            yield ExactlyOnce(reader, producer, **{"max_records": 50, **settings}), producer

    async def work(self, **settings: Any) -> None:
        """Work until it is cancelled."""
        async with self.worker(**settings) as (session, producer):
            async for records in session:
                for record in records:
                    producer.send_nowait(self.target, record.value, key=record.key)
                await asyncio.sleep(0.002)

    async def output(self) -> list[str]:
        """Return the values of the output, once there are ``COUNT`` distinct ones and their offsets are committed."""
        values: list[str] = []
        async with (
            Consumer(self.kafka.bootstrap_servers, topics=[self.target]) as consumer,
            asyncio.timeout(DEADLINE),
        ):
            while len(set(values)) < COUNT or await self.lag():
                values += [(record.value or b"").decode() for record in await consumer.poll(timeout=0.2)]
            values += [(record.value or b"").decode() for record in await consumer.poll(timeout=0.5)]
        return values

    async def lag(self) -> int:
        async with Admin(self.kafka.bootstrap_servers) as admin:
            lag = (await admin.groups.lag(self.group))[self.group]
            return (
                sum(COUNT if partition.lag is None else partition.lag for partition in lag.partitions)
                if lag.partitions
                else 1
            )


@pytest.fixture
async def pipe(kafka: Kafka) -> Pipe:
    source, target = await kafka.create_topic(partitions=4), await kafka.create_topic(partitions=2)
    async with Producer(kafka.bootstrap_servers) as producer:
        values = [str(number) for number in range(COUNT)]
        await producer.send_many(source, values, keys=values)
    return Pipe(kafka, source, target)


def assert_once(values: list[str]) -> None:
    assert Counter(values) == Counter(str(number) for number in range(COUNT))


@pytest.mark.parametrize("commit_interval", [0.0, 0.3])
async def test_the_output_has_each_record_once_and_the_lag_is_zero(pipe: Pipe, commit_interval: float) -> None:
    working = asyncio.create_task(pipe.work(commit_interval=commit_interval))
    assert_once(await pipe.output())
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)


async def test_other_clients_read_each_record_once(pipe: Pipe) -> None:
    working = asyncio.create_task(pipe.work())
    assert_once(await pipe.output())
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)

    def by_librdkafka() -> list[str]:
        settings = {"group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
        reader = confluent_kafka.Consumer({"bootstrap.servers": pipe.kafka.bootstrap_servers, **settings})
        reader.assign([confluent_kafka.TopicPartition(pipe.target, number, 0) for number in range(2)])
        values: list[str] = []
        while len(values) < COUNT and (message := reader.poll(DEADLINE)) is not None:
            values.append((message.value() or b"").decode())
        reader.close()
        return values

    assert_once(await asyncio.to_thread(by_librdkafka))


@pytest.mark.parametrize("commit_interval", [0.0, 0.3])
@pytest.mark.parametrize("strategy", list(STRATEGIES))
async def test_workers_that_join_and_leave_repeat_nothing(pipe: Pipe, strategy: str, commit_interval: float) -> None:
    settings: dict[str, Any] = {"consumer": {"strategies": [STRATEGIES[strategy]]}, "commit_interval": commit_interval}
    working = [asyncio.create_task(pipe.work(max_records=10, **settings))]
    for _ in range(3):
        await asyncio.sleep(0.3)
        working.append(asyncio.create_task(pipe.work(max_records=10, **settings)))
        await asyncio.sleep(0.3)
        working.pop(0).cancel()
    assert_once(await pipe.output())
    for task in working:
        task.cancel()
    await asyncio.gather(*working, return_exceptions=True)


async def test_a_batch_that_raises_is_aborted_and_returned_again(pipe: Pipe) -> None:
    first: list[list[int]] = []

    async def try_once(session: ExactlyOnce, producer: Producer) -> None:
        async for records in session:
            first.append([record.offset for record in records])
            for record in records:
                await producer.send(pipe.target, record.value)
            raise ZeroDivisionError

    async with pipe.worker(max_records=5) as (session, producer):
        for _ in range(3):
            with pytest.raises(ZeroDivisionError):
                await try_once(session, producer)
        assert first[0] == first[1] == first[2]
        async for records in session:
            for record in records:
                producer.send_nowait(pipe.target, record.value)
            # The coordinator lets a transaction write when the one before it is complete, with its committed offsets.
            await producer.flush()
            if not await pipe.lag() - len(records):
                session.stop()
    assert_once(await pipe.output())


async def test_a_worker_that_stops_commits_what_it_has_processed(pipe: Pipe) -> None:
    seen = 0
    async with pipe.worker(commit_interval=30.0) as (session, producer):
        async for records in session:
            for record in records:
                producer.send_nowait(pipe.target, record.value)
            seen += len(records)
            if seen >= COUNT:
                session.stop()
        # A broker answers EndTxn before it has written the markers that make the committed offsets visible.
        async with asyncio.timeout(DEADLINE):
            while await pipe.lag():
                pass
    assert_once([(record.value or b"").decode() for record in await read(pipe.kafka, pipe.target, COUNT)])


async def test_a_batch_that_is_left_by_break_is_not_committed(pipe: Pipe) -> None:
    async with pipe.worker() as (session, producer):
        async for records in session:
            for record in records:
                await producer.send(pipe.target, record.value)
            break
    async with Consumer(pipe.kafka.bootstrap_servers, topics=[pipe.target]) as consumer:
        assert await consumer.poll(timeout=1.0) == []
    working = asyncio.create_task(pipe.work())
    assert_once(await pipe.output())
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)


async def test_commit_and_abort_inside_of_the_loop(pipe: Pipe) -> None:
    aborted = False
    committed = 0
    async with pipe.worker() as (session, producer):
        async for records in session:
            for record in records:
                producer.send_nowait(pipe.target, record.value)
            if not aborted:
                aborted = True
                await session.abort()
            else:
                await session.commit()
                committed += len(records)
                if committed == COUNT:
                    session.stop()
    assert_once(await pipe.output())


async def test_a_worker_whose_transactional_id_is_taken_is_fenced(pipe: Pipe) -> None:
    async with pipe.worker() as (session, producer):
        records = await anext(session)
        producer.send_nowait(pipe.target, records[0].value)
        await producer.flush()
        async with Admin(pipe.kafka.bootstrap_servers) as admin:
            (await admin.transactions.fence_producers(producer.config.transactional_id or "")).raise_for_errors()
        with pytest.raises(ProducerFenced):
            await anext(session)
    working = asyncio.create_task(pipe.work())
    assert_once(await pipe.output())
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)


class Transform(ConsumerGroupHandler):
    """A producer for each claim, and a transaction for each record."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe

    async def consume_claim(self, session: ConsumerGroupSession, claim: Claim) -> None:
        name = f"{self._pipe.group}-{claim.partition}"
        async with Producer(self._pipe.kafka.bootstrap_servers, transactional_id=name) as producer:
            async for record in claim:
                async with producer.transaction() as transaction:
                    producer.send_nowait(self._pipe.target, record.value)
                    offsets = {claim.topic_partition: OffsetAndMetadata(record.offset + 1)}
                    await transaction.send_offsets(offsets, session.group_metadata())


async def test_handlers_commit_their_offsets_in_transactions(pipe: Pipe) -> None:
    settings: dict[str, Any] = {"group_id": pipe.group, "auto_commit": False, "session_timeout": 6.0}
    async with ConsumerGroup(pipe.kafka.bootstrap_servers, **settings) as group:
        consuming = asyncio.create_task(group.consume([pipe.source], Transform(pipe)))
        assert_once(await pipe.output())
        async with Admin(pipe.kafka.bootstrap_servers) as admin:
            offsets = (await admin.groups.offsets(pipe.group))[pipe.group]
        assert sum(offset.offset for offset in offsets.values()) == COUNT
        assert set(offsets) == {TopicPartition(pipe.source, number) for number in range(4)}
    consuming.cancel()
    await asyncio.gather(consuming, return_exceptions=True)
