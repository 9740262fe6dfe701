"""When a rebalance listener is called, and that a member that is not needed leaves its group."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokafka_lite import EmbeddedCluster
from aiokafka_lite.compat.aiokafka import AIOKafkaConsumer
from aiokafka_lite.errors import ErrorCode
from aiokafka_lite.protocol.messages import JoinGroupRequest, OffsetCommitRequest
from tests.waiting import DEADLINE, LONGER_AND_LONGER, until


class Events:
    """The calls of a listener, which the tests can wait for."""

    def __init__(self, library: Any) -> None:
        self.calls: list[tuple[str, set[Any]]] = []
        self._came = asyncio.Event()
        events = self

        class Listener(library.ConsumerRebalanceListener):  # type: ignore[misc]
            def on_partitions_revoked(self, revoked: set[Any]) -> None:
                events._add("revoked", revoked)

            async def on_partitions_assigned(self, assigned: set[Any]) -> None:
                events._add("assigned", assigned)

        self.listener = Listener()

    def _add(self, what: str, partitions: set[Any]) -> None:
        self.calls.append((what, partitions))
        self._came.set()

    async def until_assigned(self, count: int) -> None:
        """Wait until the last call has assigned this number of partitions."""
        async with asyncio.timeout(DEADLINE):
            while not self.calls or self.calls[-1][0] != "assigned" or len(self.calls[-1][1]) != count:
                self._came.clear()
                await self._came.wait()

    def assert_alternate(self) -> None:
        """Check that each revocation has the partitions of the last assignment; the first one has none."""
        sets = [set(), *(partitions for _, partitions in self.calls)]
        assert [what for what, _ in self.calls] == ["revoked", "assigned"] * (len(self.calls) // 2)
        assert sets[1::2] == sets[:-1:2]


def member(library: Any, cluster: EmbeddedCluster, **settings: Any) -> Any:
    settings = {"group_id": "billing", "enable_auto_commit": False, "heartbeat_interval_ms": 100, **settings}
    return library.AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, **settings)


async def test_each_assignment_follows_a_revocation_and_stop_revokes_nothing(
    library: Any, cluster: EmbeddedCluster
) -> None:
    events, others = Events(library), Events(library)
    async with member(library, cluster) as consumer:
        consumer.subscribe(["orders"], listener=events.listener)
        await events.until_assigned(2)
        async with member(library, cluster) as other:
            other.subscribe(["orders"], listener=others.listener)
            await events.until_assigned(1)
            await others.until_assigned(1)
            calls_of_other = list(others.calls)
        assert others.calls == calls_of_other
        await events.until_assigned(2)
        calls = list(events.calls)
    assert events.calls == calls
    events.assert_alternate()
    others.assert_alternate()


async def test_a_member_without_a_subscription_leaves_at_once(library: Any, cluster: EmbeddedCluster) -> None:
    events, others = Events(library), Events(library)
    async with member(library, cluster) as idle, member(library, cluster) as consumer:
        idle.subscribe(["orders"], listener=others.listener)
        await others.until_assigned(2)
        consumer.subscribe(["orders"], listener=events.listener)
        await events.until_assigned(1)
        idle.unsubscribe()
        await events.until_assigned(2)
        assert idle.assignment() == set()


async def test_stop_logs_a_commit_that_fails(
    library: Any, cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with library.AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        await producer.send_and_wait("orders", b"soup")
    settings = {"enable_auto_commit": True, "auto_offset_reset": "earliest"}
    async with member(library, cluster, **settings) as consumer:
        consumer.subscribe(["orders"])
        await consumer.getone()
        cluster.on(OffsetCommitRequest, times=None).fail(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    assert "GroupAuthorizationFailedError" in caplog.text


async def test_a_stop_during_the_start_ends_it_without_an_error(library: Any, cluster: EmbeddedCluster) -> None:
    """FastStream stops a consumer that still waits for partitions when it receives SIGTERM."""
    may_leave = asyncio.Event()

    class Slow(library.ConsumerRebalanceListener):  # type: ignore[misc]
        async def on_partitions_revoked(self, revoked: set[Any]) -> None:
            if revoked:
                await may_leave.wait()

        def on_partitions_assigned(self, assigned: set[Any]) -> None: ...

    def joins() -> int:
        return sum(isinstance(exchange.request, JoinGroupRequest) for exchange in cluster.history)

    first, second = member(library, cluster), member(library, cluster)
    first.subscribe(["orders"], listener=Slow())
    second.subscribe(["orders"])
    async with first:
        reading = asyncio.create_task(first.getone())
        before = joins()
        starting = asyncio.create_task(second.start())
        await until(lambda: joins() > before + 1)
        stopping = asyncio.create_task(second.stop())
        await until(lambda: stopping.done() or library.name == "aiokafka")
        may_leave.set()
        async with asyncio.timeout(DEADLINE):
            assert await asyncio.gather(starting, stopping) == [None, None]
        reading.cancel()
        await asyncio.wait([reading])


async def test_a_listener_finds_what_faststream_logs(library: Any, cluster: EmbeddedCluster) -> None:
    log: list[tuple[str, set[str]]] = []

    class Listener(library.ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: set[Any]) -> None: ...

        def on_partitions_assigned(self, assigned: set[Any]) -> None:
            coordinator, subscription = consumer._coordinator, consumer._subscription
            log.append((coordinator.member_id, set(subscription.topics)))

    consumer = member(library, cluster, client_id="orders-service")
    consumer.subscribe(["orders"], listener=Listener())
    async with consumer:
        ((member_id, topics),) = log
    assert member_id.startswith("orders-service-")
    assert topics == {"orders"}


async def test_frameworks_may_look_at_a_consumer_that_is_no_member(cluster: EmbeddedCluster) -> None:
    servers = cluster.bootstrap_servers
    member = AIOKafkaConsumer("orders", bootstrap_servers=servers, group_id="billing")
    assert member._coordinator is not None
    assert member._coordinator.member_id == ""
    assert member._subscription.topics == {"orders"}
    reader = AIOKafkaConsumer("orders", bootstrap_servers=servers)
    assert not hasattr(reader._coordinator, "member_id")
    assert reader._subscription.topics == {"orders"}
    async with member:
        assert member._coordinator.member_id


async def test_a_member_starts_before_a_topic_matches_its_pattern(library: Any, cluster: EmbeddedCluster) -> None:
    events = Events(library)
    consumer = member(library, cluster, metadata_max_age_ms=100, auto_offset_reset="earliest")
    consumer.subscribe(pattern="^bills-.*$", listener=events.listener)
    async with asyncio.timeout(DEADLINE), consumer:
        assert consumer.subscription() == set()
        for topic in ("bills-1", "bills-2"):
            reading = asyncio.create_task(consumer.getone())
            await cluster.create_topic(topic, 2)
            async with library.AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
                await producer.send_and_wait(topic, b"two coffees")
            assert (await reading).topic == topic
            await consumer.commit()
            assert consumer.partitions_for_topic(topic) == {0, 1}
            assert topic in consumer._client.cluster.topics()
    assert events.calls[-1][1] == {(topic, number) for topic in ("bills-1", "bills-2") for number in (0, 1)}


async def test_a_rebalance_commits_the_records_that_the_program_has(library: Any, cluster: EmbeddedCluster) -> None:
    """The member does not read again. When the group has waited for it, no other member reads its records again."""
    for partition in (0, 1):
        for _ in range(3):
            await cluster.produce("orders", b"x", partition=partition)
    for timeout in LONGER_AND_LONGER:
        settings = {
            "bootstrap_servers": cluster.bootstrap_servers,
            "group_id": f"billing-{timeout}",
            "auto_offset_reset": "earliest",
            "heartbeat_interval_ms": 100,
            "rebalance_timeout_ms": int(2000 * timeout),
        }
        async with library.AIOKafkaConsumer("orders", **settings) as first, asyncio.timeout(DEADLINE):
            for _ in range(6):
                await first.getone()
            async with library.AIOKafkaConsumer("orders", **settings) as second:
                if len(second.assignment()) == 2:
                    continue  # a busy machine: the first member was not back in time, and was removed
                (partition,) = second.assignment()
                assert await second.committed(partition) == 3
                assert await second.getmany(timeout_ms=100) == {}
                break
    else:
        pytest.fail("the group does not wait for its first member")
