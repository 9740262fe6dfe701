"""Which partition a record goes to."""

from __future__ import annotations

import random as _random
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple, Protocol, runtime_checkable

from ..cluster.metadata import ClusterView, TopicView
from ..errors import ConfigurationError, IllegalStateError
from ..protocol.records import partition_for_key

STICKY_BYTES = 32 * 1024
"""Bytes that go to one partition before records without a key go to the next: half of a full batch by default."""


REMEMBERED_KEYS = 4096
"""Keys whose partitions are remembered, those used last."""

REMEMBERED_SIZE = 128
"""Bytes of the longest key that is remembered: all of them together take about a megabyte at most."""


class Partitioner(Protocol):
    """Chooses partitions for records that name none. Called in the loop, so it must not block; one for each producer.

    What it raises comes out of the send: a KafkaError as it is.
    """

    def partition(self, topic: str, key: bytes | None, value: bytes | None, view: ClusterView) -> int:
        """The partition for a record, from 0 up to the topic's count in ``view``."""
        ...

    def on_new_batch(self, topic: str, partition: int, size: int, view: ClusterView) -> None:
        """The batch of that partition was closed with ``size`` bytes: the next record there begins a new one."""
        ...


class BrokerLoad(Protocol):
    """How busy brokers are, as this producer sees it."""

    def queued(self, node_id: int) -> int:
        """Bytes of closed batches that wait for the broker, or for its answer."""
        ...

    def is_reachable(self, node_id: int) -> bool:
        """False while connections to the broker fail."""
        ...


@runtime_checkable
class LoadAware(Protocol):
    """A partitioner that has this method is given the brokers' load when the producer starts."""

    def use_load(self, load: BrokerLoad) -> None:
        """Ask this one from now on."""
        ...


@runtime_checkable
class Forgetful(Protocol):
    """A partitioner that has this method is told when a topic has not been written to for long."""

    def forget(self, topic: str) -> None:
        """Nothing need be remembered of the topic."""
        ...


class _Idle:
    def queued(self, node_id: int) -> int:
        return 0

    def is_reachable(self, node_id: int) -> bool:
        return True


class _Candidates(NamedTuple):
    """The partitions of a topic by their leaders; of all that it has, if none has a leader (under -1 then)."""

    view: TopicView
    by_leader: dict[int, list[int]]


class DefaultPartitioner:
    """By the key's hash, as the Java client places it; without a key, sticky.

    Sticky (KIP-480) means that records without a key stay on one partition, so that they fill batches, and then move to
    one chosen at random. They move at the end of a batch, after ``sticky_bytes`` or more (KIP-794): a switch
    at the end of *every* batch would give slow brokers, whose batches are larger, more than others.

    The choice leaves out partitions without a leader and those whose broker cannot be reached. With ``adaptive``, a
    broker's partitions are the less likely the more is queued for it: the weight of each is by how much the queue of
    its broker falls short of the longest, plus ``sticky_bytes``, so that none is left out for good.
    """

    def __init__(
        self,
        *,
        sticky_bytes: int = STICKY_BYTES,
        adaptive: bool = True,
        random: Callable[[], float] = _random.random,
    ) -> None:
        if sticky_bytes < 1:
            raise ConfigurationError(f"sticky_bytes={sticky_bytes!r}: a whole number of bytes from 1 up")
        self._sticky_bytes = sticky_bytes
        self._adaptive = adaptive
        self._random = random
        # Most keys come again, and to look nine bytes up takes 0.07 µs, where to hash them takes 1.0.
        self._placed = lru_cache(maxsize=REMEMBERED_KEYS)(partition_for_key)
        self._load: BrokerLoad = _Idle()
        self._sticky: dict[str, int] = {}
        self._bytes: dict[str, int] = {}
        self._candidates: dict[str, _Candidates] = {}

    def use_load(self, load: BrokerLoad) -> None:
        """Choose by this load from now on."""
        self._load = load

    def partition(self, topic: str, key: bytes | None, value: bytes | None, view: ClusterView) -> int:
        count = len(view.topics[topic].partitions)
        if key is not None:
            return self._placed(key, count) if len(key) <= REMEMBERED_SIZE else partition_for_key(key, count)
        sticky = self._sticky.get(topic, count)
        return sticky if sticky < count else self._switch(topic, view)

    def on_new_batch(self, topic: str, partition: int, size: int, view: ClusterView) -> None:
        if self._sticky.get(topic) != partition:
            return
        written = self._bytes[topic] = self._bytes[topic] + size
        if written >= self._sticky_bytes:
            self._switch(topic, view)

    def forget(self, topic: str) -> None:
        """Begin anew with the topic."""
        for memory in (self._sticky, self._bytes, self._candidates):
            memory.pop(topic, None)

    def _switch(self, topic: str, view: ClusterView) -> int:
        """Choose anew, maybe the same again: of two partitions in strict turn, the slow one would get half."""
        by_leader = self._by_leader(topic, view)
        leaders = [leader for leader in by_leader if self._load.is_reachable(leader)] or list(by_leader)
        # First a leader, then one of its partitions: a topic may have thousands of those, a cluster few brokers.
        shares = [weight * len(by_leader[leader]) for leader, weight in zip(leaders, self._weights(leaders))]
        point = self._random() * sum(shares)
        for leader, share in zip(leaders, shares):  # noqa: B007 - the last one, should rounding reach past the end
            if point < share:
                break
            point -= share
        partitions = by_leader[leader]
        chosen = partitions[int(self._random() * len(partitions))]
        self._sticky[topic], self._bytes[topic] = chosen, 0
        return chosen

    def _weights(self, leaders: list[int]) -> list[int]:
        if not self._adaptive:
            return [1] * len(leaders)
        queued = [self._load.queued(leader) for leader in leaders]
        highest = max(queued) + self._sticky_bytes
        return [highest - each for each in queued]

    def _by_leader(self, topic: str, view: ClusterView) -> dict[int, list[int]]:
        known = view.topics[topic]
        cached = self._candidates.get(topic)
        if cached is None or cached.view is not known:
            by_leader: dict[int, list[int]] = {}
            for each in known.partitions:
                if each.leader is not None:
                    by_leader.setdefault(each.leader, []).append(each.partition)
            if not by_leader:
                by_leader[-1] = [each.partition for each in known.partitions]
            cached = self._candidates[topic] = _Candidates(known, by_leader)
        return cached.by_leader


class RoundRobinPartitioner:
    """Each record to the next partition that has a leader, whatever its key: even, at the price of small batches."""

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
        """Nothing depends on batches here."""

    def forget(self, topic: str) -> None:
        """Begin anew with the topic."""
        self._next.pop(topic, None)


class ExplicitPartitioner:
    """Chooses nothing: every record has to name its partition, and IllegalStateError comes out of a send without."""

    def partition(self, topic: str, key: bytes | None, value: bytes | None, view: ClusterView) -> int:
        raise IllegalStateError(
            f"a record for topic {topic!r} names no partition, and ExplicitPartitioner chooses none"
        )

    def on_new_batch(self, topic: str, partition: int, size: int, view: ClusterView) -> None:
        """Nothing depends on batches here."""
