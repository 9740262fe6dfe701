"""Transactions on the embedded cluster, in both generations of the protocol: the calls and their effects."""

from __future__ import annotations

import asyncio
import logging

import pytest

from aiokafka_lite import OffsetAndMetadata
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import (
    ErrorCode,
    IllegalStateError,
    TransactionAborted,
)
from aiokafka_lite.producer import Producer
from aiokafka_lite.producer.transactions.coordinator import LONGEST_MARKER_WAIT
from aiokafka_lite.protocol.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
)
from aiokafka_lite.types import GroupMetadata, TopicPartition
from tests.embedded.producer.producers_and_logs import batches_of, producer_of
from tests.embedded.producer.transaction_requests import (
    GROUP,
    HERE,
    check_three,
    committed_offset,
    committed_values,
    generation_1,
    generation_2,
    metrics_of,
    transactional,
    use_generation,
    write,
)


async def write_record(producer: Producer, number: int) -> None:
    """Write one transaction with one record."""
    async with producer.transaction() as transaction:
        await transaction.send("t", b"%d" % number, partition=0)


@generation_2
async def test_begin_waits_for_a_transaction_that_another_task_begins_and_ends_meanwhile(
    cluster: EmbeddedCluster, producer: Producer
) -> None:
    await write_record(producer, 0)
    # Both wait for the markers of the last transaction.
    await asyncio.gather(write_all(producer, 1), write_all(producer, 2))
    assert sorted(await committed_values(cluster)) == [0, 1, 2]


async def write_all(producer: Producer, number: int) -> None:
    """Write one transaction, whose records are flushed by its commit."""
    await producer.begin_transaction()
    producer.send_nowait("t", b"%d" % number, partition=0)
    await producer.commit_transaction()


# What the protocol needs.


async def test_each_transaction_is_committed_as_a_whole(
    cluster: EmbeddedCluster, generation: int, producer: Producer
) -> None:
    for number in range(3):
        await write(producer, number)
    assert metrics_of(producer).committed == 3
    assert metrics_of(producer).generation == generation
    await check_three(cluster, [0, 1, 2])
    history = cluster.history
    assert bool(history.of(AddPartitionsToTxnRequest)) is (generation == 1)
    assert bool(history.of(AddOffsetsToTxnRequest)) is (generation == 1)
    assert len(history.of(EndTxnRequest)) == 3
    assert len(history.of(InitProducerIdRequest)) == 1


async def test_generation_1_keeps_its_epoch_and_generation_2_raises_it(cluster: EmbeddedCluster) -> None:
    await use_generation(cluster, 2)
    async with transactional(cluster, transactional_id="second") as producer:
        await write(producer, 0)
        await write(producer, 1)
    cluster.set_feature("transaction.version", 1)
    async with transactional(cluster, transactional_id="first") as producer:
        await write(producer, 2)
        await write(producer, 3)
    epochs: dict[int, list[int]] = {}
    for batch in batches_of(cluster, "t"):
        if not batch.is_control:
            assert batch.is_transactional
            epochs.setdefault(batch.producer_id, []).append(batch.producer_epoch)
    by_id = list(epochs.values())
    assert by_id == [[0, 1], [0, 0]]


async def test_a_transaction_of_one_record_takes_two_requests_in_generation_2_and_three_before(
    cluster: EmbeddedCluster, generation: int, producer: Producer
) -> None:
    await write(producer, 0)
    await asyncio.sleep(1.0)
    began = len(cluster.history)
    await write_record(producer, 1)
    adding = [AddPartitionsToTxnRequest] if generation == 1 else []
    requests = [type(exchange.request) for exchange in list(cluster.history)[began:]]
    assert requests == [*adding, ProduceRequest, EndTxnRequest]


async def test_a_transaction_waits_only_until_the_markers_of_the_last_one_are_written(
    cluster: EmbeddedCluster, producer: Producer
) -> None:
    """A leader that adds a partition before that waits for 20 ms, and so does Java's client in generation 1."""
    loop = asyncio.get_running_loop()
    markers = cluster.hold_markers("t", 0)
    await write_record(producer, 0)
    loop.call_later(0.004, markers.release)
    began = loop.time()
    await write_record(producer, 1)
    assert 0.004 <= loop.time() - began < 0.01
    assert await committed_values(cluster) == [0, 1]


@generation_2
async def test_a_transaction_begins_20_ms_after_the_last_one_even_without_its_markers(
    cluster: EmbeddedCluster, producer: Producer
) -> None:
    loop = asyncio.get_running_loop()
    with cluster.hold_markers("t", 0):
        await write_record(producer, 0)
        ended = loop.time()
        await producer.begin_transaction()
    assert loop.time() - ended == pytest.approx(LONGEST_MARKER_WAIT, abs=1e-3)
    assert len(cluster.history.of(DescribeTransactionsRequest)) < 10
    await producer.abort_transaction()  # the coordinator does not know it
    count = len(cluster.history.of(DescribeTransactionsRequest))
    await producer.begin_transaction()
    assert len(cluster.history.of(DescribeTransactionsRequest)) == count


@generation_2
@pytest.mark.parametrize("timeout, waited", [(None, LONGEST_MARKER_WAIT), (0.005, 0.005)])
async def test_a_lost_answer_about_the_markers_delays_a_transaction_no_further(
    cluster: EmbeddedCluster, producer: Producer, timeout: float | None, waited: float
) -> None:
    loop = asyncio.get_running_loop()
    await write_record(producer, 0)
    ended = loop.time()
    with cluster.on(DescribeTransactionsRequest).delay(5.0):
        await producer.begin_transaction(timeout=timeout)
    assert loop.time() - ended == pytest.approx(waited, abs=1e-3)
    await producer.abort_transaction()


@generation_2
async def test_a_coordinator_that_does_not_say_whether_the_markers_are_written_is_asked_once(
    cluster: EmbeddedCluster, producer: Producer
) -> None:
    loop = asyncio.get_running_loop()
    await write_record(producer, 0)
    ended = loop.time()
    with cluster.on(DescribeTransactionsRequest).fail(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED):
        await write_record(producer, 1)
    assert loop.time() == pytest.approx(ended, abs=1e-3)
    assert len(cluster.history.of(DescribeTransactionsRequest)) == 1


@generation_1
async def test_the_generation_is_read_again_with_a_new_connection(cluster: EmbeddedCluster, producer: Producer) -> None:
    await write(producer, 0)
    assert metrics_of(producer).generation == 1
    cluster.set_feature("transaction.version", 2)
    with cluster.on(EndTxnRequest, times=1).apply_then_disconnect():
        await write(producer, 1)
    await write(producer, 2)
    assert metrics_of(producer).generation == 2
    await check_three(cluster, [0, 1, 2])


async def test_an_empty_transaction_sends_nothing(cluster: EmbeddedCluster, producer: Producer) -> None:
    async with producer.transaction():
        pass
    await producer.begin_transaction()
    await producer.abort_transaction()
    assert not cluster.history.of(EndTxnRequest)
    await write(producer, 0)
    await check_three(cluster, [0])


# The calls of the user.


@generation_2
async def test_calls_outside_of_their_state_are_refused(cluster: EmbeddedCluster, producer: Producer) -> None:
    with pytest.raises(IllegalStateError, match="no transaction is open"):
        await producer.commit_transaction()
    with pytest.raises(IllegalStateError, match="no transaction is open"):
        await producer.abort_transaction()
    with pytest.raises(IllegalStateError, match="no transaction is open"):
        await producer.send_offsets_to_transaction({HERE: OffsetAndMetadata(1)}, GROUP)
    async with producer.transaction() as transaction:
        with pytest.raises(IllegalStateError, match="a transaction is open"):
            await producer.begin_transaction()
        with pytest.raises(IllegalStateError, match="used once"):
            await transaction.__aenter__()
    with pytest.raises(TypeError, match="group_metadata must be a GroupMetadata"):
        await producer.send_offsets_to_transaction({}, "billing")  # type: ignore[arg-type]
    async with producer_of(cluster) as plain:
        with pytest.raises(IllegalStateError, match="require transactional_id"):
            plain.transaction()


@generation_2
async def test_a_transaction_that_the_body_has_ended_is_left_alone(
    cluster: EmbeddedCluster, producer: Producer
) -> None:
    async with producer.transaction() as transaction:
        await transaction.send("t", b"1", partition=0)
        await producer.commit_transaction()
        with pytest.raises(IllegalStateError, match="inside its 'async with' block"):
            transaction.send_nowait("t", b"2", partition=0)
    assert await committed_values(cluster) == [1]


async def test_a_call_that_waited_for_room_does_not_write_to_the_next_transaction(cluster: EmbeddedCluster) -> None:
    await use_generation(cluster, 2)
    async with transactional(cluster, buffer_memory=20_000, max_request_size=16_000) as producer:
        await producer.begin_transaction()
        cluster.on(ProduceRequest, times=1).delay(2.0)
        first = producer.send_nowait("t", b"1" * 12_000, partition=0)
        await asyncio.sleep(0.5)
        waiting = asyncio.create_task(producer.send("t", b"2" * 12_000, partition=0))
        await asyncio.sleep(0.5)
        await producer.abort_transaction()
        await producer.begin_transaction()
        with pytest.raises(IllegalStateError, match=r"its transaction ended|is being aborted"):
            await waiting
        await producer.send("t", b"3", partition=0)
        await producer.commit_transaction()
        with pytest.raises(TransactionAborted):
            await first
    assert await committed_values(cluster) == [3]


async def test_an_abort_waits_for_requests_in_flight_in_generation_1_only(
    cluster: EmbeddedCluster, generation: int, producer: Producer
) -> None:
    """A batch that a broker appends behind the marker would belong to the next transaction, or hang."""
    await write(producer, 0)
    await producer.begin_transaction()
    cluster.on(ProduceRequest, times=1).delay(3.0)
    delivery = producer.send_nowait("t", b"1", partition=0)
    await asyncio.sleep(1.0)
    began = asyncio.get_running_loop().time()
    await producer.abort_transaction()
    took = asyncio.get_running_loop().time() - began
    assert took >= 1.9 if generation == 1 else took < 1.0
    assert delivery.done()
    await write(producer, 2)
    await check_three(cluster, [0, 2])


async def test_an_abort_drops_records_that_wait_for_their_topic(cluster: EmbeddedCluster, producer: Producer) -> None:
    await producer.begin_transaction()
    pending = producer.send_nowait("new-topic", b"1")
    await producer.abort_transaction()
    with pytest.raises(TransactionAborted):
        await pending
    await write(producer, 2)
    await check_three(cluster, [2])


@generation_2
async def test_a_commit_refuses_offsets_that_are_still_being_sent(cluster: EmbeddedCluster, producer: Producer) -> None:
    await producer.begin_transaction()
    cluster.on(TxnOffsetCommitRequest, times=1).delay(1.0)
    sending = asyncio.create_task(producer.send_offsets_to_transaction({HERE: OffsetAndMetadata(1)}, GROUP))
    await asyncio.sleep(0.5)
    with pytest.raises(IllegalStateError, match="await it before the commit"):
        await producer.commit_transaction()
    await sending
    await producer.commit_transaction()
    assert await committed_offset(cluster) == 1


@pytest.mark.usefixtures("generation")
async def test_metrics_and_diagnose_show_the_open_transaction(cluster: EmbeddedCluster) -> None:
    producer = transactional(cluster)
    assert producer.metrics().transactions is None
    async with producer:
        assert metrics_of(producer).state == "READY"
        assert metrics_of(producer).open_for is None
        async with producer.transaction() as transaction:
            await transaction.send("t", b"1", partition=0)
            await asyncio.sleep(2.0)
            metrics = metrics_of(producer)
            assert metrics.state == "IN_TRANSACTION"
            assert metrics.open_for is not None
            assert 2.0 <= metrics.open_for < 3.0
            assert metrics.partitions == 1
            assert metrics.coordinator is not None
            assert metrics.coordinator.node_id in cluster.nodes
            assert "IN_TRANSACTION" in str(producer.diagnose())
            assert "IN_TRANSACTION" in repr(transaction)


@generation_2
async def test_aborts_are_logged_with_their_cause(producer: Producer, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "aiokafka_lite.producer"), pytest.raises(ZeroDivisionError):
        async with producer.transaction() as transaction:
            transaction.send_nowait("t", b"1")
            raise ZeroDivisionError
    lines = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert lines == [("INFO", "aborting transaction 1 of 'orders-1': the caller aborts it")]


@pytest.mark.usefixtures("generation")
async def test_closing_aborts_an_open_transaction_and_waits_for_a_commit(cluster: EmbeddedCluster) -> None:
    async with transactional(cluster) as producer:
        await producer.begin_transaction()
        await producer.send("t", b"1", partition=0)
    async with transactional(cluster) as producer:
        cluster.on(EndTxnRequest, times=1).delay(2.0)
        await producer.begin_transaction()
        await producer.send("t", b"2", partition=0)
        commit = asyncio.create_task(producer.commit_transaction())
        await asyncio.sleep(0.5)
        await producer.close()
        await commit
    assert await committed_values(cluster) == [2]


# Arguments.


@generation_2
async def test_offsets_without_a_member_need_only_a_group_id(cluster: EmbeddedCluster, producer: Producer) -> None:
    async with producer.transaction() as transaction:
        await transaction.send_offsets({}, GroupMetadata("billing"))
        await transaction.send_offsets({HERE: OffsetAndMetadata(3)}, GroupMetadata("billing"))
        await transaction.send_offsets({HERE: OffsetAndMetadata(4)}, GroupMetadata("billing"))
    assert await committed_offset(cluster) == 4


@pytest.mark.parametrize(
    ("group", "text"),
    [
        (GroupMetadata(None), "group_metadata.group_id must be"),  # type: ignore[arg-type]
        (GroupMetadata("\ud800"), "group_metadata.group_id must be"),
        (GroupMetadata("g", "1"), "group_metadata.generation_id must be"),  # type: ignore[arg-type]
        (GroupMetadata("g", 2**31), "group_metadata.generation_id must be"),
        (GroupMetadata("g", 1, None), "group_metadata.member_id must be"),  # type: ignore[arg-type]
        (GroupMetadata("g", 1, "m", 5), "group_metadata.group_instance_id must be"),  # type: ignore[arg-type]
    ],
)
async def test_wrong_group_metadata_is_refused_and_the_transaction_continues(
    cluster: EmbeddedCluster, producer: Producer, group: GroupMetadata, text: str
) -> None:
    async with producer.transaction() as transaction:
        with pytest.raises((TypeError, ValueError), match=text):
            await transaction.send_offsets({HERE: OffsetAndMetadata(1)}, group)
        await transaction.send("t", b"1", partition=0)
    assert await committed_values(cluster) == [1]


@generation_2
async def test_metadata_that_no_request_can_carry_is_refused(cluster: EmbeddedCluster, producer: Producer) -> None:
    async with producer.transaction() as transaction:
        for metadata in ("\ud800", "m" * 40_000):
            with pytest.raises(ValueError, match="metadata must be"):
                await transaction.send_offsets({HERE: OffsetAndMetadata(1, metadata)}, GROUP)


async def test_the_log_names_a_retried_request_once(
    cluster: EmbeddedCluster, producer: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.on(AddPartitionsToTxnRequest).fail(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    cluster.on(TxnOffsetCommitRequest).fail(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    with caplog.at_level(logging.INFO, "aiokafka_lite.producer"):
        async with producer.transaction():
            await producer.send("t", b"x")
            await producer.send_offsets_to_transaction(
                {TopicPartition("t", 0): OffsetAndMetadata(1)}, GroupMetadata("g", -1, "", None)
            )
    lines = [record.getMessage() for record in caplog.records if " failed: " in record.getMessage()]
    assert lines
    for line in lines:
        what, _, why = line.partition(" failed: ")
        assert what not in why
