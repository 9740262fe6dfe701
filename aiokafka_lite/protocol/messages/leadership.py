"""Elect leaders, and move replicas between brokers.

- ElectLeaders v1 can be unclean (KIP-460), v2 is flexible.
- AlterPartitionReassignments v1 can require an unchanged replication factor (KIP-455, KIP-860).
"""

from __future__ import annotations

from ..schema import Request, Response, array, boolean, int8, int16, int32, message, since, string, struct


@struct
class ElectLeadersPartitionResult:
    """The result of one partition's election."""

    partition_id: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


@struct
class ElectLeadersTopicResult:
    """The results of one topic's partitions."""

    topic: str = string()
    partition_result: list[ElectLeadersPartitionResult] = array(ElectLeadersPartitionResult)


@message(key=43, versions=(0, 2), flexible=2)
class ElectLeadersResponse(Response):
    """A result for each partition. If all partitions were requested, partitions without an election are left out."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16("1+", default=0)
    replica_election_results: list[ElectLeadersTopicResult] = array(ElectLeadersTopicResult)


@struct
class ElectLeadersTopic:
    """Partitions of one topic to elect leaders for."""

    topic: str = string()
    partitions: list[int] = array(int32)


@message(key=43, versions=(0, 2), flexible=2)
class ElectLeadersRequest(Request[ElectLeadersResponse]):
    """Elect leaders: type 0 for the preferred replica, 1 for any live replica; null means all partitions."""

    INTRODUCED = since(0, kafka="2.2")
    UNCLEAN = since(1, kafka="2.4")

    election_type: int = int8("1+", default=0)
    topic_partitions: list[ElectLeadersTopic] | None = array(ElectLeadersTopic, nullable="0+")
    timeout_ms: int = int32(default=60000)


@struct
class ReassignablePartitionResponse:
    """The result of one reassignment."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


@struct
class ReassignableTopicResponse:
    """The results of one topic's partitions."""

    name: str = string()
    partitions: list[ReassignablePartitionResponse] = array(ReassignablePartitionResponse)


@message(key=45, versions=(0, 1), flexible=0)
class AlterPartitionReassignmentsResponse(Response):
    """A top-level error, and an error for each partition."""

    throttle_time_ms: int = int32(default=0)
    allow_replication_factor_change: bool = boolean("1+", default=True, ignorable=True)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    responses: list[ReassignableTopicResponse] = array(ReassignableTopicResponse)


@struct
class ReassignablePartition:
    """The new replicas of a partition. Null cancels a reassignment."""

    partition_index: int = int32()
    replicas: list[int] | None = array(int32, nullable="0+", default=None)


@struct
class ReassignableTopic:
    """The partitions of one topic."""

    name: str = string()
    partitions: list[ReassignablePartition] = array(ReassignablePartition)


@message(key=45, versions=(0, 1), flexible=0)
class AlterPartitionReassignmentsRequest(Request[AlterPartitionReassignmentsResponse]):
    """Move replicas to other brokers."""

    INTRODUCED = since(0, kafka="2.4")
    KEEP_REPLICATION_FACTOR = since(1, kafka="4.1")

    timeout_ms: int = int32(default=60000)
    allow_replication_factor_change: bool = boolean("1+", default=True)
    topics: list[ReassignableTopic] = array(ReassignableTopic)


@struct
class OngoingPartitionReassignment:
    """A partition under reassignment: all replicas, the added ones, the removed ones."""

    partition_index: int = int32()
    replicas: list[int] = array(int32)
    adding_replicas: list[int] = array(int32)
    removing_replicas: list[int] = array(int32)


@struct
class OngoingTopicReassignment:
    """A topic with partitions under reassignment."""

    name: str = string()
    partitions: list[OngoingPartitionReassignment] = array(OngoingPartitionReassignment)


@message(key=46, versions=(0, 0), flexible=0)
class ListPartitionReassignmentsResponse(Response):
    """The ongoing reassignments."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    topics: list[OngoingTopicReassignment] = array(OngoingTopicReassignment)


@struct
class ListPartitionReassignmentsTopic:
    """The requested partitions of one topic."""

    name: str = string()
    partition_indexes: list[int] = array(int32)


@message(key=46, versions=(0, 0), flexible=0)
class ListPartitionReassignmentsRequest(Request[ListPartitionReassignmentsResponse]):
    """List ongoing reassignments. Null means all topics."""

    INTRODUCED = since(0, kafka="2.4")

    timeout_ms: int = int32(default=60000)
    topics: list[ListPartitionReassignmentsTopic] | None = array(
        ListPartitionReassignmentsTopic, nullable="0+", default=None
    )
