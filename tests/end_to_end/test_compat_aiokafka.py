"""Programs written for aiokafka, run on aiokafka and on ``aiokafka_lite.compat.aiokafka`` with equal results."""

from __future__ import annotations

import asyncio
import importlib
import subprocess
import sys
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from aiokafka_lite.compat.aiokafka import AIOKafkaClient, AIOKafkaConsumer
from tests.end_to_end.conftest import Kafka
from tests.real.releases import NEWEST
from tests.waiting import DEADLINE

MODULES = {"aiokafka": "aiokafka", "compat": "aiokafka_lite.compat.aiokafka"}


@pytest.fixture(params=MODULES)
def library(request: pytest.FixtureRequest, kafka: Kafka) -> Any:
    """The names of aiokafka: its own, and ours."""
    if kafka.kind in ("container", "jvm") and kafka.version != NEWEST:
        pytest.skip("the drop-in is tested on the newest release; the client below it on all")
    name = MODULES[request.param]
    names = vars(importlib.import_module(name)) | {"name": request.param}
    for part in ("admin", "errors", "structs"):
        names[part] = importlib.import_module(f"{name}.{part}")
    return SimpleNamespace(**names)


@pytest.fixture
async def topic(kafka: Kafka) -> str:
    """A topic of three partitions."""
    name = f"compat-{uuid4().hex[:8]}"
    await kafka.create_topic(name, partitions=3)
    return name


async def until(call: Callable[[Any], Awaitable[Any]], argument: Any, condition: Callable[[Any], bool]) -> None:
    """Repeat the call until its result is as wanted: topics and ended transactions get to brokers one by one."""
    async with asyncio.timeout(DEADLINE):
        while not condition(await call(argument)):
            await asyncio.sleep(0.05)


async def write(library: Any, kafka: Kafka, topic: str, count: int) -> None:
    async with library.AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        for number in range(count):
            await producer.send_and_wait(topic, b"%d" % number, key=b"%d" % number, partition=number % 3)


async def test_records_are_written_and_read_with_their_metadata(library: Any, kafka: Kafka, topic: str) -> None:
    producer = library.AIOKafkaProducer(
        bootstrap_servers=kafka.bootstrap_servers,
        key_serializer=str.encode,
        value_serializer=lambda value: value.upper().encode(),
        acks="all",
        compression_type="gzip",
        linger_ms=5,
    )
    await producer.start()
    try:
        sent = await (await producer.send(topic, "soup", "k", 1, 1_700_000_000_000, [("trace", b"7")]))
        waited = await producer.send_and_wait(topic, value="tea", key="k", partition=1)
        assert await producer.partitions_for(topic) == {0, 1, 2}
        await producer.flush()
    finally:
        await producer.stop()
    assert (sent.topic, sent.partition, sent.offset, sent.timestamp) == (topic, 1, 0, 1_700_000_000_000)
    assert sent.topic_partition == library.TopicPartition(topic, 1)
    assert waited.offset == 1
    assert (sent.log_start_offset, waited.log_start_offset) == (0, 0)

    consumer = library.AIOKafkaConsumer(
        topic,
        bootstrap_servers=kafka.bootstrap_servers,
        auto_offset_reset="earliest",
        value_deserializer=bytes.decode,
    )
    async with consumer:
        first = await consumer.getone()
        second = await anext(aiter(consumer))
    assert (first.key, first.value, first.offset, first.partition) == (b"k", "SOUP", 0, 1)
    assert (first.headers, first.timestamp, first.timestamp_type) == ((("trace", b"7"),), 1_700_000_000_000, 0)
    assert (first.serialized_key_size, first.serialized_value_size) == (1, 4)
    assert second.value == "TEA"


async def test_a_member_commits_by_hand_and_the_next_one_continues(library: Any, kafka: Kafka, topic: str) -> None:
    await write(library, kafka, topic, 9)
    settings = {
        "bootstrap_servers": kafka.bootstrap_servers,
        "group_id": topic,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
    }
    async with library.AIOKafkaConsumer(topic, **settings) as consumer:
        partition = library.TopicPartition(topic, 0)
        assert consumer.subscription() == {topic}
        assert consumer.assignment() == {library.TopicPartition(topic, number) for number in range(3)}
        assert await consumer.committed(partition) is None
        read = 0
        while read < 9:
            for records in (await consumer.getmany(timeout_ms=1000)).values():
                read += len(records)
        await consumer.commit()
        assert await consumer.committed(partition) == 3
        await consumer.commit({partition: 1})
        assert await consumer.committed(partition) == 1
        await consumer.commit({partition: (2, "note")})
    async with library.AIOKafkaConsumer(topic, **settings) as consumer:
        record = await asyncio.wait_for(consumer.getone(), DEADLINE)
        assert (record.partition, record.offset) == (0, 2)
        assert await consumer.position(library.TopicPartition(topic, 1)) == 3


async def test_returned_records_are_committed_when_the_consumer_stops(library: Any, kafka: Kafka, topic: str) -> None:
    await write(library, kafka, topic, 3)
    settings = {"bootstrap_servers": kafka.bootstrap_servers, "group_id": topic, "auto_offset_reset": "earliest"}
    async with library.AIOKafkaConsumer(topic, **settings) as consumer:
        for _ in range(3):
            await consumer.getone()
    async with library.AIOKafkaConsumer(topic, **settings) as consumer:
        assert [await consumer.committed(library.TopicPartition(topic, number)) for number in range(3)] == [1, 1, 1]


async def test_positions_and_offsets_of_assigned_partitions(library: Any, kafka: Kafka, topic: str) -> None:
    await write(library, kafka, topic, 12)
    one, two = library.TopicPartition(topic, 0), library.TopicPartition(topic, 1)
    consumer = library.AIOKafkaConsumer(bootstrap_servers=kafka.bootstrap_servers, auto_offset_reset="earliest")
    consumer.assign([one, two])
    await consumer.start()
    try:
        assert consumer.partitions_for_topic(topic) == {0, 1, 2}
        assert topic in await consumer.topics()
        assert await consumer.beginning_offsets([one]) == {one: 0}
        assert await consumer.end_offsets([one, two]) == {one: 4, two: 4}
        consumer.seek(one, 2)
        assert [(await consumer.getone(one)).offset for _ in range(2)] == [2, 3]
        assert consumer.highwater(one) == 4
        await consumer.seek_to_beginning(one)
        assert await consumer.position(one) == 0
        await consumer.seek_to_end(one, two)
        assert await consumer.position(two) == 4
        assert await consumer.getmany(timeout_ms=0) == {}
        consumer.pause(one)
        assert consumer.paused() == {one}
        consumer.seek(one, 0)
        consumer.seek(two, 3)
        records = await consumer.getmany(timeout_ms=5000, max_records=10)
        assert records.keys() == {two}
        assert [record.value for record in records[two]] == [b"10"]
        consumer.resume(one)
        records = await consumer.getmany(one, timeout_ms=5000, max_records=1)
        assert [record.value for record in records[one]] == [b"0"]
        at = (await consumer.offsets_for_times({one: records[one][0].timestamp}))[one]
        assert at.offset == 0
        assert await consumer.offsets_for_times({one: 4_000_000_000_000}) == {one: None}
    finally:
        await consumer.stop()


async def test_a_listener_commits_when_partitions_are_revoked(library: Any, kafka: Kafka, topic: str) -> None:
    await write(library, kafka, topic, 6)
    events: list[tuple[str, int]] = []
    settings = {
        "bootstrap_servers": kafka.bootstrap_servers,
        "group_id": topic,
        "enable_auto_commit": False,
        "auto_offset_reset": "earliest",
        "heartbeat_interval_ms": 200,
    }

    class Listener(library.ConsumerRebalanceListener):  # type: ignore[misc, name-defined]
        async def on_partitions_revoked(self, revoked: set[Any]) -> None:
            if revoked:
                events.append(("revoked", len(revoked)))
                await first.commit()

        def on_partitions_assigned(self, assigned: set[Any]) -> None:
            events.append(("assigned", len(assigned)))

    first = library.AIOKafkaConsumer(**settings)
    first.subscribe([topic], listener=Listener())
    await first.start()
    try:
        for _ in range(6):
            await first.getone()
        reading = asyncio.create_task(first.getone())
        second = library.AIOKafkaConsumer(topic, **settings)
        await second.start()
        try:
            assert len(second.assignment()) in (1, 2)
            for partition in second.assignment():
                assert await second.committed(partition) == 2
            async with asyncio.timeout(DEADLINE):
                while len(first.assignment()) == 3 or len(events) < 3:
                    await asyncio.sleep(0.05)
        finally:
            await second.stop()
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
    finally:
        await first.stop()
    assert events[:2] == [("assigned", 3), ("revoked", 3)]
    assert events[2][0] == "assigned"


async def test_a_transaction_moves_records_and_offsets_together(library: Any, kafka: Kafka, topic: str) -> None:
    await write(library, kafka, topic, 3)
    target = f"{topic}-out"
    await kafka.create_topic(target, partitions=1)
    consumer = library.AIOKafkaConsumer(
        topic,
        bootstrap_servers=kafka.bootstrap_servers,
        group_id=topic,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    producer = library.AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers, transactional_id=topic)
    async with consumer, producer:
        records_of: dict[Any, list[Any]] = {}
        while sum(map(len, records_of.values())) < 3:
            for partition, records in (await consumer.getmany(timeout_ms=1000)).items():
                records_of.setdefault(partition, []).extend(records)
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction():
                await producer.send(target, b"aborted")
                raise ZeroDivisionError
        async with producer.transaction():
            for records in records_of.values():
                await producer.send(target, records[0].value)
            offsets = {partition: records[-1].offset + 1 for partition, records in records_of.items()}
            await producer.send_offsets_to_transaction(offsets, topic)
        await until(consumer.committed, library.TopicPartition(topic, 2), lambda offset: offset == 1)
    reader = library.AIOKafkaConsumer(
        target,
        bootstrap_servers=kafka.bootstrap_servers,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    async with reader:
        assert {(await reader.getone()).value for _ in range(3)} == {b"0", b"1", b"2"}


async def test_a_batch_is_filled_and_sent_and_a_partitioner_chooses(library: Any, kafka: Kafka, topic: str) -> None:
    def last(key: bytes | None, all_partitions: list[int], available: list[int]) -> int:
        return max(available)

    producer = library.AIOKafkaProducer(
        bootstrap_servers=kafka.bootstrap_servers, max_batch_size=1000, partitioner=last
    )
    async with producer:
        assert (await producer.send_and_wait(topic, b"v", key=b"k")).partition == 2
        batch = producer.create_batch()
        count = 0
        while batch.append(timestamp=None, key=None, value=b"x" * 100) is not None:
            count += 1
        assert batch.record_count() == count
        assert 5 <= count <= 9
        metadata = await (await producer.send_batch(batch, topic, partition=0))
        assert (metadata.partition, metadata.offset) == (0, 0)
    async with library.AIOKafkaConsumer(bootstrap_servers=kafka.bootstrap_servers) as consumer:
        partition = library.TopicPartition(topic, 0)
        assert await consumer.end_offsets([partition]) == {partition: count}


async def test_records_that_a_deserializer_refuses_are_not_committed(library: Any, kafka: Kafka, topic: str) -> None:
    async with library.AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        for value in (b"0", b"1", b"two"):
            await producer.send_and_wait(topic, value, partition=0)
    settings = {
        "bootstrap_servers": kafka.bootstrap_servers,
        "group_id": topic,
        "auto_offset_reset": "earliest",
        "value_deserializer": int,
    }
    async with library.AIOKafkaConsumer(topic, **settings) as consumer:
        assert (await consumer.getone()).value == 0
        assert (await consumer.getone()).value == 1
        for _ in range(2):
            with pytest.raises(ValueError):
                await consumer.getone()
    async with library.AIOKafkaConsumer(topic, **settings) as consumer:
        assert await consumer.committed(library.TopicPartition(topic, 0)) == 2


async def test_a_position_that_was_chosen_is_committed(library: Any, kafka: Kafka, topic: str) -> None:
    await write(library, kafka, topic, 9)
    one, two = (library.TopicPartition(topic, number) for number in range(2))
    settings = {"bootstrap_servers": kafka.bootstrap_servers, "group_id": topic, "enable_auto_commit": False}
    async with library.AIOKafkaConsumer(topic, auto_offset_reset="earliest", **settings) as consumer:
        await consumer.seek_to_end(one)
        consumer.seek(two, 1)
        await consumer.commit()
        assert [await consumer.committed(partition) for partition in (one, two)] == [3, 1]


async def test_a_pattern_is_matched_at_the_begin_of_names(library: Any, kafka: Kafka, topic: str) -> None:
    await write(library, kafka, topic, 1)
    consumer = library.AIOKafkaConsumer(
        bootstrap_servers=kafka.bootstrap_servers, group_id=topic, auto_offset_reset="earliest"
    )
    consumer.subscribe(pattern=f"^{topic[:-1]}")
    await consumer.start()
    try:
        assert (await asyncio.wait_for(consumer.getone(), DEADLINE)).topic == topic
    finally:
        await consumer.stop()


async def test_tasks_share_one_consumer(library: Any, kafka: Kafka, topic: str) -> None:
    await write(library, kafka, topic, 6)
    consumer = library.AIOKafkaConsumer(
        topic, bootstrap_servers=kafka.bootstrap_servers, group_id=topic, auto_offset_reset="earliest"
    )
    async with consumer:
        records = await asyncio.gather(*(consumer.getone() for _ in range(6)))
        assert len({record.value for record in records}) == 6


async def test_a_start_that_was_cancelled_can_be_repeated(kafka: Kafka, topic: str) -> None:
    """aiokafka's own consumer cannot be started again. A member that a cancelled start left would keep partitions."""
    consumer: AIOKafkaConsumer[bytes, bytes] = AIOKafkaConsumer(
        topic, bootstrap_servers=kafka.bootstrap_servers, group_id=topic, auto_offset_reset="earliest"
    )
    for turns in (1, 10, 30, 60, 100):
        starting = asyncio.create_task(consumer.start())
        for _ in range(turns):
            await asyncio.sleep(0)
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
    async with asyncio.timeout(DEADLINE):
        await consumer.start()
    assert len(consumer.assignment()) == 3
    await consumer.stop()


async def test_wrong_calls_raise_the_same_exceptions(library: Any, kafka: Kafka, topic: str) -> None:
    consumer = library.AIOKafkaConsumer(topic, bootstrap_servers=kafka.bootstrap_servers)
    await consumer.start()
    with pytest.raises(library.IllegalOperation):
        await consumer.commit()
    with pytest.raises(ValueError):
        await consumer.getmany(max_records=0)
    with pytest.raises(library.errors.IllegalStateError):
        consumer.assign([library.TopicPartition(topic, 0)])
    waiting = asyncio.create_task(consumer.getone())
    await asyncio.sleep(0)
    await consumer.stop()
    with pytest.raises(library.ConsumerStoppedError):
        await waiting
    with pytest.raises(library.ConsumerStoppedError):
        await consumer.getone()
    producer = library.AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers, max_request_size=2000)
    await producer.start()
    with pytest.raises(library.errors.MessageSizeTooLargeError):
        await producer.send(topic, b"x" * 3000)
    with pytest.raises(library.IllegalOperation):
        await producer.begin_transaction()
    await producer.stop()
    with pytest.raises(library.errors.ProducerClosed):
        await producer.send(topic, b"v")
    with pytest.raises(TypeError):
        library.AIOKafkaProducer(bootstrap_server=kafka.bootstrap_servers)
    with pytest.raises(ValueError):
        library.AIOKafkaProducer(acks="most")


async def test_an_offset_outside_the_log_names_its_partition(library: Any, kafka: Kafka, topic: str) -> None:
    partition = library.TopicPartition(topic, 0)
    async with library.AIOKafkaConsumer(
        bootstrap_servers=kafka.bootstrap_servers, auto_offset_reset="none", enable_auto_commit=False
    ) as consumer:
        consumer.assign([partition])
        consumer.seek(partition, 1000)
        with pytest.raises(library.errors.OffsetOutOfRangeError) as raised:
            await consumer.getmany(timeout_ms=10_000)
    assert raised.value.args[0] == {partition: 1000}


async def test_a_broker_that_is_down_is_a_connection_error(library: Any, kafka: Kafka) -> None:
    producer = library.AIOKafkaProducer(bootstrap_servers="127.0.0.1:9", request_timeout_ms=500)
    with pytest.raises(library.errors.KafkaConnectionError):
        await producer.start()
    await producer.stop()


async def test_topics_are_administered(library: Any, kafka: Kafka, topic: str) -> None:
    name = f"{topic}-new"
    client = library.admin.AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers)
    await client.start()
    try:
        new = library.admin.NewTopic(name, 2, 1, topic_configs={"retention.ms": "60000"})
        assert [topic_error[:2] for topic_error in (await client.create_topics([new])).topic_errors] == [(name, 0)]
        again = await client.create_topics([new])
        assert [topic_error[:2] for topic_error in again.topic_errors] == [(name, 36)]
        (topic_error,) = again.to_object()["topic_errors"]
        assert (topic_error["topic"], topic_error["error_code"]) == (name, 36)
        await until(client.describe_topics, [name], lambda topics: topics[0]["error_code"] == 0)
        assert name in await client.list_topics()
        (described,) = await client.describe_topics([name])
        assert (described["topic"], len(described["partitions"])) == (name, 2)
        await client.create_partitions({name: library.admin.NewPartitions(3)})
        with pytest.raises(library.errors.InvalidPartitionsError):
            await client.create_partitions({name: library.admin.NewPartitions(2)})
        await until(client.describe_topics, [name], lambda topics: len(topics[0]["partitions"]) == 3)
        described = await client.describe_cluster()
        assert sorted(described) == ["brokers", "cluster_id", "controller_id", "throttle_time_ms"]
        assert isinstance(described["controller_id"], int)
        assert described["brokers"]
        assert list((await client.delete_topics([name])).topic_error_codes) == [(name, 0)]
    finally:
        await client.close()


def test_each_error_of_a_broker_has_the_same_name_and_number() -> None:
    theirs, ours = (importlib.import_module(f"{name}.errors") for name in MODULES.values())
    numbers = {
        name: item.errno
        for name, item in vars(theirs).items()
        if isinstance(item, type) and issubclass(item, theirs.BrokerResponseError) and getattr(item, "errno", None)
    }
    assert len(numbers) > 70
    assert {name: getattr(ours, name).errno for name in numbers} == numbers


def test_each_exception_can_be_caught_by_the_same_names() -> None:
    theirs, ours = (importlib.import_module(f"{name}.errors") for name in MODULES.values())
    classes = {name: item for name, item in vars(theirs).items() if isinstance(item, type)}
    exceptions = {name: item for name, item in classes.items() if issubclass(item, Exception)}
    assert len(exceptions) > 100
    for name, exception in exceptions.items():
        bases = [getattr(ours, base.__name__) for base in exception.__mro__ if base.__module__ == theirs.__name__]
        assert all(issubclass(getattr(ours, name), base) for base in bases), name
        assert getattr(getattr(ours, name), "message", None) == getattr(exception, "message", None) or name in UNLIKE
    assert str(ours.NotLeaderForPartitionError("moved")) == str(theirs.NotLeaderForPartitionError("moved"))
    assert ours.for_code(0).__name__ == theirs.for_code(0).__name__ == "NoError"
    assert ours.for_code(9_999).__name__ == theirs.for_code(9_999).__name__ == "UnknownError"


UNLIKE = {"BrokerResponseError"}
"""The error has no message in aiokafka, and an empty one here."""


def test_a_request_of_the_protocol_raises_with_the_reason() -> None:
    with pytest.raises(NotImplementedError, match=r"use AIOKafkaAdminClient, or aiokafka_lite\.Admin"):
        AIOKafkaClient(bootstrap_servers="localhost").send(1, object())


def test_keys_have_the_same_hash() -> None:
    theirs, ours = (importlib.import_module(f"{name}.partitioner") for name in MODULES.values())
    keys = [b"", b"a", b"abcd", bytes(range(256))]
    assert [ours.murmur2(key) & 0xFFFFFFFF for key in keys] == [theirs.murmur2(key) for key in keys]


PROGRAM = """
from aiokafka_lite.compat import aiokafka
aiokafka.install()
import aiokafka.admin, aiokafka.errors, aiokafka.structs
from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import KafkaError
from aiokafka.producer.message_accumulator import BatchBuilder
assert aiokafka.admin.client.AIOKafkaAdminClient is aiokafka.admin.AIOKafkaAdminClient
from aiokafka.producer.producer import _missing
assert BatchBuilder is aiokafka.producer.producer.BatchBuilder
assert aiokafka.__version__ == "0.14.0"
AIOKafkaConsumer("t", group_id="g", partition_assignment_strategy=[RoundRobinPartitionAssignor])
assert issubclass(aiokafka.errors.KafkaConnectionError, KafkaError)
assert AIOKafkaConsumer.__module__.startswith("aiokafka_lite.")
"""


def test_a_library_that_imports_aiokafka_gets_the_drop_in() -> None:
    subprocess.run([sys.executable, "-W", "error", "-c", PROGRAM], check=True)
