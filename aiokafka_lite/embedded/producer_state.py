"""What a log remembers of each idempotent producer: its epoch and its last five batches (KIP-98, KIP-360).

The window belongs to the log, not to the leader: followers fill it from the batches they copy, so that a retry is still
recognised after the leader has moved.
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
    """A batch that may not be appended: ``code`` says whether its epoch or its sequence is wrong."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class BatchMetadata(NamedTuple):
    """A batch of the window, as much of it as a repeated answer needs.

    That answer gives ``timestamp`` as the time of the append, whatever the topic's kind of timestamps, as Kafka does.
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
    """``count`` further, wrapping from 2147483647 to 0."""
    return (sequence + count) & LAST_SEQUENCE


class ProducerStates:
    """All producers of one log. Owner: the replica's ``Partition``."""

    def __init__(self) -> None:
        self.entries: dict[int, ProducerStateEntry] = {}

    def check(self, producer_id: int, epoch: int, first_sequence: int, count: int) -> BatchMetadata | None:
        """Decide on a batch: None appends it, a BatchMetadata is what it repeats; raises SequenceRejected."""
        entry = self.entries.get(producer_id)
        if entry is None:
            return None  # also after retention forgot the producer: any first sequence is taken
        duplicate = entry.find_duplicate(epoch, first_sequence, add_sequence(first_sequence, count - 1))
        if duplicate is not None:
            return duplicate
        if epoch < entry.epoch:
            raise SequenceRejected(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {producer_id} came with epoch {epoch}, but epoch {entry.epoch} has been seen",
            )
        if epoch > entry.epoch:
            if first_sequence != 0 and entry.epoch != NO_EPOCH:
                raise SequenceRejected(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"producer {producer_id} began epoch {epoch} with sequence {first_sequence} instead of 0",
                )
            return None
        if entry.window:
            expected = add_sequence(entry.window[-1].last_sequence, 1)
            if first_sequence != expected:
                raise SequenceRejected(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"producer {producer_id} sent sequence {first_sequence} where {expected} was due",
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
        """Note a batch that has been appended; ``timestamp`` is the highest of its records."""
        entry = self.entries.get(producer_id)
        if entry is None or entry.epoch != epoch:
            entry = self.entries[producer_id] = ProducerStateEntry(epoch)
        entry.last_timestamp = timestamp
        last_sequence = add_sequence(first_sequence, last_offset - first_offset)
        entry.window.append(BatchMetadata(first_sequence, last_sequence, first_offset, last_offset, timestamp))

    def expire(self, before_ms: int) -> None:
        """Forget producers whose last batch came before ``before_ms``."""
        for producer_id in [key for key, entry in self.entries.items() if entry.last_timestamp < before_ms]:
            del self.entries[producer_id]
