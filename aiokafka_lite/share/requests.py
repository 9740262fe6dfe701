"""The requests of one share session, and the reactions to error codes in their answers. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..aio.retry import is_retriable
from ..errors import BrokerError, ErrorCode
from ..protocol.messages import (
    ShareAcknowledgementBatch,
    ShareAcknowledgeRequest,
    ShareAcknowledgeRequestPartition,
    ShareAcknowledgeRequestTopic,
    ShareFetchRequest,
    ShareFetchRequestForgottenTopic,
    ShareFetchRequestPartition,
    ShareFetchRequestTopic,
)
from ..settings.share import ShareConfig
from .acknowledgements import AcknowledgeType, SettledRange, acknowledgement_batches
from .in_flight import Acknowledgements
from .session import OPEN, ShareSessionRequest, TopicIdPartition

_RECORD_LIMIT = 1  # the ``share_acquire_mode`` of acquire_mode="record_limit"

_LOST_WITH_LEADER = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INVALID_RECORD_STATE,
)


def fetch_request(
    group_id: str,
    member_id: str,
    session: ShareSessionRequest,
    config: ShareConfig,
    acknowledged: Sequence[Acknowledgements],
    max_records: int,
) -> ShareFetchRequest:
    """Build the next ShareFetch. It names the partitions that are added, and those with acknowledgements.

    If the program takes fewer than ``max_fetch_records`` records within a lock, the broker acquires no more than
    ``max_records``: whole batches would be too many.
    """
    assert not (acknowledged and session.epoch == OPEN), "a request that opens a session has no acknowledgements"
    is_strict = config.acquire_mode == "record_limit" or max_records < config.max_fetch_records
    batches = _batches(acknowledged)
    by_topic: dict[bytes, list[ShareFetchRequestPartition]] = {}
    for key in dict.fromkeys((*session.add, *batches)):
        by_topic.setdefault(key.topic_id, []).append(
            ShareFetchRequestPartition(partition_index=key.partition, acknowledgement_batches=batches.get(key, []))
        )
    forgotten: dict[bytes, list[int]] = {}
    for key in session.forget:
        forgotten.setdefault(key.topic_id, []).append(key.partition)
    return ShareFetchRequest(
        group_id=group_id,
        member_id=member_id,
        share_session_epoch=session.epoch,
        max_wait_ms=round(config.fetch_max_wait * 1000),
        min_bytes=config.fetch_min_bytes,
        max_bytes=config.fetch_max_bytes,
        max_records=max_records,
        batch_size=max_records,
        share_acquire_mode=_RECORD_LIMIT if is_strict else 0,
        topics=[
            ShareFetchRequestTopic(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in by_topic.items()
        ],
        forgotten_topics_data=[
            ShareFetchRequestForgottenTopic(topic_id=topic_id, partitions=numbers)
            for topic_id, numbers in forgotten.items()
        ],
    )


def acknowledge_request(
    group_id: str, member_id: str, epoch: int, acknowledged: Sequence[Acknowledgements]
) -> ShareAcknowledgeRequest:
    """Build the next ShareAcknowledge; with the epoch FINAL it also ends the session."""
    by_topic: dict[bytes, list[ShareAcknowledgeRequestPartition]] = {}
    for key, batches in _batches(acknowledged).items():
        by_topic.setdefault(key.topic_id, []).append(
            ShareAcknowledgeRequestPartition(partition_index=key.partition, acknowledgement_batches=batches)
        )
    return ShareAcknowledgeRequest(
        group_id=group_id,
        member_id=member_id,
        share_session_epoch=epoch,
        is_renew_ack=any(acknowledgements.counts()[AcknowledgeType.RENEW] for acknowledgements in acknowledged),
        topics=[
            ShareAcknowledgeRequestTopic(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in by_topic.items()
        ],
    )


def _batches(
    acknowledged: Iterable[Acknowledgements],
) -> Mapping[TopicIdPartition, list[ShareAcknowledgementBatch]]:
    types: dict[TopicIdPartition, dict[int, AcknowledgeType]] = {}
    settled: dict[TopicIdPartition, list[SettledRange]] = {}
    for acknowledgements in acknowledged:
        key = acknowledgements.acquisition.key
        types.setdefault(key, {}).update(acknowledgements.types)
        settled.setdefault(key, []).extend(acknowledgements.settled)
    return {key: acknowledgement_batches(types[key], settled[key]) for key in types}


def may_acknowledge_again(error: BrokerError) -> bool:
    """Return whether the broker may apply a refused acknowledgement later: the records are still acquired.

    True if ``is_retriable``, except after a change of the leader: the new leader makes all acquired records available.
    """
    return is_retriable(error) and error.code not in _LOST_WITH_LEADER


def may_fetch_again(error: BrokerError) -> bool:
    """Return whether a partition that was refused may be fetched later.

    True if ``is_retriable``, and for UNKNOWN_SERVER_ERROR, which brokers return during a failover.
    """
    return is_retriable(error) or error.code in (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNKNOWN_TOPIC_ID)
