"""Batches that cannot be decoded, or that become large: errors with their offset, and bounds."""

from __future__ import annotations

import asyncio

import pytest

from aiokafka_lite.consumer import Consumer
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import CorruptRecord
from aiokafka_lite.protocol.records import MAX_HEADERS, encode_batch
from aiokafka_lite.types import Compression, TopicPartition
from tests.embedded.consumer.direct_writes import consumer_of, fill, leader, take, with_data, write, write_batch
from tests.pure.records.test_bombs import batch_of

FIRST, SECOND = (TopicPartition("orders", number) for number in range(2))


async def damaged(cluster: EmbeddedCluster) -> None:
    """Write offsets 0 to 4, a damaged batch 5 to 9, and 10 to 14 to orders-0. orders-1 is intact."""
    await cluster.create_topic("orders", partitions=2)
    write(cluster, FIRST, [b"good"] * 5)
    write_batch(cluster, FIRST, encode_batch([(0, None, b"bad", ())] * 5), damage=3)
    write(cluster, FIRST, [b"good"] * 5)
    fill(cluster, SECOND, 100)


async def read_through(consumer: Consumer, seconds: float) -> tuple[list[tuple[int, int]], list[CorruptRecord]]:
    """Return the records of some seconds, as (partition, offset), and the raised errors."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    records: list[tuple[int, int]] = []
    errors: list[CorruptRecord] = []
    while loop.time() < until:
        try:
            records += [
                (record.partition, record.offset) for record in await consumer.poll(timeout=until - loop.time())
            ]
        except CorruptRecord as error:
            errors.append(error)
    return records, errors


async def test_a_damaged_batch_raises_its_offset_and_other_partitions_continue(cluster: EmbeddedCluster) -> None:
    await damaged(cluster)
    async with consumer_of(cluster, topics=["orders"]) as consumer:
        records, errors = await read_through(consumer, 20.0)
        assert sorted(records) == [*((0, offset) for offset in range(5)), *((1, offset) for offset in range(100))]
        assert {(error.topic, error.partition, error.offset) for error in errors} == {("orders", 0, 5)}
        assert 5 < len(errors) < 30  # raised again and again, at a bounded rate
        assert await consumer.position(FIRST) == 5
        assert {error.next_offset for error in errors} == {10}
        consumer.seek(FIRST, 10)
        assert [record.offset for record in await take(consumer, 5)] == list(range(10, 15))


async def test_a_batch_that_was_damaged_in_transit_is_fetched_again(cluster: EmbeddedCluster) -> None:
    await damaged(cluster)
    replica = leader(cluster, FIRST)
    bad = replica.log.segments[0].batches[1]
    sound = with_data(bad, bad.data[:-3] + bytes([bad.data[-3] ^ 1]) + bad.data[-2:])
    async with consumer_of(cluster) as consumer:
        consumer.assign([FIRST])
        await take(consumer, 5)
        with pytest.raises(CorruptRecord):
            await anext(consumer)
        replica.log.segments[0].batches[1] = sound
        assert [record.offset for record in await take(consumer, 10)] == list(range(5, 15))


async def test_a_decompression_bomb_is_an_error_and_other_partitions_continue(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("orders", partitions=2)
    write(cluster, FIRST, [b"\0" * 5_000_000], compression=Compression.ZSTD)
    write(cluster, FIRST, [b"after"])
    fill(cluster, SECOND, 100)
    async with consumer_of(cluster, topics=["orders"], max_decompressed_size=1_000_000) as consumer:
        records, errors = await read_through(consumer, 5.0)
        assert len(records) == 100
        assert (errors[0].partition, errors[0].offset) == (0, 0)
        consumer.seek(FIRST, 1)
        assert (await take(consumer, 1))[0].value == b"after"


async def test_garbage_in_place_of_a_batch_is_an_error_at_its_offset(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("orders")
    fill(cluster, FIRST, 100)
    async with consumer_of(cluster) as consumer:
        consumer.assign([FIRST])
        replica = leader(cluster, FIRST)
        batches = replica.log.segments[0].batches
        batches[2] = with_data(batches[2], b"\xff" * len(batches[2].data))
        records, errors = await read_through(consumer, 3.0)
        assert [offset for _, offset in records] == list(range(20))
        assert errors[0].offset == 20
        consumer.seek(FIRST, 30)
        assert (await take(consumer, 1))[0].offset == 30


async def test_checksums_are_not_verified_without_check_crcs(cluster: EmbeddedCluster) -> None:
    await damaged(cluster)
    async with consumer_of(cluster, check_crcs=False) as consumer:
        consumer.assign([FIRST])
        assert len(await take(consumer, 15)) == 15


# ---- small batches that become large


BOMBS = TopicPartition("bombs", 0)


async def test_a_record_with_too_many_headers_is_an_error_that_a_seek_passes(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("bombs")
    write_batch(cluster, BOMBS, bytes(batch_of(1, 2_000_000, 0).data))
    write(cluster, BOMBS, [b"after"])
    async with consumer_of(cluster) as consumer:
        consumer.assign([BOMBS])
        assert [record.offset for record in await consumer.poll(timeout=30.0)] == [0]
        with pytest.raises(CorruptRecord, match=r"bombs-0 .* the record at offset 1 has 2000000 headers") as caught:
            await consumer.poll(timeout=30.0)
        error = caught.value
        assert (error.topic, error.partition, error.offset, error.next_offset) == ("bombs", 0, 1, 3)
        consumer.seek(BOMBS, error.next_offset)
        assert [record.value for record in await consumer.poll(timeout=30.0)] == [b"after"]


@pytest.mark.parametrize("way", ["poll", "batches"])
async def test_one_read_returns_a_bounded_number_of_headers(cluster: EmbeddedCluster, way: str) -> None:
    count = 20
    await cluster.create_topic("bombs")
    write_batch(cluster, BOMBS, bytes(batch_of(*[MAX_HEADERS // 2] * count).data))
    async with consumer_of(cluster) as consumer:
        consumer.assign([BOMBS])
        read = 0
        while read < count:
            if way == "poll":
                headers = [len(record.headers) for record in await consumer.poll(timeout=30.0)]
            else:
                headers = [len(header) for header in (await anext(consumer.batches())).headers]
            assert 0 < sum(headers) <= MAX_HEADERS
            read += len(headers)
