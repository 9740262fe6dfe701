"""``GroupPause``: whether a group reads no records now, although it stays a member, and who wants that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PauseCause:
    """The reason of one owner of a pause. ``is_problem``: the handler cannot do its work meanwhile."""

    text: str
    is_problem: bool


class GroupPause:
    """The pauses of a group: the program's, and that of the circuit breaker of ``Workers``.

    Owner: the ``ConsumerGroup``. The group reads when no owner pauses it. Each watcher is called after a change.
    """

    def __init__(self) -> None:
        self._causes: dict[object, PauseCause] = {}
        self._watchers: dict[Callable[[], None], None] = {}

    @property
    def is_paused(self) -> bool:
        return bool(self._causes)

    @property
    def causes(self) -> tuple[PauseCause, ...]:
        return tuple(self._causes.values())

    @property
    def text(self) -> str:
        """All reasons; an empty text if the group is not paused."""
        return "; ".join(cause.text for cause in self._causes.values())

    def begin(self, owner: object, cause: PauseCause) -> None:
        """Pause for this owner, or replace the reason of its pause."""
        self._causes[owner] = cause
        self._notify()

    def end(self, owner: object) -> None:
        """End the pause of this owner, if it has one."""
        if self._causes.pop(owner, None) is not None:
            self._notify()

    def watch(self, on_change: Callable[[], None]) -> None:
        self._watchers[on_change] = None

    def unwatch(self, on_change: Callable[[], None]) -> None:
        self._watchers.pop(on_change, None)

    def _notify(self) -> None:
        for on_change in list(self._watchers):
            on_change()
