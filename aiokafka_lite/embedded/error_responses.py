"""Answers in which everything failed with one code, and requests cut in two so that only a part fails.

Kafka answers so when a handler breaks; ``Fault.fail`` answers so on demand. One function for each API that names its
errors in nested places; where the error is a field of the response itself, that field is enough.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

from ..errors import ErrorCode
from ..protocol.messages import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    AlterConfigsResponseResource,
    ApiVersionsRequest,
    ApiVersionsResponse,
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableGroupResult,
    DeletableTopicResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    FetchRequest,
    FetchResponse,
    FetchResponsePartition,
    FetchResponseTopic,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    FindCoordinatorResponseCoordinator,
    HeartbeatRequest,
    HeartbeatResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    IncrementalAlterConfigsResponseResource,
    InitProducerIdRequest,
    InitProducerIdResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsResponsePartition,
    ListOffsetsResponseTopic,
    MetadataRequest,
    MetadataResponse,
    MetadataResponseTopic,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderEpochResponsePartition,
    OffsetForLeaderEpochResponseTopic,
    ProduceRequest,
    ProduceResponse,
    ProduceResponsePartition,
    ProduceResponseTopic,
    SyncGroupRequest,
    SyncGroupResponse,
)
from ..protocol.schema import Request, Response

Q = TypeVar("Q", bound=Request[Any])
IsAbout = Callable[[str | None, int | None], bool]
TopicName = Callable[[bytes], str | None]


def error_response(request: Request[Any], code: ErrorCode, version: int) -> Response | None:
    """The response in which all of ``request`` failed; None where only closing the connection can tell."""
    if isinstance(request, ProduceRequest) and request.acks == 0:
        return None
    make = _MAKERS.get(type(request))
    return None if make is None else make(request, int(code), version)


def _produce(request: ProduceRequest, code: int, version: int) -> Response:
    return ProduceResponse(
        responses=[
            ProduceResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    ProduceResponsePartition(index=part.index, error_code=code, base_offset=-1)
                    for part in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


def _fetch(request: FetchRequest, code: int, version: int) -> Response:
    topics = [
        FetchResponseTopic(
            topic=topic.topic,
            topic_id=topic.topic_id,
            partitions=[
                FetchResponsePartition(
                    partition_index=part.partition,
                    error_code=code,
                    high_watermark=-1,
                    aborted_transactions=[],
                    records=b"",
                )
                for part in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    top = code if version >= 7 and not topics else 0
    return FetchResponse(throttle_time_ms=0, error_code=top, responses=topics)


def _list_offsets(request: ListOffsetsRequest, code: int, version: int) -> Response:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsResponseTopic(
                name=topic.name,
                partitions=[
                    ListOffsetsResponsePartition(partition_index=part.partition_index, error_code=code)
                    for part in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _offset_for_leader_epoch(request: OffsetForLeaderEpochRequest, code: int, version: int) -> Response:
    return OffsetForLeaderEpochResponse(
        throttle_time_ms=0,
        topics=[
            OffsetForLeaderEpochResponseTopic(
                topic=topic.topic,
                partitions=[
                    OffsetForLeaderEpochResponsePartition(error_code=code, partition=part.partition)
                    for part in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def _metadata(request: MetadataRequest, code: int, version: int) -> Response:
    topics = [
        MetadataResponseTopic(error_code=code, name=topic.name or "", topic_id=topic.topic_id, partitions=[])
        for topic in request.topics or ()
    ]
    return MetadataResponse(brokers=[], topics=topics, error_code=code if version >= 13 else 0)


def _api_versions(request: ApiVersionsRequest, code: int, version: int) -> Response:
    return ApiVersionsResponse(error_code=code, api_keys=[])


def _create_topics(request: CreateTopicsRequest, code: int, version: int) -> Response:
    results = [CreatableTopicResult(name=topic.name, error_code=code, error_message=None) for topic in request.topics]
    return CreateTopicsResponse(throttle_time_ms=0, topics=results)


def _delete_topics(request: DeleteTopicsRequest, code: int, version: int) -> Response:
    named = [DeletableTopicResult(name=name, error_code=code) for name in request.topic_names]
    listed = [DeletableTopicResult(name=t.name, topic_id=t.topic_id, error_code=code) for t in request.topics]
    return DeleteTopicsResponse(throttle_time_ms=0, responses=named + listed)


def _create_partitions(request: CreatePartitionsRequest, code: int, version: int) -> Response:
    results = [CreatePartitionsTopicResult(name=topic.name, error_code=code) for topic in request.topics]
    return CreatePartitionsResponse(throttle_time_ms=0, results=results)


def _init_producer_id(request: InitProducerIdRequest, code: int, version: int) -> Response:
    return InitProducerIdResponse(throttle_time_ms=0, error_code=code, producer_id=-1, producer_epoch=-1)


def _find_coordinator(request: FindCoordinatorRequest, code: int, version: int) -> Response:
    if version < 4:
        return FindCoordinatorResponse(error_code=code, node_id=-1, host="", port=-1)
    return FindCoordinatorResponse(
        coordinators=[
            FindCoordinatorResponseCoordinator(key=key, node_id=-1, host="", port=-1, error_code=code)
            for key in request.coordinator_keys
        ]
    )


def _join_group(request: JoinGroupRequest, code: int, version: int) -> Response:
    name = None if version >= 7 else ""
    return JoinGroupResponse(error_code=code, protocol_name=name, leader="", member_id=request.member_id, members=[])


def _sync_group(request: SyncGroupRequest, code: int, version: int) -> Response:
    return SyncGroupResponse(error_code=code, assignment=b"")


def _heartbeat(request: HeartbeatRequest, code: int, version: int) -> Response:
    return HeartbeatResponse(error_code=code)


def _leave_group(request: LeaveGroupRequest, code: int, version: int) -> Response:
    return LeaveGroupResponse(error_code=code)


def _offset_commit(request: OffsetCommitRequest, code: int, version: int) -> Response:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=part.partition_index, error_code=code)
                    for part in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _offset_fetch(request: OffsetFetchRequest, code: int, version: int) -> Response:
    if version < 8:
        return OffsetFetchResponse(error_code=code)
    groups = [OffsetFetchResponseGroup(group_id=group.group_id, error_code=code) for group in request.groups]
    return OffsetFetchResponse(groups=groups)


def _describe_groups(request: DescribeGroupsRequest, code: int, version: int) -> Response:
    groups = [
        DescribedGroup(error_code=code, group_id=group, group_state="", protocol_type="", protocol_data="", members=[])
        for group in request.groups
    ]
    return DescribeGroupsResponse(groups=groups)


def _list_groups(request: ListGroupsRequest, code: int, version: int) -> Response:
    return ListGroupsResponse(error_code=code, groups=[])


def _delete_groups(request: DeleteGroupsRequest, code: int, version: int) -> Response:
    results = [DeletableGroupResult(group_id=group, error_code=code) for group in request.groups_names]
    return DeleteGroupsResponse(throttle_time_ms=0, results=results)


def _describe_configs(request: DescribeConfigsRequest, code: int, version: int) -> Response:
    results = [
        DescribeConfigsResult(
            error_code=code,
            error_message=None,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            configs=[],
        )
        for resource in request.resources
    ]
    return DescribeConfigsResponse(throttle_time_ms=0, results=results)


def _alter_configs(request: AlterConfigsRequest, code: int, version: int) -> Response:
    responses = [
        AlterConfigsResponseResource(
            error_code=code, error_message=None, resource_type=each.resource_type, resource_name=each.resource_name
        )
        for each in request.resources
    ]
    return AlterConfigsResponse(throttle_time_ms=0, responses=responses)


def _incremental_alter_configs(request: IncrementalAlterConfigsRequest, code: int, version: int) -> Response:
    responses = [
        IncrementalAlterConfigsResponseResource(
            error_code=code, error_message=None, resource_type=each.resource_type, resource_name=each.resource_name
        )
        for each in request.resources
    ]
    return IncrementalAlterConfigsResponse(throttle_time_ms=0, responses=responses)


def _describe_cluster(request: DescribeClusterRequest, code: int, version: int) -> Response:
    return DescribeClusterResponse(throttle_time_ms=0, error_code=code, cluster_id="", brokers=[])


_MAKERS: dict[type[Request[Any]], Callable[[Any, int, int], Response]] = {
    ProduceRequest: _produce,
    FetchRequest: _fetch,
    ListOffsetsRequest: _list_offsets,
    OffsetForLeaderEpochRequest: _offset_for_leader_epoch,
    MetadataRequest: _metadata,
    ApiVersionsRequest: _api_versions,
    CreateTopicsRequest: _create_topics,
    DeleteTopicsRequest: _delete_topics,
    CreatePartitionsRequest: _create_partitions,
    InitProducerIdRequest: _init_producer_id,
    FindCoordinatorRequest: _find_coordinator,
    JoinGroupRequest: _join_group,
    SyncGroupRequest: _sync_group,
    HeartbeatRequest: _heartbeat,
    LeaveGroupRequest: _leave_group,
    OffsetCommitRequest: _offset_commit,
    OffsetFetchRequest: _offset_fetch,
    DescribeGroupsRequest: _describe_groups,
    ListGroupsRequest: _list_groups,
    DeleteGroupsRequest: _delete_groups,
    DescribeConfigsRequest: _describe_configs,
    AlterConfigsRequest: _alter_configs,
    IncrementalAlterConfigsRequest: _incremental_alter_configs,
    DescribeClusterRequest: _describe_cluster,
}


# ---- a part of a request


def split_request(request: Q, is_about: IsAbout, topic_name: TopicName) -> tuple[Q, Q | None]:
    """The part of a request that a fault is about, and the rest; None as the rest when it is about all of it."""
    match request:
        case ProduceRequest():
            hit, rest = _split(request.topic_data, "partition_data", "index", is_about, topic_name)
            if rest:
                return dataclasses.replace(request, topic_data=hit), dataclasses.replace(request, topic_data=rest)
        case FetchRequest():
            hit, rest = _split(request.topics, "partitions", "partition", is_about, topic_name)
            if rest:
                return dataclasses.replace(request, topics=hit), dataclasses.replace(request, topics=rest)
        case ListOffsetsRequest():
            hit, rest = _split(request.topics, "partitions", "partition_index", is_about, topic_name)
            if rest:
                return dataclasses.replace(request, topics=hit), dataclasses.replace(request, topics=rest)
        case MetadataRequest() if request.topics:
            hit = [topic for topic in request.topics if is_about(topic.name or topic_name(topic.topic_id), None)]
            rest = [topic for topic in request.topics if topic not in hit]
            if rest:
                return dataclasses.replace(request, topics=hit), dataclasses.replace(request, topics=rest)
    return request, None


def _split(
    topics: list[Any], field: str, index: str, is_about: IsAbout, topic_name: TopicName
) -> tuple[list[Any], list[Any]]:
    hit: list[Any] = []
    rest: list[Any] = []
    for topic in topics:
        name = getattr(topic, "name", "") or getattr(topic, "topic", "") or topic_name(topic.topic_id)
        partitions = getattr(topic, field)
        chosen = [part for part in partitions if is_about(name, getattr(part, index))]
        others = [part for part in partitions if part not in chosen]
        if chosen:
            hit.append(dataclasses.replace(topic, **{field: chosen}))
        if others:
            rest.append(dataclasses.replace(topic, **{field: others}))
    return hit, rest


def merge_responses(failed: Response, handled: Response) -> Response:
    """Put the failed part's topics back into the handled part's response."""
    match failed, handled:
        case ProduceResponse(), ProduceResponse():
            _merge(handled.responses, failed.responses, "partition_responses")
        case FetchResponse(), FetchResponse():
            _merge(handled.responses, failed.responses, "partitions")
        case ListOffsetsResponse(), ListOffsetsResponse():
            _merge(handled.topics, failed.topics, "partitions")
        case MetadataResponse(), MetadataResponse():
            handled.topics.extend(failed.topics)
    return handled


def _merge(into: list[Any], topics: list[Any], field: str) -> None:
    for topic in topics:
        name = getattr(topic, "name", "") or getattr(topic, "topic", "")
        topic_id = getattr(topic, "topic_id", b"")
        for present in into:
            same_name = (getattr(present, "name", "") or getattr(present, "topic", "")) == name
            if same_name and getattr(present, "topic_id", b"") == topic_id:
                getattr(present, field).extend(getattr(topic, field))
                break
        else:
            into.append(topic)
