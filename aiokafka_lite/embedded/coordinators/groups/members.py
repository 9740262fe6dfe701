"""The members of one group: their ids, their leader, and the protocols that all of them support. Pure."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ....errors import ErrorCode

NO_GENERATION = -1


class JoiningMember(NamedTuple):
    """The content of a JoinGroup request. Timeouts are in seconds; protocols in the member's order of preference."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout: float
    rebalance_timeout: float
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]


class JoinResult(NamedTuple):
    """The answer to a join. Only the leader's answer has ``members``: (member id, instance id, subscription)."""

    error: ErrorCode
    member_id: str = ""
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    members: tuple[tuple[str, str | None, bytes], ...] = ()
    former_leader: str = ""
    """The former member id of a static leader that came back while the group is stable. It must not assign again
    (KIP-814)."""


class SyncResult(NamedTuple):
    """The answer to a sync."""

    error: ErrorCode
    assignment: bytes = b""
    protocol_type: str | None = None
    protocol: str | None = None


@dataclass(slots=True, eq=False)
class Member:
    """A member of a group. Owner: the group.

    ``joining`` and ``syncing`` are the answers that the member waits for. ``is_new`` is true until the member is part
    of a generation; its session timeout applies from then on. ``session`` is the timer that expires the member.

    ``Member`` of ``group`` is the member as its own client sees it.
    """

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

    def answer_join(self, result: JoinResult) -> None:
        joining, self.joining = self.joining, None
        if joining is not None and not joining.done():
            joining.set_result(result)

    def answer_sync(self, result: SyncResult) -> None:
        syncing, self.syncing = self.syncing, None
        if syncing is not None and not syncing.done():
            syncing.set_result(result)

    def leave(self, error: ErrorCode) -> None:
        """End the session, and answer the waiting requests with ``error``."""
        self.stop_session()
        self.answer_join(JoinResult(error, self.member_id))
        self.answer_sync(SyncResult(error))

    def stop_session(self) -> None:
        if self.session is not None:
            self.session.cancel()
            self.session = None


class Members(dict[str, Member]):
    """The members by id. ``static`` maps instance ids to member ids; ``leader`` is a member id, or None."""

    def __init__(self) -> None:
        super().__init__()
        self.static: dict[str, str] = {}
        self.leader: str | None = None

    def add(self, member: Member) -> None:
        """Add a member. The first one becomes the leader."""
        self[member.member_id] = member
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id

    def remove(self, member: Member, error: ErrorCode) -> None:
        """Remove a member, and answer its waiting requests with ``error``.

        If it was the leader, the oldest other member becomes the leader.
        """
        del self[member.member_id]
        if member.instance_id is not None and self.static.get(member.instance_id) == member.member_id:
            del self.static[member.instance_id]
        if self.leader == member.member_id:
            self.leader = next(iter(self), None)
        member.leave(error)

    def check(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Return NONE if this is a member, and the present owner of its instance id."""
        if instance_id is not None:
            owner = self.static.get(instance_id)
            if owner is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            return ErrorCode.NONE if owner == member_id else ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self else ErrorCode.UNKNOWN_MEMBER_ID

    def joined(self) -> Iterator[Member]:
        """Return the members that wait for the answer to a join."""
        return (member for member in self.values() if member.joining is not None)

    @property
    def rebalance_timeout(self) -> float:
        """The longest rebalance timeout of a member, in seconds."""
        return max((member.rebalance_timeout for member in self.values()), default=0.0)

    def supports_any(self, protocols: tuple[tuple[str, bytes], ...]) -> bool:
        """Return whether one of the protocols is supported by all members."""
        names = {name for name, _ in protocols}
        return bool(names & self._common_protocols(names))

    def elect_protocol(self) -> str | None:
        """Let each member vote for the first of its protocols that all support; a tie goes to the first name."""
        common = self._common_protocols(set())
        votes: dict[str, int] = {}
        for member in self.values():
            vote = next((name for name, _ in member.protocols if name in common), None)
            if vote is not None:
                votes[vote] = votes.get(vote, 0) + 1
        return min(votes, key=lambda name: (-votes[name], name), default=None)

    def _common_protocols(self, without_members: set[str]) -> set[str]:
        supported = [{name for name, _ in member.protocols} for member in self.values()]
        return set.intersection(*supported) if supported else without_members
