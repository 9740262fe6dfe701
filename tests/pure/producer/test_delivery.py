"""Deliveries: one result per batch, any number of waiters."""

from __future__ import annotations

import asyncio
import gc
import logging

import pytest

from aiokafka_lite.errors import IllegalStateError, KafkaTimeout
from aiokafka_lite.producer.delivery import BatchResult, Delivery, FailureLog
from aiokafka_lite.types import RecordMetadata


def deliveries(result: BatchResult, count: int) -> list[Delivery]:
    return [Delivery(result, index, 1_000 + index, 1, 2) for index in range(count)]


async def test_each_record_of_a_batch_has_its_own_offset() -> None:
    result = BatchResult("t", 3)
    first, second = deliveries(result, 2)
    waiting = asyncio.gather(first, second)
    await asyncio.sleep(0)
    assert not first.done()
    result.deliver(40)
    assert await waiting == [RecordMetadata("t", 3, 40, 1_000, 1, 2), RecordMetadata("t", 3, 41, 1_001, 1, 2)]
    assert second.done()
    assert (await second).offset == 41
    assert second.exception() is None


async def test_the_brokers_timestamp_replaces_the_records_own() -> None:
    result = BatchResult("t", 0)
    result.deliver(0, 555)
    assert (await deliveries(result, 1)[0]).timestamp == 555


async def test_an_unknown_offset_is_the_same_for_all() -> None:
    result = BatchResult("t", 0)
    result.deliver(-1)
    assert [(await delivery).offset for delivery in deliveries(result, 3)] == [-1, -1, -1]


async def test_a_failed_batch_raises_for_each_of_its_records() -> None:
    result = BatchResult("t", 0)
    first, second = deliveries(result, 2)
    result.fail(KafkaTimeout("too late"))
    for delivery in (first, second, first):
        with pytest.raises(KafkaTimeout, match="too late"):
            await delivery
    assert isinstance(first.exception(), KafkaTimeout)


def test_an_open_delivery_has_no_result_yet() -> None:
    delivery = Delivery(BatchResult("t", 0), 0, 0, 0, 0)
    with pytest.raises(IllegalStateError):
        delivery.result()
    with pytest.raises(IllegalStateError):
        delivery.exception()


async def test_a_cancelled_wait_does_not_disturb_other_waits() -> None:
    result = BatchResult("t", 0)
    first, second = deliveries(result, 2)
    patient = asyncio.ensure_future(second)
    for _ in range(3):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await first
    assert result._waiters is not None
    assert len(result._waiters) <= 1
    result.deliver(7)
    assert (await patient).offset == 8
    assert (await first).offset == 7


async def test_waiters_follow_records_that_move() -> None:
    whole, left, right = BatchResult("t", 0), BatchResult("t", 0), BatchResult("t", 0)
    first, second = deliveries(whole, 2)
    waiting = asyncio.gather(first, second, return_exceptions=True)
    await asyncio.sleep(0)
    whole.move([(left, 0), (right, 0)])
    await asyncio.sleep(0)
    assert not first.done()
    left.deliver(5)
    right.fail(KafkaTimeout("too late"))
    delivered, failed = await waiting
    assert delivered.offset == 5
    assert isinstance(failed, KafkaTimeout)


def test_records_that_fail_together_are_logged_together(caplog: pytest.LogCaptureFixture) -> None:
    error = KafkaTimeout("closed")
    log: FailureLog | None = FailureLog(error)
    results = [BatchResult(f"t{number % 12:02}", number) for number in range(100)]
    for result in results:
        result.fail(error, log)
    for result in results[1::12]:
        result.observe()
    with caplog.at_level(logging.ERROR):
        del log, result, results
        gc.collect()
    assert [record.getMessage() for record in caplog.records] == [
        "records for t00, t02, t03, t04, t05, t06, t07, t08, t09, t10 and 1 more were not delivered:"
        " KafkaTimeout('closed')"
    ]


def test_records_that_the_garbage_collector_frees_with_their_log_are_logged_together(
    caplog: pytest.LogCaptureFixture,
) -> None:
    error = KafkaTimeout("closed")
    cycle: list[object] = [log := FailureLog(error)]
    for topic in ("t", "u"):
        cycle.append(result := BatchResult(topic, 0))
        result.fail(error, log)
    cycle.append(cycle)
    with caplog.at_level(logging.ERROR):
        del log, result, cycle
        gc.collect()
    assert [record.getMessage() for record in caplog.records] == [
        "records for t, u were not delivered: KafkaTimeout('closed')"
    ]


def test_a_failure_before_a_partition_was_chosen_names_the_topic_only(caplog: pytest.LogCaptureFixture) -> None:
    BatchResult("orders", -1).fail(KafkaTimeout("too late"))
    assert "records for orders were not delivered" in caplog.text


def test_a_failure_that_no_caller_saw_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    result = BatchResult("orders", 2)
    promises = deliveries(result, 10)
    result.fail(KafkaTimeout("too late"))
    with caplog.at_level(logging.ERROR):
        del result, promises
        gc.collect()
    assert [record.getMessage() for record in caplog.records] == [
        "records for orders-2 were not delivered: KafkaTimeout('too late')"
    ]


async def test_a_failure_that_a_caller_saw_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    result = BatchResult("orders", 2)
    delivery = deliveries(result, 1)[0]
    result.fail(KafkaTimeout("too late"))
    with pytest.raises(KafkaTimeout):
        await delivery
    del result, delivery
    gc.collect()
    assert not caplog.records


async def test_a_delivery_can_be_awaited_by_the_calls_of_asyncio() -> None:
    result = BatchResult("t", 0)
    first, second = deliveries(result, 2)
    shielded = asyncio.ensure_future(asyncio.shield(first))
    completed = asyncio.as_completed([first, second], timeout=5.0)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(first, 0.0)
    result.deliver(7)
    assert (await shielded).offset == 7
    assert sorted([(await each).offset for each in completed]) == [7, 8]


async def test_a_cancelled_future_of_a_delivery_leaves_the_others() -> None:
    result = BatchResult("t", 0)
    (delivery,) = deliveries(result, 1)
    cancelled, kept = delivery.future(), delivery.future()
    called: list[int] = []
    kept.add_done_callback(lambda future: called.append(future.result().offset))
    await asyncio.sleep(0)
    cancelled.cancel()
    done, pending = await asyncio.wait([cancelled, kept], return_when=asyncio.FIRST_COMPLETED)
    assert (done, pending) == ({cancelled}, {kept})
    result.deliver(3)
    assert (await kept).offset == 3
    assert called == [3]


async def test_a_future_of_a_delivery_follows_a_record_that_moves_and_raises_its_error() -> None:
    whole, left, right = (BatchResult("t", 0) for _ in range(3))
    first, second = (delivery.future() for delivery in deliveries(whole, 2))
    whole.move([(left, 0), (right, 0)])
    await asyncio.sleep(0)
    assert not first.done()
    left.deliver(5)
    right.fail(KafkaTimeout("too late"))
    assert (await first).offset == 5
    with pytest.raises(KafkaTimeout, match="too late"):
        await second


async def test_asyncio_wait_and_create_task_refuse_a_delivery_itself() -> None:
    (delivery,) = deliveries(BatchResult("t", 0), 1)
    with pytest.raises((TypeError, AttributeError)):
        await asyncio.wait([delivery])  # type: ignore[type-var]
    with pytest.raises(TypeError):
        asyncio.create_task(delivery)  # type: ignore[arg-type]  # noqa: RUF006
