"""The requests of a transaction, and the meaning of the codes in their answers."""

from __future__ import annotations

import pytest

from aiokafka_lite.errors import BrokerError, CommitFailed, ErrorCode, KafkaTimeout, ProducerFenced
from aiokafka_lite.producer.producer_ids import ProducerIdAndEpoch
from aiokafka_lite.producer.transactions.requests import (
    add_partitions_request,
    decisive,
    init_request,
    is_fatal,
    offsets_refused,
    offsets_request,
    read_added,
    read_offsets,
    refused,
)
from aiokafka_lite.protocol.messages import AddPartitionsToTxnResponse, TxnOffsetCommitResponse
from aiokafka_lite.protocol.messages.transactions import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnTopicResult,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from aiokafka_lite.types import GroupMetadata, OffsetAndMetadata, TopicPartition

IDENTITY = ProducerIdAndEpoch(7, 3)
GROUP = GroupMetadata("billing", 4, "member-1", "instance-1")
A, B = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TRANSACTION_TIMEOUT,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    ],
)
def test_these_codes_end_the_producer(code: ErrorCode) -> None:
    assert is_fatal(BrokerError(code))


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.STALE_MEMBER_EPOCH,
    ],
)
def test_these_codes_end_the_transaction_only(code: ErrorCode) -> None:
    assert not is_fatal(BrokerError(code))
    assert not is_fatal(offsets_refused({A: code, B: ErrorCode.NONE}, GROUP, "orders-1", 60.0))


def test_offsets_of_an_outdated_epoch_leave_the_decision_to_the_abort() -> None:
    assert not is_fatal(offsets_refused({A: ErrorCode.INVALID_PRODUCER_EPOCH}, GROUP, "orders-1", 60.0))
    assert is_fatal(offsets_refused({A: ErrorCode.PRODUCER_FENCED}, GROUP, "orders-1", 60.0))
    assert not is_fatal(KafkaTimeout("late"))


def test_the_error_of_a_fenced_producer_says_why_and_what_to_do() -> None:
    error = refused(ErrorCode.PRODUCER_FENCED, "committing the transaction", "orders-1", 60.0)
    assert isinstance(error, ProducerFenced)
    text = str(error)
    assert "another producer with transactional_id='orders-1' has started" in text
    assert "transaction_timeout=60 s" in text
    assert "close this producer" in text


def test_a_final_code_decides_then_a_retriable_one() -> None:
    none, later = ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    skipped, final = ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert decisive([none, skipped, later, final]) is final
    assert decisive([none, later, skipped]) is later
    assert decisive([none, skipped]) is skipped
    assert decisive([none]) is none
    assert decisive([]) is none


def test_partitions_are_added_by_topic_and_an_omitted_one_is_retried() -> None:
    request = add_partitions_request("orders-1", IDENTITY, [A, B])
    assert [
        (v3_and_below_topic.name, v3_and_below_topic.partitions) for v3_and_below_topic in request.v3_and_below_topics
    ] == [("t", [0, 1])]
    assert (request.v3_and_below_producer_id, request.v3_and_below_producer_epoch) == IDENTITY
    added = AddPartitionsToTxnPartitionResult(partition_index=0, partition_error_code=0)
    answer = AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[AddPartitionsToTxnTopicResult(name="t", results_by_partition=[added])]
    )
    assert read_added([A, B], answer) == {A: ErrorCode.NONE, B: ErrorCode.NETWORK_EXCEPTION}


def test_offsets_name_the_member_if_the_broker_can_check_it() -> None:
    offsets = {A: OffsetAndMetadata(5, "note", 2), B: OffsetAndMetadata(6)}
    request = offsets_request("orders-1", IDENTITY, GROUP, offsets, knows_members=True)
    assert (request.generation_id, request.member_id, request.group_instance_id) == (4, "member-1", "instance-1")
    (topic,) = request.topics
    committed = [
        (
            partition.partition_index,
            partition.committed_offset,
            partition.committed_leader_epoch,
            partition.committed_metadata,
        )
        for partition in topic.partitions
    ]
    assert committed == [(0, 5, 2, "note"), (1, 6, -1, "")]
    request = offsets_request("orders-1", IDENTITY, GROUP, offsets, knows_members=False)
    assert (request.generation_id, request.member_id, request.group_instance_id) == (-1, "", None)


def test_an_omitted_offset_is_retried() -> None:
    written = TxnOffsetCommitResponsePartition(partition_index=0, error_code=0)
    answer = TxnOffsetCommitResponse(topics=[TxnOffsetCommitResponseTopic(name="t", partitions=[written])])
    assert read_offsets([A, B], answer) == {A: ErrorCode.NONE, B: ErrorCode.NETWORK_EXCEPTION}


def test_refused_offsets_are_named() -> None:
    error = offsets_refused({A: ErrorCode.ILLEGAL_GENERATION, B: ErrorCode.NONE}, GROUP, "orders-1", 60.0)
    assert isinstance(error, CommitFailed)
    assert list(error.refused) == [A]
    assert "group 'billing': the group has rebalanced" in str(error)


def test_initializing_names_the_present_identity_only_to_raise_its_epoch() -> None:
    request = init_request("orders-1", 1.5, None)
    assert (request.transaction_timeout_ms, request.producer_id, request.producer_epoch) == (1500, -1, -1)
    assert init_request("orders-1", 0.0001, None).transaction_timeout_ms == 1
    request = init_request("orders-1", 1.5, IDENTITY)
    assert (request.producer_id, request.producer_epoch) == IDENTITY
