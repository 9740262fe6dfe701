"""The states of a member of a group, and the events that move it, in both protocols.

``member.TRANSITIONS`` has the moves of the classic protocol, ``consumer_member.TRANSITIONS`` the moves of the consumer
protocol (KIP-848), which has no SYNCING.
"""

from __future__ import annotations

from enum import Enum


class MemberState(Enum):
    """The state of a member. ``TRANSITIONS`` of its protocol has the moves.

    ``MemberState`` of ``embedded`` is the state that the coordinator records.
    """

    UNJOINED = "Not in the group: owns nothing and sends no heartbeats."
    JOINING = "The request to join is sent or about to be retried. A cooperative member continues to read."
    SYNCING = "The generation is known and the assignment is awaited. The leader makes it first."
    STABLE = "The assigned partitions are read, and heartbeats keep the membership."
    REVOKING = "The reader releases partitions while heartbeats continue. Then the member joins again or acknowledges."
    LEAVING = "Nothing is read. The reader releases all partitions, and the member leaves the group."
    FENCED = "The member was evicted, or may be: its partitions are lost. Once they are released, it joins again."
    FATAL = "The membership is not possible. The user has the error."

    @property
    def sends_heartbeats(self) -> bool:
        """Whether heartbeats are sent. A coordinator that holds a JoinGroup or SyncGroup of the member needs none."""
        return self in (MemberState.STABLE, MemberState.REVOKING)

    @property
    def is_rebalancing(self) -> bool:
        """Whether the generation is about to change, so a refused commit says nothing about the membership."""
        return self in (MemberState.JOINING, MemberState.SYNCING)


class MemberEvent(Enum):
    """An event that moves a member to another state."""

    JOIN = "The member has a reason to join, or to join again, and owns nothing that it must release first."
    JOINED = "The coordinator named the generation, or the member epoch."
    SYNCED = "The assignment has come, and contains everything that the member owned."
    REVOKE = "The member must release partitions before it can join again or acknowledge its assignment."
    RELEASED = "The reader has released the partitions."
    FENCE = "The coordinator does not know the member, is at another generation, or is silent for a whole session."
    LEAVE = "The user closes, subscribes to nothing, or exceeds max_poll_interval."
    LEFT = "The request to leave was answered, or is not needed."
    FAIL = "The coordinator refuses the member, and a retry cannot help."
