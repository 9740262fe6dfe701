"""A cluster in a thread of its own, which answers while the test's thread blocks."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from aiokafka_lite.testing.server import EmbeddedKafkaServer

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedKafkaServer]:
    with EmbeddedKafkaServer() as server:
        yield server


@pytest.fixture
def topic(server: EmbeddedKafkaServer) -> str:
    """The name of a new topic with two partitions."""
    name = f"topic-{next(_numbers)}"
    server.create_topic(name, 2)
    return name
