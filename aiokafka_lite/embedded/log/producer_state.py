"""The state of producers in a log: the epoch, the last five batches and the transaction of each (KIP-98, KIP-360).

The state belongs to the log, not to the leader. Followers build it from the batches that they copy. So a new leader
recognizes a retry of a batch that the old leader appended.

Verification (KIP-890): the first transactional batch of a producer is appended only after the coordinator has confirmed
that the partition is in the transaction. ``start_verification`` registers the question. A marker that is appended
before the answer removes the registration, so a late batch of the ended transaction is refused.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import NamedTuple

from ...errors import ErrorCode
from ...protocol.records import RecordBatch
from .transaction_index import TransactionIndex

# An idempotent producer has at most five requests in flight, so a retry is one of its last five batches.
WINDOW = 5
NO_PRODUCER_ID = -1
NO_EPOCH = -1
LAST_SEQUENCE = 2**31 - 1
MAX_EPOCH = 2**15 - 1
COMMIT_TYPE = 1
"""The type in the key of a commit marker; 0 is an abort."""


class SequenceRejected(Exception):
    """The epoch or the sequence of a batch is wrong; ``code`` is the reason. The batch was not appended."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class BatchMetadata(NamedTuple):
    """One of the last batches, with the values for the response to a retry of it.

    As in Kafka, that response has ``timestamp`` as its append time, with any timestamp type of the topic.
    """

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


class Marker(NamedTuple):
    """The end of a producer's transaction in one partition. ``generation`` is the level of ``transaction.version``."""

    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int
    generation: int = 0


class Verification:
    """The question to the coordinator whether a partition is in the transaction of one producer epoch.

    ``lowest_sequence`` is the first sequence of the batches for which the coordinator was asked. ``adds`` is True in
    generation 2, whose transactions begin with sequence 0.
    """

    __slots__ = ("adds", "epoch", "lowest_sequence")

    def __init__(self, epoch: int, lowest_sequence: int, *, adds: bool = False) -> None:
        self.adds: bool = adds
        self.epoch: int = epoch
        self.lowest_sequence: int = lowest_sequence


ONGOING = Verification(NO_EPOCH, 0)
"""The verification of a batch whose transaction already has records here, so that no request is necessary."""


class ProducerStateEntry:
    """The last batches of one producer, of one epoch, and the epoch of the coordinator that wrote its last marker."""

    __slots__ = ("coordinator_epoch", "epoch", "last_timestamp", "window")

    def __init__(self, epoch: int = NO_EPOCH, coordinator_epoch: int = -1) -> None:
        self.epoch: int = epoch
        self.coordinator_epoch: int = coordinator_epoch
        self.last_timestamp: int = -1
        self.window: deque[BatchMetadata] = deque(maxlen=WINDOW)

    def find_duplicate(self, epoch: int, first_sequence: int, last_sequence: int) -> BatchMetadata | None:
        if epoch == self.epoch:
            for batch in self.window:
                if batch.first_sequence == first_sequence and batch.last_sequence == last_sequence:
                    return batch
        return None


def add_sequence(sequence: int, count: int) -> int:
    """Return the sequence ``count`` records later. It wraps from 2147483647 to 0."""
    return (sequence + count) & LAST_SEQUENCE


class ProducerStates:
    """All producers of one log. Owner: the replica's ``Partition``."""

    def __init__(self) -> None:
        self.entries: dict[int, ProducerStateEntry] = {}
        self.transactions: TransactionIndex = TransactionIndex()
        self._verifications: dict[int, Verification] = {}

    # Checks of the leader.

    def check(
        self, batch: RecordBatch, verification: Verification | None, *, from_client: bool
    ) -> BatchMetadata | None:
        """Return the earlier batch that this one repeats; None if it is new. Raises SequenceRejected, in Kafka's order.

        The batches of a coordinator, which are not ``from_client``, have no sequences.
        """
        producer_id, epoch, first_sequence = batch.producer_id, batch.producer_epoch, batch.base_sequence
        if producer_id < 0:
            return None
        if from_client:
            # A retry is recognized before the other checks, because its transaction may have ended since.
            duplicate = self.find_duplicate(producer_id, epoch, first_sequence, batch.count)
            if duplicate is not None:
                return duplicate
        else:
            self.check_epoch(producer_id, epoch)
        self.check_verification(batch, verification)
        if from_client:
            self.check_sequence(producer_id, epoch, first_sequence)
        self.check_transaction(batch)
        return None

    def find_duplicate(self, producer_id: int, epoch: int, first_sequence: int, count: int) -> BatchMetadata | None:
        """Return the earlier batch that this one repeats; None if it is new. Raises SequenceRejected for an old
        epoch."""
        entry = self.entries.get(producer_id)
        if entry is None:
            return None
        duplicate = entry.find_duplicate(epoch, first_sequence, add_sequence(first_sequence, count - 1))
        if duplicate is None:
            self.check_epoch(producer_id, epoch)
        return duplicate

    def check_sequence(self, producer_id: int, epoch: int, first_sequence: int) -> None:
        """Raise SequenceRejected unless a new batch, whose epoch is not older, continues the producer's sequences."""
        self._check_verified_sequence(producer_id, first_sequence)
        entry = self.entries.get(producer_id)
        if entry is None:
            return  # a new or an expired producer may start with any sequence
        if epoch > entry.epoch:
            if first_sequence != 0 and entry.epoch != NO_EPOCH:
                raise SequenceRejected(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"producer {producer_id} must start epoch {epoch} with sequence 0, got {first_sequence}",
                )
            return
        expected = add_sequence(entry.window[-1].last_sequence, 1) if entry.window else 0
        if first_sequence != expected:
            raise SequenceRejected(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer_id} must continue with sequence {expected}, got {first_sequence}",
            )

    def _check_verified_sequence(self, producer_id: int, first_sequence: int) -> None:
        """Raise SequenceRejected if a verification is for an earlier batch, even a refused verification.

        As in Kafka, this concerns batches outside of transactions, too.
        """
        # Batches in flight wait for the coordinator together. Without this check the second could be appended first
        # (KAFKA-14920).
        verification = self._verifications.get(producer_id)
        if verification is None:
            return
        first = 0 if verification.adds and producer_id not in self.entries else verification.lowest_sequence
        if first_sequence > first:
            raise SequenceRejected(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer_id} must begin with sequence {first}, got {first_sequence}",
            )

    def check_epoch(self, producer_id: int, epoch: int) -> None:
        """Raise SequenceRejected for an epoch that is older than the producer's."""
        entry = self.entries.get(producer_id)
        if entry is not None and epoch < entry.epoch:
            raise SequenceRejected(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {producer_id} has epoch {entry.epoch}, got a batch of the older epoch {epoch}",
            )

    def start_verification(self, producer_id: int, epoch: int, first_sequence: int, *, adds: bool) -> Verification:
        """Register a question to the coordinator about a batch. Returns ``ONGOING`` if no question is necessary."""
        if self._is_open(producer_id, epoch):
            return ONGOING
        verification = self._verifications.get(producer_id)
        if verification is None or verification.epoch < epoch:
            adds = adds if verification is None else verification.adds  # as in Kafka, the first question decides
            verification = self._verifications[producer_id] = Verification(epoch, first_sequence, adds=adds)
        if verification.epoch == epoch:
            verification.lowest_sequence = min(verification.lowest_sequence, first_sequence)
        return verification

    def check_verification(self, batch: RecordBatch, verification: Verification | None) -> None:
        """Raise SequenceRejected if a transactional batch is not verified, and its transaction has no records here.

        Without a ``verification`` the broker does not ask the coordinator, as before Kafka 3.6.
        """
        producer_id = batch.producer_id
        if verification is None or not batch.is_transactional or self._is_open(producer_id, batch.producer_epoch):
            return
        if self._verifications.get(producer_id) is not verification:
            raise SequenceRejected(
                ErrorCode.INVALID_TXN_STATE, f"the transaction of producer {producer_id} does not have this partition"
            )

    def check_transaction(self, batch: RecordBatch) -> None:
        """Raise SequenceRejected for a batch outside of the producer's open transaction."""
        if not batch.is_transactional and batch.producer_id in self.transactions.open:
            raise SequenceRejected(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {batch.producer_id} has an open transaction, got a batch outside of it",
            )

    def _is_open(self, producer_id: int, epoch: int) -> bool:
        entry = self.entries.get(producer_id)
        return entry is not None and entry.epoch == epoch and producer_id in self.transactions.open

    def check_marker(self, marker: Marker) -> None:
        """Raise SequenceRejected for a marker of an old coordinator, or of an old epoch."""
        entry = self.entries.get(marker.producer_id)
        if entry is None:
            return
        if marker.coordinator_epoch < entry.coordinator_epoch:
            raise SequenceRejected(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"the coordinator epoch of producer {marker.producer_id} is {entry.coordinator_epoch}, "
                f"got {marker.coordinator_epoch}",
            )
        if marker.generation < 2:
            self.check_epoch(marker.producer_id, marker.producer_epoch)
            return
        # In generation 2 a marker has the next epoch. With an equal epoch, it repeats a marker.
        is_repeated = marker.producer_epoch == entry.epoch and (
            marker.producer_id not in self.transactions.open or marker.producer_epoch == MAX_EPOCH
        )
        if marker.producer_epoch <= entry.epoch and not is_repeated:
            raise SequenceRejected(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"a marker of producer {marker.producer_id} must have an epoch > {entry.epoch}, "
                f"got {marker.producer_epoch}",
            )

    # Appended batches.

    def record(self, batch: RecordBatch, first_offset: int, last_offset: int, timestamp: int) -> None:
        """Record an appended batch of a producer. ``timestamp`` is the highest of its records, in milliseconds."""
        if batch.is_control:
            marker = read_marker(batch)
            if marker is not None:
                self._record_marker(marker, first_offset, timestamp)
            return
        if batch.base_sequence >= 0:
            self.update(
                batch.producer_id, batch.producer_epoch, batch.base_sequence, first_offset, last_offset, timestamp
            )
        else:  # offsets of a transaction, which the coordinator of their group writes without sequences
            self._entry(batch.producer_id, batch.producer_epoch).last_timestamp = timestamp
        if batch.is_transactional:
            self.transactions.begin(batch.producer_id, first_offset)
            # The transaction has records here now, so later batches need no verification.
            self._verifications.pop(batch.producer_id, None)

    def update(
        self,
        producer_id: int,
        epoch: int,
        first_sequence: int,
        first_offset: int,
        last_offset: int,
        timestamp: int,
    ) -> None:
        """Record an appended batch with a sequence."""
        entry = self._entry(producer_id, epoch)
        entry.last_timestamp = timestamp
        last_sequence = add_sequence(first_sequence, last_offset - first_offset)
        entry.window.append(BatchMetadata(first_sequence, last_sequence, first_offset, last_offset, timestamp))

    def _record_marker(self, marker: Marker, offset: int, timestamp: int) -> None:
        # In generation 2 the marker has the next epoch: a new entry begins, and late batches of the transaction are
        # fenced.
        entry = self._entry(marker.producer_id, marker.producer_epoch)
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp = timestamp
        self.transactions.end(marker.producer_id, offset, committed=marker.committed)
        verification = self._verifications.get(marker.producer_id)
        # In generation 2 a transaction's marker has a newer epoch. With an equal epoch, it is of the one before.
        if verification is not None and (not verification.adds or marker.producer_epoch > verification.epoch):
            del self._verifications[marker.producer_id]

    def _entry(self, producer_id: int, epoch: int) -> ProducerStateEntry:
        """Return the entry of a producer, which is a new one without batches in a new epoch."""
        entry = self.entries.get(producer_id)
        if entry is None or entry.epoch != epoch:
            coordinator_epoch = -1 if entry is None else entry.coordinator_epoch
            entry = self.entries[producer_id] = ProducerStateEntry(epoch, coordinator_epoch)
        return entry

    def clear(self) -> None:
        """Drop all state, before it is built again from the log."""
        self.entries.clear()
        self._verifications.clear()
        self.transactions = TransactionIndex()

    def expire(self, before_ms: int) -> None:
        """Drop the producers whose last batch is older than ``before_ms``, except producers in a transaction."""
        for producer_id in [key for key, entry in self.entries.items() if entry.last_timestamp < before_ms]:
            if producer_id not in self.transactions.open:
                del self.entries[producer_id]
                self._verifications.pop(producer_id, None)


_MARKER_KEY = struct.Struct(">hh")
_MARKER_VALUE = struct.Struct(">hi")


def marker_row(marker: Marker) -> tuple[bytes, bytes]:
    """Return the key and the value of a marker."""
    kind = COMMIT_TYPE if marker.committed else 0
    return _MARKER_KEY.pack(0, kind), _MARKER_VALUE.pack(0, marker.coordinator_epoch)


def read_marker(batch: RecordBatch) -> Marker | None:
    """Return the marker in a control batch; None if it is another kind of control batch."""
    columns = batch.columns()
    key, value = columns.keys[0], columns.values[0]
    if key is None or value is None or len(key) < _MARKER_KEY.size or len(value) < _MARKER_VALUE.size:
        return None
    _, kind = _MARKER_KEY.unpack_from(key)
    _, coordinator_epoch = _MARKER_VALUE.unpack_from(value)
    return Marker(batch.producer_id, batch.producer_epoch, kind == COMMIT_TYPE, coordinator_epoch)
