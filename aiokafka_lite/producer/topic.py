"""One topic of the producer: its partitions, and the records that wait until the topic is known."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from ..cluster.metadata import ClusterView, TopicView
from ..protocol.schema import ZERO_UUID
from ..types import TopicPartition
from .delivery import Fate
from .partition import PartitionProducer

UNASSIGNED = -1
"""The partition of records whose topic is not known yet."""


class HeldRecord(NamedTuple):
    """A record as it will be put into a batch; ``size`` is what it holds of the budget."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Iterable[tuple[str, bytes | None]]
    partition: int | None
    timestamp: int
    size: int


class HeldRecords(Fate):
    """Records of a topic that is being asked for. They move to batches once it is known, in their order, or fail."""

    __slots__ = ("records",)

    def __init__(self, topic: str) -> None:
        super().__init__(topic, UNASSIGNED)
        self.records: list[HeldRecord] = []


class TopicProducer:
    """Owner of a topic's partitions. ``held`` are records that came while the topic was not known.

    The partitions outlive the topic's absence from metadata: their sequence numbers must, as brokers remember theirs.
    """

    __slots__ = ("_make_partition", "_seen", "held", "is_known", "name", "partitions", "topic_id")

    def __init__(self, name: str, make_partition: Callable[[TopicPartition], PartitionProducer]) -> None:
        self.name = name
        self.partitions: list[PartitionProducer] = []
        self.held: HeldRecords | None = None
        self.is_known = False
        self.topic_id = ZERO_UUID
        self._make_partition = make_partition
        self._seen: tuple[TopicView | None, object] | None = None

    def update(self, view: ClusterView) -> bool:
        """Take what a snapshot says of the topic; whether that is anything new for its partitions."""
        topic = view.topics.get(self.name)
        if self._seen is not None and self._seen[0] is topic and self._seen[1] is view.nodes:
            return False
        self._seen = (topic, view.nodes)
        if topic is None or not topic.partitions:
            self.is_known = False
            return True
        self.is_known = True
        if ZERO_UUID != self.topic_id != topic.topic_id != ZERO_UUID:
            for partition in self.partitions:
                partition.new_topic(topic.topic_id)
        if topic.topic_id != ZERO_UUID:
            self.topic_id = topic.topic_id
        for number in range(len(self.partitions), topic.partitions[-1].partition + 1):
            self.partitions.append(self._make_partition(TopicPartition(self.name, number)))
        return True

    def __repr__(self) -> str:
        state = "known" if self.is_known else "asked for"
        return f"<TopicProducer {self.name} {state} partitions={len(self.partitions)}>"
