"""produce"""

from __future__ import annotations

from ..schema import (
    ZERO_UUID,
    Blob,
    Request,
    Response,
    array,
    int16,
    int32,
    int64,
    message,
    nested,
    record_set,
    string,
    struct,
    uuid,
)


@struct
class ProduceResponseRecordError:
    """The batch indices of records that caused the batch to be dropped."""

    batch_index: int = int32("8+", default=0)
    batch_index_error_message: str | None = string("8+", nullable="8+", default=None)


@struct
class ProduceResponseLeader:
    """The leader broker that the producer should use for future requests."""

    leader_id: int = int32("10+", default=-1)
    leader_epoch: int = int32("10+", default=-1)


@struct
class ProduceResponsePartition:
    """Each partition that we produced to within the topic."""

    index: int = int32()
    error_code: int = int16()
    base_offset: int = int64()
    log_append_time_ms: int = int64("2+", default=-1, ignorable=True)
    log_start_offset: int = int64("5+", default=-1, ignorable=True)
    record_errors: list[ProduceResponseRecordError] = array(
        ProduceResponseRecordError, "8+", default=[], ignorable=True
    )
    error_message: str | None = string("8+", nullable="8+", default=None, ignorable=True)
    current_leader: ProduceResponseLeader = nested(ProduceResponseLeader, "10+", default=ProduceResponseLeader(), tag=0)


@struct
class ProduceResponseTopic:
    """Each produce response."""

    name: str = string("0-12", default="", ignorable=True)
    topic_id: bytes = uuid("13+", default=ZERO_UUID, ignorable=True)
    partition_responses: list[ProduceResponsePartition] = array(ProduceResponsePartition)


@struct
class ProduceResponseNodeEndpoint:
    """Endpoints for all current-leaders enumerated in ProduceResponsePartitions, with errors NOT_LEADER_OR_FOLLOWER."""

    node_id: int = int32("10+", default=0)
    host: str = string("10+", default="")
    port: int = int32("10+", default=0)
    rack: str | None = string("10+", nullable="10+", default=None)


@message(key=0, versions=(3, 13), flexible=9)
class ProduceResponse(Response):
    """ProduceResponse"""

    responses: list[ProduceResponseTopic] = array(ProduceResponseTopic)
    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    node_endpoints: list[ProduceResponseNodeEndpoint] = array(ProduceResponseNodeEndpoint, "10+", default=[], tag=0)


@struct
class ProduceRequestPartition:
    """Each partition to produce to."""

    index: int = int32()
    records: Blob | None = record_set(nullable="0+")


@struct
class ProduceRequestTopic:
    """Each topic to produce to."""

    name: str = string("0-12", default="", ignorable=True)
    topic_id: bytes = uuid("13+", default=ZERO_UUID, ignorable=True)
    partition_data: list[ProduceRequestPartition] = array(ProduceRequestPartition)


@message(key=0, versions=(3, 13), flexible=9)
class ProduceRequest(Request[ProduceResponse]):
    """ProduceRequest"""

    transactional_id: str | None = string("3+", nullable="3+", default=None)
    acks: int = int16()
    timeout_ms: int = int32()
    topic_data: list[ProduceRequestTopic] = array(ProduceRequestTopic)
