"""A member with a slow user, a listener that fails, static membership and changing topics; and closing."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest

from aiokafka_lite.aio.virtual_time import VirtualTimeLoop
from aiokafka_lite.consumer import Consumer, RebalanceHandle, RebalanceListener
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import (
    BrokerError,
    ConfigurationError,
    ErrorCode,
    IllegalStateError,
    KafkaTimeout,
)
from aiokafka_lite.group import MemberState, RangeStrategy
from aiokafka_lite.protocol.messages import JoinGroupRequest, LeaveGroupRequest
from aiokafka_lite.types import OffsetAndMetadata, TopicPartition
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


@pytest.mark.parametrize("settings", [{"session_timeout": 40.0}, CONSUMER], ids=["classic", "consumer"])
async def test_a_read_in_the_turn_in_which_a_member_is_found_overdue_keeps_it_in_the_group(
    cluster: EmbeddedCluster, settings: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """The heartbeats task and the user wake in the same turn of the loop, which was blocked."""
    fill(cluster, ORDERS[0], 5)
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    async with member_of(cluster, max_poll_interval=20.0, **settings) as consumer:
        await read_all(consumer, 5)

        async def read_after_work() -> object:
            await asyncio.sleep(10.0)
            return await anext(consumer)

        reading = asyncio.create_task(read_after_work())
        await asyncio.sleep(1.0)
        loop.now += 25.0
        await asyncio.sleep(60.0)
        assert consumer.membership is MemberState.STABLE
        assert "left the group" not in caplog.text
        fill(cluster, ORDERS[0], 1)
        await reading


async def test_waiting_for_records_counts_as_reading(cluster: EmbeddedCluster) -> None:
    async with member_of(cluster, max_poll_interval=20.0) as consumer:
        assert await consumer.poll(timeout=100.0) == []
        assert consumer.membership is MemberState.STABLE
        assert len(cluster.history.of(JoinGroupRequest)) == 2  # the second one carries the id from the first answer


@each_protocol
async def test_slow_iteration_over_a_long_batch_counts_as_reading(
    cluster: EmbeddedCluster, ownership: Ownership, protocol: dict[str, Any]
) -> None:
    fill(cluster, ORDERS[0], 100, batch_size=100)
    worker = Worker(cluster, ownership, "worker", work=2.0, max_poll_interval=20.0, **protocol)
    await worker.start()
    await asyncio.sleep(150.0)
    assert len(worker.read) > 70
    assert [what for _, what, _ in ownership.events] == ["assigned"]
    await worker.stop()


@each_way
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


@each_protocol
async def test_a_user_beyond_the_rebalance_timeout_does_not_delay_the_group(
    cluster: EmbeddedCluster, ownership: Ownership, protocol: dict[str, Any]
) -> None:
    fill(cluster, ORDERS[0], 3)
    stuck = await Worker(cluster, ownership, "stuck", work=10_000.0, rebalance_timeout=12.0, **protocol).start()
    await asyncio.sleep(1.0)
    quick = await Worker(cluster, ownership, "quick", rebalance_timeout=12.0, **protocol).start()
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


async def test_the_read_raises_a_refusal_that_a_retry_cannot_help(cluster: EmbeddedCluster) -> None:
    cluster.on(JoinGroupRequest).fail(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    consumer = member_of(cluster)
    await consumer.start()
    with pytest.raises(BrokerError, match=r"'workers'.*range") as caught:
        await anext(consumer)
    assert caught.value.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
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
    results: list[object] = []

    class Seeker(RebalanceListener):
        async def on_assigned(self, handle: RebalanceHandle, partitions: Sequence[TopicPartition]) -> None:
            results.append((await handle.committed(partitions))[ORDERS[0]])
            results.append((await handle.offsets_for_times({ORDERS[0]: 0}))[ORDERS[0]])
            await handle.seek_to_beginning()
            await handle.seek_to_end([ORDERS[0]])
            results.append(await handle.position(ORDERS[0]))

    async with member_of(cluster, listener=Seeker()) as consumer:
        await until_stable(consumer)
        await consumer.wait_assigned()
        assert results == [None, results[1], 5]
        assert getattr(results[1], "offset", None) == 0


async def test_a_member_with_the_default_strategies_joins_a_group_of_aiokafka(cluster: EmbeddedCluster) -> None:
    """aiokafka's consumers offer roundrobin alone by default. When the last of them leaves, range is used."""
    async with member_of(cluster) as new:
        async with member_of(cluster, strategies=["roundrobin"]) as old:
            reading = asyncio.gather(new.poll(timeout=30.0), old.poll(timeout=30.0))
            await until_stable(new, old)
            assert {partition.partition % 2 for partition in old.assignment} in ({0}, {1})
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


@pytest.mark.parametrize(
    "protocol,joining", [({}, MemberState.SYNCING), (CONSUMER, MemberState.JOINING)], ids=["classic", "consumer"]
)
async def test_waiting_for_an_assignment_ends_with_the_consumer(
    cluster: EmbeddedCluster, protocol: dict[str, Any], joining: MemberState
) -> None:
    """The consumer is closed at each turn around its assignment: the wait never returns an empty assignment."""
    outcomes: set[object] = set()
    for turns in range(60):
        consumer = member_of(cluster, **protocol)
        await consumer.start()
        waiting = asyncio.create_task(consumer.wait_assigned())
        while consumer.membership is not joining:
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


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_listener_reads_positions_and_commits_while_the_consumer_closes(
    cluster: EmbeddedCluster, protocol: str
) -> None:
    fill(cluster, ORDERS[0], 10)
    stored: list[Any] = []

    class Stores(RebalanceListener):
        async def on_revoked(self, handle: RebalanceHandle, partitions: Sequence[TopicPartition]) -> None:
            stored.append(await handle.position(ORDERS[0]))
            stored.append((await handle.committed([ORDERS[0]]))[ORDERS[0]])

    settings = {"listener": Stores(), "group_protocol": protocol}
    async with member_of(cluster, auto_commit=False, **settings) as consumer:
        assert len(await read_all(consumer, 5)) == 5
        await consumer.commit({ORDERS[0]: 3})
    assert stored == [5, OffsetAndMetadata(3)]


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
    assert sorted(partition for worker in workers for partition in worker.consumer.assignment) == [
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
    assert [len(record) for record in records] == [30] * 5
    for consumer in consumers:
        await consumer.close()
