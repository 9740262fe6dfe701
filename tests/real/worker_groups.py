"""Which tests run in the same worker process, so that they share a broker or a Spark session, and in which order.

``--dist loadgroup`` of pytest-xdist reads marks for this, but loses them with pytest 9.2: each worker then starts all
brokers and a Spark session. So this module takes the groups from the tests' ids. It imports no extra.

The largest groups begin first, then tests of their own that wait for processes, and the short ones fill the end.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.real.releases import NEWEST
from tests.real.run_report import BROKERS

_BROKER = re.compile(r"[\[-](given|(?:secured )?\d+\.\d+\.\d+)[-\]]")
_SPARK_PROCESSES = ("cluster", "demo", "exactly_once_kills", "pipeline_program", "sink_kills")
"""Files in tests/spark whose tests start Spark in processes of their own, so they need not wait for the session."""
_WAITING = ("examples", "exactly_once_kills", "group_churn", "guides", "java_tools")
"""Files in tests/end_to_end whose tests mostly wait for processes. On the newest release they have a broker of their
own, so that the tests on the other one need not wait for them."""
_SERVICES = (
    *("blocking", "events_and_traces", "exactly_once", "exactly_once_into", "exporter", "handlers", "outbox"),
    *("outbox_faults", "read_until", "share_group_requests", "share_groups", "transactions", "ui", "workers_kills"),
)
"""Files in tests/end_to_end about half of the work on the newest release. They have a broker of their own too: on one
broker, the tests of the newest release would take longer than all others together take on three workers."""
_OF_A_FILE = {"test_producer_under_faults": "three brokers", "test_differential": NEWEST}


def group_of(nodeid: str) -> str:
    """Return the group of a test; a test without a group is one of its own."""
    path, _, name = nodeid.partition("::")
    if path.startswith("tests/spark/"):
        own = path.removeprefix("tests/spark/test_").removesuffix(".py") in _SPARK_PROCESSES
        return "spark processes" if own else "spark"
    if path.startswith("tests/site/"):  # built once
        return "site"
    if not path.startswith("tests/end_to_end/"):
        return nodeid
    by_file = _OF_A_FILE.get(path.removeprefix("tests/end_to_end/").removesuffix(".py"))
    if by_file is not None:
        return by_file
    broker = _BROKER.search(name)
    if broker is None:
        return nodeid
    if broker.group(1) != NEWEST:
        return broker.group(1)
    file = path.removeprefix("tests/end_to_end/test_").removesuffix(".py")
    return f"{NEWEST} processes" if file in _WAITING else f"{NEWEST} services" if file in _SERVICES else NEWEST


def is_short(nodeid: str) -> bool:
    """Return whether a test needs no process of its own, as in the folders with short tests."""
    return nodeid.startswith(("tests/pure/", "tests/embedded/", "tests/conformance/"))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Move the short tests to the end in each worker. pytest-xdist keeps the order of groups of one size."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: is_short(item.nodeid))


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Stop the broker of a group after its last test in this worker: an idle one takes 3 % of a processor."""
    if nextitem is None or not hasattr(item.config, "workerinput"):
        return
    if group_of(item.nodeid) != group_of(nextitem.nodeid):
        for brokers in item.config.stash.get(BROKERS, []):
            brokers.stop()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    if config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class Grouped(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    return Grouped(config, log)
