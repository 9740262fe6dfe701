"""A member of a consumer group under the classic protocol: a machine that decides and does nothing.

``handle(event)`` moves the machine and returns what is to be done, as typed actions; ``coordinator`` does it and brings
the outcome back as the next event. Nothing here waits, looks at a clock, or knows of connections and user code.

Two rules carry the rest. Every request has an attempt number, and an answer to an attempt that is no longer the present
one is dropped, so a late answer can never undo a newer decision. And partitions are taken from the user before the next
JoinGroup, never after, so two members never believe at once that a partition is theirs. Cooperative members (KIP-429)
join while they go on reading, and let go only of what the new assignment lacks; then they join again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import TypeAlias

from ..errors import ErrorCode, IllegalStateError, KafkaError, ProtocolError, error_for
from ..facts import fact
from ..protocol.messages import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from ..protocol.state import Transitions, next_state
from ..types import TopicPartition
from .payloads import PROTOCOL_TYPE, read_assignment, read_subscription, write_assignment, write_subscription
from .strategies import AssignmentStrategy, GroupMember, TopicRacks

NO_GENERATION = -1


class MemberState(Enum):
    """What a member does; see ``TRANSITIONS`` for how it moves."""

    UNJOINED = "Not in the group: nothing is owned and no heartbeats are sent."
    JOINING = "JoinGroup is with the coordinator, or about to be tried again; a cooperative member goes on reading."
    SYNCING = "The generation is known, and the assignment is waited for; the leader makes it first."
    STABLE = "What is assigned is read, and heartbeats keep the membership."
    REVOKING = "The user is letting go of partitions while heartbeats go on; then the member joins again."
    LEAVING = "Nothing more is read; the user lets go of everything and the coordinator is told."
    FENCED = "The coordinator has given up this member, so its partitions are lost; once the user knows, it joins anew."
    FATAL = "It cannot be a member; the user has the reason."


class MemberEvent(Enum):
    """What moves a member from state to state."""

    JOIN = "It has reason to join, or to join again, and owns nothing that it has to let go of first."
    JOINED = "The coordinator has named the generation."
    SYNCED = "The assignment is there, and holds all that the member owned."
    REVOKE = "It has to let go of partitions before it can join again."
    LET_GO = "The user has let go."
    FENCE = "The coordinator does not know the member, or speaks of another generation."
    LEAVE = "The user closes, subscribes to nothing, or has not come back for records in too long a time."
    LEFT = "The coordinator was told, or need not be."
    FAIL = "The coordinator refuses this member for good."


_S, _E = MemberState, MemberEvent

TRANSITIONS: Transitions[MemberState, MemberEvent] = {
    _S.UNJOINED: {_E.JOIN: _S.JOINING, _E.LEAVE: _S.LEAVING},
    _S.JOINING: {
        _E.JOIN: _S.JOINING,
        _E.JOINED: _S.SYNCING,
        _E.FENCE: _S.FENCED,
        _E.LEAVE: _S.LEAVING,
        _E.FAIL: _S.FATAL,
    },
    _S.SYNCING: {
        _E.SYNCED: _S.STABLE,
        _E.REVOKE: _S.REVOKING,
        _E.JOIN: _S.JOINING,
        _E.FENCE: _S.FENCED,
        _E.LEAVE: _S.LEAVING,
        _E.FAIL: _S.FATAL,
    },
    _S.STABLE: {
        _E.JOIN: _S.JOINING,
        _E.REVOKE: _S.REVOKING,
        _E.FENCE: _S.FENCED,
        _E.LEAVE: _S.LEAVING,
        _E.FAIL: _S.FATAL,
    },
    _S.REVOKING: {
        _E.LET_GO: _S.JOINING,
        _E.FENCE: _S.FENCED,
        _E.LEAVE: _S.LEAVING,
        _E.FAIL: _S.FATAL,
    },
    _S.LEAVING: {_E.LEAVE: _S.LEAVING, _E.LET_GO: _S.LEAVING, _E.LEFT: _S.UNJOINED},
    _S.FENCED: {_E.LET_GO: _S.JOINING, _E.LEAVE: _S.LEAVING},
    _S.FATAL: {},
}


# ---- events: what the coordinator task and the user bring


@fact
class Subscribe:
    """The topics to read are these now; none to leave the group."""

    topics: frozenset[str]


@fact
class JoinAnswer:
    """JoinGroup was answered."""

    attempt: int
    response: JoinGroupResponse


@fact
class TopicsGathered:
    """Metadata of what the members subscribe to is at hand, for the leader."""

    attempt: int
    topics: TopicRacks


@fact
class SyncAnswer:
    """SyncGroup was answered."""

    attempt: int
    response: SyncGroupResponse


@fact
class RequestFailed:
    """A request had no answer. ``passing``: trying again may help."""

    attempt: int
    error: KafkaError
    passing: bool


@fact
class HeartbeatAnswer:
    """A heartbeat of this identity was answered."""

    identity: Identity
    code: ErrorCode


@fact
class CommitRefused:
    """A commit under this identity was refused, for a reason that concerns the membership."""

    identity: Identity
    code: ErrorCode


@fact
class LetGo:
    """The user has let go of what ``Revoke`` or ``Lose`` of this number named."""

    number: int


@fact
class TopicsSeen:
    """Metadata has changed: partitions by topic, for those of ``Member.watched`` that exist."""

    counts: Mapping[str, int]


@fact
class PollOverdue:
    """The user has not come back for records within the longest time that is allowed."""


@fact
class Polled:
    """The user has come back for records."""


@fact
class LeaveAnswer:
    """LeaveGroup was answered; what was said makes no difference."""

    attempt: int


@fact
class Close:
    """The user closes. ``leave``: tell the coordinator, so that the others need not wait for the session to end."""

    leave: bool


Event: TypeAlias = (
    Subscribe
    | JoinAnswer
    | TopicsGathered
    | SyncAnswer
    | RequestFailed
    | HeartbeatAnswer
    | CommitRefused
    | LetGo
    | TopicsSeen
    | PollOverdue
    | Polled
    | LeaveAnswer
    | Close
)


# ---- actions: what is to be done


@fact
class SendJoin:
    """Send JoinGroup, after a pause if ``pause``; bring a ``JoinAnswer``."""

    attempt: int
    request: JoinGroupRequest
    pause: bool


@fact
class GatherTopics:
    """Find metadata of the topics as far as they exist; bring ``TopicsGathered``."""

    attempt: int
    topics: frozenset[str]


@fact
class SendSync:
    """Send SyncGroup; bring a ``SyncAnswer``."""

    attempt: int
    request: SyncGroupRequest


@fact
class SendLeave:
    """Send LeaveGroup; bring a ``LeaveAnswer``."""

    attempt: int
    member_id: str
    instance_id: str | None
    reason: str


@fact
class AwaitJoin:
    """Wait a little for the answer to the JoinGroup of this attempt; bring ``RequestFailed`` if it does not come."""

    attempt: int


@fact
class Assign:
    """A generation is settled: give the user what is new in it, which may be nothing."""

    added: tuple[TopicPartition, ...]
    owned: frozenset[TopicPartition]


@fact
class Revoke:
    """Have the user let go in good order and commit what is marked; bring ``LetGo``. ``closing``: wait for nobody."""

    number: int
    partitions: tuple[TopicPartition, ...]
    closing: bool


@fact
class Lose:
    """The partitions are not the member's any longer: stop reading, tell the user; bring ``LetGo``."""

    number: int
    partitions: tuple[TopicPartition, ...]


@fact
class Fail:
    """Tell the user why this cannot go on."""

    error: KafkaError


Action: TypeAlias = SendJoin | GatherTopics | SendSync | SendLeave | AwaitJoin | Assign | Revoke | Lose | Fail


@fact
class Identity:
    """As whom a request is sent: what brokers check of heartbeats and commits."""

    member_id: str
    generation: int
    instance_id: str | None


_AS_NOBODY = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)

UNEXPLAINED_LIMIT = 5
"""Answers UNKNOWN_SERVER_ERROR to JoinGroup and SyncGroup, with no generation settled between them, that are borne."""

_HINTS = {
    ErrorCode.GROUP_MAX_SIZE_REACHED: "group.max.size of the brokers bounds the group",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: (
        "the members that are there use none of these strategies, or are no consumers; all members of a group need "
        "one in common"
    ),
    ErrorCode.INVALID_SESSION_TIMEOUT: (
        "session_timeout must be within group.min.session.timeout.ms and group.max.session.timeout.ms of the brokers"
    ),
    ErrorCode.FENCED_INSTANCE_ID: "another client has joined with the same group_instance_id",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "the principal needs READ on the group",
}


class Member:
    """The machine. Owner: the coordinator task, which alone calls ``handle``.

    ``strategies`` in order of preference; ``session_timeout`` and ``rebalance_timeout`` in seconds.
    """

    def __init__(
        self,
        group_id: str,
        *,
        strategies: Sequence[AssignmentStrategy],
        session_timeout: float,
        rebalance_timeout: float,
        instance_id: str | None = None,
        rack: str | None = None,
    ) -> None:
        self.group_id = group_id
        self.instance_id = instance_id
        self.state = MemberState.UNJOINED
        self.member_id = ""
        self.generation = NO_GENERATION
        self.owned: frozenset[TopicPartition] = frozenset()
        """What the user may read."""
        self.is_leader = False
        self.watched: frozenset[str] = frozenset()
        """The topics whose numbers of partitions the leader must know to change."""
        self.cooperative = all(strategy.cooperative for strategy in strategies)
        """Whether to read on during a rebalance: only if every strategy allows it, as nobody knows which is chosen."""
        self._strategies = {strategy.name: strategy for strategy in strategies}
        self._session_timeout = session_timeout
        self._rebalance_timeout = rebalance_timeout
        self._rack = rack
        self._topics: frozenset[str] = frozenset()
        self._joined_topics: frozenset[str] = frozenset()
        self._letting_go: frozenset[TopicPartition] = frozenset()
        self._last_assignment: frozenset[TopicPartition] = frozenset()  # kept when revoked: sticky tells the leader
        self._last_generation = NO_GENERATION
        self._members: tuple[GroupMember, ...] = ()
        self._strategy = ""
        self._skips_assignment = False
        self._counts: Mapping[str, int] = {}  # what the leader's assignment stands on
        self._outdated = False
        self._attempt = 0
        self._number = 0
        self._closing = False
        self._unexplained = 0  # failures of the coordinator that it has no code for, since a generation was settled
        self._overdue = False  # left because the user did not come back, so that only the user brings it back
        self._leave_reason: str | None = None

    def __repr__(self) -> str:
        static = "" if self.instance_id is None else f" instance={self.instance_id}"
        return (
            f"<Member {self.member_id or '-'}{static} of {self.group_id} {self.state.name} "
            f"generation={self.generation} owned={len(self.owned)}>"
        )

    @property
    def strategy(self) -> str:
        """The name of the strategy that the coordinator chose; empty before the first generation."""
        return self._strategy

    @property
    def identity(self) -> Identity:
        return Identity(self.member_id, self.generation, self.instance_id)

    @property
    def beats(self) -> bool:
        """Whether heartbeats are to be sent. While a join or sync is with the coordinator, it needs none."""
        return self.state in (MemberState.STABLE, MemberState.REVOKING)

    @property
    def is_rebalancing(self) -> bool:
        """Whether the generation is about to change, so that a refused commit says nothing about the membership."""
        return self.state in (MemberState.JOINING, MemberState.SYNCING)

    @property
    def is_gone(self) -> bool:
        """Whether it was closed and nothing is left to do."""
        return self._closing and self.state in (MemberState.UNJOINED, MemberState.FATAL)

    def handle(self, event: Event) -> list[Action]:
        """Move, and say what is to be done, in this order. A FATAL member does nothing any more."""
        if self.state is MemberState.FATAL:
            if isinstance(event, Close):
                self._closing = True
            return []
        match event:
            case Subscribe():
                return self._subscribed(event.topics)
            case JoinAnswer():
                if self._is_present(event, MemberState.LEAVING):
                    self.member_id = event.response.member_id
                    return self._say_goodbye()
                return self._join_answered(event) if self._is_present(event, MemberState.JOINING) else []
            case TopicsGathered():
                return self._topics_gathered(event) if self._is_present(event, MemberState.SYNCING) else []
            case SyncAnswer():
                return self._sync_answered(event) if self._is_present(event, MemberState.SYNCING) else []
            case RequestFailed():
                return self._request_failed(event) if event.attempt == self._attempt else []
            case HeartbeatAnswer():
                return self._heartbeat_answered(event) if event.identity == self.identity and self.beats else []
            case CommitRefused():
                return self._commit_refused(event) if event.identity == self.identity and self.beats else []
            case LetGo():
                return self._let_go() if event.number == self._number else []
            case TopicsSeen():
                return self._topics_seen(event.counts)
            case PollOverdue():
                return self._poll_overdue()
            case Polled():
                return self._polled()
            case LeaveAnswer():
                return self._left() if self._is_present(event, MemberState.LEAVING) else []
            case Close():
                return self._close(event.leave)

    def _is_present(self, event: JoinAnswer | TopicsGathered | SyncAnswer | LeaveAnswer, state: MemberState) -> bool:
        return event.attempt == self._attempt and self.state is state

    def _advance(self, event: MemberEvent) -> None:
        self.state = next_state(TRANSITIONS, self.state, event)

    # ---- wanting to be a member

    def _subscribed(self, topics: frozenset[str]) -> list[Action]:
        self._topics = topics
        if self._closing or self.state is MemberState.LEAVING:
            return []
        if not topics:
            if self.state is MemberState.UNJOINED:
                return []
            return self._leave("it subscribes to nothing any longer", in_good_order=True)
        if self.state is MemberState.UNJOINED:
            return self._begin()
        if self.state is MemberState.STABLE and topics != self._joined_topics:
            return self._rebalance()
        return []  # the next JoinGroup says it; if one is under way, another follows it

    def _polled(self) -> list[Action]:
        # The user may read again while LeaveGroup is in flight. Without this, its answer would find the member overdue,
        # and the user would wait for records of a group that nothing joins again.
        self._overdue = False
        return self._begin()

    def _begin(self) -> list[Action]:
        if self.state is not MemberState.UNJOINED or self._closing or not self._topics:
            return []
        self._overdue = False
        return [self._join()]

    def _join(self, *, pause: bool = False) -> SendJoin:
        self._advance(MemberEvent.JOIN)
        return self._send_join(pause=pause)

    def _send_join(self, *, pause: bool = False) -> SendJoin:
        self._attempt += 1
        self.is_leader = False
        self.watched = frozenset()
        self._outdated = False
        self._joined_topics = self._topics
        owned = self.owned if self.cooperative else frozenset()
        request = JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=round(self._session_timeout * 1000),
            rebalance_timeout_ms=round(self._rebalance_timeout * 1000),
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[
                JoinGroupRequestProtocol(
                    name=name,
                    metadata=write_subscription(
                        self._topics, owned, self.generation, self._rack, self._user_data(strategy)
                    ),
                )
                for name, strategy in self._strategies.items()
            ],
        )
        return SendJoin(self._attempt, request, pause)

    def _user_data(self, strategy: AssignmentStrategy) -> bytes | None:
        # An eager member has let go of everything when it joins; what it had is what stickiness is about.
        if self.cooperative:
            return strategy.user_data(self.owned, self.generation)
        return strategy.user_data(self._last_assignment, self._last_generation)

    # ---- joining

    def _join_answered(self, event: JoinAnswer) -> list[Action]:
        response = event.response
        code = ErrorCode.of(response.error_code)
        if code is ErrorCode.NONE:
            return self._joined(response)
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            known, self.member_id = self.member_id, response.member_id
            return [self._join(pause=bool(known))]
        if code in _AS_NOBODY:
            return self._fenced(code, pause=True)
        if self._may_pass(code):
            return [self._join(pause=True)]
        return self._fail(error_for(response.error_code, self._refusal("JoinGroup", code)))

    def _may_pass(self, code: ErrorCode) -> bool:
        """Whether to try again. A stumbling broker must not end a member; one that always falls has to be heard of."""
        if code is ErrorCode.UNKNOWN_SERVER_ERROR:
            self._unexplained += 1
            return self._unexplained <= UNEXPLAINED_LIMIT
        return code.retriable or code is ErrorCode.REBALANCE_IN_PROGRESS

    def _joined(self, response: JoinGroupResponse) -> list[Action]:
        self._advance(MemberEvent.JOINED)
        self.member_id = response.member_id
        self.generation = response.generation_id
        self._strategy = response.protocol_name or ""
        self.is_leader = response.leader == response.member_id and bool(response.members)
        self._attempt += 1
        if self._strategy not in self._strategies:
            return self._fail(
                ProtocolError(f"the coordinator chose strategy {self._strategy!r}, which was not offered")
            )
        if not self.is_leader:
            return [SendSync(self._attempt, self._sync_request({}))]
        try:
            members = [
                read_subscription(each.member_id, each.group_instance_id, each.metadata) for each in response.members
            ]
        except ProtocolError as error:
            return self._fail(error)
        self._members = tuple(members)
        self._skips_assignment = response.skip_assignment
        self.watched = frozenset(topic for member in members for topic in member.topics)
        return [GatherTopics(self._attempt, self.watched)]

    # ---- synchronising

    def _topics_gathered(self, event: TopicsGathered) -> list[Action]:
        self._counts = {topic: len(racks) for topic, racks in event.topics.items()}
        self._attempt += 1
        if self._skips_assignment:
            return [SendSync(self._attempt, self._sync_request({}))]
        assignment = self._strategies[self._strategy].assign(self._members, event.topics)
        self._check_assignment(assignment, event.topics)
        return [SendSync(self._attempt, self._sync_request(assignment))]

    def _check_assignment(self, assignment: Mapping[str, Sequence[TopicPartition]], topics: TopicRacks) -> None:
        """A strategy of the user's own may be wrong, and two readers of a partition would never notice."""
        given = [partition for partitions in assignment.values() for partition in partitions]
        members = {member.member_id for member in self._members}
        wrong = next((each for each in given if not 0 <= each.partition < len(topics.get(each.topic, ()))), None)
        if len(given) != len(set(given)) or not members.issuperset(assignment) or wrong is not None:
            what = "names a partition twice" if len(given) != len(set(given)) else "names members that there are not"
            if wrong is not None:
                what = f"names {wrong}, which does not exist"
            raise IllegalStateError(f"the assignment that strategy {self._strategy!r} made {what}")

    def _sync_request(self, assignment: Mapping[str, Sequence[TopicPartition]]) -> SyncGroupRequest:
        return SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=self._strategy,
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=write_assignment(partitions))
                for member_id, partitions in assignment.items()
            ],
        )

    def _sync_answered(self, event: SyncAnswer) -> list[Action]:
        code = ErrorCode.of(event.response.error_code)
        if code is ErrorCode.NONE:
            try:
                return self._assigned(read_assignment(event.response.assignment))
            except ProtocolError as error:
                return self._fail(error)
        if code in _AS_NOBODY:
            return self._fenced(code, pause=True)
        if self._may_pass(code):
            return [self._join(pause=True)]
        return self._fail(error_for(event.response.error_code, self._refusal("SyncGroup", code)))

    def _assigned(self, assigned: frozenset[TopicPartition]) -> list[Action]:
        self._last_assignment, self._last_generation = assigned, self.generation
        self._unexplained = 0
        assigned = frozenset(each for each in assigned if each.topic in self._topics)
        surplus = self.owned - assigned
        added = tuple(sorted(assigned - self.owned))
        self.owned = assigned
        if surplus:
            self._advance(MemberEvent.REVOKE)
            return [self._take(surplus), Assign(added, self.owned)]
        self._advance(MemberEvent.SYNCED)
        actions: list[Action] = [Assign(added, self.owned)]
        if self._outdated or self._topics != self._joined_topics:
            actions += self._rebalance()
        return actions

    # ---- staying

    def _heartbeat_answered(self, event: HeartbeatAnswer) -> list[Action]:
        code = event.code
        if code is ErrorCode.NONE:
            return []
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            return self._rebalance() if self.state is MemberState.STABLE else []
        if code in _AS_NOBODY:
            return self._fenced(code)
        if code.retriable or code is ErrorCode.UNKNOWN_SERVER_ERROR:
            return []  # the next heartbeat tells; the session ends by itself if none is ever answered well
        return self._fail(error_for(code, self._refusal("Heartbeat", code)))

    def _commit_refused(self, event: CommitRefused) -> list[Action]:
        if event.code in _AS_NOBODY:
            return self._fenced(event.code)
        if event.code is ErrorCode.FENCED_INSTANCE_ID:
            return self._fail(error_for(event.code, self._refusal("OffsetCommit", event.code)))
        return []

    def _topics_seen(self, counts: Mapping[str, int]) -> list[Action]:
        if not self.watched or self.state not in (MemberState.SYNCING, MemberState.STABLE):
            return []
        if {topic: count for topic, count in counts.items() if topic in self.watched} == self._counts:
            return []
        if self.state is MemberState.STABLE:
            return self._rebalance()
        self._outdated = True
        return []

    def _rebalance(self) -> list[Action]:
        """Join again, after letting go of everything, or only of what is no longer wanted when cooperative."""
        surplus = self.owned
        if self.cooperative:
            surplus = frozenset(each for each in self.owned if each.topic not in self._topics)
        if not surplus:
            return [self._join()]
        self._advance(MemberEvent.REVOKE)
        self.owned -= surplus
        return [self._take(surplus)]

    def _take(self, partitions: frozenset[TopicPartition], *, closing: bool = False) -> Revoke:
        self._number += 1
        self._letting_go |= partitions
        return Revoke(self._number, tuple(sorted(partitions)), closing)

    def _let_go(self) -> list[Action]:
        self._letting_go = frozenset()
        if self.state is MemberState.LEAVING:
            self._advance(MemberEvent.LET_GO)
            return self._say_goodbye()
        if self.state in (MemberState.REVOKING, MemberState.FENCED):
            pause = self.state is MemberState.FENCED
            self._advance(MemberEvent.LET_GO)
            return [self._send_join(pause=pause)]
        return []

    # ---- being thrown out

    def _fenced(self, code: ErrorCode, *, pause: bool = False) -> list[Action]:
        """Begin anew. The coordinator may have given the partitions to others long ago, so nothing is committed."""
        lost = self._disown()
        self.generation = NO_GENERATION
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        if not lost and self.is_rebalancing:
            return [self._join(pause=pause)]
        self._advance(MemberEvent.FENCE)
        return [self._lose(lost)]

    def _disown(self) -> tuple[TopicPartition, ...]:
        lost = tuple(sorted(self.owned | self._letting_go))
        self.owned = self._letting_go = frozenset()
        return lost

    def _lose(self, partitions: tuple[TopicPartition, ...]) -> Lose:
        self._number += 1
        self._attempt += 1
        return Lose(self._number, partitions)

    def _request_failed(self, event: RequestFailed) -> list[Action]:
        if self.state is MemberState.LEAVING:
            return self._left()
        if self.state not in (MemberState.JOINING, MemberState.SYNCING):
            return []
        if event.passing:
            return [self._join(pause=True)]
        return self._fail(event.error)

    def _fail(self, error: KafkaError) -> list[Action]:
        lost = self._disown()
        self._advance(MemberEvent.FAIL)
        fail = Fail(error)
        return [self._lose(lost), fail] if lost else [fail]

    def _refusal(self, api: str, code: ErrorCode) -> str:
        offered = ", ".join(self._strategies)
        hint = f" ({_HINTS[code]})" if code in _HINTS else ""
        static = "" if self.instance_id is None else f" as {self.instance_id!r}"
        return f"{api} of group {self.group_id!r}{static} with strategies {offered} was refused{hint}"

    # ---- leaving

    def _poll_overdue(self) -> list[Action]:
        if self.state not in (MemberState.STABLE, MemberState.REVOKING):
            return []
        self._overdue = True
        # A static member keeps its place until its session ends: whoever restarts it may be doing so now.
        reason = None if self.instance_id is not None else "the time between two reads exceeded max_poll_interval"
        return self._leave(reason, in_good_order=False)

    def _close(self, leave: bool) -> list[Action]:
        if self._closing:
            return []
        self._closing = True
        reason = "the consumer is closed" if leave else None
        if self.state is MemberState.LEAVING:
            return []
        return self._leave(reason, in_good_order=True)

    def _leave(self, reason: str | None, *, in_good_order: bool) -> list[Action]:
        """Go, with a word to the coordinator unless ``reason`` is None; a static member keeps its place silently."""
        fenced = self.state is MemberState.FENCED  # the user is being told of a loss; that is waited for
        nameless = self.state is MemberState.JOINING and not self.member_id
        self._advance(MemberEvent.LEAVE)
        self._leave_reason = reason
        if nameless and reason is not None and not self.owned:
            # The coordinator is about to give it an id, and would keep the others waiting for one who never comes back.
            return [AwaitJoin(self._attempt)]
        self._attempt += 1
        if fenced:
            return []
        if in_good_order and (self.owned or self._letting_go):
            owned, self.owned = self.owned | self._letting_go, frozenset()
            return [self._take(owned, closing=True)]
        lost = self._disown()
        actions: list[Action] = [self._lose(lost)] if lost else []
        self._number += 1  # nobody waits until the user has let go
        return actions + self._say_goodbye()

    def _say_goodbye(self) -> list[Action]:
        reason = self._leave_reason
        if not self.member_id or reason is None:
            return self._left()
        self._attempt += 1
        return [SendLeave(self._attempt, self.member_id, self.instance_id, reason)]

    def _left(self) -> list[Action]:
        self._advance(MemberEvent.LEFT)
        if self.instance_id is None or self._leave_reason is not None:
            self.member_id = ""
        self.generation = NO_GENERATION
        if self._overdue or self._closing or not self._topics:
            return []
        return [self._join()]  # subscribed anew while it was leaving
