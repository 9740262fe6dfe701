"""The records of ``__transaction_state``, in Kafka's own format, so that its tools can read them.

A key is a transactional id. The last value of a key counts; a null value deletes the transactional id. Version 1 of the
value has tagged fields for generation 2 (KIP-890), which older brokers skip.
"""

from __future__ import annotations

from ....protocol.codec import encode_versioned
from ....protocol.schema import Message, array, int8, int16, int32, int64, message, string, struct

TRANSACTION_TOPIC = "__transaction_state"


@message(key=-1, versions=(0, 0))
class TransactionLogKey(Message):
    """The key of a transactional id."""

    transactional_id: str = string()


@struct
class TransactionLogPartitions:
    """The partitions of one topic."""

    topic: str = string()
    partition_ids: list[int] = array(int32)


@message(key=-1, versions=(0, 1), flexible=1)
class TransactionLogValue(Message):
    """The state of a transactional id. Times are in milliseconds. Null partitions mean that no transaction is open."""

    producer_id: int = int64()
    previous_producer_id: int = int64("1+", default=-1, tag=0)
    next_producer_id: int = int64("1+", default=-1, tag=1)
    producer_epoch: int = int16()
    next_producer_epoch: int = int16("1+", default=-1, tag=3)
    transaction_timeout_ms: int = int32()
    transaction_status: int = int8()
    transaction_partitions: list[TransactionLogPartitions] | None = array(TransactionLogPartitions, nullable="0+")
    transaction_last_update_timestamp_ms: int = int64()
    transaction_start_timestamp_ms: int = int64()
    client_transaction_version: int = int16("1+", default=0, tag=2)


def transaction_key(transactional_id: str) -> bytes:
    return encode_versioned(TransactionLogKey(transactional_id=transactional_id), 0)
