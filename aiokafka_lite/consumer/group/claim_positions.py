"""Where the claims of a ``ConsumerGroup`` continue after a session, or after a refused transaction. Pure.

Invariants that once broke:

- After a session, every partition that this member keeps is read from its mark (``return_to_marks``), as another
  member would read it. Records that a claim took and did not mark are read again, and a mark behind a damaged batch
  skips the batch.
- If a session committed offsets in transactions of producers, marks say nothing. Then the committed offsets are looked
  up again for every partition that this member keeps (``move_to_committed``). The same applies to one claim whose
  transaction was refused because of a rebalance, if its session continues.
- A partition that was reset ignores its earlier marks and commits. They belong to a log that no longer exists.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from ...group.offsets import Offsets
from ...types import OffsetAndMetadata, TopicPartition
from ..partition import AssignedPartition
from ..subscription import Subscription
from .claim import ClaimReader


class _Reset(NamedTuple):
    """The last reset of a partition."""

    position: int
    mark: OffsetAndMetadata | None
    """The last mark before the reset."""


class ClaimPositions:
    """Moves partitions between sessions. Owner: the ``GroupCore``."""

    def __init__(self, subscription: Subscription, offsets: Offsets) -> None:
        self._subscription = subscription
        self._offsets = offsets
        self._resets: dict[TopicPartition, _Reset] = {}
        # The positions at the end of the last session, or of a later reset: claims have taken only records before them.
        self._reached: dict[TopicPartition, int] = {}

    def record_reset(self, partition: TopicPartition, position: int) -> None:
        """Record that reading continues at ``position``, because the next offset cannot be read."""
        self._resets[partition] = _Reset(position, self._offsets.last_marked(partition))
        self._reached[partition] = position

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget partitions that leave the assignment."""
        for partition in partitions:
            self._resets.pop(partition, None)
            self._reached.pop(partition, None)

    def move_to_committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata | None]) -> None:
        """Continue at these committed offsets, which were fetched when all transactions with offsets had ended.

        A partition without a committed offset, or with marks behind it, begins where ``return_to_marks`` has set it. A
        partition that was reset begins at its new position, or at an offset that was committed later.
        """

        def move(assigned: AssignedPartition) -> None:
            partition, offset = assigned.partition, assigned.offset
            committed, reset = offsets[partition], self._resets.get(partition)
            if committed is None or offset is None:
                return
            # No claim has read up to a commit behind ``_reached``: it belongs to the log before the reset. An old
            # commit between the new position and ``_reached`` cannot be distinguished from a new one.
            if reset is not None and committed.offset > self._reached.get(partition, offset):
                assigned.seek(reset.position)
            elif reset is not None or committed.offset > offset:
                assigned.seek(committed.offset, committed.leader_epoch)

        self._subscription.change(self._subscription.select(sorted(offsets)), move)

    def return_to_marks(self, readers: Collection[ClaimReader]) -> None:
        """Begin again at the marks of this session, as another member would."""
        begins = {reader.assigned.partition: reader.initial_offset for reader in readers}

        def move(assigned: AssignedPartition) -> None:
            partition, offset = assigned.partition, assigned.offset
            if offset is not None:
                self._reached[partition] = offset
            marked = self._offsets.last_marked(partition)
            begin = begins[partition] if marked is None else marked.offset
            epoch = None if marked is None else marked.leader_epoch
            if begin is None or offset is None:
                return
            reset = self._resets.get(partition)
            if reset is not None and marked is reset.mark and begin > reset.position:
                begin, epoch = reset.position, None  # nothing was marked since
            if begin < offset or (begin > offset and reset is None):
                assigned.seek(begin, epoch)

        self._subscription.change([reader.assigned for reader in readers], move)
