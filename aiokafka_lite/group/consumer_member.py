"""A member of a group under the consumer protocol (KIP-848): a state machine that decides and does nothing else.

The coordinator assigns the partitions. One request, ConsumerGroupHeartbeat, joins, keeps the membership, carries the
subscription and the owned partitions, and leaves. ``handle(event)`` moves the machine and returns actions (``events``).

Rules of this file:

Rule 1: One heartbeat is in flight at a time. A second one could overtake the first, and the coordinator would get
  outdated owned partitions. Only the heartbeat that leaves the group may be sent while another one is in flight. Each
  heartbeat and each pause has an attempt number, and the outcome of another attempt is dropped.
Rule 2: Partitions are released before they are reported as not owned, and before added ones are assigned. The
        coordinator gives a partition to another member when no heartbeat reports it any more.
Rule 3: After the first heartbeat only changed fields are sent. After a failure all fields are sent, because it is not
  known which of them the coordinator has received. The answer then has the whole assignment.
Rule 4: After a fence nothing is committed: the coordinator may have given the partitions to other members long ago. The
        member joins again with epoch 0 under the same member id, which it keeps for its whole life (KIP-1082).
Rule 5: A heartbeat that follows a failure pauses first. No change of state cuts that pause short.
Rule 6: Topic ids that metadata does not know stay in the target assignment until their names are known. While a name
  is unknown, the member sends all fields after every ``UNNAMED_ANSWERS`` answers, so that the coordinator repeats the
  assignment.
Rule 7: After a new epoch or assignment the next heartbeats are sent early, with growing pauses. Members that join often
        come together, and each of them may take partitions from the others. The coordinator assigns at most once a
        second. Java's client waits for the whole interval, 5 seconds by default, at each step.
Rule 8: A coordinator refuses a join with an instance id that a member of the group has. This also happens to the same
        member, if the answer to its join was lost or its epoch was fenced. The member then leaves with epoch -2, which
        the coordinator accepts only from the holder of the id, and joins again. Java's client fails.
Rule 9: A static member whose process died holds its instance id until its session ends. The next process with this id
        joins again and again meanwhile, for ``session_timeout`` and ``SESSION_MARGIN``. Java's client fails.
Rule 10: While the event loop is blocked, a thread may send heartbeats without any optional field (``beats``). One of
        them may move the member to the next epoch while a heartbeat of this machine is in flight. The coordinator
        accepts that one, with the previous epoch, only if it lists the partitions. So every heartbeat lists them as
        soon as there is a thread, except while partitions are released: then the epoch cannot move, and the list may
        lack partitions that the coordinator has assigned.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import ClassVar, NamedTuple

from ..errors import ErrorCode, ProtocolError, error_for
from ..protocol.messages import (
    ConsumerGroupHeartbeatAssignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatTopicPartitions,
)
from ..state_machine import Transitions
from ..types import TopicPartition
from .base_member import BaseMember
from .events import (
    Action,
    Assign,
    Close,
    ConsumerHeartbeatAnswer,
    Event,
    HeartbeatDue,
    LeaveAnswer,
    MembershipRefused,
    MovedByThread,
    PauseHeartbeat,
    Polled,
    PollOverdue,
    Released,
    Report,
    RequestFailed,
    ResolveTopics,
    SendHeartbeat,
    Subscribe,
    ThreadStarted,
    TopicsNamed,
)
from .instance_id import InstanceId
from .ownership import NO_GENERATION
from .requests import (
    UNKNOWN_ERRORS_TOLERATED,
    heartbeat_interval,
    is_final,
    problem_of_assignment,
    refusal,
)
from .states import MemberEvent, MemberState

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
RETURN_EPOCH = -2
"""The epoch with which a static member leaves temporarily: it keeps its partitions until its session ends."""

EARLY = 0.5
"""Seconds until the heartbeat after a new epoch or assignment. The time then doubles, up to the interval (rule 7)."""

UNNAMED_ANSWERS = 5
"""The number of answers with an unnamed topic until the assignment is requested again (rule 6)."""

_API = "ConsumerGroupHeartbeat"

FENCED = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND)
"""Answers that evict a member."""

_S, _E = MemberState, MemberEvent

_SENDING = (_S.JOINING, _S.STABLE, _S.REVOKING)

TRANSITIONS: Transitions[MemberState, MemberEvent] = {
    _S.UNJOINED: {_E.JOIN: _S.JOINING, _E.LEAVE: _S.LEAVING},
    _S.JOINING: {_E.JOIN: _S.JOINING, _E.JOINED: _S.STABLE, _E.LEAVE: _S.LEAVING, _E.FAIL: _S.FATAL},
    _S.STABLE: {_E.REVOKE: _S.REVOKING, _E.FENCE: _S.FENCED, _E.LEAVE: _S.LEAVING, _E.FAIL: _S.FATAL},
    _S.REVOKING: {_E.RELEASED: _S.STABLE, _E.FENCE: _S.FENCED, _E.LEAVE: _S.LEAVING, _E.FAIL: _S.FATAL},
    _S.LEAVING: {_E.RELEASED: _S.LEAVING, _E.LEFT: _S.UNJOINED},
    _S.FENCED: {_E.RELEASED: _S.JOINING, _E.LEAVE: _S.LEAVING},
    _S.FATAL: {},
}


class _Sent(NamedTuple):
    """The fields that the coordinator has from earlier heartbeats."""

    topics: frozenset[str]
    pattern: str
    owned: frozenset[TopicPartition]


class _Fixed(NamedTuple):
    """The fields that never change. Only full heartbeats have them."""

    rebalance_timeout_ms: int
    assignor: str | None


class _Pattern:
    """The regular expression that the coordinator matches, or empty; then there are topics by name."""

    def __init__(self) -> None:
        self.text = ""
        self.was_used = False  # the coordinator may have an older one


class _Target:
    """The last assignment of the coordinator, which names topics by id, and the names that metadata has for them.

    Owner: the ``ConsumerMember``.
    """

    def __init__(self) -> None:
        self._numbers: dict[bytes, tuple[int, ...]] = {}  # the partitions of each topic id
        self._names: dict[bytes, str] = {}
        self.ids: dict[str, bytes] = {}
        """The ids of the topics whose partitions the reader has."""
        self.must_acknowledge: bool = False
        """Whether the assignment was received, and no heartbeat has acknowledged it yet."""
        self._unnamed_answers = 0  # answers with an unnamed topic since all fields were sent for one (rule 6)

    @property
    def has_unnamed_topics(self) -> bool:
        """Whether metadata lacks the name of a topic."""
        return len(self._names) < len(self._numbers)

    def replace(self, assignment: ConsumerGroupHeartbeatAssignment) -> None:
        self._numbers = {topic.topic_id: tuple(topic.partitions) for topic in assignment.topic_partitions}
        self.must_acknowledge = True

    def name(self, names: Mapping[bytes, str]) -> None:
        """Store the names of the topics. A known name stays, because metadata drops deleted topics."""
        self._names = {
            topic_id: name
            for topic_id in self._numbers
            if (name := names.get(topic_id, self._names.get(topic_id))) is not None
        }

    @property
    def names(self) -> frozenset[str]:
        """The known names of the topics."""
        return frozenset(self._names.values())

    @property
    def unnamed(self) -> list[bytes]:
        """The ids of the topics whose names metadata lacks."""
        return [topic_id for topic_id in self._numbers if topic_id not in self._names]

    def partitions(self, topics: frozenset[str]) -> frozenset[TopicPartition]:
        return frozenset(
            TopicPartition(name, number)
            for topic_id, name in self._names.items()
            if name in topics
            for number in self._numbers[topic_id]
        )

    def keep_ids(self, topics: Collection[str]) -> None:
        """Keep the ids of these topics and of the named ones."""
        self.ids = {name: topic_id for name, topic_id in self.ids.items() if name in topics}
        self.ids.update((name, topic_id) for topic_id, name in self._names.items())

    def must_be_repeated(self) -> bool:
        """Count an answer with an unnamed topic. Returns whether the coordinator should repeat the assignment."""
        self._unnamed_answers = (self._unnamed_answers + 1) % UNNAMED_ANSWERS
        return self._unnamed_answers == 0


class _Pacing:
    """The heartbeat in flight or the pause before the next one (rules 1, 5 and 7). Owner: the ``ConsumerMember``."""

    def __init__(self) -> None:
        self.interval: float | None = None  # in seconds, from the coordinator's last answer
        self.in_flight: bool = False
        self.backing_off: bool = False
        self.has_thread: bool = False  # whether a thread may send heartbeats at the same time (rule 10)
        self._early = EARLY  # seconds until the next early heartbeat

    @property
    def is_busy(self) -> bool:
        """Whether a heartbeat is in flight, or must not be sent before a pause has passed."""
        return self.in_flight or self.backing_off

    def send_early(self) -> None:
        """Send the next heartbeats early."""
        self._early = EARLY

    def next(self, interval: float) -> float:
        """Return the seconds until the next heartbeat, for the coordinator's interval."""
        if self._early >= interval:
            return interval
        pause, self._early = self._early, 2 * self._early
        return pause


class ConsumerMember(BaseMember):
    """The state machine. Owner: the task of the ``MemberRunner``, which alone calls ``handle``.

    ``rebalance_timeout`` and ``session_timeout`` are in seconds; ``assignor`` is the coordinator's strategy to use,
    None for its default; ``new_id`` makes the member id when the member first joins.

    ``ConsumerMember`` of ``embedded`` is the member as its coordinator sees it.
    """

    protocol = "consumer"
    transitions: ClassVar[Transitions[MemberState, MemberEvent]] = TRANSITIONS

    def __init__(
        self,
        group_id: str,
        *,
        rebalance_timeout: float,
        session_timeout: float = 45.0,
        assignor: str | None = None,
        instance_id: str | None = None,
        rack: str | None = None,
        new_id: Callable[[], str],
    ) -> None:
        super().__init__(group_id, instance_id=instance_id, rack=rack, strategy=assignor or "")
        self._fixed = _Fixed(round(rebalance_timeout * 1000), assignor)
        self._instance = InstanceId(session_timeout)
        self._new_id = new_id
        self._pacing = _Pacing()
        self._target = _Target()
        self._pattern = _Pattern()
        self._sent: _Sent | None = None  # if None, the next heartbeat has all fields (rule 3)
        # Whether the reader expects an ``Assign``: after joining and after each release, even without new partitions.
        self._must_assign = False
        # Whether the coordinator may have this member, because a heartbeat was sent that joins.
        self._may_be_known = False
        self._was_known = False  # the same, before the last heartbeat that joins was sent
        self._late_attempt: int | None = None  # of the heartbeat that was in flight when the member began to leave
        self._leave_epoch: int | None = None  # of the heartbeat that leaves; None to leave without one

    def handle(self, event: Event) -> list[Action]:  # noqa: C901 - a flat table of events
        if self.state is MemberState.FATAL:
            return self._ignore(event)
        match event:
            case Subscribe():
                self._topics, self._pattern.text = event.topics, event.pattern
                self._pattern.was_used |= bool(event.pattern)
                return self._follow_subscription()
            case Polled():
                # The user may read again while the heartbeat that leaves is in flight.
                self._overdue = False
                return self._follow_subscription()
            case HeartbeatDue() if event.attempt == self._attempt and self._sends and not self._pacing.in_flight:
                return [self._heartbeat()]
            case ConsumerHeartbeatAnswer() if event.attempt == self._attempt and self._sends:
                return self._answered(event)
            case ConsumerHeartbeatAnswer() if self._is_late(event):
                self.generation: int = event.response.member_epoch  # the last commit needs this identity
            case RequestFailed() if event.attempt == self._attempt:
                # The heartbeat that leaves is not repeated: the coordinator evicts the member when its session ends.
                if self.state is MemberState.LEAVING:
                    return self._left()
                return self._request_failed(event)
            case MembershipRefused() if event.identity == self.identity and self.state.sends_heartbeats:
                return self._commit_refused(event.code)
            case ThreadStarted():
                self._pacing.has_thread = True
            case MovedByThread() if self.state.sends_heartbeats and event.epoch_before <= self.generation:
                self.generation = max(self.generation, event.epoch)
                self._sent = None  # a heartbeat with all fields makes the coordinator repeat the assignment
                return self._send_changes()
            case TopicsNamed():
                self._target.name(event.names)
                return [*self._reconcile(), *self._send_changes()]
            case Released() if self.partitions.release(event.number):
                return self._released()
            case PollOverdue() if self.state.sends_heartbeats:
                self._overdue = True
                return self._leave(LEAVE_EPOCH if self.instance_id is None else RETURN_EPOCH, in_good_order=False)
            case LeaveAnswer() if event.attempt == self._attempt and self.state is MemberState.LEAVING:
                return self._left()
            case Close() if not self._closing:
                self._closing = True
                if self.state is MemberState.LEAVING:
                    return []
                stays = None if self.instance_id is None else RETURN_EPOCH
                return self._leave(LEAVE_EPOCH if event.leave else stays, in_good_order=True)
        return []

    @property
    def heartbeat_interval(self) -> float | None:
        """The seconds between two heartbeats that the coordinator asks for; None before its first answer."""
        return self._pacing.interval

    @property
    def has_unnamed_topics(self) -> bool:
        """Whether metadata lacks the name of an assigned topic id (rule 6)."""
        return self._target.has_unnamed_topics

    @property
    def unnamed_topics(self) -> list[bytes]:
        """The assigned topic ids whose names metadata lacks."""
        return self._target.unnamed

    @property
    def topics_in_use(self) -> frozenset[str]:
        """The topics of the last assignment, and those whose partitions are not released yet."""
        return self._target.names.union(partition.topic for partition in self._reported)

    @property
    def _is_subscribed(self) -> bool:
        return bool(self._topics or self._pattern.text)

    @property
    def _readable(self) -> frozenset[str]:
        """The topics that may be read. With a pattern, the coordinator decides."""
        return self._target.names if self._pattern.text else self._topics

    @property
    def _sends(self) -> bool:
        """Whether heartbeats are sent to keep the membership."""
        return self.state in _SENDING

    def _is_late(self, event: ConsumerHeartbeatAnswer) -> bool:
        """Return whether the answer has a newer epoch for a member that has begun to leave."""
        leaves = self.state is MemberState.LEAVING and event.attempt == self._late_attempt
        return leaves and event.response.member_epoch > self.generation >= 0

    # Heartbeats.

    def _follow_subscription(self) -> list[Action]:
        """Join, leave, or report the subscription, depending on its present topics."""
        if self._closing or self.state is MemberState.LEAVING:
            return []  # _left() joins again if there is a subscription by then
        if self.state is MemberState.UNJOINED:
            return self._join() if self._is_subscribed and not self._overdue else []
        if not self._is_subscribed:
            return self._leave(LEAVE_EPOCH, in_good_order=True)
        return [*self._reconcile(), *self._send_changes()]

    def _join(self) -> list[Action]:
        self._advance(MemberEvent.JOIN)
        return [self._heartbeat()]

    def _heartbeat(self) -> SendHeartbeat:
        """Make the next heartbeat, with the fields that the coordinator does not have (rule 3)."""
        assert not self._pacing.in_flight, "one heartbeat is in flight at a time (rule 1)"
        if not self.member_id:
            self.member_id: str = self._new_id()
        if self.state is MemberState.JOINING:
            self._was_known = self._may_be_known
        self._attempt += 1
        self._pacing.in_flight, self._pacing.backing_off, self._may_be_known = True, False, True
        before, now = self._sent, _Sent(self._topics, self._pattern.text, self._reported)
        # Only in STABLE does the reader have the whole assignment, so it is not acknowledged earlier.
        is_stable = self.state is MemberState.STABLE
        acknowledges = self._target.must_acknowledge and is_stable
        request = self._request(JOIN_EPOCH if self.state is MemberState.JOINING else self.generation)
        if before is None:
            request.rack_id = self._rack
            request.rebalance_timeout_ms, request.server_assignor = self._fixed
        if before is None or before.topics != now.topics:
            request.subscribed_topic_names = sorted(now.topics)
        # The empty pattern deletes an older one. A coordinator without patterns must not get it.
        if (before is None and self._pattern.was_used) or (before is not None and before.pattern != now.pattern):
            request.subscribed_topic_regex = now.pattern
        if before is None or before.owned != now.owned or acknowledges or (self._pacing.has_thread and is_stable):
            request.topic_partitions = self._by_id(now.owned)
        self._sent, self._target.must_acknowledge = now, self._target.must_acknowledge and not acknowledges
        return SendHeartbeat(self._attempt, request)

    def _request(self, epoch: int) -> ConsumerGroupHeartbeatRequest:
        return ConsumerGroupHeartbeatRequest(
            group_id=self.group_id, member_id=self.member_id, member_epoch=epoch, instance_id=self.instance_id
        )

    @property
    def _reported(self) -> frozenset[TopicPartition]:
        """The partitions that the coordinator must not give to another member (rule 2)."""
        return self.partitions.owned | self.partitions.revoking

    def _by_id(self, partitions: frozenset[TopicPartition]) -> list[ConsumerGroupHeartbeatTopicPartitions]:
        numbers: dict[str, list[int]] = {}
        for topic, number in sorted(partitions):
            numbers.setdefault(topic, []).append(number)
        return [
            ConsumerGroupHeartbeatTopicPartitions(topic_id=self._target.ids[topic], partitions=of_topic)
            for topic, of_topic in numbers.items()
        ]

    def _send_changes(self) -> list[Action]:
        """Send a heartbeat now if there are changes to report, and no heartbeat is in flight."""
        has_changes = self._sent != _Sent(self._topics, self._pattern.text, self._reported)
        if has_changes and self._sends and not self._pacing.is_busy:
            return [self._heartbeat()]
        return []

    def _pause(self, seconds: float | None) -> PauseHeartbeat:
        self._attempt += 1
        # With the new number, the outcome of an earlier heartbeat or pause no longer counts (rule 1).
        self._pacing.in_flight, self._pacing.backing_off = False, seconds is None
        return PauseHeartbeat(self._attempt, seconds)

    def _request_failed(self, event: RequestFailed) -> list[Action]:
        if not self._sends:
            return []
        return self._retry() if event.retriable else self._fail(event.error)

    def _retry(self) -> list[Action]:
        """Send all fields after a backoff: it is not known which ones the coordinator has received (rules 3, 5)."""
        self._sent = None
        return [self._pause(None)]

    # Answers.

    def _answered(self, event: ConsumerHeartbeatAnswer) -> list[Action]:
        response, code = event.response, ErrorCode.of(event.response.error_code)
        self._pacing.in_flight = False
        if code is not ErrorCode.NONE:
            return self._refused(code, event.answered_at, response.error_message)
        if problem := problem_of(response) or event.problem:
            return [Report(ProtocolError(f"the answer to {_API} has {problem}")), *self._retry()]
        self._unknown_errors = 0
        epoch = max(response.member_epoch, self.generation)  # the thread may have moved the member meanwhile (rule 10)
        if self.state is MemberState.JOINING:
            epoch = response.member_epoch
            self._advance(MemberEvent.JOINED)
            self._must_assign = self.was_accepted = True
            self._instance.joined()
        # Other members may release partitions now, and only a heartbeat brings them to this member (rule 7).
        if epoch != self.generation or response.assignment is not None:
            self._pacing.send_early()
        self.generation = epoch
        interval = self._pacing.interval = heartbeat_interval(response.heartbeat_interval_ms)
        if response.assignment is not None:
            self._target.replace(response.assignment)
        actions: list[Action] = []
        # Most answers bring no assignment, and there is nothing to reconcile.
        if response.assignment is not None or self._must_assign or self._target.has_unnamed_topics:
            self._target.name(event.names)
            actions = self._reconcile()
            if self._target.has_unnamed_topics:
                actions.append(ResolveTopics())
                if self._target.must_be_repeated():
                    self._sent = None  # a heartbeat with all fields makes the coordinator repeat it (rule 6)
        return [*actions, *(self._send_changes() or [self._pause(self._pacing.next(interval))])]

    def _refused(self, code: ErrorCode, now: float, text: str | None) -> list[Action]:
        joins = self.state is MemberState.JOINING
        # If the group no longer exists, all its members are fenced. A join would create the group, so if a join gets
        # this answer, a group of another type has this id.
        if code in FENCED and not (joins and code is ErrorCode.GROUP_ID_NOT_FOUND):
            return self._fenced(code)
        if code is ErrorCode.UNRELEASED_INSTANCE_ID and self._was_known and self._instance.may_release():
            return self._leave(RETURN_EPOCH, in_good_order=False)  # rule 8; _left() joins again
        is_unknown = code is ErrorCode.UNKNOWN_SERVER_ERROR
        if is_unknown and joins:
            self._unknown_errors += 1
            is_unknown = self.was_accepted or self._unknown_errors <= UNKNOWN_ERRORS_TOLERATED
        if code.retriable or is_unknown:
            return self._retry()
        if code is ErrorCode.INVALID_REGULAR_EXPRESSION:
            return self._fail(error_for(code, f"group {self.group_id!r}: {text or repr(self._pattern.text)}"))
        error = refusal(_API, code, group_id=self.group_id, instance_id=self.instance_id)
        if code is ErrorCode.UNRELEASED_INSTANCE_ID:
            may_pass = self._instance.may_pass(now)
        else:
            may_pass = not is_final(code, was_accepted=self.was_accepted)
        return [Report(error), *self._retry()] if may_pass else self._fail(error)

    def _commit_refused(self, code: ErrorCode) -> list[Action]:
        if code in FENCED:
            return self._fenced(code)
        if code is ErrorCode.STALE_MEMBER_EPOCH and not self._pacing.is_busy:
            return [self._heartbeat()]  # the answer has the newer epoch, or fences the member
        return []

    def _fenced(self, code: ErrorCode) -> list[Action]:
        """Lose everything, and join again with epoch 0 (rule 4)."""
        lose = self.partitions.lose()
        self._forget_epoch()
        # The other codes mean that the coordinator has no such member.
        self._may_be_known = code is ErrorCode.FENCED_MEMBER_EPOCH
        # A member that joins owns nothing, so there is no release that ``Released`` would report.
        if self.state is MemberState.JOINING:
            return [self._pause(None)]
        self._advance(MemberEvent.FENCE)
        self._attempt += 1
        return [lose]

    def _forget_epoch(self) -> None:
        self.generation = NO_GENERATION
        self._target, self._sent = _Target(), None

    # Assignments.

    def _reconcile(self) -> list[Action]:
        """Release the partitions that are not in the target. When they are released, add the new ones (rule 2)."""
        # While partitions are being released, no others are added (rule 2). ``_released`` reconciles again.
        if self.state is not MemberState.STABLE:
            return []
        assigned = self._target.partitions(self._readable)
        surplus = self.partitions.owned - assigned
        if surplus:
            self._advance(MemberEvent.REVOKE)
            return [self.partitions.revoke(surplus)]
        added, _ = self.partitions.replace(assigned, self._readable, self.generation)
        self._target.keep_ids({partition.topic for partition in self._reported})
        if not added and not self._must_assign:
            return []
        self._must_assign = False
        return [Assign(added, self.partitions.owned)]

    def _released(self) -> list[Action]:
        if self.state is MemberState.LEAVING:
            self._advance(MemberEvent.RELEASED)
            return self._send_leave()
        if self.state is MemberState.FENCED:
            self._advance(MemberEvent.RELEASED)
            return [self._pause(None)]  # rule 5
        if self.state is MemberState.REVOKING:
            self._advance(MemberEvent.RELEASED)
            self._must_assign = True
            return [*self._reconcile(), *self._send_changes()]
        return []

    # Leaving.

    def _leave(self, epoch: int | None, *, in_good_order: bool) -> list[Action]:
        """Leave, with a heartbeat unless ``epoch`` is None. With ``in_good_order``, the reader commits first."""
        self._leave_epoch = epoch
        self._late_attempt = self._attempt if self._pacing.in_flight else None
        return self._release_and_leave(in_good_order=in_good_order)

    def _send_leave(self) -> list[Action]:
        if not self._may_be_known or self._leave_epoch is None:
            return self._left()
        self._attempt += 1
        return [SendHeartbeat(self._attempt, self._request(self._leave_epoch), leaves=True)]

    def _left(self) -> list[Action]:
        self._advance(MemberEvent.LEFT)
        self._forget_epoch()
        self._may_be_known = self._leave_epoch == RETURN_EPOCH  # the member left temporarily, or its request was lost
        self._pacing.in_flight = self._pacing.backing_off = False
        if self._overdue or self._closing or not self._is_subscribed:
            return []
        return self._join()  # the user subscribed again while the member was leaving


def problem_of(response: ConsumerGroupHeartbeatResponse) -> str | None:
    """Return the reason why this answer is invalid; None if it is valid."""
    if response.member_epoch <= JOIN_EPOCH:
        return f"member epoch {response.member_epoch}"
    if response.assignment is None:
        return None
    topics = response.assignment.topic_partitions
    return problem_of_assignment([(topic.topic_id, topic.partitions) for topic in topics])
