"""Create and delete topics, and add partitions to them.

CreateTopics:

- v4: -1 as partition count or replication factor means the broker's default (KIP-464).
- v5: flexible; returns the settings in effect (KIP-525).
- v7: returns the topic id.

DeleteTopics:

- v4: flexible.
- v5: error texts.
- v6: topics by name or by id; a list of structs replaces the list of names.

CreatePartitions v2 is flexible.

A request over quota gets THROTTLING_QUOTA_EXCEEDED since CreateTopics v6, DeleteTopics v5 and CreatePartitions v3
(KIP-599). Older versions are only throttled.
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
    since,
    string,
    struct,
    uuid,
)


@struct
class CreatableTopicConfigs:
    """A setting of the new topic."""

    name: str = string("5+", default="")
    value: str | None = string("5+", nullable="5+", default="")
    read_only: bool = boolean("5+", default=False)
    config_source: int = int8("5+", default=-1, ignorable=True)
    is_sensitive: bool = boolean("5+", default=False)


@struct
class CreatableTopicResult:
    """The result of creating one topic.

    ``topic_config_error_code`` is the reason for null ``configs``. The topic was created nevertheless.
    """

    name: str = string()
    topic_id: bytes = uuid("7+", default=ZERO_UUID, ignorable=True)
    error_code: int = int16()
    error_message: str | None = string("1+", nullable="0+", default="", ignorable=True)
    topic_config_error_code: int = int16("5+", default=0, tag=0, ignorable=True)
    num_partitions: int = int32("5+", default=-1, ignorable=True)
    replication_factor: int = int16("5+", default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = array(
        CreatableTopicConfigs, "5+", nullable="5+", default=[], ignorable=True
    )


@message(key=19, versions=(0, 7), flexible=5)
class CreateTopicsResponse(Response):
    """A result for each topic."""

    CLIENT_THROTTLES = since(3)

    throttle_time_ms: int = int32("2+", default=0, ignorable=True)
    topics: list[CreatableTopicResult] = array(CreatableTopicResult)


@struct
class CreatableReplicaAssignment:
    """The brokers of one partition's replicas, the leader first."""

    partition_index: int = int32()
    broker_ids: list[int] = array(int32)


@struct
class CreatableTopicConfig:
    """A setting of the topic."""

    name: str = string()
    value: str | None = string(nullable="0+")


@struct
class CreatableTopic:
    """A topic to create. With ``assignments``, partition count and replication factor are -1."""

    name: str = string()
    num_partitions: int = int32()
    replication_factor: int = int16()
    assignments: list[CreatableReplicaAssignment] = array(CreatableReplicaAssignment)
    configs: list[CreatableTopicConfig] = array(CreatableTopicConfig)


@message(key=19, versions=(0, 7), flexible=5)
class CreateTopicsRequest(Request[CreateTopicsResponse]):
    """Create topics. The response may come before every broker knows the topics."""

    BROKER_DEFAULTS = since(4, kafka="2.4")
    RETURNS_CONFIGS = since(5)
    # From here on, an exhausted quota refuses the change; in older versions the client only waits (KIP-599).
    STRICT_QUOTA = since(6)

    topics: list[CreatableTopic] = array(CreatableTopic)
    timeout_ms: int = int32(default=60000)
    validate_only: bool = boolean("1+", default=False)


@struct
class DeletableTopicResult:
    """The result of deleting one topic. The name is null if the request had an unknown id."""

    name: str | None = string(nullable="6+")
    topic_id: bytes = uuid("6+", default=ZERO_UUID, ignorable=True)
    error_code: int = int16()
    error_message: str | None = string("5+", nullable="5+", default=None, ignorable=True)


@message(key=20, versions=(0, 6), flexible=4)
class DeleteTopicsResponse(Response):
    """A result for each topic."""

    CLIENT_THROTTLES = since(2)

    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    responses: list[DeletableTopicResult] = array(DeletableTopicResult)


@struct
class DeleteTopicState:
    """A topic to delete, by name or by id."""

    name: str | None = string("6+", nullable="6+", default=None)
    topic_id: bytes = uuid("6+", default=ZERO_UUID)


@message(key=20, versions=(0, 6), flexible=4)
class DeleteTopicsRequest(Request[DeleteTopicsResponse]):
    """Delete topics: ``topic_names`` before v6, ``topics`` since v6."""

    DELETION_DISABLED = since(3)  # TOPIC_DELETION_DISABLED; INVALID_REQUEST before
    STRICT_QUOTA = since(5)  # as for CreateTopics
    BY_TOPIC_ID = since(6, kafka="2.8")

    topics: list[DeleteTopicState] = array(DeleteTopicState, "6+", default=[])
    topic_names: list[str] = array(string, "0-5", default=[], ignorable=True)
    timeout_ms: int = int32()


@struct
class CreatePartitionsTopicResult:
    """The result of adding partitions to one topic."""

    name: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@message(key=37, versions=(0, 3), flexible=2)
class CreatePartitionsResponse(Response):
    """A result for each topic."""

    CLIENT_THROTTLES = since(1)

    throttle_time_ms: int = int32(default=0)
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult)


@struct
class CreatePartitionsAssignment:
    """The brokers of one new partition's replicas."""

    broker_ids: list[int] = array(int32)


@struct
class CreatePartitionsTopic:
    """A topic and its new number of partitions. With null assignments, the controller places the replicas."""

    name: str = string()
    count: int = int32()
    assignments: list[CreatePartitionsAssignment] | None = array(CreatePartitionsAssignment, nullable="0+")


@message(key=37, versions=(0, 3), flexible=2)
class CreatePartitionsRequest(Request[CreatePartitionsResponse]):
    """Add partitions to topics. Keys map to other partitions afterwards."""

    STRICT_QUOTA = since(3)  # as for CreateTopics

    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic)
    timeout_ms: int = int32()
    validate_only: bool = boolean()
