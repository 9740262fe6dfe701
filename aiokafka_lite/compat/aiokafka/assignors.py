"""Assignors for ``partition_assignment_strategy``: aiokafka's own, and the interface for a program's assignors.

The leader of a group calls the assignor. All members must use the same assignors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, ClassVar

from ... import group as native
from ...types import TopicPartition
from .cluster import ClusterMetadata

Topics = Mapping[str, Sequence[frozenset[str]]]
"""For each topic, the racks of each partition. aiokafka's assignors do not get the racks."""

Subscription = Callable[[], Callable[[], Iterable[str]] | None]
"""A weak reference to a function that returns the topics of the consumer."""


@dataclass(slots=True)
class ConsumerProtocolMemberMetadata:
    """The data that a member sends to the leader: its topics, and bytes of the assignor. ``version`` has no effect."""

    version: int
    subscription: list[str]
    user_data: bytes


@dataclass(slots=True)
class ConsumerProtocolMemberAssignment:
    """The data that the leader sends to a member: its partitions by topic, and bytes of the assignor."""

    version: int
    assignment: list[tuple[str, list[int]]]
    user_data: bytes

    def partitions(self) -> list[TopicPartition]:
        return [TopicPartition(topic, number) for topic, numbers in self.assignment for number in numbers]


class AbstractPartitionAssignor(ABC):
    """The interface of an assignor. A program passes the class or an object of it."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the strategy in the protocol."""

    @classmethod
    @abstractmethod
    def assign(
        cls, cluster: ClusterMetadata, members: Mapping[str, ConsumerProtocolMemberMetadata]
    ) -> dict[str, ConsumerProtocolMemberAssignment]:
        """Return the assignments by member id. No partition may be assigned to two members.

        ``cluster`` has the topics of the group and the numbers of their partitions; it has no brokers and no leaders.
        """

    @classmethod
    @abstractmethod
    def metadata(cls, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        """Return the metadata that this member sends to the leader. Only its ``user_data`` is used."""

    @classmethod
    @abstractmethod
    def on_assignment(cls, assignment: ConsumerProtocolMemberAssignment) -> None:
        """Receive each assignment of this member."""


class _OfThisClient(AbstractPartitionAssignor):
    """A base of aiokafka's assignors. A consumer uses this client's strategy of the same name directly."""

    version: ClassVar[int] = 0

    @staticmethod
    @abstractmethod
    def native_strategy() -> native.AssignmentStrategy:
        """Return the strategy of this client. The call imports it."""

    @classmethod
    def assign(
        cls, cluster: ClusterMetadata, members: Mapping[str, ConsumerProtocolMemberMetadata]
    ) -> dict[str, ConsumerProtocolMemberAssignment]:
        """Return the assignments by member id, for assignors that extend this one."""
        topics = {topic for member in members.values() for topic in member.subscription}
        numbers = {topic: cluster.partitions_for_topic(topic) or () for topic in sorted(topics)}
        listed = [
            native.GroupMember(name, tuple(metadata.subscription), user_data=metadata.user_data or None)
            for name, metadata in members.items()
        ]
        racks = {topic: [frozenset[str]()] * len(partitions) for topic, partitions in numbers.items() if partitions}
        assigned = cls.native_strategy().assign(listed, racks)
        return {
            name: ConsumerProtocolMemberAssignment(0, _by_topic(partitions), b"")
            for name, partitions in assigned.items()
        }

    @classmethod
    def metadata(cls, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        return ConsumerProtocolMemberMetadata(cls.version, list(topics), b"")

    @classmethod
    def on_assignment(cls, assignment: ConsumerProtocolMemberAssignment) -> None: ...


class RangePartitionAssignor(_OfThisClient):
    name = "range"

    @staticmethod
    def native_strategy() -> native.AssignmentStrategy:
        return native.RangeStrategy()


class RoundRobinPartitionAssignor(_OfThisClient):
    name = "roundrobin"

    @staticmethod
    def native_strategy() -> native.AssignmentStrategy:
        return native.RoundRobinStrategy()


class StickyPartitionAssignor(_OfThisClient):
    name = "sticky"

    @staticmethod
    def native_strategy() -> native.AssignmentStrategy:
        return native.StickyStrategy()


_NATIVE = (RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor)


def strategy_of(assignor: Any, subscription: Subscription) -> Any:
    """Return this client's strategy for an assignor: a value for the setting ``strategies``."""
    kind = assignor if isinstance(assignor, type) else type(assignor)
    if issubclass(kind, AbstractPartitionAssignor) and kind not in _NATIVE:
        base = kind.native_strategy() if issubclass(kind, _OfThisClient) else None
        return _Strategy(assignor, subscription, base)
    return getattr(assignor, "name", assignor)


class _Strategy:
    """A strategy of this client that calls an assignor of the program.

    ``base`` is the strategy of aiokafka's assignor that the class extends; None if it extends no such assignor.
    """

    cooperative = False

    def __init__(
        self, assignor: Any, subscription: Subscription, base: native.AssignmentStrategy | None = None
    ) -> None:
        self.name = assignor.name
        self._assignor = assignor
        self._subscription = subscription
        self._base = base
        self._data: dict[str, bytes] = {}

    def user_data(self, owned: Collection[TopicPartition], generation: int) -> bytes | None:
        topics = self._subscription()
        metadata: ConsumerProtocolMemberMetadata = self._assignor.metadata(set() if topics is None else set(topics()))
        if metadata.user_data or self._base is None:
            return metadata.user_data
        return self._base.user_data(owned, generation)  # the sticky strategy needs the partitions of the member

    def assign(self, members: Sequence[native.GroupMember], topics: Topics) -> dict[str, list[TopicPartition]]:
        cluster = ClusterMetadata()
        for topic, racks in topics.items():
            cluster.add_numbers(topic, range(len(racks)))
        subscriptions = {
            member.member_id: ConsumerProtocolMemberMetadata(0, list(member.topics), member.user_data or b"")
            for member in members
        }
        assignments: dict[str, ConsumerProtocolMemberAssignment] = self._assignor.assign(cluster, subscriptions)
        self._data = {name: assignment.user_data for name, assignment in assignments.items()}
        return {
            **{name: [] for name in subscriptions},
            **{name: assignment.partitions() for name, assignment in assignments.items()},
        }

    def assignment_data(self, member_id: str, partitions: Sequence[TopicPartition], generation: int) -> bytes | None:
        return self._data.get(member_id)

    def on_assignment(self, partitions: Sequence[TopicPartition], user_data: bytes | None, generation: int) -> None:
        self._assignor.on_assignment(ConsumerProtocolMemberAssignment(0, _by_topic(partitions), user_data or b""))


def _by_topic(partitions: Iterable[TopicPartition]) -> list[tuple[str, list[int]]]:
    grouped = groupby(sorted(partitions), key=lambda partition: partition.topic)
    return [(topic, [partition.partition for partition in group]) for topic, group in grouped]
