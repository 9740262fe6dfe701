"""The time until a producer continues after its broker was down, or had refused a producer id."""

from __future__ import annotations

import asyncio

import pytest

from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import BrokerError, ErrorCode
from aiokafka_lite.protocol.messages import InitProducerIdRequest, ProduceRequest
from tests.embedded.producer.producers_and_logs import producer_of, values_of
from tests.waiting import until

NOTICED_AFTER = 7.0
SOON = 1.5


@pytest.mark.parametrize("way", ["killed", "frozen"])
async def test_a_new_leader_is_used_while_the_old_one_is_still_being_connected_to(
    cluster: EmbeddedCluster, way: str
) -> None:
    await cluster.create_topic("t", 1, 3)
    cluster.broker_session_timeout = NOTICED_AFTER
    loop = asyncio.get_running_loop()
    async with producer_of(cluster, request_timeout=2.0, connect_timeout=60.0) as producer:
        await producer.send("t", b"v")
        began, leader = loop.time(), cluster.leader_of("t", 0)
        if way == "killed":
            await cluster.kill(leader, noticed_after=NOTICED_AFTER)
        else:
            await cluster.freeze(leader)
        await producer.send("t", b"v")
        assert NOTICED_AFTER < loop.time() - began < NOTICED_AFTER + SOON


async def test_a_broker_that_metadata_lists_again_is_connected_to_at_once(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1, assignments=[[2]])
    loop = asyncio.get_running_loop()
    async with producer_of(cluster, reconnect_backoff_max=100.0) as producer:
        await producer.send("t", b"v")
        await cluster.kill(2, noticed_after=50.0)  # until then each attempt fails, and the pauses grow
        waiting = producer.send_nowait("t", b"v")
        await asyncio.sleep(60.0)
        assert not waiting.done()
        began = loop.time()
        await cluster.start_node(2)
        await waiting
        assert loop.time() - began < SOON


async def test_a_batch_that_is_proven_written_by_later_ones_is_delivered_without_an_offset(
    cluster: EmbeddedCluster,
) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster, batch_size=1, delivery_timeout=10.0, request_timeout=3.0) as producer:
        await producer.send("t", b"0")
        # The first of the two batches is written without an answer, then refused, and then not answered at all.
        cluster.on(ProduceRequest).apply_then_disconnect()
        cluster.on(ProduceRequest).fail(ErrorCode.NOT_ENOUGH_REPLICAS)
        with cluster.on(ProduceRequest, nth=2, times=None).drop():
            first, second = producer.send_nowait("t", b"1"), producer.send_nowait("t", b"2")
            assert (await second).offset == 2
            assert not first.done()
            assert (await first).offset == -1
        assert (await producer.send("t", b"3")).offset == 3
        assert producer.metrics().records_delivered == 4
    assert values_of(cluster, "t") == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize("code", [ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_SERVER_ERROR])
async def test_records_fail_while_a_producer_id_is_refused_and_are_written_when_it_is_assigned(
    cluster: EmbeddedCluster, code: ErrorCode
) -> None:
    await cluster.create_topic("t", 1)
    fault = cluster.on(InitProducerIdRequest, times=None).fail(code)
    async with producer_of(cluster) as producer:
        for _ in range(2):
            with pytest.raises(BrokerError, match=code.name):
                await producer.send("t", b"refused")
        health = producer.health()
        assert (health.is_live, health.is_ready) == (True, False)
        assert health.problems[0].startswith("it has no producer id: ")
        assert "producer id" in [outage.place for outage in producer.diagnose().outages if outage.lasts_for is not None]
        before = len(cluster.history.of(InitProducerIdRequest))
        await asyncio.sleep(60.0)
        assert len(cluster.history.of(InitProducerIdRequest)) - before < 90
        fault.remove()
        await until(lambda: producer.health().is_ready)
        assert (await producer.send("t", b"written")).offset == 0
    assert values_of(cluster, "t") == [b"written"]
