"""Share groups (KIP-932): on the embedded cluster, and on Apache Kafka."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path

import pytest

from aiokafka_lite import Admin, Consumer, Producer, ShareConsumer, ShareRecord
from aiokafka_lite.admin import ConfigResource, GroupState, GroupType, Reset
from aiokafka_lite.errors import BrokerError, DeserializationError, ErrorCode, IllegalStateError, UnsupportedVersion
from tests.end_to_end.conftest import Kafka
from tests.real.releases import since
from tests.waiting import DEADLINE

shares = since("4.2.0", "share groups are of Kafka 4.2")
_groups = count(1)


@pytest.fixture
async def admin(kafka: Kafka) -> AsyncIterator[Admin]:
    async with Admin(kafka.bootstrap_servers) as admin:
        yield admin


async def new_group(admin: Admin, **settings: object) -> str:
    """Return a share group that begins at the first record."""
    name = f"share-{next(_groups)}"
    values = {setting.replace("_", "."): str(value) for setting, value in settings.items()}
    changes = {ConfigResource.group(name): {"share.auto.offset.reset": "earliest", **values}}
    (await admin.configs.alter(changes)).raise_for_errors()
    return name


async def topic_with(kafka: Kafka, records: int, partitions: int = 1) -> str:
    topic = await kafka.create_topic(partitions=partitions)
    async with Producer(kafka.bootstrap_servers) as producer:
        for number in range(records):
            await producer.send(topic, str(number).encode(), partition=number % partitions)
    return topic


async def read(consumer: ShareConsumer, count: int) -> list[ShareRecord]:
    """Return the next records, exactly this many."""
    records: list[ShareRecord] = []
    async with asyncio.timeout(DEADLINE):
        while len(records) < count:
            records += await consumer.poll(count - len(records), timeout=1.0)
    return records


async def until_empty(admin: Admin, group: str) -> None:
    """Return once the last member has left. A busy broker may not handle its request while the consumer closes."""
    async with asyncio.timeout(DEADLINE):
        while (await admin.share_groups.describe(group))[group].state is not GroupState.EMPTY:
            await asyncio.sleep(0.1)


@shares
async def test_the_records_of_a_topic_are_delivered_once_and_accepted(kafka: Kafka, admin: Admin) -> None:
    topic, group = await topic_with(kafka, 20, partitions=2), await new_group(admin)
    async with ShareConsumer(kafka.bootstrap_servers, topics=[topic], group_id=group) as consumer:
        records = await read(consumer, 20)
        assert {record.value for record in records} == {str(number).encode() for number in range(20)}
        assert {record.delivery_count for record in records} == {1}
        result = await consumer.commit()
        assert sum(result.acknowledged.values()) == 20
        assert result
        assert consumer.acquisition_lock_timeout == 30.0
    await until_empty(admin, group)
    offsets = (await admin.share_groups.offsets(group))[group]
    assert {partition.partition: offset.lag for partition, offset in offsets.items()} == {0: 0, 1: 0}


@shares
async def test_consumers_of_one_partition_share_its_records(kafka: Kafka, admin: Admin) -> None:
    topic, group = await topic_with(kafka, 300), await new_group(admin)
    seen: Counter[int] = Counter()
    all_seen = asyncio.Event()

    async def work(consumer: ShareConsumer) -> None:
        async for record in consumer:
            seen[record.offset] += 1
            await asyncio.sleep(0)
            if len(seen) == 300:
                await consumer.commit()
                all_seen.set()

    async with AsyncExitStack() as stack:
        consumers = [
            await stack.enter_async_context(
                ShareConsumer(
                    kafka.bootstrap_servers,
                    topics=[topic],
                    group_id=group,
                    acquire_mode="record_limit",
                    max_fetch_records=20,
                )
            )
            for _ in range(3)
        ]
        tasks = [asyncio.create_task(work(consumer)) for consumer in consumers]
        async with asyncio.timeout(DEADLINE):
            await all_seen.wait()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert set(seen.values()) == {1}


@shares
async def test_released_records_come_again_and_rejected_ones_do_not(kafka: Kafka, admin: Admin) -> None:
    topic, group = await topic_with(kafka, 3), await new_group(admin)
    async with ShareConsumer(kafka.bootstrap_servers, topics=[topic], group_id=group) as consumer:
        first, second, third = await read(consumer, 3)
        consumer.release(first)
        consumer.reject(second)
        consumer.accept(third)
        (again,) = await read(consumer, 1)
        assert (again.offset, again.delivery_count) == (first.offset, 2)
        await consumer.commit()
        metrics = consumer.metrics()
        assert (metrics.accepted, metrics.released, metrics.rejected) == (2, 1, 1)
        assert (metrics.records_acquired, metrics.records_redelivered) == (4, 1)


@shares
async def test_a_record_is_archived_after_the_limit_of_deliveries(kafka: Kafka, admin: Admin) -> None:
    topic, group = await topic_with(kafka, 1), await new_group(admin, share_delivery_count_limit=2)
    async with ShareConsumer(kafka.bootstrap_servers, topics=[topic], group_id=group) as consumer:
        for delivery in (1, 2):
            (record,) = await read(consumer, 1)
            assert record.delivery_count == delivery
            consumer.release(record)
            await consumer.commit()
        async with Producer(kafka.bootstrap_servers) as producer:
            await producer.send(topic, b"next")
        (record,) = await read(consumer, 1)
        assert record.value == b"next"


@shares
async def test_the_records_of_a_killed_consumer_are_delivered_again(kafka: Kafka, admin: Admin) -> None:
    topic, group = await topic_with(kafka, 3), await new_group(admin)
    program = Path(__file__).with_name("share_process.py")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(program), kafka.bootstrap_servers, topic, group), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    async with asyncio.timeout(DEADLINE):
        assert (await process.stdout.readline()).split() == [b"0", b"1", b"2"]
    process.kill()
    await process.wait()
    async with ShareConsumer(kafka.bootstrap_servers, topics=[topic], group_id=group) as consumer:
        assert [record.delivery_count for record in await read(consumer, 3)] == [2, 2, 2]


@shares
async def test_a_closed_consumer_releases_what_it_has_not_acknowledged(kafka: Kafka, admin: Admin) -> None:
    topic, group = await topic_with(kafka, 3), await new_group(admin)
    servers = kafka.bootstrap_servers
    async with ShareConsumer(servers, topics=[topic], group_id=group) as consumer:
        first, *_ = await read(consumer, 2)
        consumer.accept(first)
    async with ShareConsumer(servers, topics=[topic], group_id=group) as consumer:
        assert [record.offset for record in await read(consumer, 2)] == [1, 2]


@shares
async def test_explicit_mode_refuses_to_read_past_an_unacknowledged_record(kafka: Kafka, admin: Admin) -> None:
    topic, group = await topic_with(kafka, 2), await new_group(admin)
    async with ShareConsumer(
        kafka.bootstrap_servers, topics=[topic], group_id=group, acknowledgement_mode="explicit"
    ) as consumer:
        (first,) = await read(consumer, 1)
        with pytest.raises(IllegalStateError, match=r"offset 0 of .* is not acknowledged: call accept"):
            await consumer.poll(timeout=1.0)
        consumer.accept(first)
        with pytest.raises(IllegalStateError, match="it is acknowledged already"):
            consumer.reject(first)
        (second,) = await read(consumer, 1)
        consumer.accept(second)
        assert sum((await consumer.commit()).acknowledged.values()) == 2


@shares
async def test_a_lock_can_be_renewed(kafka: Kafka, admin: Admin) -> None:
    topic, group = await topic_with(kafka, 1), await new_group(admin)
    async with ShareConsumer(kafka.bootstrap_servers, topics=[topic], group_id=group) as consumer:
        (record,) = await read(consumer, 1)
        assert await consumer.renew(record) == consumer.acquisition_lock_timeout
        consumer.accept(record)
        assert await consumer.commit()
        with pytest.raises(IllegalStateError, match="is not in flight"):
            await consumer.renew(record)


@shares
@pytest.mark.long
async def test_a_program_that_takes_longer_than_the_lock_gets_each_record_once(kafka: Kafka, admin: Admin) -> None:
    topic, group = await topic_with(kafka, 30), await new_group(admin, share_record_lock_duration_ms=15_000)
    deliveries: list[tuple[int, int]] = []
    async with ShareConsumer(kafka.bootstrap_servers, topics=[topic], group_id=group) as consumer:
        async for record in consumer:
            deliveries.append((record.offset, record.delivery_count))
            await asyncio.sleep(20.0 if len(deliveries) == 2 else 0.0)
            if len(deliveries) == 30:
                break
        result = await consumer.commit()
        result.raise_for_refused()
        assert consumer.metrics().renewed > 0
        assert (consumer.metrics().refused, consumer.metrics().records_expired) == (0, 0)
    assert sorted(offset for offset, _ in deliveries) == [*range(30)]


@shares
async def test_a_record_that_cannot_be_deserialized_is_raised_and_released(kafka: Kafka, admin: Admin) -> None:
    topic, group = await topic_with(kafka, 2), await new_group(admin)

    def deserialize(data: bytes) -> int:
        if data == b"0" and not failures:
            failures.append(data)
            raise ValueError("not today")
        return int(data)

    failures: list[bytes] = []
    async with ShareConsumer(
        kafka.bootstrap_servers, topics=[topic], group_id=group, value_deserializer=deserialize
    ) as consumer:
        with pytest.raises(DeserializationError, match=r"at offset 0 cannot be deserialized") as raised:
            await read(consumer, 1)
        assert (raised.value.topic, raised.value.offset) == (topic, 0)
        records = await read(consumer, 2)
        assert sorted((record.value, record.delivery_count) for record in records) == [(0, 2), (1, 1)]


@shares
async def test_a_group_of_another_type_is_refused(kafka: Kafka, admin: Admin) -> None:
    topic = await topic_with(kafka, 1)
    group = f"classic-{next(_groups)}"
    servers = kafka.bootstrap_servers
    async with Consumer(servers, topics=[topic], group_id=group) as classic:
        assert await classic.poll(timeout=DEADLINE)
        with pytest.raises(BrokerError, match="a group of another type has this id"):
            async with ShareConsumer(servers, topics=[topic], group_id=group) as consumer:
                await read(consumer, 1)


async def test_an_older_broker_is_refused_with_the_version_that_is_needed(kafka: Kafka) -> None:
    if kafka.speaks("4.1.0"):
        pytest.skip("this broker has share groups")
    with pytest.raises(UnsupportedVersion, match=r"share groups require Kafka 4\.2 or newer"):
        async with ShareConsumer(kafka.bootstrap_servers, topics=["orders"], group_id="g") as consumer:
            await read(consumer, 1)


@shares
async def test_share_groups_are_administered(kafka: Kafka, admin: Admin) -> None:
    topic, group = await topic_with(kafka, 4), await new_group(admin)
    async with ShareConsumer(kafka.bootstrap_servers, topics=[topic], group_id=group) as consumer:
        await read(consumer, 4)
        await consumer.commit()
        described = (await admin.share_groups.describe(group))[group]
        (member,) = described.members
        assert (member.member_id, member.assignment, member.topics) == (
            consumer.member_id,
            consumer.assignment,
            (topic,),
        )
        assert described.state is GroupState.STABLE
        assert (group, GroupType.SHARE) in [
            (group_listing.group_id, group_listing.type) for group_listing in await admin.share_groups.list()
        ]
        with pytest.raises(BrokerError) as refused:
            await admin.share_groups.reset_offsets(group, Reset.to_earliest())
        assert refused.value.code is ErrorCode.NON_EMPTY_GROUP
    await until_empty(admin, group)
    moved = await admin.share_groups.reset_offsets(group, Reset.to_offset(2))
    assert [move.after for move in moved.done.values()] == [2]
    async with ShareConsumer(kafka.bootstrap_servers, topics=[topic], group_id=group) as consumer:
        assert [record.offset for record in await read(consumer, 2)] == [2, 3]
        await consumer.commit()
    await until_empty(admin, group)
    (await admin.share_groups.delete_offsets(group, topic)).raise_for_errors()
    assert (await admin.share_groups.offsets(group))[group] == {}
    (await admin.share_groups.delete(group)).raise_for_errors()
    assert group not in [group_listing.group_id for group_listing in await admin.share_groups.list()]
