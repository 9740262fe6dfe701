"""``Workers`` in a simulation: with a circuit breaker, and with a plain function, which is called in the event loop."""

from __future__ import annotations

import threading

from aiokafka_lite import ConsumerGroup, Record, Workers
from aiokafka_lite.processing import CircuitBreaker, retry
from aiokafka_lite.testing.simulation import Instance, orders, processed_at_least_once, simulate
from tests.embedded.simulated.classic_mistakes import order_of

SEEDS = 20


openings: list[int] = []


async def bills_with_a_breaker(instance: Instance) -> None:
    async def bill(record: Record[bytes, bytes]) -> None:
        order = order_of(record)
        await instance.effect("charge", order, idempotence_key=order)

    workers: Workers[bytes, bytes] = Workers(
        bill,
        concurrency=8,
        rules=[retry(Exception, attempts=1000, backoff=0.1)],
        breaker=CircuitBreaker(Exception, failures=2, window=10.0, pause=0.5, max_pause=2.0),
    )
    try:
        await consume(instance, workers)
    finally:
        openings.append(workers.metrics().breaker_openings)


async def bills_in_a_plain_function(instance: Instance) -> None:
    def bill(record: Record[bytes, bytes]) -> None:
        assert threading.current_thread() is threading.main_thread()
        instance.happened("charge", order_of(record))

    await consume(instance, Workers(bill, concurrency=8))


async def consume(instance: Instance, workers: Workers[bytes, bytes]) -> None:
    group: ConsumerGroup[bytes, bytes] = ConsumerGroup(
        instance.bootstrap_servers, group_id="billing", metadata_max_age=10.0
    )
    async with group:
        await group.consume(["orders"], workers)


def test_a_circuit_breaker_loses_and_reorders_no_record() -> None:
    assert simulate(bills_with_a_breaker, orders(40), seeds=SEEDS).seeds == SEEDS
    assert sum(openings) > 0


def test_a_plain_function_is_simulated() -> None:
    checks = [processed_at_least_once("orders", effect="charge")]
    assert simulate(bills_in_a_plain_function, orders(40), seeds=SEEDS, checks=checks).seeds == SEEDS
