"""Fetching: requests and their rate, buffers, fetch sessions and versions."""

from __future__ import annotations

import asyncio
import random
import tracemalloc
from collections import Counter

import pytest

from aiokafka_lite.consumer import Consumer
from aiokafka_lite.consumer.fetch import answers as fetch_answers
from aiokafka_lite.embedded import ClusterConfig, EmbeddedCluster
from aiokafka_lite.embedded.handlers import default_versions
from aiokafka_lite.errors import ConfigurationError, ProtocolError
from aiokafka_lite.protocol.messages import (
    FetchRequest,
    FetchResponse,
    FetchResponsePartition,
    FetchResponseTopic,
    MetadataRequest,
)
from aiokafka_lite.protocol.records import encode_batch
from aiokafka_lite.types import Compression, TopicPartition
from tests.embedded.consumer.direct_writes import consumer_of, fill, take, write, write_batch
from tests.waiting import until

FIRST, SECOND, THIRD = (TopicPartition("orders", number) for number in range(3))


def fetches(cluster: EmbeddedCluster) -> list[FetchRequest]:
    """Return the fetch requests of consumers, not of followers."""
    requests = [exchange.request for exchange in cluster.history.of(FetchRequest)]
    return [request for request in requests if request.replica_id < 0 and request.replica_state.replica_id < 0]


def partitions_in(request: FetchRequest) -> int:
    return sum(len(topic.partitions) for topic in request.topics)


# ---- answers that come too late


@pytest.mark.parametrize("before, after", [(0, 50), (50, 0)])
async def test_an_answer_from_before_a_seek_is_dropped(orders: EmbeddedCluster, before: int, after: int) -> None:
    fault = orders.on(FetchRequest, times=1).delay(2.0)
    async with consumer_of(orders) as consumer:
        consumer.assign([FIRST])
        consumer.seek(FIRST, before)
        await until(lambda: fault.hits, "the request is at the broker")
        consumer.seek(FIRST, after)
        assert [record.offset for record in await take(consumer, 100 - after)] == list(range(after, 100))


async def test_an_answer_from_before_a_new_assignment_is_dropped(orders: EmbeddedCluster) -> None:
    fault = orders.on(FetchRequest, times=1).delay(2.0)
    async with consumer_of(orders) as consumer:
        consumer.assign([FIRST])
        consumer.seek(FIRST, 50)
        await until(lambda: fault.hits, "the request is at the broker")
        consumer.assign([])
        consumer.assign([FIRST])
        consumer.seek(FIRST, 10)
        assert [record.offset for record in await take(consumer, 90)] == list(range(10, 100))
        assert await consumer.poll(timeout=3.0) == []


async def test_records_that_arrive_during_a_pause_are_kept_and_not_fetched_again(orders: EmbeddedCluster) -> None:
    fault = orders.on(FetchRequest, times=1).delay(2.0)
    async with consumer_of(orders) as consumer:
        consumer.assign([FIRST])
        await until(lambda: fault.hits, "the request is at the broker")
        consumer.pause()
        assert await consumer.poll(timeout=30.0) == []
        assert sum(partitions_in(request) for request in fetches(orders)) == 1
        consumer.resume()
        assert [record.offset for record in await take(consumer, 100)] == list(range(100))
        targets = [
            part.fetch_offset for request in fetches(orders) for topic in request.topics for part in topic.partitions
        ]
        assert targets.count(0) == 1


# ---- cost and bounds


async def test_an_idle_consumer_costs_only_long_polls(orders: EmbeddedCluster) -> None:
    async with consumer_of(orders, topics=["orders"], fetch_max_wait=0.5) as consumer:
        await take(consumer, 300)
        assert await consumer.poll(timeout=2.0) == []
        orders.history.clear()
        assert await consumer.poll(timeout=60.0) == []
        requests = fetches(orders)
        assert 3 * 110 <= len(requests) <= 3 * 121
        assert sum(partitions_in(request) for request in requests) == 0  # sessions: nothing has changed
        assert len(orders.history.of(MetadataRequest)) == 0


@pytest.mark.thorough
async def test_a_thousand_idle_partitions_cost_no_more_requests_than_one(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("wide", partitions=1_000)
    async with consumer_of(cluster, topics=["wide"], group_id="idle", fetch_max_wait=0.5) as consumer:
        assert await consumer.poll(timeout=5.0) == []
        assert len(consumer.assignment) == 1_000
        cluster.history.clear()
        assert await consumer.poll(timeout=20.0) == []
        requests = fetches(cluster)
        assert len(requests) <= 3 * 41
        assert sum(partitions_in(request) for request in requests) == 0
        assert len(cluster.history.of(MetadataRequest)) == 0


@pytest.mark.thorough
async def test_a_thousand_partitions_paused_and_resumed_are_bounded_and_fetched_once(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("wide", partitions=1_000)
    partitions = [TopicPartition("wide", number) for number in range(1_000)]
    batch = encode_batch([(0, None, b"x" * 1_000, ())] * 10)
    for partition in partitions:
        write_batch(cluster, partition, batch)
    limit, choice = 500_000, random.Random(1)
    seen: Counter[TopicPartition] = Counter()
    async with consumer_of(cluster, fetch_max_bytes=limit) as consumer:
        consumer.assign(partitions)
        while sum(seen.values()) < 10_000:
            consumer.resume()
            if len(seen) < 900:
                consumer.pause(choice.sample(partitions, 300))
            for _ in range(10):
                for record in await consumer.poll(max_records=25, timeout=1.0):
                    seen[TopicPartition(record.topic, record.partition)] += 1
                assert sum(assigned.buffer.bytes for assigned in consumer._core.subscription) <= 3 * (
                    limit + len(batch)
                )
    assert set(seen.values()) == {10}
    assert bytes_given(cluster) <= 1_000 * len(batch)


def bytes_given(cluster: EmbeddedCluster) -> int:
    """Return the bytes of records that were sent to consumers."""
    return sum(
        len(part.records or b"")
        for exchange in cluster.history.of(FetchRequest)
        if isinstance(exchange.request, FetchRequest)
        and exchange.response is not None
        and exchange.request.replica_id < 0
        and exchange.request.replica_state.replica_id < 0
        for topic in exchange.response.responses
        for part in topic.partitions
    )


async def test_a_quick_reader_does_not_wait_behind_an_idle_partition() -> None:
    async with EmbeddedCluster(brokers=1, tcp=False, seed=1) as cluster:
        await cluster.create_topic("large", partitions=2)
        for _ in range(50):
            write(cluster, TopicPartition("large", 0), [b"x" * 1_000])
        async with consumer_of(cluster, max_partition_fetch_bytes=1_000, topics=["large"]) as consumer:
            await take(consumer, 1)
            began = asyncio.get_running_loop().time()
            await take(consumer, 49)
            assert asyncio.get_running_loop().time() - began < 0.01


async def test_an_idle_partition_is_asked_for_while_another_is_not_read() -> None:
    async with EmbeddedCluster(brokers=1, tcp=False, seed=1) as cluster:
        await cluster.create_topic("large", partitions=2)
        first, second = TopicPartition("large", 0), TopicPartition("large", 1)
        for _ in range(2):
            write(cluster, first, [b"x" * 1_000])
        async with consumer_of(cluster, max_partition_fetch_bytes=1_000, topics=["large"]) as consumer:
            await consumer.poll(1, timeout=1.0)
            for _ in range(20):  # each call wakes the fetcher, which has room only for the second partition
                await asyncio.sleep(0.005)
                consumer.pause([second])
                consumer.resume([second])
            write(cluster, second, [b"news"])
            (news,) = await consumer.poll(timeout=0.02, partitions=[second])
            assert news.value == b"news"


async def test_fetching_stops_when_nothing_is_read(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("orders")
    for _ in range(50):
        write(cluster, FIRST, [b"x" * 1000])
    async with consumer_of(cluster, max_partition_fetch_bytes=8_000) as consumer:
        consumer.assign([FIRST])
        await asyncio.sleep(60.0)
        (assigned,) = consumer._core.subscription
        assert 4_000 <= assigned.buffer.bytes <= 8_000
        assert len(fetches(cluster)) == 1


async def test_the_buffers_of_one_broker_stay_within_fetch_max_bytes(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("wide", assignments=[[1]] * 40)
    partitions = [TopicPartition("wide", number) for number in range(40)]
    for partition in partitions:
        for _ in range(20):
            write(cluster, partition, [b"x" * 1000])
    limit = 64_000
    async with consumer_of(cluster, fetch_max_bytes=limit, max_partition_fetch_bytes=16_000) as consumer:
        consumer.assign(partitions)
        seen = dict.fromkeys(partitions, 0)
        for number, partition in enumerate(partitions):
            for record in await consumer.poll(max_records=3, timeout=1.0):
                seen[TopicPartition(record.topic, record.partition)] += 1
            consumer.pause([partition])  # the data of paused partitions counts too
            assert sum(assigned.buffer.bytes for assigned in consumer._core.subscription) <= limit + 3_000, number
        consumer.resume()
        while sum(seen.values()) < 800:
            for record in await consumer.poll(timeout=5.0):
                seen[TopicPartition(record.topic, record.partition)] += 1
            assert sum(assigned.buffer.bytes for assigned in consumer._core.subscription) <= limit + 3_000
    assert set(seen.values()) == {20}


async def test_the_buffers_of_all_brokers_stay_within_fetch_memory(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("wide", assignments=[[1], [2], [3]])
    partitions = [TopicPartition("wide", number) for number in range(3)]
    for partition in partitions:
        for _ in range(60):
            write(cluster, partition, [b"x" * 10_000])
    async with consumer_of(cluster, fetch_memory=300_000) as consumer:
        consumer.assign(partitions[:1])
        await take(consumer, 1)
        buffered = sum(assigned.buffer.bytes for assigned in consumer._core.subscription)
        assert 200_000 <= buffered <= 310_000  # one broker has all
        consumer.assign(partitions)
        for _ in range(179):
            await take(consumer, 1)
            assert (
                sum(assigned.buffer.bytes for assigned in consumer._core.subscription) <= 330_000
            )  # a first batch is whole
        assert max(request.max_bytes for request in fetches(cluster)) == 300_000


async def test_paused_partitions_that_fill_the_buffer_do_not_stop_the_others(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("wide", assignments=[[1]] * 3)
    unpaused, *idle = (TopicPartition("wide", number) for number in range(3))
    for partition in (unpaused, *idle):
        for _ in range(20):
            write(cluster, partition, [b"x" * 1000])
    async with consumer_of(cluster, fetch_max_bytes=20_000, max_partition_fetch_bytes=20_000) as consumer:
        consumer.assign(idle)
        await asyncio.sleep(1.0)
        consumer.pause()
        consumer.assign([unpaused, *idle])
        assert {record.partition for record in await take(consumer, 20)} == {0}


@pytest.mark.thorough
@pytest.mark.parametrize("way", ["in turns", "paused in turn"])
async def test_one_batch_is_unpacked_at_a_time_however_many_partitions_there_are(
    cluster: EmbeddedCluster, way: str
) -> None:
    partitions = [TopicPartition("many", number) for number in range(20)]
    await cluster.create_topic("many", partitions=20)
    rows = [(0, None, b"%d" % number, ()) for number in range(2_000)]
    batch = encode_batch(rows, compression=Compression.ZSTD)
    for partition in partitions:
        write_batch(cluster, partition, batch)
    async with consumer_of(cluster) as consumer:
        consumer.assign(partitions)
        await asyncio.sleep(5.0)  # all records are buffered
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()
        read = 0
        try:
            for _ in range(28):
                records = await consumer.poll(200, timeout=5.0)
                read += len(records)
                if way == "paused in turn" and len(consumer.paused) < 19:
                    consumer.pause([TopicPartition("many", records[0].partition)])
            records.clear()
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        # Each batch takes 0.3 MB when it is unpacked, all 20 take 6 MB.
        assert peak - before < 2_000_000
        consumer.resume()
        while read < 40_000:
            read += len(await consumer.poll(2_000, timeout=5.0))
        assert read == 40_000
        assert {await consumer.position(partition) for partition in partitions} == {2_000}


async def test_a_quick_reader_is_not_kept_waiting_by_an_idle_partition_of_the_same_broker(
    cluster: EmbeddedCluster,
) -> None:
    await cluster.create_topic("wide", assignments=[[1]] * 2)
    busy, idle = TopicPartition("wide", 0), TopicPartition("wide", 1)
    for _ in range(200):
        write(cluster, busy, [b"x" * 1000])
    loop = asyncio.get_running_loop()
    settings = {"fetch_max_wait": 20.0, "max_partition_fetch_bytes": 4_000}
    async with consumer_of(cluster, **settings) as consumer:
        consumer.assign([busy, idle])
        await consumer.position(idle)
        began = loop.time()
        for _ in range(200):
            await take(consumer, 1)
            await asyncio.sleep(0.01)
        assert loop.time() - began < 3 * 200 * 0.01


async def test_a_batch_larger_than_the_limits_comes_whole(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("orders", partitions=2)
    for partition in (FIRST, SECOND):
        for _ in range(3):
            write(cluster, partition, [b"x" * 300_000])
    async with consumer_of(
        cluster, topics=["orders"], max_partition_fetch_bytes=1_000, fetch_max_bytes=1_000
    ) as consumer:
        assert {len(record.value or b"") for record in await take(consumer, 6)} == {300_000}


async def test_a_truncated_batch_is_fetched_again_with_a_larger_limit(cluster: EmbeddedCluster) -> None:
    """Old brokers truncate even the first batch of an answer."""
    await cluster.create_topic("orders")
    data = encode_batch([(0, None, b"x" * 100_000, ())])
    sizes: list[int] = []

    def cut(request: FetchRequest) -> FetchResponse:
        sizes.extend(part.partition_max_bytes for topic in request.topics for part in topic.partitions)
        part = FetchResponsePartition(
            partition_index=0, error_code=0, high_watermark=1, aborted_transactions=None, records=data[: sizes[-1]]
        )
        topic = FetchResponseTopic(topic="orders", topic_id=request.topics[0].topic_id, partitions=[part])
        return FetchResponse(session_id=0, responses=[topic])

    with cluster.on(FetchRequest, times=None).answer(cut):
        async with consumer_of(cluster, max_partition_fetch_bytes=10_000) as consumer:
            consumer.assign([FIRST])
            assert (await take(consumer, 1))[0].value == b"x" * 100_000
    assert sizes[:5] == [10_000, 20_000, 40_000, 80_000, 160_000]


async def test_a_batch_above_max_response_size_is_an_error_that_names_the_setting(orders: EmbeddedCluster) -> None:
    write(orders, FIRST, [b"x" * 300_000])
    settings = {"max_response_size": 200_000, "fetch_max_bytes": 100_000, "max_partition_fetch_bytes": 100_000}
    async with consumer_of(orders, **settings) as consumer:
        consumer.assign([FIRST])
        consumer.seek(FIRST, 100)
        for _ in range(2):
            with pytest.raises(ProtocolError, match=r"orders-0: broker \d answers with .* max_response_size=200000"):
                await consumer.poll(timeout=30.0)
        consumer.seek(FIRST, 0)
        assert len(await take(consumer, 100)) == 100
        consumer.assign([SECOND])
        assert len(await take(consumer, 100)) == 100
    fetched = [fetch for fetch in fetches(orders) if fetch.topics]
    assert len(fetched) < 40


def test_fetch_sizes_above_max_response_size_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="fetch_max_bytes must be less than max_response_size=1048576"):
        Consumer("localhost:9092", max_response_size=1024 * 1024)


async def test_a_large_answer_is_applied_in_turns_and_a_seek_between_them_counts(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.create_topic("orders", partitions=9)
    leader_of_first = cluster.leader_of("orders", 0)
    numbers = [number for number in range(9) if cluster.leader_of("orders", number) == leader_of_first]
    assert len(numbers) >= 3
    for number in numbers:
        for _ in range(4):
            write(cluster, TopicPartition("orders", number), [b"v" * 1_000] * 10)
    monkeypatch.setattr(fetch_answers, "TURN_BYTES", 1_000)
    async with consumer_of(cluster) as consumer:
        consumer.assign(TopicPartition("orders", number) for number in numbers)
        first = (await take(consumer, 1))[0]
        buffers = {assigned.partition.partition: assigned.buffer for assigned in consumer._core.subscription}
        waiting = [number for number in numbers if not buffers[number].has_data and number != first.partition]
        assert waiting  # the answer is not applied yet
        consumer.seek(TopicPartition("orders", waiting[-1]), 39)
        records = [first, *await take(consumer, 40 * (len(numbers) - 1))]
    for number in numbers:
        expected = [39] if number == waiting[-1] else list(range(40))
        assert [record.offset for record in records if record.partition == number] == expected


# ---- sessions


async def test_a_closed_consumer_leaves_no_fetch_session_behind(orders: EmbeddedCluster) -> None:
    async with consumer_of(orders, topics=["orders"]) as consumer:
        await take(consumer, 300)
        assert [readers_sessions(orders, node) for node in (1, 2, 3)] == [1, 1, 1]
    assert [readers_sessions(orders, node) for node in (1, 2, 3)] == [0, 0, 0]


async def test_the_session_of_a_broker_without_assigned_partitions_ends(orders: EmbeddedCluster) -> None:
    async with consumer_of(orders) as consumer:
        consumer.assign([FIRST, SECOND, THIRD])
        await take(consumer, 300)
        consumer.assign([FIRST])
        await asyncio.sleep(2.0)
        assert sum(readers_sessions(orders, node) for node in (1, 2, 3)) == 1
        consumer.assign([FIRST, SECOND])
        write(orders, SECOND, [b"more"])
        assert (await take(consumer, 1))[0].value in (b"more", b"0")


def readers_sessions(cluster: EmbeddedCluster, node: int) -> int:
    """Fetch sessions that a node keeps for consumers."""
    ended = [
        exchange.request.session_id
        for exchange in cluster.history.of(FetchRequest, node=node)
        if isinstance(exchange.request, FetchRequest) and exchange.request.session_epoch == -1
    ]
    mine = {
        exchange.response.session_id
        for exchange in cluster.history.of(FetchRequest, node=node)
        if isinstance(exchange.request, FetchRequest)
        and exchange.request.replica_id < 0
        and exchange.request.replica_state.replica_id < 0
        and exchange.response is not None
        and exchange.response.session_id
    }
    kept = cluster.nodes[node].parts.fetch_sessions._sessions.keys() & mine
    assert not kept.intersection(ended)
    return len(kept)


# ---- versions


@pytest.mark.parametrize("newest", range(4, 19))
async def test_every_version_of_fetch_is_spoken(newest: int) -> None:
    versions = {**default_versions(), FetchRequest.api_key: (4, newest)}
    async with EmbeddedCluster(brokers=1, tcp=False, config=ClusterConfig(versions=versions)) as cluster:
        await cluster.create_topic("orders", partitions=2)
        fill(cluster, FIRST, 100)
        fill(cluster, SECOND, 100)
        async with consumer_of(cluster, topics=["orders"], max_partition_fetch_bytes=400) as consumer:
            offsets = [record.offset for record in await take(consumer, 200)]
            write(cluster, FIRST, [b"more"])
            offsets += [record.offset for record in await take(consumer, 1)]
        assert sorted(offsets) == sorted([*range(101), *range(100)])
        assert {exchange.version for exchange in cluster.history.of(FetchRequest)} == {newest}


async def test_topics_without_an_id_are_fetched_by_name() -> None:
    """Metadata without topic ids and Fetch with them, as for topics that are older than ids."""
    versions = {**default_versions(), MetadataRequest.api_key: (0, 9)}
    async with EmbeddedCluster(brokers=1, tcp=False, config=ClusterConfig(versions=versions)) as cluster:
        await cluster.create_topic("orders")
        fill(cluster, FIRST, 100)
        async with consumer_of(cluster, topics=["orders"]) as consumer:
            assert len(await take(consumer, 100)) == 100
        exchanges = [exchange for exchange in cluster.history.of(FetchRequest) if exchange.request.topics]
        assert {exchange.version for exchange in exchanges} == {12}
