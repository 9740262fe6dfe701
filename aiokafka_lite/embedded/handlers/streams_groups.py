"""StreamsGroupHeartbeat and StreamsGroupDescribe: groups of Kafka Streams whose coordinator assigns tasks (KIP-1071).
``streams.group`` has the rules.

The coordinator creates the internal topics of a topology for the member, if the member may create them. As in Kafka
4.3, these are INVALID_REQUEST: static members, warm-up tasks, offsets of tasks, and regular expressions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ...acls import AclOperation
from ...arguments import by_topic
from ...errors import ErrorCode
from ...protocol import messages as m
from ..coordinators.groups.heartbeat_group import JOIN, LEAVE, GroupRefusal
from ..coordinators.streams.assignor import Tasks
from ..coordinators.streams.group import StreamsAnswer, StreamsGroup, StreamsHeartbeat
from ..coordinators.streams.members import StreamsMember
from ..coordinators.streams.records import from_task_ids, task_ids
from ..coordinators.streams.topology import Status, StreamsStatusCode, required_topics
from ..metadata.controller import Refused
from ..metadata.features import STREAMS_VERSION
from ..metadata.topics import INTERNAL_TOPICS, PartitionKey, is_legal_name
from ..request_context import RequestContext, handles
from .group_admin import check_described_topics, describe_each, missing_text
from .topics import check_new_partitions

LEAVE_STATIC = -2


@handles(m.StreamsGroupHeartbeatRequest, feature=STREAMS_VERSION)
async def streams_group_heartbeat(
    context: RequestContext, request: m.StreamsGroupHeartbeatRequest
) -> m.StreamsGroupHeartbeatResponse:
    groups = context.broker.groups
    try:
        _check_permissions(context, request)
        _check_request(request)
        if context.broker.share_groups.find(request.group_id) is not None:
            raise GroupRefusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} is not a streams group.")
        groups.require(request.group_id)
        group = groups.hosted.streams(request.group_id, request.member_epoch)
        if request.member_epoch == LEAVE:
            group.leave(request.member_id, shutdown=request.shutdown_application)
            await groups.until_replicated(request.group_id)
            return _response(request.member_id, LEAVE)
        answer = group.heartbeat(_heartbeat(context, request))
        groups.hosted.put(group)
        status = _with_missing_topics(context, answer)
        await groups.until_replicated(request.group_id)
    except GroupRefusal as refusal:
        response = _response("", 0)
        response.error_code, response.error_message = refusal.error, refusal.text
        return response
    response = _response(answer.member_id, answer.epoch)
    response.heartbeat_interval_ms = groups.heartbeat_interval_ms(request.group_id, "streams")
    response.status = [m.StreamsStatus(status_code=item.code, status_detail=item.detail) for item in status]
    if answer.tasks is not None:
        response.active_tasks = task_ids(answer.tasks.active)
        response.standby_tasks, response.warmup_tasks = task_ids(answer.tasks.standby), []
    response.endpoint_information_epoch = answer.endpoint_epoch
    if answer.endpoints is not None:
        response.partitions_by_user_endpoint = [
            m.StreamsEndpointPartitions(
                user_endpoint=m.StreamsEndpoint(host=host, port=port),
                active_partitions=_topic_partitions(active),
                standby_partitions=_topic_partitions(standby),
            )
            for (host, port), (active, standby) in answer.endpoints.items()
        ]
    return response


def _response(member_id: str, epoch: int) -> m.StreamsGroupHeartbeatResponse:
    return m.StreamsGroupHeartbeatResponse(
        error_code=ErrorCode.NONE,
        member_id=member_id,
        member_epoch=epoch,
        heartbeat_interval_ms=0,
        acceptable_recovery_lag=0,
        task_offset_interval_ms=0,
        status=[],
        endpoint_information_epoch=0,
    )


def _topic_partitions(keys: Iterable[PartitionKey]) -> list[m.StreamsTopicPartitions]:
    return [
        m.StreamsTopicPartitions(topic=name, partitions=numbers) for name, numbers in by_topic(sorted(keys)).items()
    ]


def _check_permissions(context: RequestContext, request: m.StreamsGroupHeartbeatRequest) -> None:
    """Raise GroupRefusal unless the client may use this group, and topics of these names."""
    if not context.allows_group(AclOperation.READ, request.group_id):
        raise GroupRefusal(ErrorCode.GROUP_AUTHORIZATION_FAILED, "Group authorization failed.")
    if request.topology is None:
        return
    names = sorted(_all_topics(request.topology))
    internal = [name for name in names if name in INTERNAL_TOPICS]
    if internal:
        text = f"Use of Kafka internal topics {','.join(internal)} in a Kafka Streams topology is prohibited."
        raise GroupRefusal(ErrorCode.STREAMS_INVALID_TOPOLOGY, text)
    illegal = [name for name in names if not is_legal_name(name)]
    if illegal:
        text = f"Topic names {','.join(illegal)} are not valid topic names."
        raise GroupRefusal(ErrorCode.STREAMS_INVALID_TOPOLOGY, text)
    if not all(context.allows_topic(AclOperation.DESCRIBE, name) for name in names):
        raise GroupRefusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")


def _all_topics(topology: m.StreamsTopology) -> set[str]:
    return required_topics(topology).union(
        *(subtopology.repartition_sink_topics for subtopology in topology.subtopologies)
    )


def _check_request(request: m.StreamsGroupHeartbeatRequest) -> None:
    """Raise GroupRefusal, with Kafka's texts, for a request that is invalid in every group."""
    epoch, topology = request.member_epoch, request.topology
    subtopologies = [] if topology is None else topology.subtopologies
    joins = epoch == JOIN
    tasks = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    some_tasks = any(task is not None for task in tasks)
    refusals = {
        "Static membership is not yet supported.": request.instance_id is not None,
        "TaskOffsets are not supported yet.": request.task_offsets is not None,
        "TaskEndOffsets are not supported yet.": request.task_end_offsets is not None,
        "WarmupTasks are not supported yet.": bool(request.warmup_tasks),
        "Regular expressions for source topics are not supported yet.": any(
            subtopology.source_topic_regex for subtopology in subtopologies
        ),
        "MemberId can't be empty.": not request.member_id.strip(),
        "GroupId can't be empty.": not request.group_id.strip(),
        "RackId can't be empty.": request.rack_id is not None and not request.rack_id.strip(),
        "RebalanceTimeoutMs must be provided in first request.": joins and request.rebalance_timeout_ms == -1,
        "ActiveTasks must be empty when (re-)joining.": joins and request.active_tasks != [],
        "StandbyTasks must be empty when (re-)joining.": joins and request.standby_tasks != [],
        "WarmupTasks must be empty when (re-)joining.": joins and request.warmup_tasks != [],
        "Topology must be non-null when (re-)joining.": joins and topology is None,
        "InstanceId can't be null.": epoch == LEAVE_STATIC,
        f"MemberEpoch is {epoch}, but must be greater than or equal to -2.": epoch < LEAVE_STATIC,
        "If one task-type is non-null, all must be non-null.": some_tasks and None in tasks,
        "Topology can only be provided when (re-)joining.": not joins and topology is not None,
    }
    for text, applies in refusals.items():
        if applies:
            raise GroupRefusal(ErrorCode.INVALID_REQUEST, text)
    _check_changelogs(subtopologies)


def _check_changelogs(subtopologies: Iterable[m.StreamsSubtopology]) -> None:
    """Raise GroupRefusal for a changelog with a number of partitions: its subtopology decides it."""
    for changelog in (info for subtopology in subtopologies for info in subtopology.state_changelog_topics):
        if changelog.partitions != 0:
            raise GroupRefusal(
                ErrorCode.STREAMS_INVALID_TOPOLOGY,
                f"Changelog topic {changelog.name} must have an undefined partition count, but it is set to "
                f"{changelog.partitions}.",
            )


def _heartbeat(context: RequestContext, request: m.StreamsGroupHeartbeatRequest) -> StreamsHeartbeat:
    owned = None
    if request.active_tasks is not None and request.standby_tasks is not None:
        owned = Tasks(from_task_ids(request.active_tasks), from_task_ids(request.standby_tasks))
    endpoint, tags = request.user_endpoint, request.client_tags
    return StreamsHeartbeat(
        request.member_id,
        request.member_epoch,
        context.client_id,
        context.client.client_host,
        request.endpoint_information_epoch,
        request.rack_id,
        None if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms / 1000,
        request.topology,
        owned,
        request.process_id,
        None if endpoint is None else (endpoint.host, endpoint.port),
        None if tags is None else {tag.key: tag.value for tag in tags},
        request.shutdown_application,
    )


def _with_missing_topics(context: RequestContext, answer: StreamsAnswer) -> list[Status]:
    """Create the missing internal topics. If that fails, the status of the group has the reason."""
    if not answer.missing:
        return answer.status
    names = [info.name for info, _ in answer.missing]
    problem = ""
    if not context.allows(AclOperation.CREATE):
        forbidden = [name for name in names if not context.allows_topic(AclOperation.CREATE, name)]
        problem = f"; Unauthorized to CREATE on topics {', '.join(forbidden)}." if forbidden else ""
    if not problem:
        failures = _create_topics(context, answer.missing)
        problem = f"; Creation failed: {'; '.join(failures)}." if failures else ""
    if not problem:
        return answer.status
    missing = StreamsStatusCode.MISSING_INTERNAL_TOPICS
    return [item._replace(detail=item.detail + problem) if item.code is missing else item for item in answer.status]


def _create_topics(context: RequestContext, topics: Collection[tuple[m.StreamsTopicInfo, int]]) -> list[str]:
    """Create internal topics, with their numbers of partitions. Returns the failures."""
    try:
        check_new_partitions(context, (count for _, count in topics))
    except Refused as refusal:
        return [str(refusal)]
    return [failure for info, count in topics if (failure := _create(context, info, count)) is not None]


def _create(context: RequestContext, info: m.StreamsTopicInfo, partitions: int) -> str | None:
    """Create an internal topic. Returns the reason if that failed, else None."""
    try:
        context.broker.controller.create_topic(
            info.name,
            partitions,
            info.replication_factor or -1,
            configs={topic_config.key: topic_config.value for topic_config in info.topic_configs},
        )
    except Refused as refusal:
        if refusal.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            return f"{info.name} ({refusal})"
    return None


@handles(m.StreamsGroupDescribeRequest, feature=STREAMS_VERSION)
def streams_group_describe(
    context: RequestContext, request: m.StreamsGroupDescribeRequest
) -> m.StreamsGroupDescribeResponse:
    described = [
        m.StreamsGroupDescribeGroup(
            error_code=ErrorCode.NONE, group_id=group_id, group_state="", group_epoch=0, assignment_epoch=0, members=[]
        )
        for group_id in request.group_ids
    ]
    describe_each(context, described, _describe, with_operations=request.include_authorized_operations)
    return m.StreamsGroupDescribeResponse(groups=described)


def _describe(context: RequestContext, described: m.StreamsGroupDescribeGroup) -> None:
    group = context.broker.groups.replicated_group(described.group_id)
    if not isinstance(group, StreamsGroup):
        raise GroupRefusal(ErrorCode.GROUP_ID_NOT_FOUND, missing_text(context, described.group_id, "streams"))
    text = "The described group uses topics that the client is not authorized to describe."
    check_described_topics(context, _all_topics(group.topology), text)
    described.group_state = group.state.wire_name
    described.group_epoch, described.assignment_epoch = group.epoch, group.assignment_epoch
    described.topology = _topology(group)
    described.members = [_member(group, member) for member in group.members.values()]


def _topology(group: StreamsGroup) -> m.StreamsGroupDescribeTopology:
    configured = group.configured
    partitions = {} if configured is None or configured.status is not None else configured.partitions

    def sized(topics: Iterable[m.StreamsTopicInfo]) -> list[m.StreamsTopicInfo]:
        return [
            m.StreamsTopicInfo(
                name=topic.name,
                partitions=partitions.get(topic.name, topic.partitions),
                replication_factor=topic.replication_factor,
                topic_configs=topic.topic_configs,
            )
            for topic in topics
        ]

    return m.StreamsGroupDescribeTopology(
        epoch=group.topology.epoch,
        subtopologies=[
            m.StreamsGroupDescribeSubtopology(
                subtopology_id=subtopology.subtopology_id,
                source_topics=sorted(subtopology.source_topics),
                repartition_sink_topics=sorted(subtopology.repartition_sink_topics),
                state_changelog_topics=sized(subtopology.state_changelog_topics),
                repartition_source_topics=sized(subtopology.repartition_source_topics),
            )
            for subtopology in sorted(group.topology.subtopologies, key=lambda subtopology: subtopology.subtopology_id)
        ],
    )


def _member(group: StreamsGroup, member: StreamsMember) -> m.StreamsGroupDescribeMember:
    endpoint = member.endpoint
    return m.StreamsGroupDescribeMember(
        member_id=member.member_id,
        member_epoch=member.epoch,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None if endpoint is None else m.StreamsEndpoint(host=endpoint[0], port=endpoint[1]),
        client_tags=[m.StreamsKeyValue(key=key, value=value) for key, value in member.tags.items()],
        task_offsets=[],
        task_end_offsets=[],
        assignment=_assignment(member.tasks),
        target_assignment=_assignment(group.targets.get(member.member_id, Tasks())),
        is_classic=False,
    )


def _assignment(tasks: Tasks) -> m.StreamsGroupDescribeAssignment:
    return m.StreamsGroupDescribeAssignment(
        active_tasks=task_ids(tasks.active), standby_tasks=task_ids(tasks.standby), warmup_tasks=[]
    )
