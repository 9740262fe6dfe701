"""The pytest fixtures for users, in a pytest run of its own that uses nothing else of this repository."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from aiokafka_lite.testing import plugin
from aiokafka_lite.testing.containers import engine_problem, without_reaper
from tests.real.kafka_servers import IN_CI, image
from tests.real.releases import NEWEST

SETTINGS = "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\nfilterwarnings = error\n"
NO_ENGINE = {"DOCKER_HOST": "unix:///nowhere/docker.sock"}
A_LAPTOP = {"CI": ""}  # where CI is set, a test without an engine fails

USES_CONTAINER = """
from aiokafka_lite import Consumer, Producer

async def test_a_record_comes_back(kafka_bootstrap_servers: str) -> None:
    async with Producer(kafka_bootstrap_servers) as producer:
        await producer.send("orders", b"two coffees")
    async with Consumer(kafka_bootstrap_servers, topics=["orders"]) as consumer:
        assert (await anext(consumer)).value == b"two coffees"
"""

USES_ADDRESS = """
import asyncio

async def test_something_listens(embedded_bootstrap_servers: str) -> None:
    host, port = embedded_bootstrap_servers.split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    writer.close()
    await writer.wait_closed()
"""


USES_THREAD = """
from aiokafka_lite import Producer
from aiokafka_lite.testing.server import EmbeddedKafkaServer

def test_a_synchronous_test(embedded_kafka_server: EmbeddedKafkaServer, kafka_topic: str) -> None:
    embedded_kafka_server.produce(kafka_topic, "two coffees")
    assert embedded_kafka_server.records(kafka_topic)[0].value == b"two coffees"

async def test_a_client_in_another_loop(embedded_kafka_server: EmbeddedKafkaServer, kafka_topic: str) -> None:
    async with Producer(embedded_kafka_server.bootstrap_servers) as producer:
        assert (await producer.send(kafka_topic, b"a cake")).offset == 0
"""

USES_NEW_THREAD = """
import asyncio
import pytest
from aiokafka_lite import Producer
from aiokafka_lite.testing.server import EmbeddedKafkaServer

async def place_order(servers: str) -> None:
    async with Producer(servers) as producer:
        await producer.send("orders", b"two coffees")

@pytest.mark.parametrize("number", [1, 2])
def test_each_test_has_its_own_records(new_embedded_kafka_server: EmbeddedKafkaServer, number: int) -> None:
    asyncio.run(place_order(new_embedded_kafka_server.bootstrap_servers))
    assert len(new_embedded_kafka_server.wait_for_records("orders")) == 1
"""

IN_ANOTHER_LOOP = """
import asyncio
import pytest
from aiokafka_lite import Producer

async def test_with_the_cluster(embedded_kafka) -> None: ...

async def test_with_its_address(embedded_bootstrap_servers: str) -> None: ...

async def test_with_the_registry(embedded_schema_registry) -> None: ...

@pytest.mark.asyncio(loop_scope="session")
async def test_in_the_same_loop(embedded_kafka) -> None:
    await embedded_kafka.create_topic("orders")

def test_that_is_synchronous(embedded_kafka) -> None:
    asyncio.run(Producer(embedded_kafka.bootstrap_servers).start())
"""

WITH_ANYIO = """
import pytest
from aiokafka_lite import Producer

pytestmark = pytest.mark.anyio

@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"

async def test_an_order_is_written(embedded_kafka) -> None:
    async with Producer(embedded_kafka.bootstrap_servers) as producer:
        await producer.send("orders", b"two coffees")
    assert len(await embedded_kafka.wait_for_records("orders")) == 1
"""

IN_ONE_LOOP = """
import pytest
from aiokafka_lite import EmbeddedCluster, Producer

@pytest.fixture(scope="session")
async def cluster():
    async with EmbeddedCluster(brokers=1) as cluster:
        yield cluster

@pytest.mark.parametrize("number", [1, 2])
async def test_with_a_cluster_for_the_session(cluster, kafka_topic: str, number: int) -> None:
    async with Producer(cluster.bootstrap_servers) as producer:
        await producer.send(kafka_topic, b"x")
    assert len(await cluster.wait_for_records(kafka_topic)) == 1

async def test_with_a_cluster_of_its_own(embedded_kafka) -> None:
    await embedded_kafka.produce("orders", b"x")
"""

USES_PROCESS = """
from aiokafka_lite import Producer

async def test_a_client_of_another_process(embedded_kafka_process: str, kafka_topic: str) -> None:
    async with Producer(embedded_kafka_process) as producer:
        assert (await producer.send(kafka_topic, b"a cake")).offset == 0
"""

WAITS = """
import asyncio
import pytest

@pytest.fixture
def cluster(embedded_kafka):
    return embedded_kafka

@pytest.fixture
def kafka_container() -> str:
    return "a container of the user"

async def test_a_record_that_never_comes(cluster) -> None:
    await asyncio.Event().wait()

async def test_with_a_kafka_of_the_user(kafka_container: str) -> None:
    await asyncio.sleep(0.3)

async def test_without_kafka() -> None:
    await asyncio.sleep(0.3)
"""

USES_BOOTSTRAP = """
def test_the_address(kafka_bootstrap_servers: str) -> None:
    assert kafka_bootstrap_servers == "127.0.0.1:19099"
"""


def outcome(directory: Path, test: str, *options: str, settings: str = SETTINGS, **environment: str) -> str:
    (directory / "test_users.py").write_text(test)
    (directory / "pytest.ini").write_text(settings)
    command = [sys.executable, "-m", "pytest", "-rs", "-c", str(directory / "pytest.ini"), *options, str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | environment)
    return done.stdout + done.stderr


def test_embedded_cluster_by_its_address(tmp_path: Path) -> None:
    printed = outcome(tmp_path, USES_ADDRESS)
    assert "1 passed" in printed, printed


def test_embedded_cluster_in_a_thread(tmp_path: Path) -> None:
    printed = outcome(tmp_path, USES_THREAD)
    assert "2 passed" in printed, printed


def test_embedded_cluster_in_a_thread_for_each_test(tmp_path: Path) -> None:
    printed = outcome(tmp_path, USES_NEW_THREAD)
    assert "2 passed" in printed, printed


def test_a_test_in_another_loop_than_its_fixture_fails_at_once(tmp_path: Path) -> None:
    printed = outcome(tmp_path, IN_ANOTHER_LOOP, "--override-ini=asyncio_default_fixture_loop_scope=session")
    assert "4 failed, 1 passed" in printed, printed
    assert "IllegalStateError: the fixture embedded_kafka belongs to another event loop than this test" in printed
    assert "the fixture embedded_schema_registry belongs to another event loop" in printed
    assert "belongs to another event loop, which cannot run in this thread now" in printed


def test_fixtures_with_the_plugin_of_anyio_alone(tmp_path: Path) -> None:
    printed = outcome(tmp_path, WITH_ANYIO, "-p", "no:asyncio", settings="[pytest]\nfilterwarnings = error\n")
    assert "1 passed" in printed, printed


def test_fixtures_with_the_plugin_of_anyio_beside_another(tmp_path: Path) -> None:
    printed = outcome(tmp_path, WITH_ANYIO, "--override-ini=asyncio_mode=strict")
    assert "1 passed" in printed, printed


def test_fixtures_with_one_loop_for_the_session(tmp_path: Path) -> None:
    scopes = ("asyncio_default_fixture_loop_scope", "asyncio_default_test_loop_scope")
    printed = outcome(tmp_path, IN_ONE_LOOP, *(f"--override-ini={scope}=session" for scope in scopes))
    assert "3 passed" in printed, printed


def test_embedded_cluster_in_a_process(tmp_path: Path) -> None:
    printed = outcome(tmp_path, USES_PROCESS)
    assert "1 passed" in printed, printed


def test_an_async_test_that_uses_kafka_has_a_deadline(tmp_path: Path) -> None:
    printed = outcome(tmp_path, WAITS, "--override-ini=kafka_deadline=0.2")
    assert "1 failed, 2 passed" in printed, printed
    assert "TimeoutError: the test was not done after 0.2 s; kafka_deadline in the ini file" in printed
    assert "await asyncio.Event().wait()" in printed


@pytest.mark.parametrize("deadline", ["1m", "-5", "nan", "inf"])
def test_a_wrong_deadline_is_an_error_at_the_start(deadline: str) -> None:
    config: Any = SimpleNamespace(getini={"kafka_deadline": deadline}.get)
    with pytest.raises(pytest.UsageError, match=f"kafka_deadline must be .* 0 for no limit, got '{deadline}'"):
        plugin.pytest_configure(config)


def test_a_running_cluster_takes_the_place_of_the_container(tmp_path: Path) -> None:
    assert "1 passed" in outcome(tmp_path, USES_BOOTSTRAP, "--kafka-bootstrap=127.0.0.1:19099")
    assert "1 passed" in outcome(tmp_path, USES_BOOTSTRAP, KAFKA_BOOTSTRAP_SERVERS="127.0.0.1:19099")


@pytest.mark.real
def test_kafka_in_a_container(tmp_path: Path) -> None:
    problem = engine_problem()
    if problem is not None:
        (pytest.fail if IN_CI else pytest.skip)(problem)
    without_reaper()
    name = image(NEWEST)
    assert name is not None
    printed = outcome(tmp_path, USES_CONTAINER, f"--override-ini=kafka_image={name}")
    assert "1 passed" in printed, printed


def test_without_an_engine_the_test_is_skipped_and_says_why(tmp_path: Path) -> None:
    printed = outcome(tmp_path, USES_CONTAINER, **NO_ENGINE, **A_LAPTOP)
    assert "1 skipped" in printed, printed
    assert "no container engine answers" in printed


def test_without_testcontainers_the_test_is_skipped_and_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("import sys\nsys.modules['testcontainers'] = None\n")
    printed = outcome(tmp_path, USES_CONTAINER, **A_LAPTOP)
    assert "1 skipped" in printed, printed
    assert "pip install testcontainers" in printed
