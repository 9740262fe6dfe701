"""A member under lost coordinators, ended sessions, slow users, static membership and closing."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest

from aiokafka_lite.aio.virtual_time import VirtualTimeLoop
from aiokafka_lite.consumer import Consumer, RebalanceHandle, RebalanceListener
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.embedded.group_records import OFFSETS_TOPIC, partition_of
from aiokafka_lite.errors import (
    AuthorizationError,
    BrokerError,
    ConfigurationError,
    ErrorCode,
    IllegalStateError,
    KafkaError,
    KafkaTimeout,
)
from aiokafka_lite.group import MemberState, RangeStrategy
from aiokafka_lite.protocol.messages import (
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from aiokafka_lite.types import OffsetAndMetadata, TopicPartition
from tests.embedded.consumer.logs import fill
from tests.embedded.group.members import COOPERATIVE, ORDERS, Ownership, Worker, member_of, read_all, until_stable

QUICK: dict[str, Any] = {"session_timeout": 6.0, "heartbeat_interval": 1.0}
"""A short session, so that the coordinator soon evicts a member that a fault has only fenced."""

each_mode = pytest.mark.parametrize("settings", [{}, COOPERATIVE], ids=["eager", "cooperative"])


def now() -> float:
    return asyncio.get_running_loop().time()


def coordinator_of(cluster: EmbeddedCluster, group: str = "workers") -> int:
    return cluster.leader_of(OFFSETS_TOPIC, partition_of(group, 3))


async def reading(*consumers: Consumer) -> None:
    """Poll all consumers repeatedly."""

    async def read(consumer: Consumer) -> None:
        with suppress(KafkaError):
            while True:
                await consumer.poll(timeout=1.0)

    await asyncio.gather(*map(read, consumers))


class Reading:
    """Polls consumers in the background."""

    def __init__(self, *consumers: Consumer) -> None:
        self._consumers = consumers

    async def __aenter__(self) -> None:
        self._task = asyncio.create_task(reading(*self._consumers))

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task


# The coordinator.


@each_mode
@pytest.mark.parametrize("how", ["kill", "stop", "move"])
async def test_members_follow_their_coordinator_and_keep_their_partitions(
    cluster: EmbeddedCluster, ownership: Ownership, settings: dict[str, Any], how: str
) -> None:
    workers = [await Worker(cluster, ownership, f"worker-{number}", **settings).start() for number in range(2)]
    await until_stable(*(worker.consumer for worker in workers))
    generation = workers[0].consumer.group_metadata().generation_id
    owned = [worker.consumer.assignment for worker in workers]
    old = coordinator_of(cluster)
    elsewhere = next(each for each in ORDERS if cluster.leader_of(*each) != old)
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
    beats = [each for each in cluster.history.of(HeartbeatRequest) if each.at > began and each.node_id != old]
    assert beats
    assert await workers[0].consumer.commit()
    for worker in workers:
        assert worker.error is None
        await worker.stop()
    assert ownership.clashes == []


async def test_a_group_is_stable_ten_seconds_after_its_coordinator_dies_in_a_rebalance(
    cluster: EmbeddedCluster, ownership: Ownership
) -> None:
    first = await Worker(cluster, ownership, "first").start()
    await until_stable(first.consumer)
    second = await Worker(cluster, ownership, "second").start()
    await asyncio.sleep(1.0)  # its JoinGroup waits at the coordinator
    await cluster.kill(coordinator_of(cluster))
    await until_stable(first.consumer, second.consumer, within=10.0)
    await first.stop()
    await second.stop()
    assert ownership.clashes == []


async def test_a_join_at_a_frozen_coordinator_moves_to_the_next_one(
    cluster: EmbeddedCluster, ownership: Ownership
) -> None:
    first = await Worker(cluster, ownership, "first").start()
    await until_stable(first.consumer)
    second = await Worker(cluster, ownership, "second").start()
    await asyncio.sleep(1.0)  # its JoinGroup waits at the coordinator
    await cluster.freeze(coordinator_of(cluster))
    await asyncio.sleep(cluster.broker_session_timeout)
    await until_stable(first.consumer, second.consumer, within=10.0)
    await first.stop()
    await second.stop()
    assert ownership.clashes == []


async def test_a_member_that_connects_to_a_frozen_coordinator_moves_to_the_next_one(
    cluster: EmbeddedCluster, ownership: Ownership
) -> None:
    worker = await Worker(cluster, ownership, "worker", session_timeout=18.0, heartbeat_interval=1.0).start()
    await until_stable(worker.consumer)
    cluster.broker_session_timeout = 1000.0  # the broker stays registered, and is the coordinator until it is moved
    frozen = coordinator_of(cluster)
    await cluster.freeze(frozen)
    await asyncio.sleep(8.0)  # a heartbeat has failed, and with it the connection: the next one needs a new connection
    await cluster.move_leader(OFFSETS_TOPIC, partition_of("workers", 3))
    assert coordinator_of(cluster) != frozen
    moved, heartbeats = now(), len(cluster.history.of(HeartbeatRequest))
    while len(cluster.history.of(HeartbeatRequest)) == heartbeats and now() - moved < 20.0:
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


async def test_a_commit_at_a_frozen_coordinator_moves_to_the_next_one(cluster: EmbeddedCluster) -> None:
    async with member_of(cluster, auto_commit=False) as consumer, Reading(consumer):
        await until_stable(consumer)
        old = coordinator_of(cluster)
        mine = next(each for each in ORDERS if cluster.leader_of(*each) != old)
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
    what = [each for _, each, _ in ownership.events]
    assert what == (["assigned"] if blocked < 10.0 else ["assigned", "lost", "assigned"])
    said = [record for record in caplog.records if "blocked" in record.getMessage()]
    assert len(said) == (0 if blocked == 1.0 else 1)
    await worker.stop()


@each_mode
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
                cluster.on(HeartbeatRequest).fail(ErrorCode.UNKNOWN_MEMBER_ID)
            elif number == 50:
                await cluster.kill(coordinator_of(cluster))
            began = now()
            assert await consumer.poll(timeout=0.5) == []
            assert now() - began <= 0.5 + 1e-6
        for other in others:
            await other.stop()


# Slow users.


@each_mode
async def test_a_member_that_does_not_read_leaves_and_joins_again_with_the_next_read(
    cluster: EmbeddedCluster, ownership: Ownership, settings: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    fill(cluster, ORDERS[0], 5)
    worker = Worker(cluster, ownership, "worker", max_poll_interval=20.0, **settings)
    async with worker.consumer as consumer:
        await read_all(consumer, 5)
        await asyncio.sleep(19.0)
        assert consumer.membership is MemberState.STABLE
        await asyncio.sleep(5.0)
        assert consumer.membership is MemberState.UNJOINED
        assert "no records were requested for more than max_poll_interval = 20 s" in caplog.text
        assert [what for _, what, _ in ownership.events] == ["assigned", "lost"]
        assert len(cluster.history.of(LeaveGroupRequest)) == 1
        assert len(await read_all(consumer, 5)) == 5  # the member never read beyond them
        assert consumer.membership is MemberState.STABLE


async def test_a_read_in_the_turn_in_which_a_member_is_found_overdue_keeps_it_in_the_group(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """The heartbeats task and the user wake in the same turn of the loop, which was blocked."""
    fill(cluster, ORDERS[0], 5)
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    async with member_of(cluster, max_poll_interval=20.0, session_timeout=40.0) as consumer:
        await read_all(consumer, 5)

        async def read_after_work() -> object:
            await asyncio.sleep(10.0)
            return await anext(consumer)

        reading = asyncio.create_task(read_after_work())
        await asyncio.sleep(1.0)
        loop.now += 25.0
        await asyncio.sleep(60.0)
        assert consumer.membership is MemberState.STABLE
        assert "leaves the group" not in caplog.text
        fill(cluster, ORDERS[0], 1)
        await reading


async def test_waiting_for_records_counts_as_reading(cluster: EmbeddedCluster) -> None:
    async with member_of(cluster, max_poll_interval=20.0) as consumer:
        assert await consumer.poll(timeout=100.0) == []
        assert consumer.membership is MemberState.STABLE
        assert len(cluster.history.of(JoinGroupRequest)) == 2  # the second one carries the id from the first answer


async def test_slow_iteration_over_a_long_batch_counts_as_reading(cluster: EmbeddedCluster) -> None:
    fill(cluster, ORDERS[0], 100, batch_size=100)
    worker = Worker(cluster, Ownership(), "worker", work=2.0, max_poll_interval=20.0)
    await worker.start()
    await asyncio.sleep(150.0)
    assert len(worker.read) > 70
    assert len(cluster.history.of(LeaveGroupRequest)) == 0
    await worker.stop()


@each_mode
async def test_a_rebalance_waits_for_the_record_in_progress_up_to_a_bound(
    cluster: EmbeddedCluster, ownership: Ownership, settings: dict[str, Any]
) -> None:
    for partition in ORDERS:
        fill(cluster, partition, 20)
    slow = await Worker(cluster, ownership, "slow", work=15.0, rebalance_timeout=40.0, **settings).start()
    await asyncio.sleep(1.0)
    quick = await Worker(cluster, ownership, "quick", rebalance_timeout=40.0, **settings).start()
    await until_stable(slow.consumer, quick.consumer, within=60.0)
    await asyncio.sleep(40.0)
    assert set(ownership.read.values()) == {1}
    await slow.stop()
    await asyncio.sleep(30.0)
    assert ownership.clashes == []
    assert len(ownership.read) == 120
    assert sum(ownership.read.values()) == 121  # one record was in progress when the slow member was closed
    await quick.stop()


async def test_a_user_beyond_the_rebalance_timeout_does_not_delay_the_group(
    cluster: EmbeddedCluster, ownership: Ownership
) -> None:
    fill(cluster, ORDERS[0], 3)
    stuck = await Worker(cluster, ownership, "stuck", work=10_000.0, rebalance_timeout=12.0).start()
    await asyncio.sleep(1.0)
    quick = await Worker(cluster, ownership, "quick", rebalance_timeout=12.0).start()
    await until_stable(stuck.consumer, quick.consumer, within=16.0)
    await stuck.stop()
    await quick.stop()
    assert ownership.clashes == []


# Static members.


async def test_a_restarted_static_member_gets_its_partitions_back_without_a_rebalance(
    cluster: EmbeddedCluster, ownership: Ownership
) -> None:
    first = await Worker(cluster, ownership, "first", group_instance_id="a").start()
    second = await Worker(cluster, ownership, "second", group_instance_id="b").start()
    await until_stable(first.consumer, second.consumer)
    generation = first.consumer.group_metadata().generation_id
    owned = second.consumer.assignment
    await second.stop()
    assert cluster.history.of(LeaveGroupRequest) == []
    again = await Worker(cluster, ownership, "again", group_instance_id="b").start()
    await until_stable(first.consumer, again.consumer)
    assert again.consumer.assignment == owned
    assert first.consumer.group_metadata().generation_id == generation
    await again.stop(leave_group=True)
    assert len(cluster.history.of(LeaveGroupRequest)) == 1
    await until_stable(first.consumer)
    await first.stop()


async def test_a_second_member_with_the_same_instance_id_fences_the_first(
    cluster: EmbeddedCluster, ownership: Ownership
) -> None:
    older = await Worker(cluster, ownership, "older", group_instance_id="a").start()
    await until_stable(older.consumer)
    newer = member_of(cluster, group_instance_id="a")
    async with newer, Reading(newer):
        await until_stable(newer)
        await asyncio.sleep(5.0)
        assert isinstance(older.error, BrokerError)
        assert older.error.code is ErrorCode.FENCED_INSTANCE_ID
        assert ("older", "lost", ORDERS) in ownership.events
        with pytest.raises(BrokerError, match="group_instance_id"):
            await older.consumer.poll()
        assert newer.membership is MemberState.STABLE
        await older.stop()


# Refusals.


@pytest.mark.parametrize("code", [ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.INCONSISTENT_GROUP_PROTOCOL])
async def test_the_read_raises_a_refusal_that_is_not_retriable(cluster: EmbeddedCluster, code: ErrorCode) -> None:
    cluster.on(JoinGroupRequest).fail(code)
    consumer = member_of(cluster)
    await consumer.start()
    with pytest.raises(BrokerError, match=r"'workers'.*range") as caught:
        await anext(consumer)
    assert caught.value.code is code
    assert isinstance(caught.value, AuthorizationError) == (code is ErrorCode.GROUP_AUTHORIZATION_FAILED)
    with pytest.raises(BrokerError):
        await consumer.close()


@pytest.mark.parametrize("read", ["poll", "next", "batch"])
async def test_an_exception_of_a_listener_is_raised_by_one_read(cluster: EmbeddedCluster, read: str) -> None:
    class Wrong(RebalanceListener):
        async def on_assigned(self, handle: RebalanceHandle, partitions: Sequence[TopicPartition]) -> None:
            raise LookupError("no store")

    fill(cluster, ORDERS[0], 5)
    consumer = member_of(cluster, listener=Wrong())
    await consumer.start()
    reads: dict[str, Callable[[], Awaitable[object]]] = {
        "poll": lambda: consumer.poll(timeout=10.0),
        "next": lambda: anext(consumer),
        "batch": lambda: anext(consumer.batches(timeout=1.0)),
    }
    with pytest.raises(LookupError, match="no store"):
        await reads[read]()
    assert await reads[read]()
    await consumer.close()


async def test_an_exception_of_a_listener_that_no_read_raised_is_raised_by_close(cluster: EmbeddedCluster) -> None:
    class Wrong(RebalanceListener):
        async def on_revoked(self, handle: RebalanceHandle, partitions: Sequence[TopicPartition]) -> None:
            raise LookupError("no store")

    consumer = member_of(cluster, listener=Wrong())
    await consumer.start()
    await until_stable(consumer)
    with pytest.raises(LookupError, match="no store"):
        await consumer.close()
    await consumer.close()


async def test_a_read_that_waits_raises_an_exception_of_the_listener(cluster: EmbeddedCluster) -> None:
    class Wrong(RebalanceListener):
        async def on_revoked(self, handle: RebalanceHandle, partitions: Sequence[TopicPartition]) -> None:
            raise LookupError("no store")

    async with member_of(cluster, listener=Wrong()) as first:
        await until_stable(first)
        waiting = asyncio.create_task(first.poll(timeout=60.0))
        async with member_of(cluster) as second:
            with pytest.raises(LookupError, match="no store"):
                await waiting
            await until_stable(first, second)  # the rebalance continues
        with suppress(LookupError):
            await first.close()


async def test_a_listener_may_look_up_offsets_and_seek_by_them(cluster: EmbeddedCluster) -> None:
    fill(cluster, ORDERS[0], 5)
    found: list[object] = []

    class Seeker(RebalanceListener):
        async def on_assigned(self, handle: RebalanceHandle, partitions: Sequence[TopicPartition]) -> None:
            found.append((await handle.committed(partitions))[ORDERS[0]])
            found.append((await handle.offsets_for_times({ORDERS[0]: 0}))[ORDERS[0]])
            await handle.seek_to_beginning()
            await handle.seek_to_end([ORDERS[0]])
            found.append(await handle.position(ORDERS[0]))

    async with member_of(cluster, listener=Seeker()) as consumer:
        await until_stable(consumer)
        await consumer.wait_assigned()
        assert found == [None, found[1], 5]
        assert getattr(found[1], "offset", None) == 0


async def test_a_member_with_the_default_strategies_joins_a_group_of_aiokafka(cluster: EmbeddedCluster) -> None:
    """aiokafka's consumers offer roundrobin alone by default. When the last of them leaves, range is used."""
    async with member_of(cluster) as new:
        async with member_of(cluster, strategies=["roundrobin"]) as old:
            reading = asyncio.gather(new.poll(timeout=30.0), old.poll(timeout=30.0))
            await until_stable(new, old)
            assert {each.partition % 2 for each in old.assignment} in ({0}, {1})
            await reading
        reading = asyncio.gather(new.poll(timeout=30.0))
        await until_stable(new)
        await reading


# Before the first assignment.


async def test_calls_for_all_partitions_are_refused_before_the_first_assignment(cluster: EmbeddedCluster) -> None:
    fill(cluster, ORDERS[0], 5)
    async with member_of(cluster) as consumer:
        for call in (consumer.seek_to_end, consumer.seek_to_beginning, consumer.seek_to_committed):
            with pytest.raises(IllegalStateError, match="wait_assigned"):
                await call()
        with pytest.raises(IllegalStateError, match="wait_assigned"):
            consumer.pause()
        consumer.resume()
        assert sorted(await consumer.wait_assigned()) == ORDERS
        await consumer.seek_to_end()
        fill(cluster, ORDERS[0], 1)
        assert [record.offset for record in await consumer.poll(timeout=5.0)] == [5]
    async with member_of(cluster, group_id=None, topics=()) as consumer:
        with pytest.raises(IllegalStateError, match="wait_assigned"):
            await consumer.seek_to_end()
        with pytest.raises(IllegalStateError, match="nothing to read"):
            await consumer.wait_assigned()
        consumer.assign([ORDERS[0]])
        assert await consumer.wait_assigned() == (ORDERS[0],)


async def test_a_member_that_is_assigned_nothing_may_pause(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("narrow", partitions=1)
    async with member_of(cluster, topics=["narrow"]) as first, member_of(cluster, topics=["narrow"]) as second:
        reading = asyncio.gather(first.poll(timeout=20.0), second.poll(timeout=20.0))
        assert sorted([len(await first.wait_assigned()), len(await second.wait_assigned())]) == [0, 1]
        first.pause()
        second.pause()
        await reading


async def test_after_unsubscribing_the_next_assignment_is_waited_for(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("narrow", partitions=1)
    async with member_of(cluster) as consumer:
        assert sorted(await consumer.wait_assigned()) == ORDERS
        consumer.unsubscribe()
        await asyncio.sleep(10.0)
        consumer.subscribe(["narrow"])
        with pytest.raises(IllegalStateError, match="wait_assigned"):
            await consumer.seek_to_end()
        assert await consumer.wait_assigned() == (TopicPartition("narrow", 0),)


async def test_after_a_loss_the_next_assignment_is_waited_for(cluster: EmbeddedCluster) -> None:
    async with member_of(cluster, max_poll_interval=20.0) as consumer:
        await consumer.wait_assigned()
        await asyncio.sleep(30.0)
        with pytest.raises(KafkaTimeout, match="no assignment within 5 s"):
            await consumer.wait_assigned(timeout=5.0)
        with pytest.raises(IllegalStateError, match="wait_assigned"):
            consumer.pause()
        assert await consumer.poll(timeout=10.0) == []
        assert sorted(await consumer.wait_assigned()) == ORDERS


async def test_an_assignment_is_waited_for_until_the_listener_has_returned(cluster: EmbeddedCluster) -> None:
    class Slow(RebalanceListener):
        async def on_assigned(self, handle: RebalanceHandle, partitions: Sequence[TopicPartition]) -> None:
            await asyncio.sleep(10.0)

    async with member_of(cluster, listener=Slow()) as consumer:
        began = asyncio.get_running_loop().time()
        assert sorted(await consumer.wait_assigned()) == ORDERS
        assert asyncio.get_running_loop().time() - began >= 10.0


async def test_waiting_for_an_assignment_ends_with_the_timeout(cluster: EmbeddedCluster) -> None:
    async with member_of(cluster) as consumer:
        cluster.on(JoinGroupRequest, times=None).fail(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=None)
        with pytest.raises(KafkaTimeout, match=r"no assignment within 5 s.*JOINING"):
            await consumer.wait_assigned(timeout=5.0)


async def test_waiting_for_an_assignment_ends_with_the_consumer(cluster: EmbeddedCluster) -> None:
    """The consumer is closed at each turn around its assignment: the wait never returns an empty assignment."""
    outcomes: set[object] = set()
    for turns in range(60):
        consumer = member_of(cluster)
        await consumer.start()
        waiting = asyncio.create_task(consumer.wait_assigned())
        while consumer.membership is not MemberState.SYNCING:
            await asyncio.sleep(0)
        for _ in range(turns):
            await asyncio.sleep(0)
        await consumer.close()
        try:
            outcomes.add(await waiting)
        except IllegalStateError as error:
            outcomes.add(type(error))
    assert outcomes == {IllegalStateError, tuple(ORDERS)}


def test_the_constructor_checks_the_settings() -> None:
    for wrong in (
        {"group_id": ""},
        {"group_id": "g", "group_instance_id": ""},
        {"group_id": "g", "session_timeout": 0},
        {"group_id": "g", "heartbeat_interval": 45.0},
        {"group_id": "g", "max_poll_interval": -1.0},
        {"group_id": "g", "auto_commit": 1},
        {"group_id": "g", "strategies": []},
        {"group_id": "g", "strategies": ["rnage"]},
        {"group_id": "g", "strategies": "range"},
        {"group_id": "g", "strategies": [RangeStrategy]},
        {"group_id": "g", "strategies": RangeStrategy()},
        {"group_id": "g", "listener": RebalanceListener},
        {"group_id": "g", "listener": RebalanceListener(), "topics": ()},
        {"group_id": "g", "strategies": ["range"], "topics": ()},
        {"session_timeout": 10.0},
        {"listener": RebalanceListener()},
        {"topics": re.compile(".*")},
    ):
        with pytest.raises(ConfigurationError):
            Consumer("localhost:9092", **{"topics": ["orders"], **wrong})  # type: ignore[arg-type]


# The listener's handle, and topics.


async def test_a_listener_can_seek_and_commit(cluster: EmbeddedCluster) -> None:
    fill(cluster, ORDERS[0], 10)
    results: list[Any] = []

    class Store(RebalanceListener):
        async def on_assigned(self, handle: RebalanceHandle, partitions: Sequence[TopicPartition]) -> None:
            if ORDERS[0] in partitions:
                handle.seek(ORDERS[0], 7)
                results.append(await handle.position(ORDERS[0]))

        async def on_revoked(self, handle: RebalanceHandle, partitions: Sequence[TopicPartition]) -> None:
            assert set(partitions) <= set(handle.assignment)
            results.append(await handle.commit({ORDERS[0]: OffsetAndMetadata(9, "by hand")}))

    async with member_of(cluster, listener=Store()) as consumer:
        assert [record.offset for record in await read_all(consumer, 3)] == [7, 8, 9]
    assert results[0] == 7
    assert results[1].committed == {ORDERS[0]: OffsetAndMetadata(9, "by hand")}
    async with member_of(cluster) as consumer:
        assert (await read_all(consumer, 1))[0].offset == 9


async def test_topics_can_be_changed_and_created_later(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("returns", partitions=2)
    async with member_of(cluster, allow_auto_create_topics=False) as consumer, Reading(consumer):
        await until_stable(consumer)
        consumer.subscribe(["returns", "refunds"])
        await asyncio.sleep(10.0)
        assert {partition.topic for partition in consumer.assignment} == {"returns"}
        await cluster.create_topic("refunds", partitions=1)
        await asyncio.sleep(310.0)  # longer than metadata_max_age
        assert {partition.topic for partition in consumer.assignment} == {"returns", "refunds"}


async def test_added_partitions_are_assigned_too(cluster: EmbeddedCluster, ownership: Ownership) -> None:
    workers = [
        await Worker(cluster, ownership, f"worker-{number}", metadata_max_age=5.0).start() for number in range(2)
    ]
    await until_stable(*(worker.consumer for worker in workers))
    cluster.controller.create_partitions("orders", 8, None)
    await asyncio.sleep(15.0)
    assert sorted(each for worker in workers for each in worker.consumer.assignment) == [
        TopicPartition("orders", number) for number in range(8)
    ]
    for worker in workers:
        await worker.stop()


async def test_a_pattern_matches_whole_names_and_no_internal_topic(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("orders-2", partitions=1)
    await cluster.create_topic("reorders", partitions=1)
    async with member_of(cluster, topics=re.compile(r"orders.*|__.*")) as consumer, Reading(consumer):
        await asyncio.sleep(10.0)
        assert {partition.topic for partition in consumer.assignment} == {"orders", "orders-2"}


# Closing.


@pytest.mark.parametrize("after", [0.0, 0.001, 0.5, 3.5, 4.0])
@each_mode
async def test_closing_during_a_rebalance_is_quick_and_leaves_the_group(
    cluster: EmbeddedCluster, ownership: Ownership, settings: dict[str, Any], after: float
) -> None:
    first = await Worker(cluster, ownership, "first", work=0.3, **settings).start()
    await until_stable(first.consumer)
    second = await Worker(cluster, ownership, "second", **settings).start()
    await asyncio.sleep(after)
    began = now()
    await second.stop()
    assert now() - began <= 5.0
    began = now()
    await first.stop()
    assert now() - began <= 5.0
    assert ownership.owners == {}
    fill(cluster, ORDERS[0], 1)
    began = now()
    async with member_of(cluster) as third:
        await read_all(third, 1)
        assert now() - began <= 1.0  # the coordinator waits for no member that has left


async def test_closing_has_a_time_limit_if_the_cluster_is_silent(cluster: EmbeddedCluster) -> None:
    fill(cluster, ORDERS[0], 10)
    consumer = member_of(cluster)
    await consumer.start()
    await read_all(consumer, 10)
    await consumer.poll()
    for node in cluster.nodes:
        await cluster.freeze(node)
    began = now()
    await consumer.close()
    assert now() - began <= 5.0


async def test_close_can_be_called_twice_and_from_another_task(cluster: EmbeddedCluster) -> None:
    consumer = member_of(cluster)
    await consumer.start()
    await consumer.poll(timeout=1.0)
    await asyncio.gather(consumer.close(), consumer.close())
    await consumer.close()
    with pytest.raises(IllegalStateError):
        await consumer.commit()


# Several groups.


async def test_several_groups_share_a_process(cluster: EmbeddedCluster) -> None:
    for partition in ORDERS:
        fill(cluster, partition, 5)
    consumers = [member_of(cluster, group_id=f"group-{number}") for number in range(5)]
    for consumer in consumers:
        await consumer.start()
    records = await asyncio.gather(*(read_all(consumer, 30) for consumer in consumers))
    assert [len(each) for each in records] == [30] * 5
    for consumer in consumers:
        await consumer.close()
