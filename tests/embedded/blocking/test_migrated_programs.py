"""The programs of the page about migrating from confluent-kafka do the same before and after their changes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from aiokafka_lite import TopicPartition
from aiokafka_lite.blocking import Consumer, Producer
from aiokafka_lite.testing.server import EmbeddedKafkaServer
from tests.waiting import DEADLINE

pytest.importorskip("confluent_kafka")

PAGE = Path(__file__).parents[3] / "docs" / "migrating-from-confluent-kafka.md"
PROGRAMS = dict(
    re.findall(r'^```diff title="([^"]*)"\n(.*?)^```$', PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
)
SERVICE, LOOP, COPIER = PROGRAMS
ORDERS = [f'{{"dish": "dish {number}"}}'.encode() for number in range(25)]
END = b'{"dish": "nothing more"}'

REQUESTS = """
client = app.test_client()
for number in range(3):
    assert client.post("/orders", json={"table": "table-7", "number": number}).status_code == 202
assert client.post("/payments", data=b"12 euros").status_code == 201
producer.flush()
"""

each_version = pytest.mark.parametrize("version", ["-", "+"], ids=["before", "after"])


@pytest.fixture
def server() -> Iterator[EmbeddedKafkaServer]:
    """A cluster with a topic of one partition, as the programs name it."""
    with EmbeddedKafkaServer() as server:
        server.create_topic("orders", 1)
        yield server


def run(server: EmbeddedKafkaServer, title: str, version: str, more: str = "") -> str:
    """Run a program, with the lines of one version, in a process of its own. Returns what it prints."""
    lines = [line[1:] for line in PROGRAMS[title].splitlines() if not line or line[0] in (" ", version)]
    text = "\n".join(lines).replace("localhost:9092", server.bootstrap_servers) + more
    command = [sys.executable, "-W", "error::ResourceWarning", "-c", text]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def fill(server: EmbeddedKafkaServer) -> None:
    with Producer(server.bootstrap_servers) as producer:
        for order in [*ORDERS, END]:
            producer.send_nowait("orders", order, key="table-7")


def committed(server: EmbeddedKafkaServer, group: str) -> int | None:
    partition = TopicPartition("orders", 0)
    with Consumer(server.bootstrap_servers, group_id=group) as consumer:
        offset = consumer.committed([partition])[partition]
    return None if offset is None else offset.offset


@each_version
def test_a_web_service_writes_the_same_records(server: EmbeddedKafkaServer, version: str) -> None:
    pytest.importorskip("flask")
    run(server, SERVICE, version, REQUESTS)
    *orders, payment = sorted(server.records("orders"), key=lambda record: record.key is None)
    expected = [(b"table-7", {"table": "table-7", "number": number}) for number in range(3)]
    assert [(record.key, json.loads(record.value or b"")) for record in orders] == expected
    assert (payment.value, payment.headers) == (b"12 euros", (("kind", b"payment"),))


@each_version
def test_a_loop_commits_the_same_offsets(server: EmbeddedKafkaServer, version: str) -> None:
    fill(server)
    printed = run(server, LOOP, version)
    assert printed.splitlines() == [f"billed table-7 dish {number}" for number in range(25)]
    assert committed(server, "billing") == 20


@each_version
def test_a_transactional_copier_copies_each_record_once(server: EmbeddedKafkaServer, version: str) -> None:
    server.create_topic("copies", 1)
    fill(server)
    run(server, COPIER, version)
    assert [record.value for record in server.records("copies")] == [order.upper() for order in [*ORDERS, END]]
    assert committed(server, "copier") == 26
