"""topics"""

from __future__ import annotations

from ..schema import ZERO_UUID, Request, Response, array, boolean, int8, int16, int32, message, string, struct, uuid


@struct
class CreatableTopicConfigs:
    """Configuration of the topic."""

    name: str = string("5+", default="")
    value: str | None = string("5+", nullable="5+", default="")
    read_only: bool = boolean("5+", default=False)
    config_source: int = int8("5+", default=-1, ignorable=True)
    is_sensitive: bool = boolean("5+", default=False)


@struct
class CreatableTopicResult:
    """Results for each topic we tried to create."""

    name: str = string()
    topic_id: bytes = uuid("7+", default=ZERO_UUID, ignorable=True)
    error_code: int = int16()
    error_message: str | None = string("1+", nullable="0+", ignorable=True)
    topic_config_error_code: int = int16("5+", default=0, tag=0, ignorable=True)
    num_partitions: int = int32("5+", default=-1, ignorable=True)
    replication_factor: int = int16("5+", default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = array(
        CreatableTopicConfigs, "5+", nullable="5+", default=[], ignorable=True
    )


@message(key=19, versions=(2, 7), flexible=5)
class CreateTopicsResponse(Response):
    """CreateTopicsResponse"""

    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: list[CreatableTopicResult] = array(CreatableTopicResult)


@struct
class CreatableReplicaAssignment:
    """The manual partition assignment, or the empty array if we are using automatic assignment."""

    partition_index: int = int32()
    broker_ids: list[int] = array(int32)


@struct
class CreatableTopicConfig:
    """The custom topic configurations to set."""

    name: str = string()
    value: str | None = string(nullable="0+")


@struct
class CreatableTopic:
    """The topics to create."""

    name: str = string()
    num_partitions: int = int32()
    replication_factor: int = int16()
    assignments: list[CreatableReplicaAssignment] = array(CreatableReplicaAssignment)
    configs: list[CreatableTopicConfig] = array(CreatableTopicConfig)


@message(key=19, versions=(2, 7), flexible=5)
class CreateTopicsRequest(Request[CreateTopicsResponse]):
    """CreateTopicsRequest"""

    topics: list[CreatableTopic] = array(CreatableTopic)
    timeout_ms: int = int32(default=60000)
    validate_only: bool = boolean("1+", default=False)


@struct
class DeletableTopicResult:
    """The results for each topic we tried to delete."""

    name: str | None = string(nullable="6+")
    topic_id: bytes = uuid("6+", default=ZERO_UUID, ignorable=True)
    error_code: int = int16()
    error_message: str | None = string("5+", nullable="5+", default=None, ignorable=True)


@message(key=20, versions=(1, 6), flexible=4)
class DeleteTopicsResponse(Response):
    """DeleteTopicsResponse"""

    throttle_time_ms: int = int32("1+", ignorable=True)
    responses: list[DeletableTopicResult] = array(DeletableTopicResult)


@struct
class DeleteTopicState:
    """The name or topic ID of the topic."""

    name: str | None = string("6+", nullable="6+", default=None)
    topic_id: bytes = uuid("6+", default=ZERO_UUID)


@message(key=20, versions=(1, 6), flexible=4)
class DeleteTopicsRequest(Request[DeleteTopicsResponse]):
    """DeleteTopicsRequest"""

    topics: list[DeleteTopicState] = array(DeleteTopicState, "6+", default=[])
    topic_names: list[str] = array(string, "0-5", default=[], ignorable=True)
    timeout_ms: int = int32()


@struct
class CreatePartitionsTopicResult:
    """The partition creation results for each topic."""

    name: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


@message(key=37, versions=(0, 3), flexible=2)
class CreatePartitionsResponse(Response):
    """CreatePartitionsResponse"""

    throttle_time_ms: int = int32()
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult)


@struct
class CreatePartitionsAssignment:
    """The new partition assignments."""

    broker_ids: list[int] = array(int32)


@struct
class CreatePartitionsTopic:
    """Each topic that we want to create new partitions inside."""

    name: str = string()
    count: int = int32()
    assignments: list[CreatePartitionsAssignment] | None = array(CreatePartitionsAssignment, nullable="0+")


@message(key=37, versions=(0, 3), flexible=2)
class CreatePartitionsRequest(Request[CreatePartitionsResponse]):
    """CreatePartitionsRequest"""

    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic)
    timeout_ms: int = int32()
    validate_only: bool = boolean()
