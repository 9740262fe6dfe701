"""OffsetCommit and OffsetFetch requests, and the reading of their answers. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from ..arguments import by_topic
from ..cluster.metadata import ClusterView
from ..errors import ErrorCode
from ..protocol.messages import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
)
from ..protocol.schema import ZERO_UUID
from ..protocol.versions import VersionTable
from ..types import OffsetAndMetadata, TopicPartition
from .events import Identity


def commit_request(
    group_id: str,
    identity: Identity,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    view: ClusterView,
    without_epoch: Collection[TopicPartition] = (),
) -> OffsetCommitRequest:
    """Make one request for all offsets, with names and ids of topics. The version decides which of them are sent.

    The leader epochs of the partitions in ``without_epoch`` are left out.
    """
    topics: dict[str, OffsetCommitRequestTopic] = {}
    for partition, offset in offsets.items():
        topic = topics.get(partition.topic)
        if topic is None:
            topic = topics[partition.topic] = OffsetCommitRequestTopic(
                name=partition.topic, topic_id=topic_id(view, partition.topic), partitions=[]
            )
        epoch = None if partition in without_epoch else offset.leader_epoch
        topic.partitions.append(
            OffsetCommitRequestPartition(
                partition_index=partition.partition,
                committed_offset=offset.offset,
                committed_leader_epoch=-1 if epoch is None else epoch,
                committed_metadata=offset.metadata,
            )
        )
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=identity.generation,
        member_id=identity.member_id,
        group_instance_id=identity.instance_id,
        topics=list(topics.values()),
    )


def read_commit(
    offsets: Collection[TopicPartition], response: OffsetCommitResponse, names: Mapping[bytes, str]
) -> dict[TopicPartition, ErrorCode | None]:
    """Read the error code of each offset; None for a partition that the answer omits."""
    codes = {
        TopicPartition(names.get(topic.topic_id, topic.name), partition.partition_index): ErrorCode.of(
            partition.error_code
        )
        for topic in response.topics
        for partition in topic.partitions
    }
    return {partition: codes.get(partition) for partition in offsets}


def fetch_request(
    group_id: str,
    partitions: Iterable[TopicPartition],
    view: ClusterView,
    versions: VersionTable,
    member: Identity | None = None,
) -> OffsetFetchRequest:
    """Make a request for committed offsets, without offsets that an open transaction may still abort (KIP-447).

    With ``member``, the request names this member, and the coordinator refuses it if it has evicted the member
    (KIP-848).
    """
    topics = by_topic(partitions)
    require_stable = versions.supports(OffsetFetchRequest.REQUIRE_STABLE)
    if versions.supports(OffsetFetchRequest.MANY_GROUPS):
        topics_with_ids = [
            OffsetFetchRequestTopics(name=name, topic_id=topic_id(view, name), partition_indexes=numbers)
            for name, numbers in topics.items()
        ]
        group = OffsetFetchRequestGroup(group_id=group_id, topics=topics_with_ids)
        if member is not None:
            group.member_id, group.member_epoch = member.member_id, member.generation
        return OffsetFetchRequest(groups=[group], require_stable=require_stable)
    topics_by_name = [OffsetFetchRequestTopic(name=name, partition_indexes=numbers) for name, numbers in topics.items()]
    return OffsetFetchRequest(group_id=group_id, topics=topics_by_name, require_stable=require_stable)


@dataclass(slots=True)
class FetchAnswer:
    """An OffsetFetch answer. An offset is None if none is committed."""

    offsets: dict[TopicPartition, OffsetAndMetadata | None] = field(default_factory=dict)
    errors: dict[TopicPartition, ErrorCode] = field(default_factory=dict)
    group_error: ErrorCode = ErrorCode.NONE

    def add(self, topic: str, answer: OffsetFetchResponsePartition | OffsetFetchResponsePartitions) -> None:
        partition = TopicPartition(topic, answer.partition_index)
        code = ErrorCode.of(answer.error_code)
        if code is not ErrorCode.NONE:
            self.errors[partition] = code
        elif answer.committed_offset < 0:
            self.offsets[partition] = None
        else:
            epoch = answer.committed_leader_epoch if answer.committed_leader_epoch >= 0 else None
            self.offsets[partition] = OffsetAndMetadata(answer.committed_offset, answer.metadata or "", epoch)


def read_fetch(
    group_id: str,
    partitions: Iterable[TopicPartition] | None,
    response: OffsetFetchResponse,
    names: Mapping[bytes, str],
) -> FetchAnswer:
    """Read the offsets of the requested partitions from the response; None for all partitions."""
    answer = FetchAnswer()
    # The version of the response decides whether it has ``topics`` or ``groups``. The other list is empty.
    for old_topic in response.topics:
        for old_partition in old_topic.partitions:
            answer.add(old_topic.name, old_partition)
    answer.group_error = ErrorCode.of(response.error_code)
    for group in response.groups:
        if group.group_id == group_id:
            answer.group_error = ErrorCode.of(group.error_code)
            for topic in group.topics:
                for partition in topic.partitions:
                    answer.add(names.get(topic.topic_id, topic.name), partition)
    if partitions is None:
        return answer
    # An answer for a partition that was not requested must not settle anything.
    requested = set(partitions)
    answer.offsets = {partition: offset for partition, offset in answer.offsets.items() if partition in requested}
    answer.errors = {partition: code for partition, code in answer.errors.items() if partition in requested}
    return answer


def topic_id(view: ClusterView, name: str) -> bytes:
    """Return the topic's id, or zeros if it is unknown."""
    topic = view.topics.get(name)
    return ZERO_UUID if topic is None else topic.topic_id
