"""The client's half of a share session (KIP-932): one member at one broker. Pure.

A session remembers which partitions the member reads, so a request names only those that changed. Its epoch counts the
requests, ShareFetch and ShareAcknowledge together: 0 opens a session, -1 closes it. So the requests of one session go
out one after the other. The broker releases the acquired records of a session that ends.

A request that opens a session must not carry acknowledgements. There are none, because the broker has released the
records of the earlier session.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple

from ..errors import ErrorCode

OPEN = 0  # the epoch that opens a session
FINAL = -1  # the epoch that closes one
EPOCH_MAX = 2**31 - 1

LOST_BY = (
    ErrorCode.SHARE_SESSION_NOT_FOUND,
    ErrorCode.INVALID_SHARE_SESSION_EPOCH,
    ErrorCode.SHARE_SESSION_LIMIT_REACHED,
)
"""Answers after which the member has no session with the broker."""


class TopicIdPartition(NamedTuple):
    """A partition with the id of its topic: a topic that was created again has another id."""

    topic_id: bytes
    partition: int


class ShareSessionRequest(NamedTuple):
    """What the next ShareFetch says about the session: its epoch, and the partitions to add and to forget."""

    epoch: int
    add: tuple[TopicIdPartition, ...]
    forget: tuple[TopicIdPartition, ...]


@dataclass(slots=True)
class ShareSession:
    """The session of one member with one broker.

    Call ``fetch`` or ``acknowledge`` for each request, then exactly one of ``answered`` and ``lost``.

    ``ShareSession`` of ``embedded`` is the broker's copy.
    """

    epoch: int = OPEN
    _remembered: dict[TopicIdPartition, None] = field(default_factory=dict)

    @property
    def is_open(self) -> bool:
        return self.epoch != OPEN

    def fetch(self, partitions: Collection[TopicIdPartition]) -> ShareSessionRequest:
        """Begin a ShareFetch, which makes the broker's session equal to these partitions."""
        add = tuple(key for key in partitions if key not in self._remembered)
        forget = tuple(key for key in self._remembered if key not in partitions)
        self._remembered = dict.fromkeys(partitions)
        return ShareSessionRequest(self.epoch, add, forget)

    def acknowledge(self) -> int:
        """Begin a ShareAcknowledge. Returns its epoch."""
        return self.epoch

    def answered(self, code: ErrorCode) -> bool:
        """Apply an answer. Returns False if the session is lost."""
        if code in LOST_BY:
            self.lost()
            return False
        # The broker also counts a request that it refuses for another reason.
        self.epoch = 1 if self.epoch == EPOCH_MAX else self.epoch + 1
        return True

    def lost(self) -> None:
        """Drop the session, because no answer came or the broker has dropped it. The next request opens a session."""
        self.epoch = OPEN
        self._remembered = {}
