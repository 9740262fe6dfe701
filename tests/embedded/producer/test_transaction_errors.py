"""Transactions that fail: which error reaches the caller, and whether the producer stays usable."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from typing import Any

import pytest

from aiokafka_lite import OffsetAndMetadata
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import (
    AuthorizationError,
    BrokerError,
    CommitFailed,
    ErrorCode,
    KafkaError,
    KafkaTimeout,
    ProducerFenced,
    SerializationError,
    TransactionAborted,
)
from aiokafka_lite.producer import Producer
from aiokafka_lite.protocol.messages import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
)
from aiokafka_lite.protocol.schema import Request, Since
from aiokafka_lite.types import GroupMetadata, TopicPartition
from tests.embedded.producer.transaction_requests import (
    GROUP,
    HERE,
    THERE,
    check_three,
    committed_offset,
    committed_values,
    each_request,
    generation_1,
    generation_2,
    metrics_of,
    transactional,
    use_generation,
    write,
)


@generation_2
@pytest.mark.parametrize("request_type", [EndTxnRequest, InitProducerIdRequest])
@pytest.mark.parametrize("identity", [(-1, 0), (7, -1)])
async def test_an_impossible_producer_id_or_epoch_is_asked_for_again(
    cluster: EmbeddedCluster, generation: int, request_type: type[Request[Any]], identity: tuple[int, int]
) -> None:
    def replace(response: Any) -> Any:
        response.producer_id, response.producer_epoch = identity
        return response

    with cluster.on(request_type, times=2).alter(replace) as altered:
        async with transactional(cluster) as producer:
            await write(producer, 0)
            await write(producer, 1)
    assert altered.hits == 2
    await check_three(cluster, [0, 1])


@generation_2
@pytest.mark.usefixtures("generation")
@pytest.mark.parametrize(("request_type", "written"), [(EndTxnRequest, [0, 3]), (InitProducerIdRequest, [3])])
@pytest.mark.parametrize(
    ("field", "refusal"),
    [("producer_id", "INVALID_PRODUCER_ID_MAPPING"), ("producer_epoch", "INVALID_PRODUCER_EPOCH|PRODUCER_FENCED")],
)
async def test_a_producer_id_or_epoch_that_is_not_the_coordinators_own_ends_the_producer(
    cluster: EmbeddedCluster, request_type: type[Request[Any]], written: list[int], field: str, refusal: str
) -> None:
    def replace(response: Any) -> Any:
        setattr(response, field, 4000)
        return response

    cluster.on(request_type, times=1).alter(replace)
    async with transactional(cluster) as producer:
        if 0 in written:  # the answer of its EndTxn is the wrong one
            await write(producer, 0)
        for number in (1, 2):
            with pytest.raises(BrokerError, match=refusal):
                await write(producer, number)
    async with transactional(cluster) as producer:
        await write(producer, 3)
    await check_three(cluster, written)


@generation_1
@pytest.mark.usefixtures("generation")
async def test_records_of_a_partition_that_is_not_added_expire_with_the_reason(cluster: EmbeddedCluster) -> None:
    async with transactional(cluster, delivery_timeout=5.0, api_timeout=6.0) as producer:
        refused = cluster.on(AddPartitionsToTxnRequest, times=None).fail(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        with pytest.raises(KafkaTimeout, match="adding 1 partition to the transaction: COORDINATOR_LOAD_IN_PROGRESS"):
            async with producer.transaction() as transaction:
                await transaction.send("t", b"0", partition=0)
        refused.remove()
        await write(producer, 1)
    await check_three(cluster, [1])


@pytest.mark.usefixtures("generation")
async def test_offsets_of_a_missing_topic_are_retried_until_an_error_that_names_the_partition(
    cluster: EmbeddedCluster,
) -> None:
    async with transactional(cluster, api_timeout=5.0) as producer:
        with pytest.raises(KafkaTimeout, match=r"nowhere-0: UNKNOWN_TOPIC_OR_PARTITION"):
            async with producer.transaction() as transaction:
                offsets = {HERE: OffsetAndMetadata(1), TopicPartition("nowhere", 0): OffsetAndMetadata(1)}
                await transaction.send_offsets(offsets, GROUP)
        await write(producer, 1)
    await check_three(cluster, [1])


@pytest.mark.parametrize("since", [EndTxnRequest.EPOCH_BUMP, TxnOffsetCommitRequest.ADDS_GROUP], ids=["end", "offsets"])
async def test_brokers_that_offer_generation_2_without_its_requests_are_used_in_generation_1(
    cluster: EmbeddedCluster, since: Since
) -> None:
    await use_generation(cluster, 2)
    for node in cluster.nodes:
        cluster.cap_versions(node, since.message, since.before)
    async with transactional(cluster) as producer:
        await write(producer, 0)
        await write(producer, 1)
        assert metrics_of(producer).generation == 1
    await check_three(cluster, [0, 1])


@pytest.mark.parametrize("is_member", [True, False])
async def test_brokers_that_do_not_check_members_are_warned_of_once(
    cluster: EmbeddedCluster, is_member: bool, caplog: pytest.LogCaptureFixture
) -> None:
    await use_generation(cluster, 1)
    for node in cluster.nodes:
        cluster.cap_versions(node, TxnOffsetCommitRequest, TxnOffsetCommitRequest.GROUP_MEMBER - 1)
    group = GroupMetadata("billing", 1, "member-1") if is_member else GROUP
    async with transactional(cluster) as producer:
        for number in range(2):
            async with producer.transaction() as transaction:
                await transaction.send_offsets({HERE: OffsetAndMetadata(number)}, group)
    assert caplog.text.count("do not check the member") == is_member


@pytest.mark.usefixtures("generation")
async def test_an_older_producer_is_fenced_for_good(cluster: EmbeddedCluster) -> None:
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
        assert not older.health().is_live
        assert "another producer with transactional_id='orders-1' has started" in str(older.diagnose().failure)
        assert newer.health().is_ready
        await write(newer, 2)
    await check_three(cluster, [0, 2])


@pytest.mark.usefixtures("generation")
async def test_closing_a_producer_that_was_fenced_in_a_transaction_raises_nothing(cluster: EmbeddedCluster) -> None:
    older = transactional(cluster)
    async with older:
        await older.begin_transaction()
        await older.send("t", b"1", partition=0)
        async with transactional(cluster):
            pass
    await older.close()


@pytest.mark.usefixtures("generation")
async def test_closing_raises_nothing_while_the_coordinator_does_not_abort(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    producer = transactional(cluster)
    await producer.start()
    await producer.begin_transaction()
    await producer.send("t", b"1", partition=0)
    with cluster.on(EndTxnRequest, times=None).drop():
        await producer.close(600.0)
    assert "the producer closes with an open transaction of 'orders-1'" in caplog.text
    assert await committed_values(cluster) == []


@pytest.mark.usefixtures("generation")
async def test_a_send_after_fencing_says_why_it_was_refused_and_what_to_do(cluster: EmbeddedCluster) -> None:
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


@pytest.mark.usefixtures("generation")
@each_request
async def test_a_missing_permission_reaches_the_caller_and_the_next_transaction_succeeds(
    cluster: EmbeddedCluster, request_type: type[Request[Any]]
) -> None:
    is_end = request_type is EndTxnRequest
    refused = nullcontext() if is_end else pytest.raises((AuthorizationError, CommitFailed), match="ID_AUTHORIZATION")
    async with transactional(cluster) as producer:
        await write(producer, 0)
        cluster.on(request_type, times=1).fail(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        # A refused commit is sent again, because an earlier attempt may have been applied.
        with refused:
            await write(producer, 1)
        await write(producer, 2)
    await check_three(cluster, [0, 1, 2] if is_end else [0, 2])


@pytest.mark.usefixtures("generation")
@pytest.mark.parametrize("committed", [True, False])
async def test_the_end_of_a_transaction_is_sent_until_the_permission_returns(
    cluster: EmbeddedCluster, producer: Producer, committed: bool
) -> None:
    await producer.begin_transaction()
    await producer.send("t", b"0", partition=0)
    fault = cluster.on(EndTxnRequest, times=None).fail(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    end = producer.commit_transaction if committed else producer.abort_transaction
    with pytest.raises(KafkaTimeout, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
        await end(timeout=3.0)
    health = producer.health()
    assert health.is_live
    assert any("TRANSACTIONAL_ID_AUTHORIZATION_FAILED" in problem for problem in health.problems)
    fault.remove()
    await end(timeout=30.0)
    assert producer.health().is_ready
    assert await committed_values(cluster) == ([0] if committed else [])


@each_request
async def test_an_abortable_error_is_raised_and_the_producer_stays_usable(
    cluster: EmbeddedCluster, producer: Producer, request_type: type[Request[Any]]
) -> None:
    await write(producer, 0)
    cluster.on(request_type, times=1).fail(ErrorCode.TRANSACTION_ABORTABLE)
    with pytest.raises(KafkaError, match="TRANSACTION_ABORTABLE"):
        await write(producer, 1)
    assert metrics_of(producer).aborted == 1
    await write(producer, 2)
    await check_three(cluster, [0, 2])


@generation_1
@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_TXN_STATE,
    ],
)
async def test_a_partition_that_the_coordinator_refuses_fails_its_transaction_only(
    cluster: EmbeddedCluster, producer: Producer, code: ErrorCode
) -> None:
    await write(producer, 0)
    cluster.on(AddPartitionsToTxnRequest, times=1).fail(code)
    with pytest.raises(BrokerError, match=code.name):
        await write(producer, 1)
    await write(producer, 2)
    await check_three(cluster, [0, 2])


@generation_1
@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ],
)
async def test_a_producer_that_the_coordinator_refuses_can_only_be_closed(
    cluster: EmbeddedCluster, producer: Producer, code: ErrorCode
) -> None:
    cluster.on(AddPartitionsToTxnRequest, times=1).fail(code)
    for _ in range(2):
        with pytest.raises(BrokerError, match=code.name):
            await write(producer, 1)


async def test_a_failed_record_that_is_not_awaited_fails_the_transaction(
    cluster: EmbeddedCluster, producer: Producer
) -> None:
    with (
        cluster.on(ProduceRequest, times=1).fail(ErrorCode.INVALID_RECORD),
        pytest.raises(BrokerError, match="INVALID_RECORD"),
    ):
        async with producer.transaction() as transaction:
            transaction.send_nowait("t", b"1", partition=0)
            await asyncio.sleep(1.0)
    await write(producer, 2)
    await check_three(cluster, [2])


async def test_after_the_first_failure_every_call_raises_it(cluster: EmbeddedCluster, producer: Producer) -> None:
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
        assert str(caught.value) == str(first.value)
    await producer.abort_transaction()
    await write(producer, 2)
    await check_three(cluster, [2])


@generation_2
async def test_a_record_that_send_many_refuses_fails_the_transaction(
    cluster: EmbeddedCluster, producer: Producer
) -> None:
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


async def test_a_former_member_cannot_commit_offsets(cluster: EmbeddedCluster, producer: Producer) -> None:
    cluster.on(TxnOffsetCommitRequest, times=1).fail(ErrorCode.ILLEGAL_GENERATION)
    with pytest.raises(CommitFailed, match="the group has rebalanced"):
        await write(producer, 1)
    await write(producer, 2)
    await check_three(cluster, [2])


async def test_a_static_member_that_another_process_replaced_reads_what_to_do(
    cluster: EmbeddedCluster, producer: Producer
) -> None:
    cluster.on(TxnOffsetCommitRequest, times=1).fail(ErrorCode.FENCED_INSTANCE_ID)
    with pytest.raises(CommitFailed, match="another process uses group_instance_id") as caught:
        await write(producer, 1)
    assert "rebalanced" not in str(caught.value)


async def test_an_offset_is_not_replaced_while_a_late_request_could_restore_it(
    cluster: EmbeddedCluster, producer: Producer
) -> None:
    with pytest.raises(TransactionAborted, match=r"offset 2 of t-0 .* with offset 1 has no answer"):
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


@generation_1
async def test_brokers_before_2_5_cannot_continue_after_a_lost_answer(
    cluster: EmbeddedCluster, producer: Producer
) -> None:
    for node in cluster.nodes:
        cluster.cap_versions(node, InitProducerIdRequest, 1)
    await write(producer, 0)
    with cluster.on(EndTxnRequest, times=1).apply_then_disconnect():
        await write(producer, 1)
    with pytest.raises(KafkaError, match=r"brokers before Kafka 2\.5 do not assign"):
        await producer.begin_transaction()
    await check_three(cluster, [0, 1])


async def test_a_refused_batch_needs_no_new_epoch(cluster: EmbeddedCluster, producer: Producer) -> None:
    for node in cluster.nodes:
        cluster.cap_versions(node, InitProducerIdRequest, 1)
    await write(producer, 0)
    with cluster.on(ProduceRequest, times=1).fail(ErrorCode.INVALID_RECORD), pytest.raises(BrokerError):
        await write(producer, 1)
    await write(producer, 2)
    assert len(cluster.history.of(InitProducerIdRequest)) == 1
    await check_three(cluster, [0, 2])
