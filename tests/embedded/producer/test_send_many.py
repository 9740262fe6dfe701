"""``send_many``: results, errors, order in each partition, and bounds."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import (
    IllegalStateError,
    RecordTooLarge,
    SerializationError,
)
from aiokafka_lite.producer import RoundRobinPartitioner
from aiokafka_lite.types import RecordMetadata
from tests.embedded.producer.producers_and_logs import producer_of, values_of


async def test_send_many_returns_a_result_for_each_record(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster, buffer_memory=20_000) as producer:
        values: list[Any] = [b"%05d" % number for number in range(2_000)]
        values[700] = object()
        results = await producer.send_many("t", values, keys=[b"k"] * 2_000)
    assert isinstance(results[700], SerializationError)
    assert [result.offset for result in results if isinstance(result, RecordMetadata)] == list(range(1_999))
    assert values_of(cluster, "t") == [value for value in values if isinstance(value, bytes)]


@pytest.mark.parametrize("accesses", [True, False])
async def test_a_refused_record_is_logged_unless_its_result_is_accessed(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture, accesses: bool
) -> None:
    await cluster.create_topic("t", 1)
    values: list[Any] = [b"a", {"id": 7}, 8]
    async with producer_of(cluster) as producer:
        results = await producer.send_many("t", values)
        if accesses:
            assert [type(result) for result in results] == [RecordMetadata, SerializationError, SerializationError]
        del results
        gc.collect()
    logged = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(logged) == (0 if accesses else 1)
    assert all("records for t were not delivered: SerializationError(" in line for line in logged)


async def test_the_refused_records_of_one_call_are_logged_once(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """A wrong type in a million records must not write a line for each five hundred."""
    await cluster.create_topic("t", 1)
    values: list[Any] = [8] * 2000
    async with producer_of(cluster) as producer:
        await producer.send_many("t", values)
        gc.collect()
    assert len([record for record in caplog.records if record.levelname == "ERROR"]) == 1


async def test_send_many_returns_an_error_for_failed_records_only(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1, configs={"max.message.bytes": "2000"})
    async with producer_of(cluster) as producer:
        results = await producer.send_many("t", [b"a", b"x" * 5_000, b"b"])
    assert [type(result) for result in results] == [RecordMetadata, RecordTooLarge, RecordMetadata]


@pytest.mark.parametrize("text", [False, True])
async def test_send_many_keeps_the_order_of_each_partition(cluster: EmbeddedCluster, text: bool) -> None:
    await cluster.create_topic("t", 5)
    keys = [b"%d" % (number % 37) for number in range(5_000)]
    values = [b"%d" % number for number in range(5_000)]
    async with producer_of(cluster) as producer:
        await producer.partitions_for("t")
        items: list[Any] = [value.decode() for value in values] if text else values
        results = await producer.send_many("t", items, keys=keys, headers=[("h", b"1")], timestamp=7)
        single = [await producer.send("t", b"x", key=key) for key in keys[:37]]
    assert len(results) == 5_000
    assert [result.partition for result in results[:37]] == [result.partition for result in single]
    by_partition: dict[int, list[bytes]] = {}
    for value, result in zip(values, results):
        assert isinstance(result, RecordMetadata)
        assert result.offset == len(by_partition.setdefault(result.partition, []))
        assert (result.timestamp, result.serialized_value_size) == (7, len(value))
        by_partition[result.partition].append(value)
    assert results[4_999] == results[-1] == list(results)[-1]
    for partition, expected in by_partition.items():
        assert [value for value in values_of(cluster, "t", partition) if value != b"x"] == expected


async def test_send_many_splits_batches_that_are_too_large_and_returns_each_place(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1, configs={"max.message.bytes": "3000"})
    async with producer_of(cluster) as producer:
        await producer.partitions_for("t")
        values = [b"%0100d" % number for number in range(300)]
        results = await producer.send_many("t", values)
    assert [result.offset for result in results if isinstance(result, RecordMetadata)] == list(range(300))
    assert values_of(cluster, "t") == values


async def test_send_many_bounds_what_it_takes_of_the_buffer(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster, buffer_memory=100_000) as producer:
        await producer.partitions_for("t")
        count = 0

        def values() -> Any:
            nonlocal count
            for _ in range(2_000):
                count += 1000
                assert count - 1_000 * producer.metrics().records_delivered <= 225_000
                yield bytes(1_000)

        assert len(await producer.send_many("t", values())) == 2_000
        assert producer.metrics().buffered_bytes == 0


async def test_send_many_refuses_values_and_keys_that_are_no_iterables_before_sending(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster) as producer:
        for wrong in ("ab", b"ab", bytearray(b"ab"), {b"k": b"v"}, None, 5):
            with pytest.raises(SerializationError, match=r"values for topic 't' must be an iterable"):
                await producer.send_many("t", wrong)  # type: ignore[arg-type]
        for wrong in ("ab", b"ab", 5):
            with pytest.raises(SerializationError, match=r"keys for topic 't' must be an iterable"):
                await producer.send_many("t", [b"a", b"b"], keys=wrong)  # type: ignore[arg-type]
        with pytest.raises(SerializationError, match="topic 't' must have the same length, got 2 values and 1 keys"):
            await producer.send_many("t", [b"a", b"b"], keys=[b"k"])
        assert producer.metrics().records_sent == 0
        for values, keys, text in (
            ([b"a", b"b"], [b"k"], "1 keys and more values"),
            ([], [b"k"], "0 values and more"),
        ):
            with pytest.raises(SerializationError, match=text):
                await producer.send_many("t", iter(values), keys=iter(keys))
        await producer.flush()
        assert await producer.send_many("t", (value for value in [b"b", None])) != []
    assert values_of(cluster, "t") == [b"a", b"b", None]


async def test_send_many_returns_the_partitioners_error_for_a_record(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 2)

    class Picky(RoundRobinPartitioner):
        def partition(self, topic: str, key: bytes | None, value: bytes | None, view: Any) -> int:
            if value == b"bad":
                raise ZeroDivisionError("a bug")
            return 9 if value == b"far" else 1

    async with producer_of(cluster, partitioner=Picky()) as producer:
        for _ in ("the topic is not known yet", "and then it is"):
            results = await producer.send_many("t", [b"a", b"bad", b"far", b"b"])
            assert [type(result) for result in results] == [
                RecordMetadata,
                IllegalStateError,
                IllegalStateError,
                RecordMetadata,
            ]
            assert "Picky" in str(results[1])
    for values in ([b"a"], []):
        with pytest.raises(IllegalStateError, match="closed"):
            await producer.send_many("t", values)


async def test_send_many_lets_other_tasks_run(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async with producer_of(cluster) as producer:
        await producer.partitions_for("t")
        task = asyncio.ensure_future(other())
        await producer.send_many("t", [b"v"] * 5_000)
        task.cancel()
    assert turns > 8


async def test_an_error_of_an_iterable_comes_after_the_values_before_it_were_sent(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)

    def values() -> Any:
        for number in range(250):
            yield b"%d" % number
        raise ZeroDivisionError("a bug")

    async with producer_of(cluster) as producer:
        await producer.partitions_for("t")
        with pytest.raises(ZeroDivisionError):
            await producer.send_many("t", values())
    assert values_of(cluster, "t") == [b"%d" % number for number in range(250)]
