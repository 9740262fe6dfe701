"""What the callbacks of a group get, for threads without an event loop.

Written by docs/make_blocking.py from the asyncio classes, which have the same calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..consumer.group.claim import Claim as AsyncClaim
from ..consumer.group.rebalance import RebalanceHandle as AsyncRebalanceHandle
from ..consumer.group.session import ConsumerGroupSession as AsyncConsumerGroupSession
from ..group.offsets import Offsets as AsyncOffsets
from ..types import K, V
from .reading import PartitionIteration
from .wrapper import Blocking

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from typing import Self

    from ..consumer.offsets import OffsetAndTimestamp
    from ..group.offsets import CommitResult
    from ..types import GroupMetadata, OffsetAndMetadata, Record, TopicPartition


class Offsets(Blocking):
    """The offsets of one member, or of a consumer that commits for a group without being a member. Owner: the consumer.

    ``on_refused`` is called with errors about the membership, ``on_error`` with every error.
    """

    _inner: AsyncOffsets

    @property
    def auto_commit(self) -> bool:
        """Whether marked offsets are committed on a timer, before partitions are revoked, and on close."""
        value: bool = self._read("auto_commit")
        return value

    @property
    def owned(self) -> Collection[TopicPartition]:
        """The partitions whose offsets can be marked and committed."""
        value: Collection[TopicPartition] = self._read("owned")
        return value

    def mark(self, partition: TopicPartition, offset: int, metadata: str = "", leader_epoch: int | None = None) -> bool:
        """Mark all records before ``offset``. Returns False if the mark is later, or if the partition is not assigned.

        The next ``commit()`` refuses a partition that is not assigned. Raises TypeError or ValueError for a wrong
        argument.
        """
        return self._run(self._inner.mark, partition, offset, metadata, leader_epoch)

    def reset(
        self, partition: TopicPartition, offset: int, metadata: str = "", leader_epoch: int | None = None
    ) -> bool:
        """Set the mark. Unlike ``mark``, it may move back: the records from ``offset`` on will be read again."""
        return self._run(self._inner.reset, partition, offset, metadata, leader_epoch)

    def annotate(self, partition: TopicPartition, offset: int, metadata: str) -> bool:
        """Set the metadata of the mark or commit at ``offset``, to be committed. Returns False if that is another one.

        Without a mark and a commit, ``offset`` is marked. Text of ``finished_offsets`` is left out of the next commits
        if the broker finds it too long: then this returns False.
        """
        return self._run(self._inner.annotate, partition, offset, metadata)

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None, *, timeout: float | None = None
    ) -> CommitResult:
        """Commit these offsets, or all marks, within ``timeout`` seconds (``api_timeout`` by default).

        Retriable errors are retried. A broker's errors are in the result and not raised. A cancelled commit may have
        been applied. Raises TypeError or ValueError for a wrong argument.
        """
        return self._await(self._inner.commit, offsets, timeout=timeout)

    def fetch(
        self, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Fetch the committed offsets, None for a partition that has none. Waits for open transactions to end.

        Retriable errors are retried for ``timeout`` seconds (``api_timeout`` by default), then KafkaTimeout is raised.
        Raises AuthorizationError and other errors that are not retriable at once, TypeError or ValueError for a wrong
        argument.
        """
        return self._await(self._inner.fetch, partitions, timeout=timeout)


class ConsumerGroupSession(Blocking):
    """The time in which this member reads the same partitions.

    Marks and commits belong to the session: after its end they raise IllegalStateError, because another member may own
    the partitions. ``cancelled`` is True, and ``wait_cancelled`` returns, as soon as the session is about to end; the
    handler should then return.
    """

    _inner: AsyncConsumerGroupSession

    @property
    def claims(self) -> Mapping[str, tuple[int, ...]]:
        """The numbers of the claimed partitions, by topic."""
        value: Mapping[str, tuple[int, ...]] = self._read("claims")
        return value

    @property
    def member_id(self) -> str:
        value: str = self._read("member_id")
        return value

    @property
    def generation_id(self) -> int:
        """The generation of the group. It may grow in a session, if a rebalance revokes no partition of this member."""
        value: int = self._read("generation_id")
        return value

    def group_metadata(self) -> GroupMetadata:
        """Return the member's identity, for ``send_offsets`` of a transaction.

        Raises IllegalStateError after the end of the session, and while the member has lost its membership: another
        member may own the partitions. So call it for each transaction. ``send_offsets`` raises CommitFailed if the
        group has rebalanced. If ``consume_claim`` raises CommitFailed or the error of this call, this member or the new
        owner reads the claim again from the last commit.
        """
        return self._run(self._inner.group_metadata)

    @property
    def group_id(self) -> str:
        """The name of the group."""
        value: str = self._read("group_id")
        return value

    @property
    def cancelled(self) -> bool:
        """Whether the session is about to end, or has ended."""
        value: bool = self._read("cancelled")
        return value

    def wait_cancelled(self, *, timeout: float | None = None) -> bool:
        """Wait until the session is about to end. Returns False after ``timeout`` seconds; None is no limit."""
        return self._await(self._inner.wait_cancelled, timeout=timeout)

    @property
    def offsets(self) -> Offsets:
        """The group's offsets of the claimed partitions, to mark, reset and commit them one by one.

        Raises IllegalStateError after the end of the session; so read the property for each call.
        """
        return Offsets(self._read("offsets"))

    def mark(self, record: Record[K, V], metadata: str = "") -> bool:
        """Mark all records up to this one. Returns False if the record was marked before, or is not claimed."""
        return self._run(self._inner.mark, record, metadata)

    @property
    def has_ended(self) -> bool:
        """Whether the session is over, so that nothing can be marked any more."""
        value: bool = self._read("has_ended")
        return value

    def annotate(self, partition: TopicPartition, offset: int, metadata: str) -> bool:
        """Set the metadata of the mark at ``offset``, or of a commit without a later mark, so that it is committed.

        Without a mark and a commit, ``offset`` is marked. Returns False if the last mark is at another offset, and
        after the end of the session.
        """
        return self._run(self._inner.annotate, partition, offset, metadata)

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None, *, timeout: float | None = None
    ) -> CommitResult:
        """Commit these offsets, or all marked offsets, as ``Consumer.commit`` does."""
        return self._await(self._inner.commit, offsets, timeout=timeout)


class Claim(PartitionIteration[K, V]):
    """One partition in one session: an iterator over its records, for the thread that runs ``consume_claim``.

    If a record cannot be read, the iteration raises its error. It raises the error again at a bounded rate, until the
    record can be read or ``seek`` skips it. If the wait for a record is interrupted, no record is lost, even while a
    deserializer waits. The iteration ends with the session.
    """

    _inner: AsyncClaim[K, V]

    @property
    def topic(self) -> str:
        value: str = self._read("topic")
        return value

    @property
    def partition(self) -> int:
        """The number of the partition."""
        value: int = self._read("partition")
        return value

    @property
    def topic_partition(self) -> TopicPartition:
        value: TopicPartition = self._read("topic_partition")
        return value

    @property
    def initial_offset(self) -> int | None:
        """The offset at which reading began in this session; None until it is known."""
        value: int | None = self._read("initial_offset")
        return value

    @property
    def high_watermark(self) -> int | None:
        """The offset after the last replicated record, as of the last fetch; None before the first one."""
        value: int | None = self._read("high_watermark")
        return value

    def raw(self, offset: int) -> Record | None:
        """Return a record with its key and value as bytes, as they are in the log.

        It is for the record that was returned last, and for one that a deserializer has refused just now. None for a
        record that was returned long ago. ``Workers`` uses it to send a failed record on.
        """
        return self._run(self._inner.raw, offset)

    def seek(self, offset: int) -> None:
        """Read from ``offset`` on. The next mark counts even if it is lower than an earlier one.

        Raises IllegalStateError after the end of the session, TypeError or ValueError for a wrong offset.
        """
        self._run(self._inner.seek, offset)

    def __iter__(self) -> Self:
        self._run(self._inner.__aiter__)
        return self

    def __next__(self) -> Record[K, V]:
        return self._next_record()


class RebalanceHandle(Blocking):
    """The calls of a consumer that its listener may make. Reading is not among them: the rebalance is not complete."""

    _inner: AsyncRebalanceHandle

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        """The present assignment: in ``on_assigned`` with the new partitions, in ``on_revoked`` with the revoked."""
        value: tuple[TopicPartition, ...] = self._read("assignment")
        return value

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Read from ``offset`` on instead of the committed offset. Raises the errors of ``Consumer.seek``."""
        self._run(self._inner.seek, partition, offset)

    def pause(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Pause partitions; see ``Consumer.pause``."""
        self._run(self._inner.pause, partitions)

    def resume(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Resume partitions; see ``Consumer.resume``."""
        self._run(self._inner.resume, partitions)

    def position(self, partition: TopicPartition, *, timeout: float | None = None) -> int:
        """Return the offset of the next record; see ``Consumer.position``."""
        return self._await(self._inner.position, partition, timeout=timeout)

    def seek_to_beginning(
        self, partitions: Iterable[TopicPartition] | None = None, *, timeout: float | None = None
    ) -> None:
        """Move to the first offsets; see ``Consumer.seek_to_beginning``."""
        self._await(self._inner.seek_to_beginning, partitions, timeout=timeout)

    def seek_to_end(self, partitions: Iterable[TopicPartition] | None = None, *, timeout: float | None = None) -> None:
        """Move to the end offsets; see ``Consumer.seek_to_end``."""
        self._await(self._inner.seek_to_end, partitions, timeout=timeout)

    def committed(
        self, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the committed offsets; see ``Consumer.committed``."""
        return self._await(self._inner.committed, partitions, timeout=timeout)

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], *, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first offsets at or after these times; see ``Consumer.offsets_for_times``."""
        return self._await(self._inner.offsets_for_times, timestamps, timeout=timeout)

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None, *, timeout: float | None = None
    ) -> CommitResult:
        """Commit like ``Consumer.commit``. In ``on_lost`` every partition is refused."""
        return self._await(self._inner.commit, offsets, timeout=timeout)
