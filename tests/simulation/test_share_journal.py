"""The checks of share groups can fail: each finds a small history that breaks its rule, and accepts a good one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from aiokafka_lite import TopicPartition
from aiokafka_lite.embedded.faults import Exchange
from aiokafka_lite.errors import ErrorCode
from aiokafka_lite.protocol.messages import (
    ShareAcknowledgementBatch,
    ShareAcknowledgeRequest,
    ShareAcknowledgeRequestPartition,
    ShareAcknowledgeRequestTopic,
    ShareAcknowledgeResponse,
    ShareAcknowledgeResponsePartition,
    ShareAcknowledgeResponseTopic,
    ShareAcquiredRecords,
    ShareFetchRequest,
    ShareFetchResponse,
    ShareFetchResponsePartition,
    ShareFetchResponseTopic,
)
from aiokafka_lite.share.acknowledgements import AcknowledgeType
from tests.simulation.share_journal import (
    Place,
    ShareHistory,
    ShareJournal,
    lock_anomalies,
    lost_records,
    user_anomalies,
)

HERE = TopicPartition("t", 0)
RECORD = Place(HERE, 7)
TOPIC_ID = bytes(range(16))
LOCK = 15.0
LIMIT = 3
ACCEPT, RELEASE, REJECT, RENEW = (AcknowledgeType(number) for number in (1, 2, 3, 4))


def acquired(at: float, member: str, count: int, *, node: int = 1, epoch: int = 0) -> Exchange:
    """Return a fetch that acquired the record; by default it opens the share session."""
    request = ShareFetchRequest(
        group_id="g", member_id=member, share_session_epoch=epoch, max_wait_ms=1, min_bytes=1, max_records=1,
        batch_size=1, topics=[], forgotten_topics_data=[],
    )  # fmt: skip
    ranges = [ShareAcquiredRecords(first_offset=7, last_offset=7, delivery_count=count)]
    partition = ShareFetchResponsePartition(
        partition_index=0, error_code=0, acknowledge_error_code=0, records=b"", acquired_records=ranges
    )
    topics = [ShareFetchResponseTopic(topic_id=TOPIC_ID, partitions=[partition])]
    response = ShareFetchResponse(error_code=0, acquisition_lock_timeout_ms=15_000, responses=topics, node_endpoints=[])
    return Exchange(node, 1, member, 2, at, request, response, handled_at=at)


def acknowledged(
    at: float, member: str, kind: AcknowledgeType, code: ErrorCode = ErrorCode.NONE, *, node: int = 1
) -> Exchange:
    batches = [ShareAcknowledgementBatch(first_offset=7, last_offset=7, acknowledge_types=[int(kind)])]
    partition = ShareAcknowledgeRequestPartition(partition_index=0, acknowledgement_batches=batches)
    topics = [ShareAcknowledgeRequestTopic(topic_id=TOPIC_ID, partitions=[partition])]
    request = ShareAcknowledgeRequest(group_id="g", member_id=member, share_session_epoch=1, topics=topics)
    answered = ShareAcknowledgeResponsePartition(partition_index=0, error_code=code)
    response = ShareAcknowledgeResponse(
        error_code=0, responses=[ShareAcknowledgeResponseTopic(topic_id=TOPIC_ID, partitions=[answered])],
        node_endpoints=[],
    )  # fmt: skip
    return Exchange(node, 1, member, 2, at, request, response, handled_at=at)


def history(*exchanges: Exchange) -> ShareHistory:
    return ShareHistory("g", exchanges, {TOPIC_ID: "t"})


STALE = ErrorCode.INVALID_RECORD_STATE


@pytest.mark.parametrize(
    "exchanges, expected",
    [
        ([acquired(1, "a", 1), acknowledged(2, "a", ACCEPT)], ""),
        ([acquired(1, "a", 1), acknowledged(2, "a", ACCEPT), acquired(3, "b", 2)], "after ACCEPT of a"),
        ([acquired(1, "a", 1), acknowledged(2, "a", REJECT), acquired(3, "a", 2, node=2)], "after REJECT of a"),
        ([acquired(1, "a", 1), acknowledged(16, "a", ACCEPT, STALE), acquired(17, "b", 2)], ""),
        ([acquired(1, "a", 1), acknowledged(2, "a", RELEASE), acquired(3, "b", 2)], ""),
        ([acquired(1, "a", 1), acknowledged(2, "a", RELEASE), acquired(3, "b", 1, node=2)], "after RELEASE of a"),
        ([acquired(1, "a", 1), acquired(3, "b", 1, node=2)], ""),  # the leader moved during the delivery
        ([acquired(1, "a", 1), acquired(16, "b", 2)], ""),  # the lock has expired
        ([acquired(1, "a", 1), acquired(16, "b", 1)], "the same delivery count"),
        ([acquired(1, "a", 1), acquired(15.9, "b", 2)], ""),  # the session of a may have ended
        ([acquired(1, "a", 1), acquired(15.9, "b", 2), acknowledged(16, "a", ACCEPT, STALE)], "locked twice"),
        ([acquired(1, "a", 1), acquired(5, "a", 2), acquired(6, "b", 3)], ""),  # a opened another session
        ([acquired(1, "a", 1), acknowledged(9, "a", RENEW), acquired(17, "b", 2), acknowledged(18, "a", RENEW, STALE)],
         "locked twice"),
        ([acquired(1, "a", 1), acknowledged(9, "a", RENEW), acquired(24, "b", 2), acknowledged(25, "a", RENEW, STALE)],
         ""),
        ([acquired(number, "a", number, epoch=0) for number in (1, 2, 3, 4)], "the limit is 3"),
    ],
)  # fmt: skip
def test_a_lock_that_two_members_have_and_a_record_that_comes_again_are_found(
    exchanges: Sequence[Exchange], expected: str
) -> None:
    anomalies = list(lock_anomalies(history(*exchanges), LOCK, LIMIT, lambda *_: False))
    assert len(anomalies) == bool(expected)
    assert all(expected in anomaly for anomaly in anomalies)


def test_a_leader_that_was_elected_again_knows_no_locks() -> None:
    locked = history(acquired(1, "a", 1), acquired(3, "b", 1), acknowledged(4, "a", ACCEPT, STALE))
    assert len(list(lock_anomalies(locked, LOCK, LIMIT, lambda *_: False))) == 2
    assert not list(lock_anomalies(locked, LOCK, LIMIT, lambda *_: True))


def journal(*kinds: AcknowledgeType, delivered_at: float = 1.0, confirmed_at: float | None = None) -> ShareJournal:
    """Return a user of the member "a" that received the record and acknowledged it."""
    journal = ShareJournal("g")
    journal.delivered.append(("a", RECORD, 1, delivered_at))
    journal.acknowledged["a", RECORD].update(kinds)
    journal.confirmed += [] if confirmed_at is None else [("a", RECORD, confirmed_at)]
    return journal


ONCE = history(acquired(1, "a", 1), acknowledged(2, "a", ACCEPT))


@pytest.mark.parametrize(
    "user, expected",
    [
        (journal(ACCEPT), ""),
        (journal(ACCEPT, confirmed_at=2.0), ""),
        (journal(ACCEPT, confirmed_at=1.9), "no broker applied"),
        (journal(RELEASE), "its user did not"),
        (journal(ACCEPT, delivered_at=15.9), ""),
        (journal(ACCEPT, delivered_at=16.0), "without a lock"),
        (journal(ACCEPT, delivered_at=0.9), "without a lock"),
    ],
)
def test_an_acknowledgement_that_the_user_did_not_give_and_a_late_record_are_found(
    user: ShareJournal, expected: str
) -> None:
    anomalies = list(user_anomalies(user, ONCE, LOCK))
    assert len(anomalies) == bool(expected)
    assert all(expected in anomaly for anomaly in anomalies)


def test_records_that_no_user_processed_are_found() -> None:
    logs = {HERE: [b"value"] * 8}
    others = [str(Place(HERE, offset)) for offset in range(7)]
    assert lost_records(journal(ACCEPT), ONCE, logs, LIMIT) == others
    assert lost_records(journal(RELEASE), ONCE, logs, LIMIT) == [*others, str(RECORD)]
    assert lost_records(journal(RELEASE), history(acquired(1, "a", LIMIT)), logs, LIMIT) == others
    unseen = replace(acquired(2, "b", LIMIT), response=None, handled_at=None)
    once_more = acquired(1, "a", LIMIT - 1)
    assert lost_records(journal(RELEASE), history(once_more), logs, LIMIT) == [*others, str(RECORD)]
    assert lost_records(journal(RELEASE), history(once_more, unseen), logs, LIMIT) == others
