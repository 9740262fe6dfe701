"""Transactions when requests and answers are lost, coordinators move, and outcomes are late."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokafka_lite import OffsetAndMetadata
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import (
    ErrorCode,
    IllegalStateError,
    KafkaTimeout,
)
from aiokafka_lite.producer import Producer
from aiokafka_lite.protocol.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    OffsetFetchRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
)
from aiokafka_lite.protocol.schema import Request
from aiokafka_lite.types import GroupMetadata
from tests.embedded.producer.producers_and_logs import batches_of
from tests.embedded.producer.transaction_requests import (
    GROUP,
    HERE,
    THERE,
    check_three,
    committed_offset,
    committed_values,
    each_request,
    generation_1,
    metrics_of,
    transactional,
    use_generation,
    write,
)
from tests.waiting import until

# Faults.


@pytest.mark.thorough
@pytest.mark.usefixtures("generation")
@each_request
@pytest.mark.parametrize("fault", ["apply_then_disconnect", "disconnect", "drop"])
async def test_a_lost_request_or_answer_loses_and_doubles_nothing(
    cluster: EmbeddedCluster, request_type: type[Request[Any]], fault: str
) -> None:
    async with transactional(cluster, request_timeout=2.0) as producer:
        await write(producer, 0)
        with cluster.on(request_type, times=1) as one:
            getattr(one, fault)()
            await write(producer, 1)
            assert one.hits == 1
        await write(producer, 2)
    await check_three(cluster, [0, 1, 2])


@generation_1
@pytest.mark.parametrize(
    "request_type", [AddPartitionsToTxnRequest, AddOffsetsToTxnRequest, TxnOffsetCommitRequest, EndTxnRequest]
)
async def test_generation_1_takes_a_new_epoch_after_a_lost_answer(
    cluster: EmbeddedCluster, producer: Producer, request_type: type[Request[Any]]
) -> None:
    """A late copy of the request could otherwise reach the next transaction."""
    await write(producer, 0)
    with cluster.on(request_type, times=1).apply_then_disconnect():
        await write(producer, 1)
    await write(producer, 2)
    epochs = [batch.producer_epoch for batch in batches_of(cluster, "t") if not batch.is_control]
    assert epochs == [0, 0, 1]


@pytest.mark.thorough
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
    cluster: EmbeddedCluster, producer: Producer, request_type: type[Request[Any]], code: ErrorCode
) -> None:
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


@pytest.mark.parametrize("when", ["before the offsets", "before the commit", "between two transactions"])
async def test_a_coordinator_that_moves_is_found_again(cluster: EmbeddedCluster, producer: Producer, when: str) -> None:
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


async def test_a_commit_without_an_answer_goes_to_the_next_coordinator(
    cluster: EmbeddedCluster, producer: Producer
) -> None:
    """A frozen broker keeps its connections, and its client would wait for ``request_timeout``, 30 s."""
    await write(producer, 0)
    began = asyncio.get_running_loop().time()
    with cluster.on(EndTxnRequest, times=1).drop():
        committing = asyncio.create_task(write(producer, 1))
        await until(lambda: metrics_of(producer).state == "COMMITTING")
        coordinator = metrics_of(producer).coordinator
        assert coordinator is not None
        other = next(node for node in cluster.nodes if node != coordinator.node_id)
        for partition in range(50):
            if cluster.leader_of("__transaction_state", partition) == coordinator.node_id:
                await cluster.move_leader("__transaction_state", partition, other)
        await committing
    assert asyncio.get_running_loop().time() - began < 10.0
    await write(producer, 2)
    await check_three(cluster, [0, 1, 2])


async def test_a_slow_marker_delays_only_the_next_transaction(cluster: EmbeddedCluster, producer: Producer) -> None:
    with cluster.hold_markers("t", 1) as markers:
        await write(producer, 0)
        following = asyncio.create_task(write(producer, 1))
        await asyncio.sleep(1.0)
        assert not following.done()
        markers.release()
        await following
    assert "transactions" not in [outage.place for outage in producer.diagnose().outages]
    await check_three(cluster, [0, 1])


# Unknown outcomes.


async def test_a_late_commit_has_an_unknown_outcome_that_a_second_call_waits_for(
    cluster: EmbeddedCluster, producer: Producer
) -> None:
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


async def test_the_next_transaction_begins_when_the_outcome_of_the_last_one_is_known(
    cluster: EmbeddedCluster, producer: Producer
) -> None:
    cluster.on(EndTxnRequest, times=1).delay(5.0)
    with pytest.raises(KafkaTimeout):
        async with producer.transaction(timeout=1.0) as transaction:
            await transaction.send("t", b"1", partition=0)
    with pytest.raises(KafkaTimeout, match="no transaction was begun"):
        await producer.begin_transaction(timeout=1.0)
    async with producer.transaction() as transaction:
        await transaction.send("t", b"2", partition=0)
    assert await committed_values(cluster) == [1, 2]


async def test_a_commit_that_turns_out_to_be_refused_is_aborted_before_the_next_transaction(
    cluster: EmbeddedCluster, producer: Producer
) -> None:
    cluster.on(EndTxnRequest, times=1).fail(ErrorCode.TRANSACTION_ABORTABLE).delay(5.0)
    with pytest.raises(KafkaTimeout):
        async with producer.transaction(timeout=1.0) as transaction:
            await transaction.send("t", b"1", partition=0)
    async with producer.transaction() as transaction:
        await transaction.send("t", b"2", partition=0)
    assert await committed_values(cluster) == [2]


@pytest.mark.usefixtures("generation")
async def test_a_commit_without_acknowledgements_is_certainly_not_committed(cluster: EmbeddedCluster) -> None:
    async with transactional(cluster, request_timeout=3.0) as producer:
        cluster.on(ProduceRequest, times=1).drop()
        with pytest.raises(KafkaTimeout, match="was not committed: 1 batch had no acknowledgement"):
            async with producer.transaction(timeout=1.0) as transaction:
                transaction.send_nowait("t", b"1", partition=0)
        async with producer.transaction() as transaction:
            await transaction.send("t", b"2", partition=0)
    assert await committed_values(cluster) == [2]


@generation_1
async def test_offsets_wait_until_their_group_has_applied_the_previous_transaction(
    cluster: EmbeddedCluster, producer: Producer
) -> None:
    """Brokers before Kafka 3.9.1 would commit offsets that come earlier with the previous transaction (KAFKA-17507)."""

    def as_unstable(answer: Any) -> Any:
        answer.topics[0].partitions[0].error_code = ErrorCode.UNSTABLE_OFFSET_COMMIT
        return answer

    commits = cluster.on(TxnOffsetCommitRequest, times=None)
    await write(producer, 1)
    with cluster.on(OffsetFetchRequest, times=None).alter(as_unstable) as pending:
        writing = asyncio.create_task(write(producer, 2))
        await until(lambda: pending.hits >= 3)
        assert commits.hits == 1
    await writing
    assert await committed_offset(cluster) == 2


@generation_1
async def test_offsets_wait_until_the_other_groups_of_the_previous_transaction_have_applied_it(
    cluster: EmbeddedCluster, producer: Producer
) -> None:
    """Such a broker would also commit offsets of another group with the same coordinator."""

    def as_unstable(answer: Any) -> Any:
        (partition,) = answer.topics[0].partitions
        if partition.partition_index == HERE.partition:
            partition.error_code = ErrorCode.UNSTABLE_OFFSET_COMMIT
        return answer

    commits = cluster.on(TxnOffsetCommitRequest, times=None)
    await write(producer, 1)
    with cluster.on(OffsetFetchRequest, times=None).alter(as_unstable) as pending:
        async with producer.transaction() as transaction:
            sending = asyncio.create_task(
                transaction.send_offsets({THERE: OffsetAndMetadata(2)}, GroupMetadata("other"))
            )
            await until(lambda: pending.hits >= 3)
            assert commits.hits == 1
            pending.remove()
            await sending
    assert commits.hits == 2


@generation_1
async def test_offsets_do_not_wait_for_another_group_whose_coordinator_is_down(
    cluster: EmbeddedCluster, producer: Producer
) -> None:
    await write(producer, 1)
    with cluster.on(OffsetFetchRequest, times=None).fail(ErrorCode.COORDINATOR_NOT_AVAILABLE):
        async with producer.transaction() as transaction:
            await transaction.send_offsets({THERE: OffsetAndMetadata(2)}, GroupMetadata("other"))
    assert await committed_offset(cluster, THERE, "other") == 2


@generation_1
async def test_offsets_do_not_wait_for_the_transaction_of_another_producer(
    cluster: EmbeddedCluster, producer: Producer
) -> None:
    async with transactional(cluster, transactional_id="orders-2") as other:
        await other.begin_transaction()
        await other.send_offsets_to_transaction({HERE: OffsetAndMetadata(1)}, GROUP)
        await write(producer, 2)
        await other.abort_transaction()
    assert await committed_offset(cluster) == 2


@generation_1
async def test_offsets_wait_only_for_partitions_of_the_previous_transaction(
    cluster: EmbeddedCluster, producer: Producer
) -> None:
    await write(producer, 1)
    async with transactional(cluster, transactional_id="orders-2") as other:
        await other.begin_transaction()
        await other.send_offsets_to_transaction({THERE: OffsetAndMetadata(1)}, GROUP)
        async with asyncio.timeout(5.0), producer.transaction() as transaction:
            await transaction.send_offsets({THERE: OffsetAndMetadata(2)}, GROUP)
        await other.abort_transaction()
    assert await committed_offset(cluster, THERE) == 2


@generation_1
async def test_offsets_of_an_older_transaction_are_asked_for_again_after_a_failed_transaction(
    cluster: EmbeddedCluster, producer: Producer
) -> None:
    requested: list[list[int]] = []

    def as_unstable(answer: Any) -> Any:
        requested.append([partition.partition_index for partition in answer.topics[0].partitions])
        answer.topics[0].partitions[0].error_code = ErrorCode.UNSTABLE_OFFSET_COMMIT
        return answer

    await write(producer, 1)
    with cluster.on(OffsetFetchRequest, times=None).alter(as_unstable) as fault:
        await producer.begin_transaction()
        waiting = asyncio.create_task(producer.send_offsets_to_transaction({THERE: OffsetAndMetadata(2)}, GROUP))
        await until(lambda: requested)
        await producer.abort_transaction()
        with pytest.raises(IllegalStateError, match="being aborted"):
            await waiting
        requested.clear()
        async with producer.transaction() as transaction:
            sending = asyncio.create_task(transaction.send_offsets({THERE: OffsetAndMetadata(3)}, GROUP))
            await until(lambda: requested)
            fault.remove()
            await sending
    assert requested[0] == [HERE.partition]
