"""Members whose event loop is blocked, on Apache Kafka: a thread keeps their sessions, with TLS and with logins.

Each member has an event loop and a thread of its own, so that several blocks pass at the same time. Sessions take 6
seconds, and blocks 9: ``time.sleep``, because the block is what is tested.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any

import pytest

from aiokafka_lite import Consumer, Producer
from aiokafka_lite.admin import Admin, NewTopic
from aiokafka_lite.share import ShareConsumer
from tests.end_to_end.conftest import missing
from tests.owned_partitions import OwnedPartitions
from tests.real.jvm import java_problem
from tests.real.releases import NEWEST
from tests.real.secured_broker import PLAIN_PASSWORD, PLAIN_USER, USERS, SecuredKafka, token
from tests.waiting import DEADLINE, until

pytestmark = pytest.mark.real

SESSION = 6.0
BLOCK = 9.0

SHORT_SESSIONS = {
    f"group_{kind}_{setting}_ms": value
    for kind in ("consumer", "share")
    for setting, value in {
        "min_session_timeout": "1000",
        "session_timeout": "6000",
        "min_heartbeat_interval": "1000",
        "heartbeat_interval": "1000",
    }.items()
}

CLASSIC: dict[str, Any] = {"session_timeout": SESSION, "heartbeat_interval": 1.0}
CONSUMER: dict[str, Any] = {"group_protocol": "consumer"}

_numbers = count(1)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    if (problem := java_problem()) is not None:
        missing(f"a Kafka with short sessions is run as a plain Java process: {problem}")
    directory = tmp_path_factory.mktemp("certificates")
    settings = {**SHORT_SESSIONS, "group_initial_rebalance_delay_ms": "0"}
    broker = SecuredKafka(NEWEST, directory, **settings)
    broker.start()
    yield broker
    broker.stop()
    shutil.rmtree(directory)


@pytest.fixture
async def topic(broker: SecuredKafka) -> str:
    """A topic of two partitions. Its name is the name of the group too."""
    name = f"blocked-{next(_numbers)}"
    async with Admin(broker.bootstrap_servers) as admin:
        (await admin.topics.create(NewTopic(name, partitions=2, replication_factor=1))).raise_for_errors()
    return name


async def fetch_token() -> str:
    """Return a token, as a function that uses the program's event loop does."""
    await asyncio.sleep(0.01)
    return token(3600.0)


def settings_of(broker: SecuredKafka, way: str) -> dict[str, Any]:
    tls = {"security_protocol": "SSL", "ssl_cafile": broker.certificates.ca}
    sasl = {"bootstrap_servers": broker.servers("SASL"), "security_protocol": "SASL_PLAINTEXT"}
    match way:
        case "TLS":
            return {"bootstrap_servers": broker.servers("TLS"), **tls}
        case "SCRAM over TLS, with a login every 4 s":
            (user, password), *_ = USERS.items()
            login = {"sasl_mechanism": "SCRAM-SHA-256", "sasl_username": user, "sasl_password": password}
            return {"bootstrap_servers": broker.servers("SHORT"), **tls, "security_protocol": "SASL_SSL", **login}
        case "PLAIN":
            return {**sasl, "sasl_mechanism": "PLAIN", "sasl_username": PLAIN_USER, "sasl_password": PLAIN_PASSWORD}
        case "OAUTHBEARER with an async function":
            return {**sasl, "sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": fetch_token}
    return {"bootstrap_servers": broker.bootstrap_servers}


async def member_that_blocks(connection: dict[str, Any], topic: str, group: str, protocol: dict[str, Any]) -> None:
    recorder = OwnedPartitions()
    settings = {"group_id": group, "listener": recorder, "heartbeat_thread": "always", **connection, **protocol}
    async with Producer(**connection) as producer, Consumer(topics=[topic], **settings) as consumer:
        await until(lambda: recorder.owned == {0, 1})
        await asyncio.sleep(2.5)  # the first heartbeats; with an async function, the login of the thread
        identity = consumer.group_metadata()
        time.sleep(BLOCK)
        await producer.send(topic, b"after the block")
        assert await consumer.poll(timeout=30.0)
        await asyncio.sleep(2.0)  # two more heartbeats
        await consumer.commit()
        assert consumer.group_metadata() == identity
        group_metrics = consumer.metrics().group
        assert group_metrics is not None
        assert group_metrics.member is not None
        assert group_metrics.member.thread_heartbeats >= 3
    assert not recorder.lost


async def share_consumer_that_blocks(connection: dict[str, Any], topic: str, group: str) -> None:
    settings = {"group_id": group, "heartbeat_thread": "always", **connection}
    async with ShareConsumer(topics=[topic], **settings) as consumer:
        await until(lambda: consumer.metrics().partitions_assigned == 2)
        await asyncio.sleep(2.5)
        epoch = consumer.metrics().member_epoch
        time.sleep(BLOCK)
        await asyncio.sleep(2.0)
        metrics = consumer.metrics()
        assert metrics.member_epoch == epoch
        assert metrics.thread_heartbeats >= 3


@pytest.mark.parametrize(
    "way",
    [
        "PLAINTEXT",
        pytest.param("TLS", marks=pytest.mark.long),
        "SCRAM over TLS, with a login every 4 s",
        pytest.param("PLAIN", marks=pytest.mark.long),
        "OAUTHBEARER with an async function",
    ],
)
async def test_members_of_each_protocol_keep_their_sessions(broker: SecuredKafka, topic: str, way: str) -> None:
    connection = settings_of(broker, way)
    members = {
        "classic": lambda: member_that_blocks(connection, topic, f"{topic}-classic", CLASSIC),
        "consumer": lambda: member_that_blocks(connection, topic, f"{topic}-consumer", CONSUMER),
        "share": lambda: share_consumer_that_blocks(connection, topic, f"{topic}-share"),
    }
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(len(members)) as threads:
        await asyncio.gather(*(loop.run_in_executor(threads, asyncio.run, run()) for run in members.values()))


@pytest.mark.parametrize("protocol", [CLASSIC, CONSUMER], ids=["classic", "consumer"])
async def test_a_rebalance_in_the_middle_of_a_block(broker: SecuredKafka, topic: str, protocol: dict[str, Any]) -> None:
    blocked, other = OwnedPartitions(), OwnedPartitions()
    is_blocked = asyncio.Event()
    block_ends = 0.0  # not before
    loop = asyncio.get_running_loop()
    settings = {"topics": [topic], "group_id": topic, **protocol}
    records = 20

    async def block() -> list[bytes | None]:
        """Read and block; return the values that this member has read."""
        nonlocal block_ends
        values = []
        async with Consumer(
            broker.bootstrap_servers, listener=blocked, heartbeat_thread="always", **settings
        ) as consumer:
            await until(lambda: blocked.owned == {0, 1})
            await asyncio.sleep(1.5)
            block_ends = time.monotonic() + BLOCK
            loop.call_soon_threadsafe(is_blocked.set)
            time.sleep(BLOCK)
            async with asyncio.timeout(DEADLINE):
                while len(read) < records:
                    for record in await consumer.poll(timeout=0.2):
                        values.append(record.value)
                        read.append(record.value)
            await consumer.commit()
        return values

    read: list[bytes | None] = []
    with ThreadPoolExecutor(1) as threads:
        task = loop.run_in_executor(threads, asyncio.run, block())
        async with asyncio.timeout(DEADLINE):
            await is_blocked.wait()
        async with (
            Producer(broker.bootstrap_servers) as producer,
            Consumer(broker.bootstrap_servers, listener=other, **settings) as consumer,
            asyncio.timeout(DEADLINE),
        ):
            while time.monotonic() < block_ends:
                assert not await consumer.poll(timeout=0.2)
                owned = set(other.owned)  # a busy machine may look at the clock later
                assert not owned or time.monotonic() >= block_ends, "the blocked member has released nothing"
            while not other.owned:
                await consumer.poll(timeout=0.2)
            await until(lambda: len(blocked.owned) == 1)
            assert not blocked.owned & other.owned
            for number in range(records):
                await producer.send(topic, str(number).encode(), partition=number % 2)
            while len(read) < records:
                read += [record.value for record in await consumer.poll(timeout=0.2)]
            await consumer.commit()
            await task
    assert sorted(read, key=lambda value: int(value or b"")) == [str(number).encode() for number in range(records)]
    assert not blocked.lost
    assert not other.lost


PROGRAM = """
import asyncio, sys
from aiokafka_lite import Consumer

async def main(servers, topic, protocol):
    settings = {"group_protocol": protocol}
    if protocol == "classic":
        settings |= {"session_timeout": 6.0, "heartbeat_interval": 1.0}
    async with Consumer(servers, topics=[topic], group_id=topic, heartbeat_thread="always", **settings) as consumer:
        while len(consumer.assignment) < 2:
            await consumer.poll(timeout=0.1)
        print("owns", flush=True)
        while True:
            await consumer.poll(timeout=1.0)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGSTOP")
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_process_that_is_stopped_loses_its_session(broker: SecuredKafka, topic: str, protocol: str) -> None:
    arguments = [sys.executable, "-c", PROGRAM, broker.bootstrap_servers, topic, protocol]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, env=os.environ.copy(), text=True)
    try:
        assert process.stdout is not None
        assert await asyncio.to_thread(process.stdout.readline) == "owns\n"
        process.send_signal(signal.SIGSTOP)
        recorder = OwnedPartitions()
        settings = CLASSIC if protocol == "classic" else CONSUMER
        async with Consumer(
            broker.bootstrap_servers, topics=[topic], group_id=topic, listener=recorder, **settings
        ) as successor:
            reading = asyncio.create_task(successor.poll(10_000, timeout=3600.0))
            await until(lambda: recorder.owned == {0, 1}, within=60.0)
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reading
    finally:
        process.kill()
        process.communicate()
