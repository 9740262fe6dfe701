"""The driver's requests to the cluster: the partitions of a query, and the offsets of its bounds."""

from __future__ import annotations

import asyncio
import difflib
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar

from ..aio.retry import is_momentary
from ..cluster.client import Client
from ..cluster.metadata import TopicView
from ..consumer.offsets import EARLIEST, LATEST, list_offsets
from ..errors import ConfigurationError, ErrorCode, KafkaError, error_for
from ..protocol.messages import MetadataRequest
from ..protocol.schema import ZERO_UUID
from ..types import IsolationLevel, TopicPartition
from . import bounds
from .bounds import (
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    AssignStrategy,
    Bound,
    Edge,
    ExplicitOffsets,
    SubscribePatternStrategy,
    SubscribeStrategy,
    Timestamps,
    Unmatched,
)
from .connection import leased_client
from .offsets import PartitionOffsets, TopicIds, backlog
from .options import Read
from .worker_loop import worker_loop

T = TypeVar("T")

NAMES_AGE = 5.0
"""Seconds for which a pattern uses the names of all topics, which are a large answer in a large cluster. New topics are
found after that."""


def check_topics(read: Read) -> None:
    """Raise unless the cluster answers and has the named topics.

    With ``failOnDataLoss=false`` a missing topic is not an error here: a restarted query continues without it.
    """
    Planner(read).partitions(must_exist=read.fail_on_data_loss)


class Selected(NamedTuple):
    """The partitions that a query selects, sorted, and the ids of their topics."""

    partitions: tuple[TopicPartition, ...]
    topic_ids: TopicIds


class Planner:
    """Looks up partitions and offsets for one query. Each call blocks, and uses the client of this process."""

    def __init__(self, read: Read, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._read = read
        self._topics = _Topics(clock)
        self._isolation = IsolationLevel[read.properties.isolation_level.upper()]

    def __repr__(self) -> str:
        return f"<Planner {self._read.selection}>"

    def partitions(self, *, must_exist: bool = True, checkpoint: Iterable[TopicPartition] = ()) -> Selected:
        """Look up the partitions that the query selects now.

        A broker that has just started may not know a topic yet, so the lookup is repeated up to
        ``fetchOffset.numRetries`` times while it lacks a topic that the options name, or one of the ``checkpoint``
        partitions. After that, what does not exist is left out. With ``must_exist``, a missing topic or partition that
        the options name is a ConfigurationError.
        """
        selection = self._read.selection
        if isinstance(selection, AssignStrategy):
            expected = set(selection.partitions)
        else:
            before = tuple(checkpoint)
            # By topic, because a pattern or a match costs more than the lookup in a set.
            topics = {topic for topic in {topic for topic, _ in before} if _selects_topic(selection, topic)}
            expected = {partition for partition in before if partition[0] in topics}
        # A topic that a broker does not know yet would be left out of the batch, and count as new in the next one.
        for _ in range(self._read.offset_retries):
            selected = self._run(lambda client: _selected(client, self._read, self._topics, False))
            is_complete = expected.issubset(selected.partitions)
            if isinstance(selection, SubscribeStrategy):
                is_complete &= {partition.topic for partition in selected.partitions}.issuperset(selection.topics)
            if is_complete:
                return selected
            self._topics.forget()
            worker_loop().run(asyncio.sleep(self._read.offset_retry_interval))
        return self._run(lambda client: _selected(client, self._read, self._topics, must_exist))

    def selects(self, partition: TopicPartition) -> bool:
        """Return whether the options select this partition, if it exists."""
        selection = self._read.selection
        if isinstance(selection, AssignStrategy):
            return partition in selection.partitions
        return _selects_topic(selection, partition.topic)

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Look up the first offset of each log."""
        return self._look_up(dict.fromkeys(partitions, EARLIEST))

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Look up the end of each log, for this query's isolation level."""
        return self._look_up(dict.fromkeys(partitions, LATEST))

    def latest_from(self, partitions: Iterable[TopicPartition], least: PartitionOffsets) -> dict[TopicPartition, int]:
        """Look up ``latest``, again up to ``fetchOffset.numRetries`` times while a log ends before ``least``.

        A broker that has just become leader may not know its high watermark yet.
        """
        targets = tuple(partitions)
        for _ in range(self._read.offset_retries):
            ends = self.latest(targets)
            if ends == least or all(offset >= least.get(partition, 0) for partition, offset in ends.items()):
                return ends
            worker_loop().run(asyncio.sleep(self._read.offset_retry_interval))
        return self.latest(targets)

    def bytes_per_offset(self, begin: PartitionOffsets, end: PartitionOffsets) -> dict[TopicPartition, float]:
        """Estimate the stored bytes of an unread offset by partition, for the largest backlogs."""
        from .record_sizes import MOST_SAMPLES, bytes_per_offset  # only queries with this limit need it

        unread = backlog(begin, end)
        largest = sorted(unread, key=lambda partition: unread[partition], reverse=True)[:MOST_SAMPLES]
        starts = {partition: begin.get(partition, 0) for partition in largest}
        return self._run(lambda client: bytes_per_offset(client, starts, self._isolation)) if starts else {}

    def resolve(
        self,
        bound: Bound,
        partitions: tuple[TopicPartition, ...],
        name: str,
        *,
        latest: PartitionOffsets | None = None,
    ) -> dict[TopicPartition, int]:
        """Look up the offsets of a bound. ``name`` is its option, ``latest`` the ends of logs, if known.

        Raises ConfigurationError if the bound names other partitions, or a time after the last record of a partition.
        """
        bounds.check_all_named(partitions, bound, name)
        resolved, lookups, at_end = _split(bound, partitions)
        offsets = self._run(lambda client: self._list(client, lookups))
        for partition, offset in offsets.items():
            if offset is not None:
                resolved[partition] = offset
            elif isinstance(bound, Timestamps) and bound.unmatched is Unmatched.ERROR:
                raise ConfigurationError(
                    f"option {name}: {partition} has no record at or after timestamp {lookups[partition]}; give an "
                    "earlier time, or set startingOffsetsByTimestampStrategy=latest to begin at its end"
                )
            else:
                at_end.append(partition)
        # All ends are looked up in one request. With availableNow they are the target that was set before: a later end
        # would let the query read beyond it.
        known_ends = latest or {}
        ends = self.latest(partition for partition in at_end if partition not in known_ends)
        return resolved | {
            partition: known_ends[partition] if partition in known_ends else ends[partition] for partition in at_end
        }

    def _look_up(self, lookups: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        offsets = self._run(lambda client: self._list(client, lookups))
        return {partition: offset for partition, offset in offsets.items() if offset is not None}

    async def _list(self, client: Client, lookups: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        if not lookups:
            return {}
        answers = await list_offsets(client, lookups, self._isolation, timeout=client.config.api_timeout)
        return {partition: None if answer is None else answer.offset for partition, answer in answers.items()}

    def _run(self, request: Callable[[Client], Awaitable[T]]) -> T:
        """Run a request. Errors that may pass, and timeouts, are retried ``fetchOffset.numRetries`` times."""
        loop = worker_loop()
        with leased_client(loop, self._read.properties) as client:
            failures = 0
            while True:
                try:
                    return loop.run(_awaited(request, client))
                except KafkaError as error:
                    failures += 1
                    if failures > self._read.offset_retries or not is_momentary(error):
                        raise
                loop.run(asyncio.sleep(self._read.offset_retry_interval))


def _selects_topic(selection: SubscribeStrategy | SubscribePatternStrategy, topic: str) -> bool:
    return topic in selection.topics if isinstance(selection, SubscribeStrategy) else selection.matches(topic)


async def _awaited(request: Callable[[Client], Awaitable[T]], client: Client) -> T:
    return await request(client)


def _split(
    bound: Bound, partitions: Iterable[TopicPartition]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int], list[TopicPartition]]:
    """Divide partitions into those with an offset, with a timestamp to look up, and those that begin at their end."""
    resolved: dict[TopicPartition, int] = {}
    lookups: dict[TopicPartition, int] = {}
    at_end: list[TopicPartition] = []
    for partition in partitions:
        match bound:
            case Edge():
                offset = EARLIEST_OFFSET if bound is Edge.EARLIEST else LATEST_OFFSET
            case ExplicitOffsets(by_partition):
                offset = by_partition[partition]
            case Timestamps():
                lookups[partition] = bound.of(partition)
                continue
        if offset == LATEST_OFFSET:
            at_end.append(partition)
        elif offset == EARLIEST_OFFSET:
            lookups[partition] = EARLIEST
        else:
            resolved[partition] = offset
    return resolved, lookups, at_end


class _Topics:
    """What one query knows of topics from trigger to trigger, so that a trigger without changes costs little."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._names: list[str] = []
        self._names_until = 0.0
        self._partitions: dict[str, tuple[TopicView, list[TopicPartition]]] = {}

    async def names(self, client: Client) -> list[str]:
        """Return the names of all topics, at most ``NAMES_AGE`` seconds old."""
        if self._clock() >= self._names_until:
            self._names = await _all_topics(client)
            self._names_until = self._clock() + NAMES_AGE
        return self._names

    def forget(self) -> None:
        """Ask again for the names of topics at the next use."""
        self._names_until = 0.0

    def partitions(self, topic: TopicView) -> list[TopicPartition]:
        """Return the partitions of a topic. Metadata keeps the object of a topic that has not changed."""
        known_topic, partitions = self._partitions.get(topic.name, (None, []))
        if known_topic is not topic:
            partitions = sorted(TopicPartition(topic.name, partition.partition) for partition in topic.partitions)
            assert len(set(partitions)) == len(partitions), "a partition is selected once"
            self._partitions[topic.name] = topic, partitions
        return partitions


async def _selected(client: Client, read: Read, cache: _Topics, must_exist: bool) -> Selected:
    match read.selection:
        case SubscribeStrategy(topics):
            return await _partitions_of(client, cache, topics, "subscribe", must_exist)
        case SubscribePatternStrategy() as pattern:
            # A pattern may match no topic yet. A topic that is deleted meanwhile is no error either.
            names = [name for name in await cache.names(client) if pattern.matches(name)]
            return await _partitions_of(client, cache, names, "subscribePattern", False)
        case AssignStrategy(partitions):
            existing = await _partitions_of(
                client, cache, {partition.topic for partition in partitions}, "assign", must_exist
            )
            missing = [str(partition) for partition in partitions if partition not in existing.partitions]
            if missing and must_exist:
                raise ConfigurationError(f"option assign names {', '.join(missing)}, which does not exist")
            return Selected(tuple(sorted(set(partitions).intersection(existing.partitions))), existing.topic_ids)


async def _all_topics(client: Client) -> list[str]:
    answer = await client.send(MetadataRequest(topics=None))
    return sorted(topic.name for topic in answer.topics if topic.name and not topic.is_internal)


async def _partitions_of(
    client: Client, cache: _Topics, topics: Iterable[str], option: str, must_exist: bool
) -> Selected:
    names = sorted(set(topics))
    # At once: triggers have a pace of their own, which the pace of failed requests would only add up to.
    view = await client.refresh(names, at_once=True) if names else client.view
    partitions: list[TopicPartition] = []
    topic_ids: dict[str, bytes] = {}
    for name in names:
        topic = view.topics.get(name)
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error
        if error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            if must_exist:
                near = difflib.get_close_matches(name, await _all_topics(client), n=1)
                hint = f"did you mean {near[0]!r}?" if near else "create it, or correct the name"
                raise ConfigurationError(f"option {option}: the cluster has no topic {name!r}; {hint}")
        elif error is not ErrorCode.NONE:
            # A refused topic must not be left out silently: its records would be missing without an error.
            raise error_for(error, f"topic {name!r}")
        elif topic is not None:
            partitions += cache.partitions(topic)  # in order, because the names are
            if topic.topic_id != ZERO_UUID:
                topic_ids[name] = topic.topic_id
    return Selected(tuple(partitions), topic_ids)
