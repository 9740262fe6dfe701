"""For all tests: the option ``--kafka``, and a check after each test that it left no task and no error behind.

This file imports no extra: ``tests/pure`` runs without testcontainers, Java and pyspark.
"""

from __future__ import annotations

import gc
import inspect
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

import build_backend
from aiokafka_lite.compiled import BUILD, COMPILED
from tests import left_behind
from tests.syntax_trees import parse_in_turns

pytest_plugins = ["tests.real.run_report", "tests.real.worker_groups"]

# The scripts that write pages are there. Their tests import them.
sys.path.append(str(Path(__file__).parents[1] / "docs"))

parse_in_turns()

# The time of one example depends on the machine's load more than on the code.
settings.register_profile("without deadlines", settings(), deadline=None)
settings.load_profile("without deadlines")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--kafka",
        default="default",
        metavar="BROKERS",
        help="what the end-to-end suite runs on: 'default', 'all', or a list such as 'embedded,4.3.1,1.1.1'",
    )


def pytest_configure() -> None:
    """Handle SIGINT in the default way, and refuse to test compiled modules that are older than their sources.

    A test run in the background ignores SIGINT. The programs that the tests start would inherit this, and the tests
    could not interrupt them.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if COMPILED and (outdated := build_backend.outdated()):
        raise pytest.UsageError(
            f"{', '.join(outdated)} changed since `make build`: run `make build`, or `make unbuild` for plain Python"
        )


def pytest_report_header() -> str:
    return f"aiokafka_lite: {BUILD}"


def pytest_collection_finish() -> None:
    _Garbage.collect_all()


class _Garbage:
    """Collects the garbage of several tests at a time.

    A collection of all objects takes as long as some tests. So the objects that survive a test are frozen: later
    collections skip them. They are frozen before a later test begins. At the end of a test, pytest still refers to the
    values of its fixtures, so these would be frozen too, and never collected.
    """

    TESTS_BETWEEN_FREEZES = 10
    _tests = 0

    @classmethod
    def collect_all(cls) -> None:
        gc.unfreeze()
        gc.collect()
        gc.freeze()

    @classmethod
    def freeze(cls) -> None:
        cls._tests += 1
        if cls._tests % cls.TESTS_BETWEEN_FREEZES == 0:
            gc.collect()
            gc.freeze()


@pytest.fixture(autouse=True)
def nothing_left_behind(request: pytest.FixtureRequest) -> None:
    """Check each asynchronous test. This fixture is the first one, so it ends last: all others are closed by then."""
    function = getattr(request, "function", None)
    if function is not None and inspect.iscoroutinefunction(inspect.unwrap(function)):
        request.getfixturevalue("_watched_loop")


@pytest.fixture
async def _watched_loop() -> AsyncIterator[None]:
    _Garbage.freeze()
    async with left_behind.nothing_left_behind():
        yield


@pytest.fixture(scope="session", autouse=True)
def _collected_at_the_end() -> Iterator[None]:
    """Collect all garbage when the tests end: a warning is an error there. pytest collects five times afterwards."""
    yield
    _Garbage.collect_all()
