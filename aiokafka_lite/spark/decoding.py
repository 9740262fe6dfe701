"""Decodes fetched batches into Arrow record batches, for one task: checksums, transactions, then the columns.

The columns are decoded by ``protocol.records.columns``, many batches in one pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from ..consumer.chunk import is_hidden
from ..errors import CorruptRecord, ProtocolError
from ..protocol.records.columns import ArrowDecoder, PackedBatch

if TYPE_CHECKING:
    import pyarrow

    from .reading import Fetched

MAX_ROWS = 10_000
MAX_BYTES = 8 * 1024 * 1024
"""A record batch for Spark is full at about this number of rows or bytes."""


class Decoder:
    """Decodes the fetched batches of one task into Arrow record batches with these columns, in this order."""

    def __init__(self, columns: Sequence[str], *, check_crcs: bool, max_decompressed_size: int) -> None:
        self._check_crcs = check_crcs
        self._max_decompressed_size = max_decompressed_size
        self._columns = ArrowDecoder(
            columns,
            max_rows=MAX_ROWS,
            max_bytes=MAX_BYTES,
            max_decompressed_size=max_decompressed_size,
            corrupt=_corrupt,
        )

    def __repr__(self) -> str:
        return f"<Decoder {self._columns!r}>"

    @property
    def schema(self) -> pyarrow.Schema:
        """The schema of the record batches."""
        return self._columns.schema

    def decode(self, fetched: Iterable[Fetched]) -> Iterator[pyarrow.RecordBatch]:
        """Yield the record batches that are full. The other records stay until a later call, or until ``rest``.

        Raises CorruptRecord, which names the partition and the offset, for bytes that are not records.
        """
        for piece in fetched:
            for batch, aborted in piece.batches:
                packed = PackedBatch(piece.range.partition, batch, piece.range.start, piece.range.end)
                if batch.next_offset <= packed.low:
                    continue
                try:
                    if self._check_crcs:
                        batch.verify_crc()
                    # This comes before the check of offsets, because an abort marker counts at any offset.
                    hidden = is_hidden(batch, aborted, self._max_decompressed_size)
                except ProtocolError as error:
                    raise _corrupt(packed, str(error)) from error
                if not hidden:
                    yield from self._columns.add(packed)

    def rest(self) -> Iterator[pyarrow.RecordBatch]:
        """Return the remaining records: one record batch, or none."""
        return self._columns.rest()


def _corrupt(packed: PackedBatch, reason: str) -> CorruptRecord:
    """Return the error for a batch that cannot be decoded. It advises what to do in a query, which cannot seek."""
    batch, position = packed.batch, max(packed.low, packed.batch.base_offset)
    reason = reason.replace("raise max_decompressed_size", "raise the option maxDecompressedSize")
    return CorruptRecord(
        f"{packed.partition} cannot be read at offset {position}: {reason}; the batch has offsets {batch.base_offset} "
        f"to {batch.last_offset}; to skip it, begin a new query at offset {batch.next_offset} of this partition "
        "(startingOffsets)",
        topic=packed.partition.topic,
        partition=packed.partition.partition,
        offset=position,
        next_offset=batch.next_offset,
    )
