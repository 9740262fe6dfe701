"""Metadata and DescribeCluster: the brokers, the topics, and the leaders of partitions.

- In Metadata v0 an empty list means all topics. From v1 on null means all topics, and an empty list means none.
- From v4 on the client chooses whether a request creates missing topics. Before, every request does.
- v5 adds offline replicas, v7 leader epochs, and v8 to v10 authorized operations.
- v10 has topic ids in responses, v12 in requests. v13 has an error code for the response.
- A partition without a leader has the error LEADER_NOT_AVAILABLE.
- A request creates no topic if it names so many missing ones that Kafka's controller refuses to create them.
- Unlike in Kafka, the response has the topics that the request creates, unless there is a ``topic_creation_delay``.
- A topic that the client may not describe has the error TOPIC_AUTHORIZATION_FAILED, whether it exists or not. A request
  for all topics leaves it out.
- DescribeCluster v1 adds the endpoint type, v2 fenced brokers.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from ...acls import AclOperation, AclResourceType
from ...errors import ErrorCode
from ...protocol.messages import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ...protocol.schema import ZERO_UUID
from ..error_responses import error_response
from ..metadata.controller import Refused
from ..metadata.topics import NO_LEADER, PartitionRegistration, Topic, is_legal_name
from ..metadata.view import MetadataView
from ..request_context import RequestContext, handles
from ..security.authorizer import CLUSTER, Resource
from .topics import MAX_NEW_PARTITIONS

logger = logging.getLogger(__name__)

BROKERS = 1
CONTROLLERS = 2
UNKNOWN_OPERATIONS = -(2**31)


@handles(MetadataRequest)
def metadata(context: RequestContext, request: MetadataRequest) -> MetadataResponse:
    broker = context.broker
    if context.version < MetadataRequest.BY_TOPIC_ID and _has_ids(request):
        refusal = error_response(request, ErrorCode.INVALID_REQUEST, context.version)
        assert isinstance(refusal, MetadataResponse)
        return refusal
    wants_all = request.topics is None or (context.version < MetadataRequest.NO_TOPICS and not request.topics)
    topics = list(_all(context)) if wants_all else list(_named(context, request))
    if request.include_topic_authorized_operations:
        for topic in topics:
            if topic.name is not None:
                resource = Resource(AclResourceType.TOPIC, topic.name)
                topic.topic_authorized_operations = context.allowed_operations(resource)
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(
                node_id=registration.node_id,
                host=registration.host,
                port=context.port_of(registration),
                rack=registration.rack,
            )
            for registration in sorted(broker.metadata.brokers.values(), key=lambda registration: registration.node_id)
            if registration.alive
        ],
        cluster_id=broker.cluster_id,
        controller_id=broker.controller.controller_id,
        topics=topics,
        cluster_authorized_operations=_operations(context, request),
    )


def _operations(context: RequestContext, request: MetadataRequest | DescribeClusterRequest) -> int:
    """Return the operations that the client may do on the cluster; none if it may not describe it."""
    if not request.include_cluster_authorized_operations:
        return UNKNOWN_OPERATIONS
    return context.allowed_operations(CLUSTER) if context.allows(AclOperation.DESCRIBE) else 0


def _has_ids(request: MetadataRequest) -> bool:
    """Return whether a topic is named by its id. The fields exist since v10, and brokers accept them since v12."""
    return any(topic.name is None or topic.topic_id != ZERO_UUID for topic in request.topics or ())


def _all(context: RequestContext) -> Iterable[MetadataResponseTopic]:
    broker = context.broker
    for topic in broker.metadata.topics.values():
        if context.allows_topic(AclOperation.DESCRIBE, topic.name):
            yield _describe(broker.metadata, topic)


def _named(context: RequestContext, request: MetadataRequest) -> Iterable[MetadataResponseTopic]:
    allowed = request.allow_auto_topic_creation and context.broker.settings.enabled("auto.create.topics.enable")
    by_id = {topic.topic_id: topic for topic in request.topics or () if topic.topic_id != ZERO_UUID}
    for topic in by_id.values():
        yield _by_id(context, topic)
    # If one topic is named by id, Kafka ignores all names.
    names = {} if by_id else {topic.name or "": None for topic in request.topics or ()}
    missing = _missing(context, names) if allowed else {}
    for name in names:
        yield _by_name(context, name, may_create=missing.get(name))


def _missing(context: RequestContext, names: Iterable[str]) -> dict[str, bool]:
    """Return the unknown topics that the client may describe, and for each, whether it may be created.

    If the request would create too many partitions, only the topics that may not be created are returned. In Kafka, the
    controller applies this limit.
    """
    broker = context.broker
    described = [
        name
        for name in names
        if name not in broker.metadata.topics and context.allows_topic(AclOperation.DESCRIBE, name)
    ]
    creates_all = context.allows(AclOperation.CREATE) if described else False
    missing = {name: creates_all or context.allows_topic(AclOperation.CREATE, name) for name in described}
    count = sum(may_create and is_legal_name(name) for name, may_create in missing.items())
    records = count * (1 + broker.settings.number("num.partitions"))
    if records <= MAX_NEW_PARTITIONS:
        return missing
    logger.warning(
        "refused to create %d topics of a Metadata request: topics and partitions need %d records, "
        "at most %d are allowed",
        count,
        records,
        MAX_NEW_PARTITIONS,
    )
    return {name: False for name, may_create in missing.items() if not may_create}


def _by_id(context: RequestContext, topic: MetadataRequestTopic) -> MetadataResponseTopic:
    name = context.broker.metadata.topic_name(topic.topic_id)
    if name is None or not context.allows_topic(AclOperation.DESCRIBE, name):
        code = ErrorCode.UNKNOWN_TOPIC_ID if name is None else ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return MetadataResponseTopic(error_code=code, name=None, topic_id=topic.topic_id, partitions=[])
    return _describe(context.broker.metadata, context.broker.metadata.topics[name])


def _by_name(context: RequestContext, name: str, *, may_create: bool | None) -> MetadataResponseTopic:
    """Describe a topic. ``may_create`` is None if missing topics are not created, False if the client may not do so."""
    broker = context.broker
    if not context.allows_topic(AclOperation.DESCRIBE, name):
        return _failed(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    topic = broker.metadata.topics.get(name)
    if topic is None and may_create is False:
        return _failed(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if topic is None and may_create:
        if not is_legal_name(name):
            return _failed(name, ErrorCode.INVALID_TOPIC_EXCEPTION)
        try:
            if broker.topic_creation_delay:
                broker.controller.create_topic_later(name, broker.topic_creation_delay)
            else:
                broker.controller.create_topic(name)
        except Refused as refusal:
            return _failed(name, refusal.code)
        topic = broker.metadata.topics.get(name)
    if topic is not None:
        return _describe(broker.metadata, topic)
    legal = is_legal_name(name)
    return _failed(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if legal else ErrorCode.INVALID_TOPIC_EXCEPTION)


def _failed(name: str, code: ErrorCode) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=code, name=name, partitions=[])


def _describe(metadata: MetadataView, topic: Topic) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[_partition(metadata, index, state) for index, state in enumerate(topic.partitions)],
    )


def _partition(metadata: MetadataView, index: int, state: PartitionRegistration) -> MetadataResponsePartition:
    offline = [replica for replica in state.replicas if not metadata.is_alive(replica)]
    error = ErrorCode.LEADER_NOT_AVAILABLE if state.leader == NO_LEADER else ErrorCode.NONE
    return MetadataResponsePartition(
        error_code=error,
        partition_index=index,
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        replica_nodes=list(state.replicas),
        isr_nodes=list(state.isr),
        offline_replicas=offline,
    )


@handles(DescribeClusterRequest)
def describe_cluster(context: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
    broker = context.broker
    if request.endpoint_type != BROKERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE
            if request.endpoint_type == CONTROLLERS
            else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message="this endpoint is a broker",
            cluster_id="",
            brokers=[],
        )
    return DescribeClusterResponse(
        error_code=ErrorCode.NONE,
        cluster_id=broker.cluster_id,
        controller_id=broker.controller.controller_id,
        brokers=[
            DescribeClusterBroker(
                broker_id=registration.node_id,
                host=registration.host,
                port=context.port_of(registration),
                rack=registration.rack,
                is_fenced=not registration.alive,
            )
            for registration in sorted(broker.metadata.brokers.values(), key=lambda registration: registration.node_id)
            if registration.alive or request.include_fenced_brokers
        ],
        cluster_authorized_operations=_operations(context, request),
    )
