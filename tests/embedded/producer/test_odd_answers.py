"""Well-formed answers of brokers with wrong values."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import ErrorCode, KafkaTimeout
from aiokafka_lite.protocol.messages import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceResponsePartition,
    ProduceResponseTopic,
)
from tests.embedded.producer.producers_and_logs import batches_of, producer_of
from tests.embedded.producer.test_faults import answer_of


def partition_of(index: int = 0, offset: int = 5) -> ProduceResponsePartition:
    """Return a success for this partition."""
    return ProduceResponsePartition(index=index, error_code=0, base_offset=offset)


@pytest.mark.parametrize("offset", [2**63 - 1, -1, -(2**63)])
@pytest.mark.parametrize("acks", [1, "all"])
async def test_an_acknowledgement_with_an_impossible_offset_is_one_without_an_offset(
    cluster: EmbeddedCluster, offset: int, acks: Any, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster, acks=acks) as producer:
        await producer.send("t", b"first")
        cluster.on(ProduceRequest, times=1).answer(lambda request: answer_of(request, partition_of(0, offset)))
        deliveries = [producer.send_nowait("t", b"v") for _ in range(2)]
        assert [(await delivery).offset for delivery in deliveries] == [-1, -1]
    assert f"at offset {offset}" in caplog.text


@pytest.mark.parametrize(
    "answers",
    [
        [],  # no partition
        [partition_of(7)],  # another one than was asked for
        [partition_of(0), partition_of(0)],  # the same twice
        [partition_of(0), ProduceResponsePartition(index=0, error_code=ErrorCode.INVALID_RECORD, base_offset=-1)],
    ],
    ids=["missing", "other", "twice", "contradicting"],
)
async def test_an_answer_that_does_not_answer_is_retried_and_paced(
    cluster: EmbeddedCluster, answers: list[ProduceResponsePartition]
) -> None:
    await cluster.create_topic("t", 1)

    def answer(request: ProduceRequest) -> ProduceResponse:
        topic = request.topic_data[0]
        return ProduceResponse(
            responses=[ProduceResponseTopic(name=topic.name, topic_id=topic.topic_id, partition_responses=answers)]
        )

    async with producer_of(cluster, delivery_timeout=10.0) as producer:
        await producer.send("t", b"first")
        cluster.history.clear()
        with cluster.on(ProduceRequest, times=None).answer(answer):
            with pytest.raises(KafkaTimeout, match=r"the answer (repeats|does not contain) this partition"):
                await producer.send("t", b"v")
            assert len(cluster.history.of(ProduceRequest)) <= 50  # at most five a second
        assert (await producer.send("t", b"v")).offset == 1


async def test_an_answer_for_a_partition_that_was_not_asked_for_changes_nothing(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 2)
    async with producer_of(cluster) as producer:
        await producer.send("t", b"first", partition=0)

        def answer(request: ProduceRequest) -> ProduceResponse:
            response = answer_of(request, partition_of(0))
            response.responses[0].partition_responses.append(partition_of(1, 77))
            response.responses.append(ProduceResponseTopic(name="x", topic_id=b"x" * 16, partition_responses=[]))
            return response

        cluster.on(ProduceRequest, times=1).answer(answer)
        assert (await producer.send("t", b"v", partition=0)).offset == 5
        assert (await producer.send("t", b"v", partition=1)).offset == 0


@pytest.mark.parametrize("answer", [(-1, 0), (-1, -1), (7, -1), (-5, 3)])
async def test_a_producer_id_below_zero_is_refused_and_requested_again(
    cluster: EmbeddedCluster, answer: tuple[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    """With id -1, brokers would write duplicates: idempotence would be off without a warning."""
    caplog.set_level(logging.INFO)
    await cluster.create_topic("t", 1)
    wrong = InitProducerIdResponse(error_code=0, producer_id=answer[0], producer_epoch=answer[1])
    loop = asyncio.get_running_loop()
    fault = cluster.on(InitProducerIdRequest, times=None).answer(lambda request: wrong)
    async with producer_of(cluster) as producer:
        delivery = producer.send_nowait("t", b"v")
        await asyncio.sleep(10.0)
        assert not delivery.done()
        assert len(cluster.history.of(InitProducerIdRequest)) <= 50  # at most five a second
        fault.remove()
        before = loop.time()
        assert (await delivery).offset == 0
        assert loop.time() - before < 2.0
    assert batches_of(cluster, "t")[0].producer_id >= 0
    assert f"assigned producer id {answer[0]} and epoch {answer[1]}" in caplog.text
