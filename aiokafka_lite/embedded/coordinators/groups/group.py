"""The coordinator's state of one consumer group of the classic protocol: members, generations, rebalances.

The group decides; it neither encodes messages nor stores anything. A join or a sync that has to wait is a future, and
the coroutine of the connection awaits it. A timeout is a timer of the event loop.

Rules of this file:

 1. A rebalance begins in PREPARING_REBALANCE, where every member must join again. When all have joined, or when the
    rebalance timeout has dropped the others, the next generation begins and all joins are answered.
 2. The group is then COMPLETING_REBALANCE until the leader's sync brings the assignments and the replicas have them.
    That answers all syncs, and the group is STABLE.
 3. Each state has at most one timer, and leaving the state cancels it. ``_advance`` is the only way to another state.
 4. A static member keeps its place until its session expires, whether or not it joins the rebalance (KIP-345).

``_delaying`` is set while the first rebalance of an empty group waits for more members (KIP-134). ``_grew`` is set if a
member joins during this wait. Then the group waits once more, at most ``_delay_left`` seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import partial

from ....arguments import INT32_MAX
from ....errors import ErrorCode
from ....state_machine import next_state
from .members import JoiningMember, JoinResult, Member, Members, SyncResult

NEW_MEMBER_JOIN_TIMEOUT = 300.0
"""Seconds that a member without a generation may wait in a join, however short its session timeout is (KAFKA-6520)."""


class GroupState(Enum):
    """The state of a group.

    ``GroupState`` of ``admin`` is this state as a client reads it.
    """

    EMPTY = "no members; the group may still have offsets"
    PREPARING_REBALANCE = "members must join again; joins wait until all have joined or the timeout passes"
    COMPLETING_REBALANCE = "the generation has begun; syncs wait for the leader's assignments"
    STABLE = "members have their assignments, and send heartbeats"
    DEAD = "deleted, or moved to another coordinator; every request fails"

    @property
    def wire_name(self) -> str:
        """The name in DescribeGroups and ListGroups."""
        return self.name.title().replace("_", "")


class GroupEvent(Enum):
    """An event that moves a group to another state."""

    REBALANCE = "a member joined, left, or changed its subscription"
    JOINED = "all remaining members have joined"
    EMPTIED = "the timeout passed and no member remains"
    ASSIGNED = "the leader sent the assignments"
    CLOSE = "the group was deleted, or its partition moved to another coordinator"


_S, _E = GroupState, GroupEvent

TRANSITIONS: dict[GroupState, dict[GroupEvent, GroupState]] = {
    _S.EMPTY: {_E.REBALANCE: _S.PREPARING_REBALANCE, _E.CLOSE: _S.DEAD},
    _S.PREPARING_REBALANCE: {_E.JOINED: _S.COMPLETING_REBALANCE, _E.EMPTIED: _S.EMPTY, _E.CLOSE: _S.DEAD},
    _S.COMPLETING_REBALANCE: {_E.ASSIGNED: _S.STABLE, _E.REBALANCE: _S.PREPARING_REBALANCE, _E.CLOSE: _S.DEAD},
    _S.STABLE: {_E.REBALANCE: _S.PREPARING_REBALANCE, _E.CLOSE: _S.DEAD},
    _S.DEAD: {_E.CLOSE: _S.DEAD},
}


class Group:
    """A classic group. Owner: the coordinator of its node. No method awaits, so each one is atomic.

    ``persist`` is called when the leader has assigned, when a static member has returned, and when the group has become
    empty. Its arguments are the group, the assignments of its members, and a function. It calls this function, at once
    or later: with NONE when the replicas have the group, or with the error of the log. Until then the members wait for
    their answers. After an error they get no assignments, or the static member is as before. ``initial_delay`` is how
    long the first rebalance of an empty group waits for more members, in seconds. ``pending`` are ids that were given
    to new members, which have to join with them (KIP-394).
    """

    type = "classic"

    def __init__(
        self,
        group_id: str,
        *,
        call_later: Callable[[float, Callable[[], None]], asyncio.TimerHandle],
        new_id: Callable[[], str],
        persist: Callable[[Group, Mapping[str, bytes], Callable[[ErrorCode], None]], None],
        initial_delay: float = 0.0,
        max_size: int = INT32_MAX,
    ) -> None:
        self.group_id = group_id
        self.state: GroupState = GroupState.EMPTY
        self.generation: int = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.members: Members = Members()
        self.pending: dict[str, asyncio.TimerHandle] = {}
        self.max_size = max_size
        self._call_later = call_later
        self._new_id = new_id
        self._persist = persist
        self._initial_delay = initial_delay
        self._timer: asyncio.TimerHandle | None = None
        self._delaying = False
        self._delay_left = 0.0
        self._grew = False

    def __repr__(self) -> str:
        return f"<Group {self.group_id} {self.state.name} generation={self.generation} members={len(self.members)}>"

    @property
    def is_empty(self) -> bool:
        return self.state is GroupState.EMPTY

    # Joining.

    def join(self, request: JoiningMember, *, require_member_id: bool) -> JoinResult | asyncio.Future[JoinResult]:
        """Add a member, or let it join again. ``require_member_id`` is True for JoinGroup v4 and later (KIP-394)."""
        error = _join_error(self, request)
        if error is not ErrorCode.NONE:
            return JoinResult(error, request.member_id)
        if not request.member_id:
            return self._join_new(request, require_member_id=require_member_id)
        if request.member_id in self.pending:
            # A static member gets no id in advance, so it cannot know this one.
            if request.instance_id is not None:
                return JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)
            self.pending.pop(request.member_id).cancel()
            return self._add(request, request.member_id)
        error = self.members.check(request.member_id, request.instance_id)
        if error is not ErrorCode.NONE:
            return JoinResult(error, request.member_id)
        return self._join_known(self.members[request.member_id], request)

    def _join_new(self, request: JoiningMember, *, require_member_id: bool) -> JoinResult | asyncio.Future[JoinResult]:
        member_id = f"{request.instance_id or request.client_id}-{self._new_id()}"
        if request.instance_id is not None:
            old = self.members.static.get(request.instance_id)
            if old is not None:
                return self._replace(self.members[old], request, member_id)
        elif require_member_id:
            self.pending[member_id] = self._call_later(request.session_timeout, lambda: self._drop_pending(member_id))
            return JoinResult(ErrorCode.MEMBER_ID_REQUIRED, member_id)
        return self._add(request, member_id)

    def _join_known(self, member: Member, request: JoiningMember) -> JoinResult | asyncio.Future[JoinResult]:
        same = member.protocols == request.protocols
        if self.state is GroupState.COMPLETING_REBALANCE and same:
            return _join_result(self, member)  # the member did not receive the answer to its last join
        # A leader that joins again asks for a rebalance, for example because partitions were added.
        if self.state is GroupState.STABLE and same and member.member_id != self.members.leader:
            return _join_result(self, member)
        if self.state is GroupState.EMPTY:
            return JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, member.member_id)
        member.update(request)
        return self._await_join(member)

    def _add(self, request: JoiningMember, member_id: str) -> asyncio.Future[JoinResult]:
        if not self.members:
            self.protocol_type = request.protocol_type
        member = Member(member_id, *request[1:])
        self.members.add(member)
        self._grew = self._delaying
        return self._await_join(member)

    def _replace(self, old: Member, request: JoiningMember, member_id: str) -> JoinResult | asyncio.Future[JoinResult]:
        """Replace a restarted static member: give it a new id, and if possible its assignment without a rebalance."""
        was_leader = self.members.leader == old.member_id
        # Two processes with one instance id would read the same partitions, so the older one is fenced (KIP-345).
        self.members.remove(old, ErrorCode.FENCED_INSTANCE_ID)
        member = Member(member_id, *request[1:], assignment=old.assignment, is_new=False)
        self.members.add(member)
        if was_leader:
            self.members.leader = member_id
        if self.state is not GroupState.STABLE or self.members.elect_protocol() != self.protocol:
            return self._await_join(member)
        joining = member.joining = asyncio.get_running_loop().create_future()
        self.touch(member)
        assignments = {member.member_id: member.assignment for member in self.members.values()}
        self._persist(self, assignments, partial(self._returned, member, old, joining, was_leader=was_leader))
        return joining

    def _returned(
        self, member: Member, old: Member, joining: asyncio.Future[JoinResult], error: ErrorCode, *, was_leader: bool
    ) -> None:
        """Answer the join of a returned static member when the replicas have it. An error restores the old one."""
        if member.joining is not joining:
            return  # a rebalance has answered the join, or the member has joined again or left
        if error is ErrorCode.NONE:
            former_leader = old.member_id if was_leader else ""
            member.answer_join(_join_result(self, member)._replace(former_leader=former_leader))
            return
        member.answer_join(JoinResult(error))
        self.members.remove(member, error)
        self.members.add(old)
        if was_leader:
            self.members.leader = old.member_id
        self.touch(old)

    def _await_join(self, member: Member) -> asyncio.Future[JoinResult]:
        # The member has sent another join, so its earlier one must not wait any longer.
        member.answer_join(JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, member.member_id))
        joining = member.joining = asyncio.get_running_loop().create_future()
        self.touch(member)
        self.rebalance()
        return joining

    # A rebalance.

    def rebalance(self) -> None:
        """Make every member join again. If a rebalance is in progress, only check whether all have joined."""
        if self.state is GroupState.PREPARING_REBALANCE:
            self._try_complete_join()
            return
        if self.state is GroupState.DEAD:
            return
        from_empty = self.state is GroupState.EMPTY
        # A sync that waits belongs to the generation that ends here. Its member has to join the next one.
        for member in self.members.values():
            member.answer_sync(SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))
        self._advance(GroupEvent.REBALANCE)
        if from_empty and self._initial_delay > 0:
            # As in Kafka, the group waits again if members joined meanwhile, at most for the rebalance timeout.
            self._delaying, self._grew = True, False
            self._delay_left = max(0.0, self.members.rebalance_timeout - self._initial_delay)
            self._timer = self._call_later(self._initial_delay, self._end_initial_delay)
            return
        self._timer = self._call_later(self.members.rebalance_timeout, self._complete_join)
        self._try_complete_join()

    def _end_initial_delay(self) -> None:
        if self._grew and self._delay_left > 0:
            delay = min(self._initial_delay, self._delay_left)
            self._delay_left -= delay
            self._grew = False
            self._timer = self._call_later(delay, self._end_initial_delay)
            return
        self._complete_join()

    def _try_complete_join(self) -> None:
        if self._delaying or self.state is not GroupState.PREPARING_REBALANCE:
            return
        # Members that got an id in advance are about to join.
        if not self.pending and all(member.joining is not None for member in self.members.values()):
            self._complete_join()

    def _complete_join(self) -> None:
        """Begin the next generation, when all members have joined or the timeout has passed. Others are dropped."""
        self._delaying = False
        # Absent static members stay (rule 4): a restart within the session timeout must not move their partitions.
        for member in [
            member for member in self.members.values() if member.joining is None and member.instance_id is None
        ]:
            self.members.remove(member, ErrorCode.UNKNOWN_MEMBER_ID)
        joined = list(self.members.joined())
        if joined:
            self._begin_generation(joined)
        elif self.members:  # only absent static members remain, which keep their places
            self._timer = self._call_later(self.members.rebalance_timeout, self._complete_join)
        else:
            self.generation += 1
            self.protocol = None
            self._advance(GroupEvent.EMPTIED)
            self._persist(self, {}, lambda error: None)

    def _begin_generation(self, joined: Sequence[Member]) -> None:
        # A static leader keeps its place without joining (rule 4), and then another member must assign.
        if self.members.leader not in [member.member_id for member in joined]:
            self.members.leader = joined[0].member_id
        assert self.members.leader in self.members, "the leader is a member that has joined"
        self.generation += 1
        self.protocol = self.members.elect_protocol()
        self._advance(GroupEvent.JOINED)
        for member in joined:
            member.is_new = False
            member.answer_join(_join_result(self, member))
            self.touch(member)
        self._timer = self._call_later(self.members.rebalance_timeout, self._end_sync_time)

    def _end_sync_time(self) -> None:
        """Drop the members that did not sync, even if they send heartbeats."""
        late = [member for member in self.members.values() if member.syncing is None]
        if not late:
            return  # the leader's assignments are on their way to the replicas, and that write ends the state
        for member in late:
            self.members.remove(member, ErrorCode.UNKNOWN_MEMBER_ID)
        self.rebalance()

    # Syncing.

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
        """Answer a member's request for its assignment. The leader's sync has the assignments of all members."""
        error = self.check_generation(member_id, instance_id, generation)
        if error is not ErrorCode.NONE:
            return SyncResult(error)
        if protocol_type not in (None, self.protocol_type) or protocol not in (None, self.protocol):
            return SyncResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        member = self.members[member_id]
        if self.state is GroupState.PREPARING_REBALANCE:
            return SyncResult(ErrorCode.REBALANCE_IN_PROGRESS)
        if self.state is GroupState.STABLE:
            self.touch(member)
            return _sync_result(self, member)
        syncing = member.syncing = asyncio.get_running_loop().create_future()
        self.touch(member)
        if member_id == self.members.leader:
            self._persist(self, assignments, partial(self._assigned, self.generation, assignments))
        return syncing

    def _assigned(self, generation: int, assignments: Mapping[str, bytes], error: ErrorCode) -> None:
        """Answer all syncs when the replicas have the assignments. After an error, all members join again."""
        if self.state is not GroupState.COMPLETING_REBALANCE or self.generation != generation:
            return  # another rebalance has begun meanwhile
        for member in self.members.values():
            member.assignment = assignments.get(member.member_id, b"") if error is ErrorCode.NONE else b""
        if error is not ErrorCode.NONE:
            for member in self.members.values():
                member.answer_sync(SyncResult(error))
            self.rebalance()
            return
        self._advance(GroupEvent.ASSIGNED)
        for member in self.members.values():
            member.answer_sync(_sync_result(self, member))
            self.touch(member)

    # Sessions, and leaving.

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Handle a heartbeat. REBALANCE_IN_PROGRESS asks the member to join again."""
        error = self.check_generation(member_id, instance_id, generation)
        if error is not ErrorCode.NONE:
            return error
        # Also during a rebalance: a member may need the whole rebalance timeout before it joins again.
        self.touch(self.members[member_id])
        if self.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def leave(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Remove a member that leaves, or a static member that an operator names by its instance id alone."""
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if member_id in self.pending:
            self._drop_pending(member_id)
            return ErrorCode.NONE
        if instance_id is not None and not member_id:
            member_id = self.members.static.get(instance_id, "")
        error = self.members.check(member_id, instance_id)
        if error is ErrorCode.NONE:
            self.members.remove(self.members[member_id], ErrorCode.UNKNOWN_MEMBER_ID)
            self.rebalance()
        return error

    def check_generation(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Return NONE if this is a member of the present generation."""
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = self.members.check(member_id, instance_id)
        if error is ErrorCode.NONE and generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        return error

    def touch(self, member: Member) -> None:
        """Restart the session of a member."""
        member.stop_session()
        timeout = NEW_MEMBER_JOIN_TIMEOUT if member.is_new else member.session_timeout
        member.session = self._call_later(timeout, lambda: self._expire(member))

    def _expire(self, member: Member) -> None:
        if not member.is_new and (member.joining is not None or member.syncing is not None):
            self.touch(member)  # it sends no heartbeat because it waits for this group's answer
            return
        self.members.remove(member, ErrorCode.UNKNOWN_MEMBER_ID)
        self.rebalance()

    def _drop_pending(self, member_id: str) -> None:
        self.pending.pop(member_id).cancel()
        self._try_complete_join()

    def close(self, error: ErrorCode) -> None:
        """End the group on this node. Every request that waits gets ``error``."""
        self._advance(GroupEvent.CLOSE)
        for timer in self.pending.values():
            timer.cancel()
        self.pending.clear()
        for member in list(self.members.values()):
            self.members.remove(member, error)

    def restore(self, generation: int, leader: str | None, protocol: str | None, members: Sequence[Member]) -> None:
        """Load the state that another coordinator stored. All sessions restart."""
        self.generation, self.protocol = generation, protocol
        for member in members:
            self.protocol_type = member.protocol_type
            member.is_new = False
            self.members.add(member)
            self.touch(member)
        self.members.leader = leader
        if members:
            self.state = GroupState.STABLE

    def _advance(self, event: GroupEvent) -> None:
        self.state = next_state(TRANSITIONS, self.state, event)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        assert self.state is not GroupState.EMPTY or not self.members, "a group that is EMPTY has no members"


def check_commit(
    group: Group, member_id: str, instance_id: str | None, generation: int, *, transactional: bool
) -> ErrorCode:
    """Return NONE if a commit of offsets is accepted. A ``transactional`` one need not name a member (KIP-447)."""
    names_no_member = transactional and not member_id and instance_id is None
    if generation < 0 and (names_no_member or group.state is GroupState.EMPTY):
        return ErrorCode.NONE
    error = group.check_generation(member_id, instance_id, generation)
    if error is not ErrorCode.NONE or transactional:
        return error
    # The member has a new generation but no partitions of it yet. While members still join, commits are accepted,
    # because members commit before they join again.
    if group.state is GroupState.COMPLETING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    group.touch(group.members[member_id])
    return ErrorCode.NONE


def _join_error(group: Group, request: JoiningMember) -> ErrorCode:
    """Return why a member may not join: the group is dead or full, or they have no protocol in common."""
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    fits = bool(request.protocol_type and request.protocols)
    if fits and group.state is not GroupState.EMPTY:
        fits = request.protocol_type == group.protocol_type and group.members.supports_any(request.protocols)
    if not fits:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    member = group.members.get(request.member_id)
    if member is None:
        places = len(group.members) + len(group.pending) - (request.member_id in group.pending)
    elif group.state is GroupState.PREPARING_REBALANCE and member.joining is None:
        places = sum(1 for _ in group.members.joined())  # members that have joined keep their places
    else:
        places = 0
    return ErrorCode.GROUP_MAX_SIZE_REACHED if places >= group.max_size else ErrorCode.NONE


def _join_result(group: Group, member: Member) -> JoinResult:
    """Return the answer to a successful join; the leader's has all subscriptions."""
    members: tuple[tuple[str, str | None, bytes], ...] = ()
    if member.member_id == group.members.leader:
        members = tuple(
            (subscriber.member_id, subscriber.instance_id, subscriber.subscription(group.protocol))
            for subscriber in group.members.values()
        )
    return JoinResult(
        ErrorCode.NONE,
        member.member_id,
        group.generation,
        group.protocol_type,
        group.protocol,
        group.members.leader or "",
        members,
    )


def _sync_result(group: Group, member: Member) -> SyncResult:
    return SyncResult(ErrorCode.NONE, member.assignment, group.protocol_type, group.protocol)
