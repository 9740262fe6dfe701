"""The client's half of a fetch session (KIP-227), which lets a request name only the partitions that changed.

Pure: it tracks what the broker remembers and returns what the next request must contain. One session belongs to one
fetcher and one broker. A broker without room for a session answers with session id 0, and so do brokers too old for
sessions, whose answers lack the field; then every request stays a full one.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from ..errors import ErrorCode

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

NO_SESSION = 0
FULL = 0  # the epoch that asks for a new session
FINAL = -1  # the epoch that ends one
EPOCH_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class SessionRequest(Generic[K, V]):
    """The content of the next fetch request: all wanted partitions when ``full``, else only the differences."""

    session_id: int
    epoch: int
    send: dict[K, V]
    forget: tuple[K, ...] = ()

    @property
    def full(self) -> bool:
        return self.epoch == FULL


@dataclass(slots=True)
class FetchSession(Generic[K, V]):
    """The client's copy of the fetch session that one broker keeps for it.

    ``K`` identifies a partition as the broker stores it (with its topic id, so a topic that was created again is
    another key). ``V`` is everything that a request says about it; a value that differs from the remembered one is sent
    again. Call ``next`` for each request, then exactly one of ``answered`` and ``lost``.
    """

    session_id: int = NO_SESSION
    epoch: int = FULL
    _known: dict[K, V] = field(default_factory=dict)
    _asked: dict[K, V] = field(default_factory=dict)

    def next(self, wanted: Mapping[K, V]) -> SessionRequest[K, V]:
        """The request after which the broker remembers ``wanted``, in the order of ``wanted``."""
        self._asked = dict(wanted)
        if self.epoch == FULL:
            return SessionRequest(self.session_id, FULL, dict(wanted))
        known = self._known
        send = {key: value for key, value in wanted.items() if known.get(key) != value}
        forget = tuple(key for key in known if key not in wanted)
        return SessionRequest(self.session_id, self.epoch, send, forget)

    def answered(self, session_id: int, error: ErrorCode = ErrorCode.NONE) -> None:
        """A response came. An error of the session, or another id than expected, makes the next request a full one."""
        if error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self._start_over(NO_SESSION)
        elif error is not ErrorCode.NONE:
            self._start_over(self.session_id)
        elif session_id == NO_SESSION or (self.epoch != FULL and session_id != self.session_id):
            self._start_over(NO_SESSION)
        else:
            self.session_id = session_id
            self.epoch = 1 if self.epoch == EPOCH_MAX else self.epoch + 1
            self._known = self._asked

    def lost(self) -> None:
        """No response came, so the broker's memory is unknown: replace the session, by its id if there was one."""
        self._start_over(self.session_id)

    def _start_over(self, session_id: int) -> None:
        self.session_id, self.epoch = session_id, FULL
        self._known = {}
