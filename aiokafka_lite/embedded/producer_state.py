"""The state of idempotent producers in a log: the epoch and the last five batches of each (KIP-98, KIP-360).

The state belongs to the log, not to the leader: followers build it from the batches that they copy, so a retry is
recognized after another replica became the leader.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from ..errors import ErrorCode

WINDOW = 5
NO_PRODUCER_ID = -1
NO_EPOCH = -1
LAST_SEQUENCE = 2**31 - 1


class SequenceRejected(Exception):
    """The epoch or the sequence of a batch is wrong, as ``code`` says; the batch was not appended."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class BatchMetadata(NamedTuple):
    """One of the last batches, with the values for the response to a retry of it.

    As in Kafka, that response has ``timestamp`` as its append time, whatever the timestamp type of the topic is.
    """

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


class ProducerStateEntry:
    """The last batches of one producer, of one epoch."""

    __slots__ = ("epoch", "last_timestamp", "window")

    def __init__(self, epoch: int = NO_EPOCH) -> None:
        self.epoch = epoch
        self.last_timestamp = -1
        self.window: deque[BatchMetadata] = deque(maxlen=WINDOW)

    def find_duplicate(self, epoch: int, first_sequence: int, last_sequence: int) -> BatchMetadata | None:
        if epoch == self.epoch:
            for batch in self.window:
                if batch.first_sequence == first_sequence and batch.last_sequence == last_sequence:
                    return batch
        return None


def add_sequence(sequence: int, count: int) -> int:
    """The sequence ``count`` records later. It wraps from 2147483647 to 0."""
    return (sequence + count) & LAST_SEQUENCE


class ProducerStates:
    """All producers of one log. Owner: the replica's ``Partition``."""

    def __init__(self) -> None:
        self.entries: dict[int, ProducerStateEntry] = {}

    def check(self, producer_id: int, epoch: int, first_sequence: int, count: int) -> BatchMetadata | None:
        """None if the batch may be appended, or the batch that it repeats. Raises SequenceRejected."""
        entry = self.entries.get(producer_id)
        if entry is None:
            return None  # a new or an expired producer may start with any sequence
        duplicate = entry.find_duplicate(epoch, first_sequence, add_sequence(first_sequence, count - 1))
        if duplicate is not None:
            return duplicate
        if epoch < entry.epoch:
            raise SequenceRejected(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {producer_id} has epoch {entry.epoch}, got a batch of the older epoch {epoch}",
            )
        if epoch > entry.epoch:
            if first_sequence != 0 and entry.epoch != NO_EPOCH:
                raise SequenceRejected(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"producer {producer_id} must start epoch {epoch} with sequence 0, got {first_sequence}",
                )
            return None
        if entry.window:
            expected = add_sequence(entry.window[-1].last_sequence, 1)
            if first_sequence != expected:
                raise SequenceRejected(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"producer {producer_id} must continue with sequence {expected}, got {first_sequence}",
                )
        return None

    def update(
        self,
        producer_id: int,
        epoch: int,
        first_sequence: int,
        first_offset: int,
        last_offset: int,
        timestamp: int,
    ) -> None:
        """Record an appended batch. ``timestamp`` is the highest of its records, in milliseconds."""
        entry = self.entries.get(producer_id)
        if entry is None or entry.epoch != epoch:
            entry = self.entries[producer_id] = ProducerStateEntry(epoch)
        entry.last_timestamp = timestamp
        last_sequence = add_sequence(first_sequence, last_offset - first_offset)
        entry.window.append(BatchMetadata(first_sequence, last_sequence, first_offset, last_offset, timestamp))

    def expire(self, before_ms: int) -> None:
        """Drop the producers whose last batch is older than ``before_ms``."""
        for producer_id in [key for key, entry in self.entries.items() if entry.last_timestamp < before_ms]:
            del self.entries[producer_id]
