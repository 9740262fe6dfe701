"""Administrate the cluster itself: its metadata quorum, the levels of its features, and its registered brokers.

- DescribeQuorum (KIP-595) describes the partition ``__cluster_metadata``-0. v1 has the times of fetches (KIP-836), v2
  directories, messages and the listeners of the voters (KIP-853).
- UpdateFeatures (KIP-584) finalizes levels. v1 has ``validate_only`` and safe or unsafe downgrades, v2 has no result
  for each feature.
- UnregisterBroker removes a broker that has left permanently (KIP-631).
- AddRaftVoter and RemoveRaftVoter change the controllers of a dynamic quorum (KIP-853).
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
    int64,
    message,
    since,
    string,
    struct,
    uint16,
    uuid,
)


@struct
class DescribeQuorumReplica:
    """A replica of the metadata log. Times are milliseconds since the epoch, -1 if unknown."""

    replica_id: int = int32()
    replica_directory_id: bytes = uuid("2+", default=ZERO_UUID)
    log_end_offset: int = int64()
    last_fetch_timestamp: int = int64("1+", default=-1, ignorable=True)
    last_caught_up_timestamp: int = int64("1+", default=-1, ignorable=True)


@struct
class DescribeQuorumPartition:
    """The state of one partition."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string("2+", nullable="2+", default="", ignorable=True)
    leader_id: int = int32()
    leader_epoch: int = int32()
    high_watermark: int = int64()
    current_voters: list[DescribeQuorumReplica] = array(DescribeQuorumReplica)
    observers: list[DescribeQuorumReplica] = array(DescribeQuorumReplica)


@struct
class DescribeQuorumResponseTopic:
    """The partitions of one topic."""

    topic_name: str = string()
    partitions: list[DescribeQuorumPartition] = array(DescribeQuorumPartition)


@struct
class DescribeQuorumListener:
    """An address of a node."""

    name: str = string("2+", default="")
    host: str = string("2+", default="")
    port: int = uint16("2+", default=0)


@struct
class DescribeQuorumNode:
    """A voter's addresses."""

    node_id: int = int32("2+", default=0)
    listeners: list[DescribeQuorumListener] = array(DescribeQuorumListener, "2+", default=[])


@message(key=55, versions=(0, 2), flexible=0)
class DescribeQuorumResponse(Response):
    """The state of each requested partition."""

    error_code: int = int16()
    error_message: str | None = string("2+", nullable="2+", default="", ignorable=True)
    topics: list[DescribeQuorumResponseTopic] = array(DescribeQuorumResponseTopic)
    nodes: list[DescribeQuorumNode] = array(DescribeQuorumNode, "2+", default=[])


@struct
class DescribeQuorumRequestPartition:
    """A partition to describe."""

    partition_index: int = int32()


@struct
class DescribeQuorumRequestTopic:
    """The requested partitions of one topic."""

    topic_name: str = string()
    partitions: list[DescribeQuorumRequestPartition] = array(DescribeQuorumRequestPartition)


@message(key=55, versions=(0, 2), flexible=0)
class DescribeQuorumRequest(Request[DescribeQuorumResponse]):
    """Request the state of the metadata quorum."""

    INTRODUCED = since(0, kafka="3.3")
    NODES = since(2)

    topics: list[DescribeQuorumRequestTopic] = array(DescribeQuorumRequestTopic)


@struct
class UpdateFeaturesResult:
    """The result for one feature."""

    feature: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


@message(key=57, versions=(0, 2), flexible=0)
class UpdateFeaturesResponse(Response):
    """One result for all, and before v2 one for each feature."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    results: list[UpdateFeaturesResult] = array(UpdateFeaturesResult, "0-1", default=[], ignorable=True)


@struct
class UpdateFeaturesFeature:
    """The new level of a feature; 0 removes it. ``upgrade_type``: 1 upgrade, 2 safe downgrade, 3 unsafe downgrade."""

    feature: str = string()
    max_version_level: int = int16()
    allow_downgrade: bool = boolean("0", default=False)
    upgrade_type: int = int8("1+", default=1)


@message(key=57, versions=(0, 2), flexible=0)
class UpdateFeaturesRequest(Request[UpdateFeaturesResponse]):
    """Finalize levels of features for the whole cluster."""

    INTRODUCED = since(0, kafka="2.7")
    VALIDATE_ONLY = since(1, kafka="3.3")
    ONE_RESULT = since(2)

    timeout_ms: int = int32(default=60000)
    feature_updates: list[UpdateFeaturesFeature] = array(UpdateFeaturesFeature)
    validate_only: bool = boolean("1+", default=False)


@message(key=64, versions=(0, 0), flexible=0)
class UnregisterBrokerResponse(Response):
    """The result."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


@message(key=64, versions=(0, 0), flexible=0)
class UnregisterBrokerRequest(Request[UnregisterBrokerResponse]):
    """Remove a stopped broker from the cluster."""

    INTRODUCED = since(0, kafka="3.0")

    broker_id: int = int32()


@struct
class AddRaftVoterListener:
    """An address of the new voter."""

    name: str = string()
    host: str = string()
    port: int = uint16()


@message(key=80, versions=(0, 1), flexible=0)
class AddRaftVoterResponse(Response):
    """The result."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", ignorable=True)


@message(key=80, versions=(0, 1), flexible=0)
class AddRaftVoterRequest(Request[AddRaftVoterResponse]):
    """Add a controller to the voters of the metadata quorum."""

    INTRODUCED = since(0, kafka="3.9")

    cluster_id: str | None = string(nullable="0+")
    timeout_ms: int = int32()
    voter_id: int = int32()
    voter_directory_id: bytes = uuid()
    listeners: list[AddRaftVoterListener] = array(AddRaftVoterListener)
    ack_when_committed: bool = boolean("1+", default=True)


@message(key=81, versions=(0, 0), flexible=0)
class RemoveRaftVoterResponse(Response):
    """The result."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", ignorable=True)


@message(key=81, versions=(0, 0), flexible=0)
class RemoveRaftVoterRequest(Request[RemoveRaftVoterResponse]):
    """Remove a controller from the voters of the metadata quorum."""

    INTRODUCED = since(0, kafka="3.9")

    cluster_id: str | None = string(nullable="0+")
    voter_id: int = int32()
    voter_directory_id: bytes = uuid()
