"""Appends many records of one topic to batches at once: lists of bytes, and encoded records.

``Accumulator.append`` does this for a single record, where each additional call would cost throughput.
"""

from __future__ import annotations

from ...protocol.records import RecordLists
from ...protocol.records.columns import EncodedRecords
from ..accumulator import Accumulator, wrong_partition
from ..batch import ProducerBatch
from ..dispatch import Dispatcher
from ..partition import PartitionProducer
from ..topic import TopicProducer


class BulkAppender:
    """Appends to the batches of the accumulator's topics. A topic must be open (``TopicProducer.is_open``)."""

    def __init__(self, accumulator: Accumulator, dispatcher: Dispatcher) -> None:
        self._accumulator = accumulator
        self._dispatcher = dispatcher

    def append_lists(
        self, topic: TopicProducer, number: int | None, lists: RecordLists, charges: list[int], start: int, stop: int
    ) -> tuple[ProducerBatch, int, int]:
        """Add records from ``start`` up to ``stop`` to one batch. Returns ``batch``, ``index`` of the first, ``count``.

        ``count`` is at least 1, and less than requested if the batch is full. A partition is chosen if ``number`` is
        None. ``charges`` has, for each record, the bytes of ``buffer_memory`` that the records up to it use in total.
        """
        self._accumulator.choice.report_sealed()
        while True:
            partition = self._partition(topic, number)
            batch, index, count = partition.append_lists(lists, charges, start, stop)
            if batch is not None:
                if index == 0:
                    self._accumulator.begun(topic, partition, batch)
                    self._dispatcher.begun(partition, batch)
                return batch, index, count
            self._dispatcher.offer(partition)

    def append_encoded(
        self, topic: TopicProducer, number: int | None, records: EncodedRecords, size: int
    ) -> ProducerBatch:
        """Add encoded records as a batch of their own. A partition is chosen if ``number`` is None.

        ``size`` is the bytes of ``buffer_memory`` that the records use; the caller releases them if this raises.
        """
        self._accumulator.choice.report_sealed()
        partition = self._partition(topic, number)
        batch, _, _ = partition.append_encoded(records, size)
        assert batch is not None
        self._accumulator.begun(topic, partition, batch)
        self._dispatcher.offer(partition)
        return batch

    def _partition(self, topic: TopicProducer, number: int | None) -> PartitionProducer:
        if number is None:
            number = self._accumulator.choice.choose(topic.name, None, None, topic.partitions)
        partition = topic.partitions.get(number)
        if partition is None:  # the topic was created again while the caller waited for room
            raise wrong_partition(topic.name, topic.partitions, number)
        return partition
