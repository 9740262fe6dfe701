"""The client's half of a fetch session (KIP-227), which lets a request name only the partitions that changed.

Pure: it tracks what the broker remembers and returns what the next request must contain. One session belongs to one
fetcher and one broker. A broker without room for a session answers with session id 0. The answer of a broker that is
too old for sessions lacks the field, which means the same. Then every request is a full request.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from ...arguments import INT32_MAX
from ...errors import NO_ERROR, ErrorCode

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

NO_SESSION = 0
FULL = 0  # the epoch that asks for a new session
FINAL = -1  # the epoch that ends one
EPOCH_MAX = INT32_MAX


@dataclass(slots=True)
class SessionRequest(Generic[K, V]):
    """The content of the next fetch request: all wanted partitions when ``full``, else only the differences.

    It is never changed, but creating a frozen dataclass takes 1 µs more.
    """

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
    another key). ``V`` has the fields of a request for it; a value that differs from the remembered one is sent again.
    ``want`` adds a partition to the session, and ``drop`` removes one. Call ``next`` for each request, then exactly one
    of ``answered`` and ``lost``. The cost of an incremental request depends on the number of changes alone.

    ``FetchSession`` of ``embedded`` is the broker's copy.
    """

    session_id: int = NO_SESSION
    epoch: int = FULL
    wanted: dict[K, V] = field(default_factory=dict)
    """The partitions that the broker should remember, the last changed ones at the end. ``want`` and ``drop`` change
    it."""
    _remembered: dict[K, V] = field(default_factory=dict)
    _changed: dict[K, None] = field(default_factory=dict)
    _in_flight: SessionRequest[K, V] | None = None

    def want(self, key: K, value: V) -> None:
        """Add ``key`` with this value to the broker's session, with the next request."""
        if self.wanted.get(key) != value:
            self.wanted.pop(key, None)  # moves it to the end of the order
            self.wanted[key] = value
            self._changed[key] = None

    def drop(self, key: K) -> None:
        """Remove ``key`` from the broker's session with the next request."""
        if self.wanted.pop(key, None) is not None:
            self._changed[key] = None

    def next(self) -> SessionRequest[K, V]:
        """Begin a request, which makes the broker's session equal to ``wanted``."""
        assert self._in_flight is None, "there is one request at a time"
        if self.epoch == FULL:
            request = SessionRequest(self.session_id, FULL, dict(self.wanted))
        else:
            targets, remembered = self.wanted, self._remembered
            # A partition that was dropped and wanted again with the same value is known to the broker.
            send = {
                key: targets[key] for key in self._changed if key in targets and remembered.get(key) != targets[key]
            }
            forget = tuple(key for key in self._changed if key in remembered and key not in targets)
            request = SessionRequest(self.session_id, self.epoch, send, forget)
        self._changed.clear()
        self._in_flight = request
        return request

    def answered(self, session_id: int, error: ErrorCode = NO_ERROR) -> None:
        """Apply a response. After a session error or an unexpected session id, the next request is a full one."""
        request, self._in_flight = self._in_flight, None
        if error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self._start_over(NO_SESSION)
        elif error is not NO_ERROR:
            # Epoch 0 with the old id makes the broker replace the session. Otherwise the old session would use memory.
            self._start_over(self.session_id)
        elif session_id == NO_SESSION or (self.epoch != FULL and session_id != self.session_id):
            self._start_over(NO_SESSION)
        elif request is not None:
            self.session_id = session_id
            # 0 and -1 have other meanings, so the epoch wraps to 1.
            self.epoch = 1 if self.epoch == EPOCH_MAX else self.epoch + 1
            if request.full:
                self._remembered = request.send
            else:
                self._remembered.update(request.send)
                for key in request.forget:
                    del self._remembered[key]

    def lost(self) -> None:
        """Request a new session in place of this one, because the broker's state is unknown without a response."""
        self._start_over(self.session_id)

    def end(self) -> None:
        """Begin without a session, because the broker was asked to drop it."""
        self._start_over(NO_SESSION)

    def _start_over(self, session_id: int) -> None:
        self.session_id, self.epoch = session_id, FULL
        self._remembered, self._in_flight = {}, None
