"""Transactions: add partitions and offsets, end them, write their markers (KIP-98, KIP-890), list them (KIP-664).

- The requests of producers: v2 may return PRODUCER_FENCED, v3 is flexible, and the version after that may return
  TRANSACTION_ABORTABLE (KIP-890).
- AddPartitionsToTxn v4 and later are for brokers: many transactions in one request, and a check that adds nothing.
- EndTxn v5 ends a transaction of generation 2, and returns the producer id and epoch of the next one.
- TxnOffsetCommit v2 has leader epochs, v3 the member of the group (KIP-447). v5 adds the offsets to the transaction,
  so generation 2 sends no AddOffsetsToTxn.
- WriteTxnMarkers v1 is flexible, v2 has the generation (KIP-1228).
- ListTransactions v1 filters by duration (KIP-994), v2 by a pattern (KIP-1152).
"""

from __future__ import annotations

from ..schema import Request, Response, array, boolean, int8, int16, int32, int64, message, since, string, struct


@struct
class AddPartitionsToTxnPartitionResult:
    """Whether one partition is in the transaction."""

    partition_index: int = int32()
    partition_error_code: int = int16()


@struct
class AddPartitionsToTxnTopicResult:
    """The partitions of one topic."""

    name: str = string()
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = array(AddPartitionsToTxnPartitionResult)


@struct
class AddPartitionsToTxnResult:
    """The result of one transaction."""

    transactional_id: str = string("4+", default="")
    topic_results: list[AddPartitionsToTxnTopicResult] = array(AddPartitionsToTxnTopicResult, "4+", default=[])


@message(key=24, versions=(0, 5), flexible=3)
class AddPartitionsToTxnResponse(Response):
    """A result for each partition: ``results_by_topic_v3_and_below`` before v4, ``results_by_transaction`` since v4."""

    CLIENT_THROTTLES = since(1)

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16("4+", default=0, ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = array(AddPartitionsToTxnResult, "4+", default=[])
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = array(
        AddPartitionsToTxnTopicResult, "0-3", default=[]
    )


@struct
class AddPartitionsToTxnTopic:
    """The partitions of one topic."""

    name: str = string()
    partitions: list[int] = array(int32)


@struct
class AddPartitionsToTxnTransaction:
    """A transaction and its new partitions. ``verify_only`` asks whether they are in the transaction already."""

    transactional_id: str = string("4+", default="")
    producer_id: int = int64("4+", default=0)
    producer_epoch: int = int16("4+", default=0)
    verify_only: bool = boolean("4+", default=False)
    topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic, "4+", default=[])


@message(key=24, versions=(0, 5), flexible=3)
class AddPartitionsToTxnRequest(Request[AddPartitionsToTxnResponse]):
    """Add partitions to a transaction: one in the fields of v3 and below, many in ``transactions`` since v4.

    Clients use v3 and below, brokers v4 and later.
    """

    PRODUCER_FENCED = since(2)
    MANY_TRANSACTIONS = since(4)

    transactions: list[AddPartitionsToTxnTransaction] = array(AddPartitionsToTxnTransaction, "4+", default=[])
    v3_and_below_transactional_id: str = string("0-3", default="")
    v3_and_below_producer_id: int = int64("0-3", default=0)
    v3_and_below_producer_epoch: int = int16("0-3", default=0)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic, "0-3", default=[])


@message(key=25, versions=(0, 4), flexible=3)
class AddOffsetsToTxnResponse(Response):
    """Whether the offsets of the group are in the transaction."""

    CLIENT_THROTTLES = since(1)

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()


@message(key=25, versions=(0, 4), flexible=3)
class AddOffsetsToTxnRequest(Request[AddOffsetsToTxnResponse]):
    """Add the offsets of a group to a transaction of generation 1."""

    PRODUCER_FENCED = since(2)

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    group_id: str = string()


@message(key=26, versions=(0, 5), flexible=3)
class EndTxnResponse(Response):
    """Whether the transaction ends. Since v5 with the producer id and epoch of the next transaction."""

    CLIENT_THROTTLES = since(1)

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    producer_id: int = int64("5+", default=-1, ignorable=True)
    producer_epoch: int = int16("5+", default=-1, ignorable=True)


@message(key=26, versions=(0, 5), flexible=3)
class EndTxnRequest(Request[EndTxnResponse]):
    """Commit or abort a transaction. v5 is for generation 2, v4 and below for generation 1."""

    PRODUCER_FENCED = since(2)
    EPOCH_BUMP = since(5)

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = boolean()


@struct
class WritableTxnMarkerPartitionResult:
    """Whether one partition has the marker."""

    partition_index: int = int32()
    error_code: int = int16()


@struct
class WritableTxnMarkerTopicResult:
    """The partitions of one topic."""

    name: str = string()
    partitions: list[WritableTxnMarkerPartitionResult] = array(WritableTxnMarkerPartitionResult)


@struct
class WritableTxnMarkerResult:
    """The result of one producer's markers."""

    producer_id: int = int64()
    topics: list[WritableTxnMarkerTopicResult] = array(WritableTxnMarkerTopicResult)


@message(key=27, versions=(0, 2), flexible=1)
class WriteTxnMarkersResponse(Response):
    """A result for each producer and partition."""

    markers: list[WritableTxnMarkerResult] = array(WritableTxnMarkerResult)


@struct
class WritableTxnMarkerTopic:
    """The partitions of one topic."""

    name: str = string()
    partition_indexes: list[int] = array(int32)


@struct
class WritableTxnMarker:
    """The end of one producer's transaction. ``transaction_result`` is True for a commit."""

    producer_id: int = int64()
    producer_epoch: int = int16()
    transaction_result: bool = boolean()
    topics: list[WritableTxnMarkerTopic] = array(WritableTxnMarkerTopic)
    coordinator_epoch: int = int32()
    transaction_version: int = int8("2+", default=0, ignorable=True)


@message(key=27, versions=(0, 2), flexible=1)
class WriteTxnMarkersRequest(Request[WriteTxnMarkersResponse]):
    """Write the markers that end transactions: sent by coordinators, and by admins to abort a hanging transaction."""

    INTRODUCED = since(1, kafka="2.8")

    markers: list[WritableTxnMarker] = array(WritableTxnMarker)


@struct
class TxnOffsetCommitResponsePartition:
    """Whether one offset is in the transaction."""

    partition_index: int = int32()
    error_code: int = int16()


@struct
class TxnOffsetCommitResponseTopic:
    """The partitions of one topic."""

    name: str = string()
    partitions: list[TxnOffsetCommitResponsePartition] = array(TxnOffsetCommitResponsePartition)


@message(key=28, versions=(0, 5), flexible=3)
class TxnOffsetCommitResponse(Response):
    """A result for each partition. There is no top-level error."""

    CLIENT_THROTTLES = since(1)

    throttle_time_ms: int = int32(default=0)
    topics: list[TxnOffsetCommitResponseTopic] = array(TxnOffsetCommitResponseTopic)


@struct
class TxnOffsetCommitRequestPartition:
    """The offset of the next record to read, with its metadata."""

    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32("2+", default=-1, ignorable=True)
    committed_metadata: str | None = string(nullable="0+")


@struct
class TxnOffsetCommitRequestTopic:
    """The partitions of one topic."""

    name: str = string()
    partitions: list[TxnOffsetCommitRequestPartition] = array(TxnOffsetCommitRequestPartition)


@message(key=28, versions=(0, 5), flexible=3)
class TxnOffsetCommitRequest(Request[TxnOffsetCommitResponse]):
    """Commit offsets as a part of a transaction. They are visible when the transaction commits.

    The coordinator of the group gets it. v5 is for generation 2 and adds the group to the transaction.
    """

    GROUP_MEMBER = since(3, kafka="2.5")
    TRANSACTION_ABORTABLE = since(4)
    ADDS_GROUP = since(5)

    transactional_id: str = string()
    group_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    generation_id: int = int32("3+", default=-1)
    member_id: str = string("3+", default="")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = array(TxnOffsetCommitRequestTopic)


@struct
class DescribedTransactionTopic:
    """The partitions of one topic."""

    topic: str = string()
    partitions: list[int] = array(int32)


@struct
class DescribedTransaction:
    """The state of one transactional id. The start time is -1 unless a transaction is open."""

    error_code: int = int16()
    transactional_id: str = string()
    transaction_state: str = string()
    transaction_timeout_ms: int = int32()
    transaction_start_time_ms: int = int64()
    producer_id: int = int64()
    producer_epoch: int = int16()
    topics: list[DescribedTransactionTopic] = array(DescribedTransactionTopic)


@message(key=65, versions=(0, 0), flexible=0)
class DescribeTransactionsResponse(Response):
    """A result for each transactional id."""

    throttle_time_ms: int = int32(default=0)
    transaction_states: list[DescribedTransaction] = array(DescribedTransaction)


@message(key=65, versions=(0, 0), flexible=0)
class DescribeTransactionsRequest(Request[DescribeTransactionsResponse]):
    """Describe transactional ids, at their coordinator."""

    INTRODUCED = since(0, kafka="3.0")

    transactional_ids: list[str] = array(string)


@struct
class ListedTransaction:
    """A transactional id and its state."""

    transactional_id: str = string()
    producer_id: int = int64()
    transaction_state: str = string()


@message(key=66, versions=(0, 2), flexible=0)
class ListTransactionsResponse(Response):
    """The transactional ids that this broker coordinates."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    unknown_state_filters: list[str] = array(string)
    transaction_states: list[ListedTransaction] = array(ListedTransaction)


@message(key=66, versions=(0, 2), flexible=0)
class ListTransactionsRequest(Request[ListTransactionsResponse]):
    """List the transactional ids that one broker coordinates. An empty filter lists all of them."""

    INTRODUCED = since(0, kafka="3.0")
    DURATION_FILTER = since(1, kafka="3.8")
    PATTERN = since(2, kafka="4.1")

    state_filters: list[str] = array(string)
    producer_id_filters: list[int] = array(int64)
    duration_filter: int = int64("1+", default=-1)
    transactional_id_pattern: str | None = string("2+", nullable="2+", default=None)
