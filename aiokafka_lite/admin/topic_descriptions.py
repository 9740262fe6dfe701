"""Descriptions of topics and partitions, from the two kinds of response that have them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..cluster.topics import check_topic_name
from ..errors import KafkaError, error_for
from ..protocol.messages import (
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ..protocol.schema import ZERO_UUID
from .answers import none_if_negative
from .peer import Peer

TOPICS_PER_REQUEST = 500


@dataclass(frozen=True, slots=True)
class TopicListing:
    """A listed topic. ``topic_id`` is None before Kafka 2.8."""

    name: str
    topic_id: uuid.UUID | None
    partitions: int
    is_internal: bool


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """A partition: broker ids of its leader (None if it has none) and its replicas, the preferred leader first.

    ``eligible_leaders`` may become leaders although they are not in sync (KIP-966). ``last_known_eligible`` were
    eligible before they failed. Only ``pages`` returns the two fields, since Kafka 4.0; otherwise they are None.
    """

    partition: int
    leader: int | None
    leader_epoch: int | None
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    offline: tuple[int, ...]
    eligible_leaders: tuple[int, ...] | None = None
    last_known_eligible: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic and its partitions in order of their numbers. A page may have only some of the partitions."""

    name: str
    topic_id: uuid.UUID | None
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]


async def describe_named(peer: Peer, names: Sequence[str] | None) -> dict[str, TopicDescription | KafkaError]:
    """Describe topics by name, all if None. A request names some hundreds of topics, to bound the response."""
    if names is None:
        answer = await peer.send(MetadataRequest(topics=None))
        return {topic.name or "": _described(topic, topic.name) for topic in answer.topics}
    answers: dict[str, TopicDescription | KafkaError] = {}
    valid_names = []
    for name in names:
        try:
            check_topic_name(name)
            valid_names.append(name)
        except KafkaError as error:
            answers[name] = error
    for first in range(0, len(valid_names), TOPICS_PER_REQUEST):
        topics = [MetadataRequestTopic(name=name) for name in valid_names[first : first + TOPICS_PER_REQUEST]]
        answer = await peer.send(MetadataRequest(topics=topics, allow_auto_topic_creation=False))
        answers |= {topic.name or "": _described(topic, topic.name) for topic in answer.topics}
    return answers


async def describe_by_id(peer: Peer, ids: Sequence[uuid.UUID]) -> dict[str | uuid.UUID, TopicDescription | KafkaError]:
    topics = [MetadataRequestTopic(topic_id=topic_id.bytes, name=None) for topic_id in ids]
    answer = await peer.send(MetadataRequest(topics=topics, allow_auto_topic_creation=False))
    return {
        uuid.UUID(bytes=topic.topic_id): _described(topic, uuid.UUID(bytes=topic.topic_id)) for topic in answer.topics
    }


def _described(topic: MetadataResponseTopic, name_or_id: object) -> TopicDescription | KafkaError:
    if topic.error_code:
        return error_for(topic.error_code, f"describing topic {name_or_id}")
    return description_of(topic)


def description_of(topic: MetadataResponseTopic | DescribeTopicPartitionsResponseTopic) -> TopicDescription:
    partitions = sorted(
        (_partition(partition) for partition in topic.partitions), key=lambda partition: partition.partition
    )
    return TopicDescription(topic.name or "", uuid_of(topic.topic_id), topic.is_internal, tuple(partitions))


def _partition(partition: MetadataResponsePartition | DescribeTopicPartitionsResponsePartition) -> PartitionDescription:
    description = PartitionDescription(
        partition=partition.partition_index,
        leader=none_if_negative(partition.leader_id),
        leader_epoch=none_if_negative(partition.leader_epoch),
        replicas=tuple(partition.replica_nodes),
        in_sync=tuple(partition.isr_nodes),
        offline=tuple(partition.offline_replicas),
    )
    if isinstance(partition, MetadataResponsePartition):
        return description
    eligible, last_known = partition.eligible_leader_replicas, partition.last_known_elr
    return replace(
        description,
        eligible_leaders=None if eligible is None else tuple(eligible),
        last_known_eligible=None if last_known is None else tuple(last_known),
    )


def uuid_of(data: bytes) -> uuid.UUID | None:
    return None if data == ZERO_UUID else uuid.UUID(bytes=bytes(data))
