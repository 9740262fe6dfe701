"""Reads record batches in wire format. ``build`` makes them.

A batch of format v2 is a header of 61 bytes and the records, compressed together or not at all. The checksum covers
only the fields after it. The base offset and the leader epoch come before it, so a broker sets them without computing
the checksum again. (https://kafka.apache.org/documentation/#recordbatch; KIP-98, and KIP-534 for the delete horizon.)

This module has no topics and no clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final

from ...errors import CorruptRecord
from ...types import Compression, TimestampType
from . import legacy
from .batch_header import (
    CODEC_MASK,
    CONTROL,
    CRC_COVERS_FROM,
    HEADER,
    HEADER_SIZE,
    INT64_MAX,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC_AT,
    TRANSACTIONAL,
)
from .checksum import crc32c
from .compression import DEFAULT_MAX_DECOMPRESSED, decompress
from .record_format import SMALLEST_RECORD, Buffer, RecordColumns, decode_records, end_of_records

_LOG_HEADER = Struct(">qi")
_COMPRESSIONS: Final = tuple(Compression)  # by number, because a call of an enumeration takes longer
_RECORDS_A_CHUNK = 1 << 14  # decoded in 20 ms


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
        if self.size > MAGIC_AT and data[MAGIC_AT] < 2:  # the same place in all formats
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
        ) = HEADER.unpack_from(data)
        if self.magic != 2:
            raise CorruptRecord(f"a batch has the unknown format {self.magic}")
        if length != self.size - LOG_OVERHEAD:
            raise CorruptRecord(f"a batch of {self.size} bytes claims a length of {length}")
        if self.base_offset < 0 or self.last_offset_delta < 0 or self.next_offset > INT64_MAX:
            raise CorruptRecord(f"a batch claims offsets {self.base_offset} to {self.last_offset}")

    def _read_legacy_header(self) -> None:
        message = legacy.read_header(self.data)
        self.base_offset = message.offset
        self.magic, self.crc, self.attributes = message.magic, message.crc, message.attributes
        self.base_timestamp = self.max_timestamp = message.timestamp
        self.leader_epoch = self.producer_id = self.producer_epoch = self.base_sequence = -1
        self.last_offset_delta = 0
        self.count = 1 if message.attributes & CODEC_MASK == 0 else -1

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
        codec = self.attributes & CODEC_MASK
        if codec >= len(_COMPRESSIONS):
            raise self._corrupt(f"it has the unknown codec {codec}")
        return _COMPRESSIONS[codec]

    @property
    def timestamp_type(self) -> TimestampType:
        """Whether the timestamps are the producer's or the broker's. NONE in format v0, which has no timestamps."""
        if self.magic == 0:
            return TimestampType.NONE
        return TimestampType.LOG_APPEND_TIME if self.attributes & LOG_APPEND_TIME else TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction, or is the marker that ends one."""
        return self.magic == 2 and bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Whether the batch is a marker of the broker, which is not returned to users."""
        return self.magic == 2 and bool(self.attributes & CONTROL)

    @property
    def append_time(self) -> int | None:
        """The timestamp of all records, in milliseconds, if the broker has set it; None if each has its own."""
        return self.max_timestamp if self.magic == 2 and self.attributes & LOG_APPEND_TIME else None

    def verify_crc(self) -> None:
        """Raise CorruptRecord if the checksum is wrong."""
        if self.magic < 2:
            actual = legacy.checksum(self.data)
        else:
            actual = crc32c(self.data[CRC_COVERS_FROM:])
        if actual != self.crc:
            raise self._corrupt(f"its checksum is {actual:#010x}, but must be {self.crc:#010x}")

    def body(self, max_decompressed_size: int = DEFAULT_MAX_DECOMPRESSED) -> Buffer:
        """Decompress the records of format v2. Raises CorruptRecord if they are malformed or exceed the limit."""
        packed = self.data[HEADER_SIZE:]
        if self.compression is Compression.NONE:
            return packed
        return decompress(self.compression, packed, max_decompressed_size)

    def columns(self, max_decompressed_size: int = DEFAULT_MAX_DECOMPRESSED) -> RecordColumns:
        """Decode all records of the batch. The checksum is not verified.

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
        """Decode the records in chunks of at most ``max_records``, each decoded when the iterator reaches it.

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
            assert 0 < len(columns.offsets) <= records_left, "each chunk has a record, so the loop ends"
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
        assert columns.offsets[0] <= columns.offsets[-1], "offsets of a batch ascend"
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
            f"codec={self.attributes & CODEC_MASK} size={self.size}{flags}>"
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
        while end - position > MAGIC_AT:
            size = LOG_OVERHEAD + _batch_length(view, position)
            if size > end - position:
                break
            assert size > LOG_OVERHEAD, "a batch has bytes after its length, so the loop ends"
            batches.append(RecordBatch(view[position : position + size]))
            position += size
    except CorruptRecord:
        if not batches:
            raise
    return batches


def _batch_length(view: memoryview, position: int) -> int:
    length: int = _LOG_HEADER.unpack_from(view, position)[1]
    magic = view[position + MAGIC_AT]
    if magic > 2:
        raise CorruptRecord(f"a batch has the unknown format {magic}")
    smallest = HEADER_SIZE - LOG_OVERHEAD if magic == 2 else legacy.SMALLEST_LENGTH[magic]
    if length < smallest:
        raise CorruptRecord(f"a batch of format {magic} claims a length of {length}; the smallest is {smallest}")
    return length
