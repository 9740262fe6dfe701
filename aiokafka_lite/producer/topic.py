"""One topic of the producer: its partitions, and the records that wait until the topic is known."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from ..cluster.metadata import ClusterView, TopicView
from ..protocol.schema import ZERO_UUID
from ..types import TopicPartition
from .delivery import Fate, Loss
from .partition import PartitionProducer

UNASSIGNED = -1
"""The partition of records whose topic is not known yet."""


class HeldRecord(NamedTuple):
    """A record as it will be put into a batch.

    ``size`` is what it holds of the budget; ``surplus`` of these bytes are for the time until it is in a batch,
    where it takes less.
    """

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Iterable[tuple[str, bytes | None]]
    partition: int | None
    timestamp: int
    size: int
    surplus: int = 0


class HeldRecords(Fate):
    """Records of a topic that is being asked for. They move to batches once it is known, in their order, or fail.

    ``records`` are those that have not moved yet, ``times`` the loop's time when each of them was sent, and ``places``
    is where the ones before them went.
    """

    __slots__ = ("places", "records", "times")

    def __init__(self, topic: str) -> None:
        super().__init__(topic, UNASSIGNED)
        self.records: deque[HeldRecord] = deque()
        self.times: deque[float] = deque()
        self.places: list[tuple[Fate, int]] = []

    def add(self, record: HeldRecord, now: float) -> int:
        """Put a record behind the others; its index among all of them."""
        self.records.append(record)
        self.times.append(now)
        return len(self.places) + len(self.records) - 1

    def fail_rest(self, error: Exception, loss: Loss | None = None) -> int:
        """Fail what has not moved; how many records that were."""
        count = len(self.records)
        rest = Fate(self.topic, UNASSIGNED)
        rest.fail(error, loss)
        self.records.clear()
        self.times.clear()
        self.places.extend((rest, 0) for _ in range(count))
        self.move(self.places)
        return count


class TopicProducer:
    """Owner of a topic's partitions. ``held`` are records that came while the topic was not known.

    ``is_open`` says that records need not be held: the topic is known, and none is held that came before.

    The partitions outlive the topic's absence from metadata: their sequence numbers must, as brokers remember theirs.
    What the topic lacks once it was created anew is put into ``vanished``, for the producer to give up. (Without topic
    ids, as brokers before 2.8 have none, one that lacks partitions may as well be an answer out of date.)
    ``last_used`` is the loop's time when the last batch was begun, or the first record came.
    """

    __slots__ = (
        "_make_partition",
        "_seen",
        "held",
        "is_known",
        "is_open",
        "last_used",
        "name",
        "partitions",
        "topic_id",
        "vanished",
    )

    def __init__(self, name: str, make_partition: Callable[[TopicPartition], PartitionProducer], now: float) -> None:
        self.name = name
        self.last_used = now
        self.partitions: list[PartitionProducer] = []
        self.vanished: list[PartitionProducer] = []
        self.held: HeldRecords | None = None
        self.is_known = False
        self.is_open = False
        self.topic_id = ZERO_UUID
        self._make_partition = make_partition
        self._seen: tuple[TopicView | None, object] | None = None

    def hold(self) -> HeldRecords:
        """Hold records from now on."""
        self.held, self.is_open = HeldRecords(self.name), False
        return self.held

    def let_go(self) -> None:
        """Hold none any more."""
        self.held, self.is_open = None, self.is_known

    @property
    def is_idle(self) -> bool:
        """Whether it has no records, held or in batches."""
        return self.held is None and all(partition.is_idle for partition in self.partitions)

    def retire(self) -> None:
        """Be forgotten, while idle."""
        for partition in self.partitions:
            partition.retire()

    def update(self, view: ClusterView) -> bool:
        """Take what a snapshot says of the topic; whether that is anything new for its partitions."""
        topic = view.topics.get(self.name)
        if self._seen is not None and self._seen[0] is topic and self._seen[1] is view.nodes:
            return False
        self._seen = (topic, view.nodes)
        if topic is None or not topic.partitions:
            self.is_known = self.is_open = False
            return True
        self.is_known = True
        self.is_open = self.held is None
        if ZERO_UUID != self.topic_id != topic.topic_id != ZERO_UUID:
            count = topic.partitions[-1].partition + 1
            self.vanished += self.partitions[count:]
            del self.partitions[count:]
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
