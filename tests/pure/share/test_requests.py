"""The requests of a share consumer, and its reaction to error codes."""

from __future__ import annotations

import pytest

from aiokafka_lite.errors import ErrorCode, error_for
from aiokafka_lite.settings.share import ShareConfig
from aiokafka_lite.share.acknowledgements import AcknowledgeType
from aiokafka_lite.share.in_flight import Acknowledgements, Acquisition
from aiokafka_lite.share.requests import (
    acknowledge_request,
    fetch_request,
    may_acknowledge_again,
    may_fetch_again,
)
from aiokafka_lite.share.session import ShareSessionRequest, TopicIdPartition
from aiokafka_lite.types import TopicPartition

A, B = (TopicIdPartition(b"t" * 16, number) for number in range(2))


@pytest.mark.parametrize(
    ("code", "fetch", "acknowledge"),
    [
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, True, True),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, True, True),
        (ErrorCode.REQUEST_TIMED_OUT, True, True),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, True, False),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True, False),
        (ErrorCode.UNKNOWN_TOPIC_ID, True, False),
        (ErrorCode.UNKNOWN_SERVER_ERROR, True, False),
        (ErrorCode.INVALID_RECORD_STATE, False, False),
        (ErrorCode.INVALID_REQUEST, False, False),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, False, False),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, False, False),
    ],
    ids=lambda value: value.name if isinstance(value, ErrorCode) else "",
)
def test_which_refusals_are_retried(code: ErrorCode, fetch: bool, acknowledge: bool) -> None:
    error = error_for(code)
    assert (may_fetch_again(error), may_acknowledge_again(error)) == (fetch, acknowledge)


def acknowledged(types: dict[int, AcknowledgeType], key: TopicIdPartition = A) -> Acknowledgements:
    return Acknowledgements(Acquisition(TopicPartition("orders", key.partition), key, 1, 30.0), types)


def test_a_fetch_names_new_partitions_and_those_with_acknowledgements() -> None:
    session = ShareSessionRequest(4, add=(B,), forget=())
    accepted = acknowledged({7: AcknowledgeType.ACCEPT})
    request = fetch_request("g", "m", session, ShareConfig(group_id="g", acquire_mode="record_limit"), [accepted], 500)
    (topic,) = request.topics
    assert {partition.partition_index: len(partition.acknowledgement_batches) for partition in topic.partitions} == {
        0: 1,
        1: 0,
    }
    assert (request.share_session_epoch, request.share_acquire_mode, request.is_renew_ack) == (4, 1, False)


@pytest.mark.parametrize(("max_records", "mode"), [(500, 0), (15, 1)])
def test_fewer_records_than_a_fetch_may_have_are_a_strict_limit(max_records: int, mode: int) -> None:
    request = fetch_request("g", "m", ShareSessionRequest(4, (B,), ()), ShareConfig(group_id="g"), [], max_records)
    assert (request.max_records, request.share_acquire_mode) == (max_records, mode)


def test_a_request_with_a_renewal_says_so() -> None:
    accepted, renewed = acknowledged({1: AcknowledgeType.ACCEPT}), acknowledged({2: AcknowledgeType.RENEW})
    request = acknowledge_request("g", "m", 3, [accepted, renewed])
    ((partition,),) = (topic.partitions for topic in request.topics)
    assert [batch.acknowledge_types for batch in partition.acknowledgement_batches] == [[1], [4]]
    assert request.is_renew_ack
