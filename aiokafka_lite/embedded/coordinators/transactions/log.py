"""A node's access to ``__transaction_state``: the partition of each transactional id, and reading and writing ids."""

from __future__ import annotations

from ....arguments import by_topic
from ....errors import ErrorCode
from ....protocol.codec import decode_versioned, encode_versioned
from ..log import WRITE_ERRORS, CoordinatorLog
from .records import (
    TRANSACTION_TOPIC,
    TransactionLogKey,
    TransactionLogPartitions,
    TransactionLogValue,
    transaction_key,
)
from .transaction import TransactionMetadata, TransactionState


class TransactionLog(CoordinatorLog):
    """The partitions of ``__transaction_state`` on one node. Owner: the TransactionCoordinator."""

    topic = TRANSACTION_TOPIC

    def read(self, index: int) -> dict[str, TransactionMetadata]:
        """Return the transactional ids of a partition."""
        transactions: dict[str, TransactionMetadata] = {}
        for key, value in self.rows(index):
            name = decode_versioned(TransactionLogKey, key)[0].transactional_id
            if value is None:
                transactions.pop(name, None)
            else:
                transactions[name] = _decode(name, decode_versioned(TransactionLogValue, value)[0])
        return transactions

    async def write(self, transaction: TransactionMetadata, timeout: float) -> ErrorCode:
        """Write a transactional id, or the end of a dead one, and wait up to ``timeout`` seconds for the replicas.

        As in Kafka, producers get UNKNOWN_SERVER_ERROR for an error that is not in ``WRITE_ERRORS``.
        """
        name = transaction.transactional_id
        value = None if transaction.state is TransactionState.DEAD else _encode(transaction)
        error = (await self._append(name, [(transaction_key(name), value)], timeout)).error
        return error and WRITE_ERRORS.get(error, ErrorCode.UNKNOWN_SERVER_ERROR)


def _encode(transaction: TransactionMetadata) -> bytes:
    topics = by_topic(sorted(transaction.partitions))
    partitions = [TransactionLogPartitions(topic=name, partition_ids=indexes) for name, indexes in topics.items()]
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        previous_producer_id=transaction.previous_producer_id,
        next_producer_id=transaction.next_producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state.status,
        # As in Kafka: null for an id that has had no transaction in this epoch, an empty list after one has ended.
        transaction_partitions=None if transaction.state is TransactionState.EMPTY else partitions,
        transaction_last_update_timestamp_ms=transaction.updated_at,
        transaction_start_timestamp_ms=transaction.started_at,
        client_transaction_version=transaction.generation,
    )
    return encode_versioned(value, 1)


def _decode(transactional_id: str, value: TransactionLogValue) -> TransactionMetadata:
    return TransactionMetadata(
        transactional_id,
        value.producer_id,
        value.producer_epoch,
        value.transaction_timeout_ms,
        list(TransactionState)[value.transaction_status],
        frozenset(
            (topic.topic, index) for topic in value.transaction_partitions or () for index in topic.partition_ids
        ),
        value.transaction_start_timestamp_ms,
        value.transaction_last_update_timestamp_ms,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        generation=value.client_transaction_version,
    )
