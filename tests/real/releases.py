"""The releases of Apache Kafka that the tests run on. This module imports nothing that needs an extra."""

from __future__ import annotations

import os

import pytest

MATRIX = ("4.3.1", "4.1.1", "4.0.1", "3.9.1", "3.3.2", "2.8.2", "2.4.1", "1.1.1")
NEWEST = MATRIX[0]
DEFAULT = (NEWEST, "2.8.2", "1.1.1")


def wanted(option: str) -> list[str]:
    """The brokers that ``--kafka`` asks for: ``embedded``, ``given`` (by KAFKA_BOOTSTRAP), and releases."""
    if option == "default":
        return ["embedded", "given"] if "KAFKA_BOOTSTRAP" in os.environ else ["embedded", *DEFAULT]
    if option == "all":
        return ["embedded", *MATRIX]
    return option.split(",")


def marks_of(name: str) -> tuple[pytest.MarkDecorator, ...]:
    """The marks of a test on this broker. Older releases are long: they run in ``make test-long``."""
    if name == "embedded":
        return ()
    return (pytest.mark.real,) if name in ("given", NEWEST) else (pytest.mark.real, pytest.mark.long)
