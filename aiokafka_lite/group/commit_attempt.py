"""A commit in progress, and the classification of its answers. An error code goes in, an outcome comes out."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum

from ..errors import ErrorCode, KafkaError
from ..types import OffsetAndMetadata, TopicPartition

MEMBERSHIP_ERRORS = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.FENCED_MEMBER_EPOCH,
)
_EPOCH_ERRORS = (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH)
_TOPIC_ERRORS = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


class CommitOutcome(Enum):
    """The result of a commit for one partition."""

    COMMITTED = "the broker has stored the offset"
    RETRY = "send the offset again"
    OUTDATED_EPOCH = "the member has, or is about to get, a newer epoch; send the offset again with it"
    UNKNOWN_ID = "the coordinator does not know the topic's id; send the offset again by name"
    REFUSED_EPOCH = "the broker refused the leader epoch; send the offset again without it"
    REFUSED_ANNOTATION = "the metadata of ``finished_offsets`` is too long; send the offset again without it"
    REFUSED = "another attempt would fail in the same way"


def classify_commit(
    code: ErrorCode,
    *,
    is_member: bool,
    is_outdated: bool,
    is_revoking: bool,
    by_name: bool,
    has_epoch: bool,
    has_annotation: bool = False,
) -> CommitOutcome:
    """Classify the answer for one partition.

    ``is_outdated``: the identity of the commit is no longer the member's, or is about to change. ``is_revoking``: the
    reader still releases partitions. ``by_name``: the request named topics without ids. ``has_epoch`` and
    ``has_annotation``: the request had a leader epoch, or metadata of ``finished_offsets``, for the partition.
    """
    if code is ErrorCode.NONE:
        return CommitOutcome.COMMITTED
    if is_outdated and code in MEMBERSHIP_ERRORS:
        # The error concerns a generation that is over; in the next one the partition may still be assigned.
        return CommitOutcome.RETRY
    if is_member and code is ErrorCode.STALE_MEMBER_EPOCH:
        return CommitOutcome.OUTDATED_EPOCH  # an exception to is_retriable, as in Java's client
    if not by_name and code is ErrorCode.UNKNOWN_TOPIC_ID:
        return CommitOutcome.UNKNOWN_ID
    if not is_revoking and code is ErrorCode.REBALANCE_IN_PROGRESS:
        # A member that revokes joins again after its last commit, so it must not wait for the end of the rebalance.
        # Kafka takes commits until then; librdkafka's mock cluster refuses them.
        return CommitOutcome.RETRY
    if code in _EPOCH_ERRORS:
        # Kafka stores the epoch without a check. librdkafka's mock cluster refuses the epoch of an earlier leader.
        return CommitOutcome.REFUSED_EPOCH if has_epoch else CommitOutcome.REFUSED
    if has_annotation and code is ErrorCode.OFFSET_METADATA_TOO_LARGE:
        return CommitOutcome.REFUSED_ANNOTATION
    if code.retriable and code not in _TOPIC_ERRORS:
        # An exception to is_retriable, as in Java's client: a commit for a topic that does not exist is refused at
        # once.
        return CommitOutcome.RETRY
    return CommitOutcome.REFUSED


@dataclass(slots=True)
class CommitAttempt:
    """A commit in progress: the offsets that remain to be sent, and the results so far."""

    offsets: dict[TopicPartition, OffsetAndMetadata]
    committed: dict[TopicPartition, OffsetAndMetadata] = field(default_factory=dict)
    refused: dict[TopicPartition, KafkaError] = field(default_factory=dict)
    last_error: dict[TopicPartition, str] = field(default_factory=dict)
    by_name: bool = False  # the coordinator does not know a topic id
    topic_ids: dict[str, bytes] = field(default_factory=dict)  # of the topics whose records were processed
    without_epoch: set[TopicPartition] = field(default_factory=set)  # the coordinator refused their leader epochs
    without_metadata: set[TopicPartition] = field(default_factory=set)  # the coordinator found it too long
    dropped: set[TopicPartition] = field(default_factory=set)  # partitions lost since then; they may be assigned again

    def to_send(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the remaining offsets as they are sent."""
        if not self.without_metadata:
            return dict(self.offsets)
        return {
            partition: replace(offset, metadata="") if partition in self.without_metadata else offset
            for partition, offset in self.offsets.items()
        }

    def fail(self, error: KafkaError, *, is_final: bool) -> None:
        """Record the error of a request that failed as a whole."""
        self.last_error.update(dict.fromkeys(self.offsets, str(error)))
        if is_final:
            self.refused.update(dict.fromkeys(self.offsets, error))
            self.offsets.clear()
