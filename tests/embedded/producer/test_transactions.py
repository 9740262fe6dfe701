"""Transactions on the embedded cluster, in both generations of the protocol: faults, fencing, errors, cancellation."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from aiokafka_lite import OffsetAndMetadata
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import (
    AuthorizationError,
    BrokerError,
    CommitFailed,
    ErrorCode,
    IllegalStateError,
    KafkaError,
    KafkaTimeout,
    ProducerFenced,
    SerializationError,
    TransactionAborted,
)
from aiokafka_lite.producer import Producer, TransactionMetrics
from aiokafka_lite.protocol.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
)
from aiokafka_lite.protocol.schema import Request
from aiokafka_lite.types import GroupMetadata
from tests.embedded.producer.logs import batches_of, producer_of
from tests.embedded.producer.transactions import (
    GROUP,
    HERE,
    THERE,
    committed_offset,
    committed_values,
    use_generation,
    write,
)

each_generation = pytest.mark.parametrize("generation", [1, 2])
OF_BOTH: list[type[Request[Any]]] = [TxnOffsetCommitRequest, EndTxnRequest, ProduceRequest]
OF_GENERATION_1: list[type[Request[Any]]] = [AddPartitionsToTxnRequest, AddOffsetsToTxnRequest]
REQUESTS = [*((2, each) for each in OF_BOTH), *((1, each) for each in [*OF_GENERATION_1, *OF_BOTH])]
each_request = pytest.mark.parametrize(("generation", "request_type"), REQUESTS)


def transactional(cluster: EmbeddedCluster, **settings: Any) -> Producer:
    settings.setdefault("transactional_id", "orders-1")
    return producer_of(cluster, **settings)


def metrics_of(producer: Producer) -> TransactionMetrics:
    found = producer.metrics().transactions
    assert found is not None
    return found


async def check_three(cluster: EmbeddedCluster, numbers: list[int]) -> None:
    assert await committed_values(cluster, HERE) == numbers
    assert await committed_values(cluster, THERE) == numbers
    assert await committed_offset(cluster) == numbers[-1]


# What the protocol needs.


@each_generation
async def test_each_transaction_is_committed_as_a_whole(cluster: EmbeddedCluster, generation: int) -> None:
    await use_generation(cluster, generation)
    async with transactional(cluster) as producer:
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


async def test_the_generation_is_read_again_with_a_new_connection(cluster: EmbeddedCluster) -> None:
    await use_generation(cluster, 1)
    async with transactional(cluster) as producer:
        await write(producer, 0)
        assert metrics_of(producer).generation == 1
        cluster.set_feature("transaction.version", 2)
        with cluster.on(EndTxnRequest, times=1).apply_then_disconnect():
            await write(producer, 1)
        await write(producer, 2)
        assert metrics_of(producer).generation == 2
    await check_three(cluster, [0, 1, 2])


@each_generation
async def test_an_empty_transaction_sends_nothing(cluster: EmbeddedCluster, generation: int) -> None:
    await use_generation(cluster, generation)
    async with transactional(cluster) as producer:
        async with producer.transaction():
            pass
        await producer.begin_transaction()
        await producer.abort_transaction()
        assert not cluster.history.of(EndTxnRequest)
        await write(producer, 0)
    await check_three(cluster, [0])


# Faults.


@each_request
@pytest.mark.parametrize("fault", ["apply_then_disconnect", "disconnect", "drop"])
async def test_a_lost_request_or_answer_loses_and_doubles_nothing(
    cluster: EmbeddedCluster, generation: int, request_type: type[Request[Any]], fault: str
) -> None:
    await use_generation(cluster, generation)
    async with transactional(cluster, request_timeout=2.0) as producer:
        await write(producer, 0)
        with cluster.on(request_type, times=1) as one:
            getattr(one, fault)()
            await write(producer, 1)
            assert one.hits == 1
        await write(producer, 2)
    await check_three(cluster, [0, 1, 2])


@pytest.mark.parametrize(
    "request_type", [AddPartitionsToTxnRequest, AddOffsetsToTxnRequest, TxnOffsetCommitRequest, EndTxnRequest]
)
async def test_generation_1_takes_a_new_epoch_after_a_lost_answer(
    cluster: EmbeddedCluster, request_type: type[Request[Any]]
) -> None:
    """A late copy of the request could otherwise reach the next transaction."""
    await use_generation(cluster, 1)
    async with transactional(cluster) as producer:
        await write(producer, 0)
        with cluster.on(request_type, times=1).apply_then_disconnect():
            await write(producer, 1)
        await write(producer, 2)
    epochs = [batch.producer_epoch for batch in batches_of(cluster, "t") if not batch.is_control]
    assert epochs == [0, 0, 1]


@each_request
@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    ],
)
async def test_an_answer_of_a_busy_coordinator_is_retried(
    cluster: EmbeddedCluster, generation: int, request_type: type[Request[Any]], code: ErrorCode
) -> None:
    await use_generation(cluster, generation)
    async with transactional(cluster) as producer:
        with cluster.on(request_type, times=2).fail(code) as fault:
            await write(producer, 0)
            assert fault.hits == 2
        await write(producer, 1)
    await check_three(cluster, [0, 1])


async def test_starting_waits_until_the_coordinator_is_ready(cluster: EmbeddedCluster) -> None:
    await use_generation(cluster, 2)
    cluster.on(InitProducerIdRequest, times=2).fail(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    cluster.on(FindCoordinatorRequest, times=2).fail(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    async with transactional(cluster) as producer:
        await write(producer, 0)
    await check_three(cluster, [0])


async def test_starting_is_bounded_and_names_the_last_error(cluster: EmbeddedCluster) -> None:
    cluster.on(InitProducerIdRequest, times=None).fail(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    producer = transactional(cluster, api_timeout=5.0)
    with pytest.raises(KafkaTimeout, match=r"'orders-1' was not initialized.*COORDINATOR_LOAD_IN_PROGRESS"):
        await producer.start()


@each_generation
@pytest.mark.parametrize("when", ["before the offsets", "before the commit", "between two transactions"])
async def test_a_coordinator_that_moves_is_found_again(cluster: EmbeddedCluster, generation: int, when: str) -> None:
    await use_generation(cluster, generation)
    async with transactional(cluster) as producer:
        await write(producer, 0)

        async def move() -> None:
            coordinator = metrics_of(producer).coordinator
            assert coordinator is not None
            others = [node for node in cluster.nodes if node != coordinator.node_id]
            for partition in range(50):
                if cluster.leader_of("__transaction_state", partition) == coordinator.node_id:
                    await cluster.move_leader("__transaction_state", partition, others[0])

        async with producer.transaction() as transaction:
            await transaction.send("t", b"1", partition=0)
            await transaction.send("t", b"1", partition=1)
            if when == "before the offsets":
                await move()
            await transaction.send_offsets({HERE: OffsetAndMetadata(1)}, GROUP)
            if when == "before the commit":
                await move()
        if when == "between two transactions":
            await move()
        await write(producer, 2)
    await check_three(cluster, [0, 1, 2])


@each_generation
async def test_a_slow_marker_delays_only_the_next_transaction(cluster: EmbeddedCluster, generation: int) -> None:
    await use_generation(cluster, generation)
    async with transactional(cluster) as producer:
        with cluster.hold_markers("t", 1) as held:
            await write(producer, 0)
            following = asyncio.create_task(write(producer, 1))
            await asyncio.sleep(1.0)
            assert not following.done()
            held.release()
            await following
        assert "transactions" not in [each.place for each in producer.diagnose().outages]
    await check_three(cluster, [0, 1])


# Unknown outcomes.


@each_generation
async def test_a_late_commit_has_an_unknown_outcome_that_a_second_call_waits_for(
    cluster: EmbeddedCluster, generation: int
) -> None:
    await use_generation(cluster, generation)
    async with transactional(cluster) as producer:
        await producer.begin_transaction()
        await producer.send("t", b"1", partition=0)
        cluster.on(EndTxnRequest, times=1).delay(5.0)
        with pytest.raises(KafkaTimeout, match=r"the outcome of the commit is not known.*call commit_transaction"):
            await producer.commit_transaction(timeout=1.0)
        with pytest.raises(IllegalStateError, match="being committed"):
            await producer.abort_transaction()
        await producer.commit_transaction()
        assert metrics_of(producer).committed == 1
        with pytest.raises(IllegalStateError, match="no transaction is open"):
            await producer.commit_transaction()
    assert await committed_values(cluster) == [1]


@each_generation
async def test_the_next_transaction_begins_when_the_outcome_of_the_last_one_is_known(
    cluster: EmbeddedCluster, generation: int
) -> None:
    await use_generation(cluster, generation)
    async with transactional(cluster) as producer:
        cluster.on(EndTxnRequest, times=1).delay(5.0)
        with pytest.raises(KafkaTimeout):
            async with producer.transaction(timeout=1.0) as transaction:
                await transaction.send("t", b"1", partition=0)
        with pytest.raises(KafkaTimeout, match="no transaction was begun"):
            await producer.begin_transaction(timeout=1.0)
        async with producer.transaction() as transaction:
            await transaction.send("t", b"2", partition=0)
    assert await committed_values(cluster) == [1, 2]


@each_generation
async def test_a_commit_that_turns_out_to_be_refused_is_aborted_before_the_next_transaction(
    cluster: EmbeddedCluster, generation: int
) -> None:
    await use_generation(cluster, generation)
    async with transactional(cluster) as producer:
        cluster.on(EndTxnRequest, times=1).fail(ErrorCode.TRANSACTION_ABORTABLE).delay(5.0)
        with pytest.raises(KafkaTimeout):
            async with producer.transaction(timeout=1.0) as transaction:
                await transaction.send("t", b"1", partition=0)
        async with producer.transaction() as transaction:
            await transaction.send("t", b"2", partition=0)
    assert await committed_values(cluster) == [2]


@each_generation
async def test_a_commit_without_acknowledgements_is_certainly_not_committed(
    cluster: EmbeddedCluster, generation: int
) -> None:
    await use_generation(cluster, generation)
    async with transactional(cluster, request_timeout=3.0) as producer:
        cluster.on(ProduceRequest, times=1).drop()
        with pytest.raises(KafkaTimeout, match="was not committed: 1 batch was not acknowledged"):
            async with producer.transaction(timeout=1.0) as transaction:
                transaction.send_nowait("t", b"1", partition=0)
        async with producer.transaction() as transaction:
            await transaction.send("t", b"2", partition=0)
    assert await committed_values(cluster) == [2]


# Errors.


@each_generation
async def test_an_older_producer_is_fenced_for_good(cluster: EmbeddedCluster, generation: int) -> None:
    await use_generation(cluster, generation)
    async with transactional(cluster) as older, transactional(cluster) as newer:
        await write(newer, 0)
        for _ in range(2):
            with pytest.raises(ProducerFenced):
                await write(older, 1)
        with pytest.raises(ProducerFenced, match=r"another producer with transactional_id='orders-1' has started"):
            await older.begin_transaction()
        assert metrics_of(older).state == "FATAL_ERROR"
        with pytest.raises(ProducerFenced):
            older.send_nowait("t", b"1")
        await write(newer, 2)
    await check_three(cluster, [0, 2])


@each_generation
async def test_a_send_after_fencing_says_why_it_was_refused_and_what_to_do(
    cluster: EmbeddedCluster, generation: int
) -> None:
    await use_generation(cluster, generation)
    async with transactional(cluster) as older:
        await older.begin_transaction()
        await older.send("t", b"1", partition=0)
        async with transactional(cluster):
            with pytest.raises(ProducerFenced) as caught:
                await older.send("t", b"2", partition=0)
            with pytest.raises(ProducerFenced, match="close this producer, and create a new one"):
                await older.abort_transaction()
    text = str(caught.value)
    assert text.startswith("writing 1 record to t-0 on ")
    assert "another producer with transactional_id='orders-1' has started, or the transaction was open for" in text
    assert "close this producer if the abort raises ProducerFenced" in text


@each_request
async def test_a_lasting_refusal_reaches_the_caller(
    cluster: EmbeddedCluster, generation: int, request_type: type[Request[Any]]
) -> None:
    await use_generation(cluster, generation)
    async with transactional(cluster) as producer:
        cluster.on(request_type, times=1).fail(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        with pytest.raises((AuthorizationError, CommitFailed), match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
            await write(producer, 0)
    async with transactional(cluster):
        pass  # ends the transaction of the first one
    assert await committed_values(cluster) == []


@each_request
async def test_an_abortable_error_is_raised_and_the_producer_stays_usable(
    cluster: EmbeddedCluster, generation: int, request_type: type[Request[Any]]
) -> None:
    await use_generation(cluster, generation)
    async with transactional(cluster) as producer:
        await write(producer, 0)
        cluster.on(request_type, times=1).fail(ErrorCode.TRANSACTION_ABORTABLE)
        with pytest.raises(KafkaError, match="TRANSACTION_ABORTABLE"):
            await write(producer, 1)
        assert metrics_of(producer).aborted == 1
        await write(producer, 2)
    await check_three(cluster, [0, 2])


@each_generation
async def test_a_failed_record_that_is_not_awaited_fails_the_transaction(
    cluster: EmbeddedCluster, generation: int
) -> None:
    await use_generation(cluster, generation)
    async with transactional(cluster) as producer:
        with (
            cluster.on(ProduceRequest, times=1).fail(ErrorCode.INVALID_RECORD),
            pytest.raises(BrokerError, match="INVALID_RECORD"),
        ):
            async with producer.transaction() as transaction:
                transaction.send_nowait("t", b"1", partition=0)
                await asyncio.sleep(1.0)
        await write(producer, 2)
    await check_three(cluster, [2])


@each_generation
async def test_after_the_first_failure_every_call_raises_it(cluster: EmbeddedCluster, generation: int) -> None:
    await use_generation(cluster, generation)
    async with transactional(cluster) as producer:
        await producer.begin_transaction()
        lingering = producer.send_nowait("new-topic", b"1")
        cluster.on(ProduceRequest, times=1).fail(ErrorCode.INVALID_RECORD)
        with pytest.raises(BrokerError) as first:
            await producer.send("t", b"1", partition=0)
        for call in (
            lambda: producer.send("t", b"1"),
            lambda: producer.send_many("t", [b"1"]),
            lambda: producer.send_offsets_to_transaction({HERE: OffsetAndMetadata(1)}, GROUP),
            lambda: producer.commit_transaction(),
            lambda: producer.begin_transaction(),
            lambda: lingering,
        ):
            with pytest.raises(BrokerError) as caught:
                await call()
            assert caught.value is first.value
        await producer.abort_transaction()
        await write(producer, 2)
    await check_three(cluster, [2])


async def test_a_record_that_send_many_refuses_fails_the_transaction(cluster: EmbeddedCluster) -> None:
    await use_generation(cluster, 2)
    async with transactional(cluster) as producer:
        with pytest.raises(SerializationError):
            async with producer.transaction() as transaction:
                results = await transaction.send_many("t", [b"1", object(), b"2"], partition=0)
                assert isinstance(results[1], SerializationError)
        # A call that raises leaves the decision to its caller.
        async with producer.transaction() as transaction:
            with pytest.raises(SerializationError):
                await transaction.send("t", object())
            await transaction.send("t", b"3", partition=0)
    assert await committed_values(cluster) == [3]


@each_generation
async def test_a_former_member_cannot_commit_offsets(cluster: EmbeddedCluster, generation: int) -> None:
    await use_generation(cluster, generation)
    async with transactional(cluster) as producer:
        cluster.on(TxnOffsetCommitRequest, times=1).fail(ErrorCode.ILLEGAL_GENERATION)
        with pytest.raises(CommitFailed, match="lost its partitions"):
            await write(producer, 1)
        await write(producer, 2)
    await check_three(cluster, [2])


@each_generation
async def test_an_offset_is_not_replaced_while_a_late_request_could_restore_it(
    cluster: EmbeddedCluster, generation: int
) -> None:
    await use_generation(cluster, generation)
    async with transactional(cluster) as producer:
        with pytest.raises(TransactionAborted, match=r"offset 2 of t-0 .* with offset 1 was lost"):
            async with producer.transaction() as transaction:
                cluster.on(TxnOffsetCommitRequest, times=1).apply_then_disconnect()
                await transaction.send_offsets({HERE: OffsetAndMetadata(1)}, GROUP)
                await transaction.send_offsets({HERE: OffsetAndMetadata(1), THERE: OffsetAndMetadata(5)}, GROUP)
                await transaction.send_offsets({HERE: OffsetAndMetadata(7)}, GroupMetadata("other"))
                await transaction.send_offsets({HERE: OffsetAndMetadata(2)}, GROUP)
        assert await committed_offset(cluster) is None
        await write(producer, 3)
    await check_three(cluster, [3])


async def test_a_timeout_above_the_brokers_limit_names_the_setting(cluster: EmbeddedCluster) -> None:
    producer = transactional(cluster, transaction_timeout=3600.0)
    with pytest.raises(BrokerError, match=r"transaction_timeout=3600 s is above transaction.max.timeout.ms"):
        await producer.start()


async def test_brokers_before_2_5_cannot_continue_after_a_lost_answer(cluster: EmbeddedCluster) -> None:
    await use_generation(cluster, 1)
    for node in cluster.nodes:
        cluster.cap_versions(node, InitProducerIdRequest, 1)
    async with transactional(cluster) as producer:
        await write(producer, 0)
        with cluster.on(EndTxnRequest, times=1).apply_then_disconnect():
            await write(producer, 1)
        with pytest.raises(KafkaError, match=r"brokers before Kafka 2\.5 do not assign"):
            await producer.begin_transaction()
    await check_three(cluster, [0, 1])


@each_generation
async def test_a_refused_batch_needs_no_new_epoch(cluster: EmbeddedCluster, generation: int) -> None:
    await use_generation(cluster, generation)
    for node in cluster.nodes:
        cluster.cap_versions(node, InitProducerIdRequest, 1)
    async with transactional(cluster) as producer:
        await write(producer, 0)
        with cluster.on(ProduceRequest, times=1).fail(ErrorCode.INVALID_RECORD), pytest.raises(BrokerError):
            await write(producer, 1)
        await write(producer, 2)
        assert len(cluster.history.of(InitProducerIdRequest)) == 1
    await check_three(cluster, [0, 2])


# The calls of the user.


async def test_calls_outside_of_their_state_are_refused(cluster: EmbeddedCluster) -> None:
    await use_generation(cluster, 2)
    async with transactional(cluster) as producer:
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


async def test_a_transaction_that_the_body_has_ended_is_left_alone(cluster: EmbeddedCluster) -> None:
    await use_generation(cluster, 2)
    async with transactional(cluster) as producer, producer.transaction() as transaction:
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


@each_generation
async def test_an_abort_waits_for_requests_in_flight_in_generation_1_only(
    cluster: EmbeddedCluster, generation: int
) -> None:
    """A batch that a broker appends behind the marker would belong to the next transaction, or hang."""
    await use_generation(cluster, generation)
    async with transactional(cluster) as producer:
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


@each_generation
async def test_an_abort_drops_records_that_wait_for_their_topic(cluster: EmbeddedCluster, generation: int) -> None:
    await use_generation(cluster, generation)
    async with transactional(cluster) as producer:
        await producer.begin_transaction()
        pending = producer.send_nowait("new-topic", b"1")
        await producer.abort_transaction()
        with pytest.raises(TransactionAborted):
            await pending
        await write(producer, 2)
    await check_three(cluster, [2])


async def test_a_commit_refuses_offsets_that_are_still_being_sent(cluster: EmbeddedCluster) -> None:
    await use_generation(cluster, 2)
    async with transactional(cluster) as producer:
        await producer.begin_transaction()
        cluster.on(TxnOffsetCommitRequest, times=1).delay(1.0)
        sending = asyncio.create_task(producer.send_offsets_to_transaction({HERE: OffsetAndMetadata(1)}, GROUP))
        await asyncio.sleep(0.5)
        with pytest.raises(IllegalStateError, match="await it before the commit"):
            await producer.commit_transaction()
        await sending
        await producer.commit_transaction()
    assert await committed_offset(cluster) == 1


@each_generation
async def test_metrics_and_diagnose_show_the_open_transaction(cluster: EmbeddedCluster, generation: int) -> None:
    await use_generation(cluster, generation)
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


async def test_aborts_are_logged_with_their_cause(cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture) -> None:
    await use_generation(cluster, 2)
    with caplog.at_level(logging.INFO, "aiokafka_lite.producer"):
        async with transactional(cluster) as producer:
            with pytest.raises(ZeroDivisionError):
                async with producer.transaction() as transaction:
                    transaction.send_nowait("t", b"1")
                    raise ZeroDivisionError
    lines = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert lines == [("INFO", "aborting transaction 1 of 'orders-1': the caller aborts it")]


# Cancellation.


async def cancelled_at(cluster: EmbeddedCluster, call: str, turns: int) -> bool:
    """Cancel a call after some turns of the event loop, and write another transaction. Whether the call had ended."""
    async with transactional(cluster) as producer:

        async def block() -> None:
            await write(producer, 1)

        async def explicit() -> None:
            await producer.begin_transaction()
            await producer.send("t", b"1", partition=0)
            await producer.send_offsets_to_transaction({HERE: OffsetAndMetadata(1)}, GROUP)
            await (producer.commit_transaction() if call == "commit" else producer.abort_transaction())

        task = asyncio.create_task(block() if call == "block" else explicit())
        for turn in range(turns):
            # Now and then a millisecond passes, because brokers pause before they ask the coordinator again.
            await asyncio.sleep(0 if turn % 20 else 0.001)
        task.cancel()
        (result,) = await asyncio.gather(task, return_exceptions=True)
        assert result is None or isinstance(result, asyncio.CancelledError), repr(result)
        if metrics_of(producer).state in ("IN_TRANSACTION", "ABORTABLE_ERROR"):
            await producer.abort_transaction()
        async with producer.transaction() as transaction:
            await transaction.send("t", b"2", partition=0)
        ended = metrics_of(producer)
        assert ended.state == "READY"
        assert ended.committed + ended.aborted in (1, 2)
        return result is None


@each_generation
@pytest.mark.parametrize("call", ["block", "commit", "abort"])
async def test_a_call_may_be_cancelled_at_every_turn(cluster: EmbeddedCluster, generation: int, call: str) -> None:
    await use_generation(cluster, generation)
    committed: list[int] = []
    for turns in range(0, 2000, 5):
        ended = await cancelled_at(cluster, call, turns)
        values = (await committed_values(cluster))[len(committed) :]
        # Whole or not at all, and never behind the next transaction.
        assert values in ([2], [1, 2]), turns
        if ended and call != "abort":
            assert values == [1, 2]
        committed += values
        if ended:
            break
    else:
        pytest.fail("the call takes more turns than this test tries")


async def test_a_second_cancellation_leaves_the_abort_to_the_producer(cluster: EmbeddedCluster) -> None:
    await use_generation(cluster, 2)
    async with transactional(cluster) as producer:
        cluster.on(EndTxnRequest, times=1).delay(5.0)

        async def body() -> None:
            async with producer.transaction() as transaction:
                await transaction.send("t", b"1", partition=0)
                await asyncio.sleep(100)

        task = asyncio.create_task(body())
        for _ in range(2):
            await asyncio.sleep(0.5)
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await write(producer, 2)
    await check_three(cluster, [2])


@each_generation
async def test_closing_aborts_an_open_transaction_and_waits_for_a_commit(
    cluster: EmbeddedCluster, generation: int
) -> None:
    await use_generation(cluster, generation)
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


async def test_offsets_without_a_member_need_only_a_group_id(cluster: EmbeddedCluster) -> None:
    await use_generation(cluster, 2)
    async with transactional(cluster) as producer, producer.transaction() as transaction:
        await transaction.send_offsets({}, GroupMetadata("billing"))
        await transaction.send_offsets({HERE: OffsetAndMetadata(3)}, GroupMetadata("billing"))
        await transaction.send_offsets({HERE: OffsetAndMetadata(4)}, GroupMetadata("billing"))
    assert await committed_offset(cluster) == 4


@each_generation
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
async def test_wrong_group_metadata_is_refused_and_the_transaction_goes_on(
    cluster: EmbeddedCluster, generation: int, group: GroupMetadata, text: str
) -> None:
    await use_generation(cluster, generation)
    async with transactional(cluster) as producer, producer.transaction() as transaction:
        with pytest.raises((TypeError, ValueError), match=text):
            await transaction.send_offsets({HERE: OffsetAndMetadata(1)}, group)
        await transaction.send("t", b"1", partition=0)
    assert await committed_values(cluster) == [1]


async def test_metadata_that_no_request_can_carry_is_refused(cluster: EmbeddedCluster) -> None:
    await use_generation(cluster, 2)
    async with transactional(cluster) as producer, producer.transaction() as transaction:
        for metadata in ("\ud800", "m" * 40_000):
            with pytest.raises(ValueError, match="metadata must be"):
                await transaction.send_offsets({HERE: OffsetAndMetadata(1, metadata)}, GROUP)
