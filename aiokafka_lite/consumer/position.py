"""Whether the offset to read from is known, and how a missing offset is found. Pure: no I/O and no clock.

The states and events are in ``POSITION``. Rules of this file:

1. Every change that makes a request in flight meaningless (a seek, a reset, a found offset) increases ``version``. A
   request remembers the version at its start, and an answer with an older version is dropped. Without this rule a late
   answer moves a position that the user has set in the meantime.
2. ``seek`` has priority: a lookup in flight is not cancelled, but its answer no longer counts.
3. If the broker refuses an offset, the reset keeps that offset (``out_of_range``) and the reason until the new offset
   is known. Then the user is notified, with both offsets.

The offset itself is ``Buffer.start``, because delivering a record changes it, and only the buffer delivers records.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from ..settings.consumer import ConsumerConfig
from ..state_machine import Transitions, next_state
from ..types import TopicPartition


class ResetStrategy(Enum):
    """The way to choose the offset when there is none: the user's policy, or the target of a ``seek_to_...`` call."""

    EARLIEST = "earliest"
    LATEST = "latest"
    NONE = "none"
    BY_DURATION = "by_duration"

    @classmethod
    def of(cls, config: ConsumerConfig) -> ResetStrategy:
        """Return the policy of ``auto_offset_reset``."""
        return cls.BY_DURATION if config.reset_duration is not None else cls(config.auto_offset_reset)


class ResetReason(Enum):
    """The reason why reading continues at an offset other than the next one."""

    OUT_OF_RANGE = "the partition has no such offset"
    TRUNCATED = "the log was truncated below this offset, and other records may have replaced those that were read"
    RECREATED = "the topic was deleted and created again"


OnOffsetReset = Callable[[TopicPartition, int, int, ResetReason], None]
"""Called with the partition, the offset that was next, the offset at which reading continues, and the reason."""

ANY_LEADER = (-1, -1)
"""Value of ``Position.validated_leader`` after a leader has named the offset: no leader needs to be asked about it."""


class PauseReason(Enum):
    """The reason why the consumer itself does not read an assigned partition. ``NONE`` is false."""

    NONE = ""
    LOCATING = "the committed offset of the group is being looked up"
    ASSIGNING = "on_assigned() has not returned yet"
    REVOKING = "the partition is about to be revoked"
    CONFIRMING = "the event loop was blocked beyond the session, and the next heartbeat has to confirm the membership"

    def __bool__(self) -> bool:
        return self is not PauseReason.NONE


class PositionState(Enum):
    """Whether the offset to read from is known."""

    UNKNOWN = "There is no offset: it must be looked up at the leader, or the user must seek. Nothing is fetched."
    LOOKING_UP = "A request for the offset is in flight. Nothing is fetched; a seek makes the answer meaningless."
    KNOWN = "There is an offset, and records are fetched from it."


class PositionEvent(Enum):
    """An event that changes the state of a position."""

    SEEK = "The user, or the group's commit, named an offset."
    RESET = "The offset must be chosen again: the user asked for it, or the broker does not have the offset."
    ASKED = "A request for the offset was sent to the leader."
    FOUND = "The leader named the offset."
    NOT_FOUND = "The request failed, or the leader answered with an error."


_STATE, _EVENT = PositionState, PositionEvent
_KNOWN = PositionState.KNOWN

POSITION: Transitions[PositionState, PositionEvent] = {
    _STATE.UNKNOWN: {
        _EVENT.SEEK: _STATE.KNOWN,
        _EVENT.RESET: _STATE.UNKNOWN,
        _EVENT.ASKED: _STATE.LOOKING_UP,
    },
    _STATE.LOOKING_UP: {
        _EVENT.SEEK: _STATE.KNOWN,
        _EVENT.RESET: _STATE.UNKNOWN,
        _EVENT.FOUND: _STATE.KNOWN,
        _EVENT.NOT_FOUND: _STATE.UNKNOWN,
    },
    _STATE.KNOWN: {
        _EVENT.SEEK: _STATE.KNOWN,
        _EVENT.RESET: _STATE.UNKNOWN,
    },
}


class Position:
    """The state of one partition's position. Owner: its ``AssignedPartition``."""

    __slots__ = (
        "lookup_error",
        "out_of_range",
        "reset",
        "reset_reason",
        "state",
        "validated_leader",
        "version",
    )

    def __init__(self, reset: ResetStrategy) -> None:
        self.state: PositionState = PositionState.UNKNOWN
        self.version: int = 0
        self.reset: ResetStrategy = reset
        """The way to choose the offset while it is UNKNOWN."""
        self.reset_reason: ResetReason = ResetReason.OUT_OF_RANGE
        self.out_of_range: int | None = None
        """The offset that the broker refused, until the new one is known."""
        self.lookup_error: str | None = None
        """The reason why the last lookup failed, for the text of a KafkaTimeout; None while the offset is known."""
        self.validated_leader: tuple[int, int] | None = None
        """The leader, and its epoch, whose log is known to contain the records that were read; see ``truncation``."""

    @property
    def is_known(self) -> bool:
        return self.state is _KNOWN

    def seek(self) -> None:
        """Set a known offset. Answers to earlier requests no longer count."""
        self._move(PositionEvent.SEEK)
        self._clear()

    def reset_by(
        self, reset: ResetStrategy, out_of_range: int | None = None, reason: ResetReason = ResetReason.OUT_OF_RANGE
    ) -> None:
        """Choose the offset by ``reset``. ``out_of_range`` is the offset that the broker does not have, if any."""
        self._move(PositionEvent.RESET)
        # Cleared first: ``_clear`` erases the offset that is stored below.
        self._clear()
        self.reset = reset
        self.out_of_range, self.reset_reason = out_of_range, reason

    def begin_lookup(self) -> int:
        """Begin a request for the offset. Returns the version to pass to the two methods below."""
        # ``_move`` is not used: the version stays, because the answer must find the version of its request (rule 1).
        self.state = next_state(POSITION, self.state, PositionEvent.ASKED)
        return self.version

    def end_lookup(self, version: int) -> bool:
        """Record that the leader named the offset. Returns False if the position has changed since the request."""
        # Since this request, the user may have called seek, or another lookup may have begun (rule 2).
        if not self._awaits(version):
            return False
        self._move(PositionEvent.FOUND)
        self._clear()
        self.validated_leader = ANY_LEADER
        return True

    def fail_lookup(self, version: int, error: str | None = None) -> bool:
        """Record that the lookup failed. Returns False if the position has changed since the request."""
        if not self._awaits(version):
            return False
        # The version stays, because the position has not changed, and all other requests are still valid.
        self.state = next_state(POSITION, self.state, PositionEvent.NOT_FOUND)
        self.lookup_error = error
        return True

    def _awaits(self, version: int) -> bool:
        # The version alone is not enough: a lookup that failed leaves it unchanged, and its late answer must not count.
        return version == self.version and self.state is PositionState.LOOKING_UP

    def _move(self, event: PositionEvent) -> None:
        self.state = next_state(POSITION, self.state, event)
        # All requests in flight now belong to the old position.
        self.version += 1

    def _clear(self) -> None:
        self.validated_leader = None
        self.out_of_range = self.lookup_error = None
