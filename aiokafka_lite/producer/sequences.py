"""The sequence numbers of one partition of an idempotent producer. Pure: it changes batches and decides nothing else.

Rule 1: batches that were sent with numbers keep them until they are resolved, because the broker may have them. Numbers
are removed only when no request is in flight, and only from batches that the broker certainly does not have. With new
numbers, a batch that the broker may have could be written twice.

Rule 2: a numbered batch that is dropped leaves a gap, and a broker accepts no batch after a gap. When the batches that
were sent before are resolved, the partition continues under a newer epoch (KIP-360).

Rule 3: the first batch under an identity is sent alone (``is_pipelined``). A log without state of the producer accepts
any sequence number, so it could write the second batch and then refuse the first.

An invariant that has been a bug in Kafka clients: a refused sequence number does not always prove that the batch is not
written. Assume that a batch was written, its answer was lost, its retry failed, and the batches behind it were written.
After five of these the broker has forgotten the batch, and refuses it. But the batches behind it prove that it is
written: after a gap the broker would not have accepted them (``ProducerBatch.is_written``).
"""

from __future__ import annotations

from collections.abc import Iterable

from ..types import TopicPartition
from .batch import ProducerBatch
from .producer_ids import MAX_SEQUENCE, NO_SEQUENCE, ProducerIdAndEpoch, ProducerIds, precedes


class Sequences:
    """The identity and the next sequence number of a partition. Owner: the partition.

    ``identity`` is the producer id and epoch of the numbers, None before the first. ``is_pipelined``: the leader
    acknowledged a batch under ``identity``, so several batches may be in flight.

    The private attributes, and why each exists:

     - ``_needs_new_epoch``: a numbered batch was dropped (rule 2). Batches without numbers wait until those with
       numbers are resolved, and continue under a newer epoch.
     - ``_free``: the first sequence number of the first batch that was refused since the partition last began new
       numbers. A transaction continues with this number under the same epoch, because it cannot raise the epoch.
     - ``_renumber``: the first unsettled batch is proven not to be written, so no later one is written either. When
       all requests are answered, all these batches lose their numbers.
    """

    __slots__ = (
        "_free",
        "_ids",
        "_needs_new_epoch",
        "_next",
        "_renumber",
        "_topic_partition",
        "identity",
        "is_pipelined",
    )

    def __init__(self, topic_partition: TopicPartition, ids: ProducerIds) -> None:
        self.identity: ProducerIdAndEpoch | None = None
        self.is_pipelined: bool = False
        self._topic_partition = topic_partition
        self._ids = ids
        self._next = 0
        self._free = NO_SEQUENCE
        self._needs_new_epoch = False
        self._renumber = False

    def number(self, batch: ProducerBatch, *, is_resolved: bool) -> bool:
        """Assign the next numbers to a batch. Returns False if the batch has to wait.

        ``is_resolved``: no batch with older numbers is unsettled, and no request is in flight.
        """
        assert batch.sequence == NO_SEQUENCE, "a batch keeps its sequence numbers until the broker provably lacks it"
        ids = self._ids
        # The coordinator has to add the partition to the transaction first. Then the pipeline offers the partition
        # again.
        if not ids.admits(self._topic_partition):
            return False
        if self._needs_new_epoch or self.identity is None or ids.has_replaced(self.identity):
            if not is_resolved:
                return False
            identity = ids.newer_than(self.identity)
            # The producer id is being requested. The pipeline offers all partitions again when it has one.
            if identity is None:
                return False
            if identity != self.identity:
                self.identity, self._next = identity, 0
            # A transaction has one epoch, and the numbers of a refused batch are free again.
            elif self._free != NO_SEQUENCE:
                self._next = self._free
            # The log does not know the new identity, so its first batch must be alone in flight.
            self._needs_new_epoch = self.is_pipelined = False
            self._free = NO_SEQUENCE
        batch.identity, batch.sequence = self.identity, self._next
        # Kafka's sequence numbers wrap from 2147483647 to 0; a negative number would mean that there is none.
        self._next = (self._next + batch.builder.count) & MAX_SEQUENCE
        return True

    def acknowledged(self, batch: ProducerBatch, sent: Iterable[ProducerBatch]) -> None:
        """Record that the broker has written a batch, one of the ``sent`` batches or an expired one.

        The batches sent before it are written as well: a broker accepts no batch after a gap. A broker that has
        forgotten the producer accepts any sequence number, so batches that were certainly not written are excluded.
        """
        # An expired batch is no longer in ``sent``. The comparison of the numbers still finds the batches before it.
        for earlier in sent:
            if earlier is batch:
                break
            if earlier.identity == batch.identity and precedes(earlier.sequence, batch.sequence):
                earlier.is_written = earlier.may_be_written
        # An acknowledgement under an older identity does not prove that the log knows the present one.
        if not batch.settled and batch.identity == self.identity:
            self.is_pipelined = True

    def refused(self, batch: ProducerBatch, *, is_first: bool) -> None:
        """Record that the broker refused a batch: it and the batches after it are not written."""
        self._needs_new_epoch = True
        # Several batches may be refused. The log continues with the first of their numbers.
        if self._free == NO_SEQUENCE or precedes(batch.sequence, self._free):
            self._free = batch.sequence
        if is_first:
            self.first_not_written()

    def first_not_written(self) -> None:
        """Record that the first unsettled batch is not written, so the numbers of all of them are free."""
        self._renumber = True

    def id_refused(self, batch: ProducerBatch) -> None:
        """Record that the broker refuses the producer id of a batch, or its epoch."""
        self._ids.discard(batch.identity)
        if batch.identity == self.identity:
            self._needs_new_epoch = True

    def dropped(self, batch: ProducerBatch) -> None:
        """Record that a batch is dropped. An unwritten batch with numbers leaves a gap; a written one does not."""
        if batch.sequence != NO_SEQUENCE and not batch.is_written:
            self._needs_new_epoch = True

    def topic_recreated(self) -> None:
        """Start a new epoch for a topic that was deleted and created again: the new log knows no numbers."""
        self._needs_new_epoch = True
        self.is_pipelined = False

    def retire(self) -> None:
        """Let no other partition use the identity. The successor of a dropped partition starts at number 0."""
        if self.identity is not None:
            self._ids.retire(self.identity)

    def remove_unwritten(self, unsent: Iterable[ProducerBatch]) -> None:
        """Remove the numbers of the batches that the broker certainly does not have. All requests are answered.

        These are all batches after a proven gap, and all batches after one without numbers, such as a part of a split
        batch. The broker refuses a batch while an earlier batch is missing.
        """
        lacking = self._renumber
        for batch in unsent:
            lacking = lacking or batch.sequence == NO_SEQUENCE
            if lacking:
                self._needs_new_epoch = self._needs_new_epoch or batch.sequence != NO_SEQUENCE
                batch.unnumber()
        self._renumber = False
