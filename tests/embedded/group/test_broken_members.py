"""One broken member, or one broken answer, costs the others a rebalance and not their membership."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aiokafka_lite.admin import Admin
from aiokafka_lite.cluster.client import Client
from aiokafka_lite.cluster.coordinator_channel import CoordinatorChannel
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import ErrorCode, KafkaTimeout, ProtocolError
from aiokafka_lite.group.events import Identity
from aiokafka_lite.group.payloads import MAX_ASSIGNED, PROTOCOL_TYPE, write_assignment, write_subscription
from aiokafka_lite.group.requests import heartbeat_request, join_request
from aiokafka_lite.group.strategies import GroupMember, RangeStrategy, TopicRacks
from aiokafka_lite.net.connection import Purpose
from aiokafka_lite.protocol.messages import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    FindCoordinatorResponseCoordinator,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
    MetadataRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
    SyncGroupResponse,
)
from aiokafka_lite.settings.client import ClientConfig
from aiokafka_lite.types import TopicPartition
from tests.embedded.consumer.direct_writes import fill
from tests.embedded.group.recording_members import ORDERS, each_protocol, member_of, now, read_all, until_stable
from tests.embedded.group.test_offsets import offsets_answer
from tests.waiting import until


class RawMember:
    """A member that sends these bytes as its subscription to ``range``, and takes no part otherwise."""

    def __init__(self, client: Client, metadata: bytes) -> None:
        self.generation = -1
        self.assignment: bytes | None = None
        self._channel = CoordinatorChannel(client, "workers")
        self._metadata = metadata
        self._identity = Identity("", -1, None)

    async def _send(self, request: Any) -> Any:
        response, _ = await self._channel.send(lambda versions: request, purpose=Purpose.GROUP, timeout=400.0)
        return response

    async def run(self) -> None:
        while True:
            request = join_request(
                "workers", self._identity, {"range": self._metadata}, session_timeout=45.0, rebalance_timeout=60.0
            )
            joined = await self._send(request)
            self._identity = Identity(joined.member_id, joined.generation_id, None)
            if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                continue
            sync = SyncGroupRequest(
                group_id="workers",
                generation_id=joined.generation_id,
                member_id=joined.member_id,
                protocol_type=PROTOCOL_TYPE,
                protocol_name="range",
                assignments=[],
            )
            synced = await self._send(sync)
            if synced.error_code:
                continue
            self.generation, self.assignment = joined.generation_id, synced.assignment
            while not (await self._send(heartbeat_request("workers", self._identity))).error_code:
                await asyncio.sleep(1.0)


@asynccontextmanager
async def raw_member(cluster: EmbeddedCluster, metadata: bytes) -> AsyncIterator[RawMember]:
    config = ClientConfig(bootstrap_servers=cluster.bootstrap_servers, client_id="broken")
    async with Client(config, connector=cluster.connector) as client:
        member = RawMember(client, metadata)
        task = asyncio.create_task(member.run())
        yield member
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("metadata", [b"", b"\xff" * 20, write_subscription([""], (), -1, None, None)])
async def test_a_broken_member_is_left_out_and_the_others_read_on(
    cluster: EmbeddedCluster, metadata: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    for partition in ORDERS:
        fill(cluster, partition, 5)
    async with member_of(cluster) as first:
        assert len(await read_all(first, 30)) == 30
        first.mark()
        async with raw_member(cluster, metadata) as broken:
            await until(lambda: broken.assignment is not None)
            assert broken.assignment == write_assignment(())
            await until_stable(first)
            for partition in ORDERS:
                fill(cluster, partition, 5)
            assert len(await read_all(first, 30)) == 30
    assert any("leads the group" in record.getMessage() for record in caplog.records if record.levelname == "WARNING")


# Offsets.


async def test_offsets_of_partitions_that_were_not_asked_for_are_ignored(cluster: EmbeddedCluster) -> None:
    fill(cluster, ORDERS[0], 5)
    cluster.on(OffsetFetchRequest).answer(lambda request: offsets_answer(request, [*range(6), 77], 3), times=None)
    async with member_of(cluster) as consumer:
        assert [record.offset for record in await read_all(consumer, 2)] == [3, 4]
        assert len(cluster.history.of(OffsetFetchRequest)) == 1


async def test_an_answer_without_the_offsets_asked_for_is_retried_at_a_bounded_rate(cluster: EmbeddedCluster) -> None:
    fill(cluster, ORDERS[0], 5)
    async with member_of(cluster) as consumer:
        with cluster.on(OffsetFetchRequest, times=None).answer(lambda sent: offsets_answer(sent, [77], 3), times=None):
            assert await consumer.poll(timeout=20.0) == []  # not from the beginning: the offsets are not known
            with pytest.raises(KafkaTimeout, match=r"did not answer for orders-0"):
                await consumer.committed(ORDERS, timeout=10.0)
            assert len(cluster.history.of(OffsetFetchRequest)) < 5 * 30
        assert len(await read_all(consumer, 5)) == 5


# Assignments.


async def test_an_assignment_that_cannot_be_used_costs_a_rebalance(cluster: EmbeddedCluster) -> None:
    fill(cluster, ORDERS[0], 5)
    broken = [b"\xff" * 9, write_assignment([TopicPartition("orders", -5)])]
    fault = cluster.on(SyncGroupRequest).answer(
        lambda request: SyncGroupResponse(error_code=0, assignment=broken[fault.hits % 2]), times=3
    )
    async with member_of(cluster) as consumer:
        assert len(await read_all(consumer, 5)) == 5


async def test_unusable_assignments_without_end_are_an_error_of_kafka(cluster: EmbeddedCluster) -> None:
    bad = SyncGroupResponse(error_code=0, assignment=b"\xff" * 9)
    consumer = member_of(cluster)
    with cluster.on(SyncGroupRequest, times=None).answer(lambda request: bad, times=None):
        await consumer.start()
        with pytest.raises(ProtocolError, match="assignment by the leader"):
            await consumer.poll(timeout=60.0)
    with pytest.raises(ProtocolError):
        await consumer.close()


async def test_a_huge_assignment_is_refused_and_the_consumer_closes_in_time(cluster: EmbeddedCluster) -> None:
    huge = write_assignment([TopicPartition("orders", number) for number in range(MAX_ASSIGNED + 1)])
    async with member_of(cluster) as consumer:
        cluster.on(SyncGroupRequest).answer(lambda request: SyncGroupResponse(error_code=0, assignment=huge))
        await until_stable(consumer)


async def test_an_assignment_of_partitions_that_do_not_exist_is_refused(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "aiokafka_lite.group")
    missing = write_assignment([TopicPartition("orders", number) for number in range(MAX_ASSIGNED)])
    async with member_of(cluster) as consumer:
        cluster.on(SyncGroupRequest).answer(lambda request: SyncGroupResponse(error_code=0, assignment=missing))
        await until_stable(consumer)
    assert "an assignment with 99994 partitions that do not exist; topic 'orders' has 6 partitions" in caplog.text


async def test_partitions_that_do_not_exist_are_counted_over_all_topics(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "aiokafka_lite.group")
    topics = ["orders", "bills"]
    await cluster.create_topic("bills", partitions=6)
    missing = write_assignment([TopicPartition(topic, number) for topic in topics for number in range(900)])
    async with member_of(cluster, topics=topics) as consumer:
        cluster.on(SyncGroupRequest).answer(lambda request: SyncGroupResponse(error_code=0, assignment=missing))
        await until(lambda: len(consumer.assignment) >= 12)
        assert len(consumer.assignment) == 12
    assert "an assignment with 1788 partitions that do not exist; topic " in caplog.text


async def test_an_assignment_is_not_refused_when_metadata_cannot_be_refreshed(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """The partitions may be new, and only old metadata says that they do not exist."""
    caplog.set_level(logging.INFO, "aiokafka_lite.group")
    many = write_assignment([TopicPartition("orders", number) for number in range(1_500)])
    async with member_of(cluster, session_timeout=6.0, heartbeat_interval=1.0) as consumer:
        await until_stable(consumer)
        cluster.on(SyncGroupRequest).answer(lambda request: SyncGroupResponse(error_code=0, assignment=many))
        cluster.on(MetadataRequest, times=None).drop()
        cluster.on(HeartbeatRequest).fail(ErrorCode.REBALANCE_IN_PROGRESS)
        began = now()
        await until(lambda: len(consumer.assignment) == 1_500)
        assert now() - began < 4.0  # no heartbeats are sent meanwhile
    assert "do not exist" not in caplog.text


@each_protocol
async def test_partitions_that_are_newer_than_the_metadata_of_a_member_are_not_refused(
    cluster: EmbeddedCluster, protocol: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "aiokafka_lite.group")
    async with member_of(cluster, **protocol) as consumer:
        await until_stable(consumer)
        if not protocol:  # the leader has newer metadata than the member
            many = write_assignment([TopicPartition("orders", number) for number in range(1_500)])
            cluster.on(SyncGroupRequest).answer(lambda request: SyncGroupResponse(error_code=0, assignment=many))
            cluster.on(HeartbeatRequest).fail(ErrorCode.REBALANCE_IN_PROGRESS)
        async with Admin(cluster.bootstrap_servers, connector=cluster.connector) as admin:
            await admin.topics.add_partitions({"orders": 1_500})
        await until(lambda: len(consumer.assignment) == 1_500)
    assert "do not exist" not in caplog.text


# The coordinator.


async def test_a_coordinator_with_an_impossible_port_does_not_end_the_member(cluster: EmbeddedCluster) -> None:
    def answer(request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        coordinator = FindCoordinatorResponseCoordinator(
            key="workers", node_id=1, host="localhost", port=99_999, error_code=0, error_message=None
        )
        return FindCoordinatorResponse(coordinators=[coordinator])

    fill(cluster, ORDERS[0], 5)
    cluster.on(FindCoordinatorRequest).answer(answer, times=3)
    async with member_of(cluster) as consumer:
        assert len(await read_all(consumer, 5)) == 5


class WatchedRange(RangeStrategy):
    """Notes the threads that it runs in."""

    def __init__(self) -> None:
        self.threads: list[int] = []

    def assign(self, members: Sequence[GroupMember], topics: TopicRacks) -> dict[str, list[TopicPartition]]:
        self.threads.append(threading.get_ident())
        return super().assign(members, topics)


@pytest.mark.parametrize("others", [20, 20_000])
async def test_the_leader_of_a_large_group_computes_in_a_thread(cluster: EmbeddedCluster, others: int) -> None:
    metadata = write_subscription(["orders"], (), -1, None, None)
    names = ["me", *(f"other-{number}" for number in range(others))]
    sent: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def crowd(request: JoinGroupRequest) -> JoinGroupResponse:
        members = [JoinGroupResponseMember(member_id=name, group_instance_id=None, metadata=metadata) for name in names]
        return JoinGroupResponse(
            error_code=0, generation_id=1, protocol_name="range", leader="me", member_id="me", members=members
        )

    def take(request: SyncGroupRequest) -> SyncGroupResponse:
        sent.set_result(len(request.assignments))
        return SyncGroupResponse(error_code=0, assignment=b"")

    strategy = WatchedRange()
    cluster.on(JoinGroupRequest).answer(crowd)
    cluster.on(SyncGroupRequest).answer(take)
    async with member_of(cluster, strategies=[strategy]):
        async with asyncio.timeout(100_000.0):  # virtual time runs on while the thread computes
            assert await sent == 1 + others
    assert (strategy.threads[0] == threading.get_ident()) is (others < 1_000)
