"""Deliveries: one result per batch, any number of waiters."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import logging
import weakref
from collections.abc import Awaitable, Callable
from typing import Self

import pytest

from aiokafka_lite.errors import BrokerError, ErrorCode, IllegalStateError, KafkaTimeout, error_for
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


@pytest.mark.parametrize("has_variables", [False, True])
def test_a_callback_does_not_see_what_another_one_sets(has_variables: bool) -> None:
    count = contextvars.ContextVar("count", default=0)
    result, seen = BatchResult("t", 0), list[int]()

    def add(metadata: RecordMetadata, error: Exception | None) -> None:
        seen.append(count.get())
        count.set(count.get() + 1)

    def report() -> None:
        if has_variables:
            count.set(5)
        for delivery in deliveries(result, 2):
            delivery.report(add)

    context = contextvars.Context()
    context.run(report)
    context.run(result.deliver, 0)
    deliveries(result, 1)[0].report(add)  # at once
    assert seen == [5 if has_variables else 0] * 2 + [0]
    assert count.get() == 0


async def test_the_brokers_timestamp_replaces_the_records_own() -> None:
    result = BatchResult("t", 0)
    result.deliver(0, 555)
    assert (await deliveries(result, 1)[0]).timestamp == 555


async def test_the_metadata_has_the_start_of_the_log() -> None:
    result = BatchResult("t", 0)
    result.deliver(7, log_start_offset=5)
    assert (await deliveries(result, 1)[0]).log_start_offset == 5


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


class Local:
    """An object that a frame holds."""


async def await_one(delivery: Delivery) -> None:
    await delivery


async def await_its_future(delivery: Delivery) -> None:
    await delivery.future()


async def raise_its_exception(delivery: Delivery) -> None:
    error = delivery.exception()
    assert error is not None
    raise error


async def raise_what_it_reports(delivery: Delivery) -> None:
    reported: list[Exception | None] = []
    delivery.report(lambda _, error: reported.append(error))
    assert reported[0] is not None
    raise reported[0]


async def raise_the_error_of_the_batch(delivery: Delivery) -> None:
    error = delivery.batch_result.error
    assert error is not None
    raise error


@pytest.mark.parametrize(
    "fails", [await_one, await_its_future, raise_its_exception, raise_what_it_reports, raise_the_error_of_the_batch]
)
async def test_a_frame_that_saw_the_error_of_its_delivery_is_freed(
    fails: Callable[[Delivery], Awaitable[None]],
) -> None:
    """Compiled, the garbage collector does not look at deliveries, so their errors must not refer to frames."""

    async def fail() -> weakref.ref[Local]:
        local = Local()
        batch = BatchResult("t", 0)
        kept = deliveries(batch, 2)
        try:
            raise KafkaTimeout("too late")  # as the first failure of a transaction, which its records share
        except KafkaTimeout as error:
            batch.fail(error, FailureLog(error))
        with contextlib.suppress(KafkaTimeout):
            await fails(kept[0])
        return weakref.ref(local)

    seen = await fail()
    gc.collect()
    assert seen() is None


async def test_the_error_of_each_caller_has_the_fields_and_the_cause_of_the_first() -> None:
    result = BatchResult("t", 0)
    first, second = deliveries(result, 2)
    error = error_for(ErrorCode.MESSAGE_TOO_LARGE, "writing")
    error.__cause__ = cause = ValueError("why")
    result.fail(error)
    one, other = first.exception(), second.exception()
    assert isinstance(one, BrokerError)
    assert (type(one), str(one), one.code, one.__cause__) == (type(error), str(error), error.code, cause)
    assert one is not other


async def test_an_error_whose_class_takes_other_arguments_is_shared() -> None:
    class Own(Exception):
        def __new__(cls, number: int) -> Self:
            return super().__new__(cls)

        def __init__(self, number: int) -> None:
            super().__init__()

    result = BatchResult("t", 0)
    result.fail(error := Own(1))
    assert result.error is error
    result.observe()


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
    whole, lower, upper = BatchResult("t", 0), BatchResult("t", 0), BatchResult("t", 0)
    first, second = deliveries(whole, 2)
    waiting = asyncio.gather(first, second, return_exceptions=True)
    await asyncio.sleep(0)
    whole.move([(lower, 0), (upper, 0)])
    await asyncio.sleep(0)
    assert not first.done()
    lower.deliver(5)
    upper.fail(KafkaTimeout("too late"))
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
    assert sorted([(await delivery).offset for delivery in completed]) == [7, 8]


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
    whole, lower, upper = (BatchResult("t", 0) for _ in range(3))
    first, second = (delivery.future() for delivery in deliveries(whole, 2))
    whole.move([(lower, 0), (upper, 0)])
    await asyncio.sleep(0)
    assert not first.done()
    lower.deliver(5)
    upper.fail(KafkaTimeout("too late"))
    assert (await first).offset == 5
    with pytest.raises(KafkaTimeout, match="too late"):
        await second


async def test_asyncio_wait_and_create_task_refuse_a_delivery_itself() -> None:
    (delivery,) = deliveries(BatchResult("t", 0), 1)
    with pytest.raises((TypeError, AttributeError)):
        await asyncio.wait([delivery])  # type: ignore[type-var]
    with pytest.raises(TypeError):
        asyncio.create_task(delivery)  # type: ignore[arg-type]  # noqa: RUF006
