"""Faults hit the requests that they name, as often as configured, and the history records them."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from typing import Any

import pytest

from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import ConnectionLost, ErrorCode
from aiokafka_lite.protocol.messages import (
    FetchRequest,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
    ProduceRequestPartition,
)
from tests.embedded.broker.raw_client import Peer, produce_request
from tests.pure.embedded.batches import produced
from tests.waiting import until


def batch(*values: bytes) -> bytes:
    return produced(*values, timestamp=int(time.time() * 1000))


async def test_a_fault_fails_as_many_requests_as_configured_and_writes_nothing(one: EmbeddedCluster) -> None:
    await one.create_topic("t")
    fault = one.on(ProduceRequest).fail(ErrorCode.NOT_ENOUGH_REPLICAS, times=2)
    async with Peer(one) as peer:
        codes = [(await peer.produce("t", batch())).error_code for _ in range(3)]
        assert codes == [19, 19, 0]
        assert fault.hits == 2
        assert (await peer.offset("t", -1)).offset == 1


async def test_nth_counts_matching_requests(one: EmbeddedCluster) -> None:
    await one.create_topic("t")
    one.on(ProduceRequest, nth=2).fail(ErrorCode.UNKNOWN_SERVER_ERROR)
    async with Peer(one) as peer:
        codes = [(await peer.produce("t", batch())).error_code for _ in range(3)]
        assert codes == [0, -1, 0]


async def test_a_fault_on_one_partition_does_not_affect_the_others(one: EmbeddedCluster) -> None:
    await one.create_topic("t", 2)
    one.on(ProduceRequest, topic="t", partition=1).fail(ErrorCode.KAFKA_STORAGE_ERROR)
    request = produce_request("t", batch())
    request.topic_data[0].partition_data.append(ProduceRequestPartition(index=1, records=batch()))
    async with Peer(one) as peer:
        (topic,) = (await peer.ask(request, 9)).responses
        assert {part.index: part.error_code for part in topic.partition_responses} == {0: 0, 1: 56}
        assert (await peer.offset("t", -1)).offset == 1
        assert (await peer.offset("t", -1, partition=1)).offset == 0


async def test_a_disconnect_writes_nothing(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", assignments=[[1]])
    cluster.on(ProduceRequest).disconnect()
    async with Peer(cluster) as peer:
        with pytest.raises(ConnectionLost):
            await peer.produce("t", batch())
            raise ConnectionLost("the end came without a reset", sent=True)
    async with Peer(cluster) as peer:
        assert (await peer.produce("t", batch())).base_offset == 0


async def test_apply_then_disconnect_writes(one: EmbeddedCluster) -> None:
    await one.create_topic("t")
    one.on(ProduceRequest).apply_then_disconnect()
    async with Peer(one) as peer:
        peer.send(produce_request("t", batch()), 9)
        with pytest.raises(ConnectionLost):
            if await peer.receive() is None:
                raise ConnectionLost("ended", sent=True)
    async with Peer(one) as peer:
        assert (await peer.produce("t", batch())).base_offset == 1
    (first, _) = one.history.of(ProduceRequest)
    assert first.response is not None


async def test_a_dropped_request_is_never_answered(one: EmbeddedCluster) -> None:
    fault = one.on(MetadataRequest).drop()
    async with Peer(one) as peer:
        peer.send(MetadataRequest(topics=[]), 9)
        await until(lambda: fault.hits, "the request is at the broker")
        assert one.history[0].response is None
        assert len(one.nodes[1].connections) == 1


async def test_a_delay_comes_before_the_answer(one: EmbeddedCluster) -> None:
    one.on(MetadataRequest).delay(0.05)
    async with Peer(one) as peer:
        began = time.perf_counter()
        await peer.ask(MetadataRequest(topics=[]))
        assert time.perf_counter() - began >= 0.049


async def test_responses_can_be_truncated_replaced_and_computed(one: EmbeddedCluster) -> None:
    one.on(MetadataRequest).answer(lambda request: MetadataResponse(brokers=[], topics=[], controller_id=77))
    async with Peer(one) as peer:
        assert (await peer.ask(MetadataRequest(topics=[]), 9)).controller_id == 77
        one.on(MetadataRequest).truncate(10)
        peer.send(MetadataRequest(topics=[]), 9)
        with pytest.raises(ConnectionLost):
            await peer.receive()
    one.on(MetadataRequest).reply_bytes(b"\0\0\0\4\xde\xad\xbe\xef")
    async with Peer(one) as peer:
        peer.send(MetadataRequest(topics=[]), 9)
        assert await peer.stream.read_frame() == b"\xde\xad\xbe\xef"


async def test_a_fault_names_its_node_and_ends_with_its_block(three: EmbeddedCluster) -> None:
    with three.on(MetadataRequest, node=2, times=None).fail(ErrorCode.UNKNOWN_SERVER_ERROR) as fault:
        for node, hits in ((1, 0), (2, 1), (2, 2), (3, 2)):
            async with Peer(three, node) as peer:
                await peer.ask(MetadataRequest(topics=[]))
            assert fault.hits == hits
    async with Peer(three, 2) as peer:
        assert (await peer.ask(MetadataRequest(topics=[]))).error_code == 0


async def test_the_history_holds_typed_requests_and_answers(one: EmbeddedCluster) -> None:
    await one.create_topic("t")
    async with Peer(one) as peer:
        await peer.produce("t", batch(), version=9)
        await peer.fetch("t", 0)
    (produce,) = one.history.of(ProduceRequest)
    assert (produce.node_id, produce.version, produce.client_id) == (1, 9, "peer")
    assert isinstance(produce.request, ProduceRequest)
    (fetch,) = one.history.of(FetchRequest)
    assert fetch.response is not None
    one.history.clear()
    assert len(one.history) == 0


async def test_a_killed_broker_handles_no_more_requests(one: EmbeddedCluster) -> None:
    await one.create_topic("t")
    async with Peer(one) as waiting, Peer(one) as peer:
        one.on(MetadataRequest).answer(lambda request: asyncio.get_running_loop().create_future())
        waiting.send(MetadataRequest(topics=[]), 9)
        while not len(one.history):
            await asyncio.sleep(0)
        await one.freeze(1)
        peer.send(produce_request("t", batch(b"a"), acks=1), 9)
        await asyncio.sleep(0.01)
        await one.kill(1)
        with pytest.raises(ConnectionLost):
            await peer.receive()
    await until(lambda: not one.nodes[1].connections, "the killed node has closed its connections")
    assert one.nodes[1].replica_manager.partitions["t", 0].log.end_offset == 0


# Faults that cannot have an effect.


@pytest.mark.parametrize(
    ("effect", "problem"),
    [
        (lambda fault: fault.fail("NOT_LEADER"), "did you mean ErrorCode.NOT_LEADER_OR_FOLLOWER?"),
        (lambda fault: fault.fail("STR"), "code must be an ErrorCode or its number, got 'STR'"),
        (lambda fault: fault.fail(None), "code must be an ErrorCode or its number, got None"),
        (lambda fault: fault.fail(9999), "code must be the number of an ErrorCode, got 9999"),
        (lambda fault: fault.fail(6, times=0.5), "times must be a whole number >= 1, got 0.5"),
        (lambda fault: fault.delay("1"), "seconds must be a number of seconds >= 0, got '1'"),
        (lambda fault: fault.delay(-1), "seconds must be a number of seconds >= 0, got -1"),
        (lambda fault: fault.truncate(-1), "size must be a whole number >= 0, got -1"),
        (lambda fault: fault.reply_bytes("text"), "data must be bytes, got 'text'"),
        (lambda fault: fault.answer(1), "function must be a function, got 1"),
        (lambda fault: fault.alter(None), "function must be a function, got None"),
    ],
)
async def test_a_wrong_argument_of_an_effect_is_an_error(
    one: EmbeddedCluster, effect: Callable[[Any], object], problem: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=re.escape(problem)):
        effect(one.on(MetadataRequest))


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"node": 7}, "node must be the id of a broker: 1, got 7"),
        ({"nth": 0}, "nth must be a whole number >= 1, got 0"),
        ({"times": 0}, "times must be a whole number >= 1, got 0"),
    ],
)
async def test_a_selection_that_no_request_matches_is_an_error(
    one: EmbeddedCluster, fields: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(problem)):
        one.on(MetadataRequest, **fields)


async def test_a_fault_that_was_never_hit_is_named(caplog: pytest.LogCaptureFixture) -> None:
    async with EmbeddedCluster(brokers=1, tcp=False) as cluster:
        cluster.on(MetadataRequest).delay(0)
        cluster.on(FetchRequest).disconnect()
        cluster.on(MetadataRequest, topic="orders").drop()
        with cluster.on(MetadataRequest, nth=3) as fault:
            fault.fail(ErrorCode.UNKNOWN_SERVER_ERROR)
            async with Peer(cluster) as peer:
                await peer.ask(MetadataRequest(topics=None), 9)
                await peer.ask(MetadataRequest(topics=None), 9)
        with pytest.raises(AssertionError, match="<Fault FetchRequest DISCONNECT hits=0> was never hit"):
            cluster.faults.raise_for_unused()
    assert [line for line in caplog.messages if "never hit" in line] == [
        "<Fault FetchRequest DISCONNECT hits=0> was never hit: no FetchRequest came",
        "<Fault MetadataRequest topic=orders DROP hits=0> was never hit: 1 MetadataRequest came, and none matched",
        "<Fault MetadataRequest FAIL hits=0> was never hit: 1 MetadataRequest came, 1 matched, and nth is 3",
    ]


async def test_no_fault_is_named_if_all_were_hit(one: EmbeddedCluster) -> None:
    one.on(MetadataRequest).delay(0)
    async with Peer(one) as peer:
        await peer.ask(MetadataRequest(topics=None), 9)
    one.faults.raise_for_unused()
