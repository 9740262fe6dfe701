"""The calls of ``AIOKafkaConsumer`` about positions and offsets."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NoReturn

from ... import consumer as native
from ...arguments import must_be
from ...errors import UnknownTopic
from ...types import OffsetAndMetadata, TopicPartition
from .errors import IllegalOperation, IllegalStateError, KafkaTimeoutError, missing, translating
from .listening import Listening
from .running import RunningConsumer
from .structs import OffsetAndTimestamp


class PositionCalls:
    """The calls of ``AIOKafkaConsumer`` about positions and offsets. The subclass sets these attributes."""

    _group_id: str | None
    _running: RunningConsumer
    _listening: Listening
    _moved: set[TopicPartition]
    """Partitions whose position the program has moved since the last commit."""

    @abstractmethod
    async def _ready(self) -> native.Consumer:
        """Start or replace the consumer as the present subscription or assignment requires, and return it."""

    @property
    def _consumer(self) -> native.Consumer:
        return self._running.now

    @property
    def _calls(self) -> native.Consumer | native.RebalanceHandle:
        """The consumer. In a rebalance listener, an object that has only the calls that a listener may make."""
        return self._handle or self._consumer

    @property
    def _handle(self) -> native.RebalanceHandle | None:
        return self._listening.handle

    def seek(self, partition: TopicPartition, offset: int) -> None:
        if not isinstance(offset, int) or offset < 0:
            # aiokafka's own text, although it accepts 0.
            raise ValueError("Offset must be a positive integer")
        with translating():
            self._calls.seek(partition, offset)
        self._moved.add(TopicPartition(*partition))

    async def seek_to_beginning(self, *partitions: TopicPartition) -> bool:
        return await self._seek(self._calls.seek_to_beginning, partitions)

    async def seek_to_end(self, *partitions: TopicPartition) -> bool:
        return await self._seek(self._calls.seek_to_end, partitions)

    async def _seek(self, seek: Callable[..., Awaitable[None]], partitions: Sequence[TopicPartition]) -> bool:
        self._check_seek(partitions)
        await self._ready()
        with translating():
            await seek(partitions or None)
        self._moved.update(partitions or self._consumer.assignment)
        return True

    async def seek_to_committed(self, *partitions: TopicPartition) -> dict[TopicPartition, int | None]:
        """Continue at the committed offsets, and return them. Without a committed offset, the position stays."""
        self._check_seek(partitions)
        self._require_group()
        offsets = await self._committed(partitions or self._consumer.assignment)
        for partition, committed in offsets.items():
            # The assignment may have changed during the lookup.
            if committed is not None and partition in self._consumer.assignment:
                self.seek(partition, committed.offset)
        return {partition: None if offset is None else offset.offset for partition, offset in offsets.items()}

    async def _committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        await self._ready()
        with translating():
            return await self._calls.committed(partitions)

    def _check_seek(self, partitions: Sequence[TopicPartition]) -> None:
        if not all(isinstance(partition, TopicPartition) for partition in partitions):
            raise TypeError(must_be("partitions", "TopicPartitions", partitions))
        assigned = self._consumer.assignment
        if not partitions and not assigned:
            # aiokafka has an assert statement here.
            raise AssertionError("no partitions are assigned")
        if not set(partitions) <= set(assigned):
            raise IllegalStateError(f"partitions must be assigned, got {partitions}")

    async def position(self, partition: TopicPartition) -> int:
        await self._ready()
        with translating():
            return await self._calls.position(partition)

    def highwater(self, partition: TopicPartition) -> int | None:
        """Return the high watermark in the last fetch: the offset after the last record. None before the first
        fetch."""
        if partition not in self._consumer.assignment:
            raise AssertionError(f"{partition} is not assigned")
        return self._consumer.high_watermark(partition)

    def last_stable_offset(self, partition: TopicPartition) -> int | None:
        """Return the last stable offset in the last fetch: ``read_committed`` reads up to it. None before the first
        fetch.
        """
        if self.highwater(partition) is None:
            return None
        return self._consumer.metrics().partitions[partition].last_stable_offset

    last_poll_timestamp: Callable[..., NoReturn] = missing("last_poll_timestamp() has no counterpart")

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        consumer = await self._ready()
        with translating(), _looking_up():
            return await consumer.beginning_offsets(partitions)

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        consumer = await self._ready()
        with translating(), _looking_up():
            return await consumer.end_offsets(partitions)

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        await self._ready()
        with translating(), _looking_up():
            offsets = await self._calls.offsets_for_times(timestamps)
        return {
            partition: None if offset is None else OffsetAndTimestamp(offset.offset, offset.timestamp)
            for partition, offset in offsets.items()
        }

    def _require_group(self) -> None:
        if self._group_id is None:
            raise IllegalOperation("Requires group_id")


@contextmanager
def _looking_up() -> Iterator[None]:
    """Raise KafkaTimeoutError for a partition that does not exist, as aiokafka does."""
    try:
        yield
    except UnknownTopic as error:
        raise KafkaTimeoutError(str(error)) from error
