"""Groups on every broker: members of this client, and members of other clients, with each strategy that they share."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any, Protocol

import pytest

from aiokafka_lite import (
    Admin,
    Claim,
    Consumer,
    ConsumerGroup,
    ConsumerGroupHandler,
    ConsumerGroupSession,
    Producer,
    TopicPartition,
)
from aiokafka_lite.group import (
    CooperativeStickyStrategy,
    MemberState,
    RangeStrategy,
    RoundRobinStrategy,
    StickyStrategy,
)
from aiokafka_lite.settings.group import GroupProtocolName
from tests.end_to_end.conftest import Kafka
from tests.end_to_end.read_topic import take
from tests.real.releases import NEWEST, since
from tests.waiting import DEADLINE

_numbers = itertools.count(1)


def new_group() -> str:
    return f"group-{os.getpid()}-{next(_numbers)}"


async def write(kafka: Kafka, topic: str, partitions: int, count: int, first: int = 0) -> None:
    """Write ``count`` records to every partition. The values count from ``first``."""
    async with Producer(kafka.bootstrap_servers) as producer:
        for number in range(first, first + count):
            for partition in range(partitions):
                producer.send_nowait(topic, b"%d" % number, partition=partition)
        await producer.flush()


@pytest.fixture
def group_protocol() -> GroupProtocolName:
    """The protocol of a test that runs by itself; tests of the new protocol pass another one to it."""
    return "classic"


def member(
    kafka: Kafka, topic: str, group: str, group_protocol: GroupProtocolName, instance_id: str | None = None
) -> Consumer:
    return Consumer(
        kafka.bootstrap_servers,
        topics=[topic],
        group_id=group,
        group_protocol=group_protocol,
        group_instance_id=instance_id,
    )


async def test_a_group_continues_at_its_committed_offsets(kafka: Kafka, group_protocol: GroupProtocolName) -> None:
    topic, group = await kafka.create_topic(partitions=3), new_group()
    await write(kafka, topic, 3, 10)
    async with member(kafka, topic, group, group_protocol) as consumer:
        assert len(await take(consumer, 30)) == 30
        assert await consumer.poll(timeout=0.2) == []
        committed = await consumer.commit()
        assert {offset.offset for offset in committed.committed.values()} == {10}
    await write(kafka, topic, 3, 5, first=10)
    async with member(kafka, topic, group, group_protocol) as consumer:
        records = await take(consumer, 15)
        assert sorted({record.offset for record in records}) == [10, 11, 12, 13, 14]
        committed = await consumer.committed(consumer.assignment)
        assert {offset and offset.offset for offset in committed.values()} == {10}


async def test_a_record_whose_next_record_was_not_requested_is_read_again(
    kafka: Kafka, group_protocol: GroupProtocolName
) -> None:
    topic, group = await kafka.create_topic(partitions=1), new_group()
    await write(kafka, topic, 1, 10)
    async with member(kafka, topic, group, group_protocol) as consumer:
        async for record in consumer:
            if record.offset == 4:
                break
    async with member(kafka, topic, group, group_protocol) as consumer:
        assert (await take(consumer, 1))[0].offset == 4


async def test_topics_that_match_are_read_also_those_that_come_later(
    kafka: Kafka, group_protocol: GroupProtocolName
) -> None:
    group, stem = new_group(), f"match-{os.getpid()}-{next(_numbers)}"
    first = await kafka.create_topic(f"{stem}.one", partitions=1)
    await kafka.create_topic(f"other-{stem}", partitions=1)
    await write(kafka, first, 1, 3)
    pattern = re.compile(re.escape(stem) + r"\..*")
    settings: dict[str, Any] = {"group_id": group, "metadata_max_age": 1.0, "group_protocol": group_protocol}
    async with Consumer(kafka.bootstrap_servers, topics=pattern, **settings) as consumer:
        assert {record.topic for record in await take(consumer, 3)} == {first}
        second = await kafka.create_topic(f"{stem}.two", partitions=1)
        await write(kafka, second, 1, 3)
        assert {record.topic for record in await take(consumer, 3)} == {second}


@since("2.3", "Kafka has static members since 2.3 (KIP-345)")
async def test_a_static_member_that_restarts_costs_no_rebalance(
    kafka: Kafka, group_protocol: GroupProtocolName
) -> None:
    topic, group = await kafka.create_topic(partitions=2), new_group()
    await write(kafka, topic, 2, 3)

    async with member(kafka, topic, group, group_protocol, "a") as first:
        second = member(kafka, topic, group, group_protocol, "b")
        await second.start()
        # Under the consumer protocol each member gets the new epoch with its own heartbeat.
        await settled(
            lambda: (
                len(first.assignment) == len(second.assignment) == 1
                and first.group_metadata().generation_id == second.group_metadata().generation_id
            ),
            first,
            second,
        )
        generation, owned = first.group_metadata().generation_id, second.assignment
        await second.close()
        async with member(kafka, topic, group, group_protocol, "b") as second:
            await settled(lambda: second.assignment == owned, first, second)
            assert second.group_metadata().generation_id == generation
            assert first.group_metadata().generation_id == generation


@since("2.3", "Kafka has static members since 2.3 (KIP-345)")
async def test_a_static_member_that_restarts_reads_partitions_that_were_added_meanwhile(
    kafka: Kafka, group_protocol: GroupProtocolName
) -> None:
    """With the classic protocol it is the leader, whose assignment the broker keeps."""
    topic, group = await kafka.create_topic(partitions=1), new_group()
    async with member(kafka, topic, group, group_protocol, "a") as consumer:
        await settled(lambda: len(consumer.assignment) == 1, consumer)
    async with Admin(kafka.bootstrap_servers) as admin:
        await admin.topics.add_partitions({topic: 3})
    async with member(kafka, topic, group, group_protocol, "a") as consumer:
        await settled(lambda: len(consumer.assignment) == 3, consumer)


@since("2.3", "Kafka has static members since 2.3 (KIP-345)")
@pytest.mark.parametrize("returns", ["first", "second"])
async def test_a_static_member_that_restarts_with_other_topics_reads_them(
    kafka: Kafka, group_protocol: GroupProtocolName, returns: str
) -> None:
    """Brokers keep its former assignment (KAFKA-12759)."""
    topic, other, group = await kafka.create_topic(partitions=2), await kafka.create_topic(partitions=2), new_group()
    members = {name: member(kafka, topic, group, group_protocol, name) for name in ("first", "second")}
    async with AsyncExitStack() as stack:
        for consumer in members.values():
            await consumer.start()
            stack.push_async_callback(consumer.close)
        await settled(lambda: all(len(consumer.assignment) == 1 for consumer in members.values()), *members.values())
        await members.pop(returns).close()
        (stays,) = members.values()
        settings: dict[str, Any] = {"group_protocol": group_protocol, "group_instance_id": returns}
        async with Consumer(kafka.bootstrap_servers, topics=[topic, other], group_id=group, **settings) as back:
            await settled(
                lambda: (
                    {*stays.assignment, *back.assignment}
                    == {TopicPartition(name, number) for name in (topic, other) for number in (0, 1)}
                ),
                stays,
                back,
            )


async def test_a_handler_reads_claims(kafka: Kafka, group_protocol: GroupProtocolName) -> None:
    topic, group = await kafka.create_topic(partitions=3), new_group()
    await write(kafka, topic, 3, 20)
    counts: dict[int, int] = {}
    done = asyncio.Event()

    class Handler(ConsumerGroupHandler):
        async def consume_claim(self, session: ConsumerGroupSession, claim: Claim) -> None:
            async for record in claim:
                counts[claim.partition] = counts.get(claim.partition, 0) + 1
                session.mark(record)
                if sum(counts.values()) == 60:
                    done.set()

    settings: dict[str, Any] = {"group_id": group, "group_protocol": group_protocol}
    async with ConsumerGroup(kafka.bootstrap_servers, **settings) as consumer_group:
        task = asyncio.create_task(consumer_group.consume([topic], Handler()))
        async with asyncio.timeout(DEADLINE):
            await done.wait()
        await consumer_group.close()
        await task
    assert counts == {0: 20, 1: 20, 2: 20}
    async with Consumer(kafka.bootstrap_servers, group_id=group) as reader:
        committed = await reader.committed([TopicPartition(topic, number) for number in range(3)])
        assert {offset and offset.offset for offset in committed.values()} == {20}


@since("4.0", "the consumer group protocol (KIP-848) needs Kafka 4.0")
@pytest.mark.parametrize(
    "promise",
    [
        test_a_group_continues_at_its_committed_offsets,
        test_a_record_whose_next_record_was_not_requested_is_read_again,
        test_topics_that_match_are_read_also_those_that_come_later,
        test_a_static_member_that_restarts_costs_no_rebalance,
        test_a_handler_reads_claims,
    ],
)
async def test_a_promise_of_the_classic_protocol_holds_for_a_group_of_the_new_protocol(
    kafka: Kafka, promise: Callable[..., Awaitable[None]]
) -> None:
    await promise(kafka, group_protocol="consumer")


@since("4.0", "the consumer group protocol (KIP-848) needs Kafka 4.0")
async def test_a_member_of_the_new_protocol_shares_partitions_with_one_of_librdkafka(kafka: Kafka) -> None:
    confluent_kafka = pytest.importorskip("confluent_kafka")
    topic, group = await kafka.create_topic(partitions=5), new_group()
    settings = {"group.id": group, "group.protocol": "consumer", "log_level": 0}
    peer = PollingConsumer(
        lambda: confluent_kafka.Consumer({"bootstrap.servers": kafka.bootstrap_servers, **settings}), topic
    )
    async with member(kafka, topic, group, "auto") as ours:
        await settled(lambda: len(ours.assignment) == 5, ours)
        peer.start()
        try:
            await settled(lambda: whole([{partition.partition for partition in ours.assignment}, peer.owned], 5), ours)
        finally:
            await peer.stop()


@pytest.mark.parametrize("blocked", [1.0, pytest.param(8.0, marks=pytest.mark.long)])
async def test_a_claim_that_blocks_the_event_loop_loses_the_session_only_beyond_its_timeout(
    kafka: Kafka, blocked: float
) -> None:
    if kafka.kind == "embedded":
        pytest.skip("a blocked loop would block the embedded cluster too; tests in virtual time cover this")
    if kafka.kind == "jvm" and kafka.version != NEWEST:
        pytest.skip("the test is slow and does not depend on the release")
    topic, group = await kafka.create_topic(partitions=3), new_group()
    await write(kafka, topic, 3, 20)
    done: set[tuple[int, int]] = set()
    sessions: list[int] = []
    all_done = asyncio.Event()
    partitions = [TopicPartition(topic, number) for number in range(3)]

    class Blocking(ConsumerGroupHandler):
        async def setup(self, session: ConsumerGroupSession) -> None:
            sessions.append(session.generation_id)

        async def consume_claim(self, session: ConsumerGroupSession, claim: Claim) -> None:
            async for record in claim:
                if record.offset == 5 and claim.partition == 0 and len(sessions) == 1:
                    time.sleep(blocked)
                done.add((record.partition, record.offset))
                await asyncio.sleep(0.05)  # the work for a record
                if not session.cancelled:
                    session.mark(record)
                if len(done) == 60:
                    all_done.set()

    # A claim that does not block for long has a session that the pauses of a busy machine do not end either.
    settings: dict[str, Any] = {"session_timeout": 6.0 if blocked > 6.0 else 20.0, "heartbeat_interval": 1.0}
    async with ConsumerGroup(kafka.bootstrap_servers, group_id=group, **settings) as consumer_group:
        task = asyncio.create_task(consumer_group.consume([topic], Blocking()))
        # A later session reads the records again that an evicted one could not commit.
        async with asyncio.timeout(DEADLINE), Consumer(kafka.bootstrap_servers, group_id=group) as reader:
            await all_done.wait()
            while {offset and offset.offset for offset in (await reader.committed(partitions)).values()} != {20}:
                await asyncio.sleep(0.1)
        await consumer_group.close()
        await task
    assert len(sessions) == (1 if blocked < 6.0 else 2)


async def test_kafkas_own_tool_describes_the_group(kafka: Kafka) -> None:
    topic, group = await kafka.create_topic(partitions=2), new_group()
    await write(kafka, topic, 2, 5)
    settings: dict[str, Any] = {"group_id": group, "client_id": "describe-me"}
    async with Consumer(kafka.bootstrap_servers, topics=[topic], **settings) as consumer:
        await take(consumer, 10)
        await consumer.poll(timeout=0.1)
        await consumer.commit()
        await write(kafka, topic, 2, 2, first=5)
        said = await asyncio.to_thread(kafka.tool, "consumer-groups", "--describe", "--group", group)
    rows = sorted(table(said), key=lambda row: row["PARTITION"])
    columns = ("TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CLIENT-ID")
    assert [tuple(row[name] for name in columns) for row in rows] == [
        (topic, "0", "5", "7", "2", "describe-me"),
        (topic, "1", "5", "7", "2", "describe-me"),
    ]


def table(said: str) -> list[dict[str, str]]:
    """Return the rows below the column titles that a tool of Kafka printed. Kafka 1.1 has no column for the group
    yet."""
    lines = [line.split() for line in said.splitlines()]
    start = next((number for number, words in enumerate(lines) if "CURRENT-OFFSET" in words), len(lines))
    return [dict(zip(lines[start], words)) for words in lines[start + 1 :] if words]


# ---- with other clients


class Peer(Protocol):
    """A member by another client, which polls in a thread or task of its own."""

    async def start(self, servers: str, topic: str, group: str, strategy: str) -> None: ...

    def assignment(self) -> set[int]: ...

    async def stop(self) -> None: ...


class PollingConsumer:
    """A confluent-kafka consumer that polls in a thread."""

    def __init__(self, make: Callable[[], Any], topic: str) -> None:
        self.owned: set[int] = set()
        self._make = make
        self._topic = topic
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        consumer = self._make()
        consumer.subscribe([self._topic])
        while not self._over.is_set():
            consumer.poll(0.1)
            self.owned = {partition.partition for partition in consumer.assignment()}
        consumer.close()

    async def stop(self) -> None:
        self._over.set()
        await asyncio.to_thread(self._thread.join)


class ConfluentPeer:
    """A librdkafka member."""

    strategies = ("range", "roundrobin", "cooperative-sticky")

    async def start(self, servers: str, topic: str, group: str, strategy: str) -> None:
        confluent_kafka = pytest.importorskip("confluent_kafka")
        settings = {
            "bootstrap.servers": servers,
            "group.id": group,
            "partition.assignment.strategy": strategy,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 10_000,
            "heartbeat.interval.ms": 500,
            "log_level": 0,
        }
        self._consumer = PollingConsumer(lambda: confluent_kafka.Consumer(settings), topic)
        self._consumer.start()

    def assignment(self) -> set[int]:
        return self._consumer.owned

    async def stop(self) -> None:
        await self._consumer.stop()


KAFKA_PYTHON_ASSIGNORS = {
    "range": ("range", "RangePartitionAssignor"),
    "roundrobin": ("roundrobin", "RoundRobinPartitionAssignor"),
    "sticky": ("sticky.sticky_assignor", "StickyPartitionAssignor"),
    "cooperative-sticky": ("cooperative_sticky", "CooperativeStickyAssignor"),
}


class KafkaPythonPeer:
    """A kafka-python member."""

    strategies = ("range", "roundrobin", "sticky", "cooperative-sticky")

    async def start(self, servers: str, topic: str, group: str, strategy: str) -> None:
        kafka_python = pytest.importorskip("kafka")
        assignor = self._assignor(strategy)
        self._topic = topic
        self._make = lambda: kafka_python.KafkaConsumer(
            bootstrap_servers=servers.split(","),
            group_id=group,
            partition_assignment_strategy=[assignor],
            auto_offset_reset="earliest",
            session_timeout_ms=10_000,
            heartbeat_interval_ms=500,
        )
        self._over = threading.Event()
        self._owned: set[int] = set()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    @staticmethod
    def _assignor(strategy: str) -> Any:
        module, name = KAFKA_PYTHON_ASSIGNORS[strategy]
        return getattr(pytest.importorskip(f"kafka.coordinator.assignors.{module}"), name)

    def _run(self) -> None:
        consumer = self._make()
        # A kafka-python leader that does not know the topic yet assigns no partitions, and does not repair that later.
        while not consumer.partitions_for_topic(self._topic):
            pass
        consumer.subscribe([self._topic])
        while not self._over.is_set():
            consumer.poll(100)
            self._rejoin_if_forgotten(consumer)
            self._owned = {partition.partition for partition in consumer.assignment()}
        consumer.close()

    @staticmethod
    def _rejoin_if_forgotten(consumer: Any) -> None:
        """Join again after a join that ended between two polls.

        kafka-python 3.0.12 then never completes the join: it keeps its old assignment and sends no heartbeats. So the
        coordinator evicts it. On a busy machine, a join takes longer than one poll.
        """
        coordinator = consumer._coordinator
        join = coordinator._join_task
        if join is not None and join.is_done and not coordinator.need_rejoin():
            coordinator.request_rejoin()

    def assignment(self) -> set[int]:
        return self._owned

    async def stop(self) -> None:
        self._over.set()
        await asyncio.to_thread(self._thread.join)


class AiokafkaPeer:
    """An aiokafka member."""

    strategies = ("range", "roundrobin", "sticky")

    async def start(self, servers: str, topic: str, group: str, strategy: str) -> None:
        aiokafka = pytest.importorskip("aiokafka")
        from aiokafka.coordinator.assignors.range import RangePartitionAssignor
        from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
        from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

        assignors = (RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor)
        by_name = {assignor.name: assignor for assignor in assignors}
        self._consumer = aiokafka.AIOKafkaConsumer(
            topic,
            bootstrap_servers=servers,
            group_id=group,
            partition_assignment_strategy=[by_name[strategy]],
            auto_offset_reset="earliest",
            heartbeat_interval_ms=500,
        )
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        await self._consumer.start()
        try:
            while True:
                await self._consumer.getmany(timeout_ms=100)
        finally:
            await self._consumer.stop()

    def assignment(self) -> set[int]:
        return {partition.partition for partition in self._consumer.assignment()}

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


OURS = {
    "range": RangeStrategy,
    "roundrobin": RoundRobinStrategy,
    "sticky": StickyStrategy,
    "cooperative-sticky": CooperativeStickyStrategy,
}

PEERS: list[tuple[Callable[[], Peer], str]] = [
    (peer, strategy) for peer in (ConfluentPeer, KafkaPythonPeer, AiokafkaPeer) for strategy in peer.strategies
]


async def settled(condition: Callable[[], bool], *consumers: Consumer) -> None:
    """Wait until the condition holds and these consumers are stable members. They poll meanwhile."""
    ends = time.monotonic() + DEADLINE
    while not (condition() and all(consumer.membership is MemberState.STABLE for consumer in consumers)):
        assert time.monotonic() < ends, [(consumer.membership, consumer.assignment) for consumer in consumers]
        await asyncio.gather(asyncio.sleep(0.05), *(consumer.poll(timeout=0.1) for consumer in consumers))


def whole(sets: Sequence[set[int]], count: int) -> bool:
    return sorted(number for set_ in sets for number in set_) == list(range(count)) and all(sets)


@pytest.mark.parametrize("leads", ["ours", "theirs"])
@pytest.mark.parametrize(
    "make,strategy",
    [pytest.param(peer, strategy, id=f"{peer.__name__}-{strategy}") for peer, strategy in PEERS],
)
async def test_a_group_of_two_clients_shares_partitions(
    kafka: Kafka, make: Callable[[], Peer], strategy: str, leads: str
) -> None:
    topic, group = await kafka.create_topic(partitions=5), new_group()
    await write(kafka, topic, 5, 20)
    peer = make()
    ours = Consumer(
        kafka.bootstrap_servers, topics=[topic], group_id=group, strategies=[OURS[strategy]()], heartbeat_interval=0.5
    )

    def own() -> set[int]:
        return {partition.partition for partition in ours.assignment}

    if leads == "ours":
        await ours.start()
        await settled(lambda: len(own()) == 5, ours)
    await peer.start(kafka.bootstrap_servers, topic, group, strategy)
    try:
        if leads == "theirs":
            await settled(lambda: len(peer.assignment()) == 5)
            await ours.start()
        await settled(lambda: whole([own(), peer.assignment()], 5), ours)
        await peer.stop()
        await settled(lambda: len(own()) == 5, ours)
    finally:
        await peer.stop()
        await ours.close()
