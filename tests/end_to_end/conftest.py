"""One suite, many brokers: ``kafka`` is the embedded cluster in one run of a test, and an Apache Kafka in the
others."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from aiokafka_lite import EmbeddedCluster
from aiokafka_lite.admin import create_topic, delete_topics
from aiokafka_lite.cluster.client import Client
from aiokafka_lite.embedded import ClusterConfig
from aiokafka_lite.errors import UnknownTopic
from aiokafka_lite.settings.client import ClientConfig
from aiokafka_lite.testing.ports import free_port
from tests.end_to_end.failing_clusters import BreakableCluster, BreakableEmbedded, BreakableKafka
from tests.end_to_end.secured_kafka import parametrize_secured, secured
from tests.real.jvm import java_problem, run_tool
from tests.real.jvm_cluster import JvmCluster
from tests.real.kafka_servers import IN_CI, Server, Servers, Unavailable
from tests.real.postgres import Postgres, PostgresMissing
from tests.real.releases import NEWEST, brokers, release, wanted
from tests.real.run_report import BROKERS, DATABASES
from tests.waiting import DEADLINE

__all__ = ["secured"]

_topic_numbers = itertools.count(1)


@dataclass
class Kafka:
    """The broker under test."""

    kind: str
    """``embedded``, ``container``, ``jvm`` or ``given``."""
    version: str
    """The release of Apache Kafka. For the embedded cluster: the release whose API versions it supports."""
    bootstrap_servers: str
    server: Server | None = None
    _created: list[str] = field(default_factory=list)

    async def create_topic(self, name: str | None = None, *, partitions: int = 3, **configs: Any) -> str:
        """Create a topic and return its name. Without ``name``, the name is a new one."""
        if name is None:
            name = f"topic-{next(_topic_numbers)}"
        settings = {setting.replace("_", "."): str(value) for setting, value in configs.items()}
        # Tests write records with timestamps of years ago, and a broker deletes expired records every few minutes.
        settings.setdefault("retention.ms", "-1")
        async with Client(ClientConfig(bootstrap_servers=self.bootstrap_servers)) as client:
            await create_topic(client, name, partitions=partitions, configs=settings)
            await until_every_partition_has_a_leader(client, name, partitions)
        self._created.append(name)
        return name

    def tool(self, name: str, *arguments: str, stdin: str = "") -> str:
        """Run one of Kafka's own command-line tools against this broker. Skips the test where no tool can run."""
        if self.server is not None:
            return self.server.tool(name, *arguments, stdin=stdin)
        if (problem := java_problem()) is not None:
            missing(f"Kafka's own tools cannot run here: {problem}")
        return run_tool(NEWEST, name, self.bootstrap_servers, *arguments, stdin=stdin)

    def speaks(self, version: str) -> bool:
        """Return whether this is the given release of Kafka or a newer one."""
        return self.kind == "given" or release(self.version) >= release(version)


def missing(reason: str) -> None:
    """Skip a test that needs something which this machine lacks. In CI, which has to have everything, fail."""
    if IN_CI:
        pytest.fail(reason)
    pytest.skip(reason)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "kafka" in metafunc.fixturenames:
        metafunc.parametrize("kafka", brokers(metafunc), indirect=True)
    if "secured" in metafunc.fixturenames:
        parametrize_secured(metafunc)
    if "breakable" in metafunc.fixturenames:
        names = [name for name in wanted(metafunc.config.getoption("--kafka")) if name in ("embedded", NEWEST)]
        marks = {"embedded": (), NEWEST: (pytest.mark.real, pytest.mark.long)}
        metafunc.parametrize("breakable", [pytest.param(name, marks=marks[name]) for name in names], indirect=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort by broker: one real broker runs at a time in a process, and starts once."""

    def broker(item: pytest.Item) -> str:
        parameters = getattr(item, "callspec", None)
        arguments = parameters.params if parameters is not None else {}
        return str(arguments.get("kafka") or arguments.get("secured", ""))

    order = {"": 0, "embedded": 1}
    for item in items:
        order.setdefault(broker(item), len(order))
    items.sort(key=lambda item: order[broker(item)])


@pytest.fixture(scope="session")
def servers(request: pytest.FixtureRequest) -> Iterator[Servers]:
    servers = Servers()
    request.config.stash.setdefault(BROKERS, []).append(servers)
    yield servers
    servers.stop()


@pytest.fixture
async def kafka(request: pytest.FixtureRequest) -> AsyncIterator[Kafka]:
    """The broker under test: an embedded cluster of the test's own, or an Apache Kafka that all tests share."""
    if request.param == "embedded":
        async with EmbeddedCluster(brokers=3) as cluster:
            yield Kafka("embedded", NEWEST, cluster.bootstrap_servers)
        return
    servers: Servers = request.getfixturevalue("servers")
    try:
        server, kind = servers.get(request.param)
    except Unavailable as problem:
        missing(f"Kafka {request.param}: {problem}")
    kafka = Kafka(kind, request.param, server.bootstrap_servers, server)
    yield kafka
    if kind == "given":
        async with Client(ClientConfig(bootstrap_servers=kafka.bootstrap_servers)) as client:
            await delete_topics(client, kafka._created)


@pytest.fixture(scope="module")
def three_processes(servers: Servers) -> Iterator[JvmCluster]:
    """Three brokers that all tests of the module share."""
    if (problem := java_problem()) is not None:
        missing(f"no cluster of Kafka {NEWEST}: {problem}")
    servers.stop()  # only one cluster at a time, to save memory
    cluster = JvmCluster(NEWEST).start()
    yield cluster
    cluster.close()


@pytest.fixture
async def breakable(request: pytest.FixtureRequest) -> AsyncIterator[BreakableCluster]:
    """Three brokers that a test may break: an embedded cluster, and processes of Apache Kafka in the long tests."""
    if request.param == "embedded":
        async with EmbeddedCluster(
            brokers=3,
            ports=[free_port() for _ in range(3)],  # no other process gets one while its broker is down
            auto_create_topics=False,
            config=ClusterConfig(broker_session_timeout=BreakableEmbedded.session_timeout, replication_delay=0.005),
        ) as embedded:
            yield BreakableEmbedded(embedded)
        return
    cluster = BreakableKafka(request.getfixturevalue("three_processes"))
    yield cluster
    await cluster.mend()


@pytest.fixture(scope="session")
def postgres(request: pytest.FixtureRequest) -> Iterator[Postgres]:
    """A PostgreSQL that all tests of this process share. Each test creates a database of its own."""
    try:
        server = Postgres()
    except PostgresMissing as reason:
        missing(str(reason))
    with server:
        request.config.stash.setdefault(DATABASES, []).append(server.version())
        yield server


async def until_every_partition_has_a_leader(client: Client, topic: str, partitions: int) -> None:
    """Wait until each broker knows a created topic. The controller knows it first."""
    async with asyncio.timeout(DEADLINE):
        while True:
            with contextlib.suppress(UnknownTopic):
                view = await client.topic(topic)
                if sum(partition.leader is not None for partition in view.partitions) == partitions:
                    return
            await client.refresh([topic])
