"""Record batches in wire format: ``BatchBuilder`` makes them, ``RecordBatch`` reads them.

A batch of format v2 is a header of 61 bytes and the records, compressed together or not at all. The checksum covers
only the fields after it. The base offset and the leader epoch come before it, so a broker sets them without computing
the checksum again. (https://kafka.apache.org/documentation/#recordbatch; KIP-98, and KIP-534 for the delete horizon.)

This module has no topics and no clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from typing import Any, Final

from ...errors import CorruptRecord
from ...types import Compression, TimestampType
from . import legacy
from .checksum import crc32c
from .codec import (
    SMALLEST_RECORD,
    ZERO_HEADERS,
    Buffer,
    Headers,
    RecordColumns,
    decode_records,
    encode_records,
    end_of_records,
)
from .compression import DEFAULT_MAX_DECOMPRESSED, check_level, compress, decompress
from .encode import append_record, encode_headers
from .pack import RecordLists

HEADER_SIZE = 61
_LOG_OVERHEAD = 12  # base offset and length: the length field does not count them
_CRC_COVERS_FROM = 21
_MAGIC_AT = 16

_HEADER = Struct(">qiibIhiqqqhii")
_LOG_HEADER = Struct(">qi")
_BEFORE_CRC = Struct(">qiib")
_CRC = Struct(">I")
_AFTER_CRC = Struct(">hiqqqhii")

_CODEC_MASK = 0x07
_COMPRESSIONS: Final = tuple(Compression)  # by number, because a call of an enumeration takes longer
_LOG_APPEND_TIME = 0x08
_TRANSACTIONAL = 0x10
_CONTROL = 0x20
_INT64_MAX: Final = (1 << 63) - 1
_RECORDS_A_CHUNK = 1 << 14  # decoded in 20 ms
# Compiled code reads a Final without a lookup in the module's dictionary.
_append_record: Final = append_record
_encode_headers: Final = encode_headers


class RecordBatch:
    """A batch of any format in a buffer. The constructor reads the header; ``columns`` and ``chunks`` read records.

    ``size`` is the size of the whole batch in bytes, ``data`` the batch itself, as a view that keeps the buffer alive.
    The other attributes are fields of the header. A message of format v0 or v1 is a batch of one record, with -1 for
    the fields that its format lacks. If it is a compressed wrapper, ``count`` is -1, and ``base_offset`` is the offset
    of its last record. The other offsets are known only after decompression.
    """

    attributes: int
    base_offset: int
    base_sequence: int
    base_timestamp: int
    count: int
    crc: int
    last_offset_delta: int
    leader_epoch: int
    magic: int
    max_timestamp: int
    producer_epoch: int
    producer_id: int

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "count",
        "crc",
        "data",
        "last_offset_delta",
        "leader_epoch",
        "magic",
        "max_timestamp",
        "producer_epoch",
        "producer_id",
        "size",
    )

    def __init__(self, data: Buffer) -> None:
        """Read the header of the only batch in ``data``. Raises CorruptRecord if it is malformed."""
        self.data: memoryview = memoryview(data)
        data = self.data
        self.size: int = len(data)
        if self.size > _MAGIC_AT and data[_MAGIC_AT] < 2:  # the same place in all formats
            self._read_legacy_header()
            return
        if self.size < HEADER_SIZE:
            raise CorruptRecord(f"a batch of {self.size} bytes is smaller than its header")
        (
            self.base_offset,
            length,
            self.leader_epoch,
            self.magic,
            self.crc,
            self.attributes,
            self.last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.count,
        ) = _HEADER.unpack_from(data)
        if self.magic != 2:
            raise CorruptRecord(f"a batch has the unknown format {self.magic}")
        if length != self.size - _LOG_OVERHEAD:
            raise CorruptRecord(f"a batch of {self.size} bytes claims a length of {length}")
        if self.base_offset < 0 or self.last_offset_delta < 0 or self.next_offset > _INT64_MAX:
            raise CorruptRecord(f"a batch claims offsets {self.base_offset} to {self.last_offset}")

    def _read_legacy_header(self) -> None:
        message = legacy.read_header(self.data)
        self.base_offset = message.offset
        self.magic, self.crc, self.attributes = message.magic, message.crc, message.attributes
        self.base_timestamp = self.max_timestamp = message.timestamp
        self.leader_epoch = self.producer_id = self.producer_epoch = self.base_sequence = -1
        self.last_offset_delta = 0
        self.count = 1 if message.attributes & _CODEC_MASK == 0 else -1

    @property
    def last_offset(self) -> int:
        """The offset of the last record when the batch was written. Compaction may have removed that record."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset after this batch. It is the same after compaction has removed records."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> Compression:
        """The codec. Raises CorruptRecord for an unknown codec."""
        codec = self.attributes & _CODEC_MASK
        if codec >= len(_COMPRESSIONS):
            raise self._corrupt(f"it has the unknown codec {codec}")
        return _COMPRESSIONS[codec]

    @property
    def timestamp_type(self) -> TimestampType:
        """Whether the timestamps are the producer's or the broker's. NONE in format v0, which has no timestamps."""
        if self.magic == 0:
            return TimestampType.NONE
        return TimestampType.LOG_APPEND_TIME if self.attributes & _LOG_APPEND_TIME else TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction, or is the marker that ends one."""
        return self.magic == 2 and bool(self.attributes & _TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Whether the batch is a marker of the broker, which is not returned to users."""
        return self.magic == 2 and bool(self.attributes & _CONTROL)

    @property
    def append_time(self) -> int | None:
        """The timestamp of all records, in milliseconds, if the broker has set it; None if each has its own."""
        return self.max_timestamp if self.magic == 2 and self.attributes & _LOG_APPEND_TIME else None

    def verify_crc(self) -> None:
        """Raise CorruptRecord if the checksum is wrong."""
        if self.magic < 2:
            actual = legacy.checksum(self.data)
        else:
            actual = crc32c(self.data[_CRC_COVERS_FROM:])
        if actual != self.crc:
            raise self._corrupt(f"its checksum is {actual:#010x}, but must be {self.crc:#010x}")

    def body(self, max_decompressed_size: int = DEFAULT_MAX_DECOMPRESSED) -> Buffer:
        """Return the decompressed records of format v2. Raises CorruptRecord if they are malformed or exceed the
        limit."""
        packed = self.data[HEADER_SIZE:]
        if self.compression is Compression.NONE:
            return packed
        return decompress(self.compression, packed, max_decompressed_size)

    def columns(self, max_decompressed_size: int = DEFAULT_MAX_DECOMPRESSED) -> RecordColumns:
        """Return all records of the batch. The checksum is not verified.

        Raises CorruptRecord, with the batch's offset, if the batch is malformed or decompresses to more than
        ``max_decompressed_size`` bytes, and ConfigurationError for snappy without cramjam.
        """
        if self.magic == 2 and 0 < self.count <= _RECORDS_A_CHUNK:
            # Without ``chunks``: most batches are small, and two generators take longer than a few records.
            try:
                columns, _ = self._decode(self._records(max_decompressed_size), 0, self.count, self.count, 0)
            except CorruptRecord as error:
                raise self._located(error) from None
            if len(columns.offsets) == self.count:  # fewer, if they have too many headers for one chunk
                return columns
        columns = RecordColumns([], [], [], [], [])
        for more in self.chunks(max_decompressed_size):
            columns.extend(more)
        return columns

    def chunks(
        self,
        max_decompressed_size: int = DEFAULT_MAX_DECOMPRESSED,
        max_records: int = _RECORDS_A_CHUNK,
        start_offset: int = 0,
    ) -> Iterator[RecordColumns]:
        """Yield the records in chunks of at most ``max_records``, each decoded when the iterator reaches it.

        A record of seven bytes takes about a hundred as Python objects. With chunks, a large batch takes only the
        memory of its decompressed bytes and one chunk, of at most ``MAX_HEADERS`` headers. Records before
        ``start_offset`` may be left out, without a check of their content. Raises the errors of ``columns``, after the
        chunks before the malformed record.
        """
        try:
            if self.magic < 2:
                yield from legacy.decode_message(self.data, max_decompressed_size, max_records)
            else:
                yield from self._chunks(max_decompressed_size, max_records, start_offset)
        except CorruptRecord as error:
            raise self._located(error) from None

    def _chunks(self, max_decompressed_size: int, max_records: int, start_offset: int) -> Iterator[RecordColumns]:
        if not self.count and self.size == HEADER_SIZE:
            return  # compaction has removed all records
        records, records_left = self._records(max_decompressed_size), self.count
        position = first_delta = 0
        if self.base_offset + max_records < start_offset and records_left == self.last_offset_delta + 1:
            # Without gaps, the index of a record follows from its offset. Without this, decoding three million records
            # only to drop them took four seconds.
            first_delta = min(start_offset - self.base_offset, records_left)
            try:
                position = end_of_records(records, first_delta)
            except IndexError:
                position = len(records)
            records_left -= first_delta
        while records_left:
            columns, position = self._decode(records, position, records_left, max_records, first_delta)
            records_left -= len(columns.offsets)
            first_delta = columns.offsets[-1] - self.base_offset + 1
            yield columns
        _check_end(records, position)

    def _records(self, max_decompressed_size: int) -> bytes:
        """Return the decompressed records, if they can be as many as the header says."""
        packed, codec = self.data[HEADER_SIZE:], self.compression
        records = bytes(packed) if codec is Compression.NONE else decompress(codec, packed, max_decompressed_size)
        if self.count < 0 or self.count * SMALLEST_RECORD > len(records):  # before anything is decoded
            raise CorruptRecord(f"it claims {self.count} records in {len(records)} bytes")
        return records

    def _decode(
        self, records: bytes, position: int, records_left: int, max_records: int, first_delta: int
    ) -> tuple[RecordColumns, int]:
        """Decode at most ``max_records`` of the last ``records_left`` records. Return also the position after them."""
        columns, position = decode_records(
            records,
            position,
            min(records_left, max_records),
            self.base_offset,
            self.base_timestamp,
            self.append_time,
            first_delta,
        )
        if columns.offsets[-1] > self.last_offset:
            raise CorruptRecord(f"it has a record after its last offset, {self.last_offset}")
        if len(columns.offsets) == records_left:
            _check_end(records, position)
        return columns, position

    def _located(self, error: CorruptRecord) -> CorruptRecord:
        return error if error.offset is not None else self._corrupt(str(error))

    def _corrupt(self, why: str) -> CorruptRecord:
        return CorruptRecord(f"batch at offset {self.base_offset}: {why}", offset=self.base_offset)

    def __repr__(self) -> str:
        flags = "".join((" transactional" * self.is_transactional, " control" * self.is_control))
        return (
            f"<RecordBatch v{self.magic} offsets={self.base_offset}..{self.last_offset} count={self.count} "
            f"codec={self.attributes & _CODEC_MASK} size={self.size}{flags}>"
        )


def _check_end(records: bytes, position: int) -> None:
    if position != len(records):
        raise CorruptRecord(f"it has {len(records) - position} bytes after its last record")


def split_batches(data: Buffer) -> list[RecordBatch]:
    """Split the records of a fetched partition into batches. An incomplete batch at the end is left out.

    An empty list for bytes that are not empty means that even the first batch is incomplete. Raises CorruptRecord if
    ``data`` begins with a malformed batch. A malformed batch after good batches ends the list instead. The consumer
    reads the good batches. Its next fetch begins with the malformed batch, at a known offset that it can skip.
    """
    view = memoryview(data)
    batches: list[RecordBatch] = []
    position, end = 0, len(view)
    try:
        while end - position > _MAGIC_AT:
            size = _LOG_OVERHEAD + _batch_length(view, position)
            if size > end - position:
                break
            batches.append(RecordBatch(view[position : position + size]))
            position += size
    except CorruptRecord:
        if not batches:
            raise
    return batches


def _batch_length(view: memoryview, position: int) -> int:
    length: int = _LOG_HEADER.unpack_from(view, position)[1]
    magic = view[position + _MAGIC_AT]
    if magic > 2:
        raise CorruptRecord(f"a batch has the unknown format {magic}")
    smallest = HEADER_SIZE - _LOG_OVERHEAD if magic == 2 else legacy.SMALLEST_LENGTH[magic]
    if length < smallest:
        raise CorruptRecord(f"a batch of format {magic} claims a length of {length}; the smallest is {smallest}")
    return length


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
            if not _append_record(self._buffer, _INT64_MAX if self._limit else 0, 0, 0, key, value, encoded):
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
        if added and timestamp > self._max_timestamp:
            self._max_timestamp = timestamp
        self.count = count + added
        return added

    def fill(self, buffer: bytearray, count: int, base_timestamp: int, max_timestamp: int) -> None:
        """Set the encoded records of an empty batch, at least one. The batch is full afterwards.

        ``buffer`` has ``HEADER_SIZE`` bytes for the header, and then the records. It belongs to the batch from now on.
        Offset deltas must be 0, 1, 2 …, and timestamps relative to ``base_timestamp``. Nothing is checked.
        """
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
        """Return the encoded batch. No record can be added after it. Building again with other ids only changes the
        header.

        Records that compression does not make smaller stay uncompressed. They are not copied: the result is the
        builder's own buffer, which the next ``build`` changes. Raises ConfigurationError for snappy without cramjam.
        """
        self._limit = 0
        self._pack()
        buffer = self._buffer
        buffer[:HEADER_SIZE] = _header(
            memoryview(buffer)[HEADER_SIZE:],
            base_offset=base_offset,
            leader_epoch=leader_epoch,
            attributes=self._attributes | _TRANSACTIONAL * transactional | _CONTROL * control,
            last_offset_delta=max(self.count - 1, 0),
            base_timestamp=self._base_timestamp,
            max_timestamp=self._max_timestamp,
            producer=(producer_id, producer_epoch, base_sequence),
            count=self.count,
        )
        return buffer

    def _pack(self) -> None:
        """Compress the records, on the first call. They stay uncompressed if that does not make them smaller."""
        if self._raw_size:
            return
        self._raw_size = len(self._buffer)
        if self._compression is not Compression.NONE:
            with memoryview(self._buffer)[HEADER_SIZE:] as records:
                packed = compress(self._compression, records, self._level)
            if len(packed) < len(self._buffer) - HEADER_SIZE:
                self._attributes = int(self._compression)
                self._buffer = bytearray(HEADER_SIZE)
                self._buffer += packed


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
    attributes = compression | _TRANSACTIONAL * transactional | _CONTROL * control
    return _with_header(
        body,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        attributes=attributes | _LOG_APPEND_TIME * (timestamp_type is TimestampType.LOG_APPEND_TIME),
        last_offset_delta=last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max(timestamps, default=-1),
        producer=(producer_id, producer_epoch, base_sequence),
        count=len(rows),
    )


def _with_header(records: Buffer, **fields: Any) -> bytes:
    """Return a batch of these records. ``fields`` are arguments of ``_header``."""
    return b"".join((_header(records, **fields), records))


def _header(
    records: Buffer,
    *,
    base_offset: int,
    leader_epoch: int,
    attributes: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    producer: tuple[int, int, int],
    count: int,
) -> bytes:
    """Return the header of a batch of these records, with its checksum."""
    covered = _AFTER_CRC.pack(attributes, last_offset_delta, base_timestamp, max_timestamp, *producer, count)
    length = HEADER_SIZE - _LOG_OVERHEAD + len(records)
    checksum = crc32c(records, crc32c(covered))  # continued over the records, so that nothing is joined
    return b"".join((_BEFORE_CRC.pack(base_offset, length, leader_epoch, 2), _CRC.pack(checksum), covered))


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
    attributes = batch.attributes & ~_CODEC_MASK | compression
    return _with_header(
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


def rewrite_header(batch: Buffer, base_offset: int, leader_epoch: int, log_append_time: int | None = None) -> bytes:
    """Return a copy of a batch of format v2 with the base offset and the leader epoch that the leader assigns.

    ``log_append_time``, in milliseconds, becomes the timestamp of all records and requires a new checksum. Without it,
    the producer's checksum stays. The batch must be complete: nothing is checked here.
    """
    view = memoryview(batch)
    _, length, _, magic, _, attributes, last_offset_delta, base_timestamp, _, *rest = _HEADER.unpack_from(view)
    before = _BEFORE_CRC.pack(base_offset, length, leader_epoch, magic)
    # The checksum covers neither the base offset nor the leader epoch, so it stays valid.
    if log_append_time is None:
        return b"".join((before, view[len(before) :]))
    covered = _AFTER_CRC.pack(attributes | _LOG_APPEND_TIME, last_offset_delta, base_timestamp, log_append_time, *rest)
    records = view[HEADER_SIZE:]
    return b"".join((before, _CRC.pack(crc32c(records, crc32c(covered))), covered, records))
