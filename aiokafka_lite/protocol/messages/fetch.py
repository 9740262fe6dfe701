"""Read record batches from partition leaders, or from a closer replica.

Versions below 4 have records in the old message format. This package does not have these versions.

- v5: the start of the log.
- v7: incremental fetch sessions (KIP-227).
- v9: fencing by leader epoch (KIP-320).
- v10: zstd is allowed.
- v11: the rack of the client and, in the response, the preferred replica (KIP-392).
- v12: flexible; detects that the log was truncated and diverged (KIP-595).
- v13: topics by id only (KIP-516).
- v14: an error of tiered storage.
- v15: the id of a follower is in a tagged struct (KIP-903).
- v16: new leaders in the response (KIP-951).
- v17 and v18: for followers.
"""

from __future__ import annotations

from ..schema import (
    ZERO_UUID,
    Blob,
    Request,
    Response,
    array,
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

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1


@struct
class FetchResponseDivergingEpoch:
    """The last leader epoch that the broker has in common with the consumer, and that epoch's end offset."""

    epoch: int = int32("12+", default=-1)
    end_offset: int = int64("12+", default=-1)


@struct
class FetchResponseLeader:
    """The current leader, for a consumer that fetched from the wrong broker."""

    leader_id: int = int32("12+", default=-1)
    leader_epoch: int = int32("12+", default=-1)


@struct
class SnapshotId:
    """The snapshot to read first. Only for followers of the metadata log."""

    end_offset: int = int64(default=-1)
    epoch: int = int32(default=-1)


@struct
class AbortedTransaction:
    """An aborted transaction: skip the producer's records from ``first_offset`` to its next abort marker."""

    producer_id: int = int64("4+")
    first_offset: int = int64("4+")


@struct
class FetchResponsePartition:
    """The records of one partition.

    The first batch of ``records`` is always complete, even beyond the limits; the last one may be cut off. Decoded
    records are a memoryview into the frame. ``aborted_transactions`` is null unless the request has read_committed. It
    is not always sorted.
    """

    partition_index: int = int32()
    error_code: int = int16()
    high_watermark: int = int64()
    last_stable_offset: int = int64("4+", default=-1, ignorable=True)
    log_start_offset: int = int64("5+", default=-1, ignorable=True)
    diverging_epoch: FetchResponseDivergingEpoch = nested(
        FetchResponseDivergingEpoch, "12+", default=FetchResponseDivergingEpoch(), tag=0
    )
    current_leader: FetchResponseLeader = nested(FetchResponseLeader, "12+", default=FetchResponseLeader(), tag=1)
    snapshot_id: SnapshotId = nested(SnapshotId, "12+", default=SnapshotId(), tag=2)
    aborted_transactions: list[AbortedTransaction] | None = array(
        AbortedTransaction, "4+", nullable="4+", ignorable=True
    )
    preferred_read_replica: int = int32("11+", default=-1)
    records: Blob | None = record_set(nullable="0+")


@struct
class FetchResponseTopic:
    """The partitions of one topic: named before v13, by id from then on."""

    topic: str = string("0-12", default="", ignorable=True)
    topic_id: bytes = uuid("13+", default=ZERO_UUID, ignorable=True)
    partitions: list[FetchResponsePartition] = array(FetchResponsePartition)


@struct
class FetchResponseNodeEndpoint:
    """The address of a new leader."""

    node_id: int = int32("16+", default=0)
    host: str = string("16+", default="")
    port: int = int32("16+", default=0)
    rack: str | None = string("16+", nullable="16+", default=None)


@message(key=1, versions=(4, 18), flexible=12)
class FetchResponse(Response):
    """Records by topic and partition.

    In a fetch session, partitions with nothing new are left out. ``node_endpoints`` is tagged.
    """

    CLIENT_THROTTLES = since(8)

    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    error_code: int = int16("7+", default=0, ignorable=True)
    session_id: int = int32("7+", default=0)
    responses: list[FetchResponseTopic] = array(FetchResponseTopic)
    node_endpoints: list[FetchResponseNodeEndpoint] = array(FetchResponseNodeEndpoint, "16+", default=[], tag=0)


@struct
class ReplicaState:
    """The follower. A consumer leaves both fields at -1."""

    replica_id: int = int32("15+", default=-1)
    replica_epoch: int = int64("15+", default=-1)


@struct
class FetchRequestPartition:
    """One partition to read: the first offset, and the largest number of bytes.

    A first batch larger than ``partition_max_bytes`` is still returned. Consumers leave ``log_start_offset``,
    ``replica_directory_id`` and ``high_watermark`` at their defaults.
    """

    partition: int = int32()
    current_leader_epoch: int = int32("9+", default=-1, ignorable=True)
    fetch_offset: int = int64()
    last_fetched_epoch: int = int32("12+", default=-1)
    log_start_offset: int = int64("5+", default=-1, ignorable=True)
    partition_max_bytes: int = int32()
    replica_directory_id: bytes = uuid("17+", default=ZERO_UUID, tag=0, ignorable=True)
    high_watermark: int = int64("18+", default=INT64_MAX, tag=1, ignorable=True)


@struct
class FetchRequestTopic:
    """The partitions of one topic to read."""

    topic: str = string("0-12", default="", ignorable=True)
    topic_id: bytes = uuid("13+", default=ZERO_UUID, ignorable=True)
    partitions: list[FetchRequestPartition] = array(FetchRequestPartition)


@struct
class FetchRequestForgottenTopic:
    """Partitions to drop from the fetch session."""

    topic: str = string("7-12", default="", ignorable=True)
    topic_id: bytes = uuid("13+", default=ZERO_UUID, ignorable=True)
    partitions: list[int] = array(int32, "7+", default=[])


@message(key=1, versions=(4, 18), flexible=12)
class FetchRequest(Request[FetchResponse]):
    """Read from many partitions at once.

    The broker waits up to ``max_wait_ms`` for ``min_bytes``. A session id of 0 with epoch 0 asks for a new session,
    with epoch -1 for none. ``replica_id`` moved into ``replica_state`` with v15; consumers set neither.
    """

    SESSIONS = since(7)
    ZSTD = since(10, kafka="2.1")
    ANY_REPLICA = since(11)  # from here on, followers answer consumers too
    # From here on, the broker detects truncation; older brokers are asked with OffsetForLeaderEpoch.
    DIVERGING_EPOCHS = since(12)
    TOPIC_IDS = since(13)
    REPLICA_STATE = since(15)
    LEADER_HINTS = since(16)

    cluster_id: str | None = string("12+", nullable="12+", default=None, tag=0, ignorable=True)
    replica_id: int = int32("0-14", default=-1)
    replica_state: ReplicaState = nested(ReplicaState, "15+", default=ReplicaState(), tag=1)
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32("3+", default=INT32_MAX, ignorable=True)
    isolation_level: int = int8("4+", default=0, ignorable=True)
    session_id: int = int32("7+", default=0, ignorable=True)
    session_epoch: int = int32("7+", default=-1, ignorable=True)
    topics: list[FetchRequestTopic] = array(FetchRequestTopic)
    forgotten_topics_data: list[FetchRequestForgottenTopic] = array(FetchRequestForgottenTopic, "7+", default=[])
    rack_id: str = string("11+", default="", ignorable=True)
