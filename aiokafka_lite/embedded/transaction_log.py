"""A node's access to ``__transaction_state``: the partition of each transactional id, and reading and writing ids."""

from __future__ import annotations

from collections.abc import Callable

from ..errors import ErrorCode
from ..protocol.codec import decode_versioned, encode_versioned
from ..protocol.records import encode_batch, single_batch
from ..types import Header
from .group_records import partition_of
from .log import MAX_DECOMPRESSED_SIZE
from .metadata_view import MetadataView
from .replica_manager import ALL_ACKS, ProducedBatch, ReplicaManager
from .topics import PartitionKey
from .transaction import Transaction, TransactionState
from .transaction_records import (
    TRANSACTION_TOPIC,
    TransactionLogKey,
    TransactionLogPartitions,
    TransactionLogValue,
    transaction_key,
)

_FOR_PRODUCERS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}
"""The errors of a write, as Kafka translates them for transactional producers. Other errors are unknown to them."""


class TransactionLog:
    """The partitions of ``__transaction_state`` on one node. Owner: the TransactionCoordinator."""

    def __init__(self, metadata: MetadataView, replica_manager: ReplicaManager, now_ms: Callable[[], int]) -> None:
        self._metadata = metadata
        self._replica_manager = replica_manager
        self._now_ms = now_ms

    def leader_epochs(self, node_id: int) -> dict[int, int]:
        """The partitions that a node leads, with their leader epochs."""
        topic = self._metadata.topics.get(TRANSACTION_TOPIC)
        states = () if topic is None else topic.partitions
        return {index: state.leader_epoch for index, state in enumerate(states) if state.leader == node_id}

    def partition_for(self, transactional_id: str) -> int | None:
        """The partition of a transactional id; None if the topic does not exist yet."""
        topic = self._metadata.topics.get(TRANSACTION_TOPIC)
        return None if topic is None else partition_of(transactional_id, len(topic.partitions))

    def read(self, index: int) -> dict[str, Transaction]:
        """The transactional ids of a partition."""
        found: dict[str, Transaction] = {}
        partition = self._replica_manager.partitions.get((TRANSACTION_TOPIC, index))
        for stored in () if partition is None else partition.log.batches():
            columns = stored.view().columns(MAX_DECOMPRESSED_SIZE)
            for key, value in zip(columns.keys, columns.values):
                if key is None:
                    continue
                name = decode_versioned(TransactionLogKey, key)[0].transactional_id
                if value is None:
                    found.pop(name, None)
                else:
                    found[name] = _decode(name, decode_versioned(TransactionLogValue, value)[0])
        return found

    async def write(self, transaction: Transaction, timeout: float) -> ErrorCode:
        """Write a transactional id, or the end of a dead one, and wait up to ``timeout`` seconds for the replicas."""
        is_dead = transaction.state is TransactionState.DEAD
        row = (transaction_key(transaction.transactional_id), None if is_dead else _encode(transaction))
        now = self._now_ms()
        no_headers: tuple[Header, ...] = ()
        data = encode_batch([(now, *row, no_headers)])
        key: PartitionKey = (TRANSACTION_TOPIC, self.partition_for(transaction.transactional_id) or 0)
        responses = await self._replica_manager.append_records(
            timeout, ALL_ACKS, {key: ProducedBatch(data, single_batch(data))}, now, internal_topics_allowed=True
        )
        error = responses[key].error
        return error and _FOR_PRODUCERS.get(error, ErrorCode.UNKNOWN_SERVER_ERROR)


def _encode(transaction: Transaction) -> bytes:
    topics: dict[str, list[int]] = {}
    for name, index in sorted(transaction.partitions):
        topics.setdefault(name, []).append(index)
    partitions = [TransactionLogPartitions(topic=name, partition_ids=indexes) for name, indexes in topics.items()]
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        previous_producer_id=transaction.previous_producer_id,
        next_producer_id=transaction.next_producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state.status,
        transaction_partitions=None if transaction.state is TransactionState.EMPTY else partitions,
        transaction_last_update_timestamp_ms=transaction.updated_at,
        transaction_start_timestamp_ms=transaction.started_at,
        client_transaction_version=transaction.generation,
    )
    return encode_versioned(value, 1)


def _decode(transactional_id: str, value: TransactionLogValue) -> Transaction:
    return Transaction(
        transactional_id,
        value.producer_id,
        value.producer_epoch,
        value.transaction_timeout_ms,
        list(TransactionState)[value.transaction_status],
        frozenset((each.topic, index) for each in value.transaction_partitions or () for index in each.partition_ids),
        value.transaction_start_timestamp_ms,
        value.transaction_last_update_timestamp_ms,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        generation=value.client_transaction_version,
    )
