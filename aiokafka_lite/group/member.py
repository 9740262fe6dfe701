"""A member of a consumer group under the classic protocol: a state machine that decides and does nothing else.

``handle(event)`` moves the machine and returns actions (``events``). ``coordinator`` performs them and brings the
outcome back as the next event. Nothing here waits, reads a clock, or knows connections and user code.

Rules of this file:

Rule 1: Every request has an attempt number. An answer to an attempt that is not the current one is dropped, so a late
        answer never undoes a newer decision.
Rule 2: Partitions are taken from the reader before the next JoinGroup is sent, never after it. So two members never own
        a partition at the same time.
Rule 3: A cooperative member (KIP-429) continues to read while it joins. It releases only the partitions that are not in
  the new assignment, and then joins again.
Rule 4: After a fence nothing is committed: the coordinator may have given the partitions to other members long ago.
        The same holds after a session in which no heartbeat succeeded: another coordinator may have evicted the member.
Rule 5: A join that follows a failure pauses first, even if the coordinator answers at once. Otherwise a broker that
  refuses requests would cause a busy loop.

Invariants that once broke:

 - In UNJOINED, FENCED and FATAL the member owns nothing.
 - ``MembershipRefused`` and ``HeartbeatAnswer`` count only for the current identity. During a rebalance the
   generation is about to change, so their errors do not apply to the next generation.
 - A member that closes before it has a member id waits for the answer to its JoinGroup (``AwaitJoin``). Otherwise the
   coordinator would create a member that never sends a request, and the group waits for its session to end.
 - A static member does not send LeaveGroup when ``max_poll_interval`` is exceeded: its restart may be in progress, and
   leaving would cost a rebalance.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ..errors import ErrorCode, KafkaError, ProtocolError
from ..protocol.messages import SyncGroupRequest
from ..state_machine import Transitions
from .base_member import BaseMember
from .events import (
    Action,
    Assign,
    AssignmentsSeen,
    AwaitJoin,
    Close,
    Event,
    GatherTopics,
    HeartbeatAnswer,
    JoinAnswer,
    LeaveAnswer,
    LookUpAssignments,
    MembershipRefused,
    Polled,
    PollOverdue,
    Released,
    Report,
    RequestFailed,
    SendJoin,
    SendLeave,
    SendSync,
    SessionExpired,
    Subscribe,
    SyncAnswer,
    TopicsGathered,
    TopicsSeen,
)
from .leadership import Leadership, is_former_id, lacks_partitions
from .ownership import NO_GENERATION
from .payloads import assignment_data, read_assignment, write_subscription
from .requests import UNKNOWN_ERRORS_TOLERATED, is_final, join_request, refusal, sync_request
from .states import MemberEvent, MemberState
from .strategies import AssignmentStrategy, TopicRacks

BAD_ASSIGNMENTS_TOLERATED = 5
"""The number of consecutive unreadable assignments that are tolerated. Each is followed by another rebalance, because
the next leader may send a readable one."""

_FENCED = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)


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
        _E.RELEASED: _S.JOINING,
        _E.FENCE: _S.FENCED,
        _E.LEAVE: _S.LEAVING,
        _E.FAIL: _S.FATAL,
    },
    _S.LEAVING: {_E.LEAVE: _S.LEAVING, _E.RELEASED: _S.LEAVING, _E.LEFT: _S.UNJOINED},
    _S.FENCED: {_E.RELEASED: _S.JOINING, _E.LEAVE: _S.LEAVING},
    _S.FATAL: {},
}


class Member(BaseMember):
    """The state machine. Owner: the task of the ``MemberRunner``, which alone calls ``handle``.

    ``strategies`` are in order of preference; ``session_timeout`` and ``rebalance_timeout`` are in seconds.

    ``Member`` of ``embedded`` is the member as its coordinator sees it.
    """

    protocol = "classic"
    transitions: ClassVar[Transitions[MemberState, MemberEvent]] = TRANSITIONS

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
        super().__init__(group_id, instance_id=instance_id, rack=rack)
        self.cooperative: bool = all(strategy.cooperative for strategy in strategies)
        """Whether to continue reading during a rebalance. All strategies must allow it, because any of them may be
        chosen."""
        self._strategies = {strategy.name: strategy for strategy in strategies}
        self._session_timeout = session_timeout
        self._rebalance_timeout = rebalance_timeout
        self._joined_topics: frozenset[str] = frozenset()  # the topics of the last JoinGroup
        # A coordinator keeps the assignment of a static member whose process restarts in its session. It ignores that
        # the topics may be others now (KAFKA-12759), and partitions that were added while the leader was away.
        self._may_be_kept = False
        self._bad_assignments = 0
        # Whether a generation was complete under the present member id, and whether one earlier fence was ignored.
        self._is_confirmed = False
        self._fence_forgiven = False
        # The reason for LeaveGroup. With None, the member leaves without LeaveGroup, as a static member does.
        self._leave_reason: str | None = None

    @property
    def needs_session(self) -> bool:
        """Whether heartbeats are sent: as a member, and while a cooperative member reads during a rebalance.

        A JoinGroup that waits does not show whether the coordinator is alive. If the coordinator cannot be reached for
        a whole session, another coordinator may have assigned the partitions to other members.
        """
        return self.state.sends_heartbeats or (self.state.is_rebalancing and bool(self.partitions.owned))

    def handle(self, event: Event) -> list[Action]:  # noqa: C901 - a flat table of events
        if self.state is MemberState.FATAL:
            return self._ignore(event)
        match event:
            case Subscribe():
                self._topics = event.topics
                if event.lazily and all(partition.topic in event.topics for partition in self.partitions.owned):
                    return []
                return self._follow_subscription()
            case Polled():
                # The user may read again while LeaveGroup is in flight. If the member stayed overdue, it would not join
                # again after the answer, and the user would wait for records without end.
                self._overdue = False
                return self._follow_subscription()
            case JoinAnswer() if event.attempt == self._attempt:
                return self._join_answered(event)
            case TopicsGathered() if event.attempt == self._attempt and self.leadership is not None:
                # SyncGroup is another request than the metadata lookup, so a late failure of the lookup must not count
                # for it.
                self._attempt += 1
                return [SendSync(self._attempt, self._assignments(self.leadership, event.topics))]
            case SyncAnswer() if event.attempt == self._attempt and self.state is MemberState.SYNCING:
                return self._sync_answered(event)
            case AssignmentsSeen() if event.identity == self.identity and self.state is MemberState.STABLE:
                return self._rebalance() if lacks_partitions(event) else []
            case RequestFailed() if event.attempt == self._attempt:
                return self._request_failed(event)
            case HeartbeatAnswer() if event.identity == self.identity and self.state.sends_heartbeats:
                return self._refused_as_member("Heartbeat", event.code)
            case SessionExpired() if event.identity == self.identity and self.needs_session:
                return self._fenced(None)
            case MembershipRefused() if event.identity == self.identity and self.state.sends_heartbeats:
                return self._refused_as_member("OffsetCommit", event.code)
            case Released() if self.partitions.release(event.number):
                return self._released()
            case TopicsSeen():
                return self._topics_seen(event)
            case PollOverdue() if self.state.sends_heartbeats:
                self._overdue = True
                # A static member keeps its place until its session ends: its restart may be in progress.
                static = self.instance_id is not None
                return self._leave(None if static else "max_poll_interval was exceeded", in_good_order=False)
            case LeaveAnswer() if event.attempt == self._attempt and self.state is MemberState.LEAVING:
                return self._left()
            case Close() if not self._closing:
                self._closing = True
                # The member leaves already. ``_left`` does not join again, because ``_closing`` is set.
                if self.state is MemberState.LEAVING:
                    return []
                return self._leave("the consumer is closed" if event.leave else None, in_good_order=True)
        return []

    # Joining.

    def _follow_subscription(self) -> list[Action]:
        """Join, leave or rebalance, depending on the present subscription."""
        if self._closing or self.state is MemberState.LEAVING:
            return []  # _left() joins again if there is a subscription by then
        if self.state is MemberState.UNJOINED:
            return [self._join()] if self._topics and not self._overdue else []
        if not self._topics:
            return self._leave("the consumer unsubscribed", in_good_order=True)
        if self.state is MemberState.STABLE and self._topics != self._joined_topics:
            return self._rebalance()
        return []  # the next JoinGroup carries the subscription; a join in progress is followed by another one

    def _join(self, event: MemberEvent = MemberEvent.JOIN, *, pause: bool = False) -> SendJoin:
        assert self.cooperative or not self.partitions.owned, "an eager member owns nothing when it joins (rule 2)"
        self._advance(event)
        self._attempt += 1
        # Another member may lead the next generation. A member that still watched topics would start needless
        # rebalances.
        self.leadership = None
        self._joined_topics = self._topics
        self._may_be_kept = self.instance_id is not None and not self.member_id
        partitions, owned, generation = self.partitions, self.partitions.owned, self.generation
        if not self.cooperative:
            # An eager member has released everything when it joins (rule 2); a sticky strategy wants the last
            # assignment instead.
            owned, generation = partitions.last_assignment, partitions.last_generation
        subscriptions = {
            name: write_subscription(
                self._topics,
                partitions.owned if self.cooperative else (),
                self.generation,
                self._rack,
                strategy.user_data(owned, generation),
            )
            for name, strategy in self._strategies.items()
        }
        request = join_request(
            self.group_id,
            self.identity,
            subscriptions,
            session_timeout=self._session_timeout,
            rebalance_timeout=self._rebalance_timeout,
        )
        return SendJoin(self._attempt, request, pause)

    def _join_answered(self, event: JoinAnswer) -> list[Action]:
        response, code = event.response, ErrorCode.of(event.response.error_code)
        if self.state is MemberState.LEAVING:  # the answer that AwaitJoin waits for: leave under the given id
            self.member_id: str = response.member_id
            return self._send_leave()
        if self.state is not MemberState.JOINING:
            return []
        if code is ErrorCode.NONE:
            return self._joined(event)
        if code is ErrorCode.MEMBER_ID_REQUIRED:  # KIP-394: join again under the id that the coordinator gave
            former_id, self.member_id = self.member_id, response.member_id
            # Rule 5: a coordinator that always gives this answer, or gives no id, must not cause a busy loop.
            return [self._join(pause=bool(former_id) or not response.member_id)]
        return self._refused_rebalance("JoinGroup", code)

    def _joined(self, event: JoinAnswer) -> list[Action]:
        response = event.response
        self._advance(MemberEvent.JOINED)
        self._is_confirmed = self._is_confirmed and self.member_id == response.member_id
        self.member_id = response.member_id
        self.generation: int = response.generation_id
        self.strategy: str = response.protocol_name or ""
        # SyncGroup is another attempt than JoinGroup, so a late failure of the JoinGroup does not count for it (rule
        # 1).
        self._attempt += 1
        if self.strategy not in self._strategies:
            offered = ", ".join(self._strategies)
            return self._fail(ProtocolError(f"the coordinator must choose one of {offered}, got {self.strategy!r}"))
        if response.leader == response.member_id and response.members:
            self.leadership = Leadership(response)
        elif self._may_be_kept and not response.members and is_former_id(response.leader, self.instance_id):
            # Brokers before KIP-814 name a static leader that came back by its former id, and list no members.
            self.leadership = Leadership(response, self._joined_topics)
        else:
            return [SendSync(self._attempt, sync_request(self.group_id, self.identity, self.strategy, {}))]
        return [GatherTopics(self._attempt, self.leadership.topics)]

    def _assignments(self, leadership: Leadership, topics: TopicRacks) -> SyncGroupRequest:
        """Make the leader's SyncGroup request, with the assignments."""
        strategy = self._strategies[self.strategy]
        assignment = leadership.assign(strategy, topics)
        make = getattr(strategy, "assignment_data", None)
        data = (
            {}
            if make is None
            else {
                member_id: make(member_id, partitions, self.generation) for member_id, partitions in assignment.items()
            }
        )
        return sync_request(self.group_id, self.identity, self.strategy, assignment, data)

    def _sync_answered(self, event: SyncAnswer) -> list[Action]:
        code = ErrorCode.of(event.response.error_code)
        if code is not ErrorCode.NONE:
            return self._refused_rebalance("SyncGroup", code)
        try:
            if event.problem is not None:
                raise ProtocolError(f"the leader of the group sent {event.problem}")
            assigned = read_assignment(event.response.assignment)
        except ProtocolError as error:
            self._bad_assignments += 1
            if self._bad_assignments > BAD_ASSIGNMENTS_TOLERATED:
                return self._fail(error)
            return [Report(error), self._join(pause=True)]
        on_assignment = getattr(self._strategies[self.strategy], "on_assignment", None)
        if on_assignment is not None:
            on_assignment(tuple(sorted(assigned)), assignment_data(event.response.assignment), self.generation)
        self._unknown_errors = self._bad_assignments = 0
        self.was_accepted = True
        self._is_confirmed, self._fence_forgiven = True, False
        # Only a cooperative member can have surplus partitions, because an eager member owned nothing when it joined
        # (rule 2).
        added, surplus = self.partitions.replace(assigned, self._topics, self.generation)
        assign = Assign(added, self.partitions.owned)
        if surplus:  # rule 3
            self._advance(MemberEvent.REVOKE)
            # The member waits for partitions of other members, which come only with the next generation (KIP-429).
            return [self.partitions.revoke(surplus), assign]
        self._advance(MemberEvent.SYNCED)
        # The assignment is used first even if it is outdated, because the member must own the partitions that the group
        # assigned to it.
        outdated = self.leadership is not None and self.leadership.is_outdated
        if outdated or self._topics != self._joined_topics:
            return [assign, *self._rebalance()]
        if not self._may_be_kept:
            return [assign]
        # The assignment of an earlier process may have partitions of topics that only other members read now.
        if any(partition.topic not in self._joined_topics for partition in assigned):
            return [assign, *self._rebalance()]
        topics = self._joined_topics if self.leadership is None else self.leadership.topics
        return [assign, LookUpAssignments(self.identity, topics)]

    def _refused_rebalance(self, api: str, code: ErrorCode) -> list[Action]:
        """Handle a refused JoinGroup or SyncGroup: be fenced, retry, or fail."""
        if code in _FENCED or self._forgives(code):
            return self._fenced(code, pause=True)
        # Kafka does not mark REBALANCE_IN_PROGRESS as retriable, because it requires a new JoinGroup. Here, a retry is
        # a new JoinGroup.
        retriable = code.retriable or code is ErrorCode.REBALANCE_IN_PROGRESS
        if code is ErrorCode.UNKNOWN_SERVER_ERROR:
            self._unknown_errors += 1
            retriable = self.was_accepted or self._unknown_errors <= UNKNOWN_ERRORS_TOLERATED
        if retriable:
            return [self._join(pause=True)]
        if is_final(code, was_accepted=self.was_accepted):
            return self._fail(self._refusal(api, code))
        return [Report(self._refusal(api, code)), self._join(pause=True)]

    def _request_failed(self, event: RequestFailed) -> list[Action]:
        # A failed LeaveGroup is not repeated: the coordinator evicts the member when its session ends.
        if self.state is MemberState.LEAVING:
            return self._left()
        if not self.state.is_rebalancing:
            return []
        return [self._join(pause=True)] if event.retriable else self._fail(event.error)

    # Being a member.

    def _refused_as_member(self, api: str, code: ErrorCode) -> list[Action]:
        """Handle the answer to a heartbeat, or the refusal of a commit with an error about the membership."""
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            # In REVOKING the member joins again anyway, as soon as the reader has released the partitions.
            return self._rebalance() if self.state is MemberState.STABLE else []
        if code in _FENCED:
            return self._fenced(code)
        if code is ErrorCode.NONE or code.retriable or code is ErrorCode.UNKNOWN_SERVER_ERROR:
            return []  # a later heartbeat may succeed; otherwise the session times out
        if is_final(code, was_accepted=True):
            return self._fail(self._refusal(api, code))
        return [Report(self._refusal(api, code))]

    def _forgives(self, code: ErrorCode) -> bool:
        """Return whether a static member may have been fenced by its own JoinGroup, and should join again, once.

        A coordinator that moves may lose the member id of its answer. A slow coordinator may handle a JoinGroup after
        the next attempt. But a member of a complete generation was fenced by another client with the same instance id.
        """
        if code is not ErrorCode.FENCED_INSTANCE_ID or self.instance_id is None:
            return False
        if self._is_confirmed or self._fence_forgiven:
            return False
        self._fence_forgiven = True
        return True

    def _topics_seen(self, event: TopicsSeen) -> list[Action]:
        if self.leadership is None or self.leadership.is_based_on(event.counts):
            return []
        # In the middle of a rebalance another JoinGroup would discard the assignments of all members.
        if self.state is MemberState.STABLE:
            return self._rebalance()
        self.leadership.is_outdated = True
        return []

    def _rebalance(self) -> list[Action]:
        """Join again. First release all partitions or, if cooperative, only the partitions of unsubscribed topics."""
        surplus = self.partitions.owned
        if self.cooperative:
            surplus = frozenset(partition for partition in surplus if partition.topic not in self._topics)
        if not surplus:
            return [self._join()]
        self._advance(MemberEvent.REVOKE)
        return [self.partitions.revoke(surplus)]

    def _released(self) -> list[Action]:
        if self.state is MemberState.LEAVING:
            self._advance(MemberEvent.RELEASED)
            return self._send_leave()
        if self.state in (MemberState.REVOKING, MemberState.FENCED):
            # A fenced member pauses first (rule 5), so that a coordinator that fences it repeatedly does not cause a
            # busy loop.
            return [self._join(MemberEvent.RELEASED, pause=self.state is MemberState.FENCED)]
        return []

    def _fenced(self, code: ErrorCode | None, *, pause: bool = False) -> list[Action]:
        """Lose all partitions and join again, under a new member id if the coordinator does not know the present one.

        ``code`` is the coordinator's answer; None if the coordinator has not answered for a whole session.
        """
        lose = self.partitions.lose()
        # With ILLEGAL_GENERATION the coordinator still knows the member id. With a new id, the old member would stay in
        # the group until its session ends, and every rebalance would wait for it.
        self.generation = NO_GENERATION
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self.member_id = ""
        # Nothing has to be released, so no ``Released`` will come: join at once.
        if not lose.partitions and self.state.is_rebalancing:
            return [self._join(pause=pause)]
        # Answers to requests that are in flight belong to the lost membership (rule 1).
        self._advance(MemberEvent.FENCE)
        self._attempt += 1
        return [lose]

    def _refusal(self, api: str, code: ErrorCode) -> KafkaError:
        request = f" with strategies {', '.join(self._strategies)}"
        return refusal(api, code, group_id=self.group_id, instance_id=self.instance_id, request=request)

    # Leaving.

    def _leave(self, reason: str | None, *, in_good_order: bool) -> list[Action]:
        """Leave, with LeaveGroup unless ``reason`` is None. With ``in_good_order``, the reader commits first."""
        self._leave_reason = reason
        # JoinGroup without a member id is in flight: the coordinator is about to create a member.
        awaits_id = self.state is MemberState.JOINING and not self.member_id
        if awaits_id and reason is not None and not self.partitions.owned:
            self._advance(MemberEvent.LEAVE)
            return [AwaitJoin(self._attempt)]
        return self._release_and_leave(in_good_order=in_good_order)

    def _send_leave(self) -> list[Action]:
        if not self.member_id or self._leave_reason is None:
            return self._left()
        self._attempt += 1
        return [SendLeave(self._attempt, self.member_id, self.instance_id, self._leave_reason)]

    def _left(self) -> list[Action]:
        self._advance(MemberEvent.LEFT)
        # A static member that did not send LeaveGroup is still in the group, and joins again under its id (KIP-345).
        if self.instance_id is None or self._leave_reason is not None:
            self.member_id = ""
        self.generation = NO_GENERATION
        if self._overdue or self._closing or not self._topics:
            return []
        return [self._join()]  # the user subscribed again while the member was leaving
