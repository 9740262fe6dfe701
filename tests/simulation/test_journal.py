"""The checks of a simulation can fail: each finds a small history that breaks its promise, and accepts a good one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from aiokafka_lite import TopicPartition
from aiokafka_lite.embedded.faults import Exchange
from aiokafka_lite.errors import ErrorCode
from aiokafka_lite.protocol.messages import (
    ConsumerGroupHeartbeatAssignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatTopicPartitions,
    FetchRequest,
    HeartbeatRequest,
    HeartbeatResponse,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    ProduceRequest,
    ShareAcknowledgementBatch,
    ShareFetchRequest,
    ShareFetchRequestPartition,
    ShareFetchRequestTopic,
)
from tests.end_to_end.send_history import History, Promises
from tests.simulation.journal import (
    LAST_HEARTBEAT,
    MAX_POLL_INTERVAL,
    MOST_FETCHES,
    MOST_REQUESTS,
    SESSION_TIMEOUT,
    GroupJournal,
    commit_anomalies,
    log_anomalies,
    may_share,
    may_share_assigned,
    rate_anomalies,
)
from tests.simulation.workload import WriterPlan

HERE = TopicPartition("t", 0)
TOPIC_ID = bytes(range(16))


def test_a_lost_record_is_found_and_records_of_other_writers_are_not_counted() -> None:
    plan = WriterPlan("a", {}, Promises(), "send", (0.0,), "")
    history = History()
    history.invoke(HERE, b"a-1").acknowledged(HERE, 0)
    assert not list(log_anomalies(plan, history, {HERE: [b"a-1", None, b"b-1"]}))
    assert len(list(log_anomalies(plan, history, {HERE: [b"b-1"]}))) == 1
    assert len(list(log_anomalies(plan, history, {HERE: [b"a-1", b"a-2"]}))) == 1


def journal(*done: tuple[int, float]) -> GroupJournal:
    """Return a group that has done the work on some records: offset and time."""
    journal = GroupJournal("g")
    for offset, at in done:
        journal.note_done(HERE, offset, at)
    return journal


def test_records_that_no_member_processed_are_found() -> None:
    group = journal((0, 1.0), (2, 1.0))
    assert group.missing({HERE: [b"0"]}) == {}
    assert group.missing({HERE: [b"0", b"1", b"2", b"3"]}) == {"t-0": [1, 3]}


def committed(offset: int, at: float, *, group_id: str = "g", by_id: bool = False) -> Exchange:
    partitions = [OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata=None)]
    name: dict[str, Any] = {"topic_id": TOPIC_ID} if by_id else {"name": "t"}
    topic = OffsetCommitRequestTopic(**name, partitions=partitions)
    return Exchange(1, 1, "m", 9, at, OffsetCommitRequest(group_id=group_id, member_id="m", topics=[topic]))


@pytest.mark.parametrize("by_id", [False, True])
@pytest.mark.parametrize("offset, at, count", [(0, 0.5, 0), (2, 2.0, 0), (2, 1.9, 1), (3, 9.0, 1)])
def test_a_commit_before_the_work_is_done_is_found(offset: int, at: float, count: int, by_id: bool) -> None:
    group = journal((0, 1.0), (1, 2.0), (1, 5.0))  # the first time counts
    exchanges = [committed(offset, at, by_id=by_id), committed(3, 0.0, group_id="other")]
    assert len(list(commit_anomalies(group, exchanges, {TOPIC_ID: "t"}, {HERE: []}))) == count


@pytest.mark.parametrize(
    "request_, most",
    [
        (MetadataRequest(topics=[]), MOST_REQUESTS),
        (FetchRequest(max_wait_ms=0, min_bytes=1, topics=[]), MOST_FETCHES),
        (ProduceRequest(acks=1, timeout_ms=1, topic_data=[]), None),
    ],
)
def test_requests_at_full_speed_are_found(request_: Any, most: int | None) -> None:
    def sent(count: int, node: int = 1, at: float = 5.0) -> list[Exchange]:
        return [Exchange(node, 1, "c", 1, at + number / 10_000, request_) for number in range(count)]

    many = most or 1000
    assert not list(rate_anomalies([*sent(many), *sent(many, node=2), *sent(many, at=6.0)]))
    assert len(list(rate_anomalies(sent(many + 1)))) == (0 if most is None else 1)


def test_a_share_fetch_counts_unless_it_acknowledges_records_for_the_first_time() -> None:
    def fetch(offset: int, at: float) -> Exchange:
        batch = ShareAcknowledgementBatch(first_offset=offset, last_offset=offset, acknowledge_types=[1])
        partition = ShareFetchRequestPartition(partition_index=0, acknowledgement_batches=[batch])
        topic = ShareFetchRequestTopic(topic_id=TOPIC_ID, partitions=[partition])
        limits: dict[str, Any] = {"max_wait_ms": 500, "min_bytes": 1, "max_records": 1, "batch_size": 1}
        request = ShareFetchRequest(
            member_id="m", share_session_epoch=1, topics=[topic], forgotten_topics_data=[], **limits
        )
        return Exchange(1, 1, "c", 78, at, request)

    often = range(MOST_FETCHES + 2)
    assert not list(rate_anomalies(fetch(number, 5.0) for number in often))
    assert len(list(rate_anomalies(fetch(0, 5.0) for _ in often))) == 1


BEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


def heartbeat(at: float, code: ErrorCode = ErrorCode.NONE, *, member: str = "old", node: int = 1) -> Exchange:
    return Exchange(node, 1, member, 4, at, BEAT, HeartbeatResponse(error_code=code))


REBALANCE, FENCED = ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.UNKNOWN_MEMBER_ID
UNANSWERED = Exchange(1, 1, "old", 4, 100.0, BEAT)


@pytest.mark.parametrize(
    "exchanges, after, expected",
    [
        ([], 0.0, True),
        ([heartbeat(100.0)], 1.0, False),
        ([heartbeat(100.0)], SESSION_TIMEOUT, True),
        ([heartbeat(100.0)], SESSION_TIMEOUT - 1e-12, True),
        ([heartbeat(100.0)], SESSION_TIMEOUT - 0.01, False),
        ([heartbeat(100.0)], SESSION_TIMEOUT + LAST_HEARTBEAT + 2.0, True),  # the loop was blocked for 2 s
        ([heartbeat(100.0)], SESSION_TIMEOUT + LAST_HEARTBEAT + 2.1, False),
        ([heartbeat(98.0), heartbeat(100.0, FENCED)], SESSION_TIMEOUT - 2.0, True),  # no contact with its group
        ([heartbeat(98.0), UNANSWERED], SESSION_TIMEOUT - 2.0, True),
        (
            [heartbeat(97.0), *(heartbeat(98.0 + second, REBALANCE) for second in range(10))],
            MAX_POLL_INTERVAL - 3.0,
            True,
        ),
        (
            [heartbeat(97.0), *(heartbeat(98.0 + second, REBALANCE) for second in range(10))],
            MAX_POLL_INTERVAL - 3.1,
            False,
        ),
        ([heartbeat(100.0, node=3)], 1.0, True),  # of a coordinator that is cut off
        ([heartbeat(100.0, node=2)], 1.0, False),  # of one that was the coordinator before
        ([heartbeat(100.0), heartbeat(100.0, member="new", node=3)], 1.0, True),
        ([heartbeat(100.0), heartbeat(100.0, member="new", node=2)], 1.0, False),
    ],
)
def test_two_owners_are_found_unless_the_coordinator_could_not_know(
    exchanges: Sequence[Exchange], after: float, expected: bool
) -> None:
    shares = may_share("old", "new", 100.0 + after, exchanges, 1, cut_off=lambda node: node == 3, blocked=2.0)
    assert shares is expected


def assigned(at: float, partitions: list[int] | None, *, member: str = "old", node: int = 1, code: int = 0) -> Exchange:
    """Return a heartbeat of the consumer protocol; its answer has an assignment unless ``partitions`` is None."""
    topics = [ConsumerGroupHeartbeatTopicPartitions(topic_id=TOPIC_ID, partitions=partitions or [])]
    answer = ConsumerGroupHeartbeatResponse(
        error_code=code,
        member_epoch=1,
        heartbeat_interval_ms=1000,
        assignment=None if partitions is None else ConsumerGroupHeartbeatAssignment(topic_partitions=topics),
    )
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=1)
    return Exchange(node, 1, member, 1, at, request, answer)


ASKED = [assigned(90.0, [0, 1]), assigned(91.0, [1]), assigned(95.0, [1]), assigned(100.0, None)]


@pytest.mark.parametrize(
    "exchanges, after, expected",
    [
        ([], 0.0, True),
        ([assigned(100.0, [0])], 1.0, False),
        ([assigned(100.0, [0])], SESSION_TIMEOUT, True),
        ([assigned(94.0, [0]), assigned(100.0, None, code=ErrorCode.UNKNOWN_MEMBER_ID)], 0.0, True),
        (ASKED, MAX_POLL_INTERVAL - 9.0, True),  # it did not release the partition in time
        (ASKED, MAX_POLL_INTERVAL - 9.1, False),
        ([*ASKED, assigned(100.0, [0])], MAX_POLL_INTERVAL - 9.0, False),  # it has the partition again
        ([assigned(100.0, [0], node=3)], 1.0, True),  # of a coordinator that is cut off
        ([assigned(100.0, [0], node=2)], 1.0, False),
        ([assigned(100.0, [0]), assigned(100.0, [0], member="new", node=3)], 1.0, True),
        ([assigned(100.0, [0]), heartbeat(100.0, member="new", node=3)], 1.0, True),  # of the other protocol
        ([assigned(100.0, [0]), heartbeat(100.0, member="new", node=2)], 1.0, False),
    ],
)
def test_two_owners_of_an_assigned_partition_are_found_unless_the_old_one_could_not_know(
    exchanges: Sequence[Exchange], after: float, expected: bool
) -> None:
    shares = may_share_assigned(
        "old", "new", (TOPIC_ID, 0), 100.0 + after, exchanges, 1, cut_off=lambda node: node == 3
    )
    assert shares is expected
