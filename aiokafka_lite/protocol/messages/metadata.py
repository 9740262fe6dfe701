"""metadata"""

from __future__ import annotations

from ..schema import ZERO_UUID, Request, Response, array, boolean, int8, int16, int32, message, string, struct, uuid

UNKNOWN_OPERATIONS = -(2**31)


@struct
class MetadataResponseBroker:
    """A list of brokers present in the cluster."""

    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string("1+", nullable="1+", default=None, ignorable=True)


@struct
class MetadataResponsePartition:
    """Each partition in the topic."""

    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32("7+", default=-1, ignorable=True)
    replica_nodes: list[int] = array(int32)
    isr_nodes: list[int] = array(int32)
    offline_replicas: list[int] = array(int32, "5+", default=[], ignorable=True)


@struct
class MetadataResponseTopic:
    """Each topic in the response."""

    error_code: int = int16()
    name: str | None = string(nullable="12+")
    topic_id: bytes = uuid("10+", default=ZERO_UUID, ignorable=True)
    is_internal: bool = boolean("1+", default=False, ignorable=True)
    partitions: list[MetadataResponsePartition] = array(MetadataResponsePartition)
    topic_authorized_operations: int = int32("8+", default=UNKNOWN_OPERATIONS)


@message(key=3, versions=(0, 13), flexible=9)
class MetadataResponse(Response):
    """MetadataResponse"""

    throttle_time_ms: int = int32("3+", default=0, ignorable=True)
    brokers: list[MetadataResponseBroker] = array(MetadataResponseBroker)
    cluster_id: str | None = string("2+", nullable="2+", default=None, ignorable=True)
    controller_id: int = int32("1+", default=-1, ignorable=True)
    topics: list[MetadataResponseTopic] = array(MetadataResponseTopic)
    cluster_authorized_operations: int = int32("8-10", default=UNKNOWN_OPERATIONS)
    error_code: int = int16("13+", default=0, ignorable=True)


@struct
class MetadataRequestTopic:
    """The topics to fetch metadata for."""

    topic_id: bytes = uuid("10+", default=ZERO_UUID, ignorable=True)
    name: str | None = string(nullable="10+")


@message(key=3, versions=(0, 13), flexible=9)
class MetadataRequest(Request[MetadataResponse]):
    """MetadataRequest"""

    topics: list[MetadataRequestTopic] | None = array(MetadataRequestTopic, nullable="1+")
    allow_auto_topic_creation: bool = boolean("4+", default=True)
    include_cluster_authorized_operations: bool = boolean("8-10", default=False)
    include_topic_authorized_operations: bool = boolean("8+", default=False)


@struct
class DescribeClusterBroker:
    """Each broker in the response."""

    broker_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable="0+", default=None)
    is_fenced: bool = boolean("2+", default=False)


@message(key=60, versions=(0, 2), flexible=0)
class DescribeClusterResponse(Response):
    """DescribeClusterResponse"""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    endpoint_type: int = int8("1+", default=1)
    cluster_id: str = string()
    controller_id: int = int32(default=-1)
    brokers: list[DescribeClusterBroker] = array(DescribeClusterBroker)
    cluster_authorized_operations: int = int32(default=UNKNOWN_OPERATIONS)


@message(key=60, versions=(0, 2), flexible=0)
class DescribeClusterRequest(Request[DescribeClusterResponse]):
    """DescribeClusterRequest"""

    include_cluster_authorized_operations: bool = boolean()
    endpoint_type: int = int8("1+", default=1)
    include_fenced_brokers: bool = boolean("2+", default=False)
