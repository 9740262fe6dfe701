"""Fetch sessions (KIP-227): a reader names all its partitions once, and later names only changes.

A request with session id 0 and epoch 0 opens a session. Epoch -1 is a request without a session, and ends the session
that it names. Any other request is incremental: it adds, moves and removes partitions, and its response has only the
partitions with changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

from ...arguments import INT32_MAX
from ...errors import NO_ERROR, ErrorCode
from ...protocol.messages import FetchRequest
from .manager import FetchedPartition, FetchPartition

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
LAST_EPOCH = INT32_MAX
SLOTS = 1000
MOST_PARTITIONS = 200_000
"""The limit on partitions in all sessions of a node, some hundred bytes each. A session keeps the partitions of all its
requests, so without a limit a client could fill the memory."""

UNKNOWN_EPOCH = -1

SlotKey = tuple[str, bytes, int]


class SessionPartition:
    """One partition of a session: the requested offset, and the values that were sent to the reader last."""

    __slots__ = ("high_watermark", "index", "log_start_offset", "name", "requested", "topic_id")

    def __init__(self, name: str, topic_id: bytes, index: int, requested: FetchPartition) -> None:
        self.name: str = name
        self.topic_id: bytes = topic_id
        self.index: int = index
        self.requested: FetchPartition = requested
        self.high_watermark: int = -1
        self.log_start_offset: int = -1

    @property
    def key(self) -> SlotKey:
        return (self.name, self.topic_id, self.index)

    def record(self, fetched: FetchedPartition) -> bool:
        """Record the values that are sent now. Returns whether any of them is new to the reader."""
        news = (
            len(fetched.records) > 0
            or fetched.error is not NO_ERROR
            or fetched.diverging_epoch is not None
            or fetched.preferred_read_replica >= 0
            or fetched.high_watermark != self.high_watermark
            or fetched.log_start_offset != self.log_start_offset
        )
        self.high_watermark = fetched.high_watermark
        self.log_start_offset = fetched.log_start_offset
        if fetched.error is not NO_ERROR:
            self.high_watermark = -1  # so that the next response shows that the error has ended
        return news


class FetchSession:
    """A reader's partitions, or a single request's. Owner: the node's FetchSessions.

    ``FetchSession`` of ``consumer`` is the client's copy.
    """

    def __init__(self, session_id: int = 0, *, error: ErrorCode = NO_ERROR) -> None:
        self.session_id = session_id
        self.error = error
        self.epoch = 1
        self.uses_ids = False
        self.is_incremental = False
        self._slots: dict[SlotKey, SessionPartition] = {}

    @property
    def partitions(self) -> Sequence[SessionPartition]:
        return list(self._slots.values())

    def __len__(self) -> int:
        return len(self._slots)

    def add(self, request: FetchRequest) -> None:
        """Add the partitions of a request, or update their offsets."""
        for topic in request.topics:
            for part in topic.partitions:
                requested = FetchPartition(
                    part.fetch_offset,
                    part.partition_max_bytes,
                    max(part.current_leader_epoch, UNKNOWN_EPOCH),
                    max(part.last_fetched_epoch, UNKNOWN_EPOCH),
                )
                key = (topic.topic, topic.topic_id, part.partition)
                slot = self._slots.get(key)
                if slot is None:
                    self._slots[key] = SessionPartition(*key, requested)
                else:
                    slot.requested = requested

    def forget(self, request: FetchRequest) -> None:
        for topic in request.forgotten_topics_data:
            for index in topic.partitions:
                self._slots.pop((topic.topic, topic.topic_id, index), None)

    def to_send(
        self, fetched: Sequence[tuple[SessionPartition, FetchedPartition]]
    ) -> Iterator[tuple[SessionPartition, FetchedPartition]]:
        """Yield the partitions of a response: all partitions or, in an incremental session, the partitions with
        changes.

        A partition with records moves to the end, so that the others get their turn when a response is full.
        """
        for slot, partition in fetched:
            news = slot.record(partition)
            if news or not self.is_incremental:
                yield slot, partition
            if partition.records and self.session_id and self._slots.get(slot.key) is slot:
                del self._slots[slot.key]
                self._slots[slot.key] = slot


class FetchSessions:
    """The sessions of a node; the least recently used ones make room for others. Owner: the node.

    A session that is too large by itself is not kept. Its first request is answered without a session. A later request
    gets FETCH_SESSION_ID_NOT_FOUND, after which the reader opens a new session. A session ends when it loses its last
    partition.
    """

    def __init__(self, random: Random, slots: int = SLOTS) -> None:
        self._random = random
        self._slots = slots
        self.most_partitions = MOST_PARTITIONS
        self._partitions = 0
        self._sessions: dict[int, FetchSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, request: FetchRequest, version: int) -> FetchSession:
        """Open, continue or end the session of a request, and return it. Its ``error`` fails the whole request."""
        if version < FetchRequest.SESSIONS or request.session_epoch == FINAL_EPOCH:
            self.end(request.session_id)
            return self._begin(request, 0)
        if request.session_epoch == INITIAL_EPOCH:
            self.end(request.session_id)
            session = self._begin(request, self._new_id())
            session.uses_ids = version >= FetchRequest.TOPIC_IDS
            self._keep(session)
            # The session may be too large to be kept. Then the reader must not continue it.
            if session.session_id not in self._sessions:
                session.session_id = 0
            return session
        return self._continue(request, version)

    def _begin(self, request: FetchRequest, session_id: int) -> FetchSession:
        session = FetchSession(session_id)
        session.add(request)
        return session

    def _continue(self, request: FetchRequest, version: int) -> FetchSession:
        session = self._sessions.get(request.session_id)
        if session is None:
            return FetchSession(error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            return FetchSession(error=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_ids != (version >= FetchRequest.TOPIC_IDS):
            return FetchSession(error=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        # Epoch 0 would open another session, so the epoch wraps to 1.
        session.epoch = 1 if session.epoch == LAST_EPOCH else session.epoch + 1
        session.is_incremental = True
        # Removed before it changes and stored again after, because the sum of partitions must match its size.
        self.end(session.session_id)
        session.add(request)
        session.forget(request)
        if not session.partitions:
            return self._begin(request, 0)
        self._keep(session)
        if session.session_id not in self._sessions:
            return FetchSession(error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        return session

    def _keep(self, session: FetchSession) -> None:
        """Store a session as the most recently used one, and end the oldest sessions over the limits."""
        if len(session) > self.most_partitions:
            return
        self._sessions[session.session_id] = session
        self._partitions += len(session)
        while len(self._sessions) > self._slots or self._partitions > self.most_partitions:
            self.end(next(iter(self._sessions)))
        assert self._partitions <= self.most_partitions, "the sessions never exceed the limit together"

    def end(self, session_id: int) -> None:
        """End a session, if there is one with this id."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._partitions -= len(session)
            assert self._partitions >= 0, "a session ends with as many partitions as it was counted with"

    def _new_id(self) -> int:
        # Random and not counted: a reader that returns after a restart of the broker must not find the session of
        # another reader under its old id.
        while True:
            session_id = self._random.randrange(1, LAST_EPOCH)
            if session_id not in self._sessions:
                return session_id

    def clear(self) -> None:
        self._sessions.clear()
        self._partitions = 0
