"""The promise of a record: one fate a batch, any number of waiters."""

from __future__ import annotations

import asyncio
import gc
import logging

import pytest

from aiokafka_lite.errors import IllegalStateError, KafkaTimeout
from aiokafka_lite.producer.delivery import Delivery, Fate, Loss
from aiokafka_lite.types import RecordMetadata


def deliveries(fate: Fate, count: int) -> list[Delivery]:
    return [Delivery(fate, index, 1_000 + index, 1, 2) for index in range(count)]


async def test_each_record_of_a_batch_has_its_own_offset() -> None:
    fate = Fate("t", 3)
    first, second = deliveries(fate, 2)
    waiting = asyncio.gather(first, second)
    await asyncio.sleep(0)
    assert not first.done()
    fate.deliver(40)
    assert await waiting == [RecordMetadata("t", 3, 40, 1_000, 1, 2), RecordMetadata("t", 3, 41, 1_001, 1, 2)]
    assert second.done()
    assert (await second).offset == 41
    assert second.exception() is None


async def test_the_brokers_time_replaces_the_records_own() -> None:
    fate = Fate("t", 0)
    fate.deliver(0, 555)
    assert (await deliveries(fate, 1)[0]).timestamp == 555


async def test_an_unknown_offset_is_the_same_for_all() -> None:
    fate = Fate("t", 0)
    fate.deliver(-1)
    assert [(await delivery).offset for delivery in deliveries(fate, 3)] == [-1, -1, -1]


async def test_a_failed_batch_raises_for_each_of_its_records() -> None:
    fate = Fate("t", 0)
    first, second = deliveries(fate, 2)
    fate.fail(KafkaTimeout("too late"))
    for delivery in (first, second, first):
        with pytest.raises(KafkaTimeout, match="too late"):
            await delivery
    assert isinstance(first.exception(), KafkaTimeout)


def test_an_open_delivery_has_no_result_yet() -> None:
    delivery = Delivery(Fate("t", 0), 0, 0, 0, 0)
    with pytest.raises(IllegalStateError):
        delivery.result()
    with pytest.raises(IllegalStateError):
        delivery.exception()


async def test_one_who_gives_up_does_not_disturb_the_others() -> None:
    fate = Fate("t", 0)
    first, second = deliveries(fate, 2)
    patient = asyncio.ensure_future(second)
    for _ in range(3):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await first
    assert fate._waiters is not None
    assert len(fate._waiters) <= 1
    fate.deliver(7)
    assert (await patient).offset == 8
    assert (await first).offset == 7


async def test_waiters_follow_records_that_move() -> None:
    whole, left, right = Fate("t", 0), Fate("t", 0), Fate("t", 0)
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


def test_what_fails_together_is_logged_together(caplog: pytest.LogCaptureFixture) -> None:
    error = KafkaTimeout("closed")
    loss: Loss | None = Loss(error)
    fates = [Fate(f"t{number % 12:02}", number) for number in range(100)]
    for fate in fates:
        fate.fail(error, loss)
    for fate in fates[1::12]:
        fate.observed = True
    with caplog.at_level(logging.ERROR):
        del loss, fate, fates
        gc.collect()
    assert [record.getMessage() for record in caplog.records] == [
        "records for t00, t02, t03, t04, t05, t06, t07, t08, t09, t10 and 1 more were not delivered:"
        " KafkaTimeout('closed')"
    ]


def test_a_failure_before_a_partition_was_chosen_names_the_topic_only(caplog: pytest.LogCaptureFixture) -> None:
    Fate("orders", -1).fail(KafkaTimeout("too late"))
    assert "records for orders were not delivered" in caplog.text


def test_a_failure_that_nobody_asked_about_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    fate = Fate("orders", 2)
    promises = deliveries(fate, 10)
    fate.fail(KafkaTimeout("too late"))
    with caplog.at_level(logging.ERROR):
        del fate, promises
        gc.collect()
    assert [record.getMessage() for record in caplog.records] == [
        "records for orders-2 were not delivered: KafkaTimeout('too late')"
    ]


async def test_a_failure_that_somebody_saw_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    fate = Fate("orders", 2)
    delivery = deliveries(fate, 1)[0]
    fate.fail(KafkaTimeout("too late"))
    with pytest.raises(KafkaTimeout):
        await delivery
    del fate, delivery
    gc.collect()
    assert not caplog.records
