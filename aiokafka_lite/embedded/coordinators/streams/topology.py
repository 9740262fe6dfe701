"""The topology of a streams group (KIP-1071): its tasks, and the internal topics that the coordinator creates.

Rules of this file:

 1. A subtopology has as many tasks as the largest of its source topics has partitions. Repartition topics are sources.
 2. A repartition topic without a number of its own has as many partitions as the largest source topic of the
    subtopologies that write to it. These may be repartition topics too, whose numbers are decided first. In a loop,
    such as a subtopology that reads its own output, the sources whose numbers are known decide.
 3. The topics of a copartition group have equal numbers of partitions. Repartition topics with a number of their own,
    and topics of the user, decide; the other repartition topics follow.
 4. A changelog has a partition for each task.
 5. A topology is ready when all its topics exist, with these numbers of partitions. Only then there are tasks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from operator import attrgetter
from typing import NamedTuple

from ....arguments import must_be
from ....errors import ErrorCode
from ....protocol.messages import StreamsSubtopology, StreamsTopicInfo, StreamsTopology
from ..groups.heartbeat_group import GroupRefusal

SHOWN_TOPICS = 3
"""The number of topics that a status names."""
MAX_TASKS = 10_000
"""The maximum number of tasks. Each heartbeat counts them, so more would stop the broker. Kafka has no such limit."""


class StreamsStatusCode(IntEnum):
    """The codes of a status in StreamsGroupHeartbeat."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5


class Status(NamedTuple):
    """A status of a group, with a text for its members."""

    code: StreamsStatusCode
    detail: str


class TopologyTasks(NamedTuple):
    """The tasks and the internal topics that follow from a topology and from the topics that exist.

    ``counts`` are the numbers of tasks by subtopology, and empty if they cannot be decided. ``partitions`` are the
    numbers of partitions of the internal topics. The topology is ready if there is no ``status``.
    """

    counts: Mapping[str, int]
    stateful: frozenset[str]
    partitions: Mapping[str, int]
    missing: tuple[StreamsTopicInfo, ...]
    status: Status | None


class _Unready(Exception):
    """The numbers of partitions of a topology cannot be decided."""

    def __init__(self, code: StreamsStatusCode, detail: str) -> None:
        super().__init__(detail)
        self.status = Status(code, detail)


def source_topics(subtopology: StreamsSubtopology) -> list[str]:
    return [*subtopology.source_topics, *(topic.name for topic in subtopology.repartition_source_topics)]


def required_topics(topology: StreamsTopology) -> set[str]:
    """Return the topics that must exist before there are tasks."""
    internal = {topic.name for subtopology in topology.subtopologies for topic in subtopology.state_changelog_topics}
    return internal.union(*(source_topics(subtopology) for subtopology in topology.subtopologies))


def tasks_of(topology: StreamsTopology, existing: Mapping[str, int]) -> TopologyTasks:
    """Return the tasks of a topology. ``existing`` are the numbers of partitions of the topics that exist.

    Raises GroupRefusal for a topology that no topics can make ready.
    """
    try:
        return _tasks_of(topology, existing)
    except _Unready as unready:
        return TopologyTasks({}, frozenset(), {}, (), unready.status)


def _tasks_of(topology: StreamsTopology, existing: Mapping[str, int]) -> TopologyTasks:
    subtopologies = topology.subtopologies
    _check_source_topics(subtopologies, existing)
    repartition = {info.name: info for subtopology in subtopologies for info in subtopology.repartition_source_topics}
    decided = _repartition_counts(subtopologies, repartition, existing)
    counts = _task_counts(subtopologies, decided, existing)
    changelogs = {
        info.name: (info, counts[subtopology.subtopology_id])
        for subtopology in subtopologies
        for info in subtopology.state_changelog_topics
    }
    expected = {name: decided[name] for name in repartition} | {name: count for name, (_, count) in changelogs.items()}
    _check_internal_topics(expected, existing)
    internal_topics = [*repartition.values(), *(info for info, _ in changelogs.values())]
    absent = tuple(info for info in internal_topics if info.name not in existing)
    text = f"Internal topics are missing: {_shown([info.name for info in absent])}"
    return TopologyTasks(
        counts,
        frozenset(subtopology.subtopology_id for subtopology in subtopologies if subtopology.state_changelog_topics),
        expected,
        absent,
        Status(StreamsStatusCode.MISSING_INTERNAL_TOPICS, text) if absent else None,
    )


def _check_source_topics(subtopologies: Iterable[StreamsSubtopology], existing: Mapping[str, int]) -> None:
    """Raise _Unready if a topic of the user does not exist."""
    missing = sorted(
        {name for subtopology in subtopologies for name in subtopology.source_topics if name not in existing}
    )
    if missing:
        raise _Unready(StreamsStatusCode.MISSING_SOURCE_TOPICS, f"Source topics {_shown(missing)} are missing.")


def _check_internal_topics(expected: Mapping[str, int], existing: Mapping[str, int]) -> None:
    """Raise _Unready if an internal topic exists with another number of partitions (rule 5)."""
    for name, count in expected.items():
        if existing.get(name, count) != count:
            raise _Unready(
                StreamsStatusCode.INCORRECTLY_PARTITIONED_TOPICS,
                f"Existing topic {name} has different number of partitions: expected {count}, found {existing[name]}",
            )


def _repartition_counts(
    subtopologies: Sequence[StreamsSubtopology],
    repartition: Mapping[str, StreamsTopicInfo],
    existing: Mapping[str, int],
) -> dict[str, int]:
    """Return the numbers of partitions of the repartition topics (rules 2 and 3)."""
    decided = {name: info.partitions for name, info in repartition.items() if info.partitions}
    _size_repartition_topics(subtopologies, repartition, decided, existing)
    for subtopology in subtopologies:
        for group in subtopology.copartition_groups:
            internal = [topic.name for topic in subtopology.repartition_source_topics]
            topics = _at(group.source_topics, subtopology.source_topics, subtopology)
            topics += _at(group.repartition_source_topics, internal, subtopology)
            _copartition(topics, repartition, decided, existing)
    return decided


def _task_counts(
    subtopologies: Sequence[StreamsSubtopology], decided: Mapping[str, int], existing: Mapping[str, int]
) -> dict[str, int]:
    """Return the number of tasks by subtopology (rule 1). Raises GroupRefusal if there are too many, or none."""
    counts = {}
    for subtopology in sorted(subtopologies, key=attrgetter("subtopology_id")):
        if not (names := source_topics(subtopology)):
            text = f"No source topics found for subtopology {subtopology.subtopology_id}"
            raise GroupRefusal(ErrorCode.STREAMS_INVALID_TOPOLOGY, text)
        counts[subtopology.subtopology_id] = max(_count(name, decided, existing) for name in names)
    if sum(counts.values()) > MAX_TASKS:
        problem = must_be("the number of tasks of a topology", f"<= {MAX_TASKS}", sum(counts.values()))
        raise GroupRefusal(ErrorCode.STREAMS_INVALID_TOPOLOGY, f"{problem}. Use fewer subtopologies or partitions.")
    return counts


def _count(name: str, decided: Mapping[str, int], existing: Mapping[str, int]) -> int:
    """Return the number of partitions of a topic, 0 until it is decided. As in Kafka, a topic that exists decides."""
    return existing.get(name) or decided.get(name, 0)


def _at(places: Iterable[int], topics: Sequence[str], subtopology: StreamsSubtopology) -> list[str]:
    named = []
    for place in places:
        if not 0 <= place < len(topics):
            text = (
                f"A copartition group of subtopology {subtopology.subtopology_id} has the place {place}, but the list "
            )
            raise GroupRefusal(ErrorCode.STREAMS_INVALID_TOPOLOGY, f"{text}of its topics has {len(topics)} topics.")
        named.append(topics[place])
    return named


@dataclass(slots=True, eq=False)
class _Node:
    """A subtopology, or a repartition topic without a number, on the way of the records.

    ``count`` is the largest number of partitions of the nodes before it, and ``undecided`` the number of nodes before
    it without a decided count.
    """

    count: int = 0
    undecided: int = 0
    is_decided: bool = False
    readers: list[_Node] = field(default_factory=list)


def _size_repartition_topics(
    subtopologies: Collection[StreamsSubtopology],
    repartition: Iterable[str],
    decided: dict[str, int],
    existing: Mapping[str, int],
) -> None:
    """Decide the numbers of partitions of all repartition topics (rule 2).

    The order of the lists makes no difference. The time grows with the size of the topology, not with its square.
    """
    # Sorted, because a loop is cut at the first node with a count, and that must not depend on the request's order.
    topics = {name: _Node() for name in sorted(repartition) if name not in decided}
    nodes = []
    for subtopology in sorted(subtopologies, key=attrgetter("subtopology_id")):
        node = _Node()
        nodes.append(node)
        for name in set(source_topics(subtopology)):
            count = _count(name, decided, existing)
            node.count = max(node.count, count)
            if not count:
                topics[name].readers.append(node)
                node.undecided += 1
        for name in sorted(topics.keys() & set(subtopology.repartition_sink_topics)):
            node.readers.append(topics[name])
            topics[name].undecided += 1
    if any(not topic.undecided for topic in topics.values()):
        raise GroupRefusal(
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
            "Failed to compute number of partitions for all repartition topics, because a repartition source topic is "
            "never used as a sink topic.",
        )
    _decide(nodes)
    if not all(topic.is_decided for topic in topics.values()):
        raise GroupRefusal(
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
            "Failed to compute number of partitions for all repartition topics. There may be loops in the topology "
            "that cannot be resolved.",
        )
    decided.update({name: topic.count for name, topic in topics.items()})


def _decide(nodes: Iterable[_Node]) -> None:
    """Decide the counts of these nodes and their readers. Without a loop, each node comes after all before it."""
    counted = deque(node for node in nodes if node.count)
    ready = [node for node in counted if not node.undecided]
    while ready or counted:
        # A node is ready when all nodes before it are decided. In a loop no node gets ready; then a node is decided by
        # the counts that are known so far (rule 2).
        node = ready.pop() if ready else counted.popleft()
        if node.is_decided:
            continue
        node.is_decided = True
        for reader in node.readers:
            reader.undecided -= 1
            if reader.is_decided:
                continue
            if not reader.count:
                counted.append(reader)
            reader.count = max(reader.count, node.count)
            if not reader.undecided:
                ready.append(reader)


def _copartition(
    topics: Collection[str],
    repartition: Mapping[str, StreamsTopicInfo],
    decided: dict[str, int],
    existing: Mapping[str, int],
) -> None:
    """Give the repartition topics of a copartition group the number of partitions of the other topics (rule 3)."""
    if not topics:
        return
    counts = {name: _count(name, decided, existing) for name in sorted(topics)}
    # The coordinator cannot change the topics of users, so these come first.
    of_users = {name: count for name, count in counts.items() if name not in repartition}
    deciding = of_users or {name: count for name, count in counts.items() if repartition[name].partitions}
    if len(set(deciding.values())) > 1:
        text = "Following topics do not have the same number of partitions"
        shown = ", ".join(f"{name}={count}" for name, count in deciding.items())
        raise _Unready(StreamsStatusCode.INCORRECTLY_PARTITIONED_TOPICS, f"{text}: [{{{shown}}}]")
    # As in Kafka, repartition topics without numbers of their own get the largest number of their group.
    count = next(iter(deciding.values()), 0) or max(counts.values())
    for name in counts.keys() & repartition.keys():
        own = repartition[name].partitions
        if own and own != count:
            raise _Unready(
                StreamsStatusCode.INCORRECTLY_PARTITIONED_TOPICS,
                f"Number of partitions [{own}] of repartition topic [{name}] doesn't match number of partitions "
                f"[{count}] of the source topic.",
            )
        decided[name] = count


def _shown(topics: Collection[str]) -> str:
    """Return the first names of a list, and the number of the others."""
    hidden = len(topics) - SHOWN_TOPICS
    return ", ".join(list(topics)[:SHOWN_TOPICS]) + (f" and {hidden} additional topics" if hidden > 0 else "")
