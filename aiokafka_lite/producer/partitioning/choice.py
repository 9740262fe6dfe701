"""The choice of a partition: calls the producer's partitioner, by the present metadata and with the sealed batches."""

from __future__ import annotations

from collections import deque
from collections.abc import Container
from functools import partial
from operator import index

from ...aio.callbacks import RAISED, CallbackErrors, in_copy
from ...arguments import plural
from ...cluster.metadata import ClusterView
from ...errors import IllegalStateError, KafkaError
from ..partition_batches import Sealed
from ..topic import TopicProducer
from .interface import Chooser, Partitioner
from .partitioner import DefaultPartitioner


class PartitionChoice:
    """Calls a producer's partitioner, which may be the user's, and handles its wrong results and its exceptions.

    ``sealed`` is the list of sealed batches, which the partitions append to. The partitioner is notified of them before
    its next choice, so that a sticky partitioner knows which of its batches are full.
    """

    __slots__ = ("_default", "_errors", "_name", "_partitioner", "_sealed", "_view", "is_default")

    def __init__(self, partitioner: Partitioner, view: ClusterView, sealed: deque[Sealed]) -> None:
        self._view = view
        self._sealed = sealed
        self.is_default: bool = type(partitioner) is DefaultPartitioner
        self._default = partitioner if type(partitioner) is DefaultPartitioner else None
        self._partitioner = partitioner
        self._name = type(partitioner).__name__
        self._errors = CallbackErrors()

    def view_changed(self, view: ClusterView) -> None:
        """Choose by this metadata from now on."""
        self._view = view

    # Hot: runs for each record that names no partition.
    def choose(self, topic: str, key: bytes | None, value: bytes | None, partitions: Container[int]) -> int:
        """Choose the partition for a record. Wraps every exception except a KafkaError in IllegalStateError."""
        if self._sealed:
            self.report_sealed()
        try:
            # In the compiled build, a call of a known class costs a tenth of the other call.
            if self._default is not None:
                return self._default.partition(
                    topic, key, value, self._view
                )  # the result is always a partition in metadata
            number = index(in_copy(self._partitioner.partition, topic, key, value, self._view))
        except KafkaError:
            raise
        except RAISED as error:
            failure = IllegalStateError(f"{self._name} could not choose a partition of topic {topic!r}: {error!r}")
            failure.__cause__ = error  # compiled code ignores the "from" of a raise
            raise failure from error
        if number not in partitions:
            count = len(self._view.topics[topic].partitions)
            # Metadata may lack a partition in the middle, which the hash of a key can still choose.
            if not 0 <= number < count:
                raise IllegalStateError(
                    f"{self._name} must choose one of the {plural(count, 'partition')} of topic {topic!r}, got {number}"
                )
        return number

    def of_keys(self, topic: TopicProducer, keys: list[bytes]) -> list[int] | None:
        """Return the partition of each key; None if a user's partitioner chooses, or if metadata lacks a partition."""
        if self._default is None:
            return None
        numbers = self._default.of_keys(keys, len(self._view.topics[topic.name].partitions))
        return numbers if topic.partitions.keys() >= set(numbers) else None

    def of_rows(self, topic: TopicProducer) -> Chooser | None:
        """Return the function that chooses a partition by key and value; None if the hash of the key chooses it."""
        return None if self.is_default else partial(self.choose, topic.name, partitions=topic.partitions)

    def report_sealed(self) -> None:
        """Notify the partitioner of the batches that were sealed since its last choice, by an append or by a sender.

        An exception is only logged, because it must not fail the send that follows.
        """
        while self._sealed:
            (topic, number), size = self._sealed.popleft()
            if topic in self._view.topics:
                try:
                    in_copy(self._partitioner.on_new_batch, topic, number, size, self._view)
                except RAISED as error:
                    self._errors.log(f"{self._name}.on_new_batch", error)

    def topic_removed(self, topic: str) -> None:
        """Notify the partitioner of a dropped topic. An exception is only logged."""
        on_topic_removed = getattr(self._partitioner, "on_topic_removed", None)
        if on_topic_removed is not None:
            try:
                in_copy(on_topic_removed, topic)
            except RAISED as error:
                self._errors.log(f"{self._name}.on_topic_removed", error)
