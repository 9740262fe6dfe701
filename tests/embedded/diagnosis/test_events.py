"""``on_event`` of each client is told each fact once: connections, outages, rebalances, partitions, refused commits."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from aiokafka_lite import Admin, Consumer, ConsumerGroup, Producer, Record, Workers
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.embedded.coordinators.groups.records import OFFSETS_TOPIC, partition_of
from aiokafka_lite.errors import CommitFailed, ConfigurationError, ErrorCode
from aiokafka_lite.events import (
    ClientEvent,
    CommitRefused,
    ConnectionClosed,
    ConnectionOpened,
    OutageBegan,
    OutageEnded,
    PartitionsAssigned,
    PartitionsLost,
    PartitionsRevoked,
    RebalanceBegan,
    RebalanceEnded,
)
from aiokafka_lite.protocol.messages import OffsetCommitRequest, ShareGroupHeartbeatRequest, TxnOffsetCommitRequest
from aiokafka_lite.types import TopicPartition
from tests.embedded.share.billing_consumers import share_consumer
from tests.waiting import until

ORDERS = (TopicPartition("orders", 0), TopicPartition("orders", 1))

each_protocol = pytest.mark.parametrize("protocol", ["classic", "consumer"])


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    """Three brokers with two partitions of ``orders``, both on the first broker."""
    configs = {"offsets.topic.replication.factor": "3", "transaction.state.log.replication.factor": "3"}
    async with EmbeddedCluster(brokers=3, tcp=False, seed=1, auto_create_topics=False, configs=configs) as cluster:
        await cluster.create_topic("orders", partitions=2)
        yield cluster


class Events(list[ClientEvent]):
    """The events of a client, in their order."""

    def __init__(self) -> None:
        super().__init__()
        self.on_event: Callable[[ClientEvent], None] = self.append

    def of(self, *kinds: type[ClientEvent]) -> list[Any]:
        return [event for event in self if isinstance(event, kinds)]

    @property
    def of_membership(self) -> list[Any]:
        """The events without their times, apart from connections and outages."""
        untold = (ConnectionOpened, ConnectionClosed, OutageBegan, OutageEnded)
        return [
            (RebalanceEnded, event.succeeded) if isinstance(event, RebalanceEnded) else event
            for event in self
            if not isinstance(event, untold)
        ]


@pytest.fixture
def events() -> Events:
    return Events()


def settings_of(cluster: EmbeddedCluster, events: Events, **settings: Any) -> dict[str, Any]:
    return {
        "bootstrap_servers": cluster.bootstrap_servers,
        "connector": cluster.connector,
        "on_event": events.on_event,
        **settings,
    }


def member_of(cluster: EmbeddedCluster, events: Events, **settings: Any) -> Consumer[bytes, bytes]:
    return Consumer(**settings_of(cluster, events, topics=["orders"], group_id="billing", **settings))


def assert_each_connection_is_closed_once(events: Events) -> None:
    opened = Counter((event.node_id, event.address, event.purpose) for event in events.of(ConnectionOpened))
    closed = Counter((event.node_id, event.address, event.purpose) for event in events.of(ConnectionClosed))
    assert opened == closed
    assert opened


# Connections and outages.


async def produce(cluster: EmbeddedCluster, events: Events) -> None:
    async with Producer(**settings_of(cluster, events)) as producer:
        await producer.send("orders", b"1")


async def administer(cluster: EmbeddedCluster, events: Events) -> None:
    async with Admin(**settings_of(cluster, events)) as admin:
        await admin.topics.list()


async def consume(cluster: EmbeddedCluster, events: Events) -> None:
    async with Consumer(**settings_of(cluster, events, topics=["orders"])) as consumer:
        await anext(consumer)


async def share(cluster: EmbeddedCluster, events: Events) -> None:
    async with share_consumer(cluster, on_event=events.on_event) as consumer:
        await until(lambda: len(consumer.assignment) == 2)


async def work(cluster: EmbeddedCluster, events: Events) -> None:
    group = ConsumerGroup(**settings_of(cluster, events, group_id="workers"))

    async def handle(record: Record[bytes, bytes]) -> None:
        asyncio.get_running_loop().create_task(group.close())

    await group.consume(["orders"], Workers(handle))


@pytest.mark.parametrize("use", [produce, administer, consume, share, work])
async def test_each_client_tells_its_connections_once_when_they_open_and_once_when_they_close(
    cluster: EmbeddedCluster, events: Events, use: Callable[[EmbeddedCluster, Events], Any]
) -> None:
    await cluster.produce("orders", b"1")
    await use(cluster, events)
    assert_each_connection_is_closed_once(events)
    assert not [event for event in events.of(ConnectionClosed) if event.error is not None]
    assert not events.of(OutageBegan, OutageEnded)


async def test_a_broker_that_is_killed_and_returns_is_one_outage(cluster: EmbeddedCluster, events: Events) -> None:
    node = cluster.leader_of("orders", 0)
    async with Producer(**settings_of(cluster, events)) as producer:
        await producer.send("orders", b"1", partition=0)
        (opened,) = [event for event in events.of(ConnectionOpened) if event.purpose == "produce"]
        assert opened.node_id == node
        await cluster.kill(node, noticed_after=60.0)
        delivery = producer.send_nowait("orders", b"2", partition=0)
        await asyncio.sleep(20.0)  # virtual
        await cluster.start_node(node)
        await delivery
        await until(lambda: events.of(OutageEnded))
        await asyncio.sleep(60.0)  # virtual
    lost = [event for event in events.of(ConnectionClosed) if event.error is not None]
    assert {event.node_id for event in lost} == {node}
    assert_each_connection_is_closed_once(events)
    place = f"broker {node} at {opened.address}"
    assert [event.place for event in events.of(OutageBegan)] == [place]
    (ended,) = events.of(OutageEnded)
    assert (ended.place, ended.recovered) == (place, True)
    assert ended.failures > 1
    assert ended.seconds > 5.0
    assert events.index(lost[0]) < events.index(events.of(OutageBegan)[0]), "the loss is the cause"


async def test_an_outage_of_a_client_that_closes_ends_without_a_recovery(
    cluster: EmbeddedCluster, events: Events
) -> None:
    node = cluster.leader_of("orders", 0)
    async with Producer(**settings_of(cluster, events)) as producer:
        await producer.send("orders", b"1", partition=0)
        await cluster.kill(node, noticed_after=5.0)
        await until(lambda: events.of(OutageBegan))
    assert [(event.place, event.recovered) for event in events.of(OutageEnded)] == [
        (event.place, False) for event in events.of(OutageBegan)
    ]


async def test_each_kind_of_outage_ends_when_the_client_closes(cluster: EmbeddedCluster, events: Events) -> None:
    await cluster.produce("orders", b"1")
    async with Consumer(**settings_of(cluster, events, topics=["orders"])) as consumer:
        await anext(consumer)
        for node in cluster.nodes:
            await cluster.kill(node)
        await until(lambda: {event.place.split()[0] for event in events.of(OutageBegan)} >= {"broker", "fetching"})
    began, ended = (Counter(event.place for event in events.of(kind)) for kind in (OutageBegan, OutageEnded))
    assert began == ended
    assert not any(event.recovered for event in events.of(OutageEnded))


# Members of groups.


@each_protocol
async def test_a_member_tells_its_rebalance_and_its_partitions(
    cluster: EmbeddedCluster, events: Events, protocol: str
) -> None:
    async with member_of(cluster, events, group_protocol=protocol) as consumer:
        await until(lambda: len(consumer.assignment) == 2 and events.of(PartitionsAssigned))
        (ended,) = events.of(RebalanceEnded)
        assert ended.generation == consumer.group_metadata().generation_id
        assert ended.seconds >= 0
    joined = [RebalanceBegan("billing"), (RebalanceEnded, True)]
    assert [event for event in events.of_membership if not isinstance(event, RebalanceBegan)][:2] == [
        (RebalanceEnded, True),
        PartitionsAssigned("billing", ORDERS),
    ]
    assert events.of_membership[:2] == joined
    assert events.of(PartitionsRevoked, PartitionsLost) == [PartitionsRevoked("billing", ORDERS)]


@each_protocol
async def test_a_partition_that_moves_to_another_member_is_revoked_once_and_assigned_once(
    cluster: EmbeddedCluster, events: Events, protocol: str
) -> None:
    others = Events()
    strategies = {} if protocol == "consumer" else {"strategies": ["cooperative-sticky"]}
    settings: dict[str, Any] = {"group_protocol": protocol, **strategies}
    async with member_of(cluster, events, **settings) as first:
        await until(lambda: len(first.assignment) == 2)
        async with member_of(cluster, others, **settings) as second:
            await until(lambda: len(first.assignment) == len(second.assignment) == 1)
            await until(lambda: others.of(PartitionsAssigned))
            moved = second.assignment
    assert events.of(PartitionsRevoked)[0] == PartitionsRevoked("billing", moved)
    assert others.of(PartitionsAssigned) == [PartitionsAssigned("billing", moved)]
    assert others.of(PartitionsRevoked) == [PartitionsRevoked("billing", moved)]
    assert not events.of(PartitionsLost) + others.of(PartitionsLost)
    for told in (events, others):
        assert len(told.of(RebalanceBegan)) == len(told.of(RebalanceEnded))


@each_protocol
async def test_a_coordinator_that_moves_is_no_rebalance_and_no_loss(
    cluster: EmbeddedCluster, events: Events, protocol: str
) -> None:
    async with member_of(cluster, events, group_protocol=protocol) as consumer:
        await until(lambda: events.of(PartitionsAssigned))
        before = len(events.of_membership)
        number = partition_of("billing", len(cluster.controller.topics[OFFSETS_TOPIC].partitions))
        old = cluster.leader_of(OFFSETS_TOPIC, number)
        await cluster.move_leader(OFFSETS_TOPIC, number)
        await asyncio.sleep(30.0)  # virtual
        assert cluster.leader_of(OFFSETS_TOPIC, number) != old
        assert len(consumer.assignment) == 2
        assert events.of_membership[before:] == []
        assert not events.of(CommitRefused)
        # Its requests were refused for a moment: at most one outage, which is over.
        assert Counter(event.place for event in events.of(OutageBegan)) == Counter(
            event.place for event in events.of(OutageEnded)
        )
        assert len(events.of(OutageBegan)) <= 1


async def test_a_commit_of_a_stale_generation_is_told_once_with_the_loss_of_the_partitions(
    cluster: EmbeddedCluster, events: Events
) -> None:
    await cluster.produce("orders", b"1", partition=0)
    async with member_of(cluster, events, auto_commit=False) as consumer:
        record = await anext(consumer)
        before = len(events)
        consumer.mark(record)
        cluster.on(OffsetCommitRequest).fail(ErrorCode.ILLEGAL_GENERATION)
        result = await consumer.commit()
        await until(lambda: len(events.of(PartitionsAssigned)) == 2)
        told = [
            (RebalanceEnded, event.succeeded) if isinstance(event, RebalanceEnded) else event
            for event in events[before:]
            if not isinstance(event, ConnectionOpened | OutageBegan | OutageEnded)
        ]
    assert told == [
        CommitRefused("billing", result.refused),
        PartitionsLost("billing", ORDERS),
        RebalanceBegan("billing"),
        (RebalanceEnded, True),
        PartitionsAssigned("billing", ORDERS),
    ]
    assert list(result.refused) == [ORDERS[0]]


async def test_refused_offsets_of_a_transaction_are_told_by_its_producer(
    cluster: EmbeddedCluster, events: Events
) -> None:
    member_events = Events()
    async with (
        member_of(cluster, member_events, auto_commit=False) as consumer,
        Producer(**settings_of(cluster, events, transactional_id="billing-1")) as producer,
    ):
        await until(lambda: len(consumer.assignment) == 2)
        cluster.on(TxnOffsetCommitRequest).fail(ErrorCode.ILLEGAL_GENERATION)
        await producer.begin_transaction()
        with pytest.raises(CommitFailed) as raised:
            await producer.send_offsets_to_transaction({ORDERS[0]: 1}, consumer.group_metadata())
        await producer.abort_transaction()
    assert events.of(CommitRefused) == [CommitRefused("billing", raised.value.refused)]
    assert not member_events.of(CommitRefused)


async def test_a_share_consumer_tells_its_partitions(cluster: EmbeddedCluster, events: Events) -> None:
    async with share_consumer(cluster, on_event=events.on_event) as consumer:
        await until(lambda: len(consumer.assignment) == 2)
        cluster.on(ShareGroupHeartbeatRequest).fail(ErrorCode.UNKNOWN_MEMBER_ID)
        await until(lambda: len(events.of(PartitionsAssigned)) == 2)
    assert events.of_membership == [
        PartitionsAssigned("billing", ORDERS),
        PartitionsLost("billing", ORDERS),
        PartitionsAssigned("billing", ORDERS),
        PartitionsRevoked("billing", ORDERS),
    ]


# The function of the user.


async def test_an_event_is_told_inside_the_call_that_it_concerns(cluster: EmbeddedCluster) -> None:
    tasks = []
    settings = {"bootstrap_servers": cluster.bootstrap_servers, "connector": cluster.connector}
    async with Producer(**settings, on_event=lambda event: tasks.append(asyncio.current_task())) as producer:
        assert tasks, "the bootstrap connection was told before the start has returned"
        await producer.send("orders", b"1")


@pytest.mark.parametrize("error", [ValueError("no such metric"), asyncio.CancelledError()])
async def test_an_exception_is_logged_once_per_kind_and_changes_nothing(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    def on_event(event: ClientEvent) -> None:
        raise error

    await cluster.produce("orders", b"1", partition=0)
    caplog.set_level(logging.ERROR)
    consumer = Consumer(
        cluster.bootstrap_servers,
        topics=["orders"],
        group_id="billing",
        connector=cluster.connector,
        on_event=on_event,
    )
    async with consumer:
        assert (await anext(consumer)).value == b"1"
    about = "on_event for {} failed; this error is not logged again"
    kinds = ["ConnectionOpened", "RebalanceBegan", "RebalanceEnded", "PartitionsAssigned", "PartitionsRevoked"]
    assert sorted(record.getMessage() for record in caplog.records) == sorted(
        about.format(kind) for kind in [*kinds, "ConnectionClosed"]
    )


async def on_event_async(event: ClientEvent) -> None:
    """Handle an event in a way that no client awaits."""


class AsyncObserver:
    async def __call__(self, event: ClientEvent) -> None: ...

    async def method(self, event: ClientEvent) -> None: ...


@pytest.mark.parametrize(
    "function", ["log", 5, on_event_async, AsyncObserver(), AsyncObserver().method], ids=lambda value: repr(value)[:20]
)
@pytest.mark.parametrize("client", [Producer, Consumer, Admin])
def test_a_wrong_function_is_refused(client: Any, function: object) -> None:
    with pytest.raises(ConfigurationError, match="on_event must be a plain function of an event, or None, got"):
        client("localhost:9092", on_event=function)
