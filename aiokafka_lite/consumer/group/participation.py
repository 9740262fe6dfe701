"""How a consumer takes part in a group: as a member (``Membership``), or only with commits (``CommitOnlyGroup``)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from ...group.events import NO_MEMBER, Identity
from ...group.offsets import CommitResult, Offsets
from ...settings.group import GroupConfig
from ...types import GroupMetadata as GroupMetadata
from ...types import K, OffsetAndMetadata, Record, TopicPartition, V
from ..interceptor import ConsumerInterceptors
from ..partition import AssignedPartition
from ..subscription import Subscription
from .poll_tracker import PollTracker

logger = logging.getLogger(__name__)


def begin_offsets(offsets: Offsets, subscription: Subscription, partitions: Sequence[AssignedPartition]) -> None:
    """Call ``Offsets.begin_at`` for the partitions whose first offset depends on the time of its lookup."""
    if subscription.skips_old_records:
        for assigned in partitions:
            if assigned.offset is not None:
                offsets.begin_at(assigned.partition, assigned.offset)


class Participation:
    """The group's offsets, whose ``Marking`` it is, and the tracker of processed records. Owner: the consumer."""

    offsets: Offsets

    def __init__(
        self, config: GroupConfig, subscription: Subscription, interceptors: ConsumerInterceptors | None
    ) -> None:
        self.config = config
        self._interceptors = interceptors
        self.subscription = subscription
        self.tracker: PollTracker = PollTracker(
            subscription, mark=self._mark, refuse=self._refuse, on_poll=self.on_poll
        )
        self.collect_marks: Callable[[], None] = self.tracker.collect_marks
        self.marked: Callable[[TopicPartition, int], None] = self.tracker.marked
        self._warned = False

    def start(self) -> None:
        """Start the tasks. The consumer's client must be connected."""

    async def close(self, leave_group: bool | None) -> None:
        """Commit the marked offsets and, as a member, leave. With None, a member leaves unless it is static."""

    def metadata(self, identity: Identity = NO_MEMBER) -> GroupMetadata:
        """Return the identity for a transaction."""
        return GroupMetadata(
            self.config.group_id, identity.generation, identity.member_id, self.config.group_instance_id
        )

    def on_poll(self) -> None:
        """Record that the user requests records again."""

    def on_assign(self) -> None:
        """Record that the user has changed the assignment."""

    def on_moved(self, partitions: Sequence[TopicPartition]) -> None:
        """Record that the user, or a reset, moves these positions: the next marks count even if they are lower."""
        self.tracker.forget(partitions)
        for partition in partitions:
            self.offsets.may_go_back(partition)

    def on_removed(self, partitions: Sequence[TopicPartition]) -> None:
        """Record that these partitions leave the assignment."""
        self.tracker.take_away(partitions)

    # Marks and commits.

    def mark(self, record: Record[K, V], metadata: str) -> bool:
        """Mark all records up to this one. Returns False if the record was marked before, or cannot be committed."""
        partition = TopicPartition(record.topic, record.partition)
        lost = self.tracker.lost
        # The partition may be assigned again by now, but this record belongs to the earlier assignment.
        if lost and record.offset <= lost.get(partition, -1):
            return self._refuse(partition, record.offset + 1)
        return self.offsets.mark(partition, record.offset + 1, metadata, leader_epoch=record.leader_epoch)

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None, timeout: float
    ) -> CommitResult:
        """Commit these offsets, or all marks."""
        # Read before the commit, because the user may go on to read during the commit.
        in_hand = self.tracker.in_hand
        result = await self.offsets.commit(offsets, timeout=timeout)
        if offsets is None and in_hand and not (result.committed or result.refused or self._warned):
            self._warned = True
            logger.warning(
                "group %s: commit() had nothing to commit: records of %s were returned, and nothing is marked; request "
                "the next records first, or call mark(record), or mark() for all of them",
                self.config.group_id,
                ", ".join(map(str, in_hand)),
            )
        return result

    def committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Record that these offsets are committed."""
        if self._interceptors is not None:
            self._interceptors.on_commit(offsets)

    def _mark(self, partition: TopicPartition, offset: int, *, leader_epoch: int | None) -> None:
        self.offsets.mark(partition, offset, leader_epoch=leader_epoch)

    def _refuse(self, partition: TopicPartition, offset: int) -> bool:
        return self.offsets.refuse(partition, offset)
