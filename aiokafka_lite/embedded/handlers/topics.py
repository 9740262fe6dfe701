"""CreateTopics, DeleteTopics and CreatePartitions.

- Any node takes them and passes them to the controller, as Kafka's brokers have done since KRaft.
- CreateTopics v4 lets -1 stand for the broker's defaults (taken here in every version); v5 answers with the settings
  that the topic got (KIP-525); v7 with its id. A topic named twice in one request is refused both times.
- DeleteTopics v5 adds messages, v6 takes ids as well as names (KIP-516).
- CreatePartitions asks for a new total, not for an increment.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ...errors import ErrorCode
from ...protocol.messages import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ...protocol.schema import ZERO_UUID
from ..authoriser import CLUSTER, Operation, Resource, ResourceType
from ..configs import TOPIC_KEYS, topic_synonyms
from ..controller import Refused
from ..topics import Topic

if TYPE_CHECKING:
    from ..connection import RequestContext


def create_topics(context: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
    counts = Counter(topic.name for topic in request.topics)
    results = []
    for name in counts:
        wanted = next(topic for topic in request.topics if topic.name == name)
        try:
            if counts[name] > 1:
                raise Refused(ErrorCode.INVALID_REQUEST, f"topic {name!r} is named {counts[name]} times")
            _allow_creation(context, name)
            results.append(_created(context, _create(context, wanted, validate_only=request.validate_only)))
        except Refused as refusal:
            results.append(CreatableTopicResult(name=name, error_code=refusal.code, error_message=str(refusal)))
    return CreateTopicsResponse(throttle_time_ms=0, topics=results)


def _allow_creation(context: RequestContext, name: str) -> None:
    allows = context.node.cluster.authoriser.allows
    if not allows(context.principal, Operation.CREATE, CLUSTER) or not allows(
        context.principal, Operation.CREATE, Resource(ResourceType.TOPIC, name)
    ):
        raise Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "not allowed")


def _create(context: RequestContext, wanted: CreatableTopic, *, validate_only: bool) -> Topic:
    assignments = [(each.partition_index, each.broker_ids) for each in wanted.assignments] or None
    nulls = [each.name for each in wanted.configs if each.value is None]
    return context.node.cluster.controller.create_topic(
        wanted.name,
        wanted.num_partitions,
        wanted.replication_factor,
        assignments=assignments,
        configs={each.name: each.value for each in wanted.configs} | dict.fromkeys(nulls),
        validate_only=validate_only,
    )


def _created(context: RequestContext, topic: Topic) -> CreatableTopicResult:
    result = CreatableTopicResult(
        name=topic.name, topic_id=topic.topic_id, error_code=ErrorCode.NONE, error_message=None
    )
    result.num_partitions = len(topic.partitions)
    result.replication_factor = len(topic.partitions[0].replicas)
    if context.version >= 5:
        layers = context.node.cluster.controller.layers()
        in_force = [(name, topic_synonyms(name, topic.configs, layers)[0]) for name in TOPIC_KEYS]
        result.configs = [
            CreatableTopicConfigs(name=name, value=each.value, config_source=each.source) for name, each in in_force
        ]
    return result


def delete_topics(context: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    wanted = request.topics if context.version >= 6 else [DeleteTopicState(name=name) for name in request.topic_names]
    counts = Counter((each.name, each.topic_id) for each in wanted)
    responses = []
    for each in wanted:
        result = DeletableTopicResult(name=each.name, topic_id=each.topic_id, error_code=ErrorCode.NONE)
        try:
            if (each.name is None) == (each.topic_id == ZERO_UUID):
                raise Refused(ErrorCode.INVALID_REQUEST, "either a name or an id")
            count = counts.pop((each.name, each.topic_id), 0)
            if count == 0:
                continue
            if count > 1:
                raise Refused(ErrorCode.INVALID_REQUEST, f"named {count} times")
            _delete(context, result)
        except Refused as refusal:
            result.error_code, result.error_message = refusal.code, str(refusal)
        responses.append(result)
    return DeleteTopicsResponse(throttle_time_ms=0, responses=responses)


def _delete(context: RequestContext, result: DeletableTopicResult) -> None:
    """Delete the topic that a result is about and complete the result; raises Refused."""
    node, name = context.node, result.name
    if name is None:
        name = node.cluster.controller.names.get(result.topic_id)
        if name is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_ID, "there is no topic with this id")
        result.name = name
    if not node.cluster.authoriser.allows(context.principal, Operation.DELETE, Resource(ResourceType.TOPIC, name)):
        raise Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "not allowed")
    result.topic_id = node.cluster.controller.delete_topic(name).topic_id


def create_partitions(context: RequestContext, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    counts = Counter(topic.name for topic in request.topics)
    results = []
    for name in counts:
        wanted = next(topic for topic in request.topics if topic.name == name)
        result = CreatePartitionsTopicResult(name=name, error_code=ErrorCode.NONE)
        try:
            if counts[name] > 1:
                raise Refused(ErrorCode.INVALID_REQUEST, f"topic {name!r} is named {counts[name]} times")
            _add_partitions(context, wanted, validate_only=request.validate_only)
        except Refused as refusal:
            result.error_code, result.error_message = refusal.code, str(refusal)
        results.append(result)
    return CreatePartitionsResponse(throttle_time_ms=0, results=results)


def _add_partitions(context: RequestContext, wanted: CreatePartitionsTopic, *, validate_only: bool) -> None:
    cluster = context.node.cluster
    if not cluster.authoriser.allows(context.principal, Operation.ALTER, Resource(ResourceType.TOPIC, wanted.name)):
        raise Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "not allowed")
    assignments = None if wanted.assignments is None else [each.broker_ids for each in wanted.assignments]
    cluster.controller.create_partitions(wanted.name, wanted.count, assignments, validate_only=validate_only)


HANDLERS = {
    CreateTopicsRequest: create_topics,
    DeleteTopicsRequest: delete_topics,
    CreatePartitionsRequest: create_partitions,
}
