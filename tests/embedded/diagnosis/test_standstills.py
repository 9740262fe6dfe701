"""Standing still is never silent: client × way of waiting. Each has a reason in ``health()`` within 30 seconds, exactly
one WARNING that names it, and the reason in ``diagnose()``.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pytest

from aiokafka_lite import (
    Consumer,
    ConsumerGroup,
    ConsumerGroupHandler,
    EmbeddedCluster,
    KafkaError,
    Producer,
    ShareConsumer,
    TopicPartition,
    Workers,
)
from aiokafka_lite.cluster.client import Client
from aiokafka_lite.cluster.standstill import Wait
from aiokafka_lite.consumer import RebalanceListener
from aiokafka_lite.errors import ErrorCode
from aiokafka_lite.protocol.messages import (
    EndTxnRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    InitProducerIdRequest,
    JoinGroupRequest,
    ListOffsetsRequest,
    OffsetFetchRequest,
    ProduceRequest,
    ShareGroupHeartbeatRequest,
)
from aiokafka_lite.settings.client import ClientConfig
from tests.waiting import until

NAMED_WITHIN = 30.0
AGAIN = 100.0
"""Seconds for which the log must stay quiet after the WARNING."""

AnyClient = Any
"""A client with ``health()`` and ``diagnose()``."""


@dataclass(frozen=True)
class Case:
    """One way of waiting. ``begin`` is an async context manager that makes the client wait."""

    begin: Callable[[EmbeddedCluster, AsyncExitStack], Awaitable[AnyClient]]
    reason: str
    """A pattern of the reason."""
    is_ready: bool = False
    lines: str | None = None
    """A pattern of the WARNING, if it is not the reason."""


def settings(cluster: EmbeddedCluster, **more: Any) -> dict[str, Any]:
    return {"bootstrap_servers": cluster.bootstrap_servers, "connector": cluster.connector, **more}


@asynccontextmanager
async def task(work: Awaitable[object]) -> AsyncIterator[None]:
    """Run the work until the end of the context. Its errors do not matter."""
    running = asyncio.ensure_future(work)
    try:
        yield
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError, KafkaError):
            await running


async def read(consumer: Any) -> None:
    while True:
        with suppress(KafkaError):
            await consumer.poll(timeout=1.0)


async def member(cluster: EmbeddedCluster, stack: AsyncExitStack, **more: Any) -> Consumer:
    options = settings(cluster, **{"topics": ["orders"], "group_id": "g", **more})
    consumer = await stack.enter_async_context(Consumer(**options))
    await stack.enter_async_context(task(read(consumer)))
    return consumer


# The cases of consumers and members.


async def without_a_leader(stack: AsyncExitStack, *numbers: int) -> AnyClient:
    """Return a consumer of partitions on two brokers. The broker that leads orders-0 is down."""
    cluster = await stack.enter_async_context(EmbeddedCluster(brokers=2, tcp=False, seed=1))
    await cluster.create_topic("orders", partitions=2, replication_factor=1)
    await cluster.kill(cluster.leader_of("orders", 0))
    consumer = await stack.enter_async_context(Consumer(**settings(cluster)))
    consumer.assign([TopicPartition("orders", number) for number in numbers])
    await stack.enter_async_context(task(read(consumer)))
    return consumer


async def assigned_without_a_leader(cluster: EmbeddedCluster, stack: AsyncExitStack) -> AnyClient:
    return await without_a_leader(stack, 0)


async def one_leader_of_two(cluster: EmbeddedCluster, stack: AsyncExitStack) -> AnyClient:
    return await without_a_leader(stack, 0, 1)


async def a_position_that_no_leader_names(cluster: EmbeddedCluster, stack: AsyncExitStack) -> AnyClient:
    stack.enter_context(cluster.on(ListOffsetsRequest, times=None).fail(ErrorCode.LEADER_NOT_AVAILABLE))
    consumer = await stack.enter_async_context(Consumer(**settings(cluster)))
    consumer.assign([TopicPartition("orders", 0)])
    await stack.enter_async_context(task(read(consumer)))
    return consumer


async def a_missing_topic(cluster: EmbeddedCluster, stack: AsyncExitStack) -> AnyClient:
    return await member(cluster, stack, topics=["missing"])


async def one_missing_topic_of_two(cluster: EmbeddedCluster, stack: AsyncExitStack) -> AnyClient:
    return await member(cluster, stack, topics=["orders", "missing"])


async def a_pattern_without_topics(cluster: EmbeddedCluster, stack: AsyncExitStack) -> AnyClient:
    return await member(cluster, stack, topics=re.compile("order"))


async def unreadable_commits(cluster: EmbeddedCluster, stack: AsyncExitStack) -> AnyClient:
    stack.enter_context(cluster.on(OffsetFetchRequest, times=None).fail(ErrorCode.UNSTABLE_OFFSET_COMMIT))
    return await member(cluster, stack)


async def unreadable_commits_of_an_assignment(cluster: EmbeddedCluster, stack: AsyncExitStack) -> AnyClient:
    stack.enter_context(cluster.on(OffsetFetchRequest, times=None).fail(ErrorCode.UNSTABLE_OFFSET_COMMIT))
    consumer = await stack.enter_async_context(Consumer(**settings(cluster, group_id="g")))
    consumer.assign([TopicPartition("orders", 0)])
    await stack.enter_async_context(task(read(consumer)))
    return consumer


async def commits_without_an_answer(cluster: EmbeddedCluster, stack: AsyncExitStack) -> AnyClient:
    stack.enter_context(cluster.on(OffsetFetchRequest, times=None).drop())
    return await member(cluster, stack)


async def no_coordinator(cluster: EmbeddedCluster, stack: AsyncExitStack) -> AnyClient:
    stack.enter_context(cluster.on(FindCoordinatorRequest, times=None).fail(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    return await member(cluster, stack)


async def a_rebalance_without_end(cluster: EmbeddedCluster, stack: AsyncExitStack) -> AnyClient:
    stack.enter_context(cluster.on(JoinGroupRequest, times=None).delay(3600.0))
    return await member(cluster, stack)


async def one_rebalance_after_the_other(cluster: EmbeddedCluster, stack: AsyncExitStack) -> AnyClient:
    consumer = await member(cluster, stack)
    stack.enter_context(cluster.on(HeartbeatRequest, times=None).fail(ErrorCode.REBALANCE_IN_PROGRESS))
    return consumer


async def more_members_than_partitions(cluster: EmbeddedCluster, stack: AsyncExitStack) -> AnyClient:
    await cluster.create_topic("single")
    first = await member(cluster, stack, topics=["single"])
    await first.wait_assigned()
    second = await member(cluster, stack, topics=["single"])
    await until(lambda: len(first.assignment) + len(second.assignment) == 1)
    return second if first.assignment else first


class Hangs(RebalanceListener):
    async def on_assigned(self, consumer: object, partitions: object) -> None:
        await asyncio.Event().wait()


async def a_listener_that_hangs(cluster: EmbeddedCluster, stack: AsyncExitStack) -> AnyClient:
    return await member(cluster, stack, listener=Hangs())


async def paused_partitions(cluster: EmbeddedCluster, stack: AsyncExitStack) -> AnyClient:
    consumer = await member(cluster, stack)
    consumer.pause(*await consumer.wait_assigned())
    return consumer


async def no_broker(cluster: EmbeddedCluster, stack: AsyncExitStack) -> AnyClient:
    consumer = await member(cluster, stack)
    await consumer.wait_assigned()
    await cluster.kill(1)
    return consumer


async def hang(record: object) -> None:
    await asyncio.Event().wait()


class HangsInItsClaim(ConsumerGroupHandler[Any, Any]):
    async def consume_claim(self, session: object, claim: Any) -> None:
        async for record in claim:
            await hang(record)


async def group_with(handler: Any, cluster: EmbeddedCluster, stack: AsyncExitStack) -> AnyClient:
    await cluster.produce("orders", "v")
    group = await stack.enter_async_context(ConsumerGroup(**settings(cluster, group_id="g", rebalance_timeout=2.0)))
    await stack.enter_async_context(task(group.consume(["orders"], handler)))
    await until(lambda: group.health().is_ready)
    return group


async def a_claim_that_hangs(cluster: EmbeddedCluster, stack: AsyncExitStack) -> AnyClient:
    return await group_with(HangsInItsClaim(), cluster, stack)


async def a_worker_that_hangs(cluster: EmbeddedCluster, stack: AsyncExitStack) -> AnyClient:
    return await group_with(Workers(hang), cluster, stack)


async def an_open_transaction(cluster: EmbeddedCluster, stack: AsyncExitStack) -> AnyClient:
    options = settings(cluster, transactional_id="t", transaction_timeout=900.0)
    producer = await stack.enter_async_context(Producer(**options))
    await producer.begin_transaction()
    await producer.send("orders", b"v", partition=0)
    return await member(cluster, stack)


# The cases of producers.


async def sending(cluster: EmbeddedCluster, stack: AsyncExitStack, topic: str = "orders", **more: Any) -> Producer:
    producer = await stack.enter_async_context(
        Producer(**settings(cluster, max_block=900.0, delivery_timeout=900.0, **more))
    )
    await stack.enter_async_context(task(producer.send(topic, b"v", partition=0)))
    return producer


async def a_record_for_a_missing_topic(cluster: EmbeddedCluster, stack: AsyncExitStack) -> AnyClient:
    return await sending(cluster, stack, "missing")


async def a_record_without_a_leader(cluster: EmbeddedCluster, stack: AsyncExitStack) -> AnyClient:
    stack.enter_context(cluster.on(ProduceRequest, times=None).fail(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    return await sending(cluster, stack)


async def a_record_without_an_answer(cluster: EmbeddedCluster, stack: AsyncExitStack) -> AnyClient:
    stack.enter_context(cluster.on(ProduceRequest, times=None).drop())
    return await sending(cluster, stack, request_timeout=600.0)


async def a_buffer_without_room(cluster: EmbeddedCluster, stack: AsyncExitStack) -> AnyClient:
    stack.enter_context(cluster.on(ProduceRequest, times=None).drop())
    size = 1 << 20
    producer = await sending(cluster, stack, request_timeout=600.0, buffer_memory=size, max_request_size=size)
    for _ in range(3):
        await stack.enter_async_context(task(producer.send("orders", bytes(size // 2), partition=0)))
    return producer


async def no_producer_id(cluster: EmbeddedCluster, stack: AsyncExitStack) -> AnyClient:
    stack.enter_context(cluster.on(InitProducerIdRequest, times=None).fail(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    return await sending(cluster, stack)


async def a_transaction_that_hangs(cluster: EmbeddedCluster, stack: AsyncExitStack) -> AnyClient:
    producer = await stack.enter_async_context(Producer(**settings(cluster, transactional_id="t")))

    async def commit() -> None:
        async with producer.transaction(timeout=900.0):
            await producer.send("orders", b"v")
            stack.enter_context(cluster.on(EndTxnRequest, times=None).fail(ErrorCode.CONCURRENT_TRANSACTIONS))

    await stack.enter_async_context(task(commit()))
    return producer


# The cases of share consumers.


async def sharing(cluster: EmbeddedCluster, stack: AsyncExitStack, *topics: str) -> ShareConsumer:
    options = settings(cluster, topics=topics or ["orders"], group_id="s")
    consumer = await stack.enter_async_context(ShareConsumer(**options))
    await stack.enter_async_context(task(read(consumer)))
    return consumer


async def a_missing_topic_to_share(cluster: EmbeddedCluster, stack: AsyncExitStack) -> AnyClient:
    return await sharing(cluster, stack, "missing")


async def no_share_coordinator(cluster: EmbeddedCluster, stack: AsyncExitStack) -> AnyClient:
    stack.enter_context(cluster.on(FindCoordinatorRequest, times=None).fail(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    return await sharing(cluster, stack)


async def a_share_member_without_an_answer(cluster: EmbeddedCluster, stack: AsyncExitStack) -> AnyClient:
    stack.enter_context(cluster.on(ShareGroupHeartbeatRequest, times=None).drop())
    return await sharing(cluster, stack)


CASES = [
    Case(assigned_without_a_leader, "orders-0 is not read: it has no leader"),
    Case(one_leader_of_two, "orders-0 is not read: it has no leader", is_ready=True),
    Case(
        a_position_that_no_leader_names, "orders-0 is not read: .*LEADER_NOT_AVAILABLE", lines="looking up the offset"
    ),
    Case(a_missing_topic, "topic 'missing' does not exist"),
    Case(one_missing_topic_of_two, "topic 'missing' does not exist", is_ready=True),
    Case(a_pattern_without_topics, "pattern 'order' matches no topic: .* part of topic 'orders'"),
    Case(unreadable_commits, "committed offsets of group 'g' cannot be read: .*UNSTABLE_OFFSET_COMMIT"),
    Case(
        unreadable_commits_of_an_assignment, "committed offsets of group 'g' cannot be read: .*UNSTABLE_OFFSET_COMMIT"
    ),
    Case(commits_without_an_answer, "the committed offsets have not been read yet"),
    Case(no_coordinator, "the coordinator of group 'g' is not found: .*COORDINATOR_NOT_AVAILABLE"),
    Case(a_rebalance_without_end, "group 'g' JOINING: the coordinator has not let it join yet"),
    Case(one_rebalance_after_the_other, "group 'g' rebalances again and again", is_ready=True),
    Case(
        more_members_than_partitions,
        r"group 'g' has assigned it no partition of 'single' \(1 partition\)",
        is_ready=True,
    ),
    Case(a_listener_that_hangs, "has not returned from on_assigned"),
    Case(no_broker, "no broker answers metadata requests"),
    Case(an_open_transaction, "orders-0 is read up to offset 0, where an open transaction begins", is_ready=True),
    Case(a_claim_that_hangs, "the handler has not finished orders-. at offset 0", is_ready=True),
    Case(a_worker_that_hangs, "the handler has not finished orders-. at offset 0", is_ready=True),
    Case(
        a_record_for_a_missing_topic,
        "records wait for topic 'missing'",
        is_ready=True,
        lines="topic 'missing' does not",
    ),
    Case(a_record_without_a_leader, "batches for orders-0 wait: .*NOT_LEADER_OR_FOLLOWER", is_ready=True),
    Case(a_record_without_an_answer, "broker 1 has not answered for batches of orders-0", is_ready=True),
    Case(a_buffer_without_room, "calls wait for room: .* of buffer_memory=1048576"),
    Case(no_producer_id, "it has no producer id: .*COORDINATOR_NOT_AVAILABLE"),
    Case(a_transaction_that_hangs, "its transaction waits: .*CONCURRENT_TRANSACTIONS"),
    Case(a_missing_topic_to_share, "'missing' does not exist", lines="topic missing does not exist"),
    Case(no_share_coordinator, "the coordinator of group 's' is not found: .*COORDINATOR_NOT_AVAILABLE"),
    Case(a_share_member_without_an_answer, "not a member of share group 's' yet: its state is JOINING"),
]


def warnings(caplog: pytest.LogCaptureFixture, pattern: str) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelno >= logging.WARNING
        and not record.name.startswith("aiokafka_lite.embedded")
        and re.search(pattern, record.getMessage())
    ]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.begin.__name__)
async def test_a_client_that_waits_says_what_it_waits_for(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture, case: Case
) -> None:
    caplog.set_level(logging.INFO, logger="aiokafka_lite")
    async with AsyncExitStack() as stack:
        client = await case.begin(cluster, stack)
        named = lambda: any(re.search(case.reason, problem) for problem in client.health().problems)  # noqa: E731
        async with asyncio.timeout(NAMED_WITHIN):
            while not named():
                await asyncio.sleep(0.5)  # virtual time; each look costs a snapshot
        assert client.health().is_ready is case.is_ready
        assert client.health().is_live
        assert re.search(case.reason, str(client.diagnose()))
        await asyncio.sleep(AGAIN)  # virtual time
        line = case.lines or case.reason
        assert len(warnings(caplog, line)) == 1, caplog.text


async def test_the_end_of_a_standstill_is_one_line_and_health_is_well_again(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="aiokafka_lite")
    async with AsyncExitStack() as stack:
        consumer = await member(cluster, stack, topics=re.compile("events-.*"), metadata_max_age=5.0)
        await asyncio.sleep(20.0)  # virtual time
        assert not consumer.health().is_ready
        await cluster.create_topic("events-eu")
        await asyncio.sleep(20.0)  # virtual time
        assert consumer.health().problems == ()
        assert consumer.diagnose().waits == ()
    ends = [message for message in caplog.messages if "goes on after" in message]
    assert len(ends) == 1
    assert "'events-.*' matches no topic" in ends[0]


async def test_a_lookup_that_its_caller_has_given_up_is_no_standstill(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with Consumer(**settings(cluster, group_id="g")) as consumer:
        fault = cluster.on(FindCoordinatorRequest, times=None).fail(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        with fault, pytest.raises(KafkaError):
            await consumer.committed([TopicPartition("orders", 0)], timeout=1.0)
        await asyncio.sleep(AGAIN)  # virtual time
        assert consumer.health().is_ready
        assert consumer.health().problems == ()
    assert warnings(caplog, "") == []


async def test_a_check_that_fails_ends_no_client(cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> list[Wait]:
        raise ZeroDivisionError

    async with Client(ClientConfig(bootstrap_servers=cluster.bootstrap_servers), connector=cluster.connector) as client:
        client.standstill.watch(lambda: "it", [fail, lambda: [Wait("here", "a wait")]])
        await asyncio.sleep(AGAIN)  # virtual time
        assert client.standstill.problems(is_partial=False) == ("a wait",)
        await client.topic("orders")
    assert len(warnings(caplog, "unexpected error")) == 1
