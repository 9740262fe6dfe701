"""The client's view of the cluster: immutable snapshots, and pure functions that make the next one from an answer.

This module decides which of two contradicting answers wins. It has no connections, clocks or tasks. A snapshot is
replaced as a whole and never changed, so a reader may keep it. The next snapshot reuses objects that an answer did not
change, so two snapshots can be compared by identity.

Rules of this file, each of which follows from a bug:

Rule 1: Brokers get new metadata at different times, so an answer may name an old leader. A partition with a lower
        leader epoch than the known one is ignored (KIP-320). A broker that has lost the controller still answers, with
        old leaders.
Rule 2: A topic that was deleted and created again starts at epoch 0. Another topic id resets everything known of the
        topic (KIP-516). Where topic ids are unknown (before Kafka 2.8), an answer that the topic does not exist resets
        it. If the client has missed that answer, lower epochs count after ``OLDER_ANSWERS`` answers in a row and
        ``OLDER_TIME`` seconds. franz-go counts five answers as well.
Rule 3: Epochs in answers older than Metadata v9 are unreliable and are ignored: the answer is used unchanged.
Rule 4: A topic that is missing for a moment keeps its partitions, and has no leaders until it appears again. Dropping
        it would move keys to other partitions and lose the epochs.
Rule 5: Partitions are never removed from an existing topic. If a partition is missing in an answer with the same topic
        id, the broker's metadata is outdated.
Rule 6: An answer about 100,000 partitions takes 0.4 s to decode and merge, and would block the event loop for that
        time. So ``merging`` works in slices. Its caller lets the loop run after each slice, and starts over if the
        snapshot changed meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple, Protocol, TypeAlias

from ..errors import ErrorCode
from ..protocol.messages import MetadataResponsePartition, MetadataResponseTopic
from ..protocol.schema import ZERO_UUID
from ..types import Node, TopicPartition
from .answer import MetadataAnswer
from .checks import MAX_LEADER_EPOCH, BrokerAddress, is_connectable

NO_TOPICS: MappingProxyType[str, TopicView] = MappingProxyType({})
NO_NODES: Mapping[int, Node] = MappingProxyType({})

Shared: TypeAlias = dict[tuple[int, ...], tuple[int, ...]]

SLICE = 1_000
"""Partitions that are decoded and merged in one slice (rule 6), in about 5 ms."""


OLDER_ANSWERS = 5
OLDER_TIME = 5.0
"""Without topic ids, lower leader epochs belong to a topic that was created again after this number of answers in a
row, and this number of seconds since the first one (rule 2)."""


class PartitionView(NamedTuple):  # it takes a third of the time of a frozen dataclass to make
    """One partition. ``leader`` is None while the partition has no leader.

    ``leader_epoch`` is None if no reliable epoch is known (rule 3). ``offline`` lists the replicas that are down.
    ``error`` is the error of this partition alone.
    """

    partition: int
    leader: int | None
    leader_epoch: int | None
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()
    error: ErrorCode = ErrorCode.NONE
    older_answers: int = 0
    older_since: float = 0.0
    """The ignored answers in a row with lower leader epochs, and the loop's time of the first one (rule 2)."""


@dataclass(frozen=True, slots=True)
class TopicView:
    """One topic and its partitions, ordered by number.

    ``topic_id`` is sixteen zero bytes before Kafka 2.8. With an ``error``, ``partitions`` are the last known ones, or
    none, and their leaders must not be used.
    """

    name: str
    topic_id: bytes = ZERO_UUID
    error: ErrorCode = ErrorCode.NONE
    partitions: tuple[PartitionView, ...] = ()
    is_internal: bool = False
    lacks_leader: bool = field(init=False, compare=False, repr=False)
    """Whether a partition has no leader. Stored, because each answer checks this for all topics."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "lacks_leader", None in [partition.leader for partition in self.partitions])

    @property
    def is_usable(self) -> bool:
        """Whether the topic exists without an error. Its partitions may lack leaders."""
        return self.error is ErrorCode.NONE and bool(self.partitions)

    @property
    def is_unsettled(self) -> bool:
        """Whether the topic has an error that may pass, or a partition without a leader, so that a refresh may help."""
        if self.error is not ErrorCode.NONE:
            # A topic that was never shown to this client is probably not meant for it.
            return self.error.retriable or (self.error_may_pass and bool(self.partitions))
        return self.lacks_leader

    @property
    def error_may_pass(self) -> bool:
        """Whether the error may pass without this client, so that the last known partitions still count.

        A missing permission is not retriable, but brokers that start do not know the ACLs yet, and an operator may be
        replacing them.
        """
        return self.error.retriable or self.error is ErrorCode.TOPIC_AUTHORIZATION_FAILED

    def partition(self, number: int) -> PartitionView | None:
        if 0 <= number < len(self.partitions) and self.partitions[number].partition == number:
            return self.partitions[number]
        # A broker omits partitions that it does not know yet, so the numbers may have gaps.
        return next((partition for partition in self.partitions if partition.partition == number), None)


@dataclass(frozen=True)
class ClusterView:
    """The cluster as of the last answer. ``updated_at`` is the loop's time of that answer, full or partial.

    ``topics`` has the requested topics, also those with errors. Other topics may exist.
    """

    nodes: Mapping[int, Node] = field(default_factory=lambda: NO_NODES)
    controller_id: int | None = None
    cluster_id: str | None = None
    topics: MappingProxyType[str, TopicView] = field(default_factory=lambda: NO_TOPICS)
    updated_at: float | None = None

    def age(self, now: float) -> float:
        """Return the seconds since the last answer; infinite before the first. ``now`` is the loop's time."""
        return float("inf") if self.updated_at is None else now - self.updated_at

    @property
    def controller(self) -> Node | None:
        """The broker for controller requests. In a KRaft cluster it can be any broker: brokers forward them."""
        return None if self.controller_id is None else self.nodes.get(self.controller_id)

    def partition(self, topic_partition: TopicPartition) -> PartitionView | None:
        """Return the partition; None if it is unknown, or if its topic has an error, because its leader is not valid
        then.
        """
        topic = self.topics.get(topic_partition[0])
        return None if topic is None else topic.partition(topic_partition[1])

    def leader_of(self, topic_partition: TopicPartition) -> Node | None:
        """Return the leader, or None: unknown partition, no leader, topic with an error, or leader not listed."""
        topic = self.topics.get(topic_partition[0])
        if topic is None or topic.error is not ErrorCode.NONE:
            return None
        partition = topic.partition(topic_partition[1])
        if partition is None or partition.leader is None:
            return None
        return self.nodes.get(partition.leader)

    @cached_property
    def topic_names(self) -> Mapping[bytes, str]:
        """Names by topic id, for answers with topic ids (Fetch v13, Produce v13)."""
        return {topic.topic_id: name for name, topic in self.topics.items() if topic.topic_id != ZERO_UUID}

    def same_as(self, other: ClusterView) -> bool:
        """Return whether both describe the same cluster, regardless of ``updated_at``.

        Cheap: topics that did not change are the same objects.
        """
        return (
            self.controller_id == other.controller_id
            and self.cluster_id == other.cluster_id
            and self.nodes == other.nodes
            and self.topics == other.topics
        )

    def unsettled(self, topics: Iterable[str]) -> Iterator[str]:
        """Yield the given topics that a refresh may change soon."""
        for name in topics:
            topic = self.topics.get(name)
            if topic is not None and topic.is_unsettled:
                yield name


class Endpoint(BrokerAddress, Protocol):
    """A broker address with the rack, which FindCoordinator responses lack."""

    @property
    def rack(self) -> str | None: ...


def merging(
    view: ClusterView,
    answer: MetadataAnswer[TopicView],
    *,
    requested: Collection[str] | None,
    keep: AbstractSet[str] = frozenset(),
    now: float | None = None,
    epochs_reliable: bool = True,
) -> Iterator[ClusterView | None]:
    """Make the next snapshot after an answer.

    Yields None after each slice of the work (rule 6), and at the end the snapshot. Raises ProtocolError if the answer
    is invalid or cannot be decoded.

    ``requested`` are topic names, None for all topics. Topics outside the answer stay while they are in ``keep``.
    After an answer about all topics, they get the error UNKNOWN_TOPIC_OR_PARTITION, because that answer is complete.
    ``epochs_reliable`` is False for answers before version 9. An answer with another cluster id replaces everything.
    """
    response = answer.message
    if view.cluster_id is not None and response.cluster_id is not None and view.cluster_id != response.cluster_id:
        # Epochs and ids of one cluster say nothing about another one.
        view = ClusterView()
    topics = _kept(view, keep, is_complete=requested is None)
    shared: Shared = {}
    merged = 0
    for topic in answer.read(view.topics, requested):
        # The name is null only in responses to requests by topic id, which this client does not send. The next response
        # would drop an unrequested topic anyway.
        if topic.name and (requested is None or topic.name in requested):
            if isinstance(topic, TopicView):
                topics[topic.name] = topic
            else:
                present = view.topics.get(topic.name)
                at = 0.0 if now is None else now
                topics[topic.name] = yield from _merge_topic(present, topic, epochs_reliable, shared, at)
                merged += len(topic.partitions)
        merged += 1
        if merged >= SLICE:
            yield None
            merged = 0
    # Dicts of thousands of identical objects compare in microseconds, and all snapshots then share one dict.
    unchanged = topics == view.topics
    # An answer without brokers says only that its topics are missing; see ``updater``.
    nodes = {broker.node_id: _node(broker) for broker in response.brokers} or dict(view.nodes)
    yield ClusterView(
        nodes=view.nodes if nodes == view.nodes else MappingProxyType(nodes),
        controller_id=response.controller_id if response.controller_id >= 0 else None,
        cluster_id=response.cluster_id if response.cluster_id is not None else view.cluster_id,
        topics=view.topics if unchanged else MappingProxyType(topics),
        updated_at=view.updated_at if now is None else now,
    )


def _kept(view: ClusterView, keep: AbstractSet[str], *, is_complete: bool) -> dict[str, TopicView]:
    """Return the known topics in ``keep``. If the answer is complete, a topic that it lacks does not exist."""
    topics = view.topics.copy()  # a plain dict: a hundred times faster than iterating over the proxy
    for name in topics.keys() - keep:
        del topics[name]
    return {name: _gone(topic) for name, topic in topics.items()} if is_complete else topics


def merge_leader(
    view: ClusterView,
    topic_partition: TopicPartition,
    leader: int,
    leader_epoch: int,
    endpoints: Iterable[Endpoint] = (),
) -> ClusterView:
    """Merge a hint about a new leader in a Produce or Fetch error (KIP-951) into the next snapshot.

    Returns the same snapshot if the hint cannot be used: its leader is below zero, its epoch is not above the known
    epoch, the partition is unknown, or the broker has no usable address. ``endpoints`` came with the hint.
    """
    topic = view.topics.get(topic_partition[0])
    partition = None if topic is None else topic.partition(topic_partition[1])
    # A huge epoch is refused, because all later answers would look older (``checks.MAX_LEADER_EPOCH``).
    if topic is None or partition is None or leader < 0 or not 0 <= leader_epoch <= MAX_LEADER_EPOCH:
        return view
    if partition.leader_epoch is not None and leader_epoch <= partition.leader_epoch:
        return view
    hinted = {endpoint.node_id: _node(endpoint) for endpoint in endpoints if is_connectable(endpoint)}
    if leader not in hinted and leader not in view.nodes:
        return view
    moved = partition._replace(leader=leader, leader_epoch=leader_epoch, error=ErrorCode.NONE)
    partitions = tuple(moved if partition_view is partition else partition_view for partition_view in topic.partitions)
    topics = view.topics | {topic.name: replace(topic, partitions=partitions)}
    nodes = {**view.nodes, **hinted}
    return replace(
        view,
        nodes=view.nodes if nodes == view.nodes else MappingProxyType(nodes),
        topics=MappingProxyType(topics),
    )


def _node(endpoint: Endpoint) -> Node:
    return Node(endpoint.node_id, endpoint.host, endpoint.port, endpoint.rack)


def _gone(topic: TopicView) -> TopicView:
    if topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return topic
    return replace(topic, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _merge_topic(
    present: TopicView | None, answer: MetadataResponseTopic, epochs_reliable: bool, shared: Shared, now: float
) -> Generator[None, None, TopicView]:
    name = answer.name or ""
    error = ErrorCode.of(answer.error_code)
    if error is not ErrorCode.NONE:
        if present is None:
            return TopicView(name, answer.topic_id, error, (), answer.is_internal)
        # Keep the known id: an answer that the topic does not exist has none.
        return present if present.error is error else replace(present, error=error)
    if present is None or not _is_same_topic(present, answer):
        present = TopicView(name)
    partitions = yield from _merge_partitions(present, answer, epochs_reliable, shared, now)
    topic_id = answer.topic_id if answer.topic_id != ZERO_UUID else present.topic_id
    if (
        partitions is present.partitions
        and present.error is ErrorCode.NONE
        and present.topic_id == topic_id
        and present.is_internal == answer.is_internal
    ):
        return present
    return TopicView(name, topic_id, ErrorCode.NONE, partitions, answer.is_internal)


def _is_same_topic(present: TopicView, answer: MetadataResponseTopic) -> bool:
    if present.topic_id == ZERO_UUID and answer.topic_id == ZERO_UUID:
        # Without ids, only a missing topic between two answers shows that it was created again (rule 2).
        return present.error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    # During an upgrade some brokers have topic ids and others have none; a missing id contradicts nothing.
    return answer.topic_id in (present.topic_id, ZERO_UUID)


def _merge_partitions(
    present: TopicView, answer: MetadataResponseTopic, epochs_reliable: bool, shared: Shared, now: float
) -> Generator[None, None, tuple[PartitionView, ...]]:
    """Merge the partitions of a topic. Returns the present tuple itself if nothing changed."""
    if len(present.partitions) == len(answer.partitions) and all(
        _is_unchanged(old, partition, epochs_reliable) for old, partition in zip(present.partitions, answer.partitions)
    ):
        return present.partitions
    merged: dict[int, PartitionView] = {}
    has_id = present.topic_id != ZERO_UUID or answer.topic_id != ZERO_UUID
    for start in range(0, len(answer.partitions), SLICE):
        if start:
            yield
        for partition in answer.partitions[start : start + SLICE]:
            number = partition.partition_index
            old = present.partition(number)
            if old is not None and _is_older(old, partition, epochs_reliable):
                # Rule 1: the broker does not know the newest leader yet.
                ignored = old if has_id else _count_older(old, now)
                if ignored is not None:
                    merged[number] = ignored
                    continue
            merged[number] = _merge_partition(old, partition, epochs_reliable, shared)
    if present.topic_id != ZERO_UUID and present.topic_id == answer.topic_id:
        # Rule 5: the same topic cannot lose a partition, so the answer is older than what is known.
        for old in present.partitions:
            merged.setdefault(old.partition, old)
    partitions = tuple(merged[number] for number in sorted(merged))
    return present.partitions if partitions == present.partitions else partitions


def _is_unchanged(old: PartitionView, answer: MetadataResponsePartition, epochs_reliable: bool) -> bool:
    """Return whether the merged partition would equal the known one, which is the usual case. Hot: creates no
    object."""
    return (
        not old.older_answers
        and old.partition == answer.partition_index
        and (-1 if old.leader is None else old.leader) == answer.leader_id
        and (old.leader_epoch if old.leader_epoch is not None else -1)
        == (answer.leader_epoch if epochs_reliable else -1)
        and old.error == answer.error_code
        and old.replicas == tuple(answer.replica_nodes)
        and old.isr == tuple(answer.isr_nodes)
        and old.offline == tuple(answer.offline_replicas)
    )


def _is_older(old: PartitionView, answer: MetadataResponsePartition, epochs_reliable: bool) -> bool:
    return epochs_reliable and old.leader_epoch is not None and 0 <= answer.leader_epoch < old.leader_epoch


def _count_older(old: PartitionView, now: float) -> PartitionView | None:
    """Return the partition after one more answer with a lower epoch; None if that answer counts now (rule 2)."""
    if old.older_answers < OLDER_ANSWERS:
        since = old.older_since if old.older_answers else now
        return old._replace(older_answers=old.older_answers + 1, older_since=since)
    return old if now < old.older_since + OLDER_TIME else None


def _merge_partition(
    old: PartitionView | None, answer: MetadataResponsePartition, epochs_reliable: bool, shared: Shared
) -> PartitionView:
    leader = answer.leader_id if answer.leader_id >= 0 else None
    epoch = answer.leader_epoch if epochs_reliable and answer.leader_epoch >= 0 else None
    new = PartitionView(
        answer.partition_index,
        leader,
        epoch,
        _shared(answer.replica_nodes, shared),
        _shared(answer.isr_nodes, shared),
        _shared(answer.offline_replicas, shared),
        ErrorCode.of(answer.error_code),
    )
    return old if old == new and old is not None else new


def _shared(nodes: list[int], shared: Shared) -> tuple[int, ...]:
    """Return the nodes as a tuple. Equal lists get the same tuple, because thousands of partitions have the same
    replicas.
    """
    node_ids = tuple(nodes)
    return shared.setdefault(node_ids, node_ids)
