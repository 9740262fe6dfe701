"""Read and acknowledge the records of a share group (KIP-932), at the leaders of the partitions.

- v0: early access in Kafka 4.0; not here.
- v1: the first stable version, of Kafka 4.1.
- v2: a strict limit of acquired records (KIP-1206), and renewals of acquisition locks (KIP-1222).
"""

from __future__ import annotations

from ..schema import (
    Blob,
    Request,
    Response,
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    message,
    nested,
    record_set,
    since,
    string,
    struct,
    uuid,
)
from .fetch import INT32_MAX


@struct
class ShareLeader:
    """The current leader, for a member that asked the wrong broker: -1 if unknown, 0 in other answers."""

    leader_id: int = int32(default=0)
    leader_epoch: int = int32(default=0)


MAX_ACQUIRED_RANGES = 20_000
"""Ranges of acquired records in one response. Brokers add partitions until a response has the requested number of
records, at most 10,000, and lock at most 10,000 records of the last partition. Each record may be a range."""


@struct
class ShareAcquiredRecords:
    """Records that the member may process: from ``first_offset`` to ``last_offset``, both included.

    ``delivery_count`` is 1 for records that are delivered for the first time.
    """

    first_offset: int = int64()
    last_offset: int = int64()
    delivery_count: int = int16()


@struct
class ShareFetchResponsePartition:
    """The records of one partition, the ranges that the member has acquired, and the result of the acknowledgements.

    ``records`` may have more records than the acquired ones. Decoded records are a memoryview into the frame.
    """

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    acknowledge_error_code: int = int16()
    acknowledge_error_message: str | None = string(nullable="0+", default=None)
    current_leader: ShareLeader = nested(ShareLeader, default=ShareLeader())
    records: Blob | None = record_set(nullable="0")
    acquired_records: list[ShareAcquiredRecords] = array(ShareAcquiredRecords, most=MAX_ACQUIRED_RANGES)


@struct
class ShareFetchResponseTopic:
    """The partitions of one topic."""

    topic_id: bytes = uuid()
    partitions: list[ShareFetchResponsePartition] = array(ShareFetchResponsePartition)


@struct
class ShareNodeEndpoint:
    """The address of a new leader."""

    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable="0+", default=None)


@message(key=78, versions=(1, 2), flexible=0)
class ShareFetchResponse(Response):
    """Records by topic and partition. Partitions without records, acknowledgements or errors are left out.

    The acquired records belong to the member for ``acquisition_lock_timeout_ms``.
    """

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    acquisition_lock_timeout_ms: int = int32("1+")
    responses: list[ShareFetchResponseTopic] = array(ShareFetchResponseTopic)
    node_endpoints: list[ShareNodeEndpoint] = array(ShareNodeEndpoint)


@struct
class ShareAcknowledgementBatch:
    """Acknowledgements from ``first_offset`` to ``last_offset``, both included.

    One type for all records, or one for each: 0 gap (the offset has no record), 1 accept, 2 release, 3 reject, 4 renew.
    """

    first_offset: int = int64()
    last_offset: int = int64()
    acknowledge_types: list[int] = array(int8)


@struct
class ShareFetchRequestPartition:
    """A partition to read, with acknowledgements of records that the member acquired before."""

    partition_index: int = int32()
    partition_max_bytes: int = int32("0", default=0)
    acknowledgement_batches: list[ShareAcknowledgementBatch] = array(ShareAcknowledgementBatch)


@struct
class ShareFetchRequestTopic:
    """The partitions of one topic to read."""

    topic_id: bytes = uuid()
    partitions: list[ShareFetchRequestPartition] = array(ShareFetchRequestPartition)


@struct
class ShareFetchRequestForgottenTopic:
    """Partitions to drop from the share session."""

    topic_id: bytes = uuid()
    partitions: list[int] = array(int32)


@message(key=78, versions=(1, 2), flexible=0)
class ShareFetchRequest(Request[ShareFetchResponse]):
    """Acquire records of many partitions at their leader, and acknowledge earlier ones.

    Epoch 0 opens the share session of the member with this broker, -1 closes it; each request in between adds one.
    The broker waits up to ``max_wait_ms`` for ``min_bytes``. It acquires whole batches (``share_acquire_mode`` 0), or
    at most ``max_records`` records (1).
    """

    RECORD_LIMIT = since(2)
    RENEW = since(2)

    group_id: str | None = string(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+")
    share_session_epoch: int = int32()
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(default=INT32_MAX)
    max_records: int = int32("1+")
    batch_size: int = int32("1+")
    share_acquire_mode: int = int8("2+", default=0, ignorable=True)
    is_renew_ack: bool = boolean("2+", default=False)
    topics: list[ShareFetchRequestTopic] = array(ShareFetchRequestTopic)
    forgotten_topics_data: list[ShareFetchRequestForgottenTopic] = array(ShareFetchRequestForgottenTopic)


@struct
class ShareAcknowledgeResponsePartition:
    """The result of the acknowledgements of one partition."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    current_leader: ShareLeader = nested(ShareLeader, default=ShareLeader())


@struct
class ShareAcknowledgeResponseTopic:
    """The partitions of one topic."""

    topic_id: bytes = uuid()
    partitions: list[ShareAcknowledgeResponsePartition] = array(ShareAcknowledgeResponsePartition)


@message(key=79, versions=(1, 2), flexible=0)
class ShareAcknowledgeResponse(Response):
    """Results by topic and partition."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    acquisition_lock_timeout_ms: int = int32("2+", default=0, ignorable=True)
    responses: list[ShareAcknowledgeResponseTopic] = array(ShareAcknowledgeResponseTopic)
    node_endpoints: list[ShareNodeEndpoint] = array(ShareNodeEndpoint)


@struct
class ShareAcknowledgeRequestPartition:
    """Acknowledgements of one partition."""

    partition_index: int = int32()
    acknowledgement_batches: list[ShareAcknowledgementBatch] = array(ShareAcknowledgementBatch)


@struct
class ShareAcknowledgeRequestTopic:
    """The partitions of one topic."""

    topic_id: bytes = uuid()
    partitions: list[ShareAcknowledgeRequestPartition] = array(ShareAcknowledgeRequestPartition)


@message(key=79, versions=(1, 2), flexible=0)
class ShareAcknowledgeRequest(Request[ShareAcknowledgeResponse]):
    """Acknowledge records at the leader of their partitions, without reading. It needs a share session."""

    RENEW = since(2, kafka="4.2")

    group_id: str | None = string(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+")
    share_session_epoch: int = int32()
    is_renew_ack: bool = boolean("2+", default=False)
    topics: list[ShareAcknowledgeRequestTopic] = array(ShareAcknowledgeRequestTopic)
