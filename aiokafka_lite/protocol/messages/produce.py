"""Append record batches to partitions.

- v3 is the first with record batch v2, and the first spoken here. v5 answers the log's start offset, v7 allows zstd,
  v8 names the records at fault (KIP-467), v9 is flexible, v10 gives hints about new leaders (KIP-951), v12 adds
  partitions to a transaction implicitly (KIP-890), v13 names topics by id (KIP-516).

The versions between differ in the errors that a broker may answer, not in form.
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
    """A record that was at fault, by its place in the batch."""

    batch_index: int = int32("8+", default=0)
    batch_index_error_message: str | None = string("8+", nullable="8+", default=None)


@struct
class ProduceResponseLeader:
    """Who leads the partition now, for a producer that asked the wrong broker."""

    leader_id: int = int32("10+", default=-1)
    leader_epoch: int = int32("10+", default=-1)


@struct
class ProduceResponsePartition:
    """What became of one partition's batch.

    ``log_append_time_ms`` is -1 unless the topic stamps records itself. ``record_errors`` names the records at fault
    where only some are; none of the batch was appended.
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
    """The address of a broker that is named as a new leader."""

    node_id: int = int32("10+", default=0)
    host: str = string("10+", default="")
    port: int = int32("10+", default=0)
    rack: str | None = string("10+", nullable="10+", default=None)


@message(key=0, versions=(3, 13), flexible=9)
class ProduceResponse(Response):
    """A result for each partition; there is none for the whole."""

    CLIENT_THROTTLES = since(6)

    responses: list[ProduceResponseTopic] = array(ProduceResponseTopic)
    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    node_endpoints: list[ProduceResponseNodeEndpoint] = array(ProduceResponseNodeEndpoint, "10+", default=[], tag=0)


@struct
class ProduceRequestPartition:
    """The batches for one partition. Brokers take exactly one; decoded here it is a memoryview into the frame."""

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

    With ``acks=0`` no answer comes. ``timeout_ms`` bounds the wait for followers after the leader has written.
    """

    ZSTD = since(7, kafka="2.1")
    LEADER_HINTS = since(10)
    TOPIC_IDS = since(13)

    transactional_id: str | None = string("3+", nullable="3+", default=None)
    acks: int = int16()
    timeout_ms: int = int32()
    topic_data: list[ProduceRequestTopic] = array(ProduceRequestTopic)
