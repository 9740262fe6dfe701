"""Faults of connections and brokers: no acknowledged record is lost, doubled or reordered."""

from __future__ import annotations

import asyncio
import logging
import re
from typing import Any

import pytest

from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.embedded.faults import Fault
from aiokafka_lite.errors import (
    AuthorizationError,
    BrokerError,
    ErrorCode,
    InvalidTopic,
    KafkaError,
    KafkaTimeout,
    ProducerFenced,
    RecordTooLarge,
    UnsupportedVersion,
)
from aiokafka_lite.producer import Producer
from aiokafka_lite.protocol.messages import (
    ApiVersionsRequest,
    InitProducerIdRequest,
    MetadataRequest,
    ProduceRequest,
    ProduceResponse,
    ProduceResponsePartition,
    ProduceResponseRecordError,
    ProduceResponseTopic,
)
from tests.embedded.producer.cut_frames import CuttingConnector
from tests.embedded.producer.producers_and_logs import batches_of, producer_of, values_of

RETRIABLE = [code for code in ErrorCode if code.retriable]
LASTING = [
    (ErrorCode.TOPIC_AUTHORIZATION_FAILED, AuthorizationError),
    (ErrorCode.INVALID_TOPIC_EXCEPTION, InvalidTopic),
    (ErrorCode.INVALID_RECORD, BrokerError),
    (ErrorCode.INVALID_TIMESTAMP, BrokerError),
    (ErrorCode.INVALID_REQUIRED_ACKS, BrokerError),
    (ErrorCode.UNKNOWN_SERVER_ERROR, BrokerError),
]


def numbered(count: int, start: int = 0) -> list[bytes]:
    return [b"%06d" % number for number in range(start, start + count)]


async def send_in_batches(producer: Producer, values: list[bytes], topic: str = "t") -> list[Any]:
    """Send values as one batch each, several of them in flight. Returns the result of each."""
    deliveries = []
    for value in values:
        deliveries.append(producer.send_nowait(topic, value, partition=0))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    return await asyncio.gather(*deliveries, return_exceptions=True)


FAULTS = {
    "reset before the broker has read it": lambda fault: fault.disconnect(),
    "reset after the broker has written it": lambda fault: fault.apply_then_disconnect(),
    "half an answer": lambda fault: fault.truncate(10),
    "garbage for an answer": lambda fault: fault.reply_bytes(b"\x00\x00\x00\x08\x7f\xff\xff\xff\x00\x00\x00\x00"),
    "a frame of negative size": lambda fault: fault.reply_bytes(b"\xff\xff\xff\xff"),
    "no answer": lambda fault: fault.drop(),
    "too few replicas": lambda fault: fault.fail(ErrorCode.NOT_ENOUGH_REPLICAS),
    "wrong leader": lambda fault: fault.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER),
}


@pytest.mark.parametrize("in_flight", [1, 5])
@pytest.mark.parametrize("failures", [1, 3])
@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("fault", FAULTS)
async def test_records_arrive_once_and_in_order(
    cluster: EmbeddedCluster, fault: str, nth: int, failures: int, in_flight: int
) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(
        cluster, request_timeout=2.0, batch_size=100, max_in_flight_requests_per_connection=in_flight
    ) as producer:
        await producer.send("t", b"000000")
        FAULTS[fault](cluster.on(ProduceRequest, nth=nth, times=failures))
        results = await send_in_batches(producer, numbered(20, 1))
    assert values_of(cluster, "t") == numbered(21)
    assert [result.offset for result in results] == list(range(1, 21))


@pytest.mark.parametrize("settings", [{}, {"max_in_flight_requests_per_connection": 1}, {"acks": 1}], ids=str)
@pytest.mark.parametrize("cut", [{1}, {1, 2, 3, 4}], ids=str)
@pytest.mark.parametrize("length", [2, 4, 9, 60, -1])
async def test_records_of_a_truncated_request_are_written_once_and_in_order(
    cluster: EmbeddedCluster, length: int, cut: set[int], settings: dict[str, Any]
) -> None:
    await cluster.create_topic("t", 1)
    assert cluster.connector is not None
    way = CuttingConnector(cluster.connector, cut, length)
    async with Producer(cluster.bootstrap_servers, connector=way, batch_size=100, **settings) as producer:
        await producer.send("t", b"000000")
        results = await send_in_batches(producer, numbered(20, 1))
        assert producer.metrics().retries >= len(cut)
    assert values_of(cluster, "t") == numbered(21)
    assert [result.offset for result in results] == list(range(1, 21))


@pytest.mark.parametrize("fault", FAULTS)
async def test_without_idempotence_records_arrive_in_order_and_perhaps_twice(
    cluster: EmbeddedCluster, fault: str
) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster, request_timeout=2.0, batch_size=100, acks=1) as producer:
        FAULTS[fault](cluster.on(ProduceRequest, nth=2, times=2))
        await send_in_batches(producer, numbered(20))
    assert list(dict.fromkeys(values_of(cluster, "t"))) == numbered(20)


@pytest.mark.parametrize("code", RETRIABLE, ids=lambda code: code.name)
async def test_a_retriable_error_is_retried(cluster: EmbeddedCluster, code: ErrorCode) -> None:
    await cluster.create_topic("t", 2)
    async with producer_of(cluster) as producer:
        cluster.on(ProduceRequest, topic="t", partition=0).fail(code, times=2)
        failing = producer.send_nowait("t", b"v", partition=0)
        other = producer.send_nowait("t", b"v", partition=1)
        assert (await other).offset == 0
        assert not failing.done()
        assert (await failing).offset == 0


@pytest.mark.parametrize("code, kind", LASTING, ids=lambda value: getattr(value, "name", ""))
async def test_a_lasting_error_fails_the_batch_and_nothing_after_it(
    cluster: EmbeddedCluster, code: ErrorCode, kind: type[KafkaError]
) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster, batch_size=100) as producer:
        await producer.send("t", b"first")
        cluster.on(ProduceRequest).fail(code)
        results = await send_in_batches(producer, numbered(5))
        assert type(results[0]) is kind
        assert results[0].code is code
        assert "t-0" in str(results[0])
        assert [result.offset for result in results[1:]] == [1, 2, 3, 4]
        assert producer.metrics().buffered_bytes == 0
    assert values_of(cluster, "t") == [b"first", *numbered(4, 1)]


async def test_an_error_in_the_handshake_is_retried_with_any_code(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster) as producer:
        await producer.send("t", b"first")
        cluster.on(ProduceRequest).disconnect()
        refusals = cluster.on(ApiVersionsRequest, times=2).fail(ErrorCode.UNKNOWN_SERVER_ERROR)
        assert (await producer.send("t", b"second")).offset == 1
        assert refusals.hits == 2


async def test_a_partition_that_backs_off_does_not_delay_others_of_its_broker(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 2, assignments=[[1], [1]])
    async with producer_of(cluster) as producer:
        await producer.partitions_for("t")
        with cluster.on(ProduceRequest, topic="t", partition=0, times=None).fail(ErrorCode.NOT_ENOUGH_REPLICAS):
            stuck = producer.send_nowait("t", b"v", partition=0)
            for _ in range(20):
                await producer.send("t", b"v", partition=1, timeout=0.1)
            assert not stuck.done()
        assert (await stuck).offset == 0


async def test_retries_are_paced(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster, delivery_timeout=20.0) as producer:
        with (
            cluster.on(ProduceRequest, times=None).fail(ErrorCode.NOT_LEADER_OR_FOLLOWER) as fault,
            pytest.raises(KafkaTimeout, match=r"t-0.*delivery_timeout=20.*NOT_LEADER") as caught,
        ):
            await producer.send("t", b"v")
        assert isinstance(caught.value.__cause__, BrokerError)
        assert 15 < fault.hits < 40
        assert len(cluster.history.of(MetadataRequest)) < 80
        assert (await producer.send("t", b"w")).offset == 0


# Leaders.


async def test_a_leader_that_moves_is_followed(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1, 3)
    async with producer_of(cluster, batch_size=100) as producer:
        await producer.send("t", b"000000")
        cluster.history.clear()
        deliveries = []
        for number in range(1, 200):
            deliveries.append(producer.send_nowait("t", b"%06d" % number))
            await asyncio.sleep(0.001)
            if number % 50 == 0:
                await cluster.move_leader("t", 0)
        assert [(await delivery).offset for delivery in deliveries] == list(range(1, 200))
        assert len(cluster.history.of(MetadataRequest)) <= 3 * 3
    assert values_of(cluster, "t") == numbered(200)


async def test_a_killed_leader_is_replaced_and_nothing_is_lost(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1, 3)
    async with producer_of(cluster, batch_size=100, request_timeout=5.0) as producer:
        await producer.send("t", b"000000")
        leader = cluster.leader_of("t", 0)
        deliveries = []
        for number in range(1, 100):
            deliveries.append(producer.send_nowait("t", b"%06d" % number))
            await asyncio.sleep(0.01)
            if number == 30:
                await cluster.kill(leader, noticed_after=2.0)
        await producer.flush()
        assert [(await delivery).offset for delivery in deliveries] == list(range(1, 100))
    assert values_of(cluster, "t") == numbered(100)


async def test_a_broker_that_comes_back_is_used_again_at_once(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1, assignments=[[2]])
    loop = asyncio.get_running_loop()
    async with producer_of(cluster) as producer:
        await producer.send("t", b"0")
        await cluster.kill(2)
        waiting = producer.send_nowait("t", b"1")
        await asyncio.sleep(20)
        assert not waiting.done()
        await cluster.start_node(2)
        before = loop.time()
        assert (await waiting).offset == 1
        assert loop.time() - before < 20.0


async def test_a_partition_without_a_leader_waits_and_others_do_not(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 2, assignments=[[1], [2]])
    async with producer_of(cluster, delivery_timeout=30.0) as producer:
        await producer.send("t", b"v", partition=0)
        await cluster.stop(1)
        waiting = producer.send_nowait("t", b"v", partition=0)
        for _ in range(10):
            await producer.send("t", b"v", partition=1, timeout=1.0)
            await asyncio.sleep(1.0)
        assert not waiting.done()
        await cluster.start_node(1)
        assert (await waiting).offset == 1
        await cluster.stop(1)
        with pytest.raises(KafkaTimeout, match=r"t-0.*leader"):
            await producer.send("t", b"v", partition=0)


@pytest.mark.parametrize("noticed", [False, True])
async def test_after_a_freeze_longer_than_the_delivery_timeout_records_are_written_again(
    cluster: EmbeddedCluster, noticed: bool
) -> None:
    await cluster.create_topic("t", 2, assignments=[[1], [2]])
    cluster.broker_session_timeout = 5.0 if noticed else 1_000.0
    loop = asyncio.get_running_loop()
    async with producer_of(cluster, delivery_timeout=10.0, request_timeout=4.0, batch_size=100) as producer:
        await producer.send("t", b"000000", partition=0)
        await producer.send("t", b"other", partition=1)
        await cluster.freeze(1)
        results = await send_in_batches(producer, numbered(10, 1))
        assert all(isinstance(result, KafkaTimeout) for result in results)
        await asyncio.sleep(20)
        await cluster.thaw(1)
        before = loop.time()
        for number in range(11, 111):
            await producer.send("t", b"%06d" % number, partition=0)
        assert loop.time() - before < 5.0
        await producer.send("t", b"other", partition=1)
    values = values_of(cluster, "t")
    assert values == sorted(values)  # type: ignore[type-var]
    assert len(values) == len(set(values))
    assert values[-100:] == numbered(100, 11)
    assert {batch.producer_epoch for batch in batches_of(cluster, "t", 1)} == {0}


# Idempotence.


@pytest.mark.parametrize("code", [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID])
async def test_a_refused_sequence_changes_the_epoch_of_that_partition_only(
    cluster: EmbeddedCluster, code: ErrorCode
) -> None:
    await cluster.create_topic("t", 2, assignments=[[1], [1]])
    async with producer_of(cluster, batch_size=100) as producer:
        for partition in (0, 1):
            await producer.send("t", b"first", partition=partition)
        cluster.on(ProduceRequest, topic="t", partition=0).fail(code)
        results = await send_in_batches(producer, numbered(5))
        await producer.send("t", b"last", partition=1)
        assert [result.offset for result in results] == [1, 2, 3, 4, 5]
    assert values_of(cluster, "t") == [b"first", *numbered(5)]
    first, *later = batches_of(cluster, "t")
    assert (first.producer_epoch, first.base_sequence) == (0, 0)
    assert {batch.producer_epoch for batch in later} == {1}
    assert [batch.base_sequence for batch in later] == [batch.base_offset - 1 for batch in later]
    assert [batch.producer_epoch for batch in batches_of(cluster, "t", 1)] == [0, 0]
    assert [batch.base_sequence for batch in batches_of(cluster, "t", 1)] == [0, 1]


async def test_a_duplicate_sequence_is_a_success_without_an_offset(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    cluster.on(ProduceRequest).fail(ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
    async with producer_of(cluster) as producer:
        assert (await producer.send("t", b"v")).offset == -1
        assert (await producer.send("t", b"w")).offset >= 0


USELESS_IDS = (
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.UNKNOWN_PRODUCER_ID,
)


@pytest.mark.parametrize("code", USELESS_IDS)
async def test_a_broker_that_forgets_the_producer_id_costs_no_record(cluster: EmbeddedCluster, code: ErrorCode) -> None:
    await cluster.create_topic("t", 2, assignments=[[1], [1]])
    async with producer_of(cluster, batch_size=100) as producer:
        await producer.send("t", b"first", partition=0)
        await producer.send("t", b"first", partition=1)
        forgotten = {(batch.producer_id, batch.producer_epoch) for batch in batches_of(cluster, "t")}

        cluster.on(ProduceRequest).fail(code)
        sends = [producer.send_nowait("t", b"%d" % number, partition=number % 2) for number in range(6)]
        async with asyncio.timeout(10.0):
            offsets = [(await delivery).offset for delivery in sends]
        assert offsets == [1, 1, 2, 2, 3, 3]
        assert forgotten.isdisjoint((batch.producer_id, batch.producer_epoch) for batch in batches_of(cluster, "t")[1:])
    assert values_of(cluster, "t", 0) == [b"first", b"0", b"2", b"4"]
    assert values_of(cluster, "t", 1) == [b"first", b"1", b"3", b"5"]


@pytest.mark.parametrize("code", USELESS_IDS)
async def test_a_producer_id_that_is_refused_forever_is_an_error_without_a_transactional_id(
    cluster: EmbeddedCluster, code: ErrorCode, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster, delivery_timeout=20.0, request_timeout=5.0) as producer:
        await producer.send("t", b"first")
        with cluster.on(ProduceRequest, times=None).fail(code):
            with pytest.raises(KafkaTimeout) as caught:
                await producer.send("t", b"v")
            assert "transactional" not in str(caught.value)
            assert len(cluster.history.of(ProduceRequest)) < 40
        assert (await producer.send("t", b"last")).offset == 1
    assert not any("transactional" in record.getMessage() for record in caplog.records)
    assert sum(record.levelno >= logging.WARNING for record in caplog.records) <= 2


@pytest.mark.parametrize(
    "settings, code, advice",
    [
        ({}, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, "set idempotence=False"),
        (
            {"compression": "zstd"},
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            'set idempotence=False or compression="none"',
        ),
        (
            {"compression": "zstd", "idempotence": False},
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            'set compression="none"',
        ),
        ({"compression": "zstd"}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, 'set compression="none"'),
    ],
)
async def test_a_refused_record_format_names_the_setting(
    cluster: EmbeddedCluster, settings: dict[str, Any], code: ErrorCode, advice: str
) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster, **settings) as producer:
        cluster.on(ProduceRequest).fail(code)
        with pytest.raises(BrokerError, match=re.escape(f"; {advice} ({code.name})")):
            await producer.send("t", b"v")


async def test_a_broker_without_producer_ids_names_the_setting(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    for node in cluster.nodes.values():
        del node.versions[InitProducerIdRequest.api_key]
    async with producer_of(cluster) as producer:
        with pytest.raises(UnsupportedVersion, match=r"does not support InitProducerId.*idempotence=False"):
            await producer.send("t", b"v")


async def test_an_outdated_epoch_changes_the_producer_id_and_loses_no_record(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 2, assignments=[[1], [1]])
    async with producer_of(cluster, batch_size=100) as producer:
        for partition in (0, 1):
            await producer.send("t", b"first", partition=partition)
        cluster.on(ProduceRequest, topic="t", partition=0, times=3).fail(ErrorCode.INVALID_PRODUCER_EPOCH)
        results = await send_in_batches(producer, numbered(5))
        await producer.send("t", b"last", partition=1)
        assert [result.offset for result in results] == [1, 2, 3, 4, 5]
    assert values_of(cluster, "t") == [b"first", *numbered(5)]
    first, *later = batches_of(cluster, "t")
    assert {batch.producer_id for batch in later} != {first.producer_id}
    assert [batch.base_sequence for batch in later] == [batch.base_offset - 1 for batch in later]
    assert {batch.producer_epoch for batch in later} == {0}
    assert {batch.producer_id for batch in batches_of(cluster, "t", 1)} == {first.producer_id}


async def test_a_batch_that_may_be_written_fails_at_an_outdated_epoch_and_is_not_written_again(
    cluster: EmbeddedCluster,
) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster, batch_size=100) as producer:
        await producer.send("t", b"first")
        cluster.on(ProduceRequest, times=1).apply_then_disconnect()
        cluster.on(ProduceRequest, times=2).fail(ErrorCode.INVALID_PRODUCER_EPOCH)
        with pytest.raises(BrokerError, match=r"t-0.*continues under another id") as caught:
            await producer.send("t", b"v")
        assert not isinstance(caught.value, ProducerFenced), "no producer has taken over"
        assert (await producer.send("t", b"last")).offset == 2
    assert values_of(cluster, "t") == [b"first", b"v", b"last"]


async def test_records_wait_for_a_producer_id_and_are_sent_then(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    cluster.on(InitProducerIdRequest).fail(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=10)
    async with producer_of(cluster) as producer:
        results = await send_in_batches(producer, numbered(10))
    assert [result.offset for result in results] == list(range(10))


async def test_a_producer_id_that_is_refused_says_what_to_do(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    cluster.on(InitProducerIdRequest, times=None).fail(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    async with producer_of(cluster) as producer:
        with pytest.raises(AuthorizationError, match="idempotence=False"):
            await producer.send("t", b"v")


async def test_the_sequence_survives_a_moment_without_the_topic_in_metadata(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster) as producer:
        await producer.send("t", b"0")
        with cluster.on(MetadataRequest, times=None).fail(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            producer._client.request_refresh(["t"])
            await asyncio.sleep(1.0)
            waiting = producer.send_nowait("t", b"1")
            await asyncio.sleep(1.0)
        assert (await waiting).offset == 1
    assert [(batch.producer_epoch, batch.base_sequence) for batch in batches_of(cluster, "t")] == [(0, 0), (0, 1)]


# Batches that a broker refuses as they are.


async def test_a_batch_that_is_too_large_is_split_in_order_until_only_the_large_record_fails(
    cluster: EmbeddedCluster,
) -> None:
    await cluster.create_topic("t", 1, configs={"max.message.bytes": "2000"})
    async with producer_of(cluster) as producer:
        await producer.partitions_for("t")
        values = [*numbered(300), b"x" * 5_000, *numbered(300, 300)]
        deliveries = [producer.send_nowait("t", value) for value in values]
        results = await asyncio.gather(*deliveries, return_exceptions=True)
        assert type(results[300]) is RecordTooLarge
        assert [result.offset for result in results if not isinstance(result, Exception)] == list(range(600))
        assert (await producer.send("t", b"%06d" % 600)).offset == 600
        assert producer.metrics().buffered_bytes == 0
    assert values_of(cluster, "t") == numbered(601)


async def test_a_batch_that_is_split_keeps_its_place_among_those_in_flight(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster, batch_size=200) as producer:
        await producer.partitions_for("t")
        cluster.on(ProduceRequest, nth=2).fail(ErrorCode.MESSAGE_TOO_LARGE)
        deliveries = [producer.send_nowait("t", value) for value in numbered(60)]
        assert [(await delivery).offset for delivery in deliveries] == list(range(60))
    assert values_of(cluster, "t") == numbered(60)


def naming(*indices: int) -> Any:
    def answer(request: ProduceRequest) -> ProduceResponse:
        (topic,) = request.topic_data
        errors = [
            ProduceResponseRecordError(batch_index=index, batch_index_error_message="no key") for index in indices
        ]
        partition = ProduceResponsePartition(
            index=0,
            error_code=ErrorCode.INVALID_RECORD,
            base_offset=-1,
            record_errors=errors,
            error_message="One or more records have been rejected",
        )
        answered = ProduceResponseTopic(name=topic.name, topic_id=topic.topic_id, partition_responses=[partition])
        return ProduceResponse(responses=[answered])

    return answer


async def test_only_the_records_that_the_broker_names_fail(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster) as producer:
        await producer.partitions_for("t")
        cluster.on(ProduceRequest).answer(naming(1, 3))
        deliveries = [producer.send_nowait("t", value) for value in numbered(6)]
        results = await asyncio.gather(*deliveries, return_exceptions=True)
    failed = [index for index, result in enumerate(results) if isinstance(result, Exception)]
    assert failed == [1, 3]
    assert "record 1: no key" in str(results[1])
    assert [result.offset for result in results if not isinstance(result, Exception)] == [0, 1, 2, 3]
    assert values_of(cluster, "t") == [b"%06d" % number for number in (0, 2, 4, 5)]


# Silence and slowness.


@pytest.mark.parametrize("named", [[99], [-1], [3], []])
async def test_a_batch_fails_as_a_whole_if_the_answer_names_none_of_its_records(
    cluster: EmbeddedCluster, named: list[int]
) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster) as producer:
        await producer.send("t", b"first")
        answer = ProduceResponsePartition(
            index=0,
            error_code=ErrorCode.INVALID_RECORD,
            base_offset=-1,
            record_errors=[ProduceResponseRecordError(batch_index=index) for index in named],
        )
        cluster.history.clear()
        cluster.on(ProduceRequest, times=None).answer(lambda request: answer_of(request, answer))
        deliveries = [producer.send_nowait("t", value) for value in numbered(3)]
        for delivery in deliveries:
            with pytest.raises(BrokerError, match="INVALID_RECORD"):
                await delivery
        assert len(cluster.history.of(ProduceRequest)) == 1


def answer_of(request: ProduceRequest, answer: ProduceResponsePartition) -> ProduceResponse:
    """Return the response with that answer for the request's only topic."""
    topic = request.topic_data[0]
    return ProduceResponse(
        responses=[ProduceResponseTopic(name=topic.name, topic_id=topic.topic_id, partition_responses=[answer])]
    )


async def test_a_negative_offset_is_an_unknown_offset(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster) as producer:
        await producer.send("t", b"first")
        answer = ProduceResponsePartition(index=0, error_code=0, base_offset=-7)
        cluster.on(ProduceRequest, times=1).answer(lambda request: answer_of(request, answer))
        assert (await producer.send("t", b"v")).offset == -1
    assert "at offset -7" in caplog.text


async def test_records_for_a_silent_broker_expire_at_the_delivery_timeout(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    loop = asyncio.get_running_loop()
    with cluster.on(ProduceRequest, times=None).drop():
        async with producer_of(cluster, delivery_timeout=7.0, request_timeout=3.0) as producer:
            await producer.partitions_for("t")
            before = loop.time()
            with pytest.raises(KafkaTimeout, match="delivery_timeout=7"):
                await producer.send("t", b"v")
            assert 7.0 <= loop.time() - before < 7.2


async def test_records_for_a_slow_broker_are_not_sent_again(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    with cluster.on(ProduceRequest, times=None).delay(5.0) as fault:
        async with producer_of(cluster, batch_size=100, request_timeout=30.0) as producer:
            results = await send_in_batches(producer, numbered(20))
            assert fault.hits <= 20
    assert [result.offset for result in results] == list(range(20))


def throttled(seconds: float) -> Any:
    def answer(request: ProduceRequest) -> ProduceResponse:
        (topic,) = request.topic_data
        partition = ProduceResponsePartition(index=0, error_code=0, base_offset=0)
        answered = ProduceResponseTopic(name=topic.name, topic_id=topic.topic_id, partition_responses=[partition])
        return ProduceResponse(responses=[answered], throttle_time_ms=int(seconds * 1000))

    return answer


async def test_records_that_expire_while_the_broker_throttles_name_the_throttle(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster, delivery_timeout=5.0) as producer:
        cluster.on(ProduceRequest).answer(throttled(60.0))
        await producer.send("t", b"1", partition=0)
        with pytest.raises(KafkaTimeout, match=r"broker \d \(.*\) throttles this client, whose quota is used up"):
            await producer.send("t", b"2", partition=0)


async def test_a_throttled_producer_waits_and_its_batches_grow(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    loop = asyncio.get_running_loop()
    async with producer_of(cluster, acks=1) as producer:
        cluster.on(ProduceRequest).answer(throttled(5.0))
        await producer.send("t", b"v")
        before = loop.time()
        deliveries = []
        for number in range(10):
            deliveries.append(producer.send_nowait("t", b"%d" % number))
            await asyncio.sleep(0.1)
        await asyncio.gather(*deliveries)
        assert 4.9 < loop.time() - before < 5.5
    assert [batch.count for batch in batches_of(cluster, "t")] == [10]


async def test_without_acks_a_closed_connection_makes_the_producer_refresh_metadata(
    cluster: EmbeddedCluster,
) -> None:
    await cluster.create_topic("t", 1, 3)
    async with producer_of(cluster, acks=0) as producer:
        assert (await producer.send("t", b"v")).offset == -1
        await asyncio.sleep(1.0)
        await cluster.move_leader("t", 0)
        await producer.send("t", b"lost without notice")
        await asyncio.sleep(1.0)
        await producer.send("t", b"w")
        await asyncio.sleep(1.0)
    assert values_of(cluster, "t") == [b"v", b"w"]


async def test_memory_is_bounded_while_a_broker_does_not_answer(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 3)
    with cluster.on(ProduceRequest, times=None).drop():
        producer = producer_of(cluster, buffer_memory=200_000, max_block=1.0)
        await producer.start()
        results = await asyncio.gather(
            *(producer.send("t", b"x" * 1_000, timeout=3.0) for _ in range(1_000)), return_exceptions=True
        )
        assert all(isinstance(result, KafkaTimeout) for result in results)
        assert producer.metrics().buffered_bytes <= 200_000
        assert sum("max_block" in str(result) for result in results) > 700
        await producer.close(0.0)
    assert producer.metrics().buffered_bytes == 0


def test_every_fault_of_the_table_does_something() -> None:
    """The table of faults above is used by name."""
    for configure in FAULTS.values():
        fault = configure(_fault())
        assert fault.outcome.name != "HANDLE"


def _fault() -> Fault:
    return Fault(ProduceRequest, node=None, topic=None, partition=None, nth=1, times=1, remove=lambda fault: None)
