"""Append record batches to partitions.

- v3: record batches of format v2; the oldest version here.
- v5: the start of the log in the response.
- v7: zstd is allowed.
- v8: names rejected records (KIP-467).
- v9: flexible.
- v10: new leaders in the response (KIP-951).
- v12: adds partitions to a transaction implicitly (KIP-890).
- v13: topics by id (KIP-516).

The other versions have the same fields as the version before, and differ in the errors that a broker may return.
"""

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
    since,
    string,
    struct,
    uuid,
)


@struct
class ProduceResponseRecordError:
    """A rejected record, by its index in the batch."""

    batch_index: int = int32("8+", default=0)
    batch_index_error_message: str | None = string("8+", nullable="8+", default=None)


@struct
class ProduceResponseLeader:
    """The current leader, for a producer that sent to the wrong broker."""

    leader_id: int = int32("10+", default=-1)
    leader_epoch: int = int32("10+", default=-1)


@struct
class ProduceResponsePartition:
    """The result of one partition's batch.

    ``log_append_time_ms`` is -1 unless the topic uses log-append time. ``record_errors`` names the rejected records;
    no record of the batch was appended then.
    """

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
    """The partitions of one topic: named before v13, by id from then on."""

    name: str = string("0-12", default="", ignorable=True)
    topic_id: bytes = uuid("13+", default=ZERO_UUID, ignorable=True)
    partition_responses: list[ProduceResponsePartition] = array(ProduceResponsePartition)


@struct
class ProduceResponseNodeEndpoint:
    """The address of a new leader."""

    node_id: int = int32("10+", default=0)
    host: str = string("10+", default="")
    port: int = int32("10+", default=0)
    rack: str | None = string("10+", nullable="10+", default=None)


@message(key=0, versions=(3, 13), flexible=9)
class ProduceResponse(Response):
    """A result for each partition. There is no error for the whole request."""

    CLIENT_THROTTLES = since(6)

    responses: list[ProduceResponseTopic] = array(ProduceResponseTopic)
    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    node_endpoints: list[ProduceResponseNodeEndpoint] = array(ProduceResponseNodeEndpoint, "10+", default=[], tag=0)


@struct
class ProduceRequestPartition:
    """The batch for one partition. Brokers accept exactly one batch. A decoded batch is a memoryview into the frame."""

    index: int = int32()
    records: Blob | None = record_set(nullable="0+")


@struct
class ProduceRequestTopic:
    """The partitions of one topic: named before v13, by id from then on."""

    name: str = string("0-12", default="", ignorable=True)
    topic_id: bytes = uuid("13+", default=ZERO_UUID, ignorable=True)
    partition_data: list[ProduceRequestPartition] = array(ProduceRequestPartition)


@message(key=0, versions=(3, 13), flexible=9)
class ProduceRequest(Request[ProduceResponse]):
    """Append to many partitions at once.

    With ``acks=0`` there is no response. ``timeout_ms`` bounds the wait for followers after the leader has written.
    """

    ZSTD = since(7, kafka="2.1")
    LEADER_HINTS = since(10)
    TRANSACTION_ABORTABLE = since(11)
    ADDS_PARTITIONS = since(12)
    TOPIC_IDS = since(13)

    transactional_id: str | None = string("3+", nullable="3+", default=None)
    acks: int = int16()
    timeout_ms: int = int32()
    topic_data: list[ProduceRequestTopic] = array(ProduceRequestTopic)
