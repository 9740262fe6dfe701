"""``health()`` for liveness and readiness probes."""

from __future__ import annotations

import asyncio

import pytest

from aiokafka_lite import ConsumerGroup, Producer
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import ConfigurationError, ErrorCode, KafkaError
from aiokafka_lite.protocol.messages import JoinGroupRequest
from tests.embedded.consumer.direct_writes import consumer_of
from tests.waiting import until


@pytest.fixture(autouse=True)
async def topic(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("orders", partitions=1)


async def test_a_producer_is_ready_between_its_start_and_its_end(cluster: EmbeddedCluster) -> None:
    producer = Producer(cluster.bootstrap_servers, connector=cluster.connector)
    new = producer.health()
    assert (new.is_live, new.is_ready, new.problems) == (True, False, ("it has not started yet",))
    async with producer:
        await producer.send("orders", b"v")
        assert producer.health().to_dict() == {"is_live": True, "is_ready": True, "problems": []}
        await asyncio.sleep(3600)  # virtual time; an idle producer sends nothing
        assert producer.health().is_ready
    closed = producer.health()
    assert (closed.is_live, closed.is_ready, closed.problems) == (False, False, ("it is closed",))


async def test_a_producer_without_an_answer_of_any_broker_is_live_and_not_ready(cluster: EmbeddedCluster) -> None:
    async with Producer(cluster.bootstrap_servers, connector=cluster.connector) as producer:
        await producer.send("orders", b"v")
        for node in cluster.nodes:
            await cluster.kill(node)
        producer.send_nowait("orders", b"v")
        silent = "no broker has answered for 20 s"
        await until(lambda: silent in producer.health(max_silence=20.0).problems)
        health = producer.health(max_silence=20.0)
        assert (health.is_live, health.is_ready) == (True, False)
        assert silent not in producer.health().problems, "60 seconds by default"
        # The outage of metadata is named as soon as the log has its WARNING.
        refused = producer.health()
        assert not refused.is_ready
        assert [problem.split(":")[0] for problem in refused.problems[:1]] == ["no broker answers metadata requests"]
        for node in cluster.nodes:
            await cluster.start_node(node)
        await until(lambda: producer.health(max_silence=20.0).is_ready)


async def test_a_member_is_ready_from_its_first_assignment_on(cluster: EmbeddedCluster) -> None:
    with cluster.on(JoinGroupRequest, times=1).delay(5.0):
        async with consumer_of(cluster, topics=["orders"], group_id="g") as consumer:
            assert consumer.health().problems == ("its group has not assigned partitions yet",)
            await consumer.wait_assigned()
            assert consumer.health().is_ready


async def test_a_member_whose_program_does_not_read_is_not_live(cluster: EmbeddedCluster) -> None:
    async with consumer_of(cluster, topics=["orders"], group_id="g", max_poll_interval=300.0) as consumer:
        await consumer.wait_assigned()
        await consumer.poll()
        await asyncio.sleep(100)  # virtual time
        assert consumer.health().is_live
        assert consumer.health(max_poll_ago=60.0).problems == ("the program has not asked for records for 100 s",)
        await asyncio.sleep(210)  # virtual time
        health = consumer.health()
        assert not health.is_live
        assert health.problems == (
            "the program has not asked for records for 310 s",
            "it is not a member of its group: UNJOINED",
        )


async def test_a_consumer_that_has_failed_is_not_live(cluster: EmbeddedCluster) -> None:
    consumer = consumer_of(cluster, topics=["orders"], group_id="g")
    with cluster.on(JoinGroupRequest, times=1).fail(ErrorCode.INVALID_SESSION_TIMEOUT):
        await consumer.start()
        with pytest.raises(KafkaError):
            await consumer.wait_assigned()
    health = consumer.health()
    assert not health.is_live
    assert health.problems[0].startswith("it has failed: ")
    with pytest.raises(KafkaError):
        await consumer.close()


async def test_a_group_that_does_not_consume_is_live_and_not_ready(cluster: EmbeddedCluster) -> None:
    group = ConsumerGroup(cluster.bootstrap_servers, connector=cluster.connector, group_id="g")
    assert group.health().to_dict() == {"is_live": True, "is_ready": False, "problems": ["consume() does not run"]}
    await group.close()
    assert not group.health().is_live


async def test_a_wrong_limit_is_refused(cluster: EmbeddedCluster) -> None:
    async with consumer_of(cluster, topics=["orders"], group_id="g") as consumer:
        with pytest.raises(ConfigurationError, match="max_silence must be a number of seconds, got '5'"):
            consumer.health(max_silence="5")  # type: ignore[arg-type]
        with pytest.raises(ConfigurationError, match="max_poll_ago must be a number of seconds, got '5'"):
            consumer.health(max_poll_ago="5")  # type: ignore[arg-type]
