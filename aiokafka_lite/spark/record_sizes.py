"""Estimates the bytes of records that a trigger has not read yet, for ``maxBytesPerTrigger``.

Kafka knows no sizes of offsets. So the driver fetches the first batches of each backlog and drops their records: their
bytes, as stored in the log, divided by their offsets.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping

from ..cluster.client import Client
from ..errors import ErrorCode, KafkaError, error_for
from ..protocol.messages import FetchRequest, FetchRequestPartition, FetchRequestTopic
from ..protocol.records.batch import split_batches
from ..types import IsolationLevel, TopicPartition

SAMPLE_BYTES = 64 * 1024
"""The bytes that are fetched of a partition. A batch is fetched whole, even if it is larger."""

MOST_SAMPLES = 100
"""The most partitions that are sampled in a trigger. Others count as the average of these."""


async def bytes_per_offset(
    client: Client, starts: Mapping[TopicPartition, int], isolation: IsolationLevel
) -> dict[TopicPartition, float]:
    """Fetch the first records from each offset. Returns the mean bytes of an offset by partition.

    Partitions without a leader or without an answer are left out, and also those whose first records were deleted: the
    task that reads them reports the loss. Raises the KafkaError of a partition if no partition has an answer.
    """
    failure: KafkaError | None = None
    by_leader: defaultdict[int, list[TopicPartition]] = defaultdict(list)
    for partition in starts:
        leader = client.view.leader_of(partition)
        if leader is None:
            failure = error_for(ErrorCode.LEADER_NOT_AVAILABLE, f"looking up the sizes of records of {partition}")
        else:
            by_leader[leader.node_id].append(partition)
    requests = [_sample(client, node, partitions, starts, isolation) for node, partitions in by_leader.items()]
    outcomes = await asyncio.gather(*requests, return_exceptions=True)
    sizes: dict[TopicPartition, float] = {}
    for outcome in outcomes:
        if isinstance(outcome, KafkaError):
            failure = outcome
        elif isinstance(outcome, BaseException):
            raise outcome
        else:
            sizes |= outcome
    if failure is not None and not sizes:
        client.request_refresh()  # the caller may try again, at another leader
        raise failure
    return sizes


async def _sample(
    client: Client,
    node: int,
    partitions: Iterable[TopicPartition],
    starts: Mapping[TopicPartition, int],
    isolation: IsolationLevel,
) -> dict[TopicPartition, float]:
    """Ask one leader. Raises the KafkaError of a partition if no partition has an answer."""
    topics: dict[str, FetchRequestTopic] = {}
    for partition in partitions:
        metadata = client.view.topics[partition.topic]
        topic = topics.setdefault(
            partition.topic, FetchRequestTopic(topic=partition.topic, topic_id=metadata.topic_id, partitions=[])
        )
        topic.partitions.append(
            FetchRequestPartition(
                partition=partition.partition, fetch_offset=starts[partition], partition_max_bytes=SAMPLE_BYTES
            )
        )
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=SAMPLE_BYTES * MOST_SAMPLES,
        isolation_level=int(isolation),
        topics=list(topics.values()),
    )
    answer = await client.send(request, node=node)
    names = {topic.topic_id: topic.topic for topic in topics.values()}
    sizes: dict[TopicPartition, float] = {}
    failure: KafkaError | None = None
    for answer_topic in answer.responses:
        name = answer_topic.topic or names.get(answer_topic.topic_id, "")
        for data in answer_topic.partitions:
            partition = TopicPartition(name, data.partition_index)
            if data.error_code not in (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE):
                failure = error_for(data.error_code, f"looking up the sizes of records of {partition}")
            if data.error_code or not data.records or partition not in starts:
                continue
            batches = split_batches(data.records)
            if not batches:
                continue
            offsets = batches[-1].next_offset - max(batches[0].base_offset, starts[partition])
            size = sum(batch.size for batch in batches)
            sizes[partition] = size / max(1, offsets)
    if failure is not None and not sizes:
        raise failure
    return sizes
