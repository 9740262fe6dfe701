"""The lives of clients, as candidates of ``make bench``: joining a group, doing nothing, and starting.

- join: members of a new group start, all at once, and each is complete when it owns its share of the partitions. The
  job's ``senders`` are the members of a group, and ``count`` groups follow one another. CPU is that until all members
  are complete, without their end.
- idle: ``count`` producers have sent one record each, and then nothing. CPU and memory are those of all but the first,
  which brings what all share.
- start: the seconds, and the CPU seconds of the process, from its start to its first acknowledged record.
"""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from typing import Any

from benchmarks.job import Job, Result, aiokafka_producer, librdkafka, our_producer
from benchmarks.stopwatch import Stopwatch, memory, quantiles

HEARTBEAT, SESSION = 0.5, 10.0
IDLE_SECONDS = 10.0


class Share:
    """The partitions that one member has to own."""

    def __init__(self, count: int) -> None:
        self._count, self._owned = count, 0
        self._loop = asyncio.get_running_loop()
        self.is_complete = asyncio.Event()

    def add(self, count: int) -> None:
        """Count partitions. Other threads may call this."""
        self._owned += count
        if self._owned == self._count:
            self._loop.call_soon_threadsafe(self.is_complete.set)


Member = Callable[[Job, str, Share], AbstractAsyncContextManager[None]]
"""Takes a job, a group and the share of the member, which runs while the context is open."""


@asynccontextmanager
async def our_member(job: Job, group: str, share: Share) -> AsyncIterator[None]:
    from aiokafka_lite import Consumer, TopicPartition
    from aiokafka_lite.consumer import RebalanceHandle, RebalanceListener

    class Listener(RebalanceListener):
        async def on_assigned(self, handle: RebalanceHandle, partitions: Sequence[TopicPartition]) -> None:
            share.add(len(partitions))

        async def on_revoked(self, handle: RebalanceHandle, partitions: Sequence[TopicPartition]) -> None:
            share.add(-len(partitions))

        async def on_lost(self, handle: RebalanceHandle, partitions: Sequence[TopicPartition]) -> None:
            share.add(-len(partitions))

    async def read() -> None:
        async for _ in consumer:
            pass

    consumer = Consumer(
        job.servers,
        topics=[job.topic],
        group_id=group,
        strategies=["range"],
        heartbeat_interval=HEARTBEAT,
        session_timeout=SESSION,
        auto_commit=False,
        listener=Listener(),
    )
    async with consumer, _running(read):
        yield


@asynccontextmanager
async def aiokafka_member(job: Job, group: str, share: Share) -> AsyncIterator[None]:
    import aiokafka
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor

    class Listener(aiokafka.ConsumerRebalanceListener):  # type: ignore[misc]
        async def on_partitions_assigned(self, assigned: Any) -> None:
            share.add(len(assigned))

        async def on_partitions_revoked(self, revoked: Any) -> None:
            share.add(-len(revoked))

    async def read() -> None:
        while True:
            await consumer.getmany(timeout_ms=200)

    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=job.servers,
        group_id=group,
        partition_assignment_strategy=(RangePartitionAssignor,),
        heartbeat_interval_ms=int(HEARTBEAT * 1000),
        session_timeout_ms=int(SESSION * 1000),
        enable_auto_commit=False,
    )
    await consumer.start()
    consumer.subscribe([job.topic], listener=Listener())
    try:
        async with _running(read):
            yield
    finally:
        await consumer.stop()


@asynccontextmanager
async def confluent_member(job: Job, group: str, share: Share) -> AsyncIterator[None]:
    """Run a member in a thread."""
    from confluent_kafka import Consumer

    is_leaving = threading.Event()

    def read() -> None:
        settings = {
            "bootstrap.servers": job.servers,
            "group.id": group,
            "partition.assignment.strategy": "range",
            "heartbeat.interval.ms": int(HEARTBEAT * 1000),
            "session.timeout.ms": int(SESSION * 1000),
            "enable.auto.commit": False,
        }
        consumer = Consumer(settings)
        consumer.subscribe(
            [job.topic],
            on_assign=lambda _, partitions: share.add(len(partitions)),
            on_revoke=lambda _, partitions: share.add(-len(partitions)),
        )
        while not is_leaving.is_set():
            consumer.poll(0.2)
        consumer.close()

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_leaving.set()
        await asyncio.to_thread(thread.join)


@asynccontextmanager
async def _running(work: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    task = asyncio.ensure_future(work())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def joins(member: Member) -> Callable[[Job], Awaitable[Result]]:
    async def run(job: Job) -> Result:
        await join_once(job, member)
        results = [await join_once(job, member) for _ in range(job.count)]
        sums = {name: sum(result[name] for result in results) for name in ("wall", "cpu")}
        return {**sums, **quantiles(result["wall"] for result in results)}

    return run


async def join_once(job: Job, member: Member) -> Result:
    group = uuid.uuid4().hex
    is_left = asyncio.Event()

    async def live(share: Share) -> None:
        async with member(job, group, share):
            await share.is_complete.wait()
            complete.release()
            await is_left.wait()

    complete = asyncio.Semaphore(0)
    watch = Stopwatch()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(job.senders):
            tasks.create_task(live(Share(job.partitions // job.senders)))
        for _ in range(job.senders):
            await complete.acquire()
        result = watch.result()
        is_left.set()
    return result


Sender = Callable[[Job], AbstractAsyncContextManager[None]]
"""Takes a job, and yields when a producer has sent a record, which was acknowledged."""


@asynccontextmanager
async def our_sender(job: Job) -> AsyncIterator[None]:
    async with our_producer(job) as producer:
        await producer.send(job.topic, b"first")
        yield


@asynccontextmanager
async def confluent_sender(job: Job) -> AsyncIterator[None]:
    from confluent_kafka import Producer

    producer = Producer(librdkafka(job))
    producer.produce(job.topic, b"first")
    if producer.flush(30):
        raise RuntimeError("the record was not delivered")
    yield


@asynccontextmanager
async def aiokafka_sender(job: Job) -> AsyncIterator[None]:
    producer = aiokafka_producer(job)
    await producer.start()
    try:
        await producer.send_and_wait(job.topic, b"first")
        yield
    finally:
        await producer.stop()


def idles(sender: Sender) -> Callable[[Job], Awaitable[Result]]:
    async def run(job: Job) -> Result:
        async with AsyncExitStack() as clients:
            await clients.enter_async_context(sender(job))
            gc.collect()
            before = memory()
            for _ in range(job.count):
                await clients.enter_async_context(sender(job))
            gc.collect()
            await asyncio.sleep(1)
            watch = Stopwatch()
            await asyncio.sleep(IDLE_SECONDS)
            return {**watch.result(), "memory": memory() - before}

    return run


def starts(sender: Sender) -> Callable[[Job], Awaitable[Result]]:
    async def run(job: Job) -> Result:
        async with sender(job):
            return {"wall": time.time() - job.began, "cpu": time.process_time()}

    return run


SENDERS: dict[str, Sender] = {
    "ours": our_sender,
    "confluent-kafka": confluent_sender,
    "aiokafka": aiokafka_sender,
}
CANDIDATES = {
    "join": {
        "ours": joins(our_member),
        "confluent-kafka": joins(confluent_member),
        "aiokafka": joins(aiokafka_member),
    },
    "idle": {name: idles(sender) for name, sender in SENDERS.items()},
    "start": {name: starts(sender) for name, sender in SENDERS.items()},
}
