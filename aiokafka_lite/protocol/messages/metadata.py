"""Brokers, topics, the leaders of partitions, and the controller.

Metadata:

- v0: an empty list means all topics.
- v1: racks and the controller; null means all topics, and an empty list means none.
- v2: the cluster id.
- v4: a switch for automatic topic creation.
- v5: offline replicas.
- v7: leader epochs, which distinguish old from new leaders (KIP-320).
- v8 to v10: authorized operations. In v11 the cluster's operations moved to DescribeCluster (KIP-700).
- v9: flexible.
- v10: topic ids in the response.
- v12: requests by topic id (KIP-516).
- v13: a top-level error (KIP-1102).

DescribeCluster v1 may be sent to a controller, v2 returns fenced brokers too.

DescribeTopicPartitions (KIP-966) returns topics in pages. It includes the replicas that may become leaders although
they are not in sync.
"""

from __future__ import annotations

from ..schema import (
    ZERO_UUID,
    Request,
    Response,
    array,
    boolean,
    int8,
    int16,
    int32,
    message,
    nested,
    since,
    string,
    struct,
    uuid,
)

UNKNOWN_OPERATIONS = -(2**31)

MAX_BROKERS = 10_000
"""Brokers in a response, as in librdkafka. More are refused before they are decoded, which would block the loop."""

MAX_PARTITIONS = 100_000
"""Partitions of a topic, as in librdkafka."""


@struct
class MetadataResponseBroker:
    """A live broker and its address."""

    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string("1+", nullable="1+", default=None, ignorable=True)


@struct
class MetadataResponsePartition:
    """A partition and its replicas.

    ``leader_id`` is -1 without a leader. With LEADER_NOT_AVAILABLE or REPLICA_NOT_AVAILABLE the other fields are valid.
    """

    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32("7+", default=-1, ignorable=True)
    replica_nodes: list[int] = array(int32)
    isr_nodes: list[int] = array(int32)
    offline_replicas: list[int] = array(int32, "5+", default=[], ignorable=True)


@struct
class MetadataResponseTopic:
    """A topic. Its name is null if the request had an unknown id, its id is zero if the request had an unknown name."""

    error_code: int = int16()
    name: str | None = string(nullable="12+")
    topic_id: bytes = uuid("10+", default=ZERO_UUID, ignorable=True)
    is_internal: bool = boolean("1+", default=False, ignorable=True)
    partitions: list[MetadataResponsePartition] = array(MetadataResponsePartition, most=MAX_PARTITIONS)
    topic_authorized_operations: int = int32("8+", default=UNKNOWN_OPERATIONS)


@message(key=3, versions=(0, 13), flexible=9)
class MetadataResponse(Response):
    """The cluster as one broker knows it, which may be outdated."""

    CLIENT_THROTTLES = since(6)

    throttle_time_ms: int = int32("3+", default=0, ignorable=True)
    brokers: list[MetadataResponseBroker] = array(MetadataResponseBroker, most=MAX_BROKERS)
    cluster_id: str | None = string("2+", nullable="2+", default=None, ignorable=True)
    controller_id: int = int32("1+", default=-1, ignorable=True)
    topics: list[MetadataResponseTopic] = array(MetadataResponseTopic)
    cluster_authorized_operations: int = int32("8-10", default=UNKNOWN_OPERATIONS)
    error_code: int = int16("13+", default=0, ignorable=True)


@struct
class MetadataRequestTopic:
    """A topic by name, or by id with a null name (v12 and above; in v10 and v11 brokers refuse that)."""

    topic_id: bytes = uuid("10+", default=ZERO_UUID, ignorable=True)
    name: str | None = string(nullable="10+")


@message(key=3, versions=(0, 13), flexible=9)
class MetadataRequest(Request[MetadataResponse]):
    """Request some topics, all (``topics=None``), or none (``[]``, which means all in version 0).

    Below v4, a broker with auto-creation creates every unknown topic of the request. A request for all topics or none
    creates nothing, so it leaves the switch at its default, which every version can carry.
    """

    NO_TOPICS = since(1)  # an empty list means no topics; before, all topics
    RELIABLE_EPOCHS = since(9)  # before Kafka 2.4, brokers may return outdated leader epochs
    BY_TOPIC_ID = since(12, kafka="3.1")

    topics: list[MetadataRequestTopic] | None = array(MetadataRequestTopic, nullable="1+")
    allow_auto_topic_creation: bool = boolean("4+", default=True)
    include_cluster_authorized_operations: bool = boolean("8-10", default=False)
    include_topic_authorized_operations: bool = boolean("8+", default=False)


@struct
class DescribeClusterBroker:
    """A broker, or a controller if the request is for controllers."""

    broker_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable="0+", default=None)
    is_fenced: bool = boolean("2+", default=False)


@message(key=60, versions=(0, 2), flexible=0)
class DescribeClusterResponse(Response):
    """The cluster without its topics."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    endpoint_type: int = int8("1+", default=1)
    cluster_id: str = string()
    controller_id: int = int32(default=-1)
    brokers: list[DescribeClusterBroker] = array(DescribeClusterBroker, most=MAX_BROKERS)
    cluster_authorized_operations: int = int32(default=UNKNOWN_OPERATIONS)


@message(key=60, versions=(0, 2), flexible=0)
class DescribeClusterRequest(Request[DescribeClusterResponse]):
    """Describe the cluster: ``endpoint_type`` BROKERS or CONTROLLERS."""

    BROKERS = 1
    CONTROLLERS = 2
    ENDPOINT_TYPE = since(1, kafka="3.7")
    FENCED_BROKERS = since(2, kafka="4.0")

    include_cluster_authorized_operations: bool = boolean()
    endpoint_type: int = int8("1+", default=1)
    include_fenced_brokers: bool = boolean("2+", default=False)


@struct
class TopicPartitionCursor:
    """The first partition of a page."""

    topic_name: str = string()
    partition_index: int = int32()


@struct
class DescribeTopicPartitionsResponsePartition:
    """A partition and its replicas. Lists are null if the broker does not track them."""

    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32(default=-1, ignorable=True)
    replica_nodes: list[int] = array(int32)
    isr_nodes: list[int] = array(int32)
    eligible_leader_replicas: list[int] | None = array(int32, nullable="0+", default=None)
    last_known_elr: list[int] | None = array(int32, nullable="0+", default=None)
    offline_replicas: list[int] = array(int32, ignorable=True)


@struct
class DescribeTopicPartitionsResponseTopic:
    """A topic, or the part of it that fits on the page."""

    error_code: int = int16()
    name: str | None = string(nullable="0+")
    topic_id: bytes = uuid(ignorable=True)
    is_internal: bool = boolean(default=False, ignorable=True)
    partitions: list[DescribeTopicPartitionsResponsePartition] = array(DescribeTopicPartitionsResponsePartition)
    topic_authorized_operations: int = int32(default=UNKNOWN_OPERATIONS)


@message(key=75, versions=(0, 0), flexible=0)
class DescribeTopicPartitionsResponse(Response):
    """A page of topics. ``next_cursor`` is null on the last page."""

    throttle_time_ms: int = int32(default=0, ignorable=True)
    topics: list[DescribeTopicPartitionsResponseTopic] = array(DescribeTopicPartitionsResponseTopic)
    next_cursor: TopicPartitionCursor | None = nested(TopicPartitionCursor, nullable="0+", default=None)


@struct
class DescribeTopicPartitionsRequestTopic:
    """A topic by name."""

    name: str = string()


@message(key=75, versions=(0, 0), flexible=0)
class DescribeTopicPartitionsRequest(Request[DescribeTopicPartitionsResponse]):
    """Request topics in the order of their names from the cursor on: the named topics, or all without names."""

    topics: list[DescribeTopicPartitionsRequestTopic] = array(DescribeTopicPartitionsRequestTopic)
    response_partition_limit: int = int32(default=2000)
    cursor: TopicPartitionCursor | None = nested(TopicPartitionCursor, nullable="0+", default=None)
