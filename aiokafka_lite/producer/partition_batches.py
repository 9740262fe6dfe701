"""The batches of one partition of the producer, in their order. ``partition`` decides when they may be sent.

This part of the partition appends records to the open batch, seals it, and keeps the order of the batches. It does not
depend on leaders, requests and sequence numbers.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ..protocol.records import RecordLists
from ..types import TopicPartition
from .batch import BatchFactory, ProducerBatch

if TYPE_CHECKING:
    from ..protocol.records.columns import EncodedRecords

_new_tuple = tuple.__new__

STALE_AFTER = 1.0
"""Seconds after which a batch that is due but cannot be sent takes no more records. Its delivery timeout counts from
its first record, so later records lose at most this part of their own timeout."""


Appended: TypeAlias = tuple[ProducerBatch | None, int, bool]
"""The place of an appended record: ``batch``, ``index``, ``sealed``.

It is a plain tuple, because one is made for each record, and a NamedTuple takes 80 ns more. ``batch`` is None if the
open batch was full and the record may go to another partition (``may_move``). ``index`` is the record's place in the
batch; 0 means that a batch was begun. ``sealed``: the batch before it was sealed, so the partition may have a batch to
send.
"""


class Sealed(NamedTuple):
    """A batch of a partition was sealed, by an append or by a sender. ``size`` is in bytes, uncompressed."""

    topic_partition: TopicPartition
    size: int


class PartitionBatches:
    """The batches of a partition, in order: ``sent`` before ``unsent`` before ``open``.

    ``broker`` is the node that sealed batches count for. All partitions of a producer share ``load``, the queued bytes
    of each node, and ``sealed``, the list of sealed batches. The accumulator empties the list before its next choice of
    a partition. ``now`` returns the loop's time in seconds.
    """

    __slots__ = (
        "_batches",
        "_load",
        "_now",
        "_sealed",
        "broker",
        "open",
        "sent",
        "topic_partition",
        "unsent",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        batches: BatchFactory,
        load: Counter[int],
        sealed: deque[Sealed],
        now: Callable[[], float],
    ) -> None:
        self.topic_partition: TopicPartition = topic_partition
        self.broker: int | None = None
        self.open: ProducerBatch | None = None
        # These are lists, because a producer may have ten thousand idle partitions: an empty deque takes 760 bytes, a
        # list 56.
        self.unsent: list[ProducerBatch] = []
        self.sent: list[ProducerBatch] = []
        self._batches = batches
        self._load = load
        self._sealed = sealed
        self._now = now

    # Hot: runs for each record.
    def append(
        self,
        key: bytes | None,
        value: bytes | None,
        headers: Iterable[tuple[str, bytes | None]],
        timestamp: int,
        size: int,
        sent_at: float | None = None,
        may_move: bool = False,
    ) -> Appended:
        """Add a record to the open batch, or to a new batch if there is no open one or it is full.

        The first arguments are fields of ``PreparedRecord``. ``sent_at`` is the loop's time of the send for a record
        that was pending; None means now. With ``may_move``, a record that does not fit into the open batch is not
        added. A record without a key may change its partition at this point (KIP-480).
        """
        batch = self.open
        if batch is not None:
            builder = batch.builder
            # A batch that is due but cannot be sent still takes records for a moment. Otherwise, during an outage, each
            # record would begin a new batch.
            if (not batch.due or self._is_fresh(batch, sent_at)) and builder.append(timestamp, key, value, headers):
                batch.reserved += size
                return batch, builder.count - 1, False
            self.seal()
            # A record may move only here, between two batches. If it could move in the middle of a batch, there would
            # be many small batches.
            if may_move:
                return None, 0, True
        return self._begin(key, value, headers, timestamp, size, sent_at), 0, batch is not None

    def _begin(
        self,
        key: bytes | None,
        value: bytes | None,
        headers: Iterable[tuple[str, bytes | None]],
        timestamp: int,
        size: int,
        sent_at: float | None,
    ) -> ProducerBatch:
        """Begin a batch with this record. A record that cannot be encoded leaves no batch behind."""
        batch = self._batches.new(self.topic_partition, self._now() if sent_at is None else sent_at)
        batch.builder.append(timestamp, key, value, headers)
        batch.reserved = size
        # The timeout of a pending record counts from its send. Records that are sent later have more time, so they get
        # another batch.
        batch.due = sent_at is not None and not self._is_fresh(batch, None)
        # Set last: for a record that cannot be encoded, the builder raises above, and no empty batch is left behind.
        self.open = batch
        return batch

    def append_lists(
        self, lists: RecordLists, charges: list[int], start: int, stop: int
    ) -> tuple[ProducerBatch | None, int, int]:
        """Add records from ``start`` up to ``stop`` to one batch until it is full. Returns ``batch, index, count``.

        ``index`` is the place of the first added record, ``count`` the number of added records. ``batch`` is None if
        the open batch was full; the batch is sealed then. ``charges`` is as in ``Accumulator.append_lists``.
        """
        batch = self.open
        if batch is None:
            batch = self._batches.new(self.topic_partition, self._now())
        elif batch.due and not self._is_fresh(batch, None):
            self.seal()
            return None, 0, 0
        index = batch.builder.count
        count = batch.builder.append_lists(lists, start, stop)
        if not count:
            self.seal()
            return None, 0, 0
        # ``charges`` are running totals, so the difference is the bytes of the added records.
        batch.reserved += charges[start + count - 1] - (charges[start - 1] if start else 0)
        self.open = batch
        return batch, index, count

    def append_encoded(self, records: EncodedRecords, size: int) -> ProducerBatch:
        """Add a sealed batch of encoded records behind all others. ``size``: their bytes of ``buffer_memory``."""
        # The records of the open batch were accepted earlier, so that batch comes first.
        self.seal()
        batch = self._batches.encoded(self.topic_partition, self._now(), records)
        batch.reserved = size
        # Open for a moment, because ``seal`` also adds the batch to the load of its broker.
        self.open = batch
        self.seal()
        return batch

    def seal(self) -> None:
        """Seal the open batch: it takes no more records, and counts for the load of the present leader."""
        batch, self.open = self.open, None
        if batch is None:
            return
        self.unsent.append(batch)
        self._sealed.append(_new_tuple(Sealed, (self.topic_partition, batch.builder.uncompressed_size)))
        # The batch remembers the broker, because the leader may change before the batch leaves. The load must be taken
        # from the broker that it was added to.
        if self.broker is not None:
            assert batch.queued_for is None, "a batch counts for the load of one broker"
            batch.queued_for, batch.queued_bytes = self.broker, batch.builder.size
            self._load[self.broker] += batch.queued_bytes

    def expedite(self) -> bool:
        """Make the open batch due, so that it waits for no more records. Returns whether there is an open batch."""
        if self.open is None:
            return False
        self.open.due = True
        return True

    def _is_fresh(self, batch: ProducerBatch, sent_at: float | None) -> bool:
        return (self._now() if sent_at is None else sent_at) - batch.opened < STALE_AFTER

    @property
    def batches(self) -> list[ProducerBatch]:
        """All unsettled batches, the oldest first."""
        return [*self.sent, *self.unsent, *([self.open] if self.open is not None else [])]

    @property
    def has_batches(self) -> bool:
        """Whether any batch is unsettled. The topic of a partition without batches may be dropped."""
        return self.open is not None or bool(self.unsent) or bool(self.sent)

    @property
    def next_size(self) -> int:
        """The estimated bytes of the batch that ``take`` would return."""
        batch = self.unsent[0] if self.unsent else self.open
        return 0 if batch is None else batch.builder.size

    def _left(self, batch: ProducerBatch) -> None:
        if batch.queued_for is not None:
            self._load[batch.queued_for] -= batch.queued_bytes
            assert self._load[batch.queued_for] >= 0, "the load of a broker is the bytes of its sealed batches"
            batch.queued_for = None

    def delayed(self, error: Exception) -> None:
        """Record why the unsent batches wait, for the error of a batch that expires."""
        for batch in self.unsent:
            batch.last_error = error
        if self.open is not None:
            self.open.last_error = error
