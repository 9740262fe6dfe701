"""Transactions by the clients of Python, as candidates of ``make bench``.

A transaction takes from its begin to the return of its commit. One follows the other.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from benchmarks.job import Job, Result, aiokafka_producer, librdkafka, our_producer
from benchmarks.stopwatch import Stopwatch

WARM_UP = 5
"""Transactions that are not measured."""


async def measure(job: Job, write: Callable[[], Awaitable[None]]) -> Result:
    for _ in range(WARM_UP):
        await write()
    times: list[float] = []
    watch = Stopwatch()
    for _ in range(job.count):
        began = time.perf_counter()
        await write()
        times.append(time.perf_counter() - began)
    return watch.with_quantiles(times)


async def ours(job: Job) -> Result:
    values = job.values()
    async with our_producer(job, transactional_id=uuid.uuid4().hex) as producer:

        async def write() -> None:
            async with producer.transaction() as transaction:
                for index in range(job.records):
                    transaction.send_nowait(job.topic, values[index % len(values)])

        return await measure(job, write)


async def ours_send_many(job: Job) -> Result:
    """Send all records in one call, so there is nothing to linger for."""
    values = job.values()
    every = [values[index % len(values)] for index in range(job.records)]
    async with our_producer(job, linger=0.0, transactional_id=uuid.uuid4().hex) as producer:

        async def write() -> None:
            async with producer.transaction() as transaction:
                await transaction.send_many(job.topic, every)

        return await measure(job, write)


async def confluent_kafka(job: Job) -> Result:
    from confluent_kafka import Producer

    values = job.values()
    producer = Producer(librdkafka(job, **{"transactional.id": uuid.uuid4().hex}))
    producer.init_transactions()

    async def write() -> None:
        producer.begin_transaction()
        for index in range(job.records):
            producer.produce(job.topic, values[index % len(values)])
        producer.commit_transaction()

    return await measure(job, write)


async def aiokafka(job: Job) -> Result:
    values = job.values()
    producer: Any = aiokafka_producer(job, transactional_id=uuid.uuid4().hex)
    await producer.start()

    async def write() -> None:
        async with producer.transaction():
            for index in range(job.records):
                await producer.send(job.topic, values[index % len(values)])

    try:
        return await measure(job, write)
    finally:
        await producer.stop()


CANDIDATES = {
    "transactions": {
        "ours": ours,
        "ours, send_many": ours_send_many,
        "confluent-kafka": confluent_kafka,
        "aiokafka": aiokafka,
    }
}
