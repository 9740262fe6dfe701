"""From start to close: timeouts, cancelled calls, and the failure of a task."""

from __future__ import annotations

import asyncio
import gc

import pytest

from aiokafka_lite.aio.service import ServiceState
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import (
    ErrorCode,
    IllegalStateError,
    KafkaTimeout,
)
from aiokafka_lite.producer import Delivery, Producer
from aiokafka_lite.protocol.messages import InitProducerIdRequest, ProduceRequest
from aiokafka_lite.types import RecordMetadata
from tests.cancelling import cancel_after
from tests.embedded.producer.producers_and_logs import producer_of, values_of
from tests.waiting import until


async def test_the_constructor_needs_no_loop_and_does_no_io() -> None:
    await asyncio.to_thread(Producer, "nowhere.invalid:1")


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
        pending = producer.send_nowait("unknown", b"v")
        before = loop.time()
        await producer.close(2.0)
        assert loop.time() - before < 5.0
        for late in (delivery, pending):
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


async def test_a_send_cancelled_at_any_await_leaves_the_producer_consistent(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster, buffer_memory=2_000) as producer:
        steps = 0
        while not await cancel_after(steps, producer.send("t", b"%04d" % steps + b"x" * 800)):
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
            running = not await cancel_after(steps, getattr(producer, name)())
            steps += 1
            await producer.flush()
        assert steps > 3
        assert producer.metrics().buffered_bytes == 0


async def test_a_producer_has_a_task_for_its_id_only_while_it_requests_one(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)

    def tasks() -> list[str]:
        return [task.get_name() for task in asyncio.all_tasks() if "producer id" in task.get_name()]

    async with producer_of(cluster) as producer:
        await producer.partitions_for("t")
        assert tasks() == []
        cluster.on(InitProducerIdRequest).delay(1.0)
        delivery = producer.send_nowait("t", b"v")
        await until(lambda: tasks() == ["Producer: producer id"])
        await delivery
        assert tasks() == []


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
        running = not await cancel_after(steps, getattr(producer, name)())
        if name == "start" and not running:
            await producer.close()
        steps += 1
        ours = {task for task in asyncio.all_tasks() - before if "Producer" in task.get_name()}
        assert not ours
    assert steps > 3


# Failures.


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


async def test_a_callback_that_sends_again_while_the_producer_fails_gets_an_error_and_no_open_promise(
    cluster: EmbeddedCluster,
) -> None:
    await cluster.create_topic("t", 1)
    divisor = 2.0
    producer = producer_of(cluster, random=lambda: 1 / divisor)
    await producer.start()
    await producer.send("t", b"v")
    again: list[Delivery] = []
    errors: list[Exception] = []

    def send_again(metadata: RecordMetadata, error: Exception | None) -> None:
        for topic in ("t", "new"):
            try:
                again.append(producer.send_nowait(topic, b"again"))
            except Exception as refusal:  # noqa: BLE001 - counted below
                errors.append(refusal)

    for topic in ("t", "unknown"):
        producer.send_nowait(topic, b"v").report(send_again)
    divisor = 0.0
    cluster.on(ProduceRequest).fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    await asyncio.sleep(1.0)
    assert producer.state is ServiceState.FAILED
    assert all(delivery.done() for delivery in again)
    assert len(again) + len(errors) == 4
    assert producer.metrics().batches_unsettled == 0
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
