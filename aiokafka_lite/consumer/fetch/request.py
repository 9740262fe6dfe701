"""The Fetch request of one broker, and the actions for error codes in its answer. Pure."""

from __future__ import annotations

from enum import Enum, auto

from ...errors import ErrorCode
from ...protocol.messages import (
    FetchRequest,
    FetchRequestForgottenTopic,
    FetchRequestPartition,
    FetchRequestTopic,
)
from ...settings.consumer import ConsumerConfig
from .plan import FetchKey, FetchPlan, FetchTarget
from .session import FINAL, SessionRequest


class FetchOutcome(Enum):
    """The action that a partition's error code requires."""

    DATA = auto()
    """No error: there are records, or at least a new high watermark."""
    REFRESH = auto()
    """The broker or the topic id is wrong: metadata must be read again."""
    RETRY = auto()
    """The next attempt may succeed."""
    RESET = auto()
    """The broker does not have the offset: the policy chooses another one."""
    RAISE = auto()
    """The user must be notified."""


def classify(code: ErrorCode) -> FetchOutcome:
    """Classify a partition's error code.

    Two codes differ from the shared rule, as in Java's consumer: UNKNOWN_SERVER_ERROR is retried, and CORRUPT_MESSAGE,
    which is retriable for producers, is raised, because the broker found its own log damaged on disk.
    """
    if code is ErrorCode.NONE:
        return FetchOutcome.DATA
    if code is ErrorCode.OFFSET_OUT_OF_RANGE:
        return FetchOutcome.RESET
    if code is ErrorCode.CORRUPT_MESSAGE:
        return FetchOutcome.RAISE
    if code.stale_metadata or code is ErrorCode.UNKNOWN_LEADER_EPOCH:
        return FetchOutcome.REFRESH
    if code.retriable or code is ErrorCode.UNKNOWN_SERVER_ERROR:
        return FetchOutcome.RETRY
    return FetchOutcome.RAISE


def fetch_request(
    session_request: SessionRequest[FetchKey, FetchTarget],
    plan: FetchPlan,
    config: ConsumerConfig,
    *,
    max_wait: float,
    rack: str = "",
    with_epochs: bool = True,
) -> FetchRequest:
    """Build the request for the differences that the session names; ``max_wait`` in seconds.

    ``with_epochs``: name the last fetched epochs, so that the broker compares logs (v12 and newer).
    """
    by_topic: dict[tuple[str, bytes], list[FetchRequestPartition]] = {}
    for key, target in session_request.send.items():
        by_topic.setdefault((key.topic, key.topic_id), []).append(
            FetchRequestPartition(
                partition=key.partition,
                current_leader_epoch=target.current_leader_epoch,
                fetch_offset=target.offset,
                last_fetched_epoch=target.last_fetched_epoch if with_epochs else -1,
                partition_max_bytes=target.max_bytes,
            )
        )
    forgotten: dict[tuple[str, bytes], list[int]] = {}
    for key in session_request.forget:
        forgotten.setdefault((key.topic, key.topic_id), []).append(key.partition)
    return FetchRequest(
        max_wait_ms=round(max_wait * 1000),
        min_bytes=config.fetch_min_bytes,
        max_bytes=plan.max_bytes,
        isolation_level=int(config.isolation),
        session_id=session_request.session_id,
        session_epoch=session_request.epoch,
        topics=[
            FetchRequestTopic(topic=name, topic_id=topic_id, partitions=partitions)
            for (name, topic_id), partitions in by_topic.items()
        ],
        forgotten_topics_data=[
            FetchRequestForgottenTopic(topic=name, topic_id=topic_id, partitions=numbers)
            for (name, topic_id), numbers in forgotten.items()
        ],
        rack_id=rack,
    )


def end_session_request(session_id: int, config: ConsumerConfig) -> FetchRequest:
    """Build the request to drop a fetch session."""
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=0,
        isolation_level=int(config.isolation),
        session_id=session_id,
        session_epoch=FINAL,
        topics=[],
        forgotten_topics_data=[],
    )
