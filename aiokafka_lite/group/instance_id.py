"""The instance id of a static member of the consumer protocol, while the coordinator refuses it. No I/O.

The rules are those of ``consumer_member``.
"""

from __future__ import annotations

RELEASES = 5
"""The maximum number of times that a member releases its instance id to join again (rule 8)."""

SESSION_MARGIN = 15.0
"""Seconds beyond ``session_timeout`` that a member waits for its instance id (rule 9). The session is a setting of the
brokers, 45 seconds by default as well, and the coordinator checks sessions from time to time."""


class InstanceId:
    """The refusals of a join with an instance id that another member has (rules 8 and 9)."""

    def __init__(self, session_timeout: float) -> None:
        self._wait = session_timeout + SESSION_MARGIN
        self._refused_since: float | None = None  # the loop's time
        self._releases = 0  # how often the id was released since the last join

    def joined(self) -> None:
        """Record that the coordinator has accepted the id."""
        self._refused_since, self._releases = None, 0

    def may_release(self) -> bool:
        """Count a release of the id, which this member itself may have. False after too many (rule 8)."""
        self._releases += 1
        return self._releases <= RELEASES

    def may_pass(self, now: float) -> bool:
        """Return whether the session of a member that holds the id may still end (rule 9)."""
        if self._refused_since is None:
            self._refused_since = now
        return now < self._refused_since + self._wait
