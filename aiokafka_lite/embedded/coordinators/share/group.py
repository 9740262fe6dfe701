"""A share group (KIP-932): its members, their epochs and assignments, and the state of its share partitions.

It decides and never waits. Its owner, ``HostedShareGroups``, has the timers and the log.

Rules:

 1. Each change of the members, of their subscriptions, or of the partitions of their topics raises the group epoch, and
    the partitions are assigned again. Partitions need not be revoked first: they are shared.
 2. A heartbeat moves the member to the group epoch. It may have the member's epoch, or the previous one: the last
    answer may have been lost. Any other epoch is FENCED_MEMBER_EPOCH, and the member joins again.
 3. The response has the assignment if the assignment has changed, or if the request has topics. A request has topics if
    the member joins, or if its last heartbeat failed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from enum import Enum

from ...metadata.topics import Topic
from ..groups.assignors import TopicIdPartition
from ..groups.heartbeat_group import check_epoch, check_size, unknown_member
from .assignor import assign
from .partition import UNINITIALIZED, StateBatch

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
ASSIGNOR = "simple"
LONGEST_MEMBER_ID = 36
"""The largest number of characters in the id of a member: the length of a UUID."""


class ShareGroupState(Enum):
    """The state of a share group."""

    EMPTY = "no members; the share partitions keep their state"
    STABLE = "members have their partitions"

    @property
    def wire_name(self) -> str:
        """The name in ShareGroupDescribe and ListGroups."""
        return self.name.title()


@dataclass(slots=True)
class ShareState:
    """The state of a share partition that stays after a change of its leader.

    A new start offset from an administrator is a new state; then the leader drops the records in flight.
    ``leader_epoch`` is the epoch of the newest leader that has used it; -1 before the first use. ``state_epoch`` is the
    epoch of the group that made the state. ``delivery_complete_count`` is -1 if a foreign leader did not write it.
    """

    start_offset: int = UNINITIALIZED
    batches: Sequence[StateBatch] = ()
    delivery_complete_count: int = 0
    leader_epoch: int = -1
    state_epoch: int = 0


@dataclass(slots=True)
class ShareMember:
    """A member. ``assigned`` are its partitions, ``is_unsent`` whether the member has not received them yet.

    ``ShareMember`` of ``share`` is the member as its own client sees it.
    """

    member_id: str
    rack_id: str | None
    client_id: str
    client_host: str
    topics: Sequence[str]
    epoch: int = 0
    previous_epoch: int = 0
    assigned: list[TopicIdPartition] = field(default_factory=list)
    is_unsent: bool = True

    def take_assignment(self) -> list[TopicIdPartition] | None:
        """Return the partitions for the response, None if the member has received them."""
        if not self.is_unsent:
            return None
        self.is_unsent = False
        return self.assigned


@dataclass(frozen=True, slots=True)
class ShareHeartbeat:
    """A heartbeat. ``topics`` and ``rack_id`` are None if they did not change."""

    member_id: str
    epoch: int
    rack_id: str | None
    topics: Sequence[str] | None
    client_id: str
    client_host: str


class ShareGroup:
    """A share group. Owner: the cluster's ``HostedShareGroups``."""

    type = protocol_type = "share"

    def __init__(self, group_id: str, epoch: int = 0) -> None:
        self.group_id = group_id
        self.epoch: int = epoch
        self.assignment_epoch: int = epoch
        self.members: dict[str, ShareMember] = {}
        self.states: dict[TopicIdPartition, ShareState] = {}
        self.end_offset = 0
        """The end of the log after this epoch of the group was written."""
        self.before: ShareGroup | None = None
        """The group before this epoch, until the replicas have this epoch and the next one is written."""
        self._partition_counts: dict[bytes, int] = {}

    def __repr__(self) -> str:
        return f"<ShareGroup {self.group_id!r} {self.state.name} epoch={self.epoch} members={len(self.members)}>"

    def copy(self) -> ShareGroup:
        """Return a copy with members of its own. The states of share partitions belong to both groups."""
        copied = copy(self)
        copied.members = {member_id: replace(member) for member_id, member in self.members.items()}
        copied.states = dict(self.states)
        return copied

    @property
    def state(self) -> ShareGroupState:
        return ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY

    def heartbeat(self, request: ShareHeartbeat, topics: Mapping[str, Topic], max_size: int) -> ShareMember:
        """Add or refresh a member. Raises GroupRefusal."""
        member = self.members.get(request.member_id)
        if request.epoch == JOIN_EPOCH:
            # A member that is here already joins again after an error, or because the answer to its join was lost.
            member = member or self._add(request, max_size)
        else:
            member = self.require(request.member_id)
            check_epoch(self.type, request.epoch, member.epoch, member.previous_epoch, lists_only=True)
        has_changed = member.epoch == 0  # only a member that was added just now has no epoch yet
        if request.rack_id is not None:
            member.rack_id = request.rack_id
        if request.topics is not None and sorted(request.topics) != sorted(member.topics):
            member.topics = list(request.topics)
            has_changed = True
        self._assign(topics, has_changed=has_changed)
        member.is_unsent = member.is_unsent or request.epoch == JOIN_EPOCH or request.topics is not None
        assert member.epoch <= self.assignment_epoch <= self.epoch, "no member is ahead of its group"
        if member.epoch != self.assignment_epoch:
            member.previous_epoch, member.epoch = member.epoch, self.assignment_epoch
        return member

    def _add(self, request: ShareHeartbeat, max_size: int) -> ShareMember:
        check_size(self.type, self.members, max_size)
        member = ShareMember(
            request.member_id, request.rack_id, request.client_id, request.client_host, list(request.topics or ())
        )
        self.members[member.member_id] = member
        return member

    def require(self, member_id: str) -> ShareMember:
        """Return the member of this id. Raises GroupRefusal."""
        if member_id not in self.members:
            raise unknown_member(self.group_id, member_id)
        return self.members[member_id]

    def remove(self, member_id: str, topics: Mapping[str, Topic]) -> None:
        """Remove a member. The other members get its partitions with their next heartbeats."""
        del self.members[member_id]
        self._assign(topics, has_changed=True)

    def _assign(self, topics: Mapping[str, Topic], *, has_changed: bool) -> None:
        partition_counts = self._count_partitions(topics)
        if not has_changed and partition_counts == self._partition_counts:
            return
        self._partition_counts = partition_counts
        self.epoch += 1
        for topic_id, count in partition_counts.items():
            for index in range(count):
                self.states.setdefault((topic_id, index), ShareState(state_epoch=self.epoch))
        if not self.members:
            return  # as in Kafka, an empty group keeps its assignment epoch
        self.assignment_epoch = self.epoch
        subscriptions = {
            member.member_id: [topics[name].topic_id for name in member.topics if name in topics]
            for member in self.members.values()
        }
        current = {member.member_id: member.assigned for member in self.members.values()}
        for member_id, assigned in assign(subscriptions, partition_counts, current).items():
            member = self.members[member_id]
            member.is_unsent = member.is_unsent or assigned != member.assigned
            member.assigned = assigned

    def _count_partitions(self, topics: Mapping[str, Topic]) -> dict[bytes, int]:
        """Return the number of partitions of each topic, by id, that members read."""
        read = {name for member in self.members.values() for name in member.topics if name in topics}
        return {topics[name].topic_id: len(topics[name].partitions) for name in read}
