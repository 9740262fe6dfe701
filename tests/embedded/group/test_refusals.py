"""Members that brokers refuse for a while: the reads that wait raise the error, and nothing momentary ends a member."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from aiokafka_lite.admin import AclBinding, AclOperation, AclResourceType
from aiokafka_lite.consumer import Consumer, ConsumerGroup, ConsumerGroupHandler
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import AuthorizationError, BrokerError, ErrorCode, KafkaError
from aiokafka_lite.group import MemberState
from aiokafka_lite.protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    OffsetFetchRequest,
)
from aiokafka_lite.types import Record
from tests.embedded.group.recording_members import CONSUMER, ORDERS, each_protocol, member_of
from tests.waiting import until

PERMISSIONS = {"a": AclResourceType.TOPIC, "b": AclResourceType.TOPIC, "workers": AclResourceType.GROUP}


def permission(name: str) -> AclBinding:
    return AclBinding(PERMISSIONS[name], name, "User:ANONYMOUS", AclOperation.READ)


@pytest.fixture
async def guarded() -> AsyncIterator[EmbeddedCluster]:
    """A broker with ACLs, and two topics that the group may read."""
    async with EmbeddedCluster(tcp=False, seed=1, super_users=["User:admin"]) as cluster:
        for name in PERMISSIONS:
            cluster.authorizer.acls.create(permission(name))
        await cluster.create_topic("a")
        await cluster.create_topic("b")
        yield cluster


class Reads:
    """The outcome of the polls of one consumer: topics that were read, and errors."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self.errors: list[KafkaError] = []

    async def topics(self, cluster: EmbeddedCluster, seconds: float) -> set[str]:
        """Write to both topics and poll for some time. Returns the topics that were read."""
        topics = set()
        end = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < end:
            for name in ("a", "b"):
                await cluster.produce(name, "x")
            try:
                topics |= {record.topic for record in await self._consumer.poll(timeout=0.2)}
            except KafkaError as error:
                self.errors.append(error)
            await asyncio.sleep(0.1)  # in virtual time, reads of buffered records take none
        return topics


@each_protocol
@pytest.mark.parametrize("name", ["b", "workers"])
async def test_a_permission_that_is_gone_for_seconds_does_not_end_a_member(
    guarded: EmbeddedCluster, protocol: dict[str, Any], name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "aiokafka_lite")
    settings = {"metadata_max_age": 1.0, "auto_commit_interval": 0.5, **protocol}
    if not protocol:
        settings["heartbeat_interval"] = 0.5
    async with member_of(guarded, topics=["a", "b"], **settings) as consumer:
        reads = Reads(consumer)
        assert await reads.topics(guarded, 2.0) == {"a", "b"}
        assert reads.errors == []
        guarded.authorizer.acls.delete([permission(name)])
        assert "a" in await reads.topics(guarded, 10.0)
        with pytest.raises(AuthorizationError):
            while True:  # first the buffered records
                await consumer.poll(timeout=30.0)
        assert {type(error) for error in reads.errors} <= {AuthorizationError}
        assert len(reads.errors) < 60, "it is tried again with a pause"
        assert consumer.membership is not MemberState.FATAL
        health = consumer.health()
        assert health.is_live
        assert not health.is_ready
        assert any("AUTHORIZATION_FAILED" in problem for problem in health.problems)
        warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
        assert 1 <= len(warnings) <= 4, [record.getMessage() for record in warnings]
        guarded.authorizer.acls.create(permission(name))
        await reads.topics(guarded, 3.0)
        reads.errors.clear()
        assert await reads.topics(guarded, 2.0) == {"a", "b"}
        assert reads.errors == []
        assert consumer.health().is_ready


@each_protocol
@pytest.mark.parametrize("name", ["b", "workers"])
async def test_a_permission_that_comes_after_the_start_ends_the_errors(
    guarded: EmbeddedCluster, protocol: dict[str, Any], name: str
) -> None:
    guarded.authorizer.acls.delete([permission(name)])
    async with member_of(guarded, topics=["a", "b"], **protocol) as consumer:
        with pytest.raises(AuthorizationError):
            await consumer.wait_assigned(timeout=30.0)
        for _ in range(3):
            with pytest.raises(AuthorizationError):
                while True:
                    await consumer.poll(timeout=30.0)
        guarded.authorizer.acls.create(permission(name))
        reads = Reads(consumer)
        await reads.topics(guarded, 5.0)
        reads.errors.clear()
        assert await reads.topics(guarded, 2.0) == {"a", "b"}
        assert reads.errors == []


class Collects(ConsumerGroupHandler[Any, Any]):
    def __init__(self) -> None:
        self.values: list[bytes | None] = []

    async def consume_claim(self, session: Any, claim: Any) -> None:
        record: Record
        async for record in claim:
            self.values.append(record.value)
            session.mark(record)


@each_protocol
@pytest.mark.parametrize("name", ["b", "workers"])
async def test_a_handler_continues_when_a_permission_returns(
    guarded: EmbeddedCluster, protocol: dict[str, Any], name: str
) -> None:
    handler = Collects()
    group: ConsumerGroup[Any, Any] = ConsumerGroup(
        guarded.bootstrap_servers, group_id="workers", connector=guarded.connector, metadata_max_age=1.0, **protocol
    )
    async with group, asyncio.TaskGroup() as tasks:
        consuming = tasks.create_task(group.consume(["a", "b"], handler))
        await guarded.produce("b", b"before")
        await until(lambda: b"before" in handler.values)
        guarded.authorizer.acls.delete([permission(name)])
        await asyncio.sleep(2.0)
        await guarded.produce("b", b"meanwhile")
        await asyncio.sleep(10.0)
        assert not consuming.done()
        guarded.authorizer.acls.create(permission(name))
        await until(lambda: b"meanwhile" in handler.values, within=10.0)
        await group.close()


@each_protocol
@pytest.mark.parametrize("name", ["a", "workers"])
async def test_consume_raises_a_missing_permission_at_the_start(
    guarded: EmbeddedCluster, protocol: dict[str, Any], name: str
) -> None:
    guarded.authorizer.acls.delete([permission(name)])
    group: ConsumerGroup[Any, Any] = ConsumerGroup(
        guarded.bootstrap_servers, group_id="workers", connector=guarded.connector, **protocol
    )
    async with group:
        with pytest.raises(AuthorizationError):
            await group.consume(["a"], Collects())


@each_protocol
async def test_committed_offsets_that_are_refused_are_looked_up_again(
    cluster: EmbeddedCluster, protocol: dict[str, Any]
) -> None:
    fault = cluster.on(OffsetFetchRequest, times=None).fail(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    async with member_of(cluster, **protocol) as consumer:
        with pytest.raises(AuthorizationError, match="committed offsets"):
            await consumer.poll(timeout=30.0)
        with pytest.raises(AuthorizationError, match="committed offsets"):
            await consumer.committed(ORDERS)
        fault.remove()
        await cluster.produce("orders", b"x")
        records = []
        while not records:
            records = await consumer.poll(timeout=30.0)
        assert fault.hits < 20


# Refusals that are no missing permissions.

FULL = ErrorCode.GROUP_MAX_SIZE_REACHED


@pytest.mark.parametrize("code", [FULL, ErrorCode.UNSUPPORTED_ASSIGNOR])
async def test_a_fenced_member_of_the_consumer_protocol_waits_until_it_is_accepted_again(
    cluster: EmbeddedCluster, code: ErrorCode
) -> None:
    async with member_of(cluster, **CONSUMER) as consumer:
        await consumer.wait_assigned()
        cluster.on(ConsumerGroupHeartbeatRequest, times=1).fail(ErrorCode.UNKNOWN_MEMBER_ID)
        with cluster.on(ConsumerGroupHeartbeatRequest, nth=2, times=None).fail(code) as fault:
            await until(lambda: fault.hits > 3)
            assert any(code.name in problem for problem in consumer.health().problems)
        await until(lambda: consumer.membership is MemberState.STABLE)


@pytest.mark.parametrize("code", [FULL, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, ErrorCode.INVALID_SESSION_TIMEOUT])
async def test_a_fenced_member_of_the_classic_protocol_waits_until_it_is_accepted_again(
    cluster: EmbeddedCluster, code: ErrorCode
) -> None:
    async with member_of(cluster) as consumer:
        await consumer.wait_assigned()
        fault = cluster.on(JoinGroupRequest, times=None).fail(code)
        cluster.on(HeartbeatRequest, times=1).fail(ErrorCode.UNKNOWN_MEMBER_ID)
        await until(lambda: fault.hits > 3)
        assert consumer.membership is MemberState.JOINING
        fault.remove()
        await until(lambda: consumer.membership is MemberState.STABLE)


@each_protocol
async def test_a_refused_topic_that_is_no_longer_read_leaves_the_member_ready(
    guarded: EmbeddedCluster, protocol: dict[str, Any]
) -> None:
    guarded.authorizer.acls.delete([permission("b")])
    async with member_of(guarded, topics=["a", "b"], **protocol) as consumer:
        await until(lambda: any("topic b" in problem for problem in consumer.health().problems))
        consumer.subscribe(["a"])
        await until(lambda: consumer.health().is_ready)
        assert consumer.health().problems == ()


@each_protocol
async def test_a_full_group_refuses_a_new_member_at_once(cluster: EmbeddedCluster, protocol: dict[str, Any]) -> None:
    request = ConsumerGroupHeartbeatRequest if protocol else JoinGroupRequest
    cluster.on(request).fail(FULL)
    consumer = member_of(cluster, **protocol)
    await consumer.start()
    with pytest.raises(BrokerError, match="GROUP_MAX_SIZE_REACHED"):
        await consumer.poll(timeout=30.0)
    with pytest.raises(BrokerError):
        await consumer.close()


async def test_a_static_member_that_was_killed_starts_again_when_its_session_has_ended(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    killed = member_of(cluster, group_instance_id="worker-1", **CONSUMER)
    await killed.start()
    await killed.wait_assigned()
    await killed.close(timeout=0.0)
    began = asyncio.get_running_loop().time()
    async with member_of(cluster, group_instance_id="worker-1", **CONSUMER) as consumer:
        await cluster.produce("orders", b"x")
        await asyncio.sleep(5.0)
        if consumer.membership is MemberState.JOINING:
            assert "UNRELEASED_INSTANCE_ID" in caplog.text
            assert not consumer.health().is_ready
        records = []
        while not records:
            records = await consumer.poll(timeout=90.0)
        assert asyncio.get_running_loop().time() - began < 60.0
