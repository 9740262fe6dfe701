"""One assigned partition: its position, its buffer, the broker that it is fetched from, and its failures.

Pure: no I/O and no clock; times are passed in. ``Position`` has the state of the offset, and ``Buffer`` the data that
was fetched ahead. The methods here are the steps that must change both together, plus pauses and the retry state.

Each method that changes what is to be fetched adds the partition to ``source.changed``, so that callers cannot forget
it. They call ``Subscription.update_ready`` after a change that may affect ``readable``.

Invariants that once broke:

- A failure is raised once, after the records before it are delivered. Then the partition is fetched again from its
  position, which repairs data that the network damaged.
- ``succeeded`` resets the retry state only when a new batch could be decoded, or when the user seeks. A reader that
  still has old records must not cancel the backoff of a fetch that keeps failing. An offset that a broker names does
  not reset it either, because a broker that refuses each offset would be asked in a busy loop.
- ``preferred`` is a follower that the leader named (KIP-392). An error from it never resets the position: a follower
  may lag behind, so the leader is asked first.
"""

from __future__ import annotations

from collections.abc import Callable

from ..aio.retry import Backoff
from ..errors import KafkaError
from ..protocol.records import RecordBatch
from ..protocol.records.columns import PackedBatch
from ..protocol.schema import ZERO_UUID
from ..types import IsolationLevel, TopicPartition
from .buffer import Buffer, FetchedBatch
from .chunk import AbortedTransactions, Chunk, corrupt
from .position import PauseReason, Position, ResetReason, ResetStrategy

_NOT_PAUSED = PauseReason.NONE


class FetchSource:
    """A broker that partitions are fetched from, and the changes that the plan of its fetcher does not contain yet.

    Owner: the ``FetchPlanner``. The fetcher plans before each request; ``wake`` lets it plan while it waits.
    """

    __slots__ = ("changed", "node_id", "removed", "wake")

    def __init__(self, node_id: int, wake: Callable[[], None]) -> None:
        self.node_id: int = node_id
        self.wake: Callable[[], None] = wake
        self.changed: dict[AssignedPartition, None] = {}
        """The partitions of this broker that are new or have changed."""
        self.removed: dict[AssignedPartition, None] = {}
        """The partitions that were moved to another broker, or are no longer assigned."""


class AssignedPartition:
    """The state of one assigned partition. Owner: the ``Subscription``, on the event loop's thread."""

    __slots__ = (
        "attempts",
        "buffer",
        "failure",
        "has_reader",
        "high_watermark",
        "is_new",
        "last_served",
        "last_stable_offset",
        "partition",
        "pause_reason",
        "paused",
        "position",
        "preferred",
        "preferred_until",
        "retry_at",
        "source",
        "topic_id",
        "unknown_since",
        "was_listed",
    )

    def __init__(self, partition: TopicPartition, reset: ResetStrategy, fetch_size: int) -> None:
        self.partition: TopicPartition = partition
        self.topic_id: bytes = ZERO_UUID
        self.position: Position = Position(reset)
        self.buffer: Buffer = Buffer(partition, fetch_size)
        # Two attributes, because a rebalance must not end the user's pause.
        self.paused: bool = False
        self.pause_reason: PauseReason = PauseReason.NONE
        """The reason for which the consumer itself does not read the partition."""

        self.failure: KafkaError | None = None
        """The error to raise when all records before it are delivered. Nothing is fetched until then."""
        self.attempts: int = 0
        """Failures in a row, which decide the length of the next backoff."""
        self.retry_at: float = 0.0
        """The loop's time before which no request asks for this partition."""
        self.unknown_since: float | None = None
        """The loop's time since which metadata lacks the partition."""
        self.was_listed: bool = False
        """Whether metadata had the partition once, here or at the leader of the group. A broker with outdated metadata
        may omit the partition for a while. A partition that was never listed is more likely a mistake in
        ``assign()``."""

        self.is_new: bool = False
        """Whether the partition was created after the consumer had first known its topic, and is read from its
        beginning for that reason."""

        self.source: FetchSource | None = None
        """The broker that this partition is fetched from; None while no broker is known."""
        self.preferred: int | None = None
        """The follower that the leader named, until the loop's time is ``preferred_until``."""
        self.preferred_until: float = 0.0
        self.last_served: int = 0
        """The number of the last answer with data for this partition. The partition with the smallest number is
        requested first."""

        self.has_reader: bool = False
        """Whether a ``PartitionReader`` returns its records, instead of the reads of the consumer."""

        self.high_watermark: int | None = None
        self.last_stable_offset: int | None = None

    def __repr__(self) -> str:
        offset = self.offset
        where = self.position.state.name if offset is None else f"{self.position.state.name} at {offset}"
        paused = " paused" if self.paused else ""
        return f"<AssignedPartition {self.partition} {where}{paused} buffered={self.buffer.bytes}>"

    @property
    def offset(self) -> int | None:
        """The offset of the next record to deliver; None while it is not known."""
        return self.buffer.offset if self.position.is_known else None

    @property
    def node_id(self) -> int | None:
        """The broker that this partition is fetched from."""
        return None if self.source is None else self.source.node_id

    @property
    def is_paused(self) -> bool:
        """Whether the user or the consumer itself has paused the partition."""
        return self.paused or self.pause_reason is not _NOT_PAUSED

    @property
    def readable(self) -> bool:
        """Whether the reader can use the partition: it has records to deliver, or a failure to raise."""
        return not self.is_paused and (self.buffer.has_data or self.failure is not None)

    @property
    def wants_data(self) -> bool:
        """Whether the partition should be fetched: less than half of a fetch is buffered, and nothing prevents it.

        Fetching again at the half hides the latency of a fetch: the next data arrives while the rest is read.
        """
        return (
            self.position.is_known
            and not self.is_paused
            and self.failure is None
            and 2 * self.buffer.bytes < self.buffer.fetch_size
        )

    def known_end(self, isolation: IsolationLevel) -> int | None:
        """Return the end that ``isolation`` shows, by the last fetch; None unless the partition is fetched now."""
        if not self.position.is_known or self.is_paused or self.failure is not None:
            return None
        return self.last_stable_offset if isolation is IsolationLevel.READ_COMMITTED else self.high_watermark

    # Pauses.

    def pause(self, paused: bool) -> None:
        """Begin or end the user's pause."""
        self.paused = paused
        # A pause may be long, and decoded records take several times the memory of a packed batch.
        if paused:
            self.buffer.pack()
        self._changed()

    def pause_for(self, reason: PauseReason) -> None:
        """Set the reason for which the consumer does not read the partition. NONE clears it."""
        self.pause_reason = reason
        self._changed()

    # Position.

    def seek(self, offset: int, leader_epoch: int | None = None) -> None:
        """Read from ``offset`` on. Drops the buffer and makes requests in flight meaningless."""
        self.move(offset, leader_epoch)
        self.succeeded()

    def move(self, offset: int, leader_epoch: int | None = None) -> None:
        """Move like ``seek`` to an offset that a broker named. The backoff stays."""
        self.position.seek()
        self._restart(offset, leader_epoch)

    def reset_by(
        self, reset: ResetStrategy, *, out_of_range: int | None = None, reason: ResetReason = ResetReason.OUT_OF_RANGE
    ) -> None:
        """Forget the offset; ``reset`` chooses the new one. ``out_of_range`` is the offset that cannot be read."""
        self.position.reset_by(reset, out_of_range, reason)
        # No offset is valid now. Nothing is fetched before ``end_lookup`` or a seek.
        self._restart(-1, None)
        # A reset that the user asks for ends the backoff. A broker that refuses each offset must not end it.
        if out_of_range is None:
            self.succeeded()

    def end_lookup(self, version: int, offset: int, leader_epoch: int | None) -> bool:
        """Apply the offset that the leader named. Returns False if the position has changed since the request."""
        if not self.position.end_lookup(version):
            return False
        self._restart(offset, leader_epoch)
        return True

    def _restart(self, offset: int, leader_epoch: int | None) -> None:
        self.buffer.restart(offset, leader_epoch)
        # A failure belongs to the data before the move.
        self.failure = None
        self._changed()

    # Records.

    def record_ends(self, high_watermark: int, last_stable_offset: int) -> None:
        """Record the ends of the log as an answer names them; -1 if it does not."""
        self.high_watermark = high_watermark if high_watermark >= 0 else None
        self.last_stable_offset = last_stable_offset if last_stable_offset >= 0 else None
        self._changed()

    def add(self, batches: list[RecordBatch], aborted: AbortedTransactions | None) -> bool:
        """Append fetched batches to the buffer. Returns False if none of them reaches beyond its end."""
        self._changed()
        return self.buffer.add(batches, aborted)

    def enlarge_fetches(self, limit: int) -> None:
        """Request twice as many bytes in one fetch, but at most ``limit``."""
        self.buffer.fetch_size = min(2 * self.buffer.fetch_size, limit)
        self._changed()

    def drop_buffer(self) -> None:
        """Drop undelivered records and the failure behind them; the next fetch begins at the position."""
        self.buffer.drop()
        self.failure = None
        self._changed()

    def next_chunk(self, *, check_crc: bool, max_size: int, same_batch: bool = False) -> Chunk | None:
        """Return the records to deliver next, or None. Raises the failure, once, if it comes next.

        ``same_batch``: only the remaining records of an unpacked batch.
        """
        chunk = self.buffer.current_chunk()
        if chunk is not None:
            return chunk
        try:
            chunk = self.buffer.unpack_next(check_crc=check_crc, max_size=max_size, same_batch=same_batch)
        except KafkaError:
            # The data is fetched again from the position: perhaps only the network has damaged it.
            self.drop_buffer()
            raise
        self._changed()
        if chunk is not None:
            self.succeeded()
        # With ``same_batch``, only the rest of a batch was requested. The failure comes behind it, in the next turn.
        elif self.failure is not None and not same_batch:
            failure = self.failure
            self.drop_buffer()
            raise failure
        return chunk

    def next_packed(self, max_records: int, max_bytes: int, *, check_crc: bool, max_size: int) -> list[PackedBatch]:
        """Return the batches to deliver next, in packed form. Raises the failure, once, if it comes next."""
        try:
            batches = self.buffer.next_packed(max_records, max_bytes, check_crc=check_crc, max_size=max_size)
        except KafkaError:
            self.drop_buffer()
            raise
        self._changed()
        if batches:
            self.succeeded()
        elif self.failure is not None and not self.buffer.has_data:
            failure = self.failure
            self.drop_buffer()
            raise failure
        return batches

    def take_batches(self) -> list[FetchedBatch]:
        """Take all fetched batches in packed form, to a reader that decodes them itself."""
        self._changed()
        return self.buffer.take_batches()

    def return_to(self, offset: int) -> None:
        """Fetch again from ``offset`` on, because the batch at this offset could not be decoded."""
        self.buffer.return_to(offset)
        self.failure = None
        self._changed()

    # Failures.

    def fail(self, error: KafkaError) -> None:
        """Raise ``error`` from the read that reaches ``buffer.end``. Nothing more is fetched until then."""
        self.failure = error
        self._changed()

    def fail_corrupt(self, reason: str) -> None:
        """Store a failure like ``fail``, for bytes after the last batch that cannot be decoded."""
        self.fail(corrupt(self.partition, self.buffer.end, reason))

    def back_off(self, retry_at: float) -> None:
        """Send no request for the partition before the loop's time is ``retry_at``."""
        self.attempts += 1
        self.retry_at = retry_at
        self._changed()

    def wait_to_retry(self, now: float, backoff: Backoff) -> None:
        """Back off after a failure. The pause grows with the failures in a row."""
        self.back_off(now + backoff.after(self.attempts))

    def succeeded(self) -> None:
        """End the backoff: an answer was usable."""
        self.attempts = 0
        if self.retry_at:
            self.retry_at = 0.0
            self._changed()

    # The broker to fetch from.

    def prefer(self, node_id: int, until: float) -> None:
        """Fetch from a follower instead of the leader until the loop's time is ``until``."""
        self.preferred, self.preferred_until = node_id, until

    def fetch_from(self, source: FetchSource | None) -> None:
        """Fetch the partition from this broker from now on; None stops fetching it."""
        before = self.source
        if before is not None:
            before.changed.pop(self, None)
            before.removed[self] = None
        self.source = source
        self._changed()

    def wake_source(self) -> None:
        """Wake the fetcher if the buffer has room for more data."""
        if self.source is not None and self.wants_data:
            self.source.wake()

    def _changed(self) -> None:
        """Let the fetcher check the partition again before its next request."""
        source = self.source
        if source is not None:
            source.changed[self] = None
