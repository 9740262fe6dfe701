"""Streams groups (KIP-1071): Kafka Streams' own group protocol, and the description of a group.

One heartbeat joins, brings the topology, stays alive, assigns tasks and leaves. A task is a partition of a subtopology.
"""

from __future__ import annotations

from ..schema import (
    Request,
    Response,
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    message,
    nested,
    string,
    struct,
    uint16,
)
from .group_admin import UNKNOWN_OPERATIONS


@struct
class StreamsKeyValue:
    """A tag of a client, or a setting of a topic."""

    key: str = string()
    value: str = string()


@struct
class StreamsEndpoint:
    """The address of an application, for its interactive queries."""

    host: str = string(default="")
    port: int = uint16(default=0)


@struct
class StreamsTaskIds:
    """Tasks of one subtopology."""

    subtopology_id: str = string()
    partitions: list[int] = array(int32)


@struct
class StreamsTaskOffset:
    """The sum of a task's offsets in its changelogs."""

    subtopology_id: str = string()
    partition: int = int32()
    offset: int = int64()


@struct
class StreamsTopicInfo:
    """An internal topic. If a number of partitions or a replication factor is 0, the coordinator decides."""

    name: str = string()
    partitions: int = int32()
    replication_factor: int = int16()
    topic_configs: list[StreamsKeyValue] = array(StreamsKeyValue)


@struct
class StreamsCopartitionGroup:
    """Source topics with equal numbers of partitions, as places in the lists of their subtopology."""

    source_topics: list[int] = array(int16)
    source_topic_regex: list[int] = array(int16)
    repartition_source_topics: list[int] = array(int16)


@struct
class StreamsSubtopology:
    """A part of a topology: the topics that it reads and writes."""

    subtopology_id: str = string()
    source_topics: list[str] = array(string)
    source_topic_regex: list[str] = array(string)
    state_changelog_topics: list[StreamsTopicInfo] = array(StreamsTopicInfo)
    repartition_sink_topics: list[str] = array(string)
    repartition_source_topics: list[StreamsTopicInfo] = array(StreamsTopicInfo)
    copartition_groups: list[StreamsCopartitionGroup] = array(StreamsCopartitionGroup)


@struct
class StreamsTopology:
    """The topology of an application."""

    epoch: int = int32()
    subtopologies: list[StreamsSubtopology] = array(StreamsSubtopology)


@struct
class StreamsStatus:
    """A status of the group, as a code and a text for the member."""

    status_code: int = int8()
    status_detail: str = string()


@struct
class StreamsTopicPartitions:
    """Partitions of one topic."""

    topic: str = string()
    partitions: list[int] = array(int32)


@struct
class StreamsEndpointPartitions:
    """The partitions of the tasks of one application."""

    user_endpoint: StreamsEndpoint = nested(StreamsEndpoint)
    active_partitions: list[StreamsTopicPartitions] = array(StreamsTopicPartitions)
    standby_partitions: list[StreamsTopicPartitions] = array(StreamsTopicPartitions)


@message(key=88, versions=(0, 0), flexible=0)
class StreamsGroupHeartbeatResponse(Response):
    """The epoch of the member, and its tasks if they changed; null means no change."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    member_id: str = string()
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    acceptable_recovery_lag: int = int32()
    task_offset_interval_ms: int = int32()
    status: list[StreamsStatus] | None = array(StreamsStatus, nullable="0+")
    active_tasks: list[StreamsTaskIds] | None = array(StreamsTaskIds, nullable="0+", default=None)
    standby_tasks: list[StreamsTaskIds] | None = array(StreamsTaskIds, nullable="0+", default=None)
    warmup_tasks: list[StreamsTaskIds] | None = array(StreamsTaskIds, nullable="0+", default=None)
    endpoint_information_epoch: int = int32()
    partitions_by_user_endpoint: list[StreamsEndpointPartitions] | None = array(
        StreamsEndpointPartitions, nullable="0+", default=None
    )


@message(key=88, versions=(0, 0), flexible=0)
class StreamsGroupHeartbeatRequest(Request[StreamsGroupHeartbeatResponse]):
    """A member's heartbeat. Fields that did not change since the last one are null, or -1.

    ``member_epoch`` is 0 to join, -1 to leave, -2 for a static member that will return. The topology comes with the
    first heartbeat. The tasks are owned by the member.
    """

    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    endpoint_information_epoch: int = int32()
    instance_id: str | None = string(nullable="0+", default=None)
    rack_id: str | None = string(nullable="0+", default=None)
    rebalance_timeout_ms: int = int32(default=-1)
    topology: StreamsTopology | None = nested(StreamsTopology, nullable="0+", default=None)
    active_tasks: list[StreamsTaskIds] | None = array(StreamsTaskIds, nullable="0+", default=None)
    standby_tasks: list[StreamsTaskIds] | None = array(StreamsTaskIds, nullable="0+", default=None)
    warmup_tasks: list[StreamsTaskIds] | None = array(StreamsTaskIds, nullable="0+", default=None)
    process_id: str | None = string(nullable="0+", default=None)
    user_endpoint: StreamsEndpoint | None = nested(StreamsEndpoint, nullable="0+", default=None)
    client_tags: list[StreamsKeyValue] | None = array(StreamsKeyValue, nullable="0+", default=None)
    task_offsets: list[StreamsTaskOffset] | None = array(StreamsTaskOffset, nullable="0+", default=None)
    task_end_offsets: list[StreamsTaskOffset] | None = array(StreamsTaskOffset, nullable="0+", default=None)
    shutdown_application: bool = boolean(default=False)


@struct
class StreamsGroupDescribeSubtopology:
    """A subtopology. If the topology is ready, its internal topics have their numbers of partitions.

    A coordinator that has just loaded the group does not know them before the next heartbeat of a member.
    """

    subtopology_id: str = string()
    source_topics: list[str] = array(string)
    repartition_sink_topics: list[str] = array(string)
    state_changelog_topics: list[StreamsTopicInfo] = array(StreamsTopicInfo)
    repartition_source_topics: list[StreamsTopicInfo] = array(StreamsTopicInfo)


@struct
class StreamsGroupDescribeTopology:
    """The topology of a group."""

    epoch: int = int32()
    subtopologies: list[StreamsGroupDescribeSubtopology] | None = array(
        StreamsGroupDescribeSubtopology, nullable="0+", default=None
    )


@struct
class StreamsGroupDescribeAssignment:
    """The tasks of a member."""

    active_tasks: list[StreamsTaskIds] = array(StreamsTaskIds, default=[])
    standby_tasks: list[StreamsTaskIds] = array(StreamsTaskIds, default=[])
    warmup_tasks: list[StreamsTaskIds] = array(StreamsTaskIds, default=[])


@struct
class StreamsGroupDescribeMember:
    """A member, its present tasks, and its target tasks."""

    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = string(nullable="0+", default=None)
    rack_id: str | None = string(nullable="0+", default=None)
    client_id: str = string()
    client_host: str = string()
    topology_epoch: int = int32()
    process_id: str = string()
    user_endpoint: StreamsEndpoint | None = nested(StreamsEndpoint, nullable="0+", default=None)
    client_tags: list[StreamsKeyValue] = array(StreamsKeyValue)
    task_offsets: list[StreamsTaskOffset] = array(StreamsTaskOffset)
    task_end_offsets: list[StreamsTaskOffset] = array(StreamsTaskOffset)
    assignment: StreamsGroupDescribeAssignment = nested(StreamsGroupDescribeAssignment)
    target_assignment: StreamsGroupDescribeAssignment = nested(StreamsGroupDescribeAssignment)
    is_classic: bool = boolean()


@struct
class StreamsGroupDescribeGroup:
    """A streams group; without a topology if there is an error."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    topology: StreamsGroupDescribeTopology | None = nested(StreamsGroupDescribeTopology, nullable="0+", default=None)
    members: list[StreamsGroupDescribeMember] = array(StreamsGroupDescribeMember)
    authorized_operations: int = int32(default=UNKNOWN_OPERATIONS)


@message(key=89, versions=(0, 0), flexible=0)
class StreamsGroupDescribeResponse(Response):
    """The described groups, in the order of the request."""

    throttle_time_ms: int = int32(default=0)
    groups: list[StreamsGroupDescribeGroup] = array(StreamsGroupDescribeGroup)


@message(key=89, versions=(0, 0), flexible=0)
class StreamsGroupDescribeRequest(Request[StreamsGroupDescribeResponse]):
    """Describe streams groups."""

    group_ids: list[str] = array(string)
    include_authorized_operations: bool = boolean()
