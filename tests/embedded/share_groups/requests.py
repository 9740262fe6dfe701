"""Requests of a member of a share group, as raw messages, and short forms of the responses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from aiokafka_lite.errors import ErrorCode
from aiokafka_lite.protocol import messages as m

Batch = tuple[int, int, Sequence[int]]
"""First offset, last offset, acknowledgement types."""


def acknowledgements(batches: Iterable[Batch]) -> list[m.ShareAcknowledgementBatch]:
    return [
        m.ShareAcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=list(types))
        for first, last, types in batches
    ]


def heartbeat(group: str, member: str, epoch: int, topics: list[str] | None = None) -> m.ShareGroupHeartbeatRequest:
    return m.ShareGroupHeartbeatRequest(
        group_id=group, member_id=member, member_epoch=epoch, subscribed_topic_names=topics
    )


def share_fetch(
    group: str,
    member: str,
    epoch: int,
    topic_id: bytes | None = None,
    *batches: Batch,
    partition: int = 0,
    max_records: int = 500,
    **fields: Any,
) -> m.ShareFetchRequest:
    """Read one partition, or, without a topic, the partitions of the session."""
    target = m.ShareFetchRequestPartition(partition_index=partition, acknowledgement_batches=acknowledgements(batches))
    values = {"min_bytes": 1, "max_wait_ms": 200, "batch_size": max_records, "forgotten_topics_data": []} | fields
    return m.ShareFetchRequest(
        group_id=group,
        member_id=member,
        share_session_epoch=epoch,
        max_records=max_records,
        topics=[] if topic_id is None else [m.ShareFetchRequestTopic(topic_id=topic_id, partitions=[target])],
        **values,
    )


def share_acknowledge(
    group: str,
    member: str,
    epoch: int,
    topic_id: bytes,
    *batches: Batch,
    partition: int = 0,
    renew: bool = False,
) -> m.ShareAcknowledgeRequest:
    done = m.ShareAcknowledgeRequestPartition(
        partition_index=partition, acknowledgement_batches=acknowledgements(batches)
    )
    return m.ShareAcknowledgeRequest(
        group_id=group,
        member_id=member,
        share_session_epoch=epoch,
        is_renew_ack=renew,
        topics=[m.ShareAcknowledgeRequestTopic(topic_id=topic_id, partitions=[done])],
    )


def acquired(response: m.ShareFetchResponse) -> list[tuple[int, int, int]]:
    """Return first offset, last offset and delivery count of each range that a member acquired."""
    assert response.error_code == ErrorCode.NONE, ErrorCode.of(response.error_code)
    return [
        (acquired_record.first_offset, acquired_record.last_offset, acquired_record.delivery_count)
        for topic in response.responses
        for partition in topic.partitions
        for acquired_record in partition.acquired_records
    ]
