"""``diagnose`` explains why a client cannot work with a cluster."""

from __future__ import annotations

import json
from typing import Any

from aiokafka_lite import Consumer, EmbeddedCluster, Producer
from aiokafka_lite.testing.ports import free_port
from tests.end_to_end.conftest import Kafka
from tests.end_to_end.terminal import run
from tests.waiting import DEADLINE


async def diagnosed(servers: str, *arguments: str, timeout: int = 30) -> tuple[int, dict[str, Any]]:
    """Return the output of the command, which waits the whole timeout for a broker that does not answer."""
    outcome = await run("diagnose", "-b", servers, "--json", "--timeout", str(timeout), *arguments)
    assert outcome.errors == ""
    return outcome.status, json.loads(outcome.text)


def findings(report: dict[str, Any]) -> list[str]:
    return [row["finding"] for row in report["findings"]]


async def test_a_healthy_kafka_has_no_findings(kafka: Kafka) -> None:
    topic = await kafka.create_topic(partitions=2)
    async with (
        Producer(kafka.bootstrap_servers) as producer,
        Consumer(kafka.bootstrap_servers, topics=[topic], group_id=f"well-{topic}") as consumer,
    ):
        await producer.send(topic, b"read", partition=0)
        await consumer.poll(timeout=DEADLINE)
        await consumer.poll()  # the second poll marks the record as processed
        await consumer.commit()
        await producer.send(topic, b"not read", partition=0)
        member, writer = consumer.diagnose(), producer.diagnose()
        status, report = await diagnosed(kafka.bootstrap_servers, "--topic", topic, "--group", f"well-{topic}")
    assert member.group is not None
    assert (member.group.state, member.assigned, member.cluster.unreachable) == ("STABLE", 2, None)
    assert any("Produce" in connection.versions for broker in writer.brokers for connection in broker.connections)
    assert (status, findings(report)) == (0, ["nothing is wrong here"])
    assert [server["answers"] for server in report["bootstrap_servers"]]
    assert all(broker["answers"] and broker["produce"] is not None for broker in report["brokers"])
    assert report["aiokafka_lite"]
    assert report["cluster_id"] is not None
    assert [partition["partition"] for partition in report["topic"]] == [0, 1]
    assert (report["members"], report["state"]) == (1, "Stable")
    assert {row["partition"]: row["lag"] for row in report["lag"]}[0] == 1


async def test_a_broker_whose_advertised_address_does_not_answer_is_named() -> None:
    async with EmbeddedCluster(brokers=2) as cluster:
        first, second = cluster.bootstrap_servers.split(",")
        await cluster.kill(2, noticed_after=3600)
        status, report = await diagnosed(first, timeout=8)
    assert status == 1
    (finding,) = findings(report)
    assert finding.startswith(f"broker 2 advertises {second}, which does not answer from here")
    assert "advertised.listeners" in finding
    assert [(broker["broker"], broker["answers"]) for broker in report["brokers"]] == [(1, True), (2, False)]


async def test_a_bootstrap_server_that_is_down_is_named_while_another_answers() -> None:
    closed = f"127.0.0.1:{free_port()}"
    async with EmbeddedCluster() as cluster:
        status, report = await diagnosed(f"{closed},{cluster.bootstrap_servers}", timeout=8)
    assert (status, findings(report)) == (1, [f"bootstrap server {closed} does not answer"])
    assert (
        "Connect call failed" in report["bootstrap_servers"][0]["error"]
        or "refused" in (report["bootstrap_servers"][0]["error"])
    )


async def test_without_any_answer_it_names_what_to_check() -> None:
    outcome = await run("diagnose", "-b", f"127.0.0.1:{free_port()}", "--timeout", "1")
    assert outcome.status == 1
    assert "no bootstrap server answers" in outcome.text
    assert "security.protocol" in outcome.text


async def test_a_faulty_topic_and_group_are_named() -> None:
    async with EmbeddedCluster(brokers=2) as cluster:
        await cluster.create_topic("orders", partitions=1, replication_factor=2)
        async with Consumer(cluster.bootstrap_servers, topics=["orders"], group_id="billing") as consumer:
            await consumer.poll(timeout=0.1)
        await cluster.stop(2)
        status, report = await diagnosed(cluster.bootstrap_servers.split(",")[0], "-t", "orders", "-g", "billing")
        _, unknown = await diagnosed(cluster.bootstrap_servers.split(",")[0], "-t", "odrers")
    assert status == 1
    assert "topic orders has replicas that are not in sync, for partitions [0]" in findings(report)
    assert "group billing has no members: no consumer reads its topics now" in findings(report)
    assert any("odrers" in finding for finding in findings(unknown))
