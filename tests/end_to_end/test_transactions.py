"""Transactions of the producer, read by this client and by others with ``read_committed``."""

from __future__ import annotations

import asyncio
import itertools

import aiokafka
import confluent_kafka
import pytest

from aiokafka_lite import Consumer, OffsetAndMetadata, Producer, TopicPartition
from aiokafka_lite.errors import CommitFailed, IllegalStateError, KafkaError, ProducerFenced, TransactionAborted
from aiokafka_lite.types import GroupMetadata
from tests.end_to_end.conftest import Kafka
from tests.real.releases import since
from tests.waiting import DEADLINE, TRANSACTION_TIMEOUT

_numbers = itertools.count(1)


def new_id() -> str:
    return f"transactions-{next(_numbers)}-{id(_numbers)}"


def producer_of(kafka: Kafka, transactional_id: str | None = None, **settings: object) -> Producer:
    own = {"transaction_timeout": TRANSACTION_TIMEOUT, **settings}
    return Producer(kafka.bootstrap_servers, transactional_id=transactional_id or new_id(), **own)  # type: ignore[arg-type]


async def until_stable(kafka: Kafka, topic: str) -> None:
    """Wait until no transaction is open: the last stable offsets are the high watermarks."""
    async with (
        Consumer(kafka.bootstrap_servers, isolation_level="read_committed") as reader,
        Consumer(kafka.bootstrap_servers, isolation_level="read_uncommitted") as uncommitted,
    ):
        partitions = [TopicPartition(topic, info.partition) for info in await reader.partitions_for(topic)]
        async with asyncio.timeout(DEADLINE):
            while await reader.end_offsets(partitions) != await uncommitted.end_offsets(partitions):
                await asyncio.sleep(0.1)


async def values_of(kafka: Kafka, topic: str, isolation: str = "read_committed") -> list[bytes]:
    """Return the values of all records of a topic without open transactions, in the order of each partition."""
    await until_stable(kafka, topic)
    async with Consumer(kafka.bootstrap_servers, isolation_level=isolation) as consumer:  # type: ignore[arg-type]
        partitions = [TopicPartition(topic, info.partition) for info in await consumer.partitions_for(topic)]
        consumer.assign(partitions)
        ends = await consumer.end_offsets(partitions)
        values: list[bytes] = []
        async with asyncio.timeout(DEADLINE):
            while any([await consumer.position(partition) < end for partition, end in ends.items()]):
                values += [record.value or b"" for record in await consumer.poll(timeout=0.2)]
        return values


async def committed(kafka: Kafka, group_id: str, partition: TopicPartition) -> int | None:
    async with Consumer(kafka.bootstrap_servers, group_id=group_id) as consumer:
        committed = (await consumer.committed([partition]))[partition]
        return None if committed is None else committed.offset


async def test_a_committed_transaction_is_read_and_an_aborted_one_is_not(kafka: Kafka) -> None:
    topic = await kafka.create_topic(partitions=2)
    async with producer_of(kafka) as producer:
        for number in range(5):
            async with producer.transaction() as transaction:
                await transaction.send(topic, b"committed %d" % number, partition=0)
                transaction.send_nowait(topic, b"committed %d" % number, partition=1)
            with pytest.raises(ZeroDivisionError):
                async with producer.transaction() as transaction:
                    await transaction.send(topic, b"aborted %d" % number, partition=0)
                    await transaction.put(topic, b"aborted %d" % number, partition=1)
                    raise ZeroDivisionError
    committed_values = sorted(await values_of(kafka, topic))
    assert committed_values == sorted([b"committed %d" % number for number in range(5)] * 2)
    everything = await values_of(kafka, topic, "read_uncommitted")
    assert everything.count(b"aborted 0") >= 1


def read_by_confluent_kafka(kafka: Kafka, topic: str, count: int) -> list[bytes]:
    settings = {"group.id": new_id(), "isolation.level": "read_committed", "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer({"bootstrap.servers": kafka.bootstrap_servers, **settings})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    try:
        values: list[bytes] = []
        while len(values) < count:
            message = consumer.poll(DEADLINE)
            assert message is not None
            assert message.error() is None
            values.append(message.value())
        assert consumer.poll(1.0) is None
        return values
    finally:
        consumer.close()


async def read_by_aiokafka(kafka: Kafka, topic: str, count: int) -> list[bytes]:
    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=kafka.bootstrap_servers, isolation_level="read_committed", auto_offset_reset="earliest"
    )
    await consumer.start()
    try:
        partition = aiokafka.TopicPartition(topic, 0)
        consumer.assign([partition])
        values: list[bytes] = []
        async with asyncio.timeout(DEADLINE):
            while len(values) < count:
                values.append((await consumer.getone()).value)
        assert await consumer.getmany(timeout_ms=1000) == {}
        return values
    finally:
        await consumer.stop()


async def test_other_clients_read_the_committed_records_only(kafka: Kafka) -> None:
    topic = await kafka.create_topic(partitions=1)
    async with producer_of(kafka) as producer:
        for number in range(6):
            await producer.begin_transaction()
            await producer.send_many(topic, [b"%d-%d" % (number, index) for index in range(3)])
            await (producer.abort_transaction() if number % 2 else producer.commit_transaction())
    expected = [b"%d-%d" % (number, index) for number in (0, 2, 4) for index in range(3)]
    assert await asyncio.to_thread(read_by_confluent_kafka, kafka, topic, len(expected)) == expected
    assert await read_by_aiokafka(kafka, topic, len(expected)) == expected


async def read_by_javas_console(kafka: Kafka, topic: str, count: int, *, wait: float = DEADLINE) -> list[str]:
    """Read up to ``count`` records. The consumer ends earlier if none comes for ``wait`` seconds."""
    limits = ("--max-messages", str(count), "--timeout-ms", str(int(wait * 1000)))
    reading = ("--topic", topic, "--from-beginning", "--isolation-level", "read_committed", *limits)
    return (await asyncio.to_thread(kafka.tool, "console-consumer", *reading)).splitlines()


async def test_javas_console_consumer_reads_the_committed_records_only(kafka: Kafka) -> None:
    topic = await kafka.create_topic(partitions=1)
    async with producer_of(kafka) as first, producer_of(kafka) as second:
        for number in range(6):  # the first commits, the second aborts, then the other way round
            for name, producer in (("first", first), ("second", second)):
                await producer.begin_transaction()
                await producer.send_many(topic, [f"{name} {number}-{index}" for index in range(3)])
            for producer, commits in ((first, number % 2 == 0), (second, number % 2 == 1)):
                await (producer.commit_transaction() if commits else producer.abort_transaction())
        committed_before = [
            f"{'second' if number % 2 else 'first'} {number}-{index}" for number in range(6) for index in range(3)
        ]
        await second.begin_transaction()
        await second.send(topic, b"open")
        async with first.transaction():
            await first.send(topic, b"behind the open one")
        count = len(committed_before)
        assert await read_by_javas_console(kafka, topic, count + 1, wait=15.0) == committed_before
        await second.abort_transaction()
        async with second.transaction():
            await second.send(topic, b"last")
        everything = [*committed_before, "behind the open one", "last"]
        assert await read_by_javas_console(kafka, topic, len(everything)) == everything


async def test_offsets_are_committed_with_the_transaction_only(kafka: Kafka) -> None:
    topic, group = await kafka.create_topic(partitions=1), new_id()
    partition = TopicPartition(topic, 0)
    async with producer_of(kafka) as producer:
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction() as transaction:
                await transaction.send_offsets({partition: OffsetAndMetadata(7)}, GroupMetadata(group))
                raise ZeroDivisionError
        assert await committed(kafka, group, partition) is None
        async with producer.transaction() as transaction:
            await transaction.send(topic, b"value")
            await transaction.send_offsets({partition: OffsetAndMetadata(8)}, GroupMetadata(group))
        assert await committed(kafka, group, partition) == 8


async def test_explicit_calls_are_the_same_as_the_block(kafka: Kafka) -> None:
    topic = await kafka.create_topic(partitions=1)
    async with producer_of(kafka) as producer:
        await producer.begin_transaction()
        await producer.send(topic, b"aborted")
        await producer.abort_transaction()
        await producer.begin_transaction()
        producer.send_nowait(topic, b"committed")
        await producer.commit_transaction()
        await producer.begin_transaction()
        await producer.commit_transaction()  # an empty transaction
    assert await values_of(kafka, topic) == [b"committed"]


async def test_a_newer_producer_fences_the_older_one(kafka: Kafka) -> None:
    topic, name = await kafka.create_topic(partitions=1), new_id()
    async with producer_of(kafka, name) as older:
        await older.begin_transaction()
        await older.send(topic, b"of the older one")
        async with producer_of(kafka, name) as newer:
            async with newer.transaction():
                await newer.send(topic, b"of the newer one")
            with pytest.raises(ProducerFenced, match="another producer with transactional_id"):
                await older.commit_transaction()
            with pytest.raises(ProducerFenced):
                await older.begin_transaction()
            async with newer.transaction():
                await newer.send(topic, b"of the newer one again")
    assert await values_of(kafka, topic) == [b"of the newer one", b"of the newer one again"]


@since("2.5", "brokers before Kafka 2.5 do not check the member")
async def test_a_member_that_lost_its_partitions_cannot_commit_offsets(kafka: Kafka) -> None:
    topic, group = await kafka.create_topic(partitions=1), new_id()
    async with (
        Consumer(kafka.bootstrap_servers, topics=[topic], group_id=group) as consumer,
        producer_of(kafka) as producer,
    ):
        await consumer.wait_assigned()
        former = GroupMetadata(group, consumer.group_metadata().generation_id - 1, consumer.group_metadata().member_id)
        with pytest.raises(CommitFailed, match="the group has rebalanced"):
            async with producer.transaction() as transaction:
                await transaction.send(topic, b"aborted")
                await transaction.send_offsets({TopicPartition(topic, 0): OffsetAndMetadata(1)}, former)
        async with producer.transaction() as transaction:
            await transaction.send(topic, b"committed")
            await transaction.send_offsets({TopicPartition(topic, 0): OffsetAndMetadata(1)}, consumer.group_metadata())
    assert await values_of(kafka, topic) == [b"committed"]


async def test_a_record_that_fails_aborts_the_transaction(kafka: Kafka) -> None:
    topic = await kafka.create_topic(partitions=1, max_message_bytes=2000)
    async with producer_of(kafka) as producer:
        with pytest.raises(KafkaError, match="MESSAGE_TOO_LARGE"):
            async with producer.transaction() as transaction:
                await transaction.send(topic, b"aborted")
                transaction.send_nowait(topic, b"too large" * 1000)
        async with producer.transaction() as transaction:
            await transaction.send(topic, b"committed")
    assert await values_of(kafka, topic) == [b"committed"]


async def test_a_batch_that_is_too_large_is_split_within_the_transaction(kafka: Kafka) -> None:
    topic = await kafka.create_topic(partitions=1, max_message_bytes=3000)
    async with producer_of(kafka) as producer:
        for _ in range(3):
            async with producer.transaction() as transaction:
                await transaction.send_many(topic, [b"%03d" % number + b"x" * 200 for number in range(100)])
    values = await values_of(kafka, topic)
    assert [int(value[:3]) for value in values] == list(range(100)) * 3


async def test_a_cancelled_body_aborts_and_the_producer_stays_usable(kafka: Kafka) -> None:
    topic = await kafka.create_topic(partitions=1)
    async with producer_of(kafka) as producer:
        sent = asyncio.Event()

        async def write() -> None:
            async with producer.transaction() as transaction:
                await transaction.send(topic, b"aborted")
                sent.set()
                await asyncio.sleep(60)

        task = asyncio.create_task(write())
        await sent.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with producer.transaction() as transaction:
            await transaction.send(topic, b"committed")
    assert await values_of(kafka, topic) == [b"committed"]


async def test_closing_aborts_an_open_transaction(kafka: Kafka) -> None:
    topic = await kafka.create_topic(partitions=1)
    async with producer_of(kafka) as producer:
        await producer.begin_transaction()
        await producer.send(topic, b"aborted")
    assert await values_of(kafka, topic) == []


async def test_records_are_refused_outside_a_transaction(kafka: Kafka) -> None:
    topic = await kafka.create_topic(partitions=1)
    async with producer_of(kafka) as producer:
        with pytest.raises(IllegalStateError, match="no transaction is open"):
            await producer.send(topic, b"value")
        with pytest.raises(IllegalStateError, match="no transaction is open"):
            await producer.send_many(topic, [b"value"])
        async with producer.transaction() as transaction:
            delivery = await transaction.put(topic, b"value")
        assert delivery.done()
        with pytest.raises(IllegalStateError, match="inside its 'async with' block"):
            await transaction.send(topic, b"value")


async def test_a_transaction_that_takes_too_long_is_aborted_by_the_coordinator(kafka: Kafka) -> None:
    topic = await kafka.create_topic(partitions=1)
    async with producer_of(kafka, transaction_timeout=1.0) as producer:
        await producer.begin_transaction()
        await producer.send(topic, b"aborted")
        await until_stable(kafka, topic)
        with pytest.raises(KafkaError, match="open for longer than transaction_timeout=1 s"):
            await producer.commit_transaction()
        if producer.metrics().transactions.generation == 2:
            await producer.abort_transaction()
            async with producer.transaction():
                await producer.send(topic, b"committed")
        else:  # its epoch is too old for every request
            with pytest.raises(ProducerFenced):
                await producer.begin_transaction()
    assert await values_of(kafka, topic) in ([], [b"committed"])


async def test_unwritten_records_of_an_aborted_transaction_fail(kafka: Kafka) -> None:
    topic = await kafka.create_topic(partitions=1)
    async with producer_of(kafka, linger=60.0) as producer:
        await producer.begin_transaction()
        delivery = await producer.put(topic, b"aborted")
        await producer.abort_transaction()
        with pytest.raises(TransactionAborted):
            await delivery
