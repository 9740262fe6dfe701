"""For all tests: which brokers to run on, and a check after each test that it left nothing behind."""

from __future__ import annotations

import asyncio
import gc
import inspect
import signal
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from hypothesis import settings

from tests.real.servers import SERVERS

# How long an example takes says more about what else the machine does than about the code.
settings.register_profile("without deadlines", settings(), deadline=None)
settings.load_profile("without deadlines")

_REPORTS = pytest.StashKey[list[dict[str, list[str]]]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--kafka",
        default="default",
        metavar="BROKERS",
        help="what the end-to-end suite runs on: 'default', 'all', or a list such as 'embedded,4.3.1,1.1.1'",
    )


def pytest_configure() -> None:
    """Whoever is started in the background ignores Ctrl-C, and so would all programs that tests start and interrupt."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Put what is alive now out of the collector's sight: a collection after each test then costs next to nothing."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def nothing_left_behind(request: pytest.FixtureRequest) -> None:
    """First fixture of every asynchronous test, so that it looks last, when all other fixtures have been closed."""
    function = getattr(request, "function", None)
    if function is not None and inspect.iscoroutinefunction(inspect.unwrap(function)):
        request.getfixturevalue("_watched_loop")


@pytest.fixture
async def _watched_loop() -> AsyncIterator[None]:
    loop = asyncio.get_running_loop()
    complaints: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _loop, context: complaints.append(context))
    before = asyncio.all_tasks()
    yield
    left = asyncio.all_tasks() - before - {asyncio.current_task()}
    names = sorted(repr(task) for task in left)
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    left.clear()
    gc.collect()  # "exception was never retrieved" is said when the future dies
    await asyncio.sleep(0)
    assert not names, "the test left tasks behind:\n" + "\n".join(names)
    assert not complaints, "the event loop was told of errors that nobody handled:\n" + "\n".join(map(str, complaints))


@pytest.fixture(scope="session", autouse=True)
def _thaw() -> Iterator[None]:
    yield
    gc.unfreeze()


# ---- which real brokers were used, said at the end, also when several processes share the tests


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    servers = session.config.stash.get(SERVERS, [])
    report = {
        "used": [name for each in servers for name in each.used],
        "problems": [problem for each in servers for problem in each.problems],
    }
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["servers"] = report
    else:
        session.config.stash.setdefault(_REPORTS, []).append(report)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    report = getattr(node, "workeroutput", {}).get("servers")
    if report is not None:
        node.config.stash.setdefault(_REPORTS, []).append(report)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    reports = config.stash.get(_REPORTS, [])
    if used := sorted({name for report in reports for name in report["used"]}, reverse=True):
        terminalreporter.write_line("end to end on Apache Kafka " + ", ".join(used))
    if problems := sorted({problem for report in reports for problem in report["problems"]}):
        terminalreporter.write_line("NOT TESTED ON REAL KAFKA: " + " | ".join(problems), red=True, bold=True)
