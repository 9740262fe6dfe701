"""The releases of Apache Kafka that the tests run on. This module imports nothing that needs an extra."""

from __future__ import annotations

import os
from typing import Any

import pytest

MATRIX = ("4.3.1", "4.1.1", "4.0.1", "3.9.1", "3.3.2", "2.8.2", "2.4.1", "1.1.1")
NEWEST = MATRIX[0]
OLD = ("1.1.1", "2.8.2")
"""The older releases of a usual run. A test runs on the first one that supports it."""


def release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def since(version: str, reason: str) -> pytest.MarkDecorator:
    """Run the test on this release of Kafka and newer ones; ``reason`` is shown where it is skipped."""
    return pytest.mark.since(version, reason)


def needed(metafunc: pytest.Metafunc) -> tuple[str, str]:
    """Return the first release that a test runs on, and why."""
    mark = metafunc.definition.get_closest_marker("since")
    return mark.args if mark is not None else ("0", "")  # type: ignore[return-value]


def brokers(metafunc: pytest.Metafunc) -> list[Any]:
    """Return the parameters of a test with a broker: the brokers that ``--kafka`` asks for, with their marks."""
    first, reason = needed(metafunc)
    releases = []
    for name in wanted(metafunc.config.getoption("--kafka"), first):
        too_old = name in MATRIX and release(name) < release(first)
        releases.append(pytest.param(name, marks=(*marks_of(name), *[pytest.mark.skip(reason)] * too_old)))
    return releases


def wanted(option: str, first: str = "0") -> list[str]:
    """Return the brokers that ``--kafka`` asks for: ``embedded``, ``given`` (by KAFKA_BOOTSTRAP), and releases.

    A usual run has the newest release and one of those before it, not older than ``first``.
    """
    if option == "default":
        old = [version for version in OLD if release(version) >= release(first)]
        return ["embedded", "given"] if "KAFKA_BOOTSTRAP" in os.environ else ["embedded", NEWEST, *old[:1]]
    if option == "all":
        return ["embedded", *MATRIX]
    return option.split(",")


def marks_of(name: str) -> tuple[pytest.MarkDecorator, ...]:
    """Return the marks of a test on this broker. Older releases are long: they run in ``make test-long``."""
    if name == "embedded":
        return ()
    return (pytest.mark.real,) if name in ("given", NEWEST) else (pytest.mark.real, pytest.mark.long)
