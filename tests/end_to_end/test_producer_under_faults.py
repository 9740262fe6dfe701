"""The promises of the producer while a cluster of three nodes fails, on Apache Kafka and on the embedded cluster.

In each scenario, producers of four kinds write to two topics. One topic has a single replica, on the broker that fails.
The other has three replicas, and mostly that broker as its leader. Consumers read along, by themselves and in a group.
Afterwards other consumers read all records, and the history is checked: each acknowledged record is there once, at its
offset, in the order of sending.
"""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Collection, Sequence
from typing import Any

import pytest

from aiokafka_lite import BrokerError, EmbeddedCluster, KafkaTimeout, TopicPartition
from aiokafka_lite.aio.retry import is_retriable
from aiokafka_lite.embedded import ClusterConfig
from aiokafka_lite.embedded.faults import Fault
from aiokafka_lite.errors import ErrorCode
from aiokafka_lite.protocol.messages import ProduceRequest
from tests.end_to_end.failing_clusters import BreakableCluster, BreakableEmbedded
from tests.end_to_end.parallel_writers import Traffic, Writer, read_back, read_back_by_librdkafka, traffic
from tests.end_to_end.send_history import Found, Outcome, Send
from tests.waiting import DEADLINE

VICTIM = 2
ALONE = [[VICTIM], [VICTIM]]
REPLICATED = [[VICTIM, 3, 1], [3, VICTIM, 1]]
SAFE = {"min.insync.replicas": "2"}

_numbers = itertools.count(1)


@pytest.fixture
def cluster(breakable: BreakableCluster) -> BreakableCluster:
    return breakable


class Topics:
    """One topic with a single replica, one with three replicas, and their partitions."""

    def __init__(self) -> None:
        number = next(_numbers)
        self.alone, self.replicated = f"alone-{number}", f"replicated-{number}"
        self.alone_lanes = [TopicPartition(self.alone, partition) for partition in range(2)]
        self.replicated_lanes = [TopicPartition(self.replicated, partition) for partition in range(2)]
        self.lanes = [*self.alone_lanes, *self.replicated_lanes]


@pytest.fixture
async def topics(cluster: BreakableCluster) -> Topics:
    topics = Topics()
    await make(cluster, topics)
    return topics


async def make(cluster: BreakableCluster, topics: Topics) -> None:
    await cluster.create_topic(topics.alone, ALONE)
    await cluster.create_topic(topics.replicated, REPLICATED, SAFE)


async def check(cluster: BreakableCluster, topics: Topics, flow: Traffic) -> None:
    """Compare the sends with what three readers find: one that read along, one that did not, and librdkafka."""
    values = await read_back(cluster.bootstrap_servers, topics.lanes)
    assert flow.broken_promises(values, alone=[topics.alone]) == []
    acknowledged = {send.value for writer in flow.writers for send in writer.history.of(Outcome.ACKNOWLEDGED)}
    by_librdkafka = await asyncio.to_thread(read_back_by_librdkafka, cluster.bootstrap_servers, topics.lanes)
    for lane in topics.lanes:
        followed, in_log, again = (
            [record for record in records if record.topic_partition == lane]
            for records in (flow.followed, sorted(values), sorted(by_librdkafka))
        )
        assert_same(lane, followed, in_log, acknowledged)
        assert_same(lane, again, in_log, acknowledged)
        assert_complete(lane, flow.followed_by_group, in_log, acknowledged)


def assert_same(
    lane: TopicPartition, read: Sequence[Found], in_log: Sequence[Found], acknowledged: Collection[bytes]
) -> None:
    """Assert that a reader read the records in order, without a gap. Only the last ones may differ, if none was
    acknowledged.

    A broker may write the records of a request that timed out after a reader has looked up the end of the log.
    """
    shorter, longer = sorted((read, in_log), key=len)
    assert list(shorter) == list(longer[: len(shorter)]), f"a reader lost, repeated or reordered records of {lane}"
    missed = [record for record in longer[len(shorter) :] if record.value in acknowledged]
    assert missed == [], f"a reader missed the last records of {lane}"


def assert_complete(
    lane: TopicPartition, followed: Sequence[Found], in_log: Sequence[Found], acknowledged: Collection[bytes]
) -> None:
    """Assert that a group continues at its committed offsets: it may read records again, but never skips one."""
    position = 0
    for record in followed:
        if record.topic_partition == lane:
            assert record.offset <= position, f"the group went from {position} to {record.offset} in {lane}"
            position = max(position, record.offset + 1)
    missed = [record for record in in_log if record.offset >= position and record.value in acknowledged]
    assert missed == [], f"the group read {position} records of {lane}"


def assert_clear(failures: Sequence[Send], delivery_timeout: float) -> None:
    """Assert that each error says that the record was not acknowledged, for which partition, and within which
    timeout."""
    for send in failures:
        assert isinstance(send.error, KafkaTimeout), repr(send.error)
        where = re.escape(f"{send.topic_partition.topic}-{send.topic_partition.partition}")
        said = rf"no acknowledgement of .* for {where} within delivery_timeout={delivery_timeout:g} s\b"
        assert re.search(said, str(send.error))


async def test_leaders_move_while_records_are_sent(cluster: BreakableCluster, topics: Topics) -> None:
    async with traffic(cluster.bootstrap_servers, topics.lanes, request_timeout=10.0) as flow:
        await flow.flows(10)
        for leader in (1, 3, 2, 1):
            for lane in topics.replicated_lanes:
                await cluster.move_leader(*lane, leader)
            await flow.flows(20)
    assert flow.failures() == []
    await check(cluster, topics, flow)


@pytest.mark.long
async def test_single_requests_fail_among_others_that_do_not() -> None:
    """Only the embedded cluster can fail a single request, and handle the next one."""
    topics = Topics()
    async with EmbeddedCluster(
        brokers=3, auto_create_topics=False, config=ClusterConfig(replication_delay=0.005)
    ) as embedded:
        cluster = BreakableEmbedded(embedded)
        await make(cluster, topics)
        for number in range(5, 300, 5):
            for lane in topics.lanes:
                _break_one(embedded.on(ProduceRequest, topic=lane.topic, partition=lane.partition, nth=number), number)
        quick: dict[str, Any] = {"retry_backoff": 0.01, "reconnect_backoff": 0.01, "reconnect_backoff_max": 0.1}
        async with traffic(cluster.bootstrap_servers, topics.lanes, request_timeout=5.0, **quick) as flow:
            await flow.flows(100)
        assert flow.failures() == []
        await check(cluster, topics, flow)


def _break_one(fault: Fault, number: int) -> None:
    match number // 5 % 5:
        case 0:
            fault.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        case 1:
            fault.apply_then_disconnect()
        case 2:
            fault.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
        case 3:
            fault.disconnect()
        case _:
            fault.fail(ErrorCode.REQUEST_TIMED_OUT)


@pytest.mark.parametrize("way", ["stop", "kill"])
async def test_a_broker_goes_and_comes_back(cluster: BreakableCluster, topics: Topics, way: str) -> None:
    async with traffic(cluster.bootstrap_servers, topics.lanes, request_timeout=5.0) as flow:
        await flow.flows(10)
        await (cluster.stop(VICTIM) if way == "stop" else cluster.kill(VICTIM))
        await flow.flows(20, topics.replicated_lanes)
        await cluster.start(VICTIM)
        await flow.flows(20)
        await cluster.until_in_sync(topics.replicated)
        await cluster.move_leader(*topics.replicated_lanes[0], VICTIM)
        await flow.flows(10)
    assert flow.failures() == []
    await check(cluster, topics, flow)


async def new_sends_are_acknowledged(writers: Sequence[Writer], lanes: Sequence[TopicPartition]) -> None:
    """Wait until a new send of each writer to each of these partitions is acknowledged.

    Tests in virtual time (tests/embedded/producer) say how soon. Here a send may expire first: on a busy machine the
    records before it take longer than ``delivery_timeout``.
    """

    async def probe(writer: Writer, lane: TopicPartition) -> None:
        while True:
            send, delivery = writer.begin(lane)
            await writer.end(send, delivery)
            if send.outcome is Outcome.ACKNOWLEDGED:
                return

    async with asyncio.timeout(DEADLINE):
        await asyncio.gather(*(probe(writer, lane) for writer in writers for lane in lanes))


@pytest.mark.long
async def test_a_broker_is_frozen_for_longer_than_records_may_wait(cluster: BreakableCluster, topics: Topics) -> None:
    delivery_timeout = 2 * cluster.session_timeout
    settings: dict[str, Any] = {"delivery_timeout": delivery_timeout, "request_timeout": delivery_timeout / 3}
    async with traffic(cluster.bootstrap_servers, topics.lanes, **settings) as flow:
        await flow.flows(20)
        await cluster.freeze(VICTIM)
        await flow.fails(10, topics.alone_lanes)
        await flow.flows(20, topics.replicated_lanes)  # other brokers lead now
        await cluster.thaw(VICTIM)
        await new_sends_are_acknowledged(flow.writers, topics.lanes)
        await flow.flows(20)
    assert_clear(flow.failures(), delivery_timeout)
    await check(cluster, topics, flow)


async def test_too_few_replicas_are_in_sync(cluster: BreakableCluster, topics: Topics) -> None:
    """A record with acks=all is acknowledged only if enough replicas have it; acks=1 does not wait for them.

    The nodes are also the controllers: with two of three down, the cluster can decide nothing, and may not know which
    replicas are in sync. So the exact error is checked while only one node is down.
    """
    delivery_timeout = 3.0
    pair = f"pair-{topics.alone}"
    await cluster.create_topic(pair, [[VICTIM, 1]], SAFE)
    topics.lanes.append(TopicPartition(pair, 0))
    guarded = [*topics.replicated_lanes, TopicPartition(pair, 0)]
    settings: dict[str, Any] = {"delivery_timeout": delivery_timeout, "request_timeout": delivery_timeout}
    async with traffic(cluster.bootstrap_servers, topics.lanes, **settings) as flow:
        acks_all = [writer for writer in flow.writers if writer.kind.settings.get("acks") != 1]
        acks_one = [writer for writer in flow.writers if writer not in acks_all]
        await cluster.move_leader(*topics.replicated_lanes[1], VICTIM)
        await flow.flows(10)
        await cluster.stop(1)
        await flow.fails(10, guarded[-1:], acks_all)

        def refused_for_replicas() -> bool:
            failed = [send for send in flow.failures() if send.topic_partition == guarded[-1]]
            causes = [send.error.__cause__ for send in failed if send.error is not None]
            assert all(cause is None or is_retriable(cause) for cause in causes), causes
            return ErrorCode.NOT_ENOUGH_REPLICAS in [cause.code for cause in causes if isinstance(cause, BrokerError)]

        await flow.until("a record refused for want of replicas", refused_for_replicas)
        await cluster.stop(3)
        await flow.fails(10, guarded, acks_all)
        await flow.flows(10, writers=acks_one)
        await cluster.start(1, 3)
        await cluster.until_in_sync(topics.replicated)
        await cluster.until_in_sync(pair)
        await new_sends_are_acknowledged(flow.writers, topics.lanes)
        await flow.flows(20)
    assert_clear(flow.failures(), delivery_timeout)
    await check(cluster, topics, flow)
