"""Makes record batches of format v2. ``BatchBuilder`` collects records; ``encode_batch`` encodes whole batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

from ...types import Compression, TimestampType
from .batch import RecordBatch
from .batch_header import (
    CODEC_MASK,
    CONTROL,
    HEADER_SIZE,
    INT64_MAX,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    encode_header,
    with_header,
)
from .compression import check_level, compress
from .encode import append_record, encode_headers
from .pack import RecordLists
from .record_format import ZERO_HEADERS, Buffer, Headers, encode_records

# Compiled code reads a Final without a lookup in the module's dictionary.
_append_record: Final = append_record
_encode_headers: Final = encode_headers


class BatchBuilder:
    """Collects records for one batch of format v2. Owned by the partition that appends to it.

    ``max_size`` limits the batch on the wire, in bytes; the first record always fits. ``ratio`` is the expected
    compressed size of the records divided by their size (1.0: no compression). The limit and ``size`` use it. Raises
    ConfigurationError for a level that the codec does not have.
    """

    __slots__ = (
        "_attributes",
        "_base_timestamp",
        "_buffer",
        "_compression",
        "_level",
        "_limit",
        "_max_timestamp",
        "_ratio",
        "_raw_size",
        "count",
    )

    def __init__(
        self,
        compression: Compression = Compression.NONE,
        level: int | None = None,
        max_size: int = 1 << 20,
        ratio: float = 1.0,
    ) -> None:
        check_level(compression, level)
        self._compression = compression
        self._level = level
        self._ratio = ratio
        self._limit = HEADER_SIZE + int((max_size - HEADER_SIZE) / ratio)
        self._buffer = bytearray(HEADER_SIZE)
        self._base_timestamp = self._max_timestamp = -1
        self._attributes = 0  # the codec, after the records are compressed
        self._raw_size = 0  # bytes before compression, after the batch was built
        self.count: int = 0

    def append(self, timestamp: int, key: Buffer | None, value: Buffer | None, headers: Headers = ()) -> bool:
        """Add a record. Returns False if the batch is full or was built. ``timestamp`` is in milliseconds.

        Raises TypeError for a key or value that is not a buffer. Raises ValueError if the difference between a
        timestamp and the first one does not fit in 64 bits, which only a negative timestamp can cause. The batch is
        unchanged then.
        """
        count = self.count
        encoded = _encode_headers(headers) if headers else ZERO_HEADERS
        if count:
            if not _append_record(
                self._buffer, self._limit, count, timestamp - self._base_timestamp, key, value, encoded
            ):
                return False
            if timestamp > self._max_timestamp:
                self._max_timestamp = timestamp
        else:
            # The first record of a batch always fits, whatever its size. A limit of 0 marks a batch that was built.
            if not _append_record(self._buffer, INT64_MAX if self._limit else 0, 0, 0, key, value, encoded):
                return False
            self._base_timestamp = self._max_timestamp = timestamp
        self.count = count + 1
        return True

    def append_lists(self, lists: RecordLists, start: int, stop: int) -> int:
        """Add the records from ``start`` up to ``stop``, as many as there is room for. Returns their number."""
        count, timestamp = self.count, lists.timestamp
        if not self._limit:
            return 0
        if not count:
            self._base_timestamp = self._max_timestamp = timestamp
        delta = timestamp - self._base_timestamp
        added = lists.append_to(self._buffer, self._limit, count, delta, start, stop)
        assert 0 <= added <= stop - start
        if added and timestamp > self._max_timestamp:
            self._max_timestamp = timestamp
        self.count = count + added
        return added

    def fill(self, buffer: bytearray, count: int, base_timestamp: int, max_timestamp: int) -> None:
        """Set the encoded records of an empty batch, at least one. The batch is full afterwards.

        ``buffer`` has ``HEADER_SIZE`` bytes for the header, and then the records. It belongs to the batch from now on.
        Offset deltas must be 0, 1, 2 …, and timestamps relative to ``base_timestamp``. Nothing is checked.
        """
        assert not self.count, "only an empty batch is filled"
        assert count > 0, "a batch has at least one record"
        self._buffer = buffer
        self._limit = 0
        self._base_timestamp, self._max_timestamp = base_timestamp, max_timestamp
        self.count = count

    def drop(self) -> None:
        """Drop the records, because the batch is settled. ``count`` stays; the batch cannot be built again."""
        self._limit = 0
        self._buffer, self._raw_size = bytearray(), 0

    @property
    def max_timestamp(self) -> int:
        """The latest timestamp, in milliseconds; -1 while empty."""
        return self._max_timestamp

    @property
    def uncompressed_size(self) -> int:
        """Bytes of the header and the uncompressed records: their memory until the batch is built."""
        return self._raw_size or len(self._buffer)

    @property
    def size(self) -> int:
        """Bytes on the wire: an estimate by the ratio until the batch is built, exact after that."""
        if self._raw_size or self._compression is Compression.NONE:
            return len(self._buffer)
        return HEADER_SIZE + int((len(self._buffer) - HEADER_SIZE) * self._ratio)

    def build(
        self,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        transactional: bool = False,
        control: bool = False,
        leader_epoch: int = -1,
        base_offset: int = 0,
    ) -> bytearray:
        """Encode the batch. No record can be added after it. Building again with other ids only changes the header.

        Records that compression does not make smaller stay uncompressed. They are not copied: the result is the
        builder's own buffer, which the next ``build`` changes. Raises ConfigurationError for snappy if cramjam is
        missing.
        """
        self._limit = 0
        self._pack()
        buffer = self._buffer
        buffer[:HEADER_SIZE] = encode_header(
            memoryview(buffer)[HEADER_SIZE:],
            base_offset=base_offset,
            leader_epoch=leader_epoch,
            attributes=self._attributes | TRANSACTIONAL * transactional | CONTROL * control,
            last_offset_delta=max(self.count - 1, 0),
            base_timestamp=self._base_timestamp,
            max_timestamp=self._max_timestamp,
            producer=(producer_id, producer_epoch, base_sequence),
            count=self.count,
        )
        return buffer

    def packing(self) -> Callable[[], bytearray]:
        """Return a function that compresses the records, for a thread. Its result is for ``packed``.

        No record can be added after this call. The function changes nothing, so the batch may be built meanwhile.
        """
        self._limit = 0
        return partial(_packed, self._compression, self._level, self._buffer)

    def packed(self, buffer: bytearray) -> None:
        """Take the compressed records, unless the batch was built meanwhile."""
        if self._raw_size:
            return
        self._raw_size = len(self._buffer)
        if buffer is not self._buffer:
            self._attributes = int(self._compression)
            self._buffer = buffer

    def _pack(self) -> None:
        """Compress the records, on the first call."""
        if not self._raw_size:
            self.packed(_packed(self._compression, self._level, self._buffer))


def _packed(compression: Compression, level: int | None, buffer: bytearray) -> bytearray:
    """Return the buffer of a batch with compressed records, or this buffer itself if they would not be smaller."""
    if compression is Compression.NONE:
        return buffer
    with memoryview(buffer)[HEADER_SIZE:] as records:
        compressed = compress(compression, records, level)
    if len(compressed) >= len(buffer) - HEADER_SIZE:
        return buffer
    packed = bytearray(HEADER_SIZE)
    packed += compressed
    return packed


def encode_batch(
    records: Iterable[tuple[int, Buffer | None, Buffer | None, Headers]],
    *,
    base_offset: int = 0,
    compression: Compression = Compression.NONE,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    leader_epoch: int = -1,
    offset_deltas: Sequence[int] | None = None,
    last_offset_delta: int | None = None,
) -> bytes:
    """Encode a batch of rows (timestamp in ms, key, value, headers), for the embedded broker and for tests.

    The batch is always compressed, unlike a batch of ``BatchBuilder``. ``offset_deltas`` and ``last_offset_delta`` make
    the gaps that compaction leaves. Without records, it is the empty batch that compaction leaves at the end.
    """
    # Twelve parameters: the fields of the header, each with its default. Not on the path of a record.
    rows = list(records)
    timestamps = [row[0] for row in rows]
    base_timestamp = timestamps[0] if rows else -1
    body: Buffer = encode_records(
        base_timestamp,
        timestamps,
        [row[1] for row in rows],
        [row[2] for row in rows],
        [row[3] for row in rows],
        offset_deltas=offset_deltas,
    )
    if compression is not Compression.NONE and rows:
        body = compress(compression, body)
    if last_offset_delta is None:
        last_offset_delta = offset_deltas[-1] if offset_deltas else max(len(rows) - 1, 0)
    attributes = compression | TRANSACTIONAL * transactional | CONTROL * control
    return with_header(
        body,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        attributes=attributes | LOG_APPEND_TIME * (timestamp_type is TimestampType.LOG_APPEND_TIME),
        last_offset_delta=last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max(timestamps, default=-1),
        producer=(producer_id, producer_epoch, base_sequence),
        count=len(rows),
    )


def replace_records(
    batch: RecordBatch,
    records: Buffer,
    *,
    count: int,
    max_timestamp: int,
    compression: Compression,
    level: int | None = None,
) -> bytes:
    """Return a copy of a batch of format v2 with other records, encoded relative to the same offset and timestamp."""
    attributes = batch.attributes & ~CODEC_MASK | compression
    return with_header(
        compress(compression, records, level),
        base_offset=batch.base_offset,
        leader_epoch=batch.leader_epoch,
        attributes=attributes,
        last_offset_delta=batch.last_offset_delta,
        base_timestamp=batch.base_timestamp,
        max_timestamp=max_timestamp,
        producer=(batch.producer_id, batch.producer_epoch, batch.base_sequence),
        count=count,
    )
