"""The events that a member handles, and the actions that it returns. Data only; ``member`` has the rules.

Requests carry an attempt number and handovers a number of their own. The outcome returns with the same number, so that
the member can drop outdated ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ..errors import ErrorCode, KafkaError
from ..protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from ..types import TopicPartition
from .strategies import TopicRacks


@dataclass(frozen=True, slots=True)
class Identity:
    """The fields that a broker checks in heartbeats and commits: member id, generation and ``group_instance_id``.

    Under the consumer protocol ``generation`` is the member epoch.
    """

    member_id: str
    generation: int
    instance_id: str | None


NO_MEMBER = Identity("", -1, None)
"""The identity of commits to a group without members, as admin clients and consumers with ``assign`` send them."""


# Events.


@dataclass(frozen=True, slots=True)
class Subscribe:
    """The user subscribes to these topics. Without topics, the member leaves the group.

    ``lazily``: only deleted topics were left out. The group need not rebalance unless the member owns their partitions.
    ``pattern`` is a regular expression that the coordinator matches, or empty.
    """

    topics: frozenset[str]
    lazily: bool = False
    pattern: str = ""


@dataclass(frozen=True, slots=True)
class JoinAnswer:
    """The answer to JoinGroup."""

    attempt: int
    response: JoinGroupResponse


@dataclass(frozen=True, slots=True)
class TopicsGathered:
    """The metadata that the leader needs for its assignment."""

    attempt: int
    topics: TopicRacks


@dataclass(frozen=True, slots=True)
class SyncAnswer:
    """The answer to SyncGroup. ``problem`` is the reason why metadata makes it invalid, or None."""

    attempt: int
    response: SyncGroupResponse
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class AssignmentsSeen:
    """The encoded assignments of all members of the stable group, and the numbers of partitions of the topics."""

    identity: Identity
    counts: Mapping[str, int]
    assignments: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class RequestFailed:
    """A request was not answered. ``retriable``: whether the same request may succeed later."""

    attempt: int
    error: KafkaError
    retriable: bool


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    """The answer to a heartbeat of this identity."""

    identity: Identity
    code: ErrorCode


@dataclass(frozen=True, slots=True)
class HeartbeatDue:
    """The pause of ``PauseHeartbeat`` has passed. Like the next two events, it exists only in the consumer protocol."""

    attempt: int


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeatAnswer:
    """The answer to ConsumerGroupHeartbeat. ``names`` are the topics that metadata knows, by id; ``problem`` is the
    reason why this metadata makes the answer invalid, or None. ``answered_at`` is the loop's time of the answer."""

    attempt: int
    response: ConsumerGroupHeartbeatResponse
    names: Mapping[bytes, str]
    problem: str | None = None
    answered_at: float = 0.0


@dataclass(frozen=True, slots=True)
class ThreadStarted:
    """The heartbeat thread runs from now on, and may send a heartbeat at the same time as the event loop."""


@dataclass(frozen=True, slots=True)
class MovedByThread:
    """A heartbeat of the thread moved the member to ``epoch``, or its answer had an assignment.

    ``epoch_before`` is the last epoch that the member has told the thread. The thread drops the assignment, because
    only the event loop acts on it.
    """

    epoch_before: int
    epoch: int


@dataclass(frozen=True, slots=True)
class TopicsNamed:
    """Metadata was refreshed for ``ResolveTopics``: the topics that it knows, by id."""

    names: Mapping[bytes, str]


@dataclass(frozen=True, slots=True)
class SessionExpired:
    """No heartbeat of this identity succeeded for ``session_timeout``: the coordinator may have evicted the member."""

    identity: Identity


@dataclass(frozen=True, slots=True)
class MembershipRefused:
    """A commit of this identity was refused with an error about the membership."""

    identity: Identity
    code: ErrorCode


@dataclass(frozen=True, slots=True)
class Released:
    """The reader has released the partitions of the ``Revoke`` or ``Lose`` with this number."""

    number: int


@dataclass(frozen=True, slots=True)
class TopicsSeen:
    """Metadata has changed. ``counts`` has the number of partitions of each existing topic that the leader watches."""

    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class PollOverdue:
    """The user has not asked for records for longer than ``max_poll_interval``."""


@dataclass(frozen=True, slots=True)
class Polled:
    """The user asks for records again."""


@dataclass(frozen=True, slots=True)
class LeaveAnswer:
    """The request to leave was answered or timed out. The answer makes no difference."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Close:
    """The user closes the consumer.

    ``leave``: whether to leave the group, so that the group does not wait for the session's end.
    """

    leave: bool


Event: TypeAlias = (
    Subscribe
    | JoinAnswer
    | TopicsGathered
    | SyncAnswer
    | AssignmentsSeen
    | RequestFailed
    | HeartbeatAnswer
    | HeartbeatDue
    | ConsumerHeartbeatAnswer
    | ThreadStarted
    | MovedByThread
    | TopicsNamed
    | SessionExpired
    | MembershipRefused
    | Released
    | TopicsSeen
    | PollOverdue
    | Polled
    | LeaveAnswer
    | Close
)


# Actions.


@dataclass(frozen=True, slots=True)
class SendJoin:
    """Send JoinGroup, with ``pause`` after a backoff. Outcome: ``JoinAnswer``."""

    attempt: int
    request: JoinGroupRequest
    pause: bool


@dataclass(frozen=True, slots=True)
class GatherTopics:
    """Look up the metadata of the topics, without those that do not exist. Outcome: ``TopicsGathered``."""

    attempt: int
    topics: frozenset[str]


@dataclass(frozen=True, slots=True)
class SendSync:
    """Send SyncGroup. Outcome: ``SyncAnswer``."""

    attempt: int
    request: SyncGroupRequest


@dataclass(frozen=True, slots=True)
class LookUpAssignments:
    """Look up what is assigned in the group. Outcome: ``AssignmentsSeen``; none if the group is not stable, or the
    lookup fails."""

    identity: Identity
    topics: frozenset[str]


@dataclass(frozen=True, slots=True)
class SendLeave:
    """Send LeaveGroup. Outcome: ``LeaveAnswer``."""

    attempt: int
    member_id: str
    instance_id: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class AwaitJoin:
    """Wait briefly for the answer to the JoinGroup of this attempt. Outcome: that answer, or ``RequestFailed``."""

    attempt: int


@dataclass(frozen=True, slots=True)
class PauseHeartbeat:
    """Wait ``seconds``, or a backoff if None, before the next ConsumerGroupHeartbeat. Outcome: ``HeartbeatDue``."""

    attempt: int
    seconds: float | None


@dataclass(frozen=True, slots=True)
class SendHeartbeat:
    """Send ConsumerGroupHeartbeat. Outcome: ``ConsumerHeartbeatAnswer``; ``LeaveAnswer`` if the request leaves."""

    attempt: int
    request: ConsumerGroupHeartbeatRequest
    leaves: bool = False


@dataclass(frozen=True, slots=True)
class ResolveTopics:
    """Refresh metadata until it has the names of all assigned topic ids. Outcome: ``TopicsNamed``."""


@dataclass(frozen=True, slots=True)
class Assign:
    """Give the added partitions, which may be none, to the reader, because the generation is complete."""

    added: tuple[TopicPartition, ...]
    owned: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class Revoke:
    """Take the partitions from the reader, and commit the marked offsets first. Outcome: ``Released``.

    ``closing``: do not wait for the user to finish with records.
    """

    number: int
    partitions: tuple[TopicPartition, ...]
    closing: bool


@dataclass(frozen=True, slots=True)
class Lose:
    """Take the partitions from the reader without a commit: others may own them. Outcome: ``Released``."""

    number: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Fail:
    """Raise the error to the user, because the membership cannot continue."""

    error: KafkaError


@dataclass(frozen=True, slots=True)
class Report:
    """Log an error that is retried."""

    error: KafkaError


Action: TypeAlias = (
    SendJoin
    | GatherTopics
    | SendSync
    | LookUpAssignments
    | SendLeave
    | AwaitJoin
    | PauseHeartbeat
    | SendHeartbeat
    | ResolveTopics
    | Assign
    | Revoke
    | Lose
    | Fail
    | Report
)
