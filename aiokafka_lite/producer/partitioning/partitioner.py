"""Partitioners choose the partition of a record that names none. ``interface`` defines their methods."""

from __future__ import annotations

import random as _random
from collections.abc import Callable
from functools import lru_cache
from itertools import repeat
from typing import Final, NamedTuple

from ...arguments import is_whole, must_be
from ...cluster.metadata import ClusterView, TopicView
from ...compiled import COMPILED, mypyc_attr
from ...errors import ConfigurationError, IllegalStateError
from ...protocol.records import partition_for_key
from .interface import BrokerLoad

STICKY_BYTES = 32 * 1024
"""Bytes of records without a key that go to one partition before the next one is chosen: half of a full batch by
default."""

CACHED_KEYS = 4096
"""The number of keys whose partitions are cached. The last used keys are kept."""

CACHED_SIZE = 128
"""Bytes of the longest key that is cached. The cache takes about a megabyte at most."""

# Compiled code reads a Final without a look-up in the module's dictionary.
_partition_for_key: Final = partition_for_key
_HASHES_EACH_KEY: Final = COMPILED


class _Idle:
    def queued(self, node_id: int) -> int:
        return 0

    def is_reachable(self, node_id: int) -> bool:
        return True


class _Candidates(NamedTuple):
    """The partitions of a topic by leader. If no partition has a leader, all of them are under -1."""

    view: TopicView
    by_leader: dict[int, list[int]]


@mypyc_attr(allow_interpreted_subclasses=True)
class DefaultPartitioner:
    """Chooses by the hash of the key, like Java's client; without a key, it is sticky.

    Sticky (KIP-480) means that records without a key stay on one partition, so that they fill batches. Then they move
    to a partition chosen at random. They move at the end of a batch, after at least ``sticky_bytes`` (KIP-794). The
    batches of slow brokers are larger, so a move at the end of *every* batch would give more records to slow brokers.

    The choice excludes partitions without a leader and those whose broker cannot be reached. With ``adaptive``,
    partitions of brokers with long queues are chosen less often. The weight of a partition is the difference in bytes
    between the longest queue and its broker's queue, plus ``sticky_bytes``. Because of ``sticky_bytes``, no partition
    has a weight of zero, so none is excluded forever. ``random`` returns numbers in [0, 1).

    With ``rack``, the choice is among the partitions whose leader is in this rack, while one of these brokers can be
    reached (KIP-1123). So records without a key do not cross racks. Records with a key go where their hash says.

    Raises ConfigurationError for wrong ``sticky_bytes`` and a ``rack`` that is no text.
    """

    def __init__(
        self,
        *,
        sticky_bytes: int = STICKY_BYTES,
        adaptive: bool = True,
        rack: str | None = None,
        random: Callable[[], float] = _random.random,
    ) -> None:
        if rack is not None and (not isinstance(rack, str) or not rack):
            raise ConfigurationError(must_be("rack", "a string that is not empty, or None", rack))
        if not is_whole(sticky_bytes) or sticky_bytes < 1:
            raise ConfigurationError(must_be("sticky_bytes", "a whole number of bytes >= 1", sticky_bytes))
        self._sticky_bytes = sticky_bytes
        self._adaptive = adaptive
        self._rack = rack
        self._random = random
        # Most keys occur again. As plain Python, a look-up of nine bytes takes 0.07 µs, their hash 1.0 µs. In C, the
        # hash takes as long as the look-up.
        self._cached = lru_cache(maxsize=CACHED_KEYS)(partition_for_key)
        self._load: BrokerLoad = _Idle()
        self._sticky: dict[str, int] = {}
        self._bytes: dict[str, int] = {}
        self._candidates: dict[str, _Candidates] = {}
        self._view: ClusterView | None = None
        self._counts: dict[str, int] = {}  # the partitions of each topic in ``_view``

    def use_load(self, load: BrokerLoad) -> None:
        """Use this load from now on."""
        self._load = load

    def partition(self, topic: str, key: bytes | None, value: bytes | None, view: ClusterView) -> int:
        # A view never changes, so the counts are valid as long as it is the same object.
        if view is not self._view:
            self._view, self._counts = view, {}
        count = self._counts.get(topic)
        if count is None:
            count = self._counts[topic] = len(view.topics[topic].partitions)
        if key is not None:
            if _HASHES_EACH_KEY or len(key) > CACHED_SIZE:
                return _partition_for_key(key, count)
            return self._cached(key, count)
        # A topic without a sticky partition, and one that was created again with fewer partitions, both need a choice.
        sticky = self._sticky.get(topic, count)
        return sticky if sticky < count else self._switch(topic, view)

    def of_keys(self, keys: list[bytes], count: int) -> list[int]:
        """Return the partition of each key, out of ``count`` partitions, without Python code for a cached key."""
        cached = not _HASHES_EACH_KEY and max(map(len, keys), default=0) <= CACHED_SIZE
        return list(map(self._cached if cached else partition_for_key, keys, repeat(count)))

    def on_new_batch(self, topic: str, partition: int, size: int, view: ClusterView) -> None:
        # Records with a key or a number fill batches of other partitions, which say nothing about the sticky one.
        if self._sticky.get(topic) != partition:
            return
        written = self._bytes[topic] = self._bytes[topic] + size
        if written >= self._sticky_bytes:
            self._switch(topic, view)

    def on_topic_removed(self, topic: str) -> None:
        """Drop all data about the topic."""
        for by_topic in (self._sticky, self._bytes, self._candidates, self._counts):
            by_topic.pop(topic, None)

    def _switch(self, topic: str, view: ClusterView) -> int:
        """Choose again; the result may be the same partition.

        If two partitions alternated strictly, the slow one would get half of the records.
        """
        by_leader = self._by_leader(topic, view)
        leaders = [leader for leader in by_leader if self._load.is_reachable(leader)] or list(by_leader)
        if self._rack is not None:
            leaders = [leader for leader in leaders if _rack_of(leader, view) == self._rack] or leaders
        # A leader is chosen first, and then one of its partitions, because a topic may have thousands of partitions,
        # but a cluster has few brokers.
        shares = [weight * len(by_leader[leader]) for leader, weight in zip(leaders, self._weights(leaders))]
        point = self._random() * sum(shares)
        for leader, share in zip(leaders, shares):  # noqa: B007 - the last leader, if rounding leaves a rest
            if point < share:
                break
            point -= share
        partitions = by_leader[leader]
        partition = partitions[int(self._random() * len(partitions))]
        self._sticky[topic], self._bytes[topic] = partition, 0
        return partition

    def _weights(self, leaders: list[int]) -> list[int]:
        if not self._adaptive:
            return [1] * len(leaders)
        queued = [self._load.queued(leader) for leader in leaders]
        highest = max(queued) + self._sticky_bytes
        return [highest - size for size in queued]

    def _by_leader(self, topic: str, view: ClusterView) -> dict[int, list[int]]:
        metadata = view.topics[topic]
        cached = self._candidates.get(topic)
        if cached is None or cached.view is not metadata:
            by_leader: dict[int, list[int]] = {}
            for partition in metadata.partitions:
                if partition.leader is not None:
                    by_leader.setdefault(partition.leader, []).append(partition.partition)
            if not by_leader:
                by_leader[-1] = [partition.partition for partition in metadata.partitions]
            cached = self._candidates[topic] = _Candidates(metadata, by_leader)
        return cached.by_leader


def _rack_of(node_id: int, view: ClusterView) -> str | None:
    node = view.nodes.get(node_id)
    return None if node is None else node.rack


@mypyc_attr(allow_interpreted_subclasses=True)
class RoundRobinPartitioner:
    """Chooses the next partition with a leader for each record, and ignores keys. Batches become small."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def partition(self, topic: str, key: bytes | None, value: bytes | None, view: ClusterView) -> int:
        partitions = view.topics[topic].partitions
        count = len(partitions)
        first = self._next.get(topic, 0) % count
        position = first
        while partitions[position].leader is None:
            position = (position + 1) % count
            if position == first:
                break
        self._next[topic] = position + 1
        return partitions[position].partition

    def on_new_batch(self, topic: str, partition: int, size: int, view: ClusterView) -> None:
        """Does nothing: the choice does not depend on batches."""

    def on_topic_removed(self, topic: str) -> None:
        """Drop all data about the topic."""
        self._next.pop(topic, None)


@mypyc_attr(allow_interpreted_subclasses=True)
class ExplicitPartitioner:
    """Refuses to choose: every record has to name its partition, otherwise the send raises IllegalStateError."""

    def partition(self, topic: str, key: bytes | None, value: bytes | None, view: ClusterView) -> int:
        raise IllegalStateError(
            f"a record for topic {topic!r} names no partition, which ExplicitPartitioner requires; pass partition="
        )

    def on_new_batch(self, topic: str, partition: int, size: int, view: ClusterView) -> None:
        """Does nothing: the choice does not depend on batches."""
