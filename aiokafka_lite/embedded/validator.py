"""What a leader checks before it appends a client's batch, in Kafka's order.

The header answers nearly everything. Records are opened only where a rule is about single records: keys in a compacted
topic, and timestamps once the header shows that one of them breaks the rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..errors import ErrorCode, KafkaError
from ..protocol.codec import Buffer
from ..protocol.records import RecordBatch, split_batches, why_not_produced
from ..types import Compression
from .configs import TopicConfig
from .log import MAX_DECOMPRESSED_SIZE

MAGIC_V2 = 2
MAGIC_AT = 16
LOG_OVERHEAD = 12
SMALLEST_LENGTH = 14
FIRST_VERSION_WITH_ZSTD = 7
NO_TIMESTAMP = -1


class RecordError(NamedTuple):
    """A record that caused its batch to be refused (KIP-467)."""

    batch_index: int
    message: str


class RecordsRejected(Exception):
    """Why a partition's records were not appended."""

    def __init__(self, code: ErrorCode, message: str, record_errors: Sequence[RecordError] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.record_errors = tuple(record_errors)


def is_framed(records: Buffer | None) -> bool:
    """Whether what begins here can be a batch, whole or cut. If not, Kafka refuses the whole request, unread."""
    if records is None or len(records) < LOG_OVERHEAD:
        return True
    if int.from_bytes(records[8:12], "big", signed=True) < SMALLEST_LENGTH:
        return False
    return len(records) <= MAGIC_AT or records[MAGIC_AT] <= MAGIC_V2


def parse_produced(records: Buffer | None, version: int) -> RecordBatch:
    """The one v2 batch that a produce request carries for a partition; raises RecordsRejected."""
    try:
        batches = [] if records is None else split_batches(records)
    except KafkaError as error:
        raise RecordsRejected(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    if records is None or not batches:
        raise RecordsRejected(ErrorCode.INVALID_RECORD, "there is no whole record batch for the partition")
    batch = batches[0]
    if batch.magic != MAGIC_V2:
        raise RecordsRejected(ErrorCode.INVALID_RECORD, f"record format v{batch.magic} cannot be produced any more")
    if batch.attributes & 7 > Compression.ZSTD:
        raise RecordsRejected(ErrorCode.CORRUPT_MESSAGE, f"there is no compression {batch.attributes & 7}")
    if version < FIRST_VERSION_WITH_ZSTD and batch.attributes & 7 == Compression.ZSTD:
        raise RecordsRejected(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7 or later")
    if len(batches) > 1:
        raise RecordsRejected(ErrorCode.INVALID_RECORD, f"{len(batches)} batches came where one is allowed")
    if batch.size < len(records):
        _check_tail(records, batch.size)
    return batch


def _check_tail(records: Buffer, start: int) -> None:
    """What follows a batch may be the beginning of another, which is dropped, as Kafka does; not something else."""
    try:
        split_batches(records[start:])
    except KafkaError as error:
        raise RecordsRejected(ErrorCode.CORRUPT_MESSAGE, str(error)) from error


def validate(batch: RecordBatch, config: TopicConfig, now_ms: int) -> None:
    """Check a client's batch against the topic's rules; raises RecordsRejected."""
    if batch.base_offset != 0:
        raise RecordsRejected(ErrorCode.INVALID_RECORD, f"base offset is {batch.base_offset}, a producer must send 0")
    if batch.size > config.max_message_bytes:
        raise RecordsRejected(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch has {batch.size} bytes, max.message.bytes is {config.max_message_bytes}",
        )
    try:
        batch.verify_crc()
    except KafkaError as error:
        raise RecordsRejected(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    refusal = why_not_produced(batch)
    if refusal is not None:
        raise RecordsRejected(ErrorCode.INVALID_RECORD, refusal)
    if config.compacted:
        _check_keys(batch)
    if not config.log_append_time:
        _check_timestamps(batch, config, now_ms)


def _check_keys(batch: RecordBatch) -> None:
    try:
        keys = batch.columns(MAX_DECOMPRESSED_SIZE).keys
    except KafkaError as error:
        raise RecordsRejected(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    missing = [index for index, key in enumerate(keys) if key is None]
    if missing:
        raise RecordsRejected(
            ErrorCode.INVALID_RECORD,
            "one or more records have been rejected: a compacted topic needs a key in each",
            [RecordError(index, "no key in a compacted topic") for index in missing],
        )


def _check_timestamps(batch: RecordBatch, config: TopicConfig, now_ms: int) -> None:
    newest = now_ms + config.timestamp_after_max_ms
    oldest = now_ms - config.timestamp_before_max_ms
    if batch.max_timestamp <= newest and min(batch.base_timestamp, batch.max_timestamp) >= oldest:
        return
    try:
        timestamps = batch.columns(MAX_DECOMPRESSED_SIZE).timestamps
    except KafkaError as error:
        raise RecordsRejected(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    wrong = [
        (index, timestamp)
        for index, timestamp in enumerate(timestamps)
        if timestamp != NO_TIMESTAMP and not oldest <= timestamp <= newest
    ]
    if wrong:
        raise RecordsRejected(
            ErrorCode.INVALID_TIMESTAMP,
            "one or more records have been rejected: timestamp out of range",
            [RecordError(index, f"timestamp {at} is not within {oldest}..{newest}") for index, at in wrong],
        )
