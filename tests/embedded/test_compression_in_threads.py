"""Large batches are compressed in threads: meanwhile the event loop turns, and whatever happens to a batch happens to
these too. Over real sockets, because virtual time has no threads.
"""

from __future__ import annotations

import asyncio
import threading
import zlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from aiokafka_lite import KafkaTimeout, Producer
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import ErrorCode
from aiokafka_lite.protocol.messages import ProduceRequest
from tests.embedded.producer.producers_and_logs import batches_of, values_of
from tests.waiting import DEADLINE, until

LARGE = b"large" * 40_000
SIZES = (10, 200_000, 10, 10, 100_000, 70_000, 300_000, 10)


class Gate:
    """Holds all compressions of gzip that threads begin until ``opened``."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.begun = 0
        self.failures = 0
        """The number of compressions in threads that will fail."""
        self.threads: set[threading.Thread] = set()
        self._compressobj = zlib.compressobj

    def __call__(self, *settings: Any) -> Any:
        thread = threading.current_thread()
        if thread is not threading.main_thread():  # a small batch is compressed in the event loop
            self.threads.add(thread)
            self.begun += 1
            assert self.opened.wait(DEADLINE)
            if self.failures:
                self.failures -= 1
                raise MemoryError
        return self._compressobj(*settings)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate()
    monkeypatch.setattr(zlib, "compressobj", gate)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    yield gate
    gate.opened.set()


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(brokers=1, seed=1, auto_create_topics=False) as cluster:
        await cluster.create_topic("t", 3)
        yield cluster


def producer_of(cluster: EmbeddedCluster, **settings: Any) -> Producer:
    return Producer(cluster.bootstrap_servers, compression="gzip", batch_size=1 << 20, **settings)


async def finish(producer: Producer, gate: Gate) -> None:
    """Send again, and check that nothing of earlier batches is left: memory or load."""
    gate.opened.set()
    await producer.send("t", b"after", partition=0)
    await producer.send("t", LARGE, partition=0)
    metrics = producer.metrics()
    assert metrics.buffered_bytes == 0
    assert metrics.batches_unsettled == 0
    assert [broker.queued_bytes for broker in metrics.brokers.values()] == [0]


async def threads_have_ended(gate: Gate) -> None:
    assert gate.threads
    await until(lambda: not any(thread.is_alive() for thread in gate.threads))


async def test_records_of_other_partitions_are_delivered_while_a_large_one_is_compressed(
    cluster: EmbeddedCluster, gate: Gate
) -> None:
    async with producer_of(cluster) as producer:
        large = producer.send_nowait("t", LARGE, partition=0)
        await until(lambda: gate.begun)
        behind = producer.send_nowait("t", b"behind", partition=0)
        await producer.send("t", b"small", partition=1)
        assert not large.done()
        other = producer.send_nowait("t", LARGE, partition=2)
        await until(lambda: gate.begun == 2)
        gate.opened.set()
        assert [(await delivery).offset for delivery in (large, behind, other)] == [0, 1, 0]
        await finish(producer, gate)
    assert values_of(cluster, "t") == [LARGE, b"behind", b"after", LARGE]
    assert sum(batch.size for batch in batches_of(cluster, "t")) < 10_000
    await threads_have_ended(gate)


async def test_a_cancelled_send_and_a_flush_of_a_large_record(cluster: EmbeddedCluster, gate: Gate) -> None:
    async with producer_of(cluster) as producer:
        send = asyncio.create_task(producer.send("t", LARGE, partition=0))
        await until(lambda: gate.begun)
        send.cancel()
        await asyncio.wait([send])
        assert send.cancelled()
        gate.opened.set()
        await producer.flush()
        assert values_of(cluster, "t") == [LARGE]
        await finish(producer, gate)
    assert values_of(cluster, "t") == [LARGE, b"after", LARGE]


async def test_batches_that_expire_while_they_are_compressed(cluster: EmbeddedCluster, gate: Gate) -> None:
    async with producer_of(cluster, delivery_timeout=0.2, request_timeout=0.2) as producer:
        # The third waits for a thread.
        deliveries = [producer.send_nowait("t", LARGE, partition=number) for number in range(3)]
        for delivery in deliveries:
            with pytest.raises(KafkaTimeout, match="it was not sent"):
                await delivery
    # Closed before the threads have ended.
    gate.opened.set()
    await threads_have_ended(gate)
    assert gate.begun == 2
    assert values_of(cluster, "t") == []


async def test_a_batch_that_expires_while_it_is_compressed_leaves_no_gap(cluster: EmbeddedCluster, gate: Gate) -> None:
    async with producer_of(cluster, delivery_timeout=2.0) as producer:
        await producer.send("t", b"first", partition=0)
        with pytest.raises(KafkaTimeout):
            await producer.send("t", LARGE, partition=0)
        await finish(producer, gate)
    assert values_of(cluster, "t") == [b"first", b"after", LARGE]
    numbers = [(batch.producer_epoch, batch.base_sequence) for batch in batches_of(cluster, "t")]
    assert numbers == [(0, 0), (0, 1), (0, 2)]


async def test_an_aborted_transaction_drops_what_is_being_compressed(cluster: EmbeddedCluster, gate: Gate) -> None:
    async with producer_of(cluster, transactional_id="t1") as producer:
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction() as transaction:
                deliveries = [transaction.send_nowait("t", LARGE, partition=number) for number in range(3)]
                await until(lambda: gate.begun == 2)
                raise ZeroDivisionError
        assert all(delivery.done() for delivery in deliveries)
        assert producer.metrics().buffered_bytes == 0
        gate.opened.set()
        async with producer.transaction() as transaction:
            transaction.send_nowait("t", LARGE, partition=0)
            transaction.send_nowait("t", b"small", partition=0)
    values = [value for batch in batches_of(cluster, "t") if not batch.is_control for value in batch.columns().values]
    assert values == [LARGE, b"small"]
    assert gate.begun == 3  # the third batch of the aborted transaction was not compressed


async def test_a_producer_is_closed_while_a_batch_is_compressed(cluster: EmbeddedCluster, gate: Gate) -> None:
    producer = producer_of(cluster)
    await producer.start()
    deliveries = [producer.send_nowait("t", LARGE, partition=number) for number in range(3)]
    await until(lambda: gate.begun == 2)
    await producer.close(timeout=0.01)
    for delivery in deliveries:
        with pytest.raises(KafkaTimeout, match="was closed"):
            await delivery
    gate.opened.set()
    await threads_have_ended(gate)
    assert gate.begun == 2
    assert values_of(cluster, "t") == []


async def test_a_close_waits_for_a_batch_that_is_compressed(cluster: EmbeddedCluster, gate: Gate) -> None:
    producer = producer_of(cluster)
    await producer.start()
    delivery = producer.send_nowait("t", LARGE, partition=0)
    await until(lambda: gate.begun)
    closing = asyncio.create_task(producer.close())
    await asyncio.sleep(0)
    gate.opened.set()
    await closing
    assert (await delivery).offset == 0
    await threads_have_ended(gate)


async def test_the_leader_moves_while_a_batch_is_compressed(gate: Gate) -> None:
    async with EmbeddedCluster(brokers=2, seed=1, auto_create_topics=False) as cluster:
        await cluster.create_topic("t", 1, replication_factor=2)
        async with producer_of(cluster, metadata_max_age=0.1) as producer:
            await producer.send("t", b"first")
            before = cluster.leader_of("t", 0)
            large = producer.send_nowait("t", LARGE)
            behind = producer.send_nowait("t", b"behind")
            await until(lambda: gate.begun)
            await cluster.stop(before)
            await until(lambda: cluster.leader_of("t", 0) != before)
            gate.opened.set()
            assert [(await delivery).offset for delivery in (large, behind)] == [1, 2]
        assert values_of(cluster, "t") == [b"first", LARGE, b"behind"]


async def test_a_compression_that_fails_in_its_thread_is_repeated(cluster: EmbeddedCluster, gate: Gate) -> None:
    gate.failures = 1
    gate.opened.set()
    async with producer_of(cluster) as producer:
        await finish(producer, gate)
    assert gate.failures == 0
    assert values_of(cluster, "t") == [b"after", LARGE]


async def test_without_a_thread_a_large_batch_is_compressed_in_the_event_loop(
    cluster: EmbeddedCluster, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async with producer_of(cluster) as producer:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            await finish(producer, gate)
    assert gate.begun == 0
    assert values_of(cluster, "t") == [b"after", LARGE]


@pytest.mark.parametrize(("compression", "level"), [("gzip", None), ("lz4", 9), ("zstd", 6), ("zstd", None)])
async def test_records_of_mixed_sizes_keep_their_order_through_retries_and_splits(
    cluster: EmbeddedCluster, compression: str, level: int | None
) -> None:
    values = [b"%04d" % number + bytes(SIZES[number % len(SIZES)]) for number in range(120)]
    for nth, code in ((2, ErrorCode.NOT_ENOUGH_REPLICAS), (4, ErrorCode.MESSAGE_TOO_LARGE), (7, ErrorCode.NONE)):
        rule = cluster.on(ProduceRequest, nth=nth)
        if code is ErrorCode.NONE:
            rule.apply_then_disconnect()
        else:
            rule.fail(code)
    settings: dict[str, Any] = {"compression": compression, "compression_level": level, "batch_size": 400_000}
    async with Producer(cluster.bootstrap_servers, buffer_memory=4 << 20, **settings) as producer:
        deliveries = [await producer.put("t", value, partition=0) for value in values]
        assert [(await delivery).offset for delivery in deliveries] == list(range(120))
        assert producer.metrics().buffered_bytes == 0
        assert producer.metrics().retries >= 2
    assert values_of(cluster, "t") == values
