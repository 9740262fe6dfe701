"""Deserialized keys and values, and records that deserializers refuse."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from typing import Any

import pytest

from aiokafka_lite.consumer import IntDeserializer, JsonDeserializer, StrDeserializer
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import ConfigurationError, DeserializationError
from aiokafka_lite.protocol.records import encode_batch
from aiokafka_lite.types import Header, Record, TopicPartition
from tests.embedded.consumer.direct_writes import consumer_of, take, write, write_batch

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)
POISON = b"poison"


@pytest.fixture
async def orders(cluster: EmbeddedCluster) -> EmbeddedCluster:
    """Two partitions of ten JSON numbers; the records at offsets 3 and 4 of the first one are not JSON."""
    await cluster.create_topic("orders", partitions=2)
    write(cluster, FIRST, [POISON if number in (3, 4) else b"%d" % number for number in range(10)])
    write(cluster, SECOND, [b"%d" % number for number in range(10)])
    return cluster


class SlowJson:
    """An async deserializer that waits a second before each value, and records its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, bytes, tuple[Header, ...]]] = []

    async def deserialize(self, topic: str, data: bytes, headers: tuple[Header, ...]) -> object:
        self.calls.append((topic, data, headers))
        await asyncio.sleep(1.0)
        return JsonDeserializer().deserialize(topic, data, headers)


async def test_keys_and_values_are_deserialized(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("orders")
    headers = (Header("trace", b"1"),)
    write_batch(
        cluster,
        FIRST,
        encode_batch([(0, (7).to_bytes(8, "big"), "grün".encode(), headers), (0, None, None, ())]),
    )
    async with consumer_of(
        cluster, topics=["orders"], key_deserializer=IntDeserializer(), value_deserializer=StrDeserializer()
    ) as consumer:
        first, second = await consumer.poll(timeout=5.0)
        assert (first.key, first.value, first.headers) == (7, "grün", headers)
        assert (second.key, second.value) == (None, None)


async def slow_int(data: bytes) -> int:
    await asyncio.sleep(1.0)
    return int(data)


@pytest.mark.parametrize("function", [json.loads, slow_int, lambda data: int(data), int])
async def test_a_function_of_the_bytes_is_a_deserializer(orders: EmbeddedCluster, function: Callable[..., Any]) -> None:
    async with consumer_of(orders, value_deserializer=function) as consumer:
        consumer.assign([SECOND])
        assert [record.value for record in await take(consumer, 10)] == list(range(10))
        consumer.assign([FIRST])
        with pytest.raises(DeserializationError, match="orders-0 at offset 3"):
            await take(consumer, 10)


@pytest.mark.parametrize("way", ["iterate", "poll"])
async def test_a_poison_record_raises_its_offset_and_a_seek_skips_it(orders: EmbeddedCluster, way: str) -> None:
    async with consumer_of(orders, value_deserializer=JsonDeserializer()) as consumer:
        consumer.assign([FIRST])
        values: list[object] = []
        errors: list[DeserializationError] = []
        positions: list[int] = []
        async with asyncio.timeout(60.0):
            while len(values) < 8:
                try:
                    if way == "poll":
                        values += [record.value for record in await consumer.poll(timeout=5.0)]
                    else:
                        values += [record.value for record in await take(consumer, 1)]
                except DeserializationError as error:
                    errors.append(error)
                    positions.append(await consumer.position(FIRST))
                    if len(errors) % 2 == 0:  # it comes again until the user seeks
                        consumer.seek(FIRST, error.offset + 1)
        assert values == [0, 1, 2, 5, 6, 7, 8, 9]
        assert [(error.topic, error.partition, error.offset) for error in errors] == [
            ("orders", 0, offset) for offset in (3, 3, 4, 4)
        ]
        assert positions == [3, 3, 4, 4]
        assert "the value of orders-0 at offset 3" in str(errors[0])
        assert isinstance(errors[0].__cause__, ValueError)


async def test_a_poison_record_does_not_hold_up_other_partitions(orders: EmbeddedCluster) -> None:
    loop = asyncio.get_running_loop()
    async with consumer_of(orders, topics=["orders"], value_deserializer=JsonDeserializer()) as consumer:
        seen, errors, began = 0, 0, loop.time()
        while loop.time() - began < 5.0:
            try:
                seen += len(await consumer.poll(timeout=1.0))
            except DeserializationError:
                errors += 1
        assert seen == 3 + 10
        assert 1 < errors < 60  # raised again and again, but not at full speed


@pytest.mark.parametrize("way", ["iterate", "poll"])
async def test_poison_records_are_skipped_or_raw_as_configured(
    orders: EmbeddedCluster, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def values(count: int, on_error: Any) -> list[object]:
        async with consumer_of(
            orders, value_deserializer=JsonDeserializer(), on_deserialization_error=on_error
        ) as consumer:
            consumer.assign([FIRST])
            values: list[object] = []
            while len(values) < count:
                records = await (take(consumer, 1) if way == "iterate" else consumer.poll(2, timeout=5.0))
                values += [record.value for record in records]
            assert await consumer.position(FIRST) == 10
            return values

    rest = [5, 6, 7, 8, 9]
    assert await values(8, "skip") == [0, 1, 2, *rest]
    assert "orders-0: skipped the record at offset 3" in caplog.text
    assert await values(10, "raw") == [0, 1, 2, POISON, POISON, *rest]
    assert await values(9, lambda error, raw: raw._replace(value=-1) if error.offset == 4 else None) == [
        0, 1, 2, -1, *rest,
    ]  # fmt: skip

    sent: list[bytes | None] = []

    async def to_dead_letters(error: DeserializationError, raw: Record) -> None:
        await asyncio.sleep(1.0)
        sent.append(raw.value)

    assert await values(8, to_dead_letters) == [0, 1, 2, *rest]
    assert sent == [POISON, POISON]


async def test_a_read_raises_the_exception_of_the_error_function(orders: EmbeddedCluster) -> None:
    def refuse(error: DeserializationError, raw: Record) -> None:
        raise LookupError(f"no way past {error.offset}")

    async with consumer_of(orders, value_deserializer=JsonDeserializer(), on_deserialization_error=refuse) as consumer:
        consumer.assign([FIRST])
        assert len(await consumer.poll(timeout=5.0)) == 3
        for _ in range(2):
            with pytest.raises(LookupError, match="no way past 3"):
                await consumer.poll(timeout=5.0)


async def test_an_async_deserializer_gets_topic_and_headers_and_is_awaited(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("orders")
    write_batch(cluster, FIRST, encode_batch([(0, None, b"[1]", (Header("schema", b"7"),))]))
    slow = SlowJson()
    async with consumer_of(cluster, topics=["orders"], value_deserializer=slow) as consumer:
        assert (await take(consumer, 1))[0].value == [1]
    assert slow.calls == [("orders", b"[1]", (Header("schema", b"7"),))]


def mixed(data: bytes) -> Any:
    """Returns small numbers at once, as from a cache, and larger ones by a coroutine."""
    return int(data) if int(data) < 5 else slow_int(data)


class PlainMethod:
    def deserialize(self, topic: str, data: bytes, headers: tuple[Header, ...]) -> Any:
        return slow_int(data)


@pytest.mark.parametrize(
    "deserializer",
    [lambda data: slow_int(data), lambda data: asyncio.ensure_future(slow_int(data)), mixed, PlainMethod()],
    ids=["coroutine", "future", "sometimes", "method"],
)
@pytest.mark.parametrize("way", ["iterate", "poll"])
async def test_a_plain_function_that_returns_an_awaitable_is_awaited(
    orders: EmbeddedCluster, deserializer: Any, way: str
) -> None:
    async with consumer_of(orders, value_deserializer=deserializer, key_deserializer=json.loads) as consumer:
        consumer.assign([SECOND])
        records: list[Record] = []
        if way == "iterate":
            records = await take(consumer, 10)
        while len(records) < 10:
            with suppress(TimeoutError):  # a cancelled read loses nothing
                async with asyncio.timeout(0.5):
                    records += await consumer.poll(timeout=60.0)
            records += await consumer.poll(timeout=60.0)
        assert [record.value for record in records] == list(range(10))


async def test_a_read_that_is_cancelled_while_it_deserializes_loses_nothing(orders: EmbeddedCluster) -> None:
    async with consumer_of(orders, value_deserializer=SlowJson()) as consumer:
        consumer.assign([SECOND])
        for _ in range(3):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1.5):
                    await consumer.poll(max_records=3, timeout=60.0)
        assert await consumer.poll(max_records=3, timeout=0.5) == []  # the timeout is a hard bound
        assert [record.offset for record in await take(consumer, 10)] == list(range(10))


async def test_a_seek_or_pause_takes_effect_while_a_record_is_deserialized(orders: EmbeddedCluster) -> None:
    async with consumer_of(orders, value_deserializer=SlowJson()) as consumer:
        consumer.assign([SECOND])
        await consumer.position(SECOND)
        loop = asyncio.get_running_loop()
        loop.call_later(0.5, consumer.seek, SECOND, 7)
        assert (await take(consumer, 1))[0].offset == 7
        loop.call_later(0.5, consumer.pause)
        assert await consumer.poll(timeout=5.0) == []
        consumer.resume()
        assert (await take(consumer, 1))[0].offset == 8


async def test_two_tasks_that_deserialize_share_the_records(orders: EmbeddedCluster) -> None:
    async with consumer_of(orders, value_deserializer=SlowJson()) as consumer:
        consumer.assign([SECOND])
        offsets: list[int] = []

        async def read() -> None:
            while len(offsets) < 10:
                offsets.extend(record.offset for record in await consumer.poll(max_records=2, timeout=10.0))

        await asyncio.gather(read(), read())
        assert offsets == list(range(10))


async def test_close_ends_a_read_that_deserializes(orders: EmbeddedCluster) -> None:
    consumer = consumer_of(orders, value_deserializer=SlowJson())
    await consumer.start()
    consumer.assign([SECOND])
    asyncio.get_running_loop().call_later(0.5, lambda: closing.append(asyncio.ensure_future(consumer.close())))
    closing: list[asyncio.Future[None]] = []
    assert [record async for record in consumer] == []
    await closing[0]


async def test_batches_have_bytes_in_spite_of_deserializers(orders: EmbeddedCluster) -> None:
    async with consumer_of(orders, value_deserializer=JsonDeserializer()) as consumer:
        consumer.assign([FIRST])
        await take(consumer, 3)
        assert (await anext(consumer.batches())).values[0] == POISON
        if find_spec("pyarrow"):
            consumer.seek(FIRST, 3)
            assert (await anext(consumer.batches().to_arrow(["value"])))["value"][0].as_py() == POISON


def test_bad_deserializers_and_actions_are_refused_by_the_constructor(cluster: EmbeddedCluster) -> None:
    with pytest.raises(ConfigurationError, match="deserialize"):
        consumer_of(cluster, value_deserializer=3)
    with pytest.raises(ConfigurationError, match=r"on_deserialization_error must be .* got 'ignore'"):
        consumer_of(cluster, value_deserializer=JsonDeserializer(), on_deserialization_error="ignore")
    with pytest.raises(ConfigurationError, match="size must be 1, 2, 4 or 8 bytes, got 3"):
        IntDeserializer(3)
    with pytest.raises(ConfigurationError, match=r"encoding must be .* got 'klingon'"):
        StrDeserializer("klingon")


@pytest.mark.parametrize("data", [b"", b"1234567", b"123456789"])
def test_an_int_of_the_wrong_size_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="8 bytes"):
        IntDeserializer().deserialize("orders", data, ())


@pytest.mark.parametrize("data", [b"NaN", b"-Infinity", b"{", b"\xff"])
def test_values_that_are_not_json_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        JsonDeserializer().deserialize("orders", data, ())
