"""Fetch sessions (KIP-227): a reader names its partitions once and then only what changes.

A request with session id 0 and epoch 0 opens a session, epoch -1 asks without one (and ends the one it names), and any
other is an increment: partitions added or moved, partitions forgotten. In an incremental answer, a partition that has
nothing new is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

from ..errors import ErrorCode
from ..protocol.messages import FetchRequest
from .replica_manager import FetchedPartition, FetchPartition

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
LAST_EPOCH = 2**31 - 1
SLOTS = 1000
MOST_PARTITIONS = 200_000
"""Partitions that the sessions of a node remember together, some hundred bytes each. Each request may name as many as
fit into it, and a session would remember those of all its requests."""

UNKNOWN_EPOCH = -1
FIRST_VERSION = 7
FIRST_VERSION_WITH_IDS = 13

SlotKey = tuple[str, bytes, int]


class SessionPartition:
    """One partition of a session: what is asked, and what was told last."""

    __slots__ = ("high_watermark", "index", "log_start_offset", "topic", "topic_id", "wanted")

    def __init__(self, topic: str, topic_id: bytes, index: int, wanted: FetchPartition) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.wanted = wanted
        self.high_watermark = -1
        self.log_start_offset = -1

    @property
    def key(self) -> SlotKey:
        return (self.topic, self.topic_id, self.index)

    def tell(self, fetched: FetchedPartition) -> bool:
        """Note what is told now; tell whether any of it is news."""
        news = (
            len(fetched.records) > 0
            or fetched.error is not ErrorCode.NONE
            or fetched.diverging_epoch is not None
            or fetched.preferred_read_replica >= 0
            or fetched.high_watermark != self.high_watermark
            or fetched.log_start_offset != self.log_start_offset
        )
        self.high_watermark = fetched.high_watermark
        self.log_start_offset = fetched.log_start_offset
        if fetched.error is not ErrorCode.NONE:
            self.high_watermark = -1  # so that the end of the error is news as well
        return news


class FetchSession:
    """A reader's partitions, or a single request's. Owner: the node's FetchSessions."""

    def __init__(self, session_id: int = 0, *, error: ErrorCode = ErrorCode.NONE) -> None:
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
        """Take over what a request names."""
        for topic in request.topics:
            for part in topic.partitions:
                wanted = FetchPartition(
                    part.fetch_offset,
                    part.partition_max_bytes,
                    max(part.current_leader_epoch, UNKNOWN_EPOCH),
                    max(part.last_fetched_epoch, UNKNOWN_EPOCH),
                )
                key = (topic.topic, topic.topic_id, part.partition)
                known = self._slots.get(key)
                if known is None:
                    self._slots[key] = SessionPartition(*key, wanted)
                else:
                    known.wanted = wanted

    def forget(self, request: FetchRequest) -> None:
        for topic in request.forgotten_topics_data:
            for index in topic.partitions:
                self._slots.pop((topic.topic, topic.topic_id, index), None)

    def worth_telling(
        self, fetched: Sequence[tuple[SessionPartition, FetchedPartition]]
    ) -> Iterator[tuple[SessionPartition, FetchedPartition]]:
        """All of it, or in an incremental answer what is new.

        A partition that gave records goes to the end of the line, so that others get their turn when room is short.
        """
        for slot, each in fetched:
            news = slot.tell(each)
            if news or not self.is_incremental:
                yield slot, each
            if each.records and self.session_id and self._slots.get(slot.key) is slot:
                del self._slots[slot.key]
                self._slots[slot.key] = slot


class FetchSessions:
    """A node's sessions; the least recently used ones make room for others. Owner: the node.

    One that has no room even so is not kept: its first request is answered as one without a session, a later one with
    FETCH_SESSION_ID_NOT_FOUND, and then the reader begins anew.
    """

    def __init__(self, random: Random, slots: int = SLOTS, most_partitions: int = MOST_PARTITIONS) -> None:
        self._random = random
        self._slots = slots
        self._most_partitions = most_partitions
        self._partitions = 0
        self._sessions: dict[int, FetchSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, request: FetchRequest, version: int) -> FetchSession:
        """The session that a request is about; its ``error`` says what is wrong with it, if anything is."""
        if version < FIRST_VERSION or request.session_epoch == FINAL_EPOCH:
            self._end(request.session_id)
            return self._begin(request, 0)
        if request.session_epoch == INITIAL_EPOCH:
            self._end(request.session_id)
            session = self._begin(request, self._new_id())
            session.uses_ids = version >= FIRST_VERSION_WITH_IDS
            self._keep(session)
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
        if session.uses_ids != (version >= FIRST_VERSION_WITH_IDS):
            return FetchSession(error=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.epoch = 1 if session.epoch == LAST_EPOCH else session.epoch + 1
        session.is_incremental = True
        self._end(session.session_id)
        session.add(request)
        session.forget(request)
        self._keep(session)
        if session.session_id not in self._sessions:
            return FetchSession(error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        return session

    def _keep(self, session: FetchSession) -> None:
        """Put a session behind all others, as the most recently used one, and end those that there is no room for."""
        if len(session) > self._most_partitions:
            return
        self._sessions[session.session_id] = session
        self._partitions += len(session)
        while len(self._sessions) > self._slots or self._partitions > self._most_partitions:
            self._end(next(iter(self._sessions)))

    def _end(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._partitions -= len(session)

    def _new_id(self) -> int:
        while True:
            session_id = self._random.randrange(1, LAST_EPOCH)
            if session_id not in self._sessions:
                return session_id

    def clear(self) -> None:
        self._sessions.clear()
        self._partitions = 0
