"""A member of a share group (KIP-932): a state machine that decides and does nothing else.

A member has one kind of request, ShareGroupHeartbeat: epoch 0 joins, the last known epoch keeps the member alive, -1
leaves. The answer brings the assignment. There is no rebalance in which members wait for one another: several members
may read one partition, so an assignment takes effect at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from ..aio.retry import is_retriable_in_failover
from ..errors import ErrorCode, KafkaError, ProtocolError, error_for
from ..group.requests import heartbeat_interval, is_final, problem_of_assignment
from ..protocol.messages import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from ..state_machine import next_state
from .session import TopicIdPartition

JOIN_EPOCH = 0
LEAVE_EPOCH = -1

DEFAULT_INTERVAL = 5.0
"""Seconds between heartbeats until the coordinator has answered with its own interval."""


class ShareMemberState(Enum):
    """The states of a member of a share group."""

    JOINING = "Heartbeats with epoch 0 are sent until the coordinator answers with an epoch."
    STABLE = "Heartbeats are sent at the interval of the coordinator. Each answer may bring another assignment."
    FENCED = "The coordinator does not know the member any more. The next heartbeat joins again."
    LEAVING = "A heartbeat with epoch -1 is sent once."
    LEFT = "The member has left, or the time for it is over."
    FAILED = "The coordinator refused the member, and a retry cannot help."


class ShareMemberEvent(Enum):
    """The events of a member of a share group."""

    JOINED = "The coordinator answered with an epoch."
    FENCED = "The coordinator does not know the member or its epoch."
    REFUSED = "The coordinator answered with an error that is not retriable."
    CLOSE = "The user closes the consumer."
    LEFT = "The heartbeat with epoch -1 was answered, failed, or took too long."


_S, _E = ShareMemberState, ShareMemberEvent

TRANSITIONS: dict[ShareMemberState, dict[ShareMemberEvent, ShareMemberState]] = {
    _S.JOINING: {_E.JOINED: _S.STABLE, _E.FENCED: _S.FENCED, _E.REFUSED: _S.FAILED, _E.CLOSE: _S.LEAVING},
    _S.STABLE: {_E.JOINED: _S.STABLE, _E.FENCED: _S.FENCED, _E.REFUSED: _S.FAILED, _E.CLOSE: _S.LEAVING},
    _S.FENCED: {_E.JOINED: _S.STABLE, _E.FENCED: _S.FENCED, _E.REFUSED: _S.FAILED, _E.CLOSE: _S.LEFT},
    _S.LEAVING: {_E.LEFT: _S.LEFT},
    _S.LEFT: {},
    _S.FAILED: {_E.CLOSE: _S.FAILED},
}

_FENCED = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND)

_HINTS = {
    ErrorCode.GROUP_MAX_SIZE_REACHED: "the brokers limit the group by group.share.max.size",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "the principal needs READ on the group",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "the principal needs DESCRIBE and READ on the topics",
    ErrorCode.GROUP_ID_NOT_FOUND: "a group of another type has this id; use another group_id",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "a group of another type has this id; use another group_id",
    ErrorCode.UNSUPPORTED_VERSION: "share groups are off in this cluster: set its feature share.version to 1",
}


class ShareMember:
    """One member. Owner: the ``ShareMembership``, which sends ``heartbeat()`` and passes on each answer.

    ``member_id`` is chosen by the client and stays the same for its lifetime.

    ``ShareMember`` of ``embedded`` is the member as its coordinator sees it.
    """

    def __init__(self, group_id: str, member_id: str, topics: Sequence[str], rack: str | None = None) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.topics: tuple[str, ...] = tuple(sorted(topics))
        self.rack = rack
        self.state: ShareMemberState = ShareMemberState.JOINING
        self.epoch: int = JOIN_EPOCH
        self.heartbeat_interval: float = DEFAULT_INTERVAL
        self.assignment: frozenset[TopicIdPartition] = frozenset()
        self._was_accepted = False  # whether the coordinator has accepted this member once
        self._is_answered = False  # whether the last heartbeat was answered without an error
        self._must_repeat = False  # whether the coordinator must send the assignment again, because a thread got it

    def __repr__(self) -> str:
        return (
            f"<ShareMember {self.member_id} of {self.group_id} {self.state.name} epoch={self.epoch} "
            f"partitions={len(self.assignment)}>"
        )

    def heartbeat(self) -> ShareGroupHeartbeatRequest:
        """Return the next request. It contains topics and rack if the member joins, or if the last heartbeat failed.

        The coordinator sends an assignment once, and again in the answer to a heartbeat with topics. Without that, a
        lost answer would leave the member without its new partitions until the next change of the group.
        """
        if self.state is ShareMemberState.LEAVING:
            return ShareGroupHeartbeatRequest(
                group_id=self.group_id, member_id=self.member_id, member_epoch=LEAVE_EPOCH
            )
        self._is_answered = self._is_answered and not self._must_repeat
        self._must_repeat = False
        return ShareGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            rack_id=None if self._is_answered else self.rack,
            subscribed_topic_names=None if self._is_answered else list(self.topics),
        )

    def unanswered(self) -> None:
        """Record that the last heartbeat had no answer. The coordinator may have applied it."""
        self._is_answered = False

    def moved(self, epoch_before: int, epoch: int) -> None:
        """Record that a heartbeat of the heartbeat thread brought an epoch or an assignment.

        ``epoch_before`` is the last epoch that the member has told the thread. The thread drops the assignment, so the
        next heartbeat asks for it again.
        """
        if self.state is ShareMemberState.STABLE and epoch_before <= self.epoch:
            self.epoch = max(self.epoch, epoch)
            self._must_repeat = True

    def answered(self, response: ShareGroupHeartbeatResponse) -> KafkaError | None:
        """Apply an answer. Returns the error to report; the state is FAILED if a retry cannot help.

        A late answer to a request of an earlier state changes nothing: a member that is leaving takes no assignment.
        """
        if self.state in (ShareMemberState.LEAVING, ShareMemberState.LEFT, ShareMemberState.FAILED):
            return None
        code = ErrorCode.of(response.error_code)
        problem = _problem_of(response) if code is ErrorCode.NONE else None
        self._is_answered = code is ErrorCode.NONE and problem is None
        if problem is not None:
            return ProtocolError(f"the answer to ShareGroupHeartbeat of group {self.group_id!r} has {problem}")
        if code is ErrorCode.NONE:
            # The heartbeat thread may have moved a member that is in the group.
            is_stable = self.state is ShareMemberState.STABLE
            self.epoch = max(response.member_epoch, self.epoch if is_stable else JOIN_EPOCH)
            self.heartbeat_interval = heartbeat_interval(response.heartbeat_interval_ms)
            if response.assignment is not None:
                self.assignment = frozenset(
                    TopicIdPartition(topic.topic_id, number)
                    for topic in response.assignment.topic_partitions
                    for number in topic.partitions
                )
            self._was_accepted = True
            self._advance(ShareMemberEvent.JOINED)
            return None
        error = self._error(code, response.error_message)
        # A join creates the group, so a join that gets GROUP_ID_NOT_FOUND met a group of another type. For a member
        # that has joined, the brokers have lost the group.
        has_joined = self.epoch != JOIN_EPOCH
        if code in _FENCED and (has_joined or code is not ErrorCode.GROUP_ID_NOT_FOUND):
            self.epoch, self.assignment = JOIN_EPOCH, frozenset()
            self._advance(ShareMemberEvent.FENCED)
        elif not is_retriable_in_failover(error) and is_final(code, was_accepted=self._was_accepted):
            self._advance(ShareMemberEvent.REFUSED)
        return error

    def close(self) -> None:
        """Begin to leave because the user closes the consumer, if the coordinator may know the member."""
        if ShareMemberEvent.CLOSE in TRANSITIONS[self.state]:
            self._advance(ShareMemberEvent.CLOSE)

    def left(self) -> None:
        """Record that the request to leave was answered or failed."""
        self._advance(ShareMemberEvent.LEFT)

    def _error(self, code: ErrorCode, message: str | None) -> KafkaError:
        hint = _HINTS.get(code)
        if code is ErrorCode.GROUP_ID_NOT_FOUND and self.epoch != JOIN_EPOCH:
            hint = "the brokers no longer know the group, and the member joins again"
        details = "; ".join(text for text in (message, hint) if text)
        return error_for(
            code, f"ShareGroupHeartbeat of group {self.group_id!r} was refused" + (f" ({details})" if details else "")
        )

    def _advance(self, event: ShareMemberEvent) -> None:
        self.state = next_state(TRANSITIONS, self.state, event)


def _problem_of(response: ShareGroupHeartbeatResponse) -> str | None:
    """Return the reason why this answer is invalid; None if it is valid."""
    if response.member_epoch <= JOIN_EPOCH:
        return f"member epoch {response.member_epoch}"
    topics = () if response.assignment is None else response.assignment.topic_partitions
    return problem_of_assignment([(topic.topic_id, topic.partitions) for topic in topics])
