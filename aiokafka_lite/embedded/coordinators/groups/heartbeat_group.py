"""The common parts of consumer groups (KIP-848) and streams groups (KIP-1071): sessions, fencing, checks of epochs.

The members of both send only heartbeats. Share groups (KIP-932) use the checks of epochs and sizes.

Rules of this file:

 1. A heartbeat with another epoch than the member's is fenced. One exception: a member that did not get the last answer
    has the previous epoch, and lists only partitions or tasks that it has.
 2. A member is fenced when its session ends, and when its rebalance timeout ends while it has something to revoke. If
    the log refuses the records of that, the group is restored, and the member gets another session.
 3. A member may also commit with an earlier epoch, for partitions that it has had since then (KIP-1251).
"""

from __future__ import annotations

import asyncio
import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sized
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import ClassVar, Generic, TypeVar

from ....errors import ErrorCode
from ...metadata.topics import PartitionKey
from ...metadata.view import MetadataView

logger = logging.getLogger(__name__)

JOIN, LEAVE = 0, -1
"""The member epochs of a heartbeat that joins or leaves."""


class GroupRefusal(Exception):
    """A request to a group is refused: the error code, and the text for the client, if Kafka sends one."""

    def __init__(self, error: ErrorCode, text: str | None = None) -> None:
        super().__init__(text or error.name)
        self.error = error
        self.text = text


def check_size(kind: str, members: Sized, max_size: int) -> None:
    """Refuse a new member of a full group. ``kind`` is "consumer", "streams" or "share". Raises GroupRefusal."""
    if len(members) >= max_size:
        text = f"The {kind} group has reached its maximum capacity of {max_size} members."
        raise GroupRefusal(ErrorCode.GROUP_MAX_SIZE_REACHED, text)


def check_epoch(kind: str, epoch: int, present: int, previous: int, *, lists_only: bool) -> None:
    """Refuse a heartbeat with another epoch than the member's ``present`` one (rule 1). Raises GroupRefusal.

    ``lists_only`` says whether the heartbeat lists no more than the member has.
    """
    if epoch == present or (epoch < present and epoch == previous and lists_only):
        return
    size = "greater" if epoch > present else "smaller"
    raise GroupRefusal(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The {kind} group member has a {size} member epoch ({epoch}) than the one known by the group coordinator "
        f"({present}). The member must abandon all its partitions and rejoin.",
    )


def unknown_member(group_id: str, member_id: str) -> GroupRefusal:
    return GroupRefusal(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group_id}.")


class HeartbeatGroupState(Enum):
    """The state of a group. It follows from the other values of the group, so there are no transitions."""

    EMPTY = "no members; the group may still have offsets"
    NOT_READY = "topics of the topology of a streams group are missing"
    ASSIGNING = "the assignment is older than the group; a later heartbeat renews it"
    RECONCILING = "members move to their targets"
    STABLE = "all members have their targets"

    @property
    def wire_name(self) -> str:
        """The name in ListGroups, and in ConsumerGroupDescribe or StreamsGroupDescribe."""
        return self.name.title().replace("_", "")


@dataclass(slots=True, eq=False)
class HeartbeatMember(ABC):
    """A member. Owner: its group.

    ``rebalance_timeout`` is in seconds. ``session`` expires the member. ``revocation`` expires it too, if it does not
    revoke in time.
    """

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout: float = -1.0
    epoch: int = JOIN
    previous_epoch: int = JOIN
    session: asyncio.TimerHandle | None = None
    revocation: asyncio.TimerHandle | None = None

    @property
    def is_classic(self) -> bool:
        """Whether the member uses the classic protocol."""
        return False

    @property
    @abstractmethod
    def must_revoke(self) -> bool:
        """Whether the member has to revoke something within its rebalance timeout."""

    @abstractmethod
    def is_reconciled(self, epoch: int) -> bool:
        """Return whether the member has the target of this epoch."""

    def update(self, heartbeat: object, *names: str) -> None:
        """Store the values of these names from a heartbeat. None is an unchanged value."""
        for name in names:
            value = getattr(heartbeat, name)
            if value is not None:
                setattr(self, name, value)

    def stop(self) -> None:
        """Cancel the timers."""
        self.stop_session()
        self.stop_revocation()

    def stop_session(self) -> None:
        if self.session is not None:
            self.session.cancel()
            self.session = None

    def stop_revocation(self) -> None:
        if self.revocation is not None:
            self.revocation.cancel()
            self.revocation = None


@dataclass(frozen=True, slots=True)
class GroupEnvironment:
    """The functions that a group needs from its node. ``setting`` gives a setting of the group as a number.

    ``now`` gives the loop's time, by which durations are measured, and ``now_ms`` the time of day.
    """

    metadata: MetadataView
    setting: Callable[[str], int]
    max_size: int
    call_later: Callable[[float, Callable[[], None]], asyncio.TimerHandle]
    now: Callable[[], float]
    now_ms: Callable[[], int]


M = TypeVar("M", bound=HeartbeatMember)


class HeartbeatGroup(ABC, Generic[M]):
    """A group. Owner: the coordinator of its node. No method awaits, so each one is atomic."""

    type: ClassVar[str]
    """The type of group, and the first word of the names of its settings."""
    protocol_type: ClassVar[str]

    def __init__(self, group_id: str, environment: GroupEnvironment) -> None:
        self.group_id = group_id
        self.epoch: int = 1
        self.assignment_epoch: int = 1
        self.members: dict[str, M] = {}
        self._metadata, self._setting, self._max_size = environment.metadata, environment.setting, environment.max_size
        self._call_later, self._now, self._now_ms = environment.call_later, environment.now, environment.now_ms
        self._assigned_at, self._last_assignment = 0, -math.inf  # by the time of day, for the log, and by ``now``
        self._metadata_hash = 0

    def __repr__(self) -> str:
        members = len(self.members)
        return f"<{type(self).__name__} {self.group_id} {self.state.name} epoch={self.epoch} members={members}>"

    @property
    def state(self) -> HeartbeatGroupState:
        if not self.members:
            return HeartbeatGroupState.EMPTY
        if not self._is_ready:
            return HeartbeatGroupState.NOT_READY
        if self.epoch > self.assignment_epoch:
            return HeartbeatGroupState.ASSIGNING
        if all(member.is_reconciled(self.assignment_epoch) for member in self.members.values()):
            return HeartbeatGroupState.STABLE
        return HeartbeatGroupState.RECONCILING

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def _is_ready(self) -> bool:
        """Whether the group can assign: a streams group needs the topics of its topology."""
        return True

    def _is_within_interval(self) -> bool:
        """Return whether the last assignment is too recent for another one."""
        interval = self._setting(f"{self.type}.assignment.interval.ms") / 1000
        return self._now() < self._last_assignment + interval

    # Sessions.

    def touch(self, member: M) -> None:
        """Restart the session of a member."""
        member.stop_session()
        member.session = self._call_later(self._session_timeout(member), partial(self._expire, member))

    def _session_timeout(self, member: M) -> float:
        """Return the session timeout of a member, in seconds."""
        return self._setting(f"{self.type}.session.timeout.ms") / 1000

    def _restart_revocation(self, member: M) -> None:
        """Restart the rebalance timeout of a member, after a change of what it has to revoke."""
        member.stop_revocation()
        if member.must_revoke:
            self._limit_revocation(member)

    def _limit_revocation(self, member: M) -> None:
        member.revocation = self._call_later(member.rebalance_timeout, partial(self._expire, member))

    def _expire(self, member: M) -> None:
        """Fence a member whose session, or time to revoke, join or sync, has ended."""
        try:
            self._fence(member)
        except GroupRefusal as refusal:
            logger.warning("group %s failed to remove member %s: %s", self.group_id, member.member_id, refusal)

    @abstractmethod
    def _fence(self, member: M) -> None:
        """Remove a member. Its partitions or tasks are free at once. Raises GroupRefusal."""

    def start_sessions(self) -> None:
        """Start the timers of the members that have none, after the group was loaded or converted."""
        # Nobody knows how much of its session a member has used up at the former coordinator, so each gets a whole one.
        for member in self.members.values():
            if member.session is None:
                self.touch(member)
                self._restart_revocation(member)

    def close(self, error: ErrorCode) -> None:
        """End the group on this node. No request waits for this group, so no request gets the ``error``."""
        for member in self.members.values():
            member.stop()

    # Offsets.

    def check_commit(
        self,
        member_id: str,
        instance_id: str | None,
        epoch: int,
        partitions: Iterable[PartitionKey],
        *,
        transactional: bool,
    ) -> ErrorCode:
        """Return NONE if a commit of offsets of these partitions is accepted."""
        # A client outside of the group, while the group is empty; or a producer that names only the group.
        if epoch < 0 and (not self.members or (transactional and not member_id and instance_id is None)):
            return ErrorCode.NONE
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if epoch == member.epoch or (epoch < member.epoch and self._has_had(member, partitions, epoch)):
            return ErrorCode.NONE
        # As in Kafka: TxnOffsetCommit and classic members do not know STALE_MEMBER_EPOCH.
        return ErrorCode.ILLEGAL_GENERATION if transactional or member.is_classic else ErrorCode.STALE_MEMBER_EPOCH

    @abstractmethod
    def _has_had(self, member: M, partitions: Iterable[PartitionKey], epoch: int) -> bool:
        """Return whether the member has had the partitions since ``epoch``, an earlier epoch than its own."""

    def check_fetch(self, member_id: str | None, epoch: int) -> ErrorCode:
        """Return NONE if a client may fetch the committed offsets. A client that is not a member always may."""
        if member_id is None and epoch < 0:
            return ErrorCode.NONE
        member = self.members.get(member_id or "")
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if epoch == member.epoch:
            return ErrorCode.NONE
        return ErrorCode.ILLEGAL_GENERATION if member.is_classic else ErrorCode.STALE_MEMBER_EPOCH
