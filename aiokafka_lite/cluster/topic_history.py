"""Remembers what a client knew of its topics at first, so that it can tell new partitions from old ones.

``auto_offset_reset="latest"`` is a choice about the records that are older than the reader. All records of a partition
that did not exist at the start of the reader are younger. So the reader must know which partitions existed.

Rules of this file:

Rule 1: The first usable answer about a topic has the partitions that existed. Partitions with higher numbers are new,
        as long as the topic has the same id.
Rule 2: A topic that gets another id was created again, so all its partitions are new.
Rule 3: One answer without a topic proves nothing: brokers get metadata at different times. A topic that appears is new
        only if two answers in a row said that it does not exist, and ``MISSING_AFTER`` seconds have passed since the
        first of them, or no partition has ever changed its leader.
Rule 4: A list of all topics counts in the same way: a topic is new if two earlier lists did not have it. A topic that
        the principal could not see before counts as new too. Reading too much is better than to skip records.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from ..errors import ErrorCode
from ..protocol.schema import ZERO_UUID
from ..types import TopicPartition
from .metadata import ClusterView, TopicView
from .topics import MISSING_AFTER, TrackedTopics


@dataclass(slots=True)
class _First:
    """The topic as it was first known: the partitions below ``count`` existed then."""

    topic_id: bytes
    count: int


@dataclass(slots=True)
class _Absence:
    """The answers in a row that said that a topic does not exist. ``since`` is the loop's time of the first one."""

    since: float
    answers: int = 0


class TopicHistory:
    """The topics that a client reads, as it first knew them. Owner: the updater.

    They are remembered as long as the client lives, because a topic may leave the subscription and return.
    """

    def __init__(self) -> None:
        self._first: dict[str, _First] = {}
        self._absent: dict[str, _Absence] = {}
        self._listed: set[str] = set()
        self._lists = 0
        self._appeared: set[str] = set()  # by lists of all topics

    def is_new(self, partition: TopicPartition) -> bool:
        """Return whether this partition was created after the client had first known its topic, or had missed it."""
        first = self._first.get(partition.topic)
        return first is not None and partition.partition >= first.count

    def update(self, view: ClusterView, answered: Iterable[str], tracked: TrackedTopics, now: float) -> None:
        """Record an answer about these topics. ``now`` is the loop's time."""
        for name in answered:
            topic = view.topics.get(name)
            if topic is None or not tracked.is_added(name):
                continue
            if topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self._absent.setdefault(name, _Absence(now)).answers += 1
            elif topic.is_usable:
                self._record(topic, self._absent.pop(name, None), now)

    def add_list(self, names: Collection[str]) -> None:
        """Record a list of all topics of the cluster."""
        if self._lists >= 2:
            self._appeared.update(name for name in names if name not in self._listed)
        self._lists += 1
        self._listed.update(names)

    def _record(self, topic: TopicView, absence: _Absence | None, now: float) -> None:
        first = self._first.get(topic.name)
        if first is None:
            is_new = topic.name in self._appeared or _is_created(topic, absence, now)
            count = 0 if is_new else topic.partitions[-1].partition + 1
            self._first[topic.name] = _First(topic.topic_id, count)
        elif topic.topic_id == ZERO_UUID or first.topic_id == ZERO_UUID:
            # During an upgrade of the brokers, a topic gets its id.
            if topic.topic_id != ZERO_UUID:
                first.topic_id = topic.topic_id
            elif absence is not None and now - absence.since >= MISSING_AFTER and absence.answers >= 2:
                first.count = 0
        elif first.topic_id != topic.topic_id:
            self._first[topic.name] = _First(topic.topic_id, 0)


def _is_created(topic: TopicView, absence: _Absence | None, now: float) -> bool:
    """Return whether a topic that appears was created a moment ago (rule 3)."""
    if absence is None or absence.answers < 2:
        return False
    return now - absence.since >= MISSING_AFTER or all(partition.leader_epoch == 0 for partition in topic.partitions)
