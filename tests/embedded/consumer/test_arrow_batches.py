"""``batches().to_arrow()``: the same records as ``batches()``, with the same rules about positions and errors."""

from __future__ import annotations

import pytest

from aiokafka_lite.consumer import Consumer
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import ConfigurationError, CorruptRecord
from aiokafka_lite.protocol.messages import FetchRequest
from aiokafka_lite.protocol.records import encode_batch
from aiokafka_lite.types import Compression, TopicPartition
from tests.embedded.consumer.direct_writes import consumer_of, fill, write, write_batch
from tests.waiting import until

pytest.importorskip("pyarrow")

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


@pytest.fixture
async def orders(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("orders", partitions=2)


async def offsets_of(consumer: Consumer, count: int, **options: int) -> dict[int, list[int]]:
    """Return the offsets of so many records by partition, read as Arrow record batches."""
    offsets: dict[int, list[int]] = {}
    async for batch in consumer.batches(**options).to_arrow(["partition", "offset"]):
        for partition, offset in zip(batch["partition"].to_pylist(), batch["offset"].to_pylist()):
            offsets.setdefault(partition, []).append(offset)
        if sum(map(len, offsets.values())) >= count:
            return offsets
    raise AssertionError("the iteration ended")


@pytest.mark.usefixtures("orders")
async def test_every_record_comes_once_and_in_order(cluster: EmbeddedCluster) -> None:
    for partition in (FIRST, SECOND):
        fill(cluster, partition, 100)
    async with consumer_of(cluster, topics=["orders"]) as consumer:
        offsets = await offsets_of(consumer, 200, max_records=30)
        assert offsets == {0: list(range(100)), 1: list(range(100))}
        assert [await consumer.position(partition) for partition in (FIRST, SECOND)] == [100, 100]


@pytest.mark.usefixtures("orders")
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.LZ4])
async def test_the_columns_are_those_of_a_batch(cluster: EmbeddedCluster, codec: Compression) -> None:
    values = [b"", b"v", None, b"vvv"]
    rows = [(1_000 + number, b"k%d" % number, value, [("h", b"1")]) for number, value in enumerate(values)]
    write_batch(cluster, FIRST, encode_batch(rows, compression=codec))
    async with consumer_of(cluster, topics=["orders"]) as consumer:
        expected = (await anext(consumer.batches())).to_arrow(headers=True)
        await consumer.seek_to_beginning()
        assert (await anext(consumer.batches().to_arrow(headers=True))).equals(expected)
        consumer.seek(FIRST, 0)
        assert (await anext(consumer.batches().to_arrow(["value", "key"]))).schema.names == ["value", "key"]
        with pytest.raises(ConfigurationError, match="columns must be some of"):
            consumer.batches().to_arrow(["size"])


@pytest.mark.usefixtures("orders")
async def test_it_continues_where_another_way_of_reading_stopped(cluster: EmbeddedCluster) -> None:
    write(cluster, FIRST, [b"v"] * 100)
    write(cluster, FIRST, [b"v"] * 100)
    async with consumer_of(cluster, topics=["orders"]) as consumer:
        assert [record.offset for record in await consumer.poll(30, timeout=10.0)] == list(range(30))
        assert (await anext(aiter(consumer))).offset == 30
        assert (await offsets_of(consumer, 169))[0] == list(range(31, 200))


@pytest.mark.usefixtures("orders")
async def test_records_before_an_unreadable_batch_are_returned_first(cluster: EmbeddedCluster) -> None:
    write(cluster, FIRST, [b"v"] * 10)
    write(cluster, FIRST, [b"v"] * 10)
    write_batch(cluster, FIRST, encode_batch([(1, None, b"v", ())]), damage=1)
    write(cluster, FIRST, [b"v"] * 10)
    async with consumer_of(cluster, topics=["orders"]) as consumer:
        batches = consumer.batches().to_arrow(["offset"])
        assert len(await anext(batches)) == 20
        for _ in range(2):
            with pytest.raises(CorruptRecord, match=r"orders-0 cannot be read at offset 20: .*seek to 21") as caught:
                await anext(batches)
            assert caught.value.next_offset == 21
        consumer.seek(FIRST, 21)
        assert (await anext(batches))["offset"].to_pylist() == list(range(21, 31))


@pytest.mark.usefixtures("orders")
async def test_a_batch_that_is_not_what_its_header_says_does_not_hide_the_batches_before_it(
    cluster: EmbeddedCluster,
) -> None:
    write(cluster, FIRST, [b"v"] * 10)
    data = bytearray(encode_batch([(1, None, b"value", ())]))
    data[57:61] = (9).to_bytes(4, "big")  # nine records are claimed
    write_batch(cluster, FIRST, bytes(data))
    async with consumer_of(cluster, topics=["orders"], check_crcs=False) as consumer:
        batches = consumer.batches().to_arrow(["offset"])
        assert len(await anext(batches)) == 10
        with pytest.raises(CorruptRecord, match="orders-0 cannot be read at offset 10"):
            await anext(batches)


@pytest.mark.usefixtures("orders")
@pytest.mark.parametrize("arrow", [False, True], ids=["poll", "to_arrow"])
async def test_an_answer_in_flight_leaves_no_gap_behind_a_batch_that_could_not_be_decoded(
    cluster: EmbeddedCluster, arrow: bool
) -> None:
    """The next fetch is in flight while the batch is read; its answer comes after the batch was refused."""
    write_batch(cluster, FIRST, encode_batch([(1, None, b"v", ())]), damage=1)
    async with consumer_of(cluster, topics=["orders"], fetch_max_wait=20.0) as consumer:
        read = consumer.batches().to_arrow(["offset"]).__anext__ if arrow else lambda: consumer.poll(timeout=10.0)
        leader = cluster.leader_of(*FIRST)

        def is_asked_again() -> bool:
            requests = [exchange.request for exchange in cluster.history.of(FetchRequest, node=leader)]
            offsets = [
                part.fetch_offset for request in requests for topic in request.topics for part in topic.partitions
            ]
            return 1 in offsets

        await until(is_asked_again, "the offset after the batch is asked for")
        with pytest.raises(CorruptRecord, match="offset 0"):
            await read()
        write(cluster, FIRST, [b"later"] * 3)
        with pytest.raises(CorruptRecord, match="offset 0"):
            await read()
