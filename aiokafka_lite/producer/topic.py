"""One topic of the producer: its partitions, and the records that are pending until metadata has the topic."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ..cluster.metadata import ClusterView, TopicView
from ..protocol.schema import ZERO_UUID
from ..types import TopicPartition
from .delivery import BatchResult, FailureLog
from .partition import PartitionProducer
from .record import PreparedRecord

UNASSIGNED = -1
"""The partition of records whose topic is not known yet."""


class PendingRecords(BatchResult):
    """Records of a topic whose metadata was requested. They move to batches in their order, or fail.

    ``records`` have not moved yet, ``times`` contains the loop's time of the send of each, and ``places`` the places of
    the records that have moved.
    """

    __slots__ = ("places", "records", "times")

    def __init__(self, topic: str) -> None:
        super().__init__(topic, UNASSIGNED)
        self.records: deque[PreparedRecord] = deque()
        self.times: deque[float] = deque()
        self.places: list[tuple[BatchResult, int]] = []

    def add(self, record: PreparedRecord, now: float) -> int:
        """Append a record. Returns its index."""
        self.records.append(record)
        self.times.append(now)
        return len(self.places) + len(self.records) - 1

    def fail_rest(self, error: Exception, log: FailureLog | None = None) -> BatchResult:
        """Fail the records that have not moved. Returns their result."""
        assert len(self.times) == len(self.records), "each pending record has the time of its send"
        count = len(self.records)
        rest = BatchResult(self.topic, UNASSIGNED)
        rest.fail(error, log)
        self.records.clear()
        self.times.clear()
        # All these records share one result. The index 0 has no meaning, because the result is an error.
        self.places += [(rest, 0)] * count
        self.move(self.places)
        return rest


class TopicProducer:
    """Owner of a topic's partitions.

     - ``partitions``: the partitions that metadata lists, by number. It is a dict, so that an answer with a huge number
       adds only one entry.
     - ``pending``: records that were sent while the topic was not known.
     - ``unplaced``: records for partitions that metadata does not list. A broker leaves out a new partition whose
       replicas are all down, if it keeps its metadata in ZooKeeper.
     - ``is_asking``: a task refreshes metadata for the unplaced records.
     - ``is_known``: metadata has the topic.
     - ``is_open``: records go to batches directly: the topic is known, and no earlier record is pending.
     - ``vanished``: partitions that the topic lost when it was created again. The accumulator fails their batches.
     - ``last_used``: the loop's time of the first record or of the last new batch.
     - ``used_until``: the loop's time until which metadata counts the topic as used.

    The partitions stay while the topic is missing in metadata, because brokers remember their sequence numbers. Brokers
    before 2.8 have no topic ids. If their answer lacks partitions, it may be outdated, so the topic keeps the
    partitions.
    """

    __slots__ = (
        "_make_partition",
        "_seen",
        "is_asking",
        "is_known",
        "is_open",
        "last_used",
        "name",
        "partitions",
        "pending",
        "topic_id",
        "unplaced",
        "used_until",
        "vanished",
    )

    def __init__(self, name: str, make_partition: Callable[[TopicPartition], PartitionProducer], now: float) -> None:
        self.name: str = name
        self.last_used: float = now
        self.used_until: float = 0.0
        self.partitions: dict[int, PartitionProducer] = {}
        self.vanished: list[PartitionProducer] = []
        self.pending: PendingRecords | None = None
        self.unplaced: PendingRecords | None = None
        self.is_asking: bool = False
        self.is_known: bool = False
        self.is_open: bool = False
        self.topic_id: bytes = ZERO_UUID
        self._make_partition = make_partition
        self._seen: tuple[TopicView | None, object] | None = None

    def start_pending(self) -> PendingRecords:
        """Begin to keep new records as pending."""
        assert self.pending is None, "a topic asks for its metadata once at a time"
        self.pending, self.is_open = PendingRecords(self.name), False
        return self.pending

    def end_pending(self) -> None:
        """Keep no more records as pending."""
        self.pending, self.is_open = None, self.is_known

    @property
    def is_idle(self) -> bool:
        """Whether the topic has no records: none are pending, and none are in batches."""
        without_pending = self.pending is None and self.unplaced is None
        return without_pending and all(partition.is_idle for partition in self.partitions.values())

    def retire(self) -> None:
        """Retire the producer ids of the partitions, because this idle topic is dropped."""
        for partition in self.partitions.values():
            partition.retire()

    def update(self, view: ClusterView) -> bool:
        """Apply the topic's metadata. Returns whether it has changes for its partitions."""
        topic = view.topics.get(self.name)
        # An unchanged topic is the same object in the next view. The nodes count too, because they decide whether a
        # leader is known.
        if self._seen is not None and self._seen[0] is topic and self._seen[1] is view.nodes:
            return False
        self._seen = (topic, view.nodes)
        if topic is None or not topic.partitions:
            self.is_known = self.is_open = False
            return True
        self.is_known = True
        self.is_open = self.pending is None
        # Both ids are known and differ, so the topic was deleted and created again. Its logs know no sequence numbers.
        if ZERO_UUID != self.topic_id != topic.topic_id != ZERO_UUID:
            # Only partitions above the last one have vanished. A missing one in the middle may be listed later
            # (``unplaced``).
            last = topic.partitions[-1].partition
            self.vanished += [self.partitions.pop(number) for number in list(self.partitions) if number > last]
            for partition in self.partitions.values():
                partition.topic_recreated(topic.topic_id)
        # An answer without ids, as of a broker before 2.8 during an upgrade, must not erase the known id.
        if topic.topic_id != ZERO_UUID:
            self.topic_id = topic.topic_id
        for number in [partition.partition for partition in topic.partitions]:
            if number not in self.partitions:
                self.partitions[number] = self._make_partition(TopicPartition(self.name, number))
        return True

    def __repr__(self) -> str:
        state = "known" if self.is_known else "pending"
        return f"<TopicProducer {self.name} {state} partitions={len(self.partitions)}>"
