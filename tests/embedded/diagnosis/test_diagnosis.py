"""``diagnose`` of each client: complete for a bug report, without waiting for brokers, and without secrets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, NoReturn

import pytest

from aiokafka_lite import (
    Admin,
    Claim,
    Consumer,
    ConsumerGroup,
    ConsumerGroupHandler,
    ConsumerGroupSession,
    EmbeddedCluster,
    Producer,
)
from aiokafka_lite.aio.virtual_time import VirtualTimeLoop
from aiokafka_lite.errors import ConnectionLost, IllegalStateError
from aiokafka_lite.group import RangeStrategy


def settings(cluster: EmbeddedCluster) -> dict[str, Any]:
    return {"bootstrap_servers": cluster.bootstrap_servers, "connector": cluster.connector}


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.1)


class Patient(ConsumerGroupHandler[bytes, bytes]):
    async def consume_claim(self, session: ConsumerGroupSession, claim: Claim[bytes, bytes]) -> None:
        await session.wait_cancelled()


async def test_a_producer_shows_connections_versions_and_buffers(cluster: EmbeddedCluster) -> None:
    async with Producer(**settings(cluster), linger=5.0) as producer:
        delivery = producer.send_nowait("orders", b"waits", partition=1)
        await producer._client.topic("orders")
        diagnosis = producer.diagnose()
        assert diagnosis.settings["linger"] == "5.0"
        assert diagnosis.cluster.brokers == (f"1 at {cluster.bootstrap_servers}",)
        assert diagnosis.cluster.topics == {"orders": "2 partitions"}
        assert diagnosis.metrics.buffered_bytes > 0
        await asyncio.sleep(1.0)
        assert any(line.startswith("orders-1: OPEN") and "open yes" in line for line in producer.diagnose().partitions)
        await delivery
        after = producer.diagnose()
        (broker,) = [broker for broker in after.brokers if broker.connections]
        assert {connection.purpose: connection.state for connection in broker.connections} == {
            "other": "READY",
            "produce": "READY",
        }
        (produce,) = [connection for connection in broker.connections if connection.purpose == "produce"]
        assert produce.versions == {"Produce": 13}
        assert "0:0-13 " in broker.offers
        assert after.partitions == ()


async def test_an_idle_producer_has_three_tasks_and_still_refreshes_its_metadata(cluster: EmbeddedCluster) -> None:
    async with Producer(**settings(cluster), metadata_max_age=5.0) as producer:
        await producer.send("orders", b"x", partition=0)
        await asyncio.sleep(11)
        diagnosis = producer.diagnose()
        assert diagnosis.tasks == ("Client", "Producer", "Producer: broker 1")
        assert diagnosis.cluster.metadata_age is not None
        assert diagnosis.cluster.metadata_age < 5.0


async def test_a_member_shows_its_group_and_its_lag(cluster: EmbeddedCluster) -> None:
    async with Producer(**settings(cluster)) as producer:
        await producer.send_many("orders", [b"x"] * 10, partition=0)
    async with Consumer(**settings(cluster), topics=["orders"], group_id="billing") as consumer:
        await anext(consumer)
        await until(lambda: all(partition.lag is not None for partition in consumer.diagnose().partitions))
        diagnosis = consumer.diagnose()
        assert diagnosis.group is not None
        assert (diagnosis.group.state, diagnosis.group.generation, diagnosis.group.owned) == ("STABLE", 1, 2)
        assert diagnosis.group.coordinator == f"1 at {cluster.bootstrap_servers}"
        assert (diagnosis.assigned, diagnosis.lag) == (2, 9)
        assert {partition.partition: (partition.position, partition.lag) for partition in diagnosis.partitions} == {
            "orders-0": (1, 9),
            "orders-1": (0, 0),
        }
        assert "heartbeats" in diagnosis.tasks


async def test_a_group_is_diagnosed_while_it_consumes(cluster: EmbeddedCluster) -> None:
    group: ConsumerGroup[bytes, bytes] = ConsumerGroup(**settings(cluster), group_id="shipping")
    with pytest.raises(IllegalStateError, match="is not consuming"):
        group.diagnose()
    consuming = asyncio.create_task(group.consume(["orders"], Patient()))

    def has_two_partitions() -> bool:
        try:
            return group.diagnose().assigned == 2
        except IllegalStateError:
            return False  # consume() has not begun yet

    await until(has_two_partitions)
    assert "shipping" in str(group.diagnose())
    await group.close()
    await consuming


async def test_brokers_that_are_down_are_shown_without_waiting_for_them(cluster: EmbeddedCluster) -> None:
    loop = asyncio.get_running_loop()
    async with Consumer(**settings(cluster), topics=["orders"], group_id="billing") as consumer:
        await until(lambda: consumer.diagnose().assigned == 2)
        await cluster.kill(1)
        await asyncio.sleep(60)
        before = loop.time()
        diagnosis = consumer.diagnose()
        assert loop.time() == pytest.approx(before, abs=1e-3)
        assert diagnosis.cluster.unreachable is not None
        assert "cannot connect" in diagnosis.cluster.unreachable
        assert diagnosis.cluster.metadata_age is not None
        assert diagnosis.cluster.metadata_age >= 60
        outages = {outage.place: outage for outage in diagnosis.outages}
        broker = outages[f"broker 1 at {cluster.bootstrap_servers}"]
        assert broker.count > 5
        assert broker.lasts_for == pytest.approx(60, abs=1)
        assert broker.error.startswith(ConnectionLost.__name__)


async def test_a_secret_is_not_shown() -> None:
    admin = Admin(
        "localhost:9092",
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_username="alice",
        sasl_password="hunter2",
    )
    diagnosis = admin.diagnose()
    assert diagnosis.settings["sasl_password"] == "(set, not shown)"
    assert diagnosis.settings["sasl_username"] == "'alice'"
    for text in (str(diagnosis), repr(diagnosis), json.dumps(diagnosis.to_dict())):
        assert "hunter2" not in text


async def test_a_blocked_event_loop_is_shown(cluster: EmbeddedCluster) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    async with Admin(**settings(cluster)) as admin:
        await asyncio.sleep(10)
        assert admin.diagnose().event_loop.longest == 0.0
        loop.now += 3.5  # as if a computation had taken so long
        await asyncio.sleep(2)
        assert 2.5 <= admin.diagnose().event_loop.longest <= 3.5
        await asyncio.sleep(120)
        after = admin.diagnose().event_loop
        assert after.longest_of_a_minute == 0.0
        assert after.longest >= 2.5


async def test_the_failure_of_a_client_is_shown_after_close(cluster: EmbeddedCluster) -> None:
    async with Admin(**settings(cluster)) as admin:
        pass
    assert "CLOSED" in admin.diagnose().client
    assert admin.diagnose().failure is None

    class Broken(RangeStrategy):
        def assign(self, members: object, topics: object) -> NoReturn:
            raise ZeroDivisionError("from a strategy")

    broken = Consumer(**settings(cluster), topics=["orders"], group_id="billing", strategies=[Broken()])
    await broken.start()
    with pytest.raises(ZeroDivisionError):
        await anext(broken)
    assert broken.diagnose().failure == "ZeroDivisionError: from a strategy"
    with pytest.raises(ZeroDivisionError):
        await broken.close()


async def test_it_prints_one_field_a_line_and_converts_to_json(cluster: EmbeddedCluster) -> None:
    async with Consumer(**settings(cluster), topics=["orders"], group_id="billing") as consumer:
        await until(lambda: consumer.diagnose().assigned == 2)
        diagnosis = consumer.diagnose()
    lines = str(diagnosis).splitlines()
    assert lines[0].startswith("client: <Consumer aiokafka-lite RUNNING")
    assert "  group id: 'billing'" in lines  # among the settings
    assert "  state: STABLE" in lines
    assert any(line.startswith("  - partition: orders-0, state: KNOWN") for line in lines)
    assert json.loads(json.dumps(diagnosis.to_dict())) == diagnosis.to_dict()


async def test_thousands_of_partitions_are_shortened(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("wide", partitions=500)
    async with Consumer(**settings(cluster), topics=["wide"]) as consumer:
        diagnosis = consumer.diagnose()
        assert diagnosis.assigned == 500
        assert len(diagnosis.partitions) == 200
