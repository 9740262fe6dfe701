"""The checks of a leader before it appends a client's batch, in Kafka's order.

The header is enough for nearly all checks. Records are scanned only for rules about single records: keys in a compacted
topic, and timestamps if the header shows that a timestamp breaks the rule, or if its highest timestamp cannot be true.
Headers of records are never decoded, because a small batch may have millions of them.

A batch of a few kilobytes may decompress to 128 MiB. So the checks are a generator, which yields after each step of
some milliseconds. A connection lets others run between the steps, before it hands the request to its handler. Only the
compression of a large batch for another ``compression.type`` is a long step, which may run in a thread.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import NamedTuple, TypeVar

from ...errors import ErrorCode, KafkaError
from ...protocol.codec import Buffer
from ...protocol.records import (
    HEADER_SIZE,
    RecordBatch,
    codec_of,
    decompressing,
    replace_max_timestamp,
    replace_records,
    split_batches,
)
from ...protocol.records.produced import why_not_produced
from ...protocol.records.record_format import SMALLEST_RECORD
from ...protocol.records.scan import RECORDS_A_STEP, checking_lengths, scan
from ...types import Compression
from ..settings.configs import TopicConfig
from .log import MAX_DECOMPRESSED_SIZE

T = TypeVar("T")

MAGIC_V2 = 2
MAGIC_AT = 16
# Base offset (8 bytes) and length (4 bytes), in all formats.
LOG_OVERHEAD = 12
# The smallest message of format v0: CRC, magic, attributes, and the sizes of a null key and a null value.
SMALLEST_LENGTH = 14
LARGEST_LENGTH = 2**31 - 1 - LOG_OVERHEAD
# The low byte of the 16 bits of a v2 batch: the codec and the flags.
ATTRIBUTES_AT = 22
CODEC = 0x07
TRANSACTIONAL = 0x10
NO_TIMESTAMP = -1
MAX_RECORDS = 1 << 19
"""The largest number of records of a batch. Kafka has no such limit. Here each scan of them stops the event loop of all
brokers, and a batch of 100 KB may have twenty million records."""
LARGE = 1 << 20
"""Records with more bytes are compressed in a thread: gzip takes about 30 ms for a mebibyte, and 2 s for 126 MiB."""
MAX_RECORD_ERRORS = 1_000
"""The largest number of records that a response lists. Kafka lists all of them; a small batch may have a million."""


class RecordError(NamedTuple):
    """A record that caused the broker to reject its batch (KIP-467)."""

    batch_index: int
    message: str


class RecordsRejected(Exception):
    """The records of a partition were not appended; ``code`` and the message say why."""

    def __init__(self, code: ErrorCode, message: str, record_errors: Sequence[RecordError] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.record_errors: tuple[RecordError, ...] = tuple(record_errors)


def is_framed(records: Buffer | None) -> bool:
    """Return whether the bytes begin like a batch, complete or truncated. If not, Kafka rejects the whole request."""
    if records is None or len(records) < LOG_OVERHEAD:
        return True
    if not SMALLEST_LENGTH <= int.from_bytes(records[8:12], "big", signed=True) <= LARGEST_LENGTH:
        return False
    return len(records) <= MAGIC_AT or records[MAGIC_AT] <= MAGIC_V2


def is_transactional(records: Buffer | None) -> bool:
    """Return whether the first batch is complete and belongs to a transaction."""
    if records is None or len(records) <= ATTRIBUTES_AT or records[MAGIC_AT] != MAGIC_V2:
        return False
    is_whole = int.from_bytes(records[8:12], "big") + LOG_OVERHEAD <= len(records)
    return is_whole and bool(records[ATTRIBUTES_AT] & TRANSACTIONAL)


def may_take_long(records: Buffer | None) -> bool:
    """Return whether the checks may take more than one step: there may be many records, or many bytes after
    decompression.
    """
    if records is None or len(records) <= ATTRIBUTES_AT:
        return False
    return len(records) > RECORDS_A_STEP * SMALLEST_RECORD or bool(records[ATTRIBUTES_AT] & CODEC)


def parse_produced(records: Buffer | None, version: int) -> RecordBatch:
    """Return the v2 batch that a produce request has for a partition. Raises RecordsRejected unless there is exactly
    one.
    """
    try:
        batches = [] if records is None else split_batches(records)
    except KafkaError as error:
        raise RecordsRejected(_code_for_header(records), str(error)) from None
    if records is None or not batches:
        raise RecordsRejected(ErrorCode.INVALID_RECORD, "the partition has no complete record batch")
    batch = batches[0]
    if batch.magic != MAGIC_V2:
        raise RecordsRejected(ErrorCode.INVALID_RECORD, f"record format v{batch.magic} is not supported")
    if batch.attributes & 7:
        _check_codec(batch.attributes & 7, version)
    if len(batches) > 1:
        raise RecordsRejected(ErrorCode.INVALID_RECORD, f"a partition must have one batch, got {len(batches)}")
    if batch.size < len(records):
        _check_tail(records, batch.size)
    return batch


def _check_codec(number: int, version: int) -> None:
    """Raise RecordsRejected if the codec is unknown, or not allowed in this version of Produce."""
    try:
        compression = Compression(number)
    except ValueError:
        raise RecordsRejected(ErrorCode.CORRUPT_MESSAGE, f"unknown compression {number}") from None
    first = codec_of(compression).produce
    if first is not None and version < first:
        name = compression.name.lower()
        raise RecordsRejected(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"{name} requires Produce version {first} or newer"
        )


def _code_for_header(records: Buffer | None) -> ErrorCode:
    """Return the error for a malformed header: a batch that is too short is corrupt, anything else is invalid."""
    too_short = records is None or int.from_bytes(records[8:12], "big", signed=True) < HEADER_SIZE - LOG_OVERHEAD
    return ErrorCode.CORRUPT_MESSAGE if too_short else ErrorCode.INVALID_RECORD


def _check_tail(records: Buffer, start: int) -> None:
    """Raise RecordsRejected unless the bytes after the batch begin another one. As in Kafka, they are dropped."""
    if not is_framed(records[start:]):
        raise RecordsRejected(ErrorCode.CORRUPT_MESSAGE, "the bytes after the batch are not another batch")


class Validation:
    """The checks of one batch against the settings of its topic, as they were at that time.

    ``batch`` is the header of ``records``. A batch of a coordinator is not ``from_client``: only its size is checked,
    because this broker has just encoded it.
    """

    __slots__ = (
        "_from_client",
        "_now_ms",
        "_records",
        "_refusal",
        "_steps",
        "_stored",
        "batch",
        "config",
        "next_is_long",
    )

    def __init__(
        self, batch: RecordBatch, records: Buffer, config: TopicConfig, now_ms: int, *, from_client: bool = True
    ) -> None:
        self.batch: RecordBatch = batch
        self.config: TopicConfig = config
        self._records, self._now_ms, self._from_client = records, now_ms, from_client
        self.restart()

    def restart(self) -> None:
        """Drop the decompressed records: the next step is the first one."""
        self._steps = _validate(self.batch, self._records, self.config, self._now_ms, from_client=self._from_client)
        self.next_is_long: bool = False
        self._stored: Buffer | None = None
        self._refusal: RecordsRejected | None = None

    def step(self) -> bool:
        """Do the next step. It takes some milliseconds unless ``next_is_long``. False if it was the last one."""
        if self._stored is not None or self._refusal is not None:
            return False
        try:
            self.next_is_long = next(self._steps) is not None
        except StopIteration as end:
            self._stored = end.value
        except RecordsRejected as refusal:
            # The tracebacks would keep the decompressed records until the request is answered.
            refusal.__context__ = None
            self._refusal = refusal.with_traceback(None)
        return self._stored is None and self._refusal is None

    @property
    def new_size(self) -> int:
        """The bytes of the result that are not in the request: the size of a batch that is compressed again."""
        return 0 if self._stored is None or self._stored is self._records else len(self._stored)

    def result(self) -> Buffer:
        """Return the records to store, compressed as the topic demands, after all steps. Raises RecordsRejected."""
        while self.step():
            pass
        if self._refusal is not None:
            raise self._refusal
        assert self._stored is not None
        return self._stored


def _validate(
    batch: RecordBatch, records: Buffer, config: TopicConfig, now_ms: int, *, from_client: bool
) -> Generator[bool | None, None, Buffer]:
    """Yield the steps of a validation. True means that the next step is long."""
    _check_size(batch, config)
    compresses = config.compression is not None and config.compression is not batch.compression
    if not from_client:
        if not compresses:
            return records
        return _recompress(batch, batch.body(MAX_DECOMPRESSED_SIZE), config, batch.max_timestamp)
    # The CRC covers the compressed bytes. Damaged bytes must not reach a decompressor.
    _check_header(batch)
    body = yield from _rejecting(ErrorCode.CORRUPT_MESSAGE, _decompressing(batch))
    yield from _rejecting(ErrorCode.INVALID_RECORD, checking_lengths(body, batch.count))
    if config.compacted:
        yield from _rejecting(ErrorCode.CORRUPT_MESSAGE, _check_keys(batch, body))
    max_timestamp = batch.max_timestamp
    # With the append time the broker replaces the timestamps, so the client's may have any value.
    if not config.log_append_time:
        # Sarama, for example, leaves -1. Kafka computes it for all batches; here only where the header must be wrong,
        # because to decode the records of all would make the broker slow.
        if max_timestamp < batch.base_timestamp:
            max_timestamp = yield from _rejecting(ErrorCode.CORRUPT_MESSAGE, _highest_timestamp(batch, body))
        checks = _check_timestamps(batch, body, max_timestamp, config, now_ms)
        yield from _rejecting(ErrorCode.CORRUPT_MESSAGE, checks)
    if compresses:
        if len(body) > LARGE:
            yield True
        return _recompress(batch, body, config, max_timestamp)
    return records if max_timestamp == batch.max_timestamp else replace_max_timestamp(records, max_timestamp)


def _check_size(batch: RecordBatch, config: TopicConfig) -> None:
    if batch.base_offset != 0:
        raise RecordsRejected(
            ErrorCode.INVALID_RECORD, f"the base offset of a producer's batch must be 0, got {batch.base_offset}"
        )
    if batch.size > config.max_message_bytes:
        raise RecordsRejected(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a batch must have at most max.message.bytes={config.max_message_bytes} bytes, got {batch.size}",
        )


def _check_header(batch: RecordBatch) -> None:
    try:
        batch.verify_crc()
    except KafkaError as error:
        raise RecordsRejected(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
    refusal = why_not_produced(batch)
    if refusal is None and batch.count > MAX_RECORDS:
        refusal = f"the batch has {batch.count} records; the embedded broker accepts at most {MAX_RECORDS} in a batch"
    if refusal is not None:
        raise RecordsRejected(ErrorCode.INVALID_RECORD, refusal)


def _rejecting(code: ErrorCode, steps: Generator[None, None, T]) -> Generator[None, None, T]:
    """Take the steps of a check. Raises RecordsRejected with this code for its errors."""
    try:
        return (yield from steps)
    except KafkaError as error:
        raise RecordsRejected(code, str(error)) from None


def _decompressing(batch: RecordBatch) -> Generator[None, None, Buffer]:
    packed = batch.data[HEADER_SIZE:]
    if batch.compression is Compression.NONE:
        return packed
    return (yield from decompressing(batch.compression, packed, MAX_DECOMPRESSED_SIZE))


def _recompress(batch: RecordBatch, body: Buffer, config: TopicConfig, max_timestamp: int) -> bytes:
    """Compress the records of a valid batch with the codec of the topic. Raises RecordsRejected."""
    if batch.producer_id >= 0 and batch.producer_epoch < 0:
        raise RecordsRejected(ErrorCode.INVALID_RECORD, f"producer {batch.producer_id} has no epoch")
    records = replace_records(
        batch,
        body,
        count=batch.count,
        max_timestamp=max_timestamp,
        compression=config.compression or Compression.NONE,
        level=config.compression_level,
    )
    if len(records) > config.max_message_bytes:
        raise RecordsRejected(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"after compression, a batch must have at most max.message.bytes={config.max_message_bytes} bytes, "
            f"got {len(records)}",
        )
    return records


def _check_keys(batch: RecordBatch, body: Buffer) -> Generator[None, None, None]:
    reason = "a record of a compacted topic must have a key"
    errors: list[RecordError] = []
    for index, record in enumerate(scan(batch, body), 1):
        if record.key is None and _is_last(errors, RecordError(index - 1, reason)):
            break
        if not index % RECORDS_A_STEP:
            yield
    _reject(ErrorCode.INVALID_RECORD, reason, errors)


def _highest_timestamp(batch: RecordBatch, body: Buffer) -> Generator[None, None, int]:
    highest = NO_TIMESTAMP
    for index, record in enumerate(scan(batch, body), 1):
        highest = max(highest, record.timestamp)
        if not index % RECORDS_A_STEP:
            yield
    return highest


def _check_timestamps(
    batch: RecordBatch, body: Buffer, max_timestamp: int, config: TopicConfig, now_ms: int
) -> Generator[None, None, None]:
    newest = now_ms + config.timestamp_after_max_ms
    oldest = now_ms - config.timestamp_before_max_ms
    # The header has the highest timestamp, not the lowest. With the default, no timestamp is too old, so most batches
    # need no scan.
    if max_timestamp <= newest and oldest < 0:
        return
    errors: list[RecordError] = []
    for index, record in enumerate(scan(batch, body), 1):
        if record.timestamp != NO_TIMESTAMP and not oldest <= record.timestamp <= newest:
            reason = f"the timestamp must be from {oldest} to {newest}, got {record.timestamp}"
            if _is_last(errors, RecordError(index - 1, reason)):
                break
        if not index % RECORDS_A_STEP:
            yield
    _reject(ErrorCode.INVALID_TIMESTAMP, "timestamp out of range", errors)


def _is_last(errors: list[RecordError], error: RecordError) -> bool:
    """Add an error. Returns True when the list is full."""
    errors.append(error)
    return len(errors) == MAX_RECORD_ERRORS


def _reject(code: ErrorCode, reason: str, errors: Sequence[RecordError]) -> None:
    """Raise RecordsRejected with these errors, unless there are none."""
    if errors:
        raise RecordsRejected(code, f"one or more records have been rejected: {reason}", errors)
