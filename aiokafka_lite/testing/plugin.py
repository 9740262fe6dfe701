"""The pytest plugin of the package: fixtures for the embedded cluster, and for Apache Kafka in a container.

Every run of pytest imports this module if the package is installed. So the module imports only pytest, and each fixture
imports the rest.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import math
import os
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from aiokafka_lite.compiled import COMPILED

if TYPE_CHECKING:
    from aiokafka_lite.embedded import EmbeddedCluster, EmbeddedSchemaRegistry
    from aiokafka_lite.testing.containers import KafkaContainer
    from aiokafka_lite.testing.server import EmbeddedKafkaServer

async_fixture: Any
try:
    from pytest_asyncio import fixture as async_fixture
except ImportError:  # anyio's plugin runs plain fixtures
    async_fixture = pytest.fixture


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options. The default of ``kafka_image`` is in containers.py, which only a fixture imports."""
    parser.addini("kafka_image", "the container image of `kafka_container` (default: apache/kafka, a fixed release)")
    parser.addini(
        "kafka_deadline", "seconds that an async test with a Kafka fixture may take; 0 is no limit", default="60"
    )
    group = parser.getgroup("aiokafka_lite", "Kafka for tests")
    group.addoption(
        "--kafka-bootstrap",
        metavar="HOST:PORT",
        help="a running cluster for `kafka_bootstrap_servers`, instead of a container (or set KAFKA_BOOTSTRAP_SERVERS)",
    )
    group.addoption(
        "--kafka-required",
        action="store_true",
        help="fail instead of skipping a test of `kafka_container` without a container engine (as if CI was set)",
    )


def _without_container(config: pytest.Config, reason: str) -> None:
    """Skip the test, or fail it where a container is expected: a run that skips all of them looks like a success."""
    by_option = config.getoption("--kafka-required")
    if by_option or os.environ.get("CI", "").lower() not in ("", "0", "false"):
        why = "--kafka-required is given" if by_option else "the environment variable CI is set"
        pytest.fail(f"{reason}; {why}, so the test is not skipped")
    pytest.skip(reason)


_WARNINGS_OF_MYPYC = (
    r"ignore:the \(type, exc, tb\) signature of throw:DeprecationWarning",  # an `await` is cancelled, since Python 3.12
    r"ignore:Module globals; __loader__ != __spec__.loader:DeprecationWarning",  # a traceback, since Python 3.15
)


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker. Raises UsageError for a wrong ``kafka_deadline``, before any test runs.

    The compiled build causes two warnings of Python. They are ignored also where warnings are errors: raised in an
    ``await``, the error would take the place of a cancellation.
    """
    _deadline(config)
    config.addinivalue_line(
        "markers", "kafka_simulation(seeds=200): run the seeds of the fixture kafka_simulation, in several tests"
    )
    if COMPILED:
        for line in _WARNINGS_OF_MYPYC:
            config.addinivalue_line("filterwarnings", line)


SEEDS_PER_TEST = 25
"""Seeds of one test with the marker ``kafka_simulation``. So pytest-xdist spreads the seeds over its workers."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make one test for each part of the seeds of the marker ``kafka_simulation``. Raises UsageError for wrong ones."""
    marker = metafunc.definition.get_closest_marker("kafka_simulation")
    if marker is None or "kafka_simulation" not in metafunc.fixturenames:
        return
    seeds = marker.kwargs.get("seeds", 200)
    if marker.args or set(marker.kwargs) - {"seeds"} or not isinstance(seeds, int) or seeds < 1:
        where = metafunc.definition.nodeid
        raise pytest.UsageError(f"{where}: kafka_simulation takes seeds, a whole number >= 1, got {marker}")
    if os.environ.get("KAFKA_SIMULATION_SEED"):  # the only seed
        seeds = 1
    parts = [range(first, min(first + SEEDS_PER_TEST, seeds)) for first in range(0, seeds, SEEDS_PER_TEST)]
    names = [f"seeds {part.start}-{part.stop - 1}" for part in parts]
    metafunc.parametrize("kafka_simulation", parts, indirect=True, ids=names)


@pytest.fixture
def kafka_simulation(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Return ``simulate`` with the seeds of this test. The marker ``kafka_simulation`` gives their number."""
    from aiokafka_lite.testing.simulation import simulate

    if not hasattr(request, "param"):
        raise pytest.UsageError(f"{request.node.nodeid} needs the marker @pytest.mark.kafka_simulation(seeds=200)")
    return functools.partial(simulate, seeds=request.param)


def _deadline(config: pytest.Config) -> float:
    value = config.getini("kafka_deadline")
    try:
        limit = float(value)
    except ValueError:
        limit = math.nan
    if not 0 <= limit < math.inf:
        raise pytest.UsageError(f"kafka_deadline must be a number of seconds, 0 for no limit, got {value!r}")
    return limit


@pytest.fixture(scope="session")
def _kafka_deadline(pytestconfig: pytest.Config) -> float:
    """Return the option ``kafka_deadline`` in seconds. Each async test that uses this fixture has this time limit."""
    return _deadline(pytestconfig)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Give an async test that uses Kafka a deadline. If a record never comes, the test fails and the run continues."""
    if not isinstance(item, pytest.Function) or "_kafka_deadline" not in item.fixturenames:
        return
    if inspect.iscoroutinefunction(item.obj):
        limit = _deadline(item.config)
        item.obj = _in_the_loop_of_its_fixtures(item, _within(limit, item.obj) if limit > 0 else item.obj)


def _in_the_loop_of_its_fixtures(item: pytest.Function, test: Callable[..., Awaitable[None]]) -> Any:
    """Make the test fail at once if a server of a fixture is in another event loop, and so cannot answer."""

    @functools.wraps(test)
    async def checked(*args: Any, **kwargs: Any) -> None:
        from aiokafka_lite.aio.local_ports import stands_still
        from aiokafka_lite.errors import IllegalStateError

        for name, value in item.funcargs.items():
            if any(stands_still(host, port) for host, port in _addresses(value)):
                raise IllegalStateError(
                    f"the fixture {name} belongs to another event loop than this test, so its server cannot answer. "
                    "With pytest-asyncio, set asyncio_default_fixture_loop_scope and asyncio_default_test_loop_scope "
                    "to the same scope, and remove other values of loop_scope; for tests with anyio's marker, set "
                    "asyncio_mode to strict. Or use embedded_kafka_server, which has a thread of its own"
                )
        await test(*args, **kwargs)

    return checked


def _addresses(value: object) -> Iterator[tuple[str, int]]:
    """Yield the addresses of a cluster or of a schema registry of the package that runs in this process."""
    if not type(value).__module__.startswith("aiokafka_lite.embedded"):
        return
    try:
        servers = getattr(value, "url", None) or getattr(value, "bootstrap_servers", None)
    except RuntimeError:  # it does not run
        return
    if isinstance(servers, str):
        for server in servers.rpartition("/")[2].split(","):
            host, _, port = server.rpartition(":")
            yield host, int(port)


def _within(limit: float, test: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    import anyio

    @functools.wraps(test)
    async def limited(*args: Any, **kwargs: Any) -> None:
        try:
            asyncio.get_running_loop()
        except RuntimeError:  # the test runs on trio
            with anyio.move_on_after(limit) as scope:
                await test(*args, **kwargs)
            if scope.cancelled_caught:
                raise TimeoutError(what) from None
            return
        # Not a scope of anyio, which would also cancel the later awaits of the test, and so its clean-up.
        try:
            async with asyncio.timeout(limit) as timeout:
                await test(*args, **kwargs)
        except TimeoutError as error:
            if not timeout.expired():
                raise
            raise TimeoutError(what) from error

    what = f"the test was not done after {limit:g} s; kafka_deadline in the ini file sets another limit"

    return limited


@async_fixture  # type: ignore[untyped-decorator, unused-ignore]
async def embedded_kafka(_kafka_deadline: float) -> AsyncIterator[EmbeddedCluster]:
    """Start an embedded cluster with one node on a free loopback port, in the test's event loop; new for each test."""
    from aiokafka_lite.embedded import EmbeddedCluster

    async with EmbeddedCluster(brokers=1) as cluster:
        yield cluster


@async_fixture  # type: ignore[untyped-decorator, unused-ignore]
async def embedded_schema_registry(_kafka_deadline: float) -> AsyncIterator[EmbeddedSchemaRegistry]:
    """Start a schema registry on a free loopback port, in the test's event loop; new and empty for each test."""
    from aiokafka_lite.embedded import EmbeddedSchemaRegistry

    async with EmbeddedSchemaRegistry() as registry:
        yield registry


@pytest.fixture
def embedded_bootstrap_servers(embedded_kafka: EmbeddedCluster) -> str:
    """Return the bootstrap servers of ``embedded_kafka``."""
    return embedded_kafka.bootstrap_servers


@pytest.fixture(scope="session")
def kafka_container(pytestconfig: pytest.Config, _kafka_deadline: float) -> Iterator[KafkaContainer]:
    """Start Apache Kafka in a container, one for the whole session.

    Without a container engine the test is skipped. It fails if the option ``--kafka-required`` is given, or the
    environment variable ``CI`` is set.

    The ini option ``kafka_image`` names another image than the public one.
    """
    try:
        from aiokafka_lite.testing.containers import DEFAULT_IMAGE, EngineMissing, KafkaContainer
    except ImportError as error:
        _without_container(pytestconfig, str(error))
    try:
        container = KafkaContainer(pytestconfig.getini("kafka_image") or DEFAULT_IMAGE)
        container.start()
    except EngineMissing as error:
        _without_container(pytestconfig, str(error))
    try:
        yield container
    finally:
        container.stop()


@pytest.fixture(scope="session")
def embedded_kafka_server(_kafka_deadline: float) -> Iterator[EmbeddedKafkaServer]:
    """An embedded cluster with one node in a thread of its own, one for the session: for synchronous tests."""
    from aiokafka_lite.testing.server import EmbeddedKafkaServer

    with EmbeddedKafkaServer() as server:
        yield server


@pytest.fixture
def new_embedded_kafka_server(_kafka_deadline: float) -> Iterator[EmbeddedKafkaServer]:
    """Start an embedded cluster with one node in a thread of its own, new for each test: for synchronous tests."""
    from aiokafka_lite.testing.server import EmbeddedKafkaServer

    with EmbeddedKafkaServer() as server:
        yield server


@pytest.fixture(scope="session")
def embedded_kafka_process(_kafka_deadline: float) -> Iterator[str]:
    """Start an embedded cluster with one node in a process of its own, one for the session: its bootstrap servers."""
    command = [sys.executable, "-m", "aiokafka_lite", "broker", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            name, _, servers = process.stdout.readline().strip().partition(": ")
            if name != "bootstrap servers":
                pytest.fail(f"the embedded broker did not start: {' '.join(command)}")
            yield servers
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


@pytest.fixture(scope="session")
def kafka_bootstrap_servers(request: pytest.FixtureRequest, _kafka_deadline: float) -> str:
    """Return the address of a real Kafka.

    It is ``--kafka-bootstrap`` or ``KAFKA_BOOTSTRAP_SERVERS``; if neither is set, ``kafka_container`` starts.
    """
    servers = request.config.getoption("--kafka-bootstrap") or os.environ.get("KAFKA_BOOTSTRAP_SERVERS")
    return str(servers or request.getfixturevalue("kafka_container").bootstrap_servers)


@pytest.fixture
def kafka_topic(request: pytest.FixtureRequest) -> str:
    """Return the name of a topic that no other test uses, for clusters that tests share. The topic is not created."""
    name = "".join(char if char.isalnum() else "-" for char in request.node.name)
    return f"{name[:100]}-{uuid.uuid4().hex[:8]}"
