"""Serializers, interceptors, callbacks and partitioners of the user that see a record."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Sequence
from typing import Any

import pytest

from aiokafka_lite.cluster.metadata import ClusterView
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import (
    BrokerError,
    BufferFull,
    ConfigurationError,
    ErrorCode,
    IllegalStateError,
    InvalidTopic,
    KafkaTimeout,
    RecordTooLarge,
    SerializationError,
    UnknownTopic,
)
from aiokafka_lite.producer import IntSerializer, JsonSerializer, Producer, ProducerRecord, RoundRobinPartitioner
from aiokafka_lite.protocol.messages import ProduceRequest
from aiokafka_lite.types import Header, RecordMetadata
from tests.embedded.producer.producers_and_logs import batches_of, producer_of, values_of


class Registry:
    """An async serializer that takes as long as the value says, in seconds."""

    def __init__(self) -> None:
        self.calls = 0

    async def serialize(self, topic: str, data: float, headers: list[Header]) -> bytes:
        self.calls += 1
        if data < 0:
            raise ValueError("time does not go back")
        await asyncio.sleep(data)
        return b"%s %g %d" % (topic.encode(), data, len(headers))


async def begin(*calls: Any) -> list[asyncio.Task[Any]]:
    """Return tasks that begin in this order."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    await asyncio.sleep(0)
    return tasks


async def test_keys_and_values_are_serialized(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster, key_serializer=IntSerializer(2), value_serializer=JsonSerializer()) as producer:
        metadata = await producer.send("t", {"a": [1]}, key=258)
        await producer.send("t")
        assert (metadata.serialized_key_size, metadata.serialized_value_size) == (2, 9)
        with pytest.raises(SerializationError, match="key of a record for topic 't' is of type str"):
            await producer.send("t", {}, key="258")
        with pytest.raises(SerializationError, match="value of a record for topic 't' is of type set"):
            producer.send_nowait("t", {1})
    assert values_of(cluster, "t") == [b'{"a":[1]}', None]
    assert batches_of(cluster, "t")[0].columns().keys == [b"\1\2"]


async def test_records_are_written_in_the_order_of_calls_with_slow_serializers(
    cluster: EmbeddedCluster,
) -> None:
    await cluster.create_topic("t", 1)
    loop = asyncio.get_running_loop()
    async with producer_of(cluster, value_serializer=Registry()) as producer:
        before = loop.time()
        sends = await begin(*(producer.send("t", wait, headers={"h": b""}) for wait in (3.0, 1.0, 0.0, 2.0)))
        offsets = [metadata.offset for metadata in await asyncio.gather(*sends)]
        assert loop.time() - before < 3.5  # they overlap
        assert offsets == [0, 1, 2, 3]
        await producer.send_many("t", [0.2, 0.1])
    assert values_of(cluster, "t") == [b"t 3 1", b"t 1 1", b"t 0 1", b"t 2 1", b"t 0.2 0", b"t 0.1 0"]


async def test_a_record_that_fails_or_is_cancelled_delays_no_other_record(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    loop = asyncio.get_running_loop()
    async with producer_of(cluster, value_serializer=Registry()) as producer:
        before = loop.time()
        failed, cancelled, late, well = await begin(
            producer.send("t", -1.0),
            producer.send("t", 50.0),
            producer.send("t", 50.0, timeout=2.0),
            producer.send("t", 1.0),
        )
        cancelled.cancel()
        with pytest.raises(SerializationError, match=r"'t' is of type float.*Registry: time does not go back"):
            await failed
        with pytest.raises(KafkaTimeout, match="timeout=2 s"):
            await late
        assert (await well).offset == 0
        assert 2.0 <= loop.time() - before < 2.5
        assert len(producer._acceptor.in_order) == 0
    assert values_of(cluster, "t") == [b"t 1 0"]


async def test_a_cancelled_record_in_the_middle_does_not_change_the_order(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster, value_serializer=Registry()) as producer:
        first, cancelled, last = await begin(*(producer.send("t", wait) for wait in (3.0, 50.0, 0.0)))
        cancelled.cancel()
        assert (await last).offset == 1
        assert (await first).offset == 0


async def test_topics_do_not_wait_for_one_another(cluster: EmbeddedCluster) -> None:
    for topic in ("slow", "fast"):
        await cluster.create_topic(topic, 1)
    loop = asyncio.get_running_loop()
    async with producer_of(cluster, value_serializer=Registry()) as producer:
        before = loop.time()
        slow, fast = await begin(producer.send("slow", 10.0), producer.send("fast", 0.0))
        await fast
        assert loop.time() - before < 1.0
        await slow


async def test_serializing_ends_within_max_block(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster, value_serializer=Registry(), max_block=2.0) as producer:
        with pytest.raises(KafkaTimeout, match=r"'t'.*not serialized within max_block=2 s"):
            await producer.send("t", 1e6)
        assert (await producer.send("t", 0.0)).offset == 0


async def test_serialized_records_that_wait_for_room_keep_their_order(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster, value_serializer=Registry(), buffer_memory=1_100) as producer:
        waits = [index % 7 / 10 for index in range(100)]
        sends = await begin(*(producer.send("t", wait) for wait in waits))
        offsets = [metadata.offset for metadata in await asyncio.gather(*sends)]
    assert offsets == list(range(100))
    assert values_of(cluster, "t") == [b"t %g 0" % wait for wait in waits]


async def test_send_nowait_cannot_wait_for_a_serializer(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster, key_serializer=Registry()) as producer:
        with pytest.raises(IllegalStateError, match="cannot wait for an async serializer"):
            producer.send_nowait("t", b"v", key=0.0)


async def test_close_ends_a_send_that_is_being_serialized(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    producer = producer_of(cluster, value_serializer=Registry())
    await producer.start()
    (waiting,) = await begin(producer.send("t", 50.0))
    await producer.close()
    with pytest.raises(IllegalStateError, match="closed"):
        await waiting


# Interceptors.


class Watching:
    """Notes everything, and marks the value."""

    def __init__(self) -> None:
        self.sent: list[ProducerRecord] = []
        self.settled: list[tuple[RecordMetadata, Exception | None]] = []
        self.headers: list[Sequence[Header]] = []

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        self.sent.append(record)
        return dataclasses.replace(record, value=b"%s!" % record.value, topic=record.topic.removeprefix("old-"))

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None, headers: Sequence[Header]) -> None:
        self.settled.append((metadata, error))
        self.headers.append(headers)

    @property
    def outcomes(self) -> list[int | type[Exception]]:
        return [metadata.offset if error is None else type(error) for metadata, error in self.settled]


class Broken:
    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        raise RuntimeError("this interceptor is broken")

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None, headers: Sequence[Header]) -> None:
        raise RuntimeError("this interceptor is broken")


async def test_an_interceptor_changes_records_and_is_notified_of_each_once(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    watching = Watching()
    async with producer_of(cluster, interceptors=[Broken(), watching]) as producer:
        metadata = await producer.send("old-t", b"a", key=b"k", headers={"n": b"1"})
        deliveries = [producer.send_nowait("t", b"b") for _ in range(3)]
        await asyncio.gather(*deliveries)
        await producer.send_many("t", [b"c", b"d"])
    assert values_of(cluster, "t") == [b"a!", b"b!", b"b!", b"b!", b"c!", b"d!"]
    assert watching.outcomes == [0, 1, 2, 3, 4, 5]
    assert watching.settled[0] == (metadata, None)
    assert watching.sent[0] == ProducerRecord("old-t", b"a", key=b"k", headers={"n": b"1"})
    assert watching.headers == [(Header("n", b"1"),), *[()] * 5]


async def test_an_interceptor_is_notified_of_the_error_of_a_record(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    watching = Watching()
    async with producer_of(
        cluster, interceptors=[watching], buffer_memory=2_000, max_request_size=2_000, max_block=1.0
    ) as producer:
        await producer.send("t", b"v")
        with pytest.raises(SerializationError):
            await producer.send("t", b"v", key=5)
        with pytest.raises(RecordTooLarge):
            await producer.send("t", b"v" * 3_000)
        with pytest.raises(UnknownTopic):
            await producer.send("t", b"v", partition=7)
        with pytest.raises(UnknownTopic):
            await producer.send("elsewhere", b"v")
        cluster.on(ProduceRequest).fail(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        with pytest.raises(BrokerError):
            await producer.send("t", b"v")
        cluster.on(ProduceRequest).delay(5.0)
        slow = producer.send_nowait("t", b"v" * 1_500)
        with pytest.raises(BufferFull):
            producer.send_nowait("t", b"v" * 1_500)
        with pytest.raises(KafkaTimeout):
            await producer.send("t", b"v" * 1_500)
        (cancelled,) = await begin(producer.send("t", b"v" * 1_500))
        cancelled.cancel()
        await asyncio.wait([cancelled])
        await slow
    assert watching.outcomes[1:5] == [SerializationError, RecordTooLarge, UnknownTopic, UnknownTopic]
    assert issubclass(watching.outcomes[5], BrokerError)  # type: ignore[arg-type]
    assert watching.outcomes[6:] == [BufferFull, KafkaTimeout, KafkaTimeout, 1]
    assert len(watching.settled) == len(watching.sent)


async def test_an_interceptor_is_notified_of_a_topic_that_is_not_a_string(cluster: EmbeddedCluster) -> None:
    settled: list[Exception | None] = []

    class Plain:
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            return record

        def on_acknowledgement(
            self, metadata: RecordMetadata, error: Exception | None, headers: Sequence[Header]
        ) -> None:
            settled.append(error)

    async with producer_of(cluster, interceptors=[Plain()]) as producer:
        for topic in (5, [], {}):  # the last two have no hash
            with pytest.raises(InvalidTopic) as raised:
                await producer.send(topic, b"v")  # type: ignore[arg-type]
            assert settled == [raised.value]
            settled.clear()


async def test_an_interceptor_is_notified_of_the_records_of_a_split_batch(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1, configs={"max.message.bytes": "1000"})
    watching = Watching()
    async with producer_of(cluster, interceptors=[watching]) as producer:
        await producer.partitions_for("t")
        await producer.send_many("t", [b"a" * 600, b"b" * 1_500, b"c" * 600])
    assert sorted(watching.outcomes, key=str) == [0, 1, RecordTooLarge]


async def test_interceptors_run_before_async_serializers(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)

    class Doubling(Watching):
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            self.sent.append(record)
            assert isinstance(record.value, float)
            return dataclasses.replace(record, value=2 * record.value)

    doubling = Doubling()
    async with producer_of(cluster, interceptors=[doubling], value_serializer=Registry()) as producer:
        await producer.send("t", 1.0)
        with pytest.raises(SerializationError):
            await producer.send("t", -1.0)
    assert values_of(cluster, "t") == [b"t 2 0"]
    assert doubling.outcomes == [0, SerializationError]


class SchemaOfTopic:
    """Waits a second for the schema of each topic, and serializes without waiting once it is there."""

    def __init__(self) -> None:
        self.known: set[str] = set()

    def serialize(self, topic: str, data: int, headers: list[Header]) -> bytes | Awaitable[bytes]:
        return b"%d" % data if topic in self.known else self._serialize_first(topic, data)

    async def _serialize_first(self, topic: str, data: int) -> bytes:
        await asyncio.sleep(1.0)
        self.known.add(topic)
        return b"first %d" % data


async def test_a_serializer_may_wait_for_the_first_record_of_a_topic(cluster: EmbeddedCluster) -> None:
    for topic in ("t", "u"):
        await cluster.create_topic(topic, 1)
    watching = Watching()
    async with producer_of(cluster, value_serializer=SchemaOfTopic(), interceptors=[watching]) as producer:
        with pytest.raises(IllegalStateError, match="the first schema of a topic; use put, send or send_many"):
            producer.send_nowait("t", 0)
        first = await begin(*(producer.send("t", number) for number in (1, 2)))
        await asyncio.sleep(0.6)
        behind = await begin(producer.send("t", 3), producer.send("u", 4))
        await asyncio.sleep(0.6)
        await asyncio.gather(*first, behind[0])
        producer.send_nowait("t", 5)
        await behind[1]
    assert values_of(cluster, "t") == [b"first 1", b"first 2", b"first 3", b"5"]
    assert values_of(cluster, "u") == [b"first 4"]
    assert [record.value for record in watching.sent] == [0, 1, 2, 3, 4, 5]
    assert [str(outcome) for outcome in watching.outcomes[1:]] == ["0", "1", "2", "3", "0"]


async def test_a_record_that_needs_no_wait_stays_behind_one_that_waits(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    serializer = SchemaOfTopic()
    async with producer_of(cluster, value_serializer=serializer) as producer:
        first = await begin(producer.send("t", 1))
        serializer.known.add("t")
        with pytest.raises(IllegalStateError, match="use put, send or send_many"):
            producer.send_nowait("t", 0)
        await producer.send("t", 2)
        await asyncio.gather(*first)
    assert values_of(cluster, "t") == [b"first 1", b"2"]


async def test_the_constructor_refuses_objects_that_are_no_serializers_or_interceptors() -> None:
    for wrong in ({"key_serializer": object()}, {"value_serializer": object()}, {"interceptors": [object()]}):
        with pytest.raises(ValueError, match=r"_serializer must be|interceptor must be"):
            Producer("localhost:9092", **wrong)
    for none in (5, None, Watching()):
        with pytest.raises(ConfigurationError, match="interceptors must be a list of interceptors"):
            Producer("localhost:9092", interceptors=none)  # type: ignore[arg-type]


async def test_an_async_serializer_may_make_a_subclass_of_bytes(cluster: EmbeddedCluster) -> None:
    class Encoded(bytes):
        pass

    async def encode(value: str) -> bytes:
        return Encoded(value.encode())

    await cluster.create_topic("t", 1)
    async with producer_of(cluster, value_serializer=encode, key_serializer=encode) as producer:
        await producer.send("t", "value", key="key")
    assert values_of(cluster, "t") == [b"value"]


def a_raising_callback(metadata: RecordMetadata, error: Exception | None) -> None:
    raise KeyError("x")


async def test_a_callback_that_raises_affects_no_record_and_not_the_producer(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.create_topic("t", 2)
    async with producer_of(cluster) as producer:
        deliveries = [producer.send_nowait("t", b"%d" % number, partition=number) for number in (0, 1)]
        deliveries[0].report(a_raising_callback)
        assert [(await delivery).offset for delivery in deliveries] == [0, 0]
        deliveries[0].report(a_raising_callback)  # settled already: called at once
        assert (await producer.send("t", b"2", partition=0)).offset == 1
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == [
        "the callback a_raising_callback of Delivery.report failed; this error is not logged again"
    ]


async def test_a_callback_that_raises_for_a_failed_record_ends_nothing_either(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster) as producer:
        cluster.on(ProduceRequest).fail(ErrorCode.INVALID_RECORD)
        failed = producer.send_nowait("t", b"1")
        failed.report(a_raising_callback)
        with pytest.raises(BrokerError):
            await failed
        assert (await producer.send("t", b"2")).offset == 0


class OwnError(Exception):
    """An exception of user code."""


class RaisingPartitioner:
    """Raises in every method but ``partition``, and there for the value b"raise"."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def partition(self, topic: str, key: bytes | None, value: bytes | None, view: ClusterView) -> int:
        if value == b"raise":
            raise self._error
        return 0

    def on_new_batch(self, topic: str, partition: int, size: int, view: ClusterView) -> None:
        raise self._error

    def on_topic_removed(self, topic: str) -> None:
        raise self._error


@pytest.mark.parametrize("error", [OwnError("own"), asyncio.CancelledError()])
async def test_a_partitioner_that_raises_fails_its_own_record_only(
    cluster: EmbeddedCluster, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    for topic in ("t", "u"):
        await cluster.create_topic(topic, 1)
    async with producer_of(cluster, partitioner=RaisingPartitioner(error)) as producer:
        for number in range(3):  # each batch is reported to the partitioner with the next send
            assert (await producer.send("t", b"v")).offset == number
            with pytest.raises(IllegalStateError, match="could not choose"):
                await producer.send("t", b"raise")
        await asyncio.sleep(7200.0)  # topic t is dropped when topic u comes
        assert (await producer.send("u", b"v")).offset == 0
        assert (await producer.send("t", b"v")).offset == 3
    lines = [record.message.split(" failed")[0] for record in caplog.records if record.levelname == "ERROR"]
    assert lines == ["RaisingPartitioner.on_new_batch", "RaisingPartitioner.on_topic_removed"]


async def test_a_callback_that_asks_a_cancelled_future_affects_no_other_record(cluster: EmbeddedCluster) -> None:
    """CancelledError is not a subclass of Exception: no handler caught it, and the rest of the answer was not
    handled."""
    await cluster.create_topic("t", 3)
    cancelled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    cancelled.cancel()

    class Asking:
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            return record

        def on_acknowledgement(
            self, metadata: RecordMetadata, error: Exception | None, headers: Sequence[Header]
        ) -> None:
            cancelled.result()

    loop = asyncio.get_running_loop()
    async with producer_of(cluster, interceptors=[Asking()]) as producer:
        began = loop.time()
        deliveries = [producer.send_nowait("t", b"v", partition=number % 3) for number in range(9)]
        for delivery in deliveries:
            delivery.report(lambda metadata, error: cancelled.result())
        await asyncio.gather(*deliveries)
        assert loop.time() - began < 5.0


async def test_a_serializer_writes_the_headers_that_it_adds(cluster: EmbeddedCluster) -> None:
    class Schema:
        def __init__(self, name: str) -> None:
            self._name = name

        def serialize(self, topic: str, data: object, headers: list[Header]) -> bytes:
            headers.append(Header(self._name, b"%d" % len(headers)))
            return str(data).encode()

    class SlowSchema(Schema):
        async def serialize(self, topic: str, data: object, headers: list[Header]) -> bytes:  # type: ignore[override]
            await asyncio.sleep(1.0)
            return super().serialize(topic, data, headers)

    await cluster.create_topic("t", 1)
    for value in (Schema("value"), SlowSchema("value")):
        async with producer_of(cluster, key_serializer=Schema("key"), value_serializer=value) as producer:
            await producer.send("t", 1, key=2, headers={"own": b"0"})
            await producer.send("t", 1)
    for batch in batches_of(cluster, "t"):
        own = () if batch.columns().keys[0] is None else (Header("own", b"0"), Header("key", b"1"))
        assert batch.columns().headers[0] == (*own, Header("value", b"%d" % len(own)))


async def test_headers_of_an_iterator_are_written_after_the_wait_for_a_schema(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster, value_serializer=SchemaOfTopic()) as producer:
        await producer.send("t", 1, headers=iter([("h", b"1")]))
    assert batches_of(cluster, "t")[0].columns().headers[0] == (Header("h", b"1"),)


async def test_headers_from_an_iterator_that_raises_fail_their_own_record(cluster: EmbeddedCluster) -> None:
    def headers() -> Any:
        yield ("a", b"1")
        raise OwnError("own")

    await cluster.create_topic("t", 1)
    watching = Watching()
    async with producer_of(cluster, interceptors=[watching]) as producer:
        with pytest.raises(SerializationError, match="own"):
            await producer.send("t", b"v", headers=headers())
        assert (await producer.send("t", b"v")).offset == 0
    assert watching.outcomes == [SerializationError, 0]


# Partitioners.


async def test_a_partitioner_that_raises_fails_the_record_and_nothing_else(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    await cluster.create_topic("u", 1)

    class Broken(RoundRobinPartitioner):
        def partition(self, topic: str, key: bytes | None, value: bytes | None, view: Any) -> Any:
            if value == b"text":
                return "0"
            raise ZeroDivisionError("a bug")

    async with producer_of(cluster, partitioner=Broken()) as producer:
        innocent = producer.send_nowait("u", b"v", partition=0)
        for _ in ("the topic is not known yet", "and then it is"):
            with pytest.raises(IllegalStateError, match=r"Broken .*'t'.*ZeroDivisionError") as raised:
                await producer.send("t", b"v")
            assert isinstance(raised.value.__cause__, ZeroDivisionError)
            with pytest.raises(IllegalStateError, match="Broken"):
                await producer.send("t", b"text")
        assert (await innocent).offset == 0
        assert (await producer.send("t", b"v", partition=0)).offset == 0
        assert producer.metrics().buffered_bytes == 0


@pytest.mark.parametrize("batch_size", [100, 16_384])
async def test_an_error_of_on_new_batch_is_logged_once_and_harms_no_record(
    cluster: EmbeddedCluster, batch_size: int, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.create_topic("t", 1)

    class Broken(RoundRobinPartitioner):
        def on_new_batch(self, topic: str, partition: int, size: int, view: Any) -> None:
            raise ZeroDivisionError("a bug")

    async with producer_of(cluster, partitioner=Broken(), batch_size=batch_size) as producer:
        await producer.send("t", b"v")
        deliveries = [producer.send_nowait("t", b"v" * 50) for _ in range(10)]
        assert [(await delivery).offset for delivery in deliveries] == list(range(1, 11))
    assert [line.message for line in caplog.records if line.levelname == "ERROR"] == [
        "Broken.on_new_batch failed; this error is not logged again"
    ]
