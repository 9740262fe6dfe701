"""Which partition a record goes to."""

from __future__ import annotations

import random as _random
from collections.abc import Callable
from typing import Protocol

from ..cluster.metadata import ClusterView
from ..protocol.records import partition_for_key

STICKY_BYTES = 32 * 1024
"""Bytes that go to one partition before records without a key go to the next: half of a full batch by default."""


class Partitioner(Protocol):
    """Chooses partitions for records that name none. Called in the loop, so it must not block."""

    def partition(self, topic: str, key: bytes | None, value: bytes | None, view: ClusterView) -> int:
        """The partition for a record, from 0 up to the topic's count in ``view``."""
        ...

    def on_new_batch(self, topic: str, partition: int, size: int, view: ClusterView) -> None:
        """The batch of that partition was closed with ``size`` bytes: the next record there begins a new one."""
        ...


class DefaultPartitioner:
    """By the key's hash, as the Java client places it; without a key, sticky.

    Sticky (KIP-480) means that records without a key stay on one partition, so that they fill batches, and then move to
    another one that has a leader, chosen at random. They move at the end of a batch, after `STICKY_BYTES` or more
    (KIP-794): a switch at the end of *every* batch would give slow brokers, whose batches are larger, more than others.
    """

    def __init__(self, *, sticky_bytes: int = STICKY_BYTES, random: Callable[[], float] = _random.random) -> None:
        self._sticky_bytes = sticky_bytes
        self._random = random
        self._sticky: dict[str, int] = {}
        self._bytes: dict[str, int] = {}

    def partition(self, topic: str, key: bytes | None, value: bytes | None, view: ClusterView) -> int:
        count = len(view.topics[topic].partitions)
        if key is not None:
            return partition_for_key(key, count)
        sticky = self._sticky.get(topic, count)
        return sticky if sticky < count else self._switch(topic, view)

    def on_new_batch(self, topic: str, partition: int, size: int, view: ClusterView) -> None:
        if self._sticky.get(topic) != partition:
            return
        written = self._bytes[topic] = self._bytes[topic] + size
        if written >= self._sticky_bytes:
            self._switch(topic, view)

    def _switch(self, topic: str, view: ClusterView) -> int:
        partitions = view.topics[topic].partitions
        led = [each.partition for each in partitions if each.leader is not None]
        candidates = led or [each.partition for each in partitions]
        before = self._sticky.get(topic)
        if len(candidates) > 1 and before in candidates:
            candidates.remove(before)
        chosen = candidates[int(self._random() * len(candidates))]
        self._sticky[topic], self._bytes[topic] = chosen, 0
        return chosen


class RoundRobinPartitioner:
    """Each record to the next partition, whatever its key: even to the record, at the price of small batches."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def partition(self, topic: str, key: bytes | None, value: bytes | None, view: ClusterView) -> int:
        number = self._next.get(topic, 0) % len(view.topics[topic].partitions)
        self._next[topic] = number + 1
        return number

    def on_new_batch(self, topic: str, partition: int, size: int, view: ClusterView) -> None:
        """Nothing depends on batches here."""
