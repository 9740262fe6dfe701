"""One assigned partition: where the reader is, what was fetched ahead of it, and what stands in its way.

Pure: no I/O and no clock (times are passed in). Everything that can invalidate a request under way — a seek, a reset, a
new assignment — changes ``version``, and an answer to a request of another version is dropped. That one rule is what
keeps a late answer from moving a position that the user has set since.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from enum import Enum

from ..config import ConsumerConfig
from ..errors import KafkaError
from ..protocol.records import RecordBatch
from ..protocol.schema import ZERO_UUID
from ..protocol.state import Transitions, next_state
from ..types import IsolationLevel, TopicPartition
from .fetched import AbortedTransactions, Chunk, corrupt, decode


class Reset(Enum):
    """Where to begin when nothing says where: the policy of the user, or the target of a ``seek_to_...``."""

    EARLIEST = "earliest"
    LATEST = "latest"
    NONE = "none"
    BY_DURATION = "by_duration"

    @classmethod
    def of(cls, config: ConsumerConfig) -> Reset:
        """The policy that the user chose."""
        return cls.BY_DURATION if config.reset_duration is not None else cls(config.auto_offset_reset)


class ResetReason(Enum):
    """Why reading goes on at another offset than the one that was next."""

    OUT_OF_RANGE = "the partition has no such offset"
    TRUNCATED = "the log was cut off below it, and other records may have taken the place of those that were read"
    RECREATED = "the topic was deleted and made anew"


OnOffsetReset = Callable[[TopicPartition, int, int, ResetReason], None]
"""Called with the partition, the offset that was next, the one where reading goes on, and why."""

ANY_LEADER = (-1, -1)
"""As ``PartitionState.checked_with``: the offset has just come from a leader, so whichever it is need not be asked."""


class Hold(Enum):
    """Why an assigned partition is not read although nothing is wrong with it; NOT is false."""

    NOT = ""
    LOCATING = "the group is asked where it left off"
    COMING = "the listener hears of it first"
    GOING = "it is about to be taken away"

    def __bool__(self) -> bool:
        return self is not Hold.NOT


class PositionState(Enum):
    """How well the place to read from is known."""

    UNKNOWN = "No offset: it has to be looked up at the leader, or the user has to seek. Nothing is fetched."
    LOOKING_UP = "The leader was asked for the offset. Nothing is fetched; a seek makes the answer meaningless."
    KNOWN = "There is an offset, and records are fetched from it."


class PositionEvent(Enum):
    """What can happen to the place to read from."""

    SEEK = "The user gave an offset."
    RESET = "The offset is to be decided anew: the user said so, or the broker does not have it."
    ASKED = "The leader was asked for an offset by the policy."
    FOUND = "The leader named the offset."
    NOT_FOUND = "The leader could not be asked, or did not know."


_STATE, _EVENT = PositionState, PositionEvent
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


class PartitionState:
    """What the consumer knows of one assigned partition. Owner: the ``Subscription``, on the event loop's thread."""

    __slots__ = (
        "_chunks",
        "_position",
        "_read_up_to",
        "_unpacked",
        "attempts",
        "batches",
        "buffered",
        "buffered_records",
        "checked_with",
        "chunk",
        "failure",
        "fetch_offset",
        "fetch_size",
        "high_watermark",
        "hold",
        "last_served",
        "last_stable_offset",
        "leader_epoch",
        "log_start_offset",
        "node_id",
        "out_of_range",
        "partition",
        "paused",
        "preferred",
        "preferred_until",
        "reset",
        "reset_reason",
        "retry_at",
        "state",
        "topic_id",
        "trouble",
        "unknown_since",
        "version",
    )

    def __init__(self, partition: TopicPartition, reset: Reset, fetch_size: int) -> None:
        self.partition = partition
        self.state = PositionState.UNKNOWN
        self.version = 0
        self.reset = reset
        """What decides the offset while it is UNKNOWN."""
        self.out_of_range: int | None = None
        """The offset that the broker refused, while the policy decides what follows."""
        self.reset_reason = ResetReason.OUT_OF_RANGE
        self.paused = False
        self.hold = Hold.NOT
        self._position = -1
        self.leader_epoch: int | None = None
        """The epoch of the batch that was delivered or fetched last before ``fetch_offset``."""
        self.checked_with: tuple[int, int] | None = None
        """The leader and its epoch whose log is known to hold what was read; see ``BrokerFetcher``."""
        self.topic_id = ZERO_UUID

        self.batches: deque[tuple[RecordBatch, AbortedTransactions | None]] = deque()
        self.buffered = 0
        """Bytes in ``batches``, which does not have the one that is being read."""
        self.buffered_records = 0
        """Records in ``batches`` by their headers, so an upper bound of what users will see."""
        self.chunk: Chunk | None = None
        self._unpacked: tuple[RecordBatch, AbortedTransactions | None] | None = None  # the batch that is being read
        self._chunks: Iterator[Chunk] | None = None  # those that follow ``chunk`` in the batch that is being read
        self._read_up_to = -1  # where that batch ends
        self.fetch_offset = -1
        """Where the next fetch begins: after everything in ``batches``."""
        self.fetch_size = fetch_size

        self.failure: KafkaError | None = None
        """What the reader must be told when it has read what lies before it."""
        self.trouble: str | None = None
        """What came of the last attempt to find out the offset, while it is not known."""
        self.attempts = 0
        """Failures in a row, which decide how long the next backoff is."""
        self.retry_at = 0.0
        """The loop's time before which this partition is left alone."""
        self.unknown_since: float | None = None
        """Since when metadata has not known the partition."""

        self.node_id: int | None = None
        """The broker that is asked for this partition."""
        self.preferred: int | None = None
        """The follower that the leader sent us to (KIP-392), until the loop's time is ``preferred_until``."""
        self.preferred_until = 0.0
        self.last_served = 0
        """The number of the last answer with data for it: who was served longest ago is asked for first."""
        self.high_watermark: int | None = None
        self.last_stable_offset: int | None = None
        self.log_start_offset: int | None = None

    def __repr__(self) -> str:
        position = self.position
        where = self.state.name if position is None else f"{self.state.name} at {position}"
        paused = " paused" if self.paused else ""
        return f"<PartitionState {self.partition} {where}{paused} buffered={self.buffered}>"

    @property
    def position(self) -> int | None:
        """The offset of the next record to deliver, or None while it is not known."""
        if self.state is not PositionState.KNOWN:
            return None
        return self._position if self.chunk is None else self.chunk.position

    def known_end(self, isolation: IsolationLevel) -> int | None:
        """The end of what may be read, as of the last fetch; None unless the partition is being fetched."""
        if self.state is not PositionState.KNOWN or self.paused or self.hold or self.failure is not None:
            return None
        return self.last_stable_offset if isolation is IsolationLevel.READ_COMMITTED else self.high_watermark

    # ---- where to read from

    def seek(self, offset: int, leader_epoch: int | None = None) -> None:
        """Read from ``offset`` on. What was fetched ahead and requests under way count no longer."""
        self._move(PositionEvent.SEEK)
        self._begin_at(offset, leader_epoch)

    def seek_by(
        self,
        reset: Reset,
        *,
        out_of_range: int | None = None,
        reason: ResetReason = ResetReason.OUT_OF_RANGE,
    ) -> None:
        """Forget the offset; the policy decides the new one. ``out_of_range`` is the offset that cannot be kept."""
        self._move(PositionEvent.RESET)
        self._begin_at(-1, None)
        self.reset = reset
        self.out_of_range, self.reset_reason = out_of_range, reason

    def asked(self) -> int:
        """The offset is being looked up; the version to give to ``found`` or ``not_found``."""
        self.state = next_state(POSITION, self.state, PositionEvent.ASKED)
        return self.version

    def found(self, version: int, offset: int, leader_epoch: int | None) -> bool:
        """The looked-up offset came; False if the user has moved on since."""
        if version != self.version or self.state is not PositionState.LOOKING_UP:
            return False
        self._move(PositionEvent.FOUND)
        self._begin_at(offset, leader_epoch)
        self.checked_with = ANY_LEADER
        return True

    def not_found(self, version: int) -> bool:
        """The lookup failed; False if the user has moved on since."""
        if version != self.version or self.state is not PositionState.LOOKING_UP:
            return False
        self.state = next_state(POSITION, self.state, PositionEvent.NOT_FOUND)
        return True

    def _move(self, event: PositionEvent) -> None:
        self.state = next_state(POSITION, self.state, event)
        self.version += 1

    def _begin_at(self, offset: int, leader_epoch: int | None) -> None:
        self.drop_buffer()
        self._position = self.fetch_offset = offset
        self.leader_epoch = leader_epoch
        self.checked_with = None
        self.out_of_range = self.trouble = None
        self.succeeded()

    # ---- what was fetched

    def drop_buffer(self) -> None:
        """Forget what was fetched and not delivered; the next fetch begins at the position."""
        if self.chunk is not None:
            self._position = self.chunk.position
        self.chunk = self._chunks = self._unpacked = None
        self.batches.clear()
        self.buffered = self.buffered_records = 0
        self.fetch_offset = self._position
        self.failure = None

    def add(self, batches: list[RecordBatch], aborted: AbortedTransactions | None) -> bool:
        """Keep batches for the reader; False if none of them goes beyond what is there already."""
        fresh = False
        for batch in batches:
            if batch.next_offset <= self.fetch_offset:  # a broker may begin before the offset, but not end there
                continue
            fresh = True
            self.batches.append((batch, aborted))
            self.buffered += batch.size
            self.buffered_records += max(batch.count, 1)
            self.fetch_offset = batch.next_offset
            if batch.leader_epoch >= 0:
                self.leader_epoch = batch.leader_epoch
        return fresh

    @property
    def has_data(self) -> bool:
        """Whether something fetched was not delivered yet; what transactions hide counts until it is met."""
        return self._chunks is not None or bool(self.batches)

    @property
    def available(self) -> int:
        """Records that are there, by the headers of their batches: what compaction and transactions hide counts."""
        return self.buffered_records + (0 if self.chunk is None else len(self.chunk))

    @property
    def readable(self) -> bool:
        """Whether the reader has something to do here: records to take, or an error to be told."""
        return not self.paused and not self.hold and (self.has_data or self.failure is not None)

    def next_chunk(self, *, check_crc: bool, max_size: int, begun: bool = False) -> Chunk | None:
        """The records to deliver next, or None if nothing is left. Raises what stands in the way, once.

        ``begun``: only what is left of a batch that is unpacked already. After an error the partition is fetched again
        from its position, which heals what the network broke.
        """
        if self.chunk is not None:
            self.chunk.settle()
            if len(self.chunk):
                return self.chunk
            self._position, self.chunk = self.chunk.next_offset, None
        while self._chunks is not None or (self.batches and not begun):
            if self._chunks is None:
                batch, aborted = self._unpacked = self.batches.popleft()
                self.buffered -= batch.size
                self.buffered_records -= max(batch.count, 1)
                self._chunks = decode(
                    self.partition, batch, aborted, self._position, check_crc=check_crc, max_size=max_size
                )
                self._read_up_to = batch.next_offset
            try:
                self.chunk = next(self._chunks, None)
            except KafkaError:
                self.drop_buffer()
                raise
            if self.chunk is not None:
                self.succeeded()
                return self.chunk
            self._chunks = self._unpacked = None
            self._position = self._read_up_to
        if self.failure is not None and not begun:
            failure = self.failure
            self.drop_buffer()
            raise failure
        return None

    def pack(self) -> None:
        """Keep what is left of an unpacked batch as it came: a partition that is not read may wait for long.

        It is unpacked again when its turn comes. Aborted transactions are none the wiser, as the batch had records.
        """
        if self.chunk is None or self._unpacked is None:
            return
        self.chunk.settle()
        self._position = self.chunk.position
        batch, aborted = self._unpacked
        self.chunk = self._chunks = self._unpacked = None
        if self._position < batch.next_offset:
            self.batches.appendleft((batch, aborted))
            self.buffered += batch.size
            self.buffered_records += max(batch.count, 1)

    def take_batches(self) -> list[tuple[RecordBatch, AbortedTransactions | None]]:
        """Deliver all that was fetched as it came, for a reader that decodes by itself and uses no ``next_chunk``."""
        taken = list(self.batches)
        self.batches.clear()
        self.buffered = self.buffered_records = 0
        self._position = self.fetch_offset
        return taken

    # ---- from which broker

    def prefer(self, node_id: int, until: float) -> None:
        """Fetch from a follower instead of the leader for a while."""
        self.preferred, self.preferred_until = node_id, until

    # ---- what stands in the way

    def fail(self, error: KafkaError) -> None:
        """Tell the reader, once it gets there. Nothing more is fetched until then."""
        self.failure = error

    def fail_corrupt(self, reason: str) -> None:
        """As ``fail``, for bytes after the last batch that make no sense."""
        self.fail(corrupt(self.partition, self.fetch_offset, reason))

    def back_off(self, retry_at: float) -> None:
        """Leave the partition alone until the loop's time is ``retry_at``."""
        self.attempts += 1
        self.retry_at = retry_at

    def succeeded(self) -> None:
        """There were records that could be read, or none: failures in a row are counted anew."""
        self.attempts = 0
        self.retry_at = 0.0
