"""fetch"""

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
    string,
    struct,
    uuid,
)

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1


@struct
class FetchResponseDivergingEpoch:
    """In case divergence is detected based on the `LastFetchedEpoch` and `FetchOffset` in the request, this field indicates the largest epoch and its end offset such that subsequent records are known to diverge."""

    epoch: int = int32("12+", default=-1)
    end_offset: int = int64("12+", default=-1)


@struct
class FetchResponseLeader:
    """The current leader of the partition."""

    leader_id: int = int32("12+", default=-1)
    leader_epoch: int = int32("12+", default=-1)


@struct
class SnapshotId:
    """In the case of fetching an offset less than the LogStartOffset, this is the end offset and epoch that should be used in the FetchSnapshot request."""

    end_offset: int = int64(default=-1)
    epoch: int = int32(default=-1)


@struct
class AbortedTransaction:
    """The aborted transactions."""

    producer_id: int = int64("4+")
    first_offset: int = int64("4+")


@struct
class FetchResponsePartition:
    """The topic partitions."""

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
    """The response topics."""

    topic: str = string("0-12", default="", ignorable=True)
    topic_id: bytes = uuid("13+", default=ZERO_UUID, ignorable=True)
    partitions: list[FetchResponsePartition] = array(FetchResponsePartition)


@struct
class FetchResponseNodeEndpoint:
    """Endpoints for all current-leaders enumerated in FetchResponsePartition, with errors NOT_LEADER_OR_FOLLOWER & FENCED_LEADER_EPOCH."""

    node_id: int = int32("16+", default=0)
    host: str = string("16+", default="")
    port: int = int32("16+", default=0)
    rack: str | None = string("16+", nullable="16+", default=None)


@message(key=1, versions=(4, 18), flexible=12)
class FetchResponse(Response):
    """FetchResponse"""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("7+", default=0, ignorable=True)
    session_id: int = int32("7+", default=0)
    responses: list[FetchResponseTopic] = array(FetchResponseTopic)
    node_endpoints: list[FetchResponseNodeEndpoint] = array(FetchResponseNodeEndpoint, "16+", default=[], tag=0)


@struct
class ReplicaState:
    """The state of the replica in the follower."""

    replica_id: int = int32("15+", default=-1)
    replica_epoch: int = int64("15+", default=-1)


@struct
class FetchRequestPartition:
    """The partitions to fetch."""

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
    """The topics to fetch."""

    topic: str = string("0-12", default="", ignorable=True)
    topic_id: bytes = uuid("13+", default=ZERO_UUID, ignorable=True)
    partitions: list[FetchRequestPartition] = array(FetchRequestPartition)


@struct
class FetchRequestForgottenTopic:
    """In an incremental fetch request, the partitions to remove."""

    topic: str = string("7-12", default="", ignorable=True)
    topic_id: bytes = uuid("13+", default=ZERO_UUID, ignorable=True)
    partitions: list[int] = array(int32, "7+", default=[])


@message(key=1, versions=(4, 18), flexible=12)
class FetchRequest(Request[FetchResponse]):
    """FetchRequest"""

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
