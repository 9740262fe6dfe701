"""Reading segments that were written before Kafka 0.11: message sets of formats v0 and v1."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from aiokafka_lite.embedded import ClusterConfig, EmbeddedCluster
from aiokafka_lite.embedded.handlers import default_versions
from aiokafka_lite.errors import CorruptRecord
from aiokafka_lite.protocol.messages import FetchRequest, FetchResponse, FetchResponsePartition, FetchResponseTopic
from aiokafka_lite.protocol.records import encode_batch, split_batches
from aiokafka_lite.types import Compression, TimestampType, TopicPartition
from tests.embedded.consumer.direct_writes import consumer_of, take
from tests.pure.records.test_legacy import T, message, wrapper

FIRST = TopicPartition("orders", 0)


class OldLog:
    """The part of a segment that a broker sends: from the batch with the offset on, cut off at the size limit.

    ``cuts_first`` is for brokers that cut even the first batch, as those before KIP-74 did.
    """

    def __init__(self, *parts: tuple[int, bytes], cuts_first: bool = False) -> None:
        self.parts = parts  # with the last offset of each
        self.cuts_first = cuts_first
        self.sizes: list[int] = []

    def answer(self, request: FetchRequest) -> FetchResponse:
        target = request.topics[0].partitions[0]
        self.sizes.append(target.partition_max_bytes)
        rest = [data for last, data in self.parts if last >= target.fetch_offset]
        size = target.partition_max_bytes
        if rest and not self.cuts_first:
            size = max(size, len(rest[0]))
        end = self.parts[-1][0] + 1
        part = FetchResponsePartition(
            partition_index=0,
            error_code=0,
            high_watermark=end,
            last_stable_offset=end,
            log_start_offset=0,
            aborted_transactions=None,
            records=b"".join(rest)[:size],
        )
        topic = FetchResponseTopic(topic="orders", topic_id=request.topics[0].topic_id, partitions=[part])
        return FetchResponse(session_id=0, responses=[topic])


@pytest.fixture(params=[4, 6, 11])
async def orders(request: pytest.FixtureRequest) -> AsyncIterator[EmbeddedCluster]:
    """A topic on brokers of an old release."""
    versions = {**default_versions(), FetchRequest.api_key: (4, request.param)}
    async with EmbeddedCluster(brokers=1, tcp=False, seed=1, config=ClusterConfig(versions=versions)) as cluster:
        await cluster.create_topic("orders")
        yield cluster


def a_segment_of_each_format() -> list[tuple[int, bytes]]:
    """Return offsets 0 to 11: plain v0, plain v1, a wrapper of each (numbered absolutely and from 0), and v2."""
    in_v0 = b"".join(message(0, offset, None, b"%d" % offset) for offset in (4, 5, 6))
    in_v1 = b"".join(message(1, offset, None, b"%d" % (7 + offset), timestamp=T + offset) for offset in (0, 1, 2))
    return [
        (0, message(0, 0, b"key", b"0")),
        (1, message(0, 1, None, b"1")),
        (2, message(1, 2, None, b"2", timestamp=T)),
        (3, message(1, 3, None, None, timestamp=T + 1, log_append_time=True)),
        (6, wrapper(0, 6, in_v0)),
        (9, wrapper(1, 9, in_v1, codec=Compression.LZ4)),
        (11, encode_batch([(T, None, b"10", ()), (T, None, b"11", ())], base_offset=10)),
    ]


@pytest.mark.parametrize("start", range(12))
async def test_old_messages_are_read_from_any_offset_also_inside_a_wrapper(orders: EmbeddedCluster, start: int) -> None:
    log = OldLog(*a_segment_of_each_format())
    with orders.on(FetchRequest, times=None).answer(log.answer):
        async with consumer_of(orders, auto_offset_reset="none") as consumer:
            consumer.assign([FIRST])
            consumer.seek(FIRST, start)
            records = await take(consumer, 12 - start)
            assert await consumer.position(FIRST) == 12
    assert [record.offset for record in records] == list(range(start, 12))
    assert [record.value for record in records] == [
        None if offset == 3 else b"%d" % offset for offset in range(start, 12)
    ]


async def test_old_messages_have_the_timestamps_of_their_format(orders: EmbeddedCluster) -> None:
    with orders.on(FetchRequest, times=None).answer(OldLog(*a_segment_of_each_format()).answer):
        async with consumer_of(orders, topics=["orders"]) as consumer:
            records = await take(consumer, 12)
    none, create, append = TimestampType.NONE, TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME
    assert [(record.timestamp, record.timestamp_type) for record in records] == [
        *[(-1, none)] * 2,
        (T, create),
        (T + 1, append),
        *[(-1, none)] * 3,
        *[(T + number, create) for number in range(3)],
        *[(T, create)] * 2,
    ]
    assert [record.leader_epoch for record in records[:10]] == [None] * 10
    assert records[0].key == b"key"


async def test_a_message_above_the_limit_is_fetched_again_with_a_larger_limit(
    orders: EmbeddedCluster,
) -> None:
    parts = [(offset, message(1, offset, None, b"x" * 50_000)) for offset in range(3)]
    in_wrapper = b"".join(message(1, number, None, bytes(range(256)) * 400) for number in (0, 1))
    log = OldLog(*parts, (4, wrapper(1, 4, in_wrapper, codec=Compression.SNAPPY)), cuts_first=True)
    with orders.on(FetchRequest, times=None).answer(log.answer):
        async with consumer_of(orders, max_partition_fetch_bytes=10_000) as consumer:
            consumer.assign([FIRST])
            assert [record.offset for record in await take(consumer, 5)] == list(range(5))
    assert log.sizes[:4] == [10_000, 20_000, 40_000, 80_000]


async def test_a_damaged_old_message_raises_its_offset_and_a_seek_skips_it(
    orders: EmbeddedCluster,
) -> None:
    parts = a_segment_of_each_format()
    damaged = bytearray(parts[2][1])
    damaged[-1] ^= 1
    parts[2] = (2, bytes(damaged))
    with orders.on(FetchRequest, times=None).answer(OldLog(*parts).answer):
        async with consumer_of(orders, topics=["orders"]) as consumer:
            await take(consumer, 2)
            with pytest.raises(CorruptRecord) as caught:
                async with asyncio.timeout(10.0):
                    await anext(consumer)
            assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("orders", 0, 2)
            consumer.seek(FIRST, 3)
            assert [record.offset for record in await take(consumer, 9)] == list(range(3, 12))


def test_the_segment_has_the_formats_that_its_docstring_lists() -> None:
    parts = a_segment_of_each_format()
    assert [batch.magic for batch in split_batches(b"".join(data for _, data in parts))] == [0, 0, 1, 1, 0, 1, 2]
