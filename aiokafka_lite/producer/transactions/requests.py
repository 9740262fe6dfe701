"""The requests of a transaction, and the meaning of error codes in their answers. Pure.

Retriable codes are retried. Some other codes concern only the open transaction, which has to be aborted. All other
codes are final for the producer. This is as in Java's client, with two differences: a missing permission demands an
abort, and the commit or abort itself is repeated until the permission is granted. INVALID_TXN_STATE only demands an
abort, and the answer to the abort decides whether the producer continues. As the answer to a commit of generation 2,
the code means that the coordinator has aborted the transaction at its timeout. The abort then returns the epoch with
which the producer continues.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from ...arguments import by_topic
from ...errors import (
    REBALANCED,
    BrokerError,
    CommitFailed,
    ErrorCode,
    KafkaError,
    UnsupportedVersion,
    error_for,
)
from ...protocol.messages import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    InitProducerIdRequest,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    ProduceRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from ...protocol.versions import VersionTable
from ...types import GroupMetadata, OffsetAndMetadata, TopicPartition
from ..outcome import FENCED, FENCED_ADVICE, fenced_reason
from ..producer_ids import ProducerIdAndEpoch

FEATURE = "transaction.version"
"""The cluster's feature whose level 2 is generation 2 of the protocol (KIP-890)."""

LAST_ADD_PARTITIONS = AddPartitionsToTxnRequest.MANY_TRANSACTIONS - 1
"""The last version of AddPartitionsToTxn for clients."""

LAST_END_OF_GENERATION_1 = EndTxnRequest.EPOCH_BUMP - 1
LAST_OFFSETS_OF_GENERATION_1 = TxnOffsetCommitRequest.ADDS_GROUP - 1

REQUIRED_BY_GENERATION_2 = (EndTxnRequest.EPOCH_BUMP, TxnOffsetCommitRequest.ADDS_GROUP, ProduceRequest.ADDS_PARTITIONS)
"""The features of messages that generation 2 needs to begin and end a transaction."""

_ABORTABLE = (
    ErrorCode.TRANSACTION_ABORTABLE,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    # Java's client is fatal after the next two. A permission may be missing for a moment, and after the abort another
    # transaction may succeed.
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.OPERATION_NOT_ATTEMPTED,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_GROUP_ID,
    ErrorCode.OFFSET_METADATA_TOO_LARGE,
    ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
)

_OUTDATED_MEMBER = (*REBALANCED, ErrorCode.FENCED_MEMBER_EPOCH)

_FATAL_FOR_PARTITIONS = (
    *FENCED,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
)


def is_fatal(error: KafkaError) -> bool:
    """Return whether the producer cannot continue after this error; otherwise it can abort its transaction."""
    if isinstance(error, CommitFailed):
        # The answer to the abort decides whether an outdated epoch is final.
        codes = [refusal.code for refusal in error.refused.values() if isinstance(refusal, BrokerError)]
        return any(code is not ErrorCode.INVALID_PRODUCER_EPOCH and not _is_abortable(code) for code in codes)
    return isinstance(error, BrokerError) and not _is_abortable(error.code)


def is_fatal_for_partitions(error: Exception) -> bool:
    """Return whether the producer cannot continue after this error of adding a partition to the transaction.

    Any other code concerns the partition alone.
    """
    return isinstance(error, BrokerError) and error.code in _FATAL_FOR_PARTITIONS


def _is_abortable(code: ErrorCode) -> bool:
    return code in _ABORTABLE or code in _OUTDATED_MEMBER or code is ErrorCode.FENCED_INSTANCE_ID


def refused(code: ErrorCode, what: str, transactional_id: str, transaction_timeout: float) -> BrokerError:
    """Return the error of a request of the transaction that the coordinator refused, with the reason and what to do."""
    if code is ErrorCode.INVALID_TRANSACTION_TIMEOUT:  # the reason says what the description of the code says
        limit = "is above transaction.max.timeout.ms of the brokers; lower it"
        return error_for(code, what, reason=f"transaction_timeout={transaction_timeout:g} s {limit}")
    return error_for(code, f"{what}{_hint(code, transactional_id, transaction_timeout)}")


def _hint(code: ErrorCode, transactional_id: str, transaction_timeout: float) -> str:
    if code in FENCED:
        reason = fenced_reason(transactional_id, transaction_timeout)
        return f": {reason}; close this producer, and create a new one if this instance is to continue"
    if code is ErrorCode.INVALID_TXN_STATE and transaction_timeout == math.inf:  # two-phase commit
        return (
            ": the coordinator has no such transaction open; most likely it was aborted by abort_transaction, by an"
            " administrator, or by a start without prepared_transaction"
        )
    if code is ErrorCode.INVALID_TXN_STATE:
        return (
            ": the coordinator has no such transaction open; most likely it was open for longer than"
            f" transaction_timeout={transaction_timeout:g} s and the coordinator aborted it"
        )
    if code is ErrorCode.UNSTABLE_OFFSET_COMMIT:
        return ": an earlier transaction, or one of another producer, still has uncommitted offsets of the group"
    if code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
        return f": grant WRITE on transactional_id {transactional_id!r}"
    if code is ErrorCode.INVALID_PRODUCER_ID_MAPPING:
        return (
            f": the coordinator has dropped transactional_id={transactional_id!r}, which was idle for"
            " transactional.id.expiration.ms; create a new producer"
        )
    return ""


def check_two_phase_commit(versions: VersionTable) -> None:
    """Raise UnsupportedVersion unless the coordinator offers two-phase commit with transactions of generation 2.

    In generation 1, several transactions have the same epoch, so a stored one could not be told from the next one.
    """
    if not versions.supports(InitProducerIdRequest.TWO_PHASE_COMMIT):
        raise UnsupportedVersion(
            f"two_phase_commit=True: {versions.peer} does not offer version {InitProducerIdRequest.TWO_PHASE_COMMIT}"
            " of InitProducerId, which Kafka 4.1 or newer offers with unstable.api.versions.enable=true"
        )
    if versions.level(FEATURE) < 2 or not all(map(versions.supports, REQUIRED_BY_GENERATION_2)):
        raise UnsupportedVersion(f"two_phase_commit=True requires {FEATURE}=2, and {versions.peer} has finalized less")


def two_phase_commit_refused(what: str, transactional_id: str) -> BrokerError:
    """Return the error of a coordinator that does not allow two-phase commit to this producer."""
    return error_for(
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        f"{what}: two_phase_commit=True requires transaction.two.phase.commit.enable=true at the brokers; with ACLs,"
        f" grant WRITE and TWO_PHASE_COMMIT on transactional_id {transactional_id!r}",
    )


def init_request(
    transactional_id: str, transaction_timeout: float, present: ProducerIdAndEpoch | None
) -> InitProducerIdRequest:
    """Return the request for a producer id and epoch: a newer epoch than that of ``present`` (KIP-360)."""
    timeout = max(1, round(transaction_timeout * 1000))  # brokers refuse 0
    if present is None:
        return InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout)
    return InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout,
        producer_id=present.producer_id,
        producer_epoch=present.epoch,
    )


def add_partitions_request(
    transactional_id: str, identity: ProducerIdAndEpoch, partitions: Iterable[TopicPartition]
) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=identity.producer_id,
        v3_and_below_producer_epoch=identity.epoch,
        v3_and_below_topics=[
            AddPartitionsToTxnTopic(name=topic, partitions=numbers) for topic, numbers in by_topic(partitions).items()
        ],
    )


def read_added(
    partitions: Iterable[TopicPartition], response: AddPartitionsToTxnResponse
) -> dict[TopicPartition, ErrorCode]:
    """Read the error code of each partition."""
    codes = {
        TopicPartition(topic.name, partition.partition_index): ErrorCode.of(partition.partition_error_code)
        for topic in response.results_by_topic_v3_and_below
        for partition in topic.results_by_partition
    }
    return _answered(partitions, codes)


def decisive(codes: Iterable[ErrorCode]) -> ErrorCode:
    """Return the code that decides about a request for many partitions: a final one, otherwise a retriable one.

    OPERATION_NOT_ATTEMPTED only means that another partition has the reason.
    """
    return max(codes, key=_weight, default=ErrorCode.NONE)


def _weight(code: ErrorCode) -> int:
    if code is ErrorCode.NONE:
        return 0
    if code is ErrorCode.OPERATION_NOT_ATTEMPTED:
        return 1
    return 2 if code.retriable else 3


def pending_offsets_request(
    group_id: str, partitions: Iterable[TopicPartition], versions: VersionTable
) -> OffsetFetchRequest:
    """Build the request for pending offsets of these partitions, in the form before ``MANY_GROUPS``.

    Brokers before Kafka 2.5 do not report them.
    """
    topics = [
        OffsetFetchRequestTopic(name=name, partition_indexes=numbers) for name, numbers in by_topic(partitions).items()
    ]
    return OffsetFetchRequest(
        group_id=group_id, topics=topics, require_stable=versions.supports(OffsetFetchRequest.REQUIRE_STABLE)
    )


def read_pending(response: OffsetFetchResponse) -> ErrorCode:
    """Read UNSTABLE_OFFSET_COMMIT if an offset of a partition is pending, otherwise the code of the group."""
    codes = {partition.error_code for topic in response.topics for partition in topic.partitions}
    if ErrorCode.UNSTABLE_OFFSET_COMMIT in codes:
        return ErrorCode.UNSTABLE_OFFSET_COMMIT
    return ErrorCode.of(response.error_code)


def offsets_request(
    transactional_id: str,
    identity: ProducerIdAndEpoch,
    group: GroupMetadata,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    *,
    knows_members: bool,
) -> TxnOffsetCommitRequest:
    """Return the request that commits offsets in the transaction. Brokers before Kafka 2.5 cannot check the member."""
    topics: dict[str, TxnOffsetCommitRequestTopic] = {}
    for partition, offset in offsets.items():
        topic = topics.setdefault(partition.topic, TxnOffsetCommitRequestTopic(name=partition.topic, partitions=[]))
        topic.partitions.append(
            TxnOffsetCommitRequestPartition(
                partition_index=partition.partition,
                committed_offset=offset.offset,
                committed_leader_epoch=-1 if offset.leader_epoch is None else offset.leader_epoch,
                committed_metadata=offset.metadata,
            )
        )
    request = TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=group.group_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        topics=list(topics.values()),
    )
    if knows_members:
        request.generation_id = group.generation_id
        request.member_id = group.member_id
        request.group_instance_id = group.group_instance_id
    return request


def read_offsets(
    offsets: Iterable[TopicPartition], response: TxnOffsetCommitResponse
) -> dict[TopicPartition, ErrorCode]:
    """Read the error code of each offset."""
    codes = {
        TopicPartition(topic.name, partition.partition_index): ErrorCode.of(partition.error_code)
        for topic in response.topics
        for partition in topic.partitions
    }
    return _answered(offsets, codes)


def _answered(
    partitions: Iterable[TopicPartition], codes: Mapping[TopicPartition, ErrorCode]
) -> dict[TopicPartition, ErrorCode]:
    """Return the code of each partition of a request. A partition that the answer omits is retried."""
    return {partition: codes.get(partition, ErrorCode.NETWORK_EXCEPTION) for partition in partitions}


def final_codes(codes: Mapping[TopicPartition, ErrorCode]) -> dict[TopicPartition, ErrorCode]:
    """Return the codes of the refused offsets, where a retry cannot help."""
    return {partition: code for partition, code in codes.items() if code is not ErrorCode.NONE and not code.retriable}


def offsets_refused(
    codes: Mapping[TopicPartition, ErrorCode], group: GroupMetadata, transactional_id: str, transaction_timeout: float
) -> CommitFailed:
    """Return the error for offsets that the coordinator of their group refused."""

    def text(code: ErrorCode) -> str:
        what = f"offsets of group {group.group_id!r}"
        if code in FENCED:
            return f"{what}: {fenced_reason(transactional_id, transaction_timeout)}; {FENCED_ADVICE}"
        if code in _OUTDATED_MEMBER:
            return f"{what}: the group has rebalanced; abort, and read again from the committed offsets"
        if code is ErrorCode.FENCED_INSTANCE_ID:
            return (
                f"{what}: another process uses group_instance_id={group.group_instance_id!r}; give each process its"
                " own, then start again"
            )
        return what

    return CommitFailed(
        {
            partition: error_for(code, text(code), at=partition)
            for partition, code in codes.items()
            if code is not ErrorCode.NONE
        }
    )
