"""One candidate of ``make bench``, in a process of its own: ``python -m benchmarks.worker '{"client": ..., ...}'``.

The job is a JSON object (``Job``); the result is the last line of the output, a JSON object as well. The values are
made, and producers are connected, before the clock starts. Consumers connect after it, for the second time in the
process. CPU is that of this process with all its threads. Each client has the settings that ``SETTINGS`` lists, which
are the same for all where they mean the same.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from importlib import import_module
from typing import Any

from benchmarks.job import KEYS, Job, Result, aiokafka_producer, librdkafka, our_producer
from benchmarks.stopwatch import Stopwatch, peak_memory

# aiokafka_lite.


async def _with_our_producer(job: Job, work: Callable[[Any], Awaitable[None]]) -> Result:
    async with our_producer(job) as producer:
        await producer.partitions_for(job.topic)
        await producer.send(job.topic, b"first")  # the first one gets a producer id
        watch = Stopwatch()
        await work(producer)
        return watch.result()


async def our_deliveries(job: Job) -> Result:
    """Call ``send_nowait``, and then await each record's own delivery."""
    from aiokafka_lite.errors import BufferFull

    values, count, topic = job.values(), job.count, job.topic
    number = len(values)

    async def work(producer: Any) -> None:
        deliveries = []
        send, add = producer.send_nowait, deliveries.append
        for index in range(count):
            key = KEYS[index % 1000] if job.keyed else None
            while True:
                try:
                    add(send(topic, values[index % number], key=key))
                    break
                except BufferFull:
                    await producer.drain()
            if index % 1000 == 999:
                await asyncio.sleep(0)
        await producer.flush()
        for delivery in deliveries:
            await delivery

    return await _with_our_producer(job, work)


async def our_flush(job: Job) -> Result:
    """Call ``send_nowait`` without a look at the deliveries, and ``flush``."""
    from aiokafka_lite.errors import BufferFull

    values, count, topic = job.values(), job.count, job.topic
    number = len(values)

    async def work(producer: Any) -> None:
        send = producer.send_nowait
        for index in range(count):
            key = KEYS[index % 1000] if job.keyed else None
            while True:
                try:
                    send(topic, values[index % number], key=key)
                    break
                except BufferFull:
                    await producer.drain()
            if index % 1000 == 999:
                await asyncio.sleep(0)
        await producer.flush()
        if failed := producer.metrics().records_failed:
            raise RuntimeError(f"{failed} records failed")

    return await _with_our_producer(job, work)


def _all_values(job: Job) -> tuple[list[bytes], list[bytes] | None]:
    values = job.values()
    every = [values[index % len(values)] for index in range(job.count)]
    return every, [KEYS[index % 1000] for index in range(job.count)] if job.keyed else None


async def our_send_many(job: Job) -> Result:
    values, keys = _all_values(job)

    async def work(producer: Any) -> None:
        await producer.send_many(job.topic, values, keys=keys)

    return await _with_our_producer(job, work)


async def our_send_arrow(job: Job) -> Result:
    import pyarrow

    values, keys = _all_values(job)
    columns = {"value": pyarrow.array(values, pyarrow.binary())}
    if keys is not None:
        columns["key"] = pyarrow.array(keys, pyarrow.binary())
    table = pyarrow.table(columns)

    async def work(producer: Any) -> None:
        await producer.send_arrow(job.topic, table)

    return await _with_our_producer(job, work)


async def our_senders(job: Job) -> Result:
    async with our_producer(job) as producer:
        await producer.partitions_for(job.topic)
        values = job.values()
        return await senders(job, lambda index: producer.send(job.topic, values[index % len(values)]))


def _our_consumer(read: Callable[[Any, int], Awaitable[None]]) -> Callable[[Job], Awaitable[Result]]:
    async def run(job: Job) -> Result:
        from aiokafka_lite import Consumer, TopicPartition

        async with Consumer(job.servers, isolation_level="read_uncommitted", auto_offset_reset="earliest") as consumer:
            watch = Stopwatch()
            consumer.assign([TopicPartition(job.topic, number) for number in range(job.partitions)])
            await read(consumer, job.count)
            return watch.result()

    return run


async def iterates(consumer: Any, records_left: int) -> None:
    async for _ in consumer:
        records_left -= 1
        if records_left == 0:
            return


def polls(max_records: int) -> Callable[[Any, int], Awaitable[None]]:
    async def read(consumer: Any, records_left: int) -> None:
        while records_left > 0:
            records_left -= len(await consumer.poll(max_records, timeout=10.0))

    return read


async def takes_batches(consumer: Any, records_left: int) -> None:
    async for batch in consumer.batches(5000):
        for _value in batch.values:
            records_left -= 1
        if records_left <= 0:
            return


async def _takes_arrow(consumer: Any, records_left: int) -> None:
    async for batch in consumer.batches(50_000).to_arrow():
        records_left -= batch.num_rows
        if records_left <= 0:
            return


# confluent-kafka.


def confluent_callback(job: Job) -> Result:
    """Call ``produce`` with a delivery callback for each record."""
    records_left = job.count

    def delivered(error: object, message: object) -> None:
        nonlocal records_left
        if error is not None:
            raise RuntimeError(error)
        records_left -= 1

    result = _confluent_produces(job, {"on_delivery": delivered})
    if records_left:
        raise RuntimeError(f"{records_left} records were not delivered")
    return result


def confluent_no_callback(job: Job) -> Result:
    """Call ``produce`` and ``flush``, which do not report the records that failed."""
    return _confluent_produces(job, {})


def _confluent_produces(job: Job, options: dict[str, Any]) -> Result:
    from confluent_kafka import Producer

    values, count, topic = job.values(), job.count, job.topic
    number = len(values)
    producer = Producer(librdkafka(job))
    producer.produce(topic, b"first")
    producer.flush()
    watch = Stopwatch()
    for index in range(count):
        key = KEYS[index % 1000] if job.keyed else None
        while True:
            try:
                producer.produce(topic, values[index % number], key, **options)
                break
            except BufferError:
                producer.poll(0.01)
        if index % 1000 == 999:
            producer.poll(0)
    if producer.flush():
        raise RuntimeError("records are left")
    return watch.result()


def confluent_produce_batch(job: Job) -> Result:
    from confluent_kafka import Producer

    values, keys = _all_values(job)
    producer = Producer(librdkafka(job))
    producer.produce(job.topic, b"first")
    producer.flush()
    watch = Stopwatch()
    for start in range(0, job.count, 5000):
        part = values[start : start + 5000]
        if keys is None:
            messages: list[dict[str, Any]] = [{"value": value} for value in part]
        else:
            messages = [{"value": value, "key": key} for value, key in zip(part, keys[start : start + 5000])]
        while (accepted := producer.produce_batch(job.topic, messages)) < len(messages):
            messages = messages[accepted:]
            producer.poll(0.01)
    if producer.flush():
        raise RuntimeError("records are left")
    return watch.result()


async def confluent_senders(job: Job) -> Result:
    """Return a thread polls, as confluent-kafka's example for asyncio does."""
    from confluent_kafka import Producer

    loop = asyncio.get_running_loop()
    producer = Producer(librdkafka(job))
    producer.list_topics(job.topic, 10)
    stopped = threading.Event()

    def poll() -> None:
        while not stopped.is_set():
            producer.poll(0.1)

    poller = threading.Thread(target=poll, daemon=True)
    poller.start()
    values = job.values()

    def send(index: int) -> Awaitable[object]:
        promise: asyncio.Future[object] = loop.create_future()

        def delivered(error: object, message: object) -> None:
            loop.call_soon_threadsafe(promise.set_result, message)

        producer.produce(job.topic, values[index % len(values)], on_delivery=delivered)
        return promise

    try:
        return await senders(job, send)
    finally:
        stopped.set()
        poller.join()


def _aio_producer(job: Job) -> Any:
    from confluent_kafka.aio import AIOProducer

    if not job.senders:
        return AIOProducer(librdkafka(job))
    return AIOProducer(librdkafka(job), batch_size=max(1, job.senders // 10), buffer_timeout=0.005)


async def aio_producer_bulk(job: Job) -> Result:
    values, keys = _all_values(job)
    producer = _aio_producer(job)
    await producer.list_topics(job.topic, 10)
    watch = Stopwatch()
    futures = []
    for index, value in enumerate(values):
        futures.append(await producer.produce(job.topic, value, None if keys is None else keys[index]))
    await producer.flush()
    await asyncio.gather(*futures)
    result = watch.result()
    await producer.close()
    return result


async def aio_producer_senders(job: Job) -> Result:
    producer = _aio_producer(job)
    await producer.list_topics(job.topic, 10)
    values = job.values()

    async def poll() -> None:
        while True:
            await producer.poll(0.1)

    async def send(index: int) -> None:
        await (await producer.produce(job.topic, values[index % len(values)]))

    poller = asyncio.create_task(poll())
    try:
        return await senders(job, send)
    finally:
        poller.cancel()
        await asyncio.wait([poller])
        await producer.close()


def _confluent_consumes(job: Job, many: bool) -> Result:
    from confluent_kafka import Consumer
    from confluent_kafka import TopicPartition as Place

    settings = {
        "bootstrap.servers": job.servers,
        "group.id": "benchmark",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_uncommitted",
        "check.crcs": True,
        # The default: a full queue stops fetching for a second, so the throughput would be that of the pauses.
        "fetch.queue.backoff.ms": 10,
    }
    consumer = Consumer(settings)
    watch = Stopwatch()
    consumer.assign([Place(job.topic, number, 0) for number in range(job.partitions)])
    records_left = job.count
    while records_left > 0:
        if many:
            for message in consumer.consume(min(5000, records_left), timeout=10.0):
                message.value()
                records_left -= 1
        elif (message := consumer.poll(10.0)) is not None:
            message.value()
            records_left -= 1
    result = watch.result()
    consumer.close()
    return result


def confluent_consume(job: Job) -> Result:
    return _confluent_consumes(job, many=True)


def confluent_poll(job: Job) -> Result:
    return _confluent_consumes(job, many=False)


# aiokafka.


async def aiokafka_bulk(job: Job) -> Result:
    values, keys = _all_values(job)
    producer = aiokafka_producer(job)
    await producer.start()
    await producer.send_and_wait(job.topic, b"first")
    watch = Stopwatch()
    futures = []
    for index, value in enumerate(values):
        futures.append(await producer.send(job.topic, value, key=None if keys is None else keys[index]))
    await producer.flush()
    for future in futures:
        await future
    result = watch.result()
    await producer.stop()
    return result


async def aiokafka_senders(job: Job) -> Result:
    producer = aiokafka_producer(job)
    await producer.start()
    values = job.values()
    try:
        return await senders(job, lambda index: producer.send_and_wait(job.topic, values[index % len(values)]))
    finally:
        await producer.stop()


async def _aiokafka_reads(job: Job, many: bool) -> Result:
    import aiokafka

    consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=job.servers, auto_offset_reset="earliest")
    await consumer.start()
    watch = Stopwatch()
    consumer.assign([aiokafka.TopicPartition(job.topic, number) for number in range(job.partitions)])
    records_left = job.count
    if many:
        while records_left > 0:
            by_partition = await consumer.getmany(timeout_ms=10_000, max_records=5000)
            records_left -= sum(map(len, by_partition.values()))
    else:
        async for _ in consumer:
            records_left -= 1
            if records_left == 0:
                break
    result = watch.result()
    await consumer.stop()
    return result


async def aiokafka_getmany(job: Job) -> Result:
    return await _aiokafka_reads(job, many=True)


async def aiokafka_iterates(job: Job) -> Result:
    return await _aiokafka_reads(job, many=False)


# All clients.


async def senders(job: Job, send: Callable[[int], Awaitable[object]]) -> Result:
    """Run tasks that each await one send after the other. Return the median and 99th percentile of their seconds."""
    for index in range(min(50, job.count)):
        await send(index)  # connects, and warms up
    times: list[float] = []

    async def sender(first: int) -> None:
        for index in range(first, job.count, job.senders):
            began = time.perf_counter()
            await send(index)
            times.append(time.perf_counter() - began)

    watch = Stopwatch()
    await asyncio.gather(*(sender(first) for first in range(job.senders)))
    return watch.with_quantiles(times)


WRITERS: dict[str, Callable[[Job], Any]] = {
    "deliveries": our_deliveries,
    "send_nowait": our_flush,
    "send_many": our_send_many,
    "send_arrow": our_send_arrow,
    "send": our_senders,
    "confluent callback": confluent_callback,
    "confluent no callback": confluent_no_callback,
    "confluent produce_batch": confluent_produce_batch,
    "confluent senders": confluent_senders,
    "AIOProducer": aio_producer_bulk,
    "AIOProducer senders": aio_producer_senders,
    "aiokafka": aiokafka_bulk,
    "aiokafka senders": aiokafka_senders,
}
READERS: dict[str, Callable[[Job], Any]] = {
    "async for": _our_consumer(iterates),
    "poll": _our_consumer(polls(500)),
    "poll 5000": _our_consumer(polls(5000)),
    "batches": _our_consumer(takes_batches),
    "to_arrow": _our_consumer(_takes_arrow),
    "confluent consume": confluent_consume,
    "confluent poll": confluent_poll,
    "aiokafka getmany": aiokafka_getmany,
    "aiokafka async for": aiokafka_iterates,
}


def other_work(client: str) -> Callable[[Job], Any]:
    """Return what is not in this module. Each module is imported only where it is used, because memory is measured."""
    kind, _, name = client.partition(": ")
    module = {"transactions": "transactions", "web": "web_service"}.get(kind, "lifetimes")
    candidates: dict[str, dict[str, Callable[[Job], Any]]] = import_module(f"benchmarks.{module}").CANDIDATES
    return candidates[kind][name]


def run(job: Job) -> Result:
    work = (WRITERS | READERS).get(job.client) or other_work(job.client)

    def once(job: Job) -> Result:
        result: Result = asyncio.run(work(job)) if asyncio.iscoroutinefunction(work) else work(job)
        return result

    if job.client in READERS:  # imports and codecs are not measured; a producer's first record does the same
        once(replace(job, count=min(job.count, 100)))
    return once(job)


def main() -> None:
    job = Job(**json.loads(sys.argv[1]))
    if job.uvloop:
        import uvloop

        asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    result = run(job)
    print(json.dumps({"memory": peak_memory(), **result}))


if __name__ == "__main__":
    main()
