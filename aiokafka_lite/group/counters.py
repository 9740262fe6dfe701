"""Counters of the rebalances of a member."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..net.traffic import RequestCounters

if TYPE_CHECKING:
    from ..events import RebalanceBegan, RebalanceEnded
    from .committer import CurrentMember


class RebalanceCounters(RequestCounters):
    """The rebalances of one member. The task of its ``MemberRunner`` counts them.

    A rebalance begins when the member joins, and ends with an assignment. A rebalance that ends without an assignment
    has failed, even if the member begins the next rebalance at once. A retry of a request belongs to the same
    rebalance. ``on_event`` is called when a rebalance begins and when it ends.
    """

    __slots__ = ("_began", "_current", "_on_event", "recent")

    def __init__(
        self, current: CurrentMember, on_event: Callable[[RebalanceBegan | RebalanceEnded], None] | None = None
    ) -> None:
        super().__init__()
        self._current = current
        self._on_event = on_event
        self.recent: deque[float] = deque(maxlen=6)
        """The loop's times at which the last rebalances began."""
        self._began: float | None = None

    def begin(self, now: float) -> None:
        """Begin a rebalance, because the member joins."""
        assert self._began is None, "the last rebalance has ended"
        self._began = now
        self.recent.append(now)
        if self._on_event is not None:
            from ..events import RebalanceBegan

            self._on_event(RebalanceBegan(self._current.member.group_id))

    def end(self, now: float) -> None:
        """End the rebalance with an assignment."""
        if self._began is not None:
            self.succeeded(self._began, now)
            self._ended(now - self._began, succeeded=True)

    def fail(self, now: float) -> None:
        """End the rebalance without an assignment. Does nothing after ``end``."""
        if self._began is not None:
            self.failures += 1
            self._ended(now - self._began, succeeded=False)

    def _ended(self, seconds: float, *, succeeded: bool) -> None:
        self._began = None
        if self._on_event is not None:
            from ..events import RebalanceEnded

            member = self._current.member
            self._on_event(RebalanceEnded(member.group_id, member.generation, succeeded, seconds))
