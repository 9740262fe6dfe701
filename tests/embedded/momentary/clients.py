"""Clients of every kind with a workload: records come in or go out all the time, and each is accounted for.

A workload catches errors as a careful program does: it notes them and continues. ``caught_up`` says whether everything
that the workload owes has happened: each written record was read, or a record was acknowledged.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any, ClassVar, Self

from aiokafka_lite import Admin, ExactlyOnce, OffsetAndMetadata, ShareConsumer, TopicPartition
from aiokafka_lite.admin import ConfigResource
from aiokafka_lite.cluster.health import Health
from aiokafka_lite.consumer import Consumer, ConsumerGroup
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import KafkaError
from aiokafka_lite.processing.workers import Workers
from aiokafka_lite.producer import Producer
from aiokafka_lite.protocol.messages import (
    ApiVersionsRequest,
    ConsumerGroupHeartbeatRequest,
    EndTxnRequest,
    FetchRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    InitProducerIdRequest,
    JoinGroupRequest,
    ListOffsetsRequest,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    ProduceRequest,
    ShareAcknowledgeRequest,
    ShareFetchRequest,
    ShareGroupHeartbeatRequest,
    SyncGroupRequest,
    TxnOffsetCommitRequest,
)
from aiokafka_lite.protocol.schema import Request
from aiokafka_lite.types import GroupMetadata, Record

TOPIC = "orders"
HERE = TopicPartition(TOPIC, 0)

PAUSE = 0.25
"""Seconds between two steps of a workload."""


class Workload:
    """A client at work. ``settings`` are those that reach the cluster."""

    requests: ClassVar[list[type[Request[Any]]]]
    """The requests of this client in steady state, and after a restart of its broker."""

    def __init__(self, cluster: EmbeddedCluster, settings: dict[str, Any]) -> None:
        self.cluster = cluster
        self.settings = {"metadata_max_age": 1.0, **settings}
        self.errors: list[KafkaError] = []
        self.ended: BaseException | None = None
        self._stack = AsyncExitStack()
        self._number = 0

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self._stack.aclose()

    async def work(self, seconds: float) -> None:
        """Step for this many seconds."""
        end = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < end:
            await self.careful_step()
            await asyncio.sleep(PAUSE)

    async def careful_step(self) -> None:
        try:
            await self.step()
        except KafkaError as error:
            self.errors.append(error)

    async def recover(self, within: float) -> None:
        """Step until nothing is owed and the client is ready. Raises TimeoutError."""
        async with asyncio.timeout(within):
            await self.careful_step()
            while not (self.caught_up and self.health().is_ready):
                try:
                    await self.catch_up()
                except KafkaError as error:
                    self.errors.append(error)
                await asyncio.sleep(PAUSE)

    def next_value(self) -> bytes:
        self._number += 1
        return b"%d" % self._number

    async def start(self) -> None:
        raise NotImplementedError

    async def step(self) -> None:
        raise NotImplementedError

    async def catch_up(self) -> None:
        """Pay what is owed."""
        await self.step()

    @property
    def caught_up(self) -> bool:
        raise NotImplementedError

    def begin_round(self) -> None:
        """Owe something new."""

    @property
    def owed(self) -> str:
        """What is owed, for the text of an error."""
        return ""

    def health(self) -> Health:
        raise NotImplementedError

    def check(self) -> None:
        """Assert that nothing is lost, and nothing is doubled that must not be."""

    def log(self) -> Counter[bytes]:
        """Return the values in the log, committed or not."""
        log = self.cluster.records(TOPIC)
        return Counter(record.value or b"" for record in log)


# Reading.


class Reading(Workload):
    """Each step writes a record without a client, and reads."""

    def __init__(self, cluster: EmbeddedCluster, settings: dict[str, Any]) -> None:
        super().__init__(cluster, settings)
        self.written: set[bytes] = set()
        self.read: Counter[bytes] = Counter()

    async def step(self) -> None:
        value = self.next_value()
        await self.cluster.produce(TOPIC, value)
        self.written.add(value)
        await self.catch_up()

    async def catch_up(self) -> None:
        for record in await self.poll():
            self.read[record.value or b""] += 1

    async def poll(self) -> list[Record]:
        raise NotImplementedError

    @property
    def caught_up(self) -> bool:
        return self.written <= self.read.keys()

    @property
    def owed(self) -> str:
        return f"unread: {sorted(self.written - self.read.keys(), key=int)[:5]} of {len(self.written)}"


class Assigned(Reading):
    requests: ClassVar = [ApiVersionsRequest, MetadataRequest, FetchRequest, ListOffsetsRequest]

    async def start(self) -> None:
        self.consumer = await self._stack.enter_async_context(Consumer(**self.settings, **self.group))
        self.consumer.assign([HERE])

    group: ClassVar[dict[str, Any]] = {}

    async def poll(self) -> list[Record]:
        if self._number % 4 == 0:
            await self.consumer.offsets_for_times({HERE: 0}, timeout=5.0)
        return await self.consumer.poll(timeout=PAUSE)

    def health(self) -> Health:
        return self.consumer.health()

    def check(self) -> None:
        assert max(self.read.values()) == 1, "no record is read twice"


class CommitsOnly(Assigned):
    requests: ClassVar = [MetadataRequest, FetchRequest, FindCoordinatorRequest, OffsetCommitRequest]
    group: ClassVar = {"group_id": "commits", "auto_commit_interval": 0.5}


class Member(Reading):
    requests: ClassVar = [
        ApiVersionsRequest,
        MetadataRequest,
        FetchRequest,
        FindCoordinatorRequest,
        OffsetCommitRequest,
        OffsetFetchRequest,
        HeartbeatRequest,
        JoinGroupRequest,
        SyncGroupRequest,
    ]
    group: ClassVar[dict[str, Any]] = {"group_id": "classic", "heartbeat_interval": 0.5}

    async def start(self) -> None:
        member = Consumer(topics=[TOPIC], auto_commit_interval=0.5, **self.settings, **self.group)
        self.consumer = await self._stack.enter_async_context(member)

    async def poll(self) -> list[Record]:
        return await self.consumer.poll(timeout=PAUSE)

    def health(self) -> Health:
        return self.consumer.health()


class ConsumerProtocolMember(Member):
    requests: ClassVar = [
        MetadataRequest,
        FindCoordinatorRequest,
        OffsetCommitRequest,
        OffsetFetchRequest,
        ConsumerGroupHeartbeatRequest,
    ]
    group: ClassVar = {"group_id": "consumer", "group_protocol": "consumer"}


class Processing(Reading):
    """``Workers`` in a ``ConsumerGroup``."""

    requests: ClassVar = Member.requests
    group: ClassVar[dict[str, Any]] = {"group_id": "workers", "heartbeat_interval": 0.5}

    async def start(self) -> None:
        self.consumer_group: ConsumerGroup[Any, Any] = await self._stack.enter_async_context(
            ConsumerGroup(auto_commit_interval=0.5, **self.settings, **self.group)
        )
        self._task = asyncio.create_task(self._consume())
        self._stack.push_async_callback(self._stop)

    async def _consume(self) -> None:
        try:
            await self.consumer_group.consume([TOPIC], Workers(self._process))
        except BaseException as error:
            self.ended = error
            raise

    async def _stop(self) -> None:
        await self.consumer_group.close()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _process(self, record: Record) -> None:
        self.read[record.value or b""] += 1

    async def poll(self) -> list[Record]:
        return []

    def health(self) -> Health:
        return self.consumer_group.health()


class ProcessingConsumerProtocol(Processing):
    requests: ClassVar = ConsumerProtocolMember.requests
    group: ClassVar = {"group_id": "workers of the consumer protocol", "group_protocol": "consumer"}


class Sharing(Reading):
    requests: ClassVar = [
        MetadataRequest,
        FindCoordinatorRequest,
        ShareGroupHeartbeatRequest,
        ShareFetchRequest,
        ShareAcknowledgeRequest,
    ]

    async def start(self) -> None:
        async with Admin(**self.settings) as admin:
            changes = {ConfigResource.group("share"): {"share.auto.offset.reset": "earliest"}}
            (await admin.configs.alter(changes)).raise_for_errors()
        consumer = ShareConsumer(topics=[TOPIC], group_id="share", **self.settings)
        self.consumer = await self._stack.enter_async_context(consumer)

    async def poll(self) -> list[Any]:
        records = await self.consumer.poll(timeout=PAUSE)
        if records and self._number % 4 == 0:
            await self.consumer.commit(timeout=5.0)
        return list(records)

    def health(self) -> Health:
        return self.consumer.health()


class Carrying(Reading):
    """``ExactlyOnce`` carries records to another topic. What a reader of committed transactions finds there, counts."""

    requests: ClassVar = [
        MetadataRequest,
        FindCoordinatorRequest,
        OffsetFetchRequest,
        HeartbeatRequest,
        ProduceRequest,
        EndTxnRequest,
        TxnOffsetCommitRequest,
    ]

    async def start(self) -> None:
        await self.cluster.create_topic("bills")
        enter = self._stack.enter_async_context
        member = {"group_id": "billing", "topics": [TOPIC], "auto_commit": False, "heartbeat_interval": 0.5}
        self.consumer = await enter(Consumer(**self.settings, **member))
        self.producer = await enter(Producer(transactional_id="bills-1", delivery_timeout=20.0, **self.settings))
        self.reader = await enter(Consumer(**self.settings))
        self.reader.assign([TopicPartition("bills", 0)])
        self.session: ExactlyOnce[Any, Any] = ExactlyOnce(self.consumer, self.producer)
        self._task = asyncio.create_task(self._carry())
        self._stack.push_async_callback(self._stop)

    async def _carry(self) -> None:
        try:
            while True:
                try:
                    async for records in self.session:
                        for record in records:
                            self.producer.send_nowait("bills", record.value)
                    return
                except KafkaError as error:
                    self.errors.append(error)
                    await asyncio.sleep(PAUSE)
        except Exception as error:
            self.ended = error
            raise

    async def _stop(self) -> None:
        self.session.stop()
        await asyncio.wait([self._task], timeout=10.0)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def poll(self) -> list[Record]:
        return await self.reader.poll(timeout=PAUSE)

    def health(self) -> Health:
        consumer, producer = self.consumer.health(), self.producer.health()
        return Health(
            is_live=consumer.is_live and producer.is_live,
            is_ready=consumer.is_ready and producer.is_ready,
            problems=(*consumer.problems, *producer.problems),
        )

    def check(self) -> None:
        assert max(self.read.values()) == 1, "no record is carried twice"


# Writing.


class Writing(Workload):
    """Each step sends a record. At the end of a round, one record must be acknowledged."""

    requests: ClassVar = [ApiVersionsRequest, MetadataRequest, ProduceRequest]
    kind: ClassVar[dict[str, Any]] = {"idempotence": False}

    def __init__(self, cluster: EmbeddedCluster, settings: dict[str, Any]) -> None:
        super().__init__(cluster, settings)
        self.acknowledged: list[bytes] = []
        self._before = 0

    async def start(self) -> None:
        self.producer = await self._stack.enter_async_context(
            Producer(delivery_timeout=20.0, request_timeout=5.0, **self.settings, **self.kind)
        )

    async def step(self) -> None:
        value = self.next_value()
        await self.producer.send(TOPIC, value, partition=0)
        self.acknowledged.append(value)

    def begin_round(self) -> None:
        self._before = len(self.acknowledged)

    @property
    def caught_up(self) -> bool:
        return len(self.acknowledged) > self._before

    def health(self) -> Health:
        return self.producer.health()

    def check(self) -> None:
        log = self.log()
        assert [value for value in self.acknowledged if not log[value]] == [], "an acknowledged record is in the log"


class Idempotent(Writing):
    requests: ClassVar = [*Writing.requests, InitProducerIdRequest]
    kind: ClassVar[dict[str, Any]] = {}

    def check(self) -> None:
        super().check()
        assert [value for value, count in self.log().items() if count > 1] == [], "no record is in the log twice"


class Transactional(Idempotent):
    requests: ClassVar = [
        MetadataRequest,
        FindCoordinatorRequest,
        ProduceRequest,
        EndTxnRequest,
        TxnOffsetCommitRequest,
    ]
    kind: ClassVar = {"transactional_id": "orders-1"}

    async def step(self) -> None:
        value = self.next_value()
        async with self.producer.transaction() as transaction:
            await transaction.send(TOPIC, value, partition=0)
            await transaction.send_offsets({HERE: OffsetAndMetadata(self._number)}, GroupMetadata("billing"))
        self.acknowledged.append(value)


WORKLOADS = (
    Assigned,
    CommitsOnly,
    Member,
    ConsumerProtocolMember,
    Processing,
    ProcessingConsumerProtocol,
    Sharing,
    Carrying,
    Writing,
    Idempotent,
    Transactional,
)
