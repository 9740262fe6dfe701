"""Looking up offsets by time at the leaders (ListOffsets), and merging what they say.

The first half is pure and shared with the position keeper, which asks for the offsets that the consumer itself needs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import anyio

from ..aio.retry import Backoff
from ..aio.service import unwrapped
from ..cluster.client import Client
from ..cluster.metadata import ClusterView
from ..errors import BrokerError, ConnectionLost, ErrorCode, KafkaError, KafkaTimeout, ProtocolError, error_for
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
CONSUMER = -1  # the replica id of who is no replica


class OffsetAndTimestamp(NamedTuple):
    """Where to read from to see everything since some time.

    ``timestamp`` is that of the record at ``offset``, in milliseconds, -1 when the lookup was not by time.
    """

    offset: int
    timestamp: int
    leader_epoch: int | None


@dataclass(slots=True)
class LookupAnswer:
    """What one leader said. A partition that it has no such offset for (nothing is that young) is found as None."""

    found: dict[TopicPartition, OffsetAndTimestamp | None] = field(default_factory=dict)
    errors: dict[TopicPartition, ErrorCode] = field(default_factory=dict)


def lookup_request(
    view: ClusterView, wanted: Mapping[TopicPartition, int], isolation: IsolationLevel
) -> ListOffsetsRequest:
    """One request for timestamps (milliseconds, or LATEST, EARLIEST) of partitions that have one leader."""
    topics: dict[str, list[ListOffsetsRequestPartition]] = {}
    for partition, timestamp in wanted.items():
        known = view.partition(partition)
        epoch = None if known is None else known.leader_epoch
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
        topics=[ListOffsetsRequestTopic(name=name, partitions=each) for name, each in topics.items()],
    )


def read_lookup(wanted: Iterable[TopicPartition], response: ListOffsetsResponse) -> LookupAnswer:
    """What the response says of each wanted partition; one that it leaves out counts as unknown there."""
    answer = LookupAnswer()
    for topic in response.topics:
        for given in topic.partitions:
            partition = TopicPartition(topic.name, given.partition_index)
            code = ErrorCode.of(given.error_code)
            if code is not ErrorCode.NONE:
                answer.errors[partition] = code
            elif given.offset < 0:
                answer.found[partition] = None
            else:
                epoch = given.leader_epoch if given.leader_epoch >= 0 else None
                answer.found[partition] = OffsetAndTimestamp(given.offset, given.timestamp, epoch)
    for partition in wanted:
        if partition not in answer.found:
            answer.errors.setdefault(partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return answer


async def list_offsets(
    client: Client,
    wanted: Mapping[TopicPartition, int],
    isolation: IsolationLevel,
    *,
    timeout: float,
    backoff: Backoff,
) -> dict[TopicPartition, OffsetAndTimestamp | None]:
    """Ask all leaders at once, and again where metadata was stale, until every partition has its answer.

    Raises UnknownTopic and its like for what will not get better, KafkaTimeout after ``timeout`` seconds.
    """
    found: dict[TopicPartition, OffsetAndTimestamp | None] = {}
    trouble: dict[TopicPartition, str] = {}
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout
    for name in {partition.topic for partition in wanted}:
        # With no other deadline around it, as it says at its own what is wrong with the topic.
        await client.topic(name, timeout=round(deadline - loop.time(), 3))
    try:
        async with asyncio.timeout_at(deadline) as scope:
            while missing := {each: wanted[each] for each in wanted if each not in found}:
                await _ask_leaders(client, missing, isolation, timeout, found, trouble)
                if len(found) < len(wanted):
                    client.request_refresh()
                    await asyncio.sleep(backoff.next())
    except TimeoutError as error:
        if not scope.expired():  # a KafkaTimeout of something inside
            raise
        missing_text = ", ".join(
            f"{each} ({trouble.get(each, 'not answered')})" for each in wanted if each not in found
        )
        raise KafkaTimeout(f"offsets were not found within {timeout:g} s for {missing_text}") from error
    return {each: found[each] for each in wanted}


async def _ask_leaders(
    client: Client,
    wanted: Mapping[TopicPartition, int],
    isolation: IsolationLevel,
    timeout: float,
    found: dict[TopicPartition, OffsetAndTimestamp | None],
    trouble: dict[TopicPartition, str],
) -> None:
    """A round: one request to each leader, at once. What may get better goes to ``trouble``; the rest is raised."""
    view = client.view
    by_node: dict[int, dict[TopicPartition, int]] = {}
    for partition, timestamp in wanted.items():
        leader = view.leader_of(partition)
        if leader is not None:
            by_node.setdefault(leader.node_id, {})[partition] = timestamp
            continue
        topic = view.topics.get(partition.topic)
        if topic is not None and topic.is_usable and topic.partition(partition.partition) is None:
            raise error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{partition} is not among {len(topic.partitions)}")
        trouble[partition] = "no leader"

    refused: list[tuple[TopicPartition, ErrorCode]] = []

    async def ask(node_id: int, share: dict[TopicPartition, int]) -> None:
        request = lookup_request(view, share, isolation)
        try:
            response = await client.send(request, node=node_id, purpose=Purpose.OTHER, timeout=timeout, retry=False)
        except KafkaError as error:  # not raised here: one broker's failure would cut off the answers of the others
            failures.append(error)
            trouble.update(dict.fromkeys(share, str(error)))
            return
        answer = read_lookup(share, response)
        found.update(answer.found)
        for partition, code in answer.errors.items():
            trouble[partition] = code.name
            if not code.retriable:
                refused.append((partition, code))

    failures: list[KafkaError] = []
    try:
        async with anyio.create_task_group() as group:
            for node_id, share in by_node.items():
                group.start_soon(ask, node_id, share)
    except BaseExceptionGroup as errors:
        raise unwrapped(errors) from None
    for partition, code in refused:
        raise error_for(code, f"looking up an offset of {partition}")
    for failure in failures:
        if not is_passing(failure):
            raise failure


def is_passing(error: KafkaError) -> bool:
    """Whether a request that failed so may succeed on another connection, or at another broker, later."""
    if isinstance(error, BrokerError):
        return error.code.retriable or error.code is ErrorCode.BROKER_NOT_AVAILABLE  # it has just left the cluster
    return isinstance(error, ConnectionLost | KafkaTimeout | ProtocolError)
