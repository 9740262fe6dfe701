"""Sending on a healthy cluster: batches, requests, order, and the choice of a partition."""

from __future__ import annotations

import asyncio
import itertools
import re
from typing import Any

import pytest

from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import (
    ConfigurationError,
    InvalidTopic,
    SerializationError,
)
from aiokafka_lite.producer import RoundRobinPartitioner
from aiokafka_lite.protocol.messages import ApiVersionsRequest, InitProducerIdRequest, ProduceRequest
from tests.embedded.producer.producers_and_logs import batches_in, batches_of, producer_of, values_of


async def test_records_of_one_iteration_of_the_loop_are_sent_together(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster) as producer:
        await producer.partitions_for("t")
        deliveries = [producer.send_nowait("t", b"%d" % number) for number in range(5)]
        assert [(await delivery).offset for delivery in deliveries] == [0, 1, 2, 3, 4]
    assert len(batches_of(cluster, "t")) == 1


async def test_records_of_concurrent_senders_share_batches(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster) as producer:
        await producer.partitions_for("t")
        await asyncio.gather(*(producer.send("t", b"%d" % number) for number in range(1_000)))
    assert values_of(cluster, "t") == [b"%d" % number for number in range(1_000)]
    assert len(batches_of(cluster, "t")) == 1


async def test_a_lone_awaited_send_leaves_in_the_iteration_of_the_loop_in_which_it_was_made(
    cluster: EmbeddedCluster,
) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster) as producer:
        for number in range(3):
            await producer.send("t", b"%d" % number)
        sending = asyncio.create_task(producer.send("t", b"lone"))
        await asyncio.sleep(0)  # the task has run once
        assert producer.metrics().requests_sent == 4
        assert (await sending).offset == 3


async def test_records_sent_together_after_lone_ones_cost_one_request_more_once(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster) as producer:
        for number in range(3):
            await producer.send("t", b"%d" % number)
        for burst in range(3):
            before = producer.metrics().requests_sent
            await asyncio.gather(*(producer.send("t", b"%d" % number) for number in range(100)))
            assert producer.metrics().requests_sent - before == (2 if burst == 0 else 1)
    assert values_of(cluster, "t") == [b"%d" % n for n in range(3)] + [b"%d" % n for n in range(100)] * 3


async def test_a_record_that_begins_a_batch_leaves_in_the_next_iteration_if_the_connection_is_free(
    cluster: EmbeddedCluster,
) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster) as producer:
        await asyncio.gather(*(producer.send("t", b"%d" % number) for number in range(3)))
        sent = producer.metrics().requests_sent
        deliveries = [producer.send_nowait("t", b"next") for _ in range(3)]
        assert producer.metrics().requests_sent == sent
        await asyncio.sleep(0)
        assert producer.metrics().requests_sent == sent + 1
        assert [(await delivery).offset for delivery in deliveries] == [3, 4, 5]


async def test_batches_grow_while_requests_are_in_flight(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    with cluster.on(ProduceRequest, times=None).delay(1.0):
        async with producer_of(cluster, max_in_flight_requests_per_connection=1) as producer:
            await producer.send("t", b"first")
            early = producer.send_nowait("t", b"second")
            await asyncio.sleep(0.1)
            late = [producer.send_nowait("t", b"late") for _ in range(50)]
            await asyncio.gather(early, *late)
    assert [batch.count for batch in batches_of(cluster, "t")] == [1, 1, 50]


async def test_linger_counts_from_the_first_record_of_a_batch(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    loop = asyncio.get_running_loop()
    async with producer_of(cluster, linger=1.0) as producer:
        await producer.partitions_for("t")
        before = loop.time()
        first = producer.send_nowait("t", b"0")
        for number in range(1, 5):  # later records do not restart linger
            await asyncio.sleep(0.3)
            producer.send_nowait("t", b"%d" % number)
        await first
        assert 1.0 <= loop.time() - before < 1.3
        await producer.flush()
    assert next(batch.count for batch in batches_of(cluster, "t")) == 4


async def test_each_partition_lingers_from_its_own_first_record(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 3)
    loop = asyncio.get_running_loop()
    async with producer_of(cluster, linger=1.0, batch_size=1_000) as producer:
        await producer.partitions_for("t")
        began, waits = loop.time(), list[asyncio.Future[Any]]()

        def send(partition: int, size: int = 1) -> None:
            waits.append(producer.send_nowait("t", b"x" * size, partition=partition).future())

        send(0)
        await asyncio.sleep(0.3)
        send(1, 800)
        await asyncio.sleep(0.3)
        send(2)
        send(1, 800)  # the batch before is full, and leaves now
        times: list[float] = []
        for delivery in (waits[1], waits[0], waits[2], waits[3]):
            await delivery
            times.append(loop.time() - began)
        assert times == pytest.approx([0.6, 1.0, 1.6, 1.6], abs=0.05)


async def test_a_pending_record_lingers_from_its_send(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    loop = asyncio.get_running_loop()
    async with producer_of(cluster, linger=20.0) as producer:
        await producer.partitions_for("t")
        began = loop.time()
        pending = producer.send_nowait("u", b"1")
        await asyncio.sleep(5.0)
        await cluster.create_topic("u", 1)
        later = producer.send_nowait("t", b"2")
        await pending
        assert loop.time() - began == pytest.approx(20.0, abs=0.5)
        await later
        assert loop.time() - began == pytest.approx(25.0, abs=0.5)


async def test_a_full_batch_does_not_linger(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    loop = asyncio.get_running_loop()
    async with producer_of(cluster, linger=60.0, batch_size=1_000) as producer:
        deliveries = [producer.send_nowait("t", b"x" * 400) for _ in range(3)]
        await deliveries[0]
        await deliveries[1]
        assert loop.time() < 1.0
        assert not deliveries[2].done()
        await producer.flush()
        assert loop.time() < 1.0


async def test_one_request_carries_all_partitions_of_a_leader_and_one_batch_of_each(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 9)
    async with producer_of(cluster, batch_size=200) as producer:
        await producer.send("t", b"hello")
        cluster.history.clear()
        for number in range(90):
            producer.send_nowait("t", b"x" * 100, partition=number % 9)
        await producer.flush()
    requests = [exchange.request for exchange in cluster.history.of(ProduceRequest)]
    assert len(batches_in(requests[0])) == 3
    for request in requests:
        partitions = [partition.index for topic in request.topic_data for partition in topic.partition_data]
        assert len(partitions) == len(set(partitions))


async def test_a_request_is_at_most_max_request_size(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 30)
    async with producer_of(cluster, max_request_size=20_000, batch_size=8_000) as producer:
        for number in range(300):
            producer.send_nowait("t", b"x" * 1_500, partition=number % 30)
        await producer.flush()
    requests = [exchange.request for exchange in cluster.history.of(ProduceRequest)]
    sizes = [sum(batch.size for batch in batches_in(request)) for request in requests]
    assert max(sizes) <= 20_000
    assert max(len(batches_in(request)) for request in requests) > 1


async def test_the_number_of_requests_in_flight_is_bounded(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    most = 0
    with cluster.on(ProduceRequest, times=None).delay(0.05):
        async with producer_of(cluster, batch_size=100, max_in_flight_requests_per_connection=3) as producer:
            await producer.send("t", b"hello")
            deliveries = [producer.send_nowait("t", b"x" * 60) for _ in range(50)]
            while not all(delivery.done() for delivery in deliveries):
                most = max(most, producer.metrics().requests_in_flight)
                await asyncio.sleep(0.01)
    assert most == 3


async def test_the_number_of_requests_in_flight_is_bounded_over_all_partitions_of_a_broker(
    cluster: EmbeddedCluster,
) -> None:
    await cluster.create_topic("t", 10, assignments=[[1]] * 10)
    in_flight: list[int] = []
    async with producer_of(cluster, max_in_flight_requests_per_connection=3) as producer:
        await producer.send("t", b"hello")
        with cluster.on(ProduceRequest, times=None).delay(1.0):
            deliveries = []
            for number in range(10):  # each in an iteration of the loop of its own
                deliveries.append(producer.send_nowait("t", b"v", partition=number))
                await asyncio.sleep(0.01)
                in_flight.append(producer.metrics().requests_in_flight)
            await asyncio.gather(*deliveries)
    assert in_flight == [1, 2, 3, 3, 3, 3, 3, 3, 3, 3]


@pytest.mark.parametrize("acks", [0, 1, "all"])
async def test_order_is_kept_with_all_acks(cluster: EmbeddedCluster, acks: Any) -> None:
    await cluster.create_topic("t", 3)
    async with producer_of(cluster, acks=acks, batch_size=500) as producer:
        for number in range(2_000):
            producer.send_nowait("t", b"%06d" % number, key=b"%d" % (number % 20))
        await producer.flush()
    written = [values_of(cluster, "t", partition) for partition in range(3)]
    async with asyncio.timeout(10):
        while sum(map(len, written)) < 2_000:  # with acks=0, flushed means written to the connection
            await asyncio.sleep(0.01)
            written = [values_of(cluster, "t", partition) for partition in range(3)]
    for values in written:
        assert values == sorted(values)  # type: ignore[type-var]
    assert sum(map(len, written)) == 2_000


async def test_idempotence_is_on_by_default_and_numbers_each_partition_from_zero(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 2)
    async with producer_of(cluster) as producer:
        for number in range(6):
            await producer.send("t", b"v", partition=number % 2)
    for partition in range(2):
        batches = batches_of(cluster, "t", partition)
        assert [batch.base_sequence for batch in batches] == [0, 1, 2]
        assert {(batch.producer_id >= 0, batch.producer_epoch) for batch in batches} == {(True, 0)}
    assert len(cluster.history.of(InitProducerIdRequest)) == 1


async def test_without_idempotence_no_producer_id_is_requested(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster, acks=1) as producer:
        await producer.send("t", b"v")
    assert batches_of(cluster, "t")[0].producer_id == -1
    assert not cluster.history.of(InitProducerIdRequest)


async def test_round_robin_goes_to_each_partition_in_turn(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 3)
    async with producer_of(cluster, partitioner=RoundRobinPartitioner()) as producer:
        for key in (b"k", None):  # a lone record is a batch, and a record without a key may move at its end
            sent = [await producer.send("t", b"v", key=key) for _ in range(6)]
            assert [metadata.partition for metadata in sent] == [0, 1, 2, 0, 1, 2]


async def test_records_without_a_key_fill_a_batch_before_they_change_partition(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 4)
    async with producer_of(cluster, linger=1.0) as producer:
        deliveries = [producer.send_nowait("t", b"x" * 1_000) for _ in range(1_000)]
        partitions = [(await delivery).partition for delivery in deliveries]
    moves = sum(before != after for before, after in itertools.pairwise(partitions))
    assert set(partitions) == {0, 1, 2, 3}
    assert moves <= 1_000 * 1_000 // (64 * 1024) + 2


@pytest.mark.parametrize("is_known", [False, True])
async def test_arguments_of_a_wrong_type_are_named(cluster: EmbeddedCluster, is_known: bool) -> None:
    await cluster.create_topic("t", 2)  # with a partition 1, which is equal to True
    calls: list[tuple[type[Exception], str, Any, dict[str, Any]]] = [
        (InvalidTopic, r"topic must be a string, got \['t'\]", ["t"], {}),
        (InvalidTopic, "topic must be a string, got b't'", b"t", {}),
        (SerializationError, r"partition .*'t' must be an int.*got '0'", "t", {"partition": "0"}),
        (SerializationError, r"partition .*got 0\.0", "t", {"partition": 0.0}),
        (SerializationError, "partition .*got True", "t", {"partition": True}),
        (SerializationError, "header.*must be text", "t", {"headers": [("\ud800", b"v")]}),
        (SerializationError, "timestamp .*got 'now'", "t", {"timestamp": "now"}),
    ]
    async with producer_of(cluster) as producer:
        if is_known:
            await producer.partitions_for("t")
        for kind, text, topic, arguments in calls:
            with pytest.raises(kind, match=text):
                producer.send_nowait(topic, b"v", **arguments)
            with pytest.raises(kind, match=text):
                await producer.send(topic, b"v", **arguments)
            (result,) = await producer.send_many(topic, [b"v"], **arguments)
            assert isinstance(result, kind)
            assert re.search(text, str(result))
        for timeout in ("5", True, float("nan")):
            for call in (
                producer.send("t", timeout=timeout),  # type: ignore[arg-type]
                producer.flush(timeout),  # type: ignore[arg-type]
                producer.close(timeout),  # type: ignore[arg-type]
            ):
                with pytest.raises(ConfigurationError, match="timeout must be a number of seconds"):
                    await call
        assert producer.metrics().buffered_bytes == 0
        assert (await producer.send("t", b"v")).offset == 0
        assert producer.metrics().records_delivered == 1


async def test_batches_that_compress_well_are_filled(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster, compression="zstd", batch_size=4_000, linger=60.0) as producer:
        for number in range(20_000):
            producer.send_nowait("t", b"a value much like the others %05d" % number)
            if number % 1_000 == 999:
                await producer.drain()
                await asyncio.sleep(1.0)
        await producer.flush()
    sizes = [batch.size for batch in batches_of(cluster, "t")]
    counts = [batch.count for batch in batches_of(cluster, "t")]
    assert counts[-2] > 4 * counts[0]
    assert max(sizes) < 5_000


async def test_a_partition_that_fills_up_during_a_reconnect_has_one_batch_per_request(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster, batch_size=100) as producer:
        await producer.send("t", b"000000")
        cluster.on(ProduceRequest).disconnect()
        cluster.on(ApiVersionsRequest).delay(1.0)
        deliveries = [producer.send_nowait("t", b"000001")]
        for number in range(2, 30):
            await asyncio.sleep(0.05)
            deliveries.append(producer.send_nowait("t", b"%06d" % number))
        assert [(await delivery).offset for delivery in deliveries] == list(range(1, 30))
    assert values_of(cluster, "t") == [b"%06d" % number for number in range(30)]
    for exchange in cluster.history.of(ProduceRequest):
        assert len(batches_in(exchange.request)) == 1
