"""Producers of all kinds that write side by side while a cluster fails, and consumers that read what they write.

Each kind of producer writes to the same partitions at a steady pace, with one task per partition. Each task keeps some
records in flight, so that a fault hits batches in every stage. The producer's history has the outcome of each send.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from aiokafka_lite import Consumer, Delivery, KafkaError, Producer, TopicPartition
from tests.end_to_end.send_history import Finding, Found, History, Outcome, Promises, Send, violations
from tests.waiting import DEADLINE

PACE = 0.1
"""Seconds between two groups of records of a partition."""
GROUP = 12
WINDOW = 36
"""The largest number of records in flight per partition."""
BATCH_SIZE = 120
"""Bytes: two records per batch, so that a group makes more batches than may be in flight."""


@dataclass(frozen=True)
class Kind:
    """A kind of producer: what it promises for topics with one replica, and for topics with several."""

    name: str
    settings: dict[str, Any]
    alone: Promises
    replicated: Promises


ONCE, AGAIN = Promises(), Promises(once=False)
KINDS = (
    Kind("idempotent", {}, ONCE, ONCE),
    Kind("one-at-a-time", {"max_in_flight_requests_per_connection": 1}, ONCE, ONCE),
    Kind("repeating", {"idempotence": False}, AGAIN, AGAIN),
    # The leader alone acknowledges: it may fail before a follower has the record.
    Kind("leader-only", {"acks": 1}, AGAIN, Promises(lossless=False, once=False)),
)


class Writer:
    """One producer and its partitions (``lanes``)."""

    def __init__(self, kind: Kind, producer: Producer, changed: Callable[[], None]) -> None:
        self.kind = kind
        self.producer = producer
        self.history = History()
        self.stopping = False
        self.acknowledged: dict[TopicPartition, int] = defaultdict(int)
        self.failed: dict[TopicPartition, int] = defaultdict(int)
        self._changed = changed
        self._numbers: dict[TopicPartition, int] = defaultdict(int)

    def begin(self, lane: TopicPartition) -> tuple[Send, Delivery]:
        """Send the next record of the partition."""
        number = self._numbers[lane]
        self._numbers[lane] = number + 1
        value = f"{self.kind.name}/{lane.topic}/{lane.partition}/{number:06d}".encode()
        send = self.history.invoke(lane, value)
        return send, self.producer.send_nowait(lane.topic, value, partition=lane.partition)

    async def end(self, send: Send, delivery: Delivery) -> None:
        """Wait for the delivery, and note its outcome."""
        lane = send.topic_partition
        try:
            metadata = await delivery
        except KafkaError as error:
            send.failed(error)
            self.failed[lane] += 1
        else:
            send.acknowledged(TopicPartition(metadata.topic, metadata.partition), metadata.offset)
            self.acknowledged[lane] += 1
        self._changed()

    async def write(self, lane: TopicPartition) -> None:
        """Send records until ``stopping`` is set, then wait for all deliveries."""
        under_way: deque[tuple[Send, Delivery]] = deque()
        while not self.stopping:
            under_way.extend(self.begin(lane) for _ in range(GROUP))
            while under_way and (under_way[0][1].done() or len(under_way) > WINDOW - GROUP):
                await self.end(*under_way.popleft())
            await self._pause()
        for send, delivery in under_way:
            await self.end(send, delivery)

    async def _pause(self) -> None:
        """Pause until the next group. If the loop is late, the pause grows, so that the traffic does not fill the
        loop."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        await asyncio.sleep(PACE)
        late = loop.time() - began - PACE
        await asyncio.sleep(4 * late)

    def wrote(self, value: bytes) -> bool:
        """Return whether this writer sent the value."""
        return value.startswith(f"{self.kind.name}/".encode())

    def failures(self) -> list[Send]:
        return [*self.history.of(Outcome.UNKNOWN), *self.history.of(Outcome.REFUSED)]


@dataclass
class Traffic:
    """All writers, and two consumers that read along: one by itself, one in a group."""

    writers: list[Writer]
    lanes: list[TopicPartition]
    followed: list[Found] = field(default_factory=list)
    followed_by_group: list[Found] = field(default_factory=list)
    change: asyncio.Event = field(default_factory=asyncio.Event)

    def changed(self) -> None:
        self.change.set()

    async def until(self, what: str, holds: Callable[[], bool]) -> None:
        """Wait until the condition about the writers holds."""
        try:
            async with asyncio.timeout(DEADLINE):
                while not holds():
                    self.change.clear()
                    await self.change.wait()
        except TimeoutError:
            counts = {writer.kind.name: (dict(writer.acknowledged), dict(writer.failed)) for writer in self.writers}
            raise AssertionError(f"{what}: not within {DEADLINE} s; acknowledged, failed: {counts}") from None

    async def flows(
        self,
        count: int,
        lanes: Iterable[TopicPartition] | None = None,
        writers: Sequence[Writer] | None = None,
    ) -> None:
        """Wait until every writer has ``count`` more acknowledged records in each of these partitions."""
        goals = self._goals(lambda writer: writer.acknowledged, count, lanes, writers)
        await self.until(
            f"{count} records more in each of {lanes}",
            lambda: all(writer.acknowledged[lane] >= goal for writer, lane, goal in goals),
        )

    async def fails(self, count: int, lanes: Iterable[TopicPartition], writers: Sequence[Writer] | None = None) -> None:
        """Wait until every writer has ``count`` more failed records in each of these partitions."""
        goals = self._goals(lambda writer: writer.failed, count, lanes, writers)
        await self.until(
            f"{count} failures more in each of {lanes}",
            lambda: all(writer.failed[lane] >= goal for writer, lane, goal in goals),
        )

    def _goals(
        self,
        counts: Callable[[Writer], dict[TopicPartition, int]],
        more: int,
        lanes: Iterable[TopicPartition] | None,
        writers: Sequence[Writer] | None,
    ) -> list[tuple[Writer, TopicPartition, int]]:
        chosen = self.lanes if lanes is None else list(lanes)
        return [(writer, lane, counts(writer)[lane] + more) for writer in writers or self.writers for lane in chosen]

    def failures(self) -> list[Send]:
        return [send for writer in self.writers for send in writer.failures()]

    def broken_promises(self, records: Sequence[Found], *, alone: Collection[str]) -> list[Finding]:
        """Return every promise that the found records break. Topics that are not ``alone`` have several replicas."""
        findings: list[Finding] = []
        for writer in self.writers:
            for promises, is_alone in ((writer.kind.alone, True), (writer.kind.replicated, False)):
                sends = [send for send in writer.history.sends if (send.topic_partition.topic in alone) is is_alone]
                own = [
                    record
                    for record in records
                    if (record.topic_partition.topic in alone) is is_alone and writer.wrote(record.value)
                ]
                findings += violations(History(sends), own, promises)
        return findings


@contextlib.asynccontextmanager
async def traffic(
    bootstrap_servers: str, lanes: Sequence[TopicPartition], kinds: Sequence[Kind] = KINDS, **settings: Any
) -> AsyncIterator[Traffic]:
    """Run writers of all kinds until the end of the block. Then all of their sends end."""
    async with contextlib.AsyncExitStack() as stack:
        flow = Traffic([], list(lanes))
        for kind in kinds:
            producer = Producer(bootstrap_servers, batch_size=BATCH_SIZE, **{**settings, **kind.settings})
            await stack.enter_async_context(producer)
            flow.writers.append(Writer(kind, producer, flow.changed))
        alone = await stack.enter_async_context(Consumer(bootstrap_servers, request_timeout=5.0))
        alone.assign(lanes)
        group_id = f"followers of {lanes[0].topic}"
        topics = sorted({lane.topic for lane in lanes})
        member = Consumer(bootstrap_servers, topics=topics, group_id=group_id, request_timeout=5.0)
        await stack.enter_async_context(member)
        followers = [
            asyncio.create_task(_follow(alone, flow.followed)),
            asyncio.create_task(_follow(member, flow.followed_by_group)),
        ]
        try:
            async with asyncio.TaskGroup() as tasks:
                for writer in flow.writers:
                    for lane in lanes:
                        tasks.create_task(writer.write(lane))
                try:
                    yield flow
                finally:
                    for writer in flow.writers:
                        writer.stopping = True
            await _until_read(alone, lanes)
            await _until_read(member, lanes)
        finally:
            for follower in followers:
                follower.cancel()
            endings = await asyncio.gather(*followers, return_exceptions=True)
        assert all(isinstance(ending, asyncio.CancelledError) for ending in endings), endings


async def _follow(consumer: Consumer, records: list[Found]) -> None:
    while True:
        records += map(_found, await consumer.poll(timeout=1.0))


async def _until_read(consumer: Consumer, lanes: Sequence[TopicPartition]) -> None:
    """Wait until the consumer has reached the current end of the log."""
    async with asyncio.timeout(DEADLINE):
        ends = await consumer.end_offsets(lanes)
        while not set(lanes) <= set(consumer.assignment) or any(
            [await consumer.position(lane) < ends[lane] for lane in lanes]
        ):
            await asyncio.sleep(PACE)


def _found(record: Any) -> Found:
    return Found(TopicPartition(record.topic, record.partition), record.offset, record.value)


async def read_back(bootstrap_servers: str, lanes: Sequence[TopicPartition]) -> list[Found]:
    """Return all records in the log, by a consumer that did not see the faults."""
    records: list[Found] = []
    async with asyncio.timeout(DEADLINE), Consumer(bootstrap_servers) as consumer:
        consumer.assign(lanes)
        ends = await consumer.end_offsets(lanes)
        while any([await consumer.position(lane) < ends[lane] for lane in lanes]):
            records += map(_found, await consumer.poll(timeout=1.0))
    return records


def read_back_by_librdkafka(bootstrap_servers: str, lanes: Sequence[TopicPartition]) -> list[Found]:
    """Return the same by librdkafka. It blocks."""
    import confluent_kafka

    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "checker",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    start = confluent_kafka.OFFSET_BEGINNING
    consumer.assign([confluent_kafka.TopicPartition(*lane, start) for lane in lanes])
    records: list[Found] = []
    unread = set(lanes)
    try:
        while unread:
            message: Any = consumer.poll(DEADLINE)
            assert message is not None, f"librdkafka read nothing for {DEADLINE} s; missing: {unread}"
            lane = TopicPartition(message.topic(), message.partition())
            if message.error() is None:
                records.append(Found(lane, message.offset(), message.value()))
            else:
                assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF, message.error()
                unread.discard(lane)
    finally:
        consumer.close()
    return records
