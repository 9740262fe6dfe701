"""Sending on a healthy cluster: batches, requests, deliveries, bounds."""

from __future__ import annotations

import asyncio
import gc
import itertools
import re
import tracemalloc
from typing import Any

import pytest

from aiokafka_lite.cluster.metadata import ClusterView
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import (
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
from aiokafka_lite.producer import Producer, RoundRobinPartitioner
from aiokafka_lite.protocol.messages import ApiVersionsRequest, InitProducerIdRequest, ProduceRequest
from aiokafka_lite.types import RecordMetadata
from tests.embedded.producer.logs import batches_in, batches_of, producer_of, values_of


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


async def test_the_first_records_of_an_unknown_topic_wait_for_it(cluster: EmbeddedCluster) -> None:
    async with producer_of(cluster) as producer:
        deliveries = [producer.send_nowait("later", b"%d" % number) for number in range(3)]
        await asyncio.sleep(1.0)
        await cluster.create_topic("later", 1)
        assert [(await delivery).offset for delivery in deliveries] == [0, 1, 2]
        assert (await producer.send("later", b"3")).offset == 3
    assert values_of(cluster, "later") == [b"0", b"1", b"2", b"3"]


async def test_a_missing_topic_is_an_error_after_max_block(cluster: EmbeddedCluster) -> None:
    loop = asyncio.get_running_loop()
    async with producer_of(cluster, max_block=5.0) as producer:
        before = loop.time()
        delivery = producer.send_nowait("nowhere", b"v")
        with pytest.raises(UnknownTopic, match="nowhere"):
            await producer.send("nowhere", b"v")
        with pytest.raises(UnknownTopic, match="nowhere"):
            await delivery
        assert 4.9 < loop.time() - before < 5.5
        assert producer.metrics().buffered_bytes == 0
        await cluster.create_topic("nowhere", 1)
        assert (await producer.send("nowhere", b"v")).offset == 0


async def test_a_wrong_partition_of_a_pending_topic_fails_only_its_record(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 2)
    async with producer_of(cluster) as producer:
        wrong, right = (producer.send_nowait("t", b"v", partition=number) for number in (5, 1))
        with pytest.raises(UnknownTopic, match="partition=5"):
            await wrong
        assert (await right).partition == 1


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


async def test_the_delivery_timeout_of_pending_records_counts_from_the_send(
    cluster: EmbeddedCluster,
) -> None:
    loop = asyncio.get_running_loop()
    await cluster.create_topic("u", 1)
    async with producer_of(cluster, delivery_timeout=10.0, request_timeout=4.0) as producer:
        await producer.send("u", b"v")
        began = loop.time()
        ends: dict[bytes, float] = {}

        async def send(value: bytes, topic: str = "t") -> None:
            with pytest.raises(KafkaTimeout, match="delivery_timeout=10 s"):
                await producer.send(topic, value)
            ends[value] = loop.time() - began

        cluster.on(ProduceRequest, times=None).fail(ErrorCode.NOT_ENOUGH_REPLICAS)
        tasks = [asyncio.ensure_future(send(b"0"))]
        await asyncio.sleep(3.0)
        tasks.append(asyncio.ensure_future(send(b"3")))
        await asyncio.sleep(2.0)
        tasks.append(asyncio.ensure_future(send(b"5", "u")))  # begun before those that were held
        await asyncio.sleep(1.0)
        await cluster.create_topic("t", 1)
        await asyncio.gather(*tasks)
        assert ends == {b"0": pytest.approx(10.0, abs=0.01), b"3": pytest.approx(13.0, abs=0.01), b"5": 15.0}


async def test_metadata_is_not_awaited_longer_than_the_delivery_timeout(cluster: EmbeddedCluster) -> None:
    loop = asyncio.get_running_loop()
    async with producer_of(cluster, delivery_timeout=10.0, request_timeout=4.0, max_block=60.0) as producer:
        with pytest.raises(UnknownTopic):
            await producer.send("t", b"v")
        assert loop.time() < 11.0


# Room.


async def test_pending_records_are_charged_for_the_memory_that_they_take(cluster: EmbeddedCluster) -> None:
    async with producer_of(cluster, buffer_memory=1_000_000) as producer:
        held = 0
        gc.collect()
        tracemalloc.start()
        try:
            with pytest.raises(BufferFull):
                while True:
                    producer.send_nowait("t", b"%d" % held, key=b"key")
                    held += 1
            assert held > 1_000
            assert tracemalloc.get_traced_memory()[0] < 1_300_000
        finally:
            tracemalloc.stop()


async def test_pending_records_move_in_slices_and_before_newer_records(cluster: EmbeddedCluster) -> None:
    async with producer_of(cluster, buffer_memory=10_000_000) as producer:
        deliveries = [producer.send_nowait("t", b"%06d" % number) for number in range(20_000)]
        await cluster.create_topic("t", 1)
        topic = producer._pipeline.accumulator.topics["t"]
        while not topic.is_known:
            await asyncio.sleep(0)
        turns = 0
        while topic.pending is not None:
            for _ in range(700):  # a sender that does not stop
                deliveries.append(producer.send_nowait("t", b"%06d" % len(deliveries)))
            await asyncio.sleep(0)
            turns += 1
        assert 10 < turns < 50
        await producer.flush()
        assert [delivery.result().offset for delivery in deliveries] == list(range(len(deliveries)))
        assert producer.metrics().buffered_bytes == 0
    assert values_of(cluster, "t") == [b"%06d" % number for number in range(len(deliveries))]


async def test_records_that_are_moving_wait_if_metadata_loses_their_topic(cluster: EmbeddedCluster) -> None:
    async with producer_of(cluster, max_block=5.0) as producer:
        deliveries = [producer.send_nowait("t", b"%06d" % number) for number in range(5_000)]
        await cluster.create_topic("t", 1)
        topic = producer._pipeline.accumulator.topics["t"]
        while not topic.is_known:
            await asyncio.sleep(0)
        topic.update(ClusterView())
        await producer.flush()
        assert [delivery.result().offset for delivery in deliveries] == list(range(5_000))


async def test_nothing_lingers_while_senders_wait_for_room(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    loop = asyncio.get_running_loop()
    async with producer_of(cluster, buffer_memory=64 * 1024, linger=20.0) as producer:
        began = loop.time()
        results = await asyncio.gather(*(producer.send("t", b"%03d" % number + bytes(1_000)) for number in range(300)))
        assert loop.time() - began < 21.0  # the last ones had room, and lingered
        assert sorted(result.offset for result in results) == list(range(300))
        await producer.drain()
        producer.send_nowait("t", b"v")
        began = loop.time()
        await producer.drain()
        assert loop.time() - began < 1.0


async def test_a_full_buffer_refuses_send_nowait_and_delays_send(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster, buffer_memory=4_000, max_block=2.0) as producer:
        await producer.partitions_for("t")
        with cluster.on(ProduceRequest, times=1).delay(1.0):
            accepted = [producer.send_nowait("t", b"x" * 900) for _ in range(4)]
            with pytest.raises(BufferFull, match="buffer_memory=4000"):
                producer.send_nowait("t", b"x" * 900)
            assert (await producer.send("t", b"y" * 900)).offset == 4
            assert all(delivery.done() for delivery in accepted)
        with cluster.on(ProduceRequest, times=1).delay(5.0):
            for _ in range(4):
                producer.send_nowait("t", b"x" * 900)
            with pytest.raises(KafkaTimeout, match=r"max_block=2 s.*buffer_memory=4000"):
                await producer.send("t", b"x" * 900)
        await producer.drain()
        assert producer.metrics().buffered_bytes <= 4_000
    assert producer.metrics().buffered_bytes == 0


async def test_drain_waits_for_room(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster, buffer_memory=100_000, linger=60.0) as producer:
        accepted = 0
        for number in range(5_000):
            try:
                producer.send_nowait("t", b"%05d" % number + b"x" * 95)
                accepted += 1
            except BufferFull:
                await producer.drain()
                producer.send_nowait("t", b"%05d" % number + b"x" * 95)
    values = values_of(cluster, "t")
    assert len(values) == 5_000
    assert values == sorted(values)  # type: ignore[type-var]
    assert accepted < 5_000


async def test_waiting_senders_get_room_in_the_order_of_their_calls(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster, buffer_memory=3_000) as producer:
        await asyncio.gather(*(producer.send("t", b"%03d" % number + b"x" * 500) for number in range(100)))
    values = values_of(cluster, "t")
    assert values == sorted(values)  # type: ignore[type-var]
    assert len(values) == 100


# The lifetime.


async def test_send_nowait_does_not_overtake_a_sender_that_has_waited_for_room(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster, buffer_memory=4_000) as producer:
        await producer.send("t", b"first")
        for number in range(3):
            producer.send_nowait("t", b"%d" % number * 1_000)
        waiting = asyncio.ensure_future(producer.send("t", b"waited" + b"x" * 1_000))
        await asyncio.sleep(0)
        while True:  # in each iteration of the loop, so also in the one between the release and the wake-up
            try:
                later = producer.send_nowait("t", b"later")
                break
            except BufferFull:
                await asyncio.sleep(0)
        assert (await waiting).offset == 4
        assert (await later).offset == 5


async def test_close_delivers_what_lingers(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster, linger=60.0) as producer:
        delivery = producer.send_nowait("t", b"v")
    assert (await delivery).offset == 0


async def test_close_returns_within_its_timeout_and_settles_every_delivery(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    loop = asyncio.get_running_loop()
    with cluster.on(ProduceRequest, times=None).drop():
        producer = producer_of(cluster)
        await producer.start()
        delivery = producer.send_nowait("t", b"v")
        held = producer.send_nowait("unknown", b"v")
        before = loop.time()
        await producer.close(2.0)
        assert loop.time() - before < 5.0
        for late in (delivery, held):
            with pytest.raises(KafkaTimeout, match="closed"):
                await late
    assert producer.metrics().buffered_bytes == 0
    await producer.close()


async def test_records_that_are_lost_by_closing_are_logged_in_one_line(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("t", "u"):
        await cluster.create_topic(name, 3)
    producer = producer_of(cluster)
    await producer.start()
    with cluster.on(ProduceRequest, times=None).drop():
        for partition in range(3):
            for name in ("t", "u", "nowhere"):
                producer.send_nowait(name, b"v", partition=partition)
        await asyncio.sleep(1.0)
        closing = asyncio.create_task(producer.close())
        await asyncio.sleep(1.0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
    del producer, closing
    gc.collect()
    lines = [record.getMessage() for record in caplog.records if "not delivered" in record.getMessage()]
    assert len(lines) == 1, lines
    assert "records for nowhere, t, u were not delivered: KafkaTimeout" in lines[0]


async def test_an_exception_in_the_body_closes_the_producer_quickly(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    loop = asyncio.get_running_loop()
    with cluster.on(ProduceRequest, times=None).drop():
        with pytest.raises(ZeroDivisionError):
            async with producer_of(cluster) as producer:
                delivery = producer.send_nowait("t", b"v")
                raise ZeroDivisionError
        assert loop.time() < 6.0
    assert isinstance(delivery.exception(), KafkaTimeout)


async def test_a_producer_is_used_only_between_start_and_close(cluster: EmbeddedCluster) -> None:
    producer = producer_of(cluster)
    for call in (lambda: producer.send("t", b""), producer.drain, producer.flush, lambda: producer.partitions_for("t")):
        with pytest.raises(IllegalStateError):
            await call()
    with pytest.raises(IllegalStateError):
        producer.send_nowait("t", b"")
    async with producer:
        pass
    with pytest.raises(IllegalStateError):
        producer.send_nowait("t", b"")


async def test_a_flush_that_times_out_loses_no_record(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    with cluster.on(ProduceRequest, times=1).delay(5.0):
        async with producer_of(cluster) as producer:
            delivery = producer.send_nowait("t", b"v")
            with pytest.raises(KafkaTimeout, match="timeout=1 s"):
                await producer.flush(1.0)
            await producer.flush()
            assert delivery.done()


async def test_a_send_that_times_out_loses_no_record(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    with cluster.on(ProduceRequest, times=1).delay(5.0):
        async with producer_of(cluster) as producer:
            with pytest.raises(KafkaTimeout, match="timeout=1 s"):
                await producer.send("t", b"v", timeout=1.0)
    assert values_of(cluster, "t") == [b"v"]


# Cancellation.


async def cancelled_after(steps: int, call: Any) -> bool:
    """Run a call for some iterations of the loop, then cancel it. Returns whether it was still running."""
    task = asyncio.ensure_future(call)
    for _ in range(steps):
        await asyncio.sleep(0)
        if task.done():
            break
    running = not task.done()
    task.cancel()
    await asyncio.wait([task])
    return running


async def test_a_send_cancelled_at_any_await_leaves_the_producer_consistent(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster, buffer_memory=2_000) as producer:
        steps = 0
        while await cancelled_after(steps, producer.send("t", b"%04d" % steps + b"x" * 800)):
            steps += 1
        assert steps > 3
        await producer.flush()
        assert producer.metrics().buffered_bytes == 0
        await producer.send("t", b"9999")
    values = values_of(cluster, "t")
    assert values == sorted(values)  # type: ignore[type-var]
    assert len(values) == len(set(values))
    assert values[-1] == b"9999"


@pytest.mark.parametrize("name", ["flush", "drain"])
async def test_a_wait_cancelled_at_any_await_can_be_repeated(cluster: EmbeddedCluster, name: str) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster, buffer_memory=2_000) as producer:
        await producer.partitions_for("t")
        steps, running = 0, True
        while running:
            producer.send_nowait("t", b"x" * 1_000)
            running = await cancelled_after(steps, getattr(producer, name)())
            steps += 1
            await producer.flush()
        assert steps > 3
        assert producer.metrics().buffered_bytes == 0


@pytest.mark.parametrize("name", ["start", "close"])
async def test_start_and_close_cancelled_at_any_await_leave_nothing_running(
    cluster: EmbeddedCluster, name: str
) -> None:
    await cluster.create_topic("t", 1)
    before = asyncio.all_tasks()
    steps, running = 1, True  # a task that is cancelled before its first turn has not called anything
    while running and steps < 200:
        producer = producer_of(cluster)
        if name == "close":
            await producer.start()
            producer.send_nowait("t", b"v")
        running = await cancelled_after(steps, getattr(producer, name)())
        if name == "start" and not running:
            await producer.close()
        steps += 1
        ours = {task for task in asyncio.all_tasks() - before if "Producer" in task.get_name()}
        assert not ours
    assert steps > 3


async def test_the_failure_of_a_task_is_raised_by_waiting_calls_and_by_later_calls(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)

    divisor = 2.0
    producer = producer_of(cluster, random=lambda: 1 / divisor)  # jitter asks for it when a record is sent again
    await producer.start()
    await producer.send("t", b"v")
    divisor = 0.0
    cluster.on(ProduceRequest).fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    with pytest.raises(ZeroDivisionError):
        async with asyncio.timeout(5):
            await producer.send("t", b"v")
    with pytest.raises(ZeroDivisionError):
        producer.send_nowait("t", b"v")
    with pytest.raises(ZeroDivisionError):
        await producer.close()


async def test_the_failure_of_the_producer_ends_every_waiting_call(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    divisor = 2.0
    producer = producer_of(cluster, buffer_memory=2_000, max_request_size=1_900, random=lambda: 1 / divisor)
    await producer.start()
    await producer.send("t", b"v")
    divisor = 0.0
    cluster.on(ProduceRequest).fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    accepted = producer.send_nowait("t", bytes(1_500))
    pending = producer.send_nowait("later", b"v")
    calls = [
        producer.send("t", bytes(1_500)),
        producer.put("t", bytes(1_500)),
        producer.send_many("t", [bytes(1_500)]),
        producer.drain(),
        producer.flush(),
        producer.partitions_for("later"),
        accepted,
        pending,
    ]
    async with asyncio.timeout(5):
        results = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(result) for result in results] == [ZeroDivisionError] * len(calls)
    metrics = producer.metrics()
    assert metrics.buffered_bytes == metrics.batches_unsettled == metrics.senders_waiting == 0
    with pytest.raises(ZeroDivisionError):
        await producer.close()


async def test_a_failed_delivery_that_is_not_awaited_is_logged_once(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.create_topic("t", 1)
    cluster.on(ProduceRequest).fail(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    async with producer_of(cluster) as producer:
        await producer.partitions_for("t")
        for _ in range(10):
            producer.send_nowait("t", b"v")
        await producer.flush()
    messages = [record.getMessage() for record in caplog.records if "not delivered" in record.getMessage()]
    assert len(messages) == 1
    assert "t-0" in messages[0]


async def test_the_constructor_needs_no_loop_and_does_no_io() -> None:
    await asyncio.to_thread(Producer, "nowhere.invalid:1")


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


async def test_send_many_returns_a_result_for_each_record(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster, buffer_memory=20_000) as producer:
        values: list[Any] = [b"%05d" % number for number in range(2_000)]
        values[700] = object()
        results = await producer.send_many("t", values, keys=[b"k"] * 2_000)
    assert isinstance(results[700], SerializationError)
    assert [result.offset for result in results if isinstance(result, RecordMetadata)] == list(range(1_999))
    assert values_of(cluster, "t") == [value for value in values if isinstance(value, bytes)]


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
        given: list[Any] = [value.decode() for value in values] if text else values
        results = await producer.send_many("t", given, keys=keys, headers=[("h", b"1")], timestamp=7)
        single = [await producer.send("t", b"x", key=key) for key in keys[:37]]
    assert len(results) == 5_000
    assert [each.partition for each in results[:37]] == [each.partition for each in single]
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
        taken = 0

        def values() -> Any:
            nonlocal taken
            for _ in range(2_000):
                taken += 1000
                assert taken - 1_000 * producer.metrics().records_delivered <= 225_000
                yield bytes(1_000)

        assert len(await producer.send_many("t", values())) == 2_000
        assert producer.metrics().buffered_bytes == 0


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


async def test_delivered_batches_keep_no_bytes(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster) as producer:
        deliveries = [producer.send_nowait("t", bytes(1_000)) for _ in range(100)]
        await producer.flush()
        kept = {delivery.batch_result for delivery in deliveries}
        assert all(batch.builder.uncompressed_size == 0 for batch in kept)
        assert [(await delivery).offset for delivery in deliveries] == list(range(100))


async def test_send_many_refuses_values_and_keys_that_are_no_iterables_before_sending(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster) as producer:
        for wrong in ("ab", b"ab", bytearray(b"ab"), None, 5):
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


async def test_a_refused_record_releases_its_memory(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster) as producer:
        await producer.send("t", b"v")
        for arguments in ({"partition": 2**31}, {"partition": -1}, {"partition": "0"}, {"key": 5}, {"timestamp": -1}):
            with pytest.raises((UnknownTopic, SerializationError)):
                producer.send_nowait("t", b"v", **arguments)  # type: ignore[arg-type]
        assert producer.metrics().buffered_bytes == 0


async def test_tasks_that_drain_a_small_buffer_all_make_progress(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    drained = 0

    async def write(producer: Producer) -> None:
        nonlocal drained
        for _ in range(20):
            while True:
                try:
                    producer.send_nowait("t", b"x" * 1_000)
                    break
                except BufferFull:
                    drained += 1
                    assert drained < 1_000
                    await producer.drain()

    async with producer_of(cluster, buffer_memory=4_000) as producer:
        await asyncio.gather(write(producer), write(producer), write(producer))
    assert len(values_of(cluster, "t")) == 60
