"""The report of a simulation: a short schedule, the lines of the record first, and what made an effect be ignored."""

from __future__ import annotations

import asyncio
import re

import pytest

from aiokafka_lite import Producer
from aiokafka_lite.testing.simulation import (
    Broken,
    EffectFailed,
    History,
    Instance,
    Message,
    SimulationFailure,
    orders,
    processed_at_least_once,
    simulate,
)
from tests.embedded.simulated.classic_mistakes import Service, billing, order_of, orders_of


@pytest.mark.parametrize(
    ("text", "other"),
    [
        (
            "instance 1 committed orders-0 up to 7 at 5.123 s, before the effect of 'order-1'",
            "instance 2 (start 3) committed orders-2 up to 11 at 15.001 s, before the effect of 'order-20'",
        ),
        (
            "instance 1 and instance 2 processed orders-0 at once: 'order-1' and 'order-2'",
            "instance 2 and instance 1 (start 2) processed orders-2 at once: 'order-3' and \"it's\"",
        ),
        (
            "instance 1 did not end within 30 s after SIGTERM",
            "instance 2 (start 2) did not end within 30 s after SIGTERM",
        ),
        ("bills has 2 equal records about 'order-1'", "bills has 3 equal records about 'order-2'"),
    ],
)
def test_a_symptom_is_the_same_for_another_process_partition_offset_and_time(text: str, other: str) -> None:
    assert Broken(text).symptom == Broken(other).symptom


def test_symptoms_of_sentences_that_begin_with_the_record_differ() -> None:
    assert Broken("'order-1' was lost").symptom != Broken("'order-1' was doubled").symptom


def test_a_schedule_is_shrunk_although_the_numbers_in_the_sentence_change() -> None:
    def counts(history: History) -> str:
        return f"{len(history.events)} events, the last at {history.events[-1].at:.3f} s"

    with pytest.raises(SimulationFailure) as failure:
        simulate(billing, orders(10), seeds=[3], checks=[counts])
    assert "with these faults:\n  none\n" in str(failure.value)


def test_the_lines_of_the_record_are_shown_before_those_of_processes() -> None:
    """The process ends and starts so often that the timeline is too long, before and after the record."""

    async def restarts(instance: Instance) -> None:
        if instance.number == 1:
            await asyncio.sleep(0.1)
            return
        await asyncio.sleep(60.0)
        instance.happened("print", "one")
        await instance.stopping.wait()

    def happened(history: History) -> Broken | None:
        return Broken("it happened", "one") if history.applied() else None

    with pytest.raises(SimulationFailure) as failure:
        simulate(restarts, [Message("orders", "one")], seeds=1, seconds=100.0, checks=[happened], faults=())
    timeline = str(failure.value).partition("what happened to 'one':\n")[2].partition("\n\n")[0].splitlines()
    lines = [line for line in timeline if "..." not in line]
    assert len(lines) == 40
    assert any("it is written to orders-" in line for line in lines)
    assert any("60.000 s instance 2 begins the effect 'print'" in line for line in lines), timeline
    times = [float(line.split()[0]) for line in lines]
    assert times == sorted(times)


def test_an_effect_that_the_key_of_another_record_suppressed_names_that_record() -> None:
    """The offset alone is no key: the records of the other partitions have it too."""

    def service(*, with_partition: bool) -> Service:
        async def bills(instance: Instance) -> None:
            async with orders_of(instance) as consumer:
                async for record in consumer:
                    key = f"{record.partition}-{record.offset}" if with_partition else record.offset
                    while True:
                        try:
                            await instance.effect("charge", order_of(record), idempotence_key=key)
                            break
                        except EffectFailed:
                            await asyncio.sleep(0.1)

        return bills

    with pytest.raises(SimulationFailure) as failure:
        simulate(service(with_partition=False), orders(40), seeds=100)
    lost = r"'order-\d+' was written to orders but has no effect and no output record: 'charge' was ignored, because "
    used = r"'order-\d+' had used the idempotence key '\d+'"
    assert re.fullmatch(lost + used, failure.value.broken)
    assert "and ignored by its idempotence key '" in str(failure.value)
    assert simulate(service(with_partition=True), orders(40), seeds=20).seeds == 20


def test_the_timeline_has_what_clients_log_and_how_tasks_end() -> None:
    """The delivery is not awaited, so only the log says why the record is lost."""

    async def sends(instance: Instance) -> None:
        async def charge(order: str) -> None:
            raise LookupError(f"no price of {order}")

        async with orders_of(instance) as consumer, Producer(instance.bootstrap_servers) as producer:
            async for record in consumer:
                producer.send_nowait("bills", order_of(record))
                await asyncio.wait([asyncio.create_task(charge(order_of(record)))])

    with pytest.raises(SimulationFailure) as failure:
        simulate(sends, orders(20), seeds=100, checks=[processed_at_least_once()], faults="refused")
    text = str(failure.value)
    assert "Produce is refused with TOPIC_AUTHORIZATION_FAILED" in text
    assert re.search(r"instance \d logs: records for bills(-\d)? were not delivered: .*Authorization", text), text
    assert re.search(r"instance \d sees its task charge\(\) end with LookupError: no price of order-\d+", text), text


def test_the_place_of_an_exception_is_a_line_of_the_service() -> None:
    async def inserts_twice(instance: Instance) -> None:
        async with instance.database.transaction() as transaction:
            await transaction.insert("orders", "new", key="a")
            await transaction.insert("orders", "new", key="a")

    with pytest.raises(SimulationFailure, match=r"ended with RowExists: .* at .*test_reports\.py:\d+"):
        simulate(inserts_twice, orders(1), seeds=1, faults=(), seconds=1.0)


def test_a_report_of_a_repetition_says_which_checks_allow_it() -> None:
    async def charges_twice(instance: Instance) -> None:
        async with orders_of(instance) as consumer:
            async for record in consumer:
                instance.happened("charge", order_of(record))
                instance.happened("charge", order_of(record))

    with pytest.raises(SimulationFailure, match=r"2 times\n\(if the service may .* checks=at_least_once\(\)\)\n\n"):
        simulate(charges_twice, orders(1), seeds=1, faults=(), seconds=1.0)


def test_a_parked_record_counts_as_processed_unless_the_effect_is_named() -> None:
    async def parks(instance: Instance) -> None:
        async with orders_of(instance) as consumer, Producer(instance.bootstrap_servers) as producer:
            async for record in consumer:
                try:
                    await instance.effect("charge", order_of(record), idempotence_key=order_of(record))
                except EffectFailed:
                    await producer.send("orders.retry", order_of(record), key=record.key)

    faults = ["effect_fails"]
    assert simulate(parks, orders(20), seeds=10, faults=faults).seeds == 10
    with pytest.raises(SimulationFailure, match="has no effect 'charge'"):
        simulate(parks, orders(20), seeds=10, faults=faults, checks=[processed_at_least_once(effect="charge")])
