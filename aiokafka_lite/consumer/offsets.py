"""Looking up offsets by time at the leaders (ListOffsets).

The first half is pure and shared with the position keeper, which looks up the offsets that the consumer itself needs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

import anyio

from ..aio.deadline import deadline
from ..aio.retry import is_retriable
from ..aio.service import unwrapped
from ..arguments import plural
from ..cluster.client import Client
from ..cluster.metadata import ClusterView, TopicView
from ..errors import ErrorCode, KafkaError, error_for
from ..net.connection import Purpose
from ..protocol.messages import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
    ListOffsetsResponse,
)
from ..types import IsolationLevel, TopicPartition

LATEST = -1  # the end: the high watermark, or the last stable offset for read_committed
EARLIEST = -2
CONSUMER = -1  # the replica id that consumers send

LOOKUPS_PER_REQUEST = 2_000
"""The most partitions of one request. One answer for 100,000 partitions blocked the event loop for over half a
second."""

NEW_PARTITION_TIMEOUT = 1.0
"""Seconds for which metadata is requested again if it lacks a partition of a topic, because the partition may be
new."""


class OffsetAndTimestamp(NamedTuple):
    """The first offset at or after some time.

    ``timestamp`` is the time of the record at ``offset``, in milliseconds; -1 when the lookup was not by time.
    """

    offset: int
    timestamp: int
    leader_epoch: int | None


@dataclass(slots=True)
class LookupAnswer:
    """The answer of one leader. The offset is None for a partition whose records are all older than the time."""

    offsets: dict[TopicPartition, OffsetAndTimestamp | None] = field(default_factory=dict)
    errors: dict[TopicPartition, ErrorCode] = field(default_factory=dict)


def in_parts(timestamps: Mapping[TopicPartition, int]) -> Iterator[dict[TopicPartition, int]]:
    """Divide lookups at one leader into requests of at most ``LOOKUPS_PER_REQUEST`` partitions."""
    remaining = iter(timestamps.items())
    while part := dict(islice(remaining, LOOKUPS_PER_REQUEST)):
        yield part


def lookup_request(
    view: ClusterView, timestamps: Mapping[TopicPartition, int], isolation: IsolationLevel
) -> ListOffsetsRequest:
    """Build one request for partitions of one leader, by timestamps in milliseconds, or LATEST, EARLIEST."""
    topics: dict[str, list[ListOffsetsRequestPartition]] = {}
    for partition, timestamp in timestamps.items():
        partition_view = view.partition(partition)
        epoch = None if partition_view is None else partition_view.leader_epoch
        topics.setdefault(partition.topic, []).append(
            ListOffsetsRequestPartition(
                partition_index=partition.partition,
                current_leader_epoch=-1 if epoch is None else epoch,
                timestamp=timestamp,
            )
        )
    return ListOffsetsRequest(
        replica_id=CONSUMER,
        isolation_level=int(isolation),
        topics=[ListOffsetsRequestTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
    )


def read_lookup(timestamps: Mapping[TopicPartition, int], response: ListOffsetsResponse) -> LookupAnswer:
    """Read the answer by partition, for those in ``timestamps``.

    If the answer omits a partition, the broker does not know the partition. Each log has a first and a last offset. If
    one of these was requested and the answer has none, the offset is not available yet.
    """
    answer = LookupAnswer()
    for topic in response.topics:
        for result in topic.partitions:
            partition = TopicPartition(topic.name, result.partition_index)
            if partition not in timestamps:
                continue
            if result.error_code:
                answer.errors[partition] = ErrorCode.of(result.error_code)
            elif result.offset < 0 and timestamps[partition] < 0:
                answer.errors[partition] = ErrorCode.OFFSET_NOT_AVAILABLE
            elif result.offset < 0:
                answer.offsets[partition] = None
            else:
                epoch = result.leader_epoch if result.leader_epoch >= 0 else None
                answer.offsets[partition] = OffsetAndTimestamp(result.offset, result.timestamp, epoch)
    for partition in timestamps:
        if partition not in answer.offsets:
            answer.errors.setdefault(partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return answer


def is_confirmed(view: ClusterView, lacking_since: float) -> bool:
    """Return whether newer metadata proves that a partition, missing since ``lacking_since``, does not exist."""
    return view.updated_at is not None and view.updated_at >= lacking_since + NEW_PARTITION_TIMEOUT


async def list_offsets(
    client: Client,
    timestamps: Mapping[TopicPartition, int],
    isolation: IsolationLevel,
    *,
    timeout: float,
) -> dict[TopicPartition, OffsetAndTimestamp | None]:
    """Look up offsets at all leaders at once, and again where metadata was outdated, until all are found.

    Raises UnknownTopic and other errors that are not retriable, KafkaTimeout after ``timeout`` seconds.
    """
    loop = asyncio.get_running_loop()
    at = loop.time() + timeout
    # Not a set, because requests follow this order.
    for name in dict.fromkeys(partition.topic for partition in timestamps):
        # This is outside of the deadline below, because its error text names the problem of the topic.
        # Rounded, because the text of a KafkaTimeout names it.
        await client.topic(name, timeout=round(at - loop.time(), 3))
    return await _Lookup(client, timestamps, isolation, timeout, at).run()


class _Lookup:
    """One call of ``list_offsets``: the offsets so far, and the last error of each partition that is still missing."""

    def __init__(
        self,
        client: Client,
        timestamps: Mapping[TopicPartition, int],
        isolation: IsolationLevel,
        timeout: float,
        at: float,
    ) -> None:
        self._client = client
        self._timestamps = timestamps
        self._isolation = isolation
        self._timeout = timeout
        self._at = at
        self._backoff = client.retry_backoff()
        self._offsets: dict[TopicPartition, OffsetAndTimestamp | None] = {}
        self._errors: dict[TopicPartition, str] = {}
        self._lacking_since: float | None = None  # the loop's time at which metadata first lacked a partition

    async def run(self) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        with deadline.at(self._at, self._describe_timeout):
            while missing := {
                partition: timestamp
                for partition, timestamp in self._timestamps.items()
                if partition not in self._offsets
            }:
                await self._ask_leaders(missing)
                if len(self._offsets) < len(self._timestamps):
                    self._client.request_refresh()
                    await asyncio.sleep(self._backoff.next())
        return {partition: self._offsets[partition] for partition in self._timestamps}

    def _describe_timeout(self) -> str:
        missing = (partition for partition in self._timestamps if partition not in self._offsets)
        text = ", ".join(f"{partition} ({self._errors.get(partition, 'not answered')})" for partition in missing)
        return f"offsets were not found within {self._timeout:g} s for {text}"

    async def _ask_leaders(self, missing: Mapping[TopicPartition, int]) -> None:
        """Ask all leaders concurrently. Raises the first error that is not retriable."""
        refused: list[KafkaError] = []
        shares = self._by_leader(missing)
        try:
            async with anyio.create_task_group() as group:
                for node_id, share in shares.items():
                    group.start_soon(self._ask, node_id, share, refused)
        except BaseExceptionGroup as errors:
            raise unwrapped(errors) from None
        if refused:
            raise refused[0]

    def _by_leader(self, missing: Mapping[TopicPartition, int]) -> dict[int, dict[TopicPartition, int]]:
        view = self._client.view
        by_node: dict[int, dict[TopicPartition, int]] = {}
        for partition, timestamp in missing.items():
            leader = view.leader_of(partition)
            if leader is not None:
                by_node.setdefault(leader.node_id, {})[partition] = timestamp
                continue
            topic = view.topics.get(partition.topic)
            self._errors[partition] = "no leader"
            if topic is not None and topic.is_usable and topic.partition(partition.partition) is None:
                self._errors[partition] = self._check_lacking(partition, topic)
        return by_node

    def _check_lacking(self, partition: TopicPartition, topic: TopicView) -> str:
        """Raise UnknownTopic if newer metadata lacks the partition too. Returns the error text otherwise."""
        why = f"topic {partition.topic!r} has {plural(len(topic.partitions), 'partition')}; there is no {partition}"
        if self._lacking_since is None:
            self._lacking_since = asyncio.get_running_loop().time()
        if is_confirmed(self._client.view, self._lacking_since):
            raise error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, reason=why, at=partition)
        return why

    async def _ask(self, node_id: int, share: dict[TopicPartition, int], refused: list[KafkaError]) -> None:
        """Ask one leader. Errors are collected, because raising one here would cancel the other requests."""
        for part in in_parts(share):
            request = lookup_request(self._client.view, part, self._isolation)
            try:
                response = await self._client.send(
                    request, node=node_id, purpose=Purpose.OTHER, timeout=self._timeout, retry=False
                )
            except KafkaError as error:
                self._errors.update((partition, str(error)) for partition in share if partition not in self._offsets)
                if not is_retriable(error):
                    refused.append(error)
                return
            answer = read_lookup(part, response)
            self._offsets.update(answer.offsets)
            for partition, code in answer.errors.items():
                self._errors[partition] = code.name
                if not code.retriable:
                    refused.append(error_for(code, f"looking up an offset of {partition}", at=partition))
