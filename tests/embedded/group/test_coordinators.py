"""Members that lose their coordinator, and members whose session ends."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import Any

import pytest

from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.embedded.coordinators.groups.records import OFFSETS_TOPIC, partition_of
from aiokafka_lite.embedded.faults import Exchange
from aiokafka_lite.errors import BrokerError, ErrorCode
from aiokafka_lite.group import MemberState
from aiokafka_lite.protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    OffsetCommitRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from aiokafka_lite.protocol.schema import Request
from aiokafka_lite.types import OffsetAndMetadata
from tests.embedded.consumer.direct_writes import fill
from tests.embedded.group.recording_members import (
    CONSUMER,
    ORDERS,
    Ownership,
    Reading,
    Worker,
    each_mode,
    each_protocol,
    each_way,
    member_of,
    now,
    read_all,
    until_stable,
)

QUICK: dict[str, Any] = {"session_timeout": 6.0, "heartbeat_interval": 1.0}
"""A short session, so that the coordinator soon evicts a member that a fault has only fenced."""


def coordinator_of(cluster: EmbeddedCluster, group: str = "workers") -> int:
    return cluster.leader_of(OFFSETS_TOPIC, partition_of(group, 3))


def heartbeats(cluster: EmbeddedCluster) -> list[Exchange]:
    """Return the heartbeats of either protocol."""
    return [*cluster.history.of(HeartbeatRequest), *cluster.history.of(ConsumerGroupHeartbeatRequest)]


async def one_joins_another(cluster: EmbeddedCluster, ownership: Ownership, **protocol: Any) -> tuple[Worker, Worker]:
    """Return a member of a stable group, and one that joins; in the classic protocol its JoinGroup waits."""
    first = await Worker(cluster, ownership, "first", **protocol).start()
    await until_stable(first.consumer)
    second = await Worker(cluster, ownership, "second", **protocol).start()
    await asyncio.sleep(1.0)  # virtual
    return first, second


# The coordinator.


@pytest.mark.thorough
@each_way
@pytest.mark.parametrize("how", ["kill", "stop", "move"])
async def test_members_follow_their_coordinator_and_keep_their_partitions(
    cluster: EmbeddedCluster, ownership: Ownership, settings: dict[str, Any], how: str
) -> None:
    workers = [await Worker(cluster, ownership, f"worker-{number}", **settings).start() for number in range(2)]
    await until_stable(*(worker.consumer for worker in workers))
    generation = workers[0].consumer.group_metadata().generation_id
    owned = [worker.consumer.assignment for worker in workers]
    old = coordinator_of(cluster)
    elsewhere = next(partition for partition in ORDERS if cluster.leader_of(*partition) != old)
    if how == "kill":
        await cluster.kill(old)
    elif how == "stop":
        await cluster.stop(old)
    else:
        await cluster.move_leader(OFFSETS_TOPIC, partition_of("workers", 3))
    assert coordinator_of(cluster) != old
    began = now()
    fill(cluster, elsewhere, 10)
    await asyncio.sleep(10.0)
    assert sum(ownership.read.values()) == 10
    assert [worker.consumer.assignment for worker in workers] == owned
    assert {worker.consumer.group_metadata().generation_id for worker in workers} == {generation}
    assert any(heartbeat.at > began and heartbeat.node_id != old for heartbeat in heartbeats(cluster))
    assert await workers[0].consumer.commit()
    for worker in workers:
        assert worker.error is None
        await worker.stop()
    assert ownership.clashes == []


@each_protocol
async def test_a_group_is_stable_ten_seconds_after_its_coordinator_dies_in_a_rebalance(
    cluster: EmbeddedCluster, ownership: Ownership, protocol: dict[str, Any]
) -> None:
    first, second = await one_joins_another(cluster, ownership, **protocol)
    await cluster.kill(coordinator_of(cluster))
    await until_stable(first.consumer, second.consumer, within=10.0)
    await first.stop()
    await second.stop()
    assert ownership.clashes == []


@each_protocol
async def test_a_join_at_a_frozen_coordinator_moves_to_the_next_one(
    cluster: EmbeddedCluster, ownership: Ownership, protocol: dict[str, Any]
) -> None:
    first, second = await one_joins_another(cluster, ownership, **protocol)
    await cluster.freeze(coordinator_of(cluster))
    await asyncio.sleep(cluster.broker_session_timeout)
    await until_stable(first.consumer, second.consumer, within=10.0)
    await first.stop()
    await second.stop()
    assert ownership.clashes == []


async def test_a_static_member_that_joins_while_the_coordinator_moves_is_not_fenced_by_its_own_join(
    cluster: EmbeddedCluster, ownership: Ownership
) -> None:
    first = await Worker(cluster, ownership, "first", group_instance_id="a").start()
    old = await Worker(cluster, ownership, "old", group_instance_id="b").start()
    await until_stable(first.consumer, old.consumer)
    await old.stop()
    third = await Worker(cluster, ownership, "third").start()
    await asyncio.sleep(1.0)  # virtual; a rebalance has begun, and waits for the instance "b"
    before, refused = coordinator_of(cluster), []

    def move(response: JoinGroupResponse) -> JoinGroupResponse:
        # The new coordinator has the group as it was stored, with another member id for the instance.
        if response.member_id.startswith("b-") and coordinator_of(cluster) == before:
            cluster.leadership.move_leader((OFFSETS_TOPIC, partition_of("workers", 3)), None, unclean=False)
        refused.append(ErrorCode.of(response.error_code))
        return response

    cluster.on(JoinGroupRequest, times=None).alter(move)
    again = await Worker(cluster, ownership, "again", group_instance_id="b").start()
    await until_stable(first.consumer, again.consumer, third.consumer)
    assert coordinator_of(cluster) != before
    assert ErrorCode.FENCED_INSTANCE_ID in refused
    for worker in (first, again, third):
        assert worker.error is None
        await worker.stop()
    assert ownership.clashes == []


@pytest.mark.parametrize(
    "settings", [{"session_timeout": 18.0, "heartbeat_interval": 1.0}, CONSUMER], ids=["classic", "consumer"]
)
async def test_a_member_that_connects_to_a_frozen_coordinator_moves_to_the_next_one(
    cluster: EmbeddedCluster, ownership: Ownership, settings: dict[str, Any]
) -> None:
    worker = await Worker(cluster, ownership, "worker", **settings).start()
    await until_stable(worker.consumer)
    cluster.broker_session_timeout = 1000.0  # the broker stays registered, and is the coordinator until it is moved
    frozen = coordinator_of(cluster)
    await cluster.freeze(frozen)
    await asyncio.sleep(8.0)  # a heartbeat has failed, and with it the connection: the next one needs a new connection
    await cluster.move_leader(OFFSETS_TOPIC, partition_of("workers", 3))
    assert coordinator_of(cluster) != frozen
    moved, before = now(), len(heartbeats(cluster))
    while len(heartbeats(cluster)) == before and now() - moved < 20.0:
        await asyncio.sleep(0.05)  # virtual time
    assert now() - moved < 7.0  # two lookups; connect_timeout is 10 s
    assert ownership.clashes == []
    await worker.stop()


async def test_partitions_are_lost_when_no_heartbeat_succeeded_for_a_session(
    cluster: EmbeddedCluster, ownership: Ownership
) -> None:
    worker = await Worker(cluster, ownership, "worker", **QUICK).start()
    await until_stable(worker.consumer)
    ownership.events.clear()
    cluster.on(HeartbeatRequest, times=None).fail(ErrorCode.NOT_COORDINATOR, times=None)
    began = now()
    while not ownership.events and now() - began < 20.0:
        await asyncio.sleep(0.05)  # virtual time
    assert now() - began <= 6.0
    assert [(kind, sorted(partitions)) for _, kind, partitions in ownership.events] == [("lost", ORDERS)]
    await worker.stop()


async def test_a_coordinator_that_loads_its_groups_ends_no_session(
    cluster: EmbeddedCluster, ownership: Ownership
) -> None:
    worker = await Worker(cluster, ownership, "worker", **QUICK).start()
    await until_stable(worker.consumer)
    ownership.events.clear()
    cluster.on(HeartbeatRequest, times=None).fail(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=None)
    await asyncio.sleep(20.0)
    assert ownership.events == []
    assert worker.consumer.membership is MemberState.STABLE
    await worker.stop()


@each_protocol
async def test_a_commit_at_a_frozen_coordinator_moves_to_the_next_one(
    cluster: EmbeddedCluster, protocol: dict[str, Any]
) -> None:
    async with member_of(cluster, auto_commit=False, **protocol) as consumer, Reading(consumer):
        await until_stable(consumer)
        old = coordinator_of(cluster)
        mine = next(partition for partition in ORDERS if cluster.leader_of(*partition) != old)
        consumer.offsets.mark(mine, 1)
        await cluster.freeze(old)
        began = now()
        assert await consumer.commit()
        assert now() - began < cluster.broker_session_timeout + 10.0
        await cluster.thaw(old)
        await asyncio.sleep(10.0)
        assert consumer.membership is MemberState.STABLE


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS])
@pytest.mark.parametrize("request_type", [JoinGroupRequest, SyncGroupRequest, HeartbeatRequest, OffsetFetchRequest])
async def test_a_coordinator_that_is_not_ready_gets_retries_at_a_bounded_rate(
    cluster: EmbeddedCluster, request_type: type[Any], code: ErrorCode
) -> None:
    fault = cluster.on(request_type, times=None).fail(code, times=None)
    async with member_of(cluster) as consumer, Reading(consumer):
        await asyncio.sleep(20.0)
        assert 3 <= fault.hits <= 45
        assert len(cluster.history.of(FindCoordinatorRequest)) <= 45
        fault.remove()
        await until_stable(consumer, within=10.0)


@pytest.mark.parametrize(
    "request_type", [FindCoordinatorRequest, JoinGroupRequest, SyncGroupRequest, HeartbeatRequest, OffsetFetchRequest]
)
async def test_unknown_server_errors_do_not_end_a_member(cluster: EmbeddedCluster, request_type: type[Any]) -> None:
    fault = cluster.on(request_type, times=3).fail(ErrorCode.UNKNOWN_SERVER_ERROR)
    async with member_of(cluster) as consumer, Reading(consumer):
        await asyncio.sleep(15.0)
        assert fault.hits == 3
        await until_stable(consumer, within=5.0)


async def test_endless_illegal_generation_errors_make_no_hot_loop(cluster: EmbeddedCluster) -> None:
    cluster.on(HeartbeatRequest, times=None).fail(ErrorCode.ILLEGAL_GENERATION, times=None)
    cluster.on(SyncGroupRequest, times=None).fail(ErrorCode.REBALANCE_IN_PROGRESS, times=None)
    async with member_of(cluster) as consumer, Reading(consumer):
        await asyncio.sleep(30.0)
        assert len(cluster.history.of(JoinGroupRequest)) <= 60


@pytest.mark.parametrize("fault", ["disconnect", "apply_then_disconnect", "drop"])
@pytest.mark.parametrize("request_type", [JoinGroupRequest, SyncGroupRequest, HeartbeatRequest, OffsetFetchRequest])
async def test_requests_on_lost_connections_are_retried(
    cluster: EmbeddedCluster, request_type: type[Any], fault: str
) -> None:
    settings: dict[str, Any] = {"request_timeout": 2.0, "rebalance_timeout": 4.0}
    async with member_of(cluster, **settings) as consumer, Reading(consumer):
        getattr(cluster.on(request_type), fault)()
        await asyncio.sleep(4.0)
        await until_stable(consumer, within=30.0)


# Sessions.


@each_mode
async def test_a_member_whose_session_ended_gets_on_lost(
    cluster: EmbeddedCluster, ownership: Ownership, settings: dict[str, Any]
) -> None:
    worker = await Worker(cluster, ownership, "worker", **QUICK, **settings).start()
    await until_stable(worker.consumer)
    cluster.on(HeartbeatRequest).fail(ErrorCode.UNKNOWN_MEMBER_ID)
    await asyncio.sleep(5.0)
    await until_stable(worker.consumer)
    assert [what for _, what, _ in ownership.events] == ["assigned", "lost", "assigned"]
    await worker.stop()


async def test_a_late_commit_is_refused_and_changes_nothing(cluster: EmbeddedCluster) -> None:
    fill(cluster, ORDERS[0], 10)
    async with member_of(cluster, auto_commit=False, **QUICK) as slow:
        await read_all(slow, 10)
        cluster.on(HeartbeatRequest).fail(ErrorCode.UNKNOWN_MEMBER_ID)
        await asyncio.sleep(4.0)  # evicted while the user processes ten records
        result = await slow.commit({ORDERS[0]: OffsetAndMetadata(10)})
        assert set(result.refused) == {ORDERS[0]}
        assert not result
        assert result.committed == {}
        async with Reading(slow):
            await until_stable(slow)
            assert (await slow.committed([ORDERS[0]]))[ORDERS[0]] is None


@pytest.mark.parametrize("code", [ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID])
async def test_a_commit_that_fences_the_member_does_not_end_it(cluster: EmbeddedCluster, code: ErrorCode) -> None:
    fill(cluster, ORDERS[0], 10)
    async with member_of(cluster) as consumer:
        await read_all(consumer, 10)
        await consumer.poll()
        cluster.on(OffsetCommitRequest).fail(code)
        result = await consumer.commit()
        refused = result.refused[ORDERS[0]]
        assert isinstance(refused, BrokerError)
        assert refused.code is code
        assert len(await read_all(consumer, 10)) == 10  # lost, joined again, and read from the last commit
        await consumer.poll()
        assert await consumer.commit()
        assert consumer.membership is MemberState.STABLE


@pytest.mark.parametrize("blocked", [1.0, 5.0, 20.0])
async def test_a_blocked_event_loop_costs_the_membership_only_beyond_the_session(
    cluster: EmbeddedCluster, ownership: Ownership, blocked: float, caplog: pytest.LogCaptureFixture
) -> None:
    loop: Any = asyncio.get_running_loop()
    settings: dict[str, Any] = {"session_timeout": 10.0, "heartbeat_interval": 3.0}
    worker = await Worker(cluster, ownership, "worker", **settings).start()
    await until_stable(worker.consumer)
    await asyncio.sleep(1.0)
    with caplog.at_level(logging.WARNING, logger="aiokafka_lite.group"):
        # Time passes for the coordinator too while this loop is blocked.
        loop.now += blocked
        await asyncio.sleep(4.0)
    await until_stable(worker.consumer)
    what = [name for _, name, _ in ownership.events]
    assert what == (["assigned"] if blocked < 10.0 else ["assigned", "lost", "assigned"])
    said = [record for record in caplog.records if "blocked" in record.getMessage()]
    assert len(said) == (0 if blocked == 1.0 else 1)
    await worker.stop()


@pytest.mark.parametrize("blocked", [20.0, 60.0])
@pytest.mark.parametrize("settings", [{"session_timeout": 45.0}, CONSUMER], ids=["classic", "consumer"])
async def test_a_member_returns_no_records_after_a_block_beyond_its_session_until_a_heartbeat_is_answered(
    cluster: EmbeddedCluster, settings: dict[str, Any], blocked: float
) -> None:
    """Another member may have the partitions by then, and would process the same records."""
    loop: Any = asyncio.get_running_loop()
    fill(cluster, ORDERS[0], 2_000)
    offsets: list[int] = []
    async with member_of(cluster, **settings) as consumer:
        async for record in consumer:
            if offsets and record.offset != offsets[-1] + 1:
                break  # the partition was lost and assigned again
            offsets.append(record.offset)
            if len(offsets) == 300:
                break
            await asyncio.sleep(0.01)
            if len(offsets) == 10:
                for request in (HeartbeatRequest, ConsumerGroupHeartbeatRequest, OffsetCommitRequest):
                    cluster.on(request).delay(0.5)
                loop.now += blocked  # user code that does not await; time passes for the coordinator too
    assert len(offsets) == 300 if blocked < 45.0 else len(offsets) in (10, 11)


@pytest.mark.parametrize(
    ("request_type", "settings"),
    [(HeartbeatRequest, {"session_timeout": 10.0}), (ConsumerGroupHeartbeatRequest, CONSUMER)],
    ids=["classic", "consumer"],
)
async def test_a_loop_that_is_blocked_while_a_heartbeat_is_in_flight_is_logged_and_costs_nothing_within_the_session(
    cluster: EmbeddedCluster,
    ownership: Ownership,
    request_type: type[Request[Any]],
    settings: dict[str, Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    loop: Any = asyncio.get_running_loop()
    worker = await Worker(cluster, ownership, "worker", **settings).start()
    await until_stable(worker.consumer)
    await asyncio.sleep(10.0)  # the first heartbeats of a generation have other pauses

    def block(response: object) -> object:
        loop.now += 8.5  # the coordinator has renewed the session; the answer waits in the socket meanwhile
        return response

    cluster.on(request_type, times=1).alter(block)
    await asyncio.sleep(20.0)
    await until_stable(worker.consumer)
    assert [what for _, what, _ in ownership.events] == ["assigned"]
    warnings = [record.getMessage() for record in caplog.records if "blocked" in record.getMessage()]
    assert len(warnings) == 1
    assert "the event loop was blocked for" in warnings[0]
    await worker.stop()


async def test_a_heartbeat_that_fails_during_a_block_is_sent_again_before_the_session_counts_as_ended(
    cluster: EmbeddedCluster, ownership: Ownership
) -> None:
    loop: Any = asyncio.get_running_loop()
    worker = await Worker(cluster, ownership, "worker", session_timeout=10.0).start()
    await until_stable(worker.consumer)
    await asyncio.sleep(10.0)

    def block(response: HeartbeatResponse) -> HeartbeatResponse:
        loop.now += 8.5  # the coordinator has renewed the session
        return replace(response, error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)

    cluster.on(HeartbeatRequest, times=1).alter(block)
    await asyncio.sleep(20.0)
    await until_stable(worker.consumer)
    assert [what for _, what, _ in ownership.events] == ["assigned"]
    await worker.stop()


@each_way
async def test_poll_keeps_its_timeout_during_rebalances_and_without_a_coordinator(
    cluster: EmbeddedCluster, ownership: Ownership, settings: dict[str, Any]
) -> None:
    async with member_of(cluster, **settings) as consumer:
        others: list[Worker] = []
        for number in range(60):
            if number % 6 == 0:
                others.append(await Worker(cluster, ownership, f"other-{number}", **settings).start())
            elif number % 6 == 3:
                await others.pop(0).stop()
            elif number in (20, 40):
                for request in (HeartbeatRequest, ConsumerGroupHeartbeatRequest, OffsetCommitRequest):
                    cluster.on(request).fail(ErrorCode.UNKNOWN_MEMBER_ID)
            elif number == 50:
                await cluster.kill(coordinator_of(cluster))
            began = now()
            assert await consumer.poll(timeout=0.5) == []
            assert now() - began <= 0.5 + 1e-6
        for other in others:
            await other.stop()
