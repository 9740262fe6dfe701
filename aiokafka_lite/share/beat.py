"""The heartbeat that a thread sends for a member of a share group while the event loop is blocked (``group.beats``)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from ..errors import ErrorCode
from ..group.beats import SHORTEST_PATIENCE, may_follow
from ..protocol.messages import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse


@dataclass(frozen=True, slots=True)
class ShareBeat:
    """A heartbeat without topics: it changes no subscription. Its answer may still have an epoch or an assignment."""

    group_id: str
    member_id: str
    epoch: int
    interval: float

    @property
    def patience(self) -> float:
        return max(SHORTEST_PATIENCE, self.interval)

    def request(self) -> ShareGroupHeartbeatRequest:
        return ShareGroupHeartbeatRequest(group_id=self.group_id, member_id=self.member_id, member_epoch=self.epoch)

    def following(self, response: ShareGroupHeartbeatResponse) -> Self | None:
        code = ErrorCode.of(response.error_code)
        if code is ErrorCode.NONE and response.member_epoch > self.epoch:
            return replace(self, epoch=response.member_epoch)
        return self if may_follow(code) else None
