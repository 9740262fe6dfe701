"""A member whose event loop is blocked: a thread keeps its session, on a cluster in another thread, in real time.

The sessions are short: 5 seconds. ``time.sleep`` is the block, so these tests do sleep.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal

from aiokafka_lite import Consumer, ConsumerGroup, Producer
from aiokafka_lite.consumer import Claim, ConsumerGroupHandler, ConsumerGroupSession
from aiokafka_lite.embedded import Security
from aiokafka_lite.errors import ConfigurationError
from aiokafka_lite.group import CooperativeStickyStrategy
from aiokafka_lite.net.connector import TcpConnector
from aiokafka_lite.share import ShareConsumer
from aiokafka_lite.testing.server import EmbeddedKafkaServer
from tests.owned_partitions import OwnedPartitions
from tests.waiting import until

SESSION = 5.0
BLOCK = 8.0
"""Longer than a session, even after a heartbeat that was sent just before the block ended a third of the session."""

CONFIGS = {
    "group.min.session.timeout.ms": "1000",
    "group.consumer.assignment.interval.ms": "0",
    **{
        f"group.{kind}.{setting}.ms": value
        for kind in ("consumer", "share")
        for setting, value in {
            "min.session.timeout": "1000",
            "session.timeout": "5000",
            "min.heartbeat.interval": "500",
            "heartbeat.interval": "1000",
        }.items()
    },
}

CLASSIC: dict[str, Any] = {"session_timeout": SESSION, "heartbeat_interval": 1.0}
COOPERATIVE: dict[str, Any] = {**CLASSIC, "strategies": [CooperativeStickyStrategy()]}
CONSUMER: dict[str, Any] = {"group_protocol": "consumer"}

each_protocol = pytest.mark.parametrize("protocol", [CLASSIC, CONSUMER], ids=["classic", "consumer"])
each_way = pytest.mark.parametrize(
    "protocol", [CLASSIC, COOPERATIVE, CONSUMER], ids=["eager", "cooperative", "consumer"]
)


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedKafkaServer]:
    with EmbeddedKafkaServer(configs=CONFIGS) as server:
        yield server


@pytest.fixture
def topic(server: EmbeddedKafkaServer, request: pytest.FixtureRequest) -> str:
    """A topic of two partitions with the test's name, which is the group's name too."""
    name = re.sub(r"\W+", "-", request.node.name).strip("-")
    server.call(lambda: server.cluster.create_topic(name, partitions=2))
    return name


@contextlib.contextmanager
def other_member(
    server: EmbeddedKafkaServer, topic: str, recorder: OwnedPartitions, **settings: Any
) -> Iterator[Consumer]:
    """Run another member of the group in an event loop of its own, which is not blocked."""
    with start_blocking_portal() as portal:
        consumer = portal.call(
            lambda: Consumer(server.bootstrap_servers, topics=[topic], group_id=topic, listener=recorder, **settings)
        )
        with portal.wrap_async_context_manager(consumer):
            reading = portal.start_task_soon(consumer.poll, 10_000, 3600.0)
            yield consumer
            reading.cancel()


def heartbeat_threads() -> int:
    return sum(thread.name == "kafka-heartbeats" for thread in threading.enumerate())


async def until_it_joins(recorder: OwnedPartitions, *owned: int) -> None:
    await until(lambda: recorder.owned == set(owned), f"the member never owned {owned}")


@each_protocol
async def test_a_member_keeps_its_session_while_its_loop_is_blocked(
    server: EmbeddedKafkaServer, topic: str, protocol: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    recorder = OwnedPartitions()
    settings = {"group_id": topic, "listener": recorder, "heartbeat_thread": "always", **protocol}
    async with (
        Producer(server.bootstrap_servers) as producer,
        Consumer(server.bootstrap_servers, topics=[topic], **settings) as consumer,
    ):
        await until_it_joins(recorder, 0, 1)
        identity = consumer.group_metadata()
        time.sleep(BLOCK)
        await producer.send(topic, b"after the block")
        (record,) = await consumer.poll(timeout=30.0)
        await consumer.commit()
        assert consumer.group_metadata() == identity
        assert record.value == b"after the block"
        group = consumer.metrics().group
        assert group is not None
        assert group.member is not None
        assert group.member.thread_heartbeats >= 3
        assert consumer.metrics().client.loop_blocks >= 1
        assert consumer.metrics().client.loop_blocked_time > BLOCK - 2.5
    assert not recorder.lost
    assert "the heartbeat thread kept the session" in caplog.text
    await until(lambda: heartbeat_threads() == 0)


async def test_a_share_consumer_keeps_its_session_and_its_records(server: EmbeddedKafkaServer, topic: str) -> None:
    settings: dict[str, Any] = {"group_id": topic, "heartbeat_thread": "always", "acknowledgement_mode": "explicit"}
    async with (
        Producer(server.bootstrap_servers) as producer,
        ShareConsumer(server.bootstrap_servers, topics=[topic], **settings) as consumer,
    ):
        await until(lambda: consumer.metrics().partitions_assigned == 2)
        assert not await consumer.poll(timeout=1.0)  # the group begins at the end of the partitions
        await producer.send(topic, b"work")
        (record,) = await consumer.poll(timeout=30.0)
        epoch = consumer.metrics().member_epoch
        time.sleep(BLOCK)
        consumer.accept(record)
        await consumer.commit()
        await until(lambda: consumer.metrics().heartbeats.last_success_ago is not None)
        metrics = consumer.metrics()
        assert (metrics.accepted, metrics.sessions_lost, metrics.member_epoch) == (1, 0, epoch)
        assert metrics.thread_heartbeats >= 3
        assert metrics.heartbeats.failures == 0


@each_protocol
async def test_the_first_block_of_more_than_a_second_starts_the_thread(
    server: EmbeddedKafkaServer, topic: str, protocol: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    recorder = OwnedPartitions()
    settings = {"group_id": topic, "listener": recorder, **protocol}
    async with Consumer(server.bootstrap_servers, topics=[topic], **settings) as consumer:
        await until_it_joins(recorder, 0, 1)
        if "was blocked" not in caplog.text:  # a busy machine may block the loop as well
            assert heartbeat_threads() == 0
        time.sleep(2.5)  # shorter than the session
        await until(lambda: heartbeat_threads() == 1)
        identity = consumer.group_metadata()
        time.sleep(BLOCK)
        await asyncio.sleep(1.0)  # the heartbeat after the block
        assert consumer.group_metadata() == identity
    assert not recorder.lost
    await until(lambda: heartbeat_threads() == 0)


async def test_without_the_thread_the_session_ends_in_the_block(server: EmbeddedKafkaServer, topic: str) -> None:
    recorder = OwnedPartitions()
    settings = {"group_id": topic, "listener": recorder, "heartbeat_thread": "never", **CLASSIC}
    async with Consumer(server.bootstrap_servers, topics=[topic], **settings):
        await until_it_joins(recorder, 0, 1)
        time.sleep(BLOCK)
        await until(lambda: bool(recorder.lost))
        assert heartbeat_threads() == 0


@each_protocol
async def test_a_stuck_program_loses_its_partitions_after_max_poll_interval(
    server: EmbeddedKafkaServer, topic: str, protocol: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    recorder, successor = OwnedPartitions(), OwnedPartitions()
    settings = {"group_id": topic, "listener": recorder, "heartbeat_thread": "always", **protocol}
    limit = {"max_poll_interval": 2.0, "rebalance_timeout": 60.0}
    async with Consumer(server.bootstrap_servers, topics=[topic], **settings, **limit):
        await until_it_joins(recorder, 0, 1)
        with other_member(server, topic, successor, **protocol):
            deadline = time.monotonic() + 30.0
            while successor.owned != {0, 1}:  # blocks this loop: nothing here awaits
                assert time.monotonic() < deadline, successor.owned
                time.sleep(0.1)
    assert "the heartbeat thread stops" in caplog.text


@each_way
async def test_a_rebalance_that_begins_during_the_block_takes_place_after_it(
    server: EmbeddedKafkaServer, topic: str, protocol: dict[str, Any]
) -> None:
    blocked, other = OwnedPartitions(), OwnedPartitions()
    settings = {"group_id": topic, "listener": blocked, "heartbeat_thread": "always", **protocol}
    async with Consumer(server.bootstrap_servers, topics=[topic], **settings) as consumer:
        await until_it_joins(blocked, 0, 1)
        reading = asyncio.create_task(consumer.poll(10_000, timeout=3600.0))
        await asyncio.sleep(0)
        with other_member(server, topic, other, **protocol):
            time.sleep(BLOCK)
            assert not other.owned  # the blocked member has released nothing
            await until(lambda: len(blocked.owned) == 1 and blocked.owned | other.owned == {0, 1})
            assert not blocked.owned & other.owned
        reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await reading
    assert not blocked.lost


@each_way
async def test_an_assignment_that_the_thread_gets_is_not_lost(
    server: EmbeddedKafkaServer, topic: str, protocol: dict[str, Any]
) -> None:
    blocked, other = OwnedPartitions(), OwnedPartitions()
    settings = {"group_id": topic, "listener": blocked, "heartbeat_thread": "always", **protocol}
    async with Consumer(server.bootstrap_servers, topics=[topic], **settings) as consumer:
        reading = asyncio.create_task(consumer.poll(10_000, timeout=3600.0))
        with other_member(server, topic, other, **protocol):
            await until(lambda: len(blocked.owned) == len(other.owned) == 1)
            await asyncio.sleep(1.5)  # the members have acknowledged their partitions
        # The other member has left. Nothing has run in this loop since then.
        time.sleep(BLOCK)
        await until_it_joins(blocked, 0, 1)
        reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await reading
    assert not blocked.lost


async def test_a_handler_of_a_consumer_group_may_block_the_loop(server: EmbeddedKafkaServer, topic: str) -> None:
    sessions: list[int] = []
    done = asyncio.Event()

    class Blocking(ConsumerGroupHandler):
        async def setup(self, session: ConsumerGroupSession) -> None:
            sessions.append(session.generation_id)

        async def consume_claim(self, session: ConsumerGroupSession, claim: Claim) -> None:
            async for record in claim:
                time.sleep(BLOCK)
                session.mark(record)
                done.set()

    async with (
        Producer(server.bootstrap_servers) as producer,
        ConsumerGroup(server.bootstrap_servers, group_id=topic, heartbeat_thread="always", **CLASSIC) as group,
    ):
        task = asyncio.create_task(group.consume([topic], Blocking()))
        await producer.send(topic, b"slow")
        await done.wait()
        await asyncio.sleep(1.0)
        await group.close()
        await task
    assert len(sessions) == 1


@pytest.mark.parametrize("has_gil", [True, False])
async def test_the_log_has_the_place_at_which_the_loop_is_blocked(
    server: EmbeddedKafkaServer,
    topic: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    has_gil: bool,
) -> None:
    """Without a GIL, a look at the place would wait for the end of C code."""
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: has_gil, raising=False)
    monkeypatch.setattr("aiokafka_lite.group.thread_worker._stack_logged_at", {})
    recorder = OwnedPartitions()

    def an_endless_computation() -> None:
        time.sleep(BLOCK)

    settings = {"group_id": topic, "listener": recorder, "heartbeat_thread": "always", **CLASSIC}
    async with Consumer(server.bootstrap_servers, topics=[topic], **settings):
        await until_it_joins(recorder, 0, 1)
        an_endless_computation()
    (stack,) = [record.getMessage() for record in caplog.records if "has been blocked for" in record.getMessage()]
    assert ("in an_endless_computation" in stack) == has_gil
    assert "run_until_complete" not in stack  # only the program's own calls


async def test_a_connector_of_the_users_is_used_in_the_thread_only_on_request(
    server: EmbeddedKafkaServer, topic: str
) -> None:
    recorder = OwnedPartitions()
    settings = {"group_id": topic, "listener": recorder, "connector": TcpConnector(), **CLASSIC}
    async with Consumer(server.bootstrap_servers, topics=[topic], **settings):
        await until_it_joins(recorder, 0, 1)
        time.sleep(2.5)
        await asyncio.sleep(1.5)
        assert heartbeat_threads() == 0
    async with Consumer(server.bootstrap_servers, topics=[topic], heartbeat_thread="always", **settings) as consumer:
        await until_it_joins(recorder, 0, 1)
        identity = consumer.group_metadata()
        time.sleep(BLOCK)
        await asyncio.sleep(1.0)
        assert consumer.group_metadata() == identity


async def test_an_async_function_for_passwords_runs_in_the_loop_of_the_program() -> None:
    loops: list[asyncio.AbstractEventLoop] = []

    async def read_password() -> str:
        loops.append(asyncio.get_running_loop())
        return "secret"

    recorder = OwnedPartitions()
    security = Security("SASL_PLAINTEXT", users={"alice": "secret"}, mechanisms=["PLAIN"])
    login = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "sasl_username": "alice"}
    settings = {"group_id": "g", "listener": recorder, "heartbeat_thread": "always", **login, **CLASSIC}
    with EmbeddedKafkaServer(configs=CONFIGS, security=security) as server:
        await asyncio.to_thread(server.call, lambda: server.cluster.create_topic("orders", partitions=2))
        async with Consumer(
            server.bootstrap_servers, topics=["orders"], sasl_password=read_password, **settings
        ) as consumer:
            await until_it_joins(recorder, 0, 1)
            await asyncio.sleep(2.5)  # the logins of the thread
            identity = consumer.group_metadata()
            time.sleep(BLOCK)
            await asyncio.sleep(1.0)
            assert consumer.group_metadata() == identity
    assert set(loops) == {asyncio.get_running_loop()}
    assert not recorder.lost


async def test_a_thread_that_cannot_start_is_a_warning(
    server: EmbeddedKafkaServer, topic: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    recorder = OwnedPartitions()
    settings = {"group_id": topic, "listener": recorder, "heartbeat_thread": "always", **CLASSIC}
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        async with Consumer(server.bootstrap_servers, topics=[topic], **settings):
            await until_it_joins(recorder, 0, 1)
    assert "the heartbeat thread could not start: can't start new thread" in caplog.text


@pytest.mark.parametrize("mode", ["sometimes", True, None, 1])
def test_a_wrong_mode_is_refused(mode: Any) -> None:
    for client in (Consumer, ShareConsumer):
        with pytest.raises(ConfigurationError, match="heartbeat_thread must be one of 'auto', 'always', 'never', got"):
            client("localhost:9092", topics=["t"], group_id="g", heartbeat_thread=mode)
