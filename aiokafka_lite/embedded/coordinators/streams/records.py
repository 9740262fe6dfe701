"""The records of streams groups in ``__consumer_offsets`` (KIP-1071), in Kafka's own format.

A group has three records: its epoch, the epoch of its assignment, and its topology. Each member has three: its
description, its target, and its present tasks. ``consumer_group_records`` has the numbers of these kinds, and makes the
keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ....arguments import by_topic
from ....protocol.codec import Buffer, decode_versioned, encode_versioned
from ....protocol.messages import StreamsEndpoint, StreamsKeyValue, StreamsSubtopology, StreamsTaskIds, StreamsTopology
from ....protocol.schema import Message, array, int8, int32, int64, message, nested, string, struct
from .assignor import TaskId, Tasks
from .members import StreamsMember, TaskState


@struct
class StoredAssignmentConfig:
    """A setting of the group, as the last assignment used it."""

    key: str = string()
    value: str = string()


@message(key=-1, versions=(0, 0), flexible=0)
class StreamsGroupMetadataValue(Message):
    """The epoch of a group. The hash changes with the topics of its topology, and their partitions.

    ``validated_topology_epoch`` is the epoch of the topology if that is ready, else -1.
    """

    epoch: int = int32()
    metadata_hash: int = int64()
    validated_topology_epoch: int = int32(default=-1, tag=0)
    last_assignment_configs: list[StoredAssignmentConfig] | None = array(
        StoredAssignmentConfig, nullable="0+", default=None, tag=1
    )


@message(key=-1, versions=(0, 0), flexible=0)
class StreamsGroupMemberMetadataValue(Message):
    """The description of a member, from its heartbeats. The timeout is in milliseconds."""

    instance_id: str | None = string(nullable="0+")
    rack_id: str | None = string(nullable="0+")
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout_ms: int = int32(default=-1)
    topology_epoch: int = int32()
    process_id: str = string()
    user_endpoint: StreamsEndpoint | None = nested(StreamsEndpoint, nullable="0+", default=None)
    client_tags: list[StreamsKeyValue] = array(StreamsKeyValue)


@message(key=-1, versions=(0, 0), flexible=0)
class StreamsGroupTargetAssignmentMemberValue(Message):
    """The target of a member."""

    active_tasks: list[StreamsTaskIds] = array(StreamsTaskIds)
    standby_tasks: list[StreamsTaskIds] = array(StreamsTaskIds)
    warmup_tasks: list[StreamsTaskIds] = array(StreamsTaskIds)


@struct
class StoredTaskIds:
    """Tasks of one subtopology. Active tasks have the member epoch at which each was assigned."""

    subtopology_id: str = string()
    partitions: list[int] = array(int32)
    assignment_epochs: list[int] | None = array(int32, nullable="0+", default=None, tag=0)


@message(key=-1, versions=(0, 0), flexible=0)
class StreamsGroupCurrentMemberAssignmentValue(Message):
    """The epochs, the state and the tasks of a member."""

    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    active_tasks: list[StoredTaskIds] = array(StoredTaskIds)
    standby_tasks: list[StoredTaskIds] = array(StoredTaskIds)
    warmup_tasks: list[StoredTaskIds] = array(StoredTaskIds)
    active_tasks_pending_revocation: list[StoredTaskIds] = array(StoredTaskIds)
    standby_tasks_pending_revocation: list[StoredTaskIds] = array(StoredTaskIds)
    warmup_tasks_pending_revocation: list[StoredTaskIds] = array(StoredTaskIds)


@message(key=-1, versions=(0, 0), flexible=0)
class StreamsGroupTopologyValue(Message):
    """The topology of a group."""

    epoch: int = int32()
    subtopologies: list[StreamsSubtopology] = array(StreamsSubtopology)


def task_ids(tasks: Iterable[TaskId]) -> list[StreamsTaskIds]:
    """Return the tasks by subtopology, both in order."""
    numbered = by_topic(sorted(tasks))
    return [StreamsTaskIds(subtopology_id=name, partitions=numbers) for name, numbers in numbered.items()]


def from_task_ids(tasks: Iterable[StreamsTaskIds | StoredTaskIds]) -> frozenset[TaskId]:
    return frozenset((task.subtopology_id, number) for task in tasks for number in task.partitions)


def encode_group(epoch: int, metadata_hash: int, validated_epoch: int, standby_replicas: int) -> bytes:
    """Return the value that stores the epoch of a group, and the data that determined the epoch."""
    configs = [StoredAssignmentConfig(key="num.standby.replicas", value=str(standby_replicas))]
    value = StreamsGroupMetadataValue(
        epoch=epoch,
        metadata_hash=metadata_hash,
        validated_topology_epoch=validated_epoch,
        last_assignment_configs=configs,
    )
    return encode_versioned(value, 0)


def encode_topology(topology: StreamsTopology) -> bytes:
    value = StreamsGroupTopologyValue(epoch=topology.epoch, subtopologies=topology.subtopologies)
    return encode_versioned(value, 0)


def read_topology(value: Buffer) -> StreamsTopology:
    read = decode_versioned(StreamsGroupTopologyValue, value)[0]
    return StreamsTopology(epoch=read.epoch, subtopologies=read.subtopologies)


def encode_member(member: StreamsMember) -> bytes:
    value = StreamsGroupMemberMetadataValue(
        instance_id=None,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=round(member.rebalance_timeout * 1000),
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None
        if member.endpoint is None
        else StreamsEndpoint(host=member.endpoint[0], port=member.endpoint[1]),
        client_tags=[StreamsKeyValue(key=key, value=tag) for key, tag in member.tags.items()],
    )
    return encode_versioned(value, 0)


def read_member(member_id: str, value: Buffer) -> StreamsMember:
    read = decode_versioned(StreamsGroupMemberMetadataValue, value)[0]
    endpoint = read.user_endpoint
    return StreamsMember(
        member_id,
        read.rack_id,
        read.client_id,
        read.client_host,
        read.rebalance_timeout_ms / 1000,
        topology_epoch=read.topology_epoch,
        process_id=read.process_id,
        endpoint=None if endpoint is None else (endpoint.host, endpoint.port),
        tags={client_tag.key: client_tag.value for client_tag in read.client_tags},
    )


def encode_target(tasks: Tasks) -> bytes:
    value = StreamsGroupTargetAssignmentMemberValue(
        active_tasks=task_ids(tasks.active), standby_tasks=task_ids(tasks.standby), warmup_tasks=[]
    )
    return encode_versioned(value, 0)


def read_target(value: Buffer) -> Tasks:
    read = decode_versioned(StreamsGroupTargetAssignmentMemberValue, value)[0]
    return Tasks(from_task_ids(read.active_tasks), from_task_ids(read.standby_tasks))


def encode_current(member: StreamsMember) -> bytes:
    value = StreamsGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=member.state,
        active_tasks=_with_epochs(member.active),
        standby_tasks=_without_epochs(member.standby),
        warmup_tasks=[],
        active_tasks_pending_revocation=_with_epochs(member.revoking),
        standby_tasks_pending_revocation=_without_epochs(member.revoking_standby),
        warmup_tasks_pending_revocation=[],
    )
    return encode_versioned(value, 0)


def read_current(member: StreamsMember, value: Buffer) -> None:
    read = decode_versioned(StreamsGroupCurrentMemberAssignmentValue, value)[0]
    member.epoch, member.previous_epoch = read.member_epoch, read.previous_member_epoch
    member.state = TaskState(read.state)
    member.active, member.standby = _from_epochs(read.active_tasks), from_task_ids(read.standby_tasks)
    member.revoking = _from_epochs(read.active_tasks_pending_revocation)
    member.revoking_standby = from_task_ids(read.standby_tasks_pending_revocation)


def _with_epochs(tasks: Mapping[TaskId, int]) -> list[StoredTaskIds]:
    return [
        StoredTaskIds(
            subtopology_id=name, partitions=numbers, assignment_epochs=[tasks[name, number] for number in numbers]
        )
        for name, numbers in by_topic(sorted(tasks)).items()
    ]


def _without_epochs(tasks: Iterable[TaskId]) -> list[StoredTaskIds]:
    return [StoredTaskIds(subtopology_id=name, partitions=numbers) for name, numbers in by_topic(sorted(tasks)).items()]


def _from_epochs(tasks: Iterable[StoredTaskIds]) -> dict[TaskId, int]:
    return {
        (task.subtopology_id, number): 0 if task.assignment_epochs is None else task.assignment_epochs[place]
        for task in tasks
        for place, number in enumerate(task.partitions)
    }
