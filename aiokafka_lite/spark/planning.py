"""What the driver asks the cluster: which partitions there are, and which offsets a query's bounds stand for."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeVar

from ..aio.retry import Backoff
from ..cluster.client import Client
from ..consumer.offsets import EARLIEST, LATEST, is_passing, list_offsets
from ..errors import ConfigurationError, ErrorCode, KafkaError, error_for
from ..protocol.messages import MetadataRequest
from ..types import IsolationLevel, TopicPartition
from . import bounds
from .bounds import (
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    Assign,
    Bound,
    Edge,
    Offsets,
    Subscribe,
    SubscribePattern,
    Timestamps,
    Unmatched,
)
from .connection import leased_client
from .offsets import PartitionOffsets
from .options import Read
from .runtime import runtime

T = TypeVar("T")


def check_topics(read: Read) -> None:
    """Raise unless the cluster can be reached and has the topics that are named.

    A query that may go on without what is gone is only told where it begins: a restarted one begins nowhere anew.
    """
    Planner(read).partitions(gone_is_wrong=read.fail_on_data_loss)


class Planner:
    """Answers the driver's questions about one query. Each call blocks, and shares the process's client."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._isolation = IsolationLevel[read.properties.isolation_level.upper()]

    def __repr__(self) -> str:
        return f"<Planner {self._read.selection}>"

    def partitions(self, *, gone_is_wrong: bool = True) -> tuple[TopicPartition, ...]:
        """The partitions that the query selects now, sorted.

        ConfigurationError if a topic or partition that it names is not there; unless not ``gone_is_wrong``, and it is
        left out.
        """
        return self._ask(lambda client: _selected(client, self._read, gone_is_wrong))

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where their logs begin."""
        return self._look_up(dict.fromkeys(partitions, EARLIEST))

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where their logs end, for this query's isolation level."""
        return self._look_up(dict.fromkeys(partitions, LATEST))

    def latest_from(self, partitions: Iterable[TopicPartition], known: PartitionOffsets) -> dict[TopicPartition, int]:
        """As ``latest``; asked again a few times where a log seems to end before a ``known`` offset of it.

        A broker that has just become leader may not know yet how far its log was acknowledged.
        """
        wanted = tuple(partitions)
        for _ in range(self._read.offset_retries):
            found = self.latest(wanted)
            if all(offset >= known.get(partition, 0) for partition, offset in found.items()):
                return found
            runtime().run(asyncio.sleep(self._read.offset_retry_interval))
        return self.latest(wanted)

    def resolve(
        self,
        bound: Bound,
        partitions: tuple[TopicPartition, ...],
        name: str,
        *,
        latest: PartitionOffsets | None = None,
    ) -> dict[TopicPartition, int]:
        """The offsets that a bound stands for; ``name`` is its option, ``latest`` is what counts as the end, if known.

        ConfigurationError if it names other partitions than these, or a time that is younger than all records.
        """
        bounds.check_all_named(partitions, bound, name)
        resolved, asked, at_end = _sorted_out(bound, partitions)
        found = self._ask(lambda client: self._list(client, asked))
        for partition, offset in found.items():
            if offset is not None:
                resolved[partition] = offset
            elif isinstance(bound, Timestamps) and bound.unmatched is Unmatched.ERROR:
                raise ConfigurationError(
                    f"option {name}: {partition} has no record from {asked[partition]} on; write an earlier time, or "
                    "startingOffsetsByTimestampStrategy=latest to begin at its end"
                )
            else:
                at_end.append(partition)
        known_ends = latest or {}
        ends = self.latest(partition for partition in at_end if partition not in known_ends)
        return resolved | {each: known_ends[each] if each in known_ends else ends[each] for each in at_end}

    def offsets_from(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The first offset whose record is not older than a time in milliseconds; None where there is none."""
        return self._ask(lambda client: self._list(client, times))

    def _look_up(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        found = self._ask(lambda client: self._list(client, wanted))
        return {partition: offset for partition, offset in found.items() if offset is not None}

    async def _list(self, client: Client, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        if not wanted:
            return {}
        config = client.config
        found = await list_offsets(
            client,
            wanted,
            self._isolation,
            timeout=config.api_timeout,
            backoff=Backoff(config.retry_backoff, config.retry_backoff_max),
        )
        return {partition: None if answer is None else answer.offset for partition, answer in found.items()}

    def _ask(self, question: Callable[[Client], Awaitable[T]]) -> T:
        """Ask, and ask again as often as the options say when it took too long, or failed in a way that passes."""
        here = runtime()
        with leased_client(here, self._read.properties) as client:
            tries = 0
            while True:
                try:
                    return here.run(_awaited(question, client))
                except KafkaError as error:
                    tries += 1
                    if tries > self._read.offset_retries or not is_passing(error):
                        raise
                here.run(asyncio.sleep(self._read.offset_retry_interval))


async def _awaited(question: Callable[[Client], Awaitable[T]], client: Client) -> T:
    return await question(client)


def _sorted_out(
    bound: Bound, partitions: Iterable[TopicPartition]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int], list[TopicPartition]]:
    """The partitions whose offset is given, those whose leader has to be asked (with what), those that mean the end."""
    given: dict[TopicPartition, int] = {}
    asked: dict[TopicPartition, int] = {}
    at_end: list[TopicPartition] = []
    for partition in partitions:
        match bound:
            case Edge():
                offset = EARLIEST_OFFSET if bound is Edge.EARLIEST else LATEST_OFFSET
            case Offsets(by_partition):
                offset = by_partition[partition]
            case Timestamps(times):
                asked[partition] = times if isinstance(times, int) else times[partition]
                continue
        if offset == LATEST_OFFSET:
            at_end.append(partition)
        elif offset == EARLIEST_OFFSET:
            asked[partition] = EARLIEST
        else:
            given[partition] = offset
    return given, asked, at_end


async def _selected(client: Client, read: Read, gone_is_wrong: bool) -> tuple[TopicPartition, ...]:
    match read.selection:
        case Subscribe(topics):
            known = await _partitions_of(client, topics, "subscribe", gone_is_wrong)
        case SubscribePattern(pattern):
            names = [name for name in await _all_topics(client) if re.fullmatch(pattern, name)]
            known = await _partitions_of(client, names, "subscribePattern", False)
        case Assign(partitions):
            all_known = set(await _partitions_of(client, {each.topic for each in partitions}, "assign", gone_is_wrong))
            missing = [str(each) for each in partitions if each not in all_known]
            if missing and gone_is_wrong:
                raise ConfigurationError(f"option assign: there is no partition {', '.join(missing)}")
            known = [each for each in partitions if each in all_known]
    return tuple(sorted(known))


async def _all_topics(client: Client) -> list[str]:
    answer = await client.send(MetadataRequest(topics=None, allow_auto_topic_creation=False))
    return sorted(topic.name for topic in answer.topics if topic.name and not topic.is_internal)


async def _partitions_of(
    client: Client, topics: Iterable[str], option: str, gone_is_wrong: bool
) -> list[TopicPartition]:
    names = sorted(topics)
    if not names:
        return []
    view = await client.refresh(names)
    found: list[TopicPartition] = []
    for name in names:
        topic = view.topics.get(name)
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error
        if error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            if gone_is_wrong:
                raise ConfigurationError(
                    f"option {option}: the cluster has no topic {name!r}; create it first, or mind the spelling"
                )
        elif error is not ErrorCode.NONE:
            raise error_for(error, f"topic {name!r}")
        elif topic is not None:
            found += (TopicPartition(name, partition.partition) for partition in topic.partitions)
    return found
