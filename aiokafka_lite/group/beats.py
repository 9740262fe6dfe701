"""What the heartbeat thread knows of a member: immutable, so that the event loop and the thread share no state.

A ``Beat`` makes one heartbeat, and the next ``Beat`` from its answer. It must keep the session without any effect on
the member that only the event loop may decide:

 - Classic protocol: a heartbeat changes nothing but the session.
 - Consumer protocol (KIP-848): all optional fields are null. With a null ``topic_partitions`` the coordinator waits for
   each partition that is being revoked, so the heartbeat acknowledges nothing. It may still move the member to the next
   epoch, and its answer may have an assignment, which the coordinator sends once. ``MovedByThread`` tells the member,
   which then asks for the assignment again.
 - The coordinator accepts the previous epoch only with a list of partitions. So a heartbeat of the thread is fenced if
   the unread answer to a heartbeat of the loop has moved the member. The refusal changes nothing at the coordinator,
   and its text names the epoch. With this epoch the thread goes on; the list is still null, so nothing is acknowledged.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

from ..errors import ErrorCode
from ..protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatRequest,
    HeartbeatResponse,
)
from ..protocol.schema import Request
from .events import Identity
from .requests import heartbeat_request

SHORTEST_PATIENCE = 1.5
"""The shortest time without a turn of the loop, in seconds, after which the thread sends a heartbeat. The loop reports
its turns once a second."""

_KNOWN_EPOCH = re.compile(r"known by the group coordinator \((\d{1,9})\)")
"""The member epoch in the text of FENCED_MEMBER_EPOCH. No field of the answer has it."""

LATER_GENERATIONS = 3
"""The number of generations after the known one that the thread tries for a member that is joining."""


class Beat(Protocol):
    """One heartbeat of a member. The values never change."""

    @property
    def interval(self) -> float:
        """The seconds between two heartbeats of the thread."""

    @property
    def patience(self) -> float:
        """The seconds without a turn of the event loop after which the thread sends heartbeats."""

    def request(self) -> Request[Any]: ...

    def following(self, response: Any) -> Beat | None:
        """Return the next heartbeat after this answer; None if only the event loop can send the next one."""


def may_follow(code: ErrorCode) -> bool:
    """Return whether a heartbeat may be sent again after this error code."""
    return code is ErrorCode.NONE or code.retriable or code is ErrorCode.UNKNOWN_SERVER_ERROR


def patience(session: float, interval: float) -> float:
    """Return a third of the session, or less if the session would end before the second attempt after this time."""
    return max(SHORTEST_PATIENCE, min(session / 3, (session - interval) / 2))


@dataclass(frozen=True, slots=True)
class ClassicBeat:
    """The heartbeat of a member of the classic protocol.

    ``is_joining``: the member has sent JoinGroup, and its answer may wait for the event loop. Then the coordinator
    accepts only the new generation, which ``later`` counts from the known one.
    """

    group_id: str
    identity: Identity
    session_timeout: float
    heartbeat_interval: float
    is_joining: bool
    later: int = 0

    @property
    def interval(self) -> float:
        return min(self.heartbeat_interval, self.session_timeout / 3)

    @property
    def patience(self) -> float:
        return patience(self.session_timeout, self.heartbeat_interval)

    def request(self) -> HeartbeatRequest:
        identity = replace(self.identity, generation=self.identity.generation + self.later)
        return heartbeat_request(self.group_id, identity)

    def following(self, response: HeartbeatResponse) -> Self | None:
        code = ErrorCode.of(response.error_code)
        if code is ErrorCode.ILLEGAL_GENERATION and self.is_joining and self.later < LATER_GENERATIONS:
            return replace(self, later=self.later + 1)
        return self if may_follow(code) or code is ErrorCode.REBALANCE_IN_PROGRESS else None


@dataclass(frozen=True, slots=True)
class ConsumerBeat:
    """The heartbeat of a member of the consumer protocol. ``interval`` is the one that the coordinator asks for."""

    group_id: str
    identity: Identity
    interval: float

    @property
    def patience(self) -> float:
        # The member does not know its session timeout, which is three intervals or more.
        return max(SHORTEST_PATIENCE, self.interval)

    def request(self) -> ConsumerGroupHeartbeatRequest:
        return ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.identity.member_id,
            member_epoch=self.identity.generation,
            instance_id=self.identity.instance_id,
        )

    def following(self, response: ConsumerGroupHeartbeatResponse) -> Self | None:
        code = ErrorCode.of(response.error_code)
        epoch = response.member_epoch
        if code is ErrorCode.FENCED_MEMBER_EPOCH:
            match = _KNOWN_EPOCH.search(response.error_message or "")
            epoch = 0 if match is None else int(match[1])
        if code in (ErrorCode.NONE, ErrorCode.FENCED_MEMBER_EPOCH) and epoch > self.identity.generation:
            return replace(self, identity=replace(self.identity, generation=epoch))
        return self if may_follow(code) else None
