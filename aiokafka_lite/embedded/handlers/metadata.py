"""Metadata, DescribeTopicPartitions and DescribeCluster: the brokers, the topics, and the leaders of partitions.

- In Metadata v0 an empty list means all topics. From v1 on null means all topics, and an empty list means none.
- From v4 on the client chooses whether a request creates missing topics. Before, every request does.
- v5 adds offline replicas, v7 leader epochs, and v8 to v10 authorized operations.
- v10 has topic ids in responses, v12 in requests. v13 has an error code for the response.
- A partition without a leader has the error LEADER_NOT_AVAILABLE.
- A request creates no topic if it names so many missing ones that Kafka's controller refuses to create them.
- Unlike in Kafka, the response has the topics that the request creates, unless there is a ``topic_creation_delay``.
- A topic that the client may not describe has the error TOPIC_AUTHORIZATION_FAILED, whether it exists or not. A request
  for all topics leaves it out.
- DescribeTopicPartitions (KIP-966) returns pages: topics sorted by name, partitions by number. A request that names no
  topic means all topics. The request and the broker both limit the number of partitions on a page. The cursor names the
  first partition of the next page; its partition number counts only if its topic still exists. The last known leader of
  a partition without an in-sync set is in ``last_known_elr``, as in Kafka.
- DescribeCluster v1 adds the endpoint type, v2 fenced brokers.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from ...acls import AclOperation, AclResourceType
from ...errors import ErrorCode
from ...protocol import messages as m
from ...protocol.schema import ZERO_UUID
from ..error_responses import error_response
from ..metadata.controller import Refused
from ..metadata.topics import NO_LEADER, PartitionRegistration, Topic, is_legal_name
from ..metadata.view import MetadataView
from ..request_context import RequestContext, handles
from ..security.authorizer import CLUSTER, Resource
from .topics import MAX_NEW_PARTITIONS

logger = logging.getLogger(__name__)

UNKNOWN_OPERATIONS = -(2**31)
MAX_PAGE = 2000
"""Partitions on a page of DescribeTopicPartitions."""


@handles(m.MetadataRequest)
def metadata(context: RequestContext, request: m.MetadataRequest) -> m.MetadataResponse:
    broker = context.broker
    if context.version < m.MetadataRequest.BY_TOPIC_ID and _has_ids(request):
        refusal = error_response(request, ErrorCode.INVALID_REQUEST, context.version)
        assert isinstance(refusal, m.MetadataResponse)
        return refusal
    wants_all = request.topics is None or (context.version < m.MetadataRequest.NO_TOPICS and not request.topics)
    topics = list(_all(context)) if wants_all else list(_named(context, request))
    if request.include_topic_authorized_operations:
        for topic in topics:
            if topic.name is not None:
                resource = Resource(AclResourceType.TOPIC, topic.name)
                topic.topic_authorized_operations = context.allowed_operations(resource)
    return m.MetadataResponse(
        brokers=[
            m.MetadataResponseBroker(
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


def _operations(context: RequestContext, request: m.MetadataRequest | m.DescribeClusterRequest) -> int:
    """Return the operations that the client may do on the cluster; none if it may not describe it."""
    if not request.include_cluster_authorized_operations:
        return UNKNOWN_OPERATIONS
    return context.allowed_operations(CLUSTER) if context.allows(AclOperation.DESCRIBE) else 0


def _has_ids(request: m.MetadataRequest) -> bool:
    """Return whether a topic is named by its id. The fields exist since v10, and brokers accept them since v12."""
    return any(topic.name is None or topic.topic_id != ZERO_UUID for topic in request.topics or ())


def _all(context: RequestContext) -> Iterable[m.MetadataResponseTopic]:
    broker = context.broker
    for topic in broker.metadata.topics.values():
        if context.allows_topic(AclOperation.DESCRIBE, topic.name):
            yield _describe(broker.metadata, topic)


def _named(context: RequestContext, request: m.MetadataRequest) -> Iterable[m.MetadataResponseTopic]:
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


def _by_id(context: RequestContext, topic: m.MetadataRequestTopic) -> m.MetadataResponseTopic:
    name = context.broker.metadata.topic_name(topic.topic_id)
    if name is None or not context.allows_topic(AclOperation.DESCRIBE, name):
        code = ErrorCode.UNKNOWN_TOPIC_ID if name is None else ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return m.MetadataResponseTopic(error_code=code, name=None, topic_id=topic.topic_id, partitions=[])
    return _describe(context.broker.metadata, context.broker.metadata.topics[name])


def _by_name(context: RequestContext, name: str, *, may_create: bool | None) -> m.MetadataResponseTopic:
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


def _failed(name: str, code: ErrorCode) -> m.MetadataResponseTopic:
    return m.MetadataResponseTopic(error_code=code, name=name, partitions=[])


def _describe(metadata: MetadataView, topic: Topic) -> m.MetadataResponseTopic:
    return m.MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[_partition(metadata, index, state) for index, state in enumerate(topic.partitions)],
    )


def _partition(metadata: MetadataView, index: int, state: PartitionRegistration) -> m.MetadataResponsePartition:
    offline = [replica for replica in state.replicas if not metadata.is_alive(replica)]
    error = ErrorCode.LEADER_NOT_AVAILABLE if state.leader == NO_LEADER else ErrorCode.NONE
    return m.MetadataResponsePartition(
        error_code=error,
        partition_index=index,
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        replica_nodes=list(state.replicas),
        isr_nodes=list(state.isr),
        offline_replicas=offline,
    )


@handles(m.DescribeTopicPartitionsRequest)
def describe_topic_partitions(
    context: RequestContext, request: m.DescribeTopicPartitionsRequest
) -> m.DescribeTopicPartitionsResponse:
    cursor = request.cursor or m.TopicPartitionCursor(topic_name="", partition_index=0)
    if request.cursor is not None and (cursor.partition_index < 0 or not cursor.topic_name):
        raise Refused(ErrorCode.INVALID_REQUEST, f"the cursor must be a topic and a partition, got {cursor}")
    names = {topic.name for topic in request.topics}
    names_from_cursor = [name for name in sorted(names or context.broker.metadata.topics) if name >= cursor.topic_name]
    described = [name for name in names_from_cursor if context.allows_topic(AclOperation.DESCRIBE, name)]
    response = _page(context, described, cursor, max(1, min(request.response_partition_limit, MAX_PAGE)))
    if names:  # denied topics are on every page, as in Kafka
        response.topics += [_denied(name) for name in names_from_cursor if name not in described]
    return response


def _page(
    context: RequestContext, names: Iterable[str], cursor: m.TopicPartitionCursor, room: int
) -> m.DescribeTopicPartitionsResponse:
    """Return the first partitions of these topics, from the cursor on: at most ``room`` of them."""
    response = m.DescribeTopicPartitionsResponse(topics=[])
    for name in names:
        first = cursor.partition_index if name == cursor.topic_name else 0
        if not room:
            response.next_cursor = m.TopicPartitionCursor(topic_name=name, partition_index=0)
            break
        topic = _page_topic(context, name, first, room)
        response.topics.append(topic)
        room -= len(topic.partitions)
        registered = context.broker.metadata.topics.get(name)
        end = first + len(topic.partitions)
        if registered is not None and not topic.error_code and end < len(registered.partitions):
            response.next_cursor = m.TopicPartitionCursor(topic_name=name, partition_index=end)
            break
    return response


def _denied(name: str) -> m.DescribeTopicPartitionsResponseTopic:
    return m.DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name, topic_id=ZERO_UUID, partitions=[]
    )


def _page_topic(context: RequestContext, name: str, first: int, room: int) -> m.DescribeTopicPartitionsResponseTopic:
    described = m.DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.NONE,
        name=name,
        topic_id=ZERO_UUID,
        partitions=[],
        topic_authorized_operations=context.allowed_operations(Resource(AclResourceType.TOPIC, name)),
    )
    topic = context.broker.metadata.topics.get(name)
    if not is_legal_name(name):
        described.error_code = ErrorCode.INVALID_TOPIC_EXCEPTION
    elif topic is None:
        described.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    else:
        described.topic_id = topic.topic_id
        states = list(enumerate(topic.partitions))[first : first + room]
        described.partitions = [_page_partition(context.broker.metadata, index, state) for index, state in states]
    return described


def _page_partition(
    metadata: MetadataView, index: int, state: PartitionRegistration
) -> m.DescribeTopicPartitionsResponsePartition:
    return m.DescribeTopicPartitionsResponsePartition(
        error_code=ErrorCode.LEADER_NOT_AVAILABLE if state.leader == NO_LEADER else ErrorCode.NONE,
        partition_index=index,
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        replica_nodes=list(state.replicas),
        isr_nodes=list(state.isr),
        eligible_leader_replicas=list(state.elr),
        last_known_elr=[] if state.last_leader == NO_LEADER else [state.last_leader],
        offline_replicas=[replica for replica in state.replicas if not metadata.is_alive(replica)],
    )


@handles(m.DescribeClusterRequest)
def describe_cluster(context: RequestContext, request: m.DescribeClusterRequest) -> m.DescribeClusterResponse:
    broker = context.broker
    if request.endpoint_type != m.DescribeClusterRequest.BROKERS:
        return m.DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE
            if request.endpoint_type == m.DescribeClusterRequest.CONTROLLERS
            else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message="this endpoint is a broker",
            cluster_id="",
            brokers=[],
        )
    return m.DescribeClusterResponse(
        error_code=ErrorCode.NONE,
        cluster_id=broker.cluster_id,
        controller_id=broker.controller.controller_id,
        brokers=[
            m.DescribeClusterBroker(
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
