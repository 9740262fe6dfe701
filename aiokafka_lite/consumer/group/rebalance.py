"""The user's view of a rebalance: the listener, and the calls of the consumer that it may make."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from ...types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from ...group.offsets import CommitResult, Offsets
    from ..offsets import OffsetAndTimestamp


class HandledConsumer(Protocol):
    """The calls of ``Consumer`` that a ``RebalanceHandle`` passes on."""

    @property
    def assignment(self) -> tuple[TopicPartition, ...]: ...

    @property
    def offsets(self) -> Offsets: ...

    def seek(self, partition: TopicPartition, offset: int) -> None: ...

    def pause(self, partitions: Iterable[TopicPartition] | None = None) -> None: ...

    def resume(self, partitions: Iterable[TopicPartition] | None = None) -> None: ...

    async def position(self, partition: TopicPartition, *, timeout: float | None = None) -> int: ...

    async def seek_to_beginning(
        self, partitions: Iterable[TopicPartition] | None = None, *, timeout: float | None = None
    ) -> None: ...

    async def seek_to_end(
        self, partitions: Iterable[TopicPartition] | None = None, *, timeout: float | None = None
    ) -> None: ...

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], *, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]: ...


class RebalanceHandle:
    """The calls of a consumer that its listener may make. Reading is not among them: the rebalance is not complete."""

    __slots__ = ("_consumer",)

    def __init__(self, consumer: HandledConsumer) -> None:
        self._consumer = consumer

    def __repr__(self) -> str:
        return f"<RebalanceHandle of {self._consumer}>"

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        """The present assignment: in ``on_assigned`` with the new partitions, in ``on_revoked`` with the revoked."""
        return self._consumer.assignment

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Read from ``offset`` on instead of the committed offset. Raises the errors of ``Consumer.seek``."""
        self._consumer.seek(partition, offset)

    def pause(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Pause partitions; see ``Consumer.pause``."""
        self._consumer.pause(partitions)

    def resume(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Resume partitions; see ``Consumer.resume``."""
        self._consumer.resume(partitions)

    async def position(self, partition: TopicPartition, *, timeout: float | None = None) -> int:
        """Return the offset of the next record; see ``Consumer.position``."""
        return await self._consumer.position(partition, timeout=timeout)

    async def seek_to_beginning(
        self, partitions: Iterable[TopicPartition] | None = None, *, timeout: float | None = None
    ) -> None:
        """Move to the first offsets; see ``Consumer.seek_to_beginning``."""
        await self._consumer.seek_to_beginning(partitions, timeout=timeout)

    async def seek_to_end(
        self, partitions: Iterable[TopicPartition] | None = None, *, timeout: float | None = None
    ) -> None:
        """Move to the end offsets; see ``Consumer.seek_to_end``."""
        await self._consumer.seek_to_end(partitions, timeout=timeout)

    async def committed(
        self, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the committed offsets; see ``Consumer.committed``."""
        return await self._consumer.offsets.fetch(partitions, timeout=timeout)  # also while the consumer closes

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], *, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first offsets at or after these times; see ``Consumer.offsets_for_times``."""
        return await self._consumer.offsets_for_times(timestamps, timeout=timeout)

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None, *, timeout: float | None = None
    ) -> CommitResult:
        """Commit like ``Consumer.commit``. In ``on_lost`` every partition is refused."""
        return await self._consumer.offsets.commit(offsets, timeout=timeout)


_OTHER_NAMES = {
    "on_partitions_assigned": "on_assigned",
    "on_partitions_revoked": "on_revoked",
    "on_partitions_lost": "on_lost",
    "on_assign": "on_assigned",
    "on_revoke": "on_revoked",
    "onPartitionsAssigned": "on_assigned",
    "onPartitionsRevoked": "on_revoked",
    "onPartitionsLost": "on_lost",
}
"""The methods of listeners in other clients, and our names."""


class RebalanceListener:
    """Override the methods that you need. If one raises, the next read, or ``close()``, raises the exception once.

    An exception has no other effect: the rebalance continues, and the partitions are read from their positions.

    The group waits until each call has returned. If a call takes longer than ``rebalance_timeout``, the consumer may
    lose its membership. Partitions that are neither assigned nor revoked are read meanwhile. Each call begins with a
    copy of the context variables of ``start()``.
    """

    def __init_subclass__(cls) -> None:
        """Raise TypeError for a method with the name of another client, because nothing would call it."""
        super().__init_subclass__()
        for name, ours in _OTHER_NAMES.items():
            if name in vars(cls):
                what = f"{cls.__name__}.{name}() would never be called"
                raise TypeError(f"{what}: its name is {ours}(handle, partitions)")

    async def on_assigned(self, handle: RebalanceHandle, partitions: Sequence[TopicPartition]) -> None:
        """Prepare for the new partitions of a rebalance, perhaps none. Reading begins when the call returns."""

    async def on_revoked(self, handle: RebalanceHandle, partitions: Sequence[TopicPartition]) -> None:
        """Finish the work on these partitions, before they go to other members.

        With ``auto_commit``, their marked offsets are committed already. Also called by ``close()``: then ``position``,
        ``committed`` and ``commit`` of the handle work, and the other calls raise IllegalStateError.
        """

    async def on_lost(self, handle: RebalanceHandle, partitions: Sequence[TopicPartition]) -> None:
        """Drop the work on these lost partitions, which other members may already read.

        The call comes at once, even while user code works on a record.
        """
