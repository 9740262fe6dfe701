"""``ConsumerGroupSession``: the handler's view of a session, in which its member reads the same partitions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import anyio

from ...aio.gradual import GradualEvent
from ...arguments import check_timeout
from ...arguments import record as checked_record
from ...errors import REBALANCED, BrokerError, CommitFailed, IllegalStateError
from ...group.member_runner import MemberRunner
from ...group.offsets import CommitResult, Offsets
from ...types import GroupMetadata, K, OffsetAndMetadata, Record, TopicPartition, V
from ..interceptor import ConsumerInterceptors
from .group_pause import GroupPause


class SessionEnded(IllegalStateError):
    """There is no identity for a transaction: the session has ended, or the member has lost its membership."""

    def __init__(self, session: ConsumerGroupSession) -> None:
        self.session = session
        super().__init__(f"{session!r} has ended")

    def __reduce__(self) -> tuple[Any, ...]:
        return IllegalStateError, self.args  # a session cannot be pickled


class ConsumerGroupSession:
    """The time in which this member reads the same partitions.

    Marks and commits belong to the session: after its end they raise IllegalStateError, because another member may own
    the partitions. ``cancelled`` is True, and ``wait_cancelled`` returns, as soon as the session is about to end; the
    handler should then return.
    """

    def __init__(
        self,
        partitions: Collection[TopicPartition],
        runner: MemberRunner,
        cancelled: GradualEvent,
        is_current: Callable[[ConsumerGroupSession], bool],
        group_pause: GroupPause,
        interceptors: ConsumerInterceptors | None,
    ) -> None:
        self.gave_metadata: bool = False
        """Whether the handler has called ``group_metadata()``, so that transactions may commit the offsets."""
        self.group_pause: GroupPause = group_pause
        """Whether the group is paused, for handlers that read ahead, as ``Workers`` does."""
        self.interceptors: ConsumerInterceptors | None = interceptors
        """The interceptors of the group, for handlers that let them observe their work, as ``Workers`` does."""
        self._partitions = partitions
        self._runner = runner
        self._cancelled = cancelled
        self._is_current = is_current

    def __repr__(self) -> str:
        count = len(self._partitions)
        return f"<ConsumerGroupSession {self.member_id} generation={self.generation_id} claims={count}>"

    @property
    def claims(self) -> Mapping[str, tuple[int, ...]]:
        """The numbers of the claimed partitions, by topic."""
        topics: dict[str, tuple[int, ...]] = {}
        for topic, number in sorted(self._partitions):
            topics[topic] = (*topics.get(topic, ()), number)
        return topics

    @property
    def member_id(self) -> str:
        return self._runner.member.member_id

    @property
    def generation_id(self) -> int:
        """The generation of the group. It may grow in a session, if a rebalance revokes no partition of this member."""
        return self._runner.member.generation

    def group_metadata(self) -> GroupMetadata:
        """Return the member's identity, for ``send_offsets`` of a transaction.

        Raises IllegalStateError after the end of the session, and while the member has lost its membership: another
        member may own the partitions. So call it for each transaction. ``send_offsets`` raises CommitFailed if the
        group has rebalanced. If ``consume_claim`` raises CommitFailed or the error of this call, this member or the new
        owner reads the claim again from the last commit.
        """
        self.gave_metadata = True
        self._runner.offsets.leave_to_transactions()
        if not self._is_current(self) or self._runner.member.generation < 0:
            raise SessionEnded(self)
        member = self._runner.member
        return GroupMetadata(member.group_id, member.generation, member.member_id, member.instance_id)

    @property
    def group_id(self) -> str:
        """The name of the group."""
        return self._runner.member.group_id

    def has_outdated(self, error: Exception) -> bool:
        """Return whether an error that a claim raised means that a rebalance has aborted its transaction."""
        if isinstance(error, CommitFailed) and self.gave_metadata:
            refused = error.refused.values()
            return bool(refused) and all(
                isinstance(refusal, BrokerError) and refusal.code in REBALANCED for refusal in refused
            )
        return isinstance(error, SessionEnded) and error.session is self

    @property
    def cancelled(self) -> bool:
        """Whether the session is about to end, or has ended."""
        return self._cancelled.is_set()

    async def wait_cancelled(self, *, timeout: float | None = None) -> bool:
        """Wait until the session is about to end. Returns False after ``timeout`` seconds; None is no limit."""
        check_timeout(timeout)
        with anyio.move_on_after(timeout):
            await self._cancelled.wait()
        return self.cancelled

    @property
    def offsets(self) -> Offsets:
        """The group's offsets of the claimed partitions, to mark, reset and commit them one by one.

        Raises IllegalStateError after the end of the session; so read the property for each call.
        """
        if not self._is_current(self):
            raise IllegalStateError(f"{self!r} has ended")
        return self._runner.offsets

    def mark(self, record: Record[K, V], metadata: str = "") -> bool:
        """Mark all records up to this one. Returns False if the record was marked before, or is not claimed."""
        checked_record(record)
        partition = TopicPartition(record.topic, record.partition)
        return self.offsets.mark(partition, record.offset + 1, metadata, leader_epoch=record.leader_epoch)

    @property
    def has_ended(self) -> bool:
        """Whether the session is over, so that nothing can be marked any more."""
        return not self._is_current(self)

    def annotate(self, partition: TopicPartition, offset: int, metadata: str) -> bool:
        """Set the metadata of the mark at ``offset``, or of a commit without a later mark, so that it is committed.

        Without a mark and a commit, ``offset`` is marked. Returns False if the last mark is at another offset, and
        after the end of the session.
        """
        return self._is_current(self) and self._runner.offsets.annotate(partition, offset, metadata)

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None, *, timeout: float | None = None
    ) -> CommitResult:
        """Commit these offsets, or all marked offsets, as ``Consumer.commit`` does."""
        return await self.offsets.commit(offsets, timeout=timeout)
