"""Tables of Arrow through the whole producer: order, partitions, memory, retries, results."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import (
    ErrorCode,
    IllegalStateError,
    KafkaTimeout,
    RecordTooLarge,
    SerializationError,
    UnknownTopic,
)
from aiokafka_lite.producer import ExplicitPartitioner, RoundRobinPartitioner
from aiokafka_lite.protocol.messages import ProduceRequest
from aiokafka_lite.protocol.records import partition_for_key
from aiokafka_lite.types import Compression
from tests.embedded.producer.producers_and_logs import batches_of, producer_of, values_of

pa = pytest.importorskip("pyarrow")
pytest.importorskip("numpy")


def numbered(count: int, size: int = 10) -> list[bytes]:
    return [b"%0*d" % (size, number) for number in range(count)]


async def test_rows_are_written_in_order_and_their_offsets_are_returned(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    values = numbered(5_000, 100)
    async with producer_of(cluster) as producer:
        runs = await producer.send_arrow("t", pa.table({"value": values}))
    assert values_of(cluster, "t") == values
    assert {run.partition for run in runs} == {0}
    assert sum(run.records for run in runs) == 5_000
    assert [run.base_offset for run in runs] == [batch.base_offset for batch in batches_of(cluster, "t")]
    assert max(batch.size for batch in batches_of(cluster, "t")) <= producer.config.batch_size


async def test_keys_go_to_the_partitions_that_send_gives_them(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 3)
    keys = [b"key-%d" % (number % 50) for number in range(1_000)]
    values = numbered(1_000)
    async with producer_of(cluster) as producer:
        await producer.send_arrow("t", pa.table({"key": keys, "value": values}))
    for partition in range(3):
        expected = [value for key, value in zip(keys, values) if partition_for_key(key, 3) == partition]
        assert values_of(cluster, "t", partition) == expected


async def test_rows_with_a_partition_go_there_and_other_rows_go_by_key_or_anywhere(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 4)
    elsewhere = partition_for_key(b"k", 4)
    named = (elsewhere + 1) % 4
    table = pa.table(
        {
            "value": [b"named", b"keyed", b"free"],
            "key": pa.array([b"k", b"k", None], pa.binary()),
            "partition": pa.array([named, None, None], pa.int32()),
        }
    )
    async with producer_of(cluster) as producer:
        runs = await producer.send_arrow("t", table)
    assert values_of(cluster, "t", named)[0] == b"named"
    assert b"keyed" in values_of(cluster, "t", elsewhere)
    assert sum(run.records for run in runs) == 3


async def test_rows_without_key_spread_as_sticky_batches_do(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 3)
    async with producer_of(cluster) as producer:
        await producer.send_arrow("t", pa.table({"value": numbered(20_000, 100)}))
    assert all(values_of(cluster, "t", partition) for partition in range(3))


async def test_a_custom_partitioner_is_called_for_each_row_without_a_partition(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 3)
    async with producer_of(cluster, partitioner=RoundRobinPartitioner()) as producer:
        await producer.send_arrow("t", pa.table({"value": numbered(6)}))
    assert values_of(cluster, "t", 1) == [numbered(6)[1], numbered(6)[4]]
    async with producer_of(cluster, partitioner=ExplicitPartitioner()) as producer:
        await producer.send_arrow("t", pa.table({"value": [b"v"], "partition": [2]}))
        with pytest.raises(IllegalStateError, match="names no partition"):
            await producer.send_arrow("t", pa.table({"value": [b"v"]}))


async def test_headers_and_timestamps_arrive(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    table = pa.table(
        {
            "value": pa.array([b"a", None], pa.binary()),
            "headers": [[{"key": "h", "value": b"1"}], None],
            "timestamp": pa.array([1_000, 2_000], pa.timestamp("ms")),
        }
    )
    async with producer_of(cluster) as producer:
        await producer.send_arrow("t", table)
    columns = batches_of(cluster, "t")[0].columns()
    assert (columns.values, columns.headers) == ([b"a", None], [(("h", b"1"),), ()])
    assert columns.timestamps == [1_000, 2_000]


@pytest.mark.parametrize("compression", [Compression.GZIP, Compression.LZ4, Compression.ZSTD])
async def test_batches_are_compressed_and_fill_up_when_the_ratio_is_known(
    cluster: EmbeddedCluster, compression: Compression
) -> None:
    await cluster.create_topic("t", 1)
    values = numbered(30_000, 100)
    async with producer_of(cluster, compression=compression) as producer:
        for _ in range(20):
            await producer.send_arrow("t", pa.table({"value": values[:3_000]}))
    batches = batches_of(cluster, "t")
    assert {batch.compression for batch in batches} == {compression}
    assert batches[-1].count > 2 * batches[0].count
    assert values_of(cluster, "t") == values[:3_000] * 20


async def test_records_that_were_sent_before_a_table_stay_before_it(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster) as producer:
        pending = producer.send_nowait("t", b"held while the topic is asked for")
        await producer.send_arrow("t", pa.table({"value": [b"second"]}))
        open_batch = producer.send_nowait("t", b"third")
        promise = await producer.put_arrow("t", pa.table({"value": [b"fourth"]}))
        last = producer.send_nowait("t", b"fifth")
        await asyncio.gather(pending, open_batch, last)
        assert [run.base_offset for run in await promise] == [3]
    assert values_of(cluster, "t") == [
        b"held while the topic is asked for",
        b"second",
        b"third",
        b"fourth",
        b"fifth",
    ]


async def test_a_table_larger_than_the_buffer_waits_for_room(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    values = numbered(2_000, 1_000)
    async with producer_of(cluster, buffer_memory=100_000, batch_size=16_384) as producer:
        used: list[int] = []
        with cluster.on(ProduceRequest, times=None).delay(0.1):
            sending = asyncio.create_task(producer.send_arrow("t", pa.table({"value": values})))
            while not sending.done():
                used.append(producer.metrics().buffered_bytes)
                await asyncio.sleep(0.05)
        assert sum(run.records for run in await sending) == 2_000
        assert max(used) <= 100_000
        assert producer.metrics().buffered_bytes == 0
    assert values_of(cluster, "t") == values


async def test_a_table_without_room_fails_after_max_block_and_holds_no_memory(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster, buffer_memory=50_000, batch_size=16_384, max_block=1.0) as producer:
        with cluster.on(ProduceRequest, times=None).delay(5.0):
            with pytest.raises(KafkaTimeout, match="max_block"):
                await producer.send_arrow("t", pa.table({"value": numbered(200, 1_000)}))
            await producer.flush()
        assert producer.metrics().buffered_bytes == 0


async def test_rows_are_written_once_and_in_order_through_retries(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1, 3)
    values = numbered(20_000, 100)
    async with producer_of(cluster) as producer:
        with cluster.on(ProduceRequest, times=3).disconnect():
            await producer.send_arrow("t", pa.table({"value": values}))
    assert values_of(cluster, "t") == values


async def test_a_batch_of_rows_that_is_too_large_for_the_broker_is_split(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    values = numbered(2_000, 100)
    async with producer_of(cluster) as producer:
        with cluster.on(ProduceRequest, times=2).fail(ErrorCode.MESSAGE_TOO_LARGE):
            runs = await producer.send_arrow("t", pa.table({"value": values}))
    assert values_of(cluster, "t") == values
    assert sum(run.records for run in runs) == 2_000
    assert [run.base_offset for run in runs] == [batch.base_offset for batch in batches_of(cluster, "t")]


async def test_the_error_of_a_refused_batch_is_raised_when_all_rows_are_settled(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster) as producer:
        with cluster.on(ProduceRequest, times=1).fail(ErrorCode.TOPIC_AUTHORIZATION_FAILED):
            promise = await producer.put_arrow("t", pa.table({"value": numbered(5_000, 100)}))
            with pytest.raises(Exception, match="TOPIC_AUTHORIZATION_FAILED"):
                await promise
        assert promise.done()
        with pytest.raises(Exception, match="TOPIC_AUTHORIZATION_FAILED"):
            await promise


@pytest.mark.parametrize(
    "table, error, complaint",
    [
        (
            {"value": [b"v"] * 3, "partition": [0, 1, 7]},
            UnknownTopic,
            "topic 't' has partitions 0 to 1, got partition=7",
        ),
        ({"value": [b"v"], "partition": [-2]}, UnknownTopic, "partition=-2"),
        ({"value": [b"v", bytes(2_000_000)]}, RecordTooLarge, "above max_request_size=1048576"),
        ({"value": [1]}, SerializationError, "binary or string"),
    ],
)
async def test_nothing_is_sent_of_a_table_that_is_wrong(
    cluster: EmbeddedCluster, table: dict[str, Any], error: type[Exception], complaint: str
) -> None:
    await cluster.create_topic("t", 2)
    async with producer_of(cluster) as producer:
        with pytest.raises(error, match=complaint):
            await producer.send_arrow("t", pa.table(table))
        assert producer.metrics().records_sent == 0


async def test_a_wrong_table_a_missing_topic_and_serializers_are_refused(cluster: EmbeddedCluster) -> None:
    async with producer_of(cluster, max_block=2.0, value_serializer=str.encode) as producer:
        with pytest.raises(IllegalStateError, match="with serializers or interceptors"):
            await producer.send_arrow("t", pa.table({"value": [b"v"]}))
    async with producer_of(cluster, max_block=2.0) as producer:
        with pytest.raises(SerializationError, match="got list"):
            await producer.send_arrow("t", [b"v"])
        with pytest.raises(UnknownTopic):
            await producer.send_arrow("nowhere", pa.table({"value": [b"v"]}))


async def test_a_table_without_rows_needs_no_request(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster) as producer:
        assert await producer.send_arrow("t", pa.table({"value": pa.array([], pa.binary())})) == []
        assert producer.metrics().requests_sent == 0
