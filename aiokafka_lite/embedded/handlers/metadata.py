"""Metadata and DescribeCluster: who is there and who leads what.

- Metadata v0 asks for all topics with an empty list; from v1 on that is null, and an empty list asks for none.
- v4 lets a client forbid the creation of the topics that it asks for; before, asking may create them.
- v5 adds offline replicas, v7 leader epochs, v8 to v10 authorised operations, v10 topic ids (v12 lets them be asked
  for), v13 an error code for the whole.
- A partition without a leader carries LEADER_NOT_AVAILABLE; v0 and v1 clients see it like all others.
- Unlike Kafka, a topic created by being asked for is in the same answer.
- DescribeCluster v1 adds the kind of endpoint, v2 fenced brokers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

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
from ..authoriser import Operation, Resource, ResourceType
from ..controller import Refused
from ..topics import NO_LEADER, PartitionState, Topic, is_legal_name

if TYPE_CHECKING:
    from ..connection import RequestContext
    from ..node import BrokerNode

UNKNOWN_OPERATIONS = -(2**31)
CLUSTER_OPERATIONS = sum(1 << code for code in (5, 7, 8, 9, 10, 11, 12))
TOPIC_OPERATIONS = sum(1 << code for code in (3, 4, 5, 6, 7, 8, 10, 11))


def metadata(context: RequestContext, request: MetadataRequest) -> MetadataResponse:
    node = context.node
    wants_all = request.topics is None or (context.version == 0 and not request.topics)
    topics = list(_all(context)) if wants_all else list(_asked_for(context, request))
    if request.include_topic_authorized_operations:
        for topic in topics:
            if topic.name is not None:
                topic.topic_authorized_operations = TOPIC_OPERATIONS
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=each.node_id, host=each.host, port=each.port, rack=each.rack)
            for each in sorted(node.brokers.values(), key=lambda each: each.node_id)
            if each.alive
        ],
        cluster_id=node.cluster.cluster_id,
        controller_id=node.cluster.controller.controller_id,
        topics=topics,
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else UNKNOWN_OPERATIONS
        ),
    )


def _all(context: RequestContext) -> Iterable[MetadataResponseTopic]:
    node = context.node
    for topic in node.topics.values():
        if _may_describe(context, topic.name):
            yield _describe(node, topic, context.version)


def _asked_for(context: RequestContext, request: MetadataRequest) -> Iterable[MetadataResponseTopic]:
    allowed = request.allow_auto_topic_creation and context.node.cluster.auto_create_topics
    by_id = {each.topic_id: each for each in request.topics or () if each.topic_id != ZERO_UUID}
    for wanted in by_id.values():
        yield _by_id(context, wanted)
    for name in {each.name: each for each in request.topics or () if not by_id}:
        # Where one topic is asked for by id, names count for nothing.
        yield _by_name(context, name or "", may_create=allowed)


def _by_id(context: RequestContext, wanted: MetadataRequestTopic) -> MetadataResponseTopic:
    name = context.node.topic_name(wanted.topic_id)
    if name is None or not _may_describe(context, name):
        return MetadataResponseTopic(
            error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=wanted.topic_id, partitions=[]
        )
    return _describe(context.node, context.node.topics[name], context.version)


def _by_name(context: RequestContext, name: str, *, may_create: bool) -> MetadataResponseTopic:
    node = context.node
    if not _may_describe(context, name):
        return _failed(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    topic = node.topics.get(name)
    if topic is None and may_create and is_legal_name(name):
        try:
            node.cluster.controller.create_topic(name)
        except Refused as refusal:
            return _failed(name, refusal.code)
        topic = node.topics.get(name)
    if topic is not None:
        return _describe(node, topic, context.version)
    legal = is_legal_name(name)
    return _failed(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if legal else ErrorCode.INVALID_TOPIC_EXCEPTION)


def _may_describe(context: RequestContext, name: str) -> bool:
    return context.node.cluster.authoriser.allows(
        context.principal, Operation.DESCRIBE, Resource(ResourceType.TOPIC, name)
    )


def _failed(name: str, code: ErrorCode) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=code, name=name, partitions=[])


def _describe(node: BrokerNode, topic: Topic, version: int) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[_partition(node, index, state) for index, state in enumerate(topic.partitions)],
    )


def _partition(node: BrokerNode, index: int, state: PartitionState) -> MetadataResponsePartition:
    offline = [each for each in state.replicas if not (known := node.brokers.get(each)) or not known.alive]
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


def describe_cluster(context: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponse:
    node = context.node
    if request.endpoint_type != 1:
        return DescribeClusterResponse(
            throttle_time_ms=0,
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE
            if request.endpoint_type == 2
            else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message="this is a broker endpoint",
            cluster_id="",
            brokers=[],
        )
    return DescribeClusterResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        cluster_id=node.cluster.cluster_id,
        controller_id=node.cluster.controller.controller_id,
        brokers=[
            DescribeClusterBroker(
                broker_id=each.node_id, host=each.host, port=each.port, rack=each.rack, is_fenced=not each.alive
            )
            for each in sorted(node.brokers.values(), key=lambda each: each.node_id)
            if each.alive or request.include_fenced_brokers
        ],
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else UNKNOWN_OPERATIONS
        ),
    )


HANDLERS = {MetadataRequest: metadata, DescribeClusterRequest: describe_cluster}
