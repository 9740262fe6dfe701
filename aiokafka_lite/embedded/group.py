"""One consumer group under the classic protocol, as its coordinator keeps it: members, generations, rebalances.

The group decides and remembers; it neither speaks the wire nor stores anything. Joins and syncs that must wait are
futures, timeouts are timers of the event loop, so a coroutine per connection may simply await an answer.

A rebalance: some event makes the group PREPARING_REBALANCE, and everybody must join again. When all have (or the
rebalance timeout has passed, which drops the others) the next generation begins and joins are answered: the group is
COMPLETING_REBALANCE until the leader's sync brings the assignments, which answers all syncs, and then STABLE.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from ..errors import ErrorCode
from ..protocol.state import next_state

NO_GENERATION = -1
NEW_MEMBER_JOIN_TIMEOUT = 300.0
"""Seconds that a member without a generation may wait in a join, however short its session timeout is (KAFKA-6520)."""


class GroupState(Enum):
    """What a group waits for. The names as on the wire are in ``wire_name``."""

    EMPTY = "no members; it may still hold offsets"
    PREPARING_REBALANCE = "members must join again; joins wait until all have or the time is over"
    COMPLETING_REBALANCE = "the generation is known; syncs wait for the leader's assignments"
    STABLE = "assignments are handed out; heartbeats keep the members"
    DEAD = "deleted or moved to another coordinator; every request is sent away"

    @property
    def wire_name(self) -> str:
        """As DescribeGroups and ListGroups write it."""
        return self.name.title().replace("_", "")


class GroupEvent(Enum):
    """What moves a group."""

    REBALANCE = "a member came, went, or changed what it wants"
    JOINED = "all members that are left have joined"
    EMPTIED = "the time to join is over and no member is left"
    ASSIGNED = "the leader handed in the assignments"
    BURY = "deleted, or its partition moved to another coordinator"


_S, _E = GroupState, GroupEvent

TRANSITIONS: dict[GroupState, dict[GroupEvent, GroupState]] = {
    _S.EMPTY: {_E.REBALANCE: _S.PREPARING_REBALANCE, _E.BURY: _S.DEAD},
    _S.PREPARING_REBALANCE: {_E.JOINED: _S.COMPLETING_REBALANCE, _E.EMPTIED: _S.EMPTY, _E.BURY: _S.DEAD},
    _S.COMPLETING_REBALANCE: {_E.ASSIGNED: _S.STABLE, _E.REBALANCE: _S.PREPARING_REBALANCE, _E.BURY: _S.DEAD},
    _S.STABLE: {_E.REBALANCE: _S.PREPARING_REBALANCE, _E.BURY: _S.DEAD},
    _S.DEAD: {_E.BURY: _S.DEAD},
}


class JoiningMember(NamedTuple):
    """What a JoinGroup request says. Timeouts are in seconds; protocols in the member's order of preference."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout: float
    rebalance_timeout: float
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]


class JoinResult(NamedTuple):
    """The answer to a join; ``members`` only for the leader: (member id, instance id, subscription)."""

    error: ErrorCode
    member_id: str = ""
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    members: tuple[tuple[str, str | None, bytes], ...] = ()
    skip_assignment: bool = False


class SyncResult(NamedTuple):
    """The answer to a sync."""

    error: ErrorCode
    assignment: bytes = b""
    protocol_type: str | None = None
    protocol: str | None = None


@dataclass(slots=True, eq=False)
class Member:
    """A member of the group. Owner: the group."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout: float
    rebalance_timeout: float
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes = b""
    is_new: bool = True
    joining: asyncio.Future[JoinResult] | None = None
    syncing: asyncio.Future[SyncResult] | None = None
    session: asyncio.TimerHandle | None = None

    def subscription(self, protocol: str | None) -> bytes:
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def update(self, request: JoiningMember) -> None:
        self.client_id, self.client_host = request.client_id, request.client_host
        self.session_timeout, self.rebalance_timeout = request.session_timeout, request.rebalance_timeout
        self.protocols = request.protocols

    def end_waits(self, error: ErrorCode) -> None:
        """Answer whatever it waits for with an error."""
        if self.joining is not None and not self.joining.done():
            self.joining.set_result(JoinResult(error, self.member_id))
        if self.syncing is not None and not self.syncing.done():
            self.syncing.set_result(SyncResult(error))
        self.joining = self.syncing = None


@dataclass(slots=True)
class Group:
    """A classic group. Owner: the coordinator of its node; single loop, no awaits inside.

    ``persist`` is called with a group whose generation was assigned or that became empty, before members are told.
    ``initial_delay`` is how long the first rebalance of an empty group waits for company, in seconds.
    """

    group_id: str
    call_later: Callable[[float, Callable[[], None]], asyncio.TimerHandle]
    new_id: Callable[[], str]
    initial_delay: float = 0.0
    max_size: int = 2**31 - 1
    state: GroupState = GroupState.EMPTY
    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    static: dict[str, str] = field(default_factory=dict)
    pending: dict[str, asyncio.TimerHandle] = field(default_factory=dict)
    persist: Callable[[Group], None] = lambda group: None
    _rebalance: asyncio.TimerHandle | None = None
    _delaying: bool = False
    _sync_timer: asyncio.TimerHandle | None = None
    _delay_left: float = 0.0
    _grew: bool = False

    def __repr__(self) -> str:
        return f"<Group {self.group_id} {self.state.name} generation={self.generation} members={len(self.members)}>"

    # ---- joining

    def join(self, request: JoiningMember, *, require_member_id: bool) -> JoinResult | asyncio.Future[JoinResult]:
        """A member joins, or joins again. ``require_member_id``: the client knows KIP-394 (JoinGroup v4)."""
        if self.state is GroupState.DEAD:
            return JoinResult(ErrorCode.COORDINATOR_NOT_AVAILABLE, request.member_id)
        if not self._supports(request):
            return JoinResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id)
        if self._is_full(request.member_id):
            return JoinResult(ErrorCode.GROUP_MAX_SIZE_REACHED, request.member_id)
        if not request.member_id:
            return self._join_new(request, require_member_id=require_member_id)
        if request.member_id in self.pending:
            if request.instance_id is not None:
                return JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)
            self.pending.pop(request.member_id).cancel()
            return self._add(request, request.member_id)
        error = self.check_member(request.member_id, request.instance_id)
        if error is not ErrorCode.NONE:
            return JoinResult(error, request.member_id)
        return self._join_known(self.members[request.member_id], request)

    def _supports(self, request: JoiningMember) -> bool:
        """Whether the member can use a protocol that all who are members now can."""
        if not request.protocol_type or not request.protocols:
            return False
        if self.state is GroupState.EMPTY:
            return True
        names = {name for name, _ in request.protocols}
        common = self._common_protocols(self.members.values(), otherwise=names)
        return request.protocol_type == self.protocol_type and bool(names & common)

    def _is_full(self, member_id: str) -> bool:
        if member_id in self.members:
            member = self.members[member_id]
            return (
                self.state is GroupState.PREPARING_REBALANCE
                and member.joining is None
                and (sum(1 for each in self.members.values() if each.joining is not None) >= self.max_size)
            )
        return len(self.members) + len(self.pending) - (member_id in self.pending) >= self.max_size

    def _join_new(self, request: JoiningMember, *, require_member_id: bool) -> JoinResult | asyncio.Future[JoinResult]:
        member_id = f"{request.instance_id or request.client_id}-{self.new_id()}"
        if request.instance_id is not None:
            old = self.static.get(request.instance_id)
            return (
                self._add(request, member_id) if old is None else self._replace(self.members[old], request, member_id)
            )
        if require_member_id:
            self.pending[member_id] = self.call_later(request.session_timeout, lambda: self._forget_pending(member_id))
            return JoinResult(ErrorCode.MEMBER_ID_REQUIRED, member_id)
        return self._add(request, member_id)

    def _join_known(self, member: Member, request: JoiningMember) -> JoinResult | asyncio.Future[JoinResult]:
        same = member.protocols == request.protocols
        if self.state is GroupState.COMPLETING_REBALANCE and same:
            return self._result_for(member)  # it did not get the answer to its last join
        if self.state is GroupState.STABLE and same and member.member_id != self.leader:
            return self._result_for(member)
        if self.state is GroupState.EMPTY:
            return JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, member.member_id)
        member.update(request)
        return self._await_join(member)

    def _add(self, request: JoiningMember, member_id: str) -> asyncio.Future[JoinResult]:
        member = Member(member_id, *request[1:])
        if not self.members:
            self.protocol_type = request.protocol_type
        self.members[member_id] = member
        if member.instance_id is not None:
            self.static[member.instance_id] = member_id
        if self.leader is None:
            self.leader = member_id
        self._grew = self._delaying
        return self._await_join(member)

    def _replace(self, old: Member, request: JoiningMember, member_id: str) -> JoinResult | asyncio.Future[JoinResult]:
        """A static member restarted: it gets a new id and its old place, without a rebalance where that can be."""
        del self.members[old.member_id]
        old.end_waits(ErrorCode.FENCED_INSTANCE_ID)
        self._stop_session(old)
        member = Member(member_id, *request[1:], assignment=old.assignment, is_new=False)
        self.members[member_id] = member
        self.static[request.instance_id or ""] = member_id
        was_leader = self.leader == old.member_id
        if was_leader:
            self.leader = member_id
        if self.state is GroupState.STABLE and self._select_protocol() == self.protocol:
            self.persist(self)
            self.touch(member)
            if was_leader:
                # Told to leave the assignment as it is (KIP-814); an older client gets the old leader's name instead.
                return self._result_for(member)._replace(skip_assignment=True)
            return self._result_for(member)
        return self._await_join(member)

    def _await_join(self, member: Member) -> asyncio.Future[JoinResult]:
        if member.joining is not None and not member.joining.done():
            member.joining.set_result(JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, member.member_id))
        joining = member.joining = asyncio.get_running_loop().create_future()
        self.touch(member)
        self.rebalance()
        return joining

    # ---- a rebalance

    def rebalance(self) -> None:
        """Make everybody join again; nothing new when that is under way, except that it may now be complete."""
        if self.state is GroupState.PREPARING_REBALANCE:
            self._try_complete_join()
            return
        if self.state is GroupState.DEAD:
            return
        from_empty = self.state is GroupState.EMPTY
        for member in self.members.values():
            self._end_sync(member)
        self._cancel_sync_timer()
        self._advance(GroupEvent.REBALANCE)
        if from_empty and self.initial_delay > 0:
            self._delaying, self._grew = True, False
            self._delay_left = max(0.0, self._rebalance_timeout - self.initial_delay)
            self._rebalance = self.call_later(self.initial_delay, self._end_initial_delay)
            return
        self._rebalance = self.call_later(self._rebalance_timeout, self._complete_join)
        self._try_complete_join()

    def _end_sync(self, member: Member) -> None:
        if member.syncing is not None and not member.syncing.done():
            member.syncing.set_result(SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))
        member.syncing = None

    def _end_initial_delay(self) -> None:
        """Wait once more while newcomers keep coming, up to the rebalance timeout (KIP-134)."""
        if self._grew and self._delay_left > 0:
            delay = min(self.initial_delay, self._delay_left)
            self._delay_left -= delay
            self._grew = False
            self._rebalance = self.call_later(delay, self._end_initial_delay)
            return
        self._complete_join()

    @property
    def _rebalance_timeout(self) -> float:
        return max((member.rebalance_timeout for member in self.members.values()), default=0.0)

    def _try_complete_join(self) -> None:
        if self._delaying or self.state is not GroupState.PREPARING_REBALANCE:
            return
        if not self.pending and all(member.joining is not None for member in self.members.values()):
            self._complete_join()

    def _complete_join(self) -> None:
        """The time to join is over, or everybody has: begin the next generation with those who are there."""
        if self.state is not GroupState.PREPARING_REBALANCE:
            return
        if self._rebalance is not None:
            self._rebalance.cancel()
            self._rebalance = None
        self._delaying = False
        for member in [each for each in self.members.values() if each.joining is None and each.instance_id is None]:
            self._drop(member)
        joined = [member for member in self.members.values() if member.joining is not None]
        if self.members and not joined:
            # Only static members that have not come back: they keep their places until their sessions end.
            self._rebalance = self.call_later(self._rebalance_timeout, self._complete_join)
            return
        if joined and (self.leader not in self.members or self.members[self.leader].joining is None):
            self.leader = joined[0].member_id
        self.generation += 1
        if not self.members:
            self.leader = self.protocol = None
            self._advance(GroupEvent.EMPTIED)
            self.persist(self)
            return
        self.protocol = self._select_protocol()
        self._advance(GroupEvent.JOINED)
        for member in joined:
            member.is_new = False
            assert member.joining is not None
            joining, member.joining = member.joining, None
            if not joining.done():
                joining.set_result(self._result_for(member))
            self.touch(member)
        self._sync_timer = self.call_later(self._rebalance_timeout, self._end_sync_time)

    def _end_sync_time(self) -> None:
        """Members that never synced are gone, whatever their heartbeats say."""
        if self.state is GroupState.COMPLETING_REBALANCE:
            for member in [each for each in self.members.values() if each.syncing is None]:
                self._drop(member)
            self.rebalance()

    def _result_for(self, member: Member) -> JoinResult:
        members: tuple[tuple[str, str | None, bytes], ...] = ()
        if member.member_id == self.leader:
            members = tuple(
                (each.member_id, each.instance_id, each.subscription(self.protocol)) for each in self.members.values()
            )
        return JoinResult(
            ErrorCode.NONE,
            member.member_id,
            self.generation,
            self.protocol_type,
            self.protocol,
            self.leader or "",
            members,
        )

    @staticmethod
    def _common_protocols(members: Iterable[Member], *, otherwise: set[str]) -> set[str]:
        common: set[str] | None = None
        for member in members:
            names = {name for name, _ in member.protocols}
            common = names if common is None else common & names
        return otherwise if common is None else common

    def _select_protocol(self) -> str | None:
        """By vote: each member for the first of its protocols that all have; ties go to the first in the alphabet."""
        common = self._common_protocols(self.members.values(), otherwise=set())
        votes: dict[str, int] = {}
        for member in self.members.values():
            vote = next((name for name, _ in member.protocols if name in common), None)
            if vote is not None:
                votes[vote] = votes.get(vote, 0) + 1
        return min(votes, key=lambda name: (-votes[name], name), default=None)

    # ---- syncing

    def sync(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        assignments: Mapping[str, bytes],
        *,
        protocol_type: str | None = None,
        protocol: str | None = None,
    ) -> SyncResult | asyncio.Future[SyncResult]:
        """A member asks for its assignment; the leader brings everybody's."""
        error = self.check_generation(member_id, instance_id, generation)
        if error is not ErrorCode.NONE:
            return SyncResult(error)
        if (protocol_type is not None and protocol_type != self.protocol_type) or (
            protocol is not None and protocol != self.protocol
        ):
            return SyncResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        member = self.members[member_id]
        if self.state is GroupState.PREPARING_REBALANCE:
            return SyncResult(ErrorCode.REBALANCE_IN_PROGRESS)
        if self.state is GroupState.STABLE:
            self.touch(member)
            return self._synced(member)
        syncing = member.syncing = asyncio.get_running_loop().create_future()
        self.touch(member)
        if member_id == self.leader:
            self._assign(assignments)
        return syncing

    def _assign(self, assignments: Mapping[str, bytes]) -> None:
        for member in self.members.values():
            member.assignment = assignments.get(member.member_id, b"")
        self._cancel_sync_timer()
        self._advance(GroupEvent.ASSIGNED)
        self.persist(self)
        for member in self.members.values():
            syncing, member.syncing = member.syncing, None
            if syncing is not None and not syncing.done():
                syncing.set_result(self._synced(member))
            self.touch(member)

    def _synced(self, member: Member) -> SyncResult:
        return SyncResult(ErrorCode.NONE, member.assignment, self.protocol_type, self.protocol)

    # ---- staying and leaving

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """A member says that it lives."""
        error = self.check_generation(member_id, instance_id, generation)
        if error is not ErrorCode.NONE:
            return error
        self.touch(self.members[member_id])
        if self.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def leave(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """A member goes, or an operator removes a static one by its instance id alone."""
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if member_id in self.pending:
            self._forget_pending(member_id)
            return ErrorCode.NONE
        if instance_id is not None and not member_id:
            if instance_id not in self.static:
                return ErrorCode.UNKNOWN_MEMBER_ID
            member_id = self.static[instance_id]
        error = self.check_member(member_id, instance_id)
        if error is ErrorCode.NONE:
            self._drop(self.members[member_id])
            self.rebalance()
        return error

    def check_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Whether this is a member, and the one that holds its instance id now."""
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if instance_id is not None:
            holder = self.static.get(instance_id)
            if holder is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            return ErrorCode.NONE if holder == member_id else ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def check_generation(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """The same, and that it speaks of the present generation."""
        error = self.check_member(member_id, instance_id)
        if error is ErrorCode.NONE and generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        return error

    def touch(self, member: Member) -> None:
        """Begin a member's session anew."""
        self._stop_session(member)
        timeout = NEW_MEMBER_JOIN_TIMEOUT if member.is_new else member.session_timeout
        member.session = self.call_later(timeout, lambda: self._expire(member))

    def _stop_session(self, member: Member) -> None:
        if member.session is not None:
            member.session.cancel()
            member.session = None

    def _expire(self, member: Member) -> None:
        if self.members.get(member.member_id) is not member:
            return
        if not member.is_new and (member.joining is not None or member.syncing is not None):
            self.touch(member)  # it waits for an answer of ours
            return
        self._drop(member)
        self.rebalance()

    def _drop(self, member: Member) -> None:
        del self.members[member.member_id]
        if member.instance_id is not None and self.static.get(member.instance_id) == member.member_id:
            del self.static[member.instance_id]
        self._stop_session(member)
        member.end_waits(ErrorCode.UNKNOWN_MEMBER_ID)
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), None)

    def _forget_pending(self, member_id: str) -> None:
        timer = self.pending.pop(member_id, None)
        if timer is not None:
            timer.cancel()
            self._try_complete_join()

    def bury(self, error: ErrorCode) -> None:
        """End the group here; whoever waits is told ``error``."""
        self._advance(GroupEvent.BURY)
        for timer in (self._rebalance, self._sync_timer, *self.pending.values()):
            if timer is not None:
                timer.cancel()
        self.pending.clear()
        for member in self.members.values():
            self._stop_session(member)
            member.end_waits(error)
        self.members.clear()
        self.static.clear()

    def restore(self, generation: int, leader: str | None, protocol: str | None, members: Sequence[Member]) -> None:
        """Take over what another coordinator stored; sessions begin anew."""
        self.generation, self.leader, self.protocol = generation, leader, protocol
        if not members:
            return
        self.protocol_type = members[0].protocol_type
        for member in members:
            member.is_new = False
            self.members[member.member_id] = member
            if member.instance_id is not None:
                self.static[member.instance_id] = member.member_id
            self.touch(member)
        self.state = GroupState.STABLE

    def _cancel_sync_timer(self) -> None:
        if self._sync_timer is not None:
            self._sync_timer.cancel()
            self._sync_timer = None

    def _advance(self, event: GroupEvent) -> None:
        self.state = next_state(TRANSITIONS, self.state, event)
