"""The last lines of a test run: which real brokers it used, and what it did not test.

With several worker processes each worker sends its part to the process that prints. This module imports nothing that
needs an extra, so that ``tests/pure`` runs without containers and Java.
"""

from __future__ import annotations

from typing import Any, Protocol

import pytest


class Brokers(Protocol):
    """The brokers that one process started."""

    used: list[str]

    @property
    def problems(self) -> list[str]: ...

    def stop(self) -> None: ...


BROKERS = pytest.StashKey[list[Brokers]]()
"""The brokers that this process started."""

DATABASES = pytest.StashKey[list[str]]()
"""The databases that this process started."""

_REPORTS = pytest.StashKey[list[dict[str, list[str]]]]()
_DESELECTED = pytest.StashKey[int]()

LONG = "long"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Count the long tests before ``-m`` deselects them."""
    config.stash[_DESELECTED] = sum(item.get_closest_marker(LONG) is not None for item in items)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Subtract the long tests that do run."""
    selected = sum(item.get_closest_marker(LONG) is not None for item in session.items)
    session.config.stash[_DESELECTED] = session.config.stash.get(_DESELECTED, 0) - selected


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send this process's part to the process that prints."""
    brokers = session.config.stash.get(BROKERS, [])
    report = {
        "used": [name for broker in brokers for name in broker.used],
        "databases": session.config.stash.get(DATABASES, []),
        "problems": [problem for broker in brokers for problem in broker.problems],
    }
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["brokers"] = report
        session.config.workeroutput["deselected"] = session.config.stash.get(_DESELECTED, 0)
    else:
        session.config.stash.setdefault(_REPORTS, []).append(report)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take a worker's part. Every worker collects all tests, so the count of one worker is the count of the run."""
    output = getattr(node, "workeroutput", {})
    if "brokers" in output:
        node.config.stash.setdefault(_REPORTS, []).append(output["brokers"])
        node.config.stash[_DESELECTED] = output["deselected"]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the lines."""
    reports = config.stash.get(_REPORTS, [])
    if used := sorted({name for report in reports for name in report["used"]}, reverse=True):
        terminalreporter.write_line("end to end on Apache Kafka " + ", ".join(used))
    if databases := sorted({name for report in reports for name in report["databases"]}):
        terminalreporter.write_line("end to end on " + ", ".join(databases))
    if problems := sorted({problem for report in reports for problem in report["problems"]}):
        terminalreporter.write_line("NOT TESTED ON REAL KAFKA: " + " | ".join(problems), red=True, bold=True)
    if count := config.stash.get(_DESELECTED, 0):
        terminalreporter.write_line(f"NOT RUN: {count} long tests (make test-long runs them)", red=True, bold=True)
