"""A server in an event loop that cannot run now: an error at once, in every kind of client and call."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import pytest

from aiokafka_lite import Admin, Consumer, ConsumerGroup, EmbeddedCluster, Producer, ShareConsumer, Workers
from aiokafka_lite.compat import aiokafka
from aiokafka_lite.embedded import EmbeddedSchemaRegistry
from aiokafka_lite.errors import IllegalStateError, KafkaTimeout
from aiokafka_lite.schemas import SchemaRegistryClient
from tests.waiting import DEADLINE

STOPPED = "belongs to another event loop, which cannot run in this thread now"


async def produce(servers: str) -> None:
    async with Producer(servers) as producer:
        await producer.send("orders", b"x")


async def consume(servers: str) -> None:
    async with Consumer(servers, topics=["orders"], group_id="billing"):
        pass


async def administrate(servers: str) -> None:
    async with Admin(servers) as admin:
        await admin.topics.list()


async def share(servers: str) -> None:
    async with ShareConsumer(servers, topics=["orders"], group_id="queue"):
        pass


async def handle(record: object) -> None: ...


async def work(servers: str) -> None:
    await ConsumerGroup(servers, group_id="billing").consume(["orders"], Workers(handle))


async def drop_in(servers: str) -> None:
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=servers)
    try:
        await producer.start()
    finally:
        await producer.stop()


@contextmanager
def cluster_of_a_stopped_loop() -> Iterator[EmbeddedCluster]:
    """Yield a cluster whose event loop runs at the beginning and at the end, as that of a fixture."""
    cluster = EmbeddedCluster(brokers=1)
    with asyncio.Runner() as fixtures:
        fixtures.run(cluster.start())
        yield cluster
        fixtures.run(cluster.close())


@pytest.mark.parametrize("call", [produce, consume, administrate, share, work, drop_in])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_client_fails_at_once(call: Callable[[str], Awaitable[None]], host: str) -> None:
    with cluster_of_a_stopped_loop() as cluster, asyncio.Runner() as tests:
        servers = cluster.bootstrap_servers.replace("127.0.0.1", host)
        with pytest.raises((IllegalStateError, aiokafka.errors.KafkaError), match=STOPPED):
            tests.run(asyncio.wait_for(call(servers), 5.0))


def test_a_client_with_the_connector_of_the_cluster_fails_at_once() -> None:
    cluster = EmbeddedCluster(brokers=1, tcp=False)

    async def start() -> None:
        async with Producer(cluster.bootstrap_servers, connector=cluster.connector):
            pass

    with asyncio.Runner() as fixtures, asyncio.Runner() as tests:
        fixtures.run(cluster.start())
        with pytest.raises(IllegalStateError, match="belongs to another event loop; create a cluster for each loop"):
            tests.run(asyncio.wait_for(start(), 5.0))
        fixtures.run(cluster.close())


def test_a_client_of_a_schema_registry_fails_at_once() -> None:
    registry = EmbeddedSchemaRegistry()

    async def subjects() -> None:
        async with SchemaRegistryClient(registry.url) as client:
            await client.subjects()

    with asyncio.Runner() as fixtures, asyncio.Runner() as tests:
        fixtures.run(registry.start())
        with pytest.raises(IllegalStateError, match=STOPPED):
            tests.run(asyncio.wait_for(subjects(), 5.0))
        fixtures.run(registry.close())
        fixtures.run(registry.start())
        fixtures.run(subjects())
        fixtures.run(registry.close())


CALLS: dict[str, Callable[[EmbeddedCluster], Awaitable[object]]] = {
    "create_topic": lambda cluster: cluster.create_topic("t"),
    "delete_topic": lambda cluster: cluster.delete_topic("t"),
    "produce": lambda cluster: cluster.produce("t", b"x"),
    "wait_for_records": lambda cluster: cluster.wait_for_records("t"),
    "stop": lambda cluster: cluster.stop(1),
    "kill": lambda cluster: cluster.kill(1),
    "start_node": lambda cluster: cluster.start_node(1),
    "restart": lambda cluster: cluster.restart(1),
    "freeze": lambda cluster: cluster.freeze(1),
    "thaw": lambda cluster: cluster.thaw(1),
    "partition_network": lambda cluster: cluster.partition_network([1]),
    "heal_network": lambda cluster: cluster.heal_network(),
    "move_leader": lambda cluster: cluster.move_leader("t", 0),
    "set_isr": lambda cluster: cluster.set_isr("t", 0, [1]),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_of_the_cluster_in_another_loop_fails_at_once(name: str) -> None:
    other_loop = pytest.raises(IllegalStateError, match="belongs to another event loop")
    with cluster_of_a_stopped_loop() as cluster, asyncio.Runner() as tests, other_loop:
        tests.run(asyncio.wait_for(ended(CALLS[name](cluster)), 5.0))


async def ended(call: Awaitable[object]) -> None:
    await call


def test_a_cluster_in_the_running_loop_of_another_thread_answers() -> None:
    cluster, stopping = EmbeddedCluster(brokers=1), threading.Event()
    started = threading.Event()

    async def serve() -> None:
        async with cluster:
            started.set()
            await asyncio.to_thread(stopping.wait)

    thread = threading.Thread(target=asyncio.run, args=[serve()])
    thread.start()
    assert started.wait(DEADLINE)
    asyncio.run(produce(cluster.bootstrap_servers))
    stopping.set()
    thread.join()


def test_the_address_of_a_closed_cluster_is_a_port_like_any_other() -> None:
    with cluster_of_a_stopped_loop() as cluster:
        servers = cluster.bootstrap_servers

    async def connect() -> None:
        await Admin(servers).start(timeout=0.2)

    with pytest.raises(KafkaTimeout, match="nothing listens there"):
        asyncio.run(connect())
