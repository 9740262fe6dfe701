"""The checks of a batch that a leader receives from a client."""

from __future__ import annotations

from ...errors import CorruptRecord
from .batch import RecordBatch, split_batches
from .record_format import Buffer, RecordColumns


def single_batch(data: Buffer) -> RecordBatch:
    """Return the single batch of a produce request's records. Raises CorruptRecord for anything else."""
    batches = split_batches(data)
    if len(batches) != 1 or batches[0].size != len(data):
        whole = sum(batch.size for batch in batches)
        raise CorruptRecord(f"records must be one batch, got {len(batches)} of {whole} bytes in {len(data)} bytes")
    return batches[0]


def why_not_produced(batch: RecordBatch, columns: RecordColumns | None = None) -> str | None:
    """Return the reason why a leader must refuse a batch from a client (INVALID_RECORD), or None if the batch is valid.

    A valid batch has format v2, no marker, at least one record, and offsets without gaps; with a producer id it has a
    sequence. With ``columns``, the records are checked too. This does not check sizes, checksum and codec.
    """
    if batch.magic != 2:
        return f"format v{batch.magic} can no longer be written"
    if batch.is_control:
        return "a client may not write control batches"
    if batch.count < 1 or batch.count != batch.last_offset_delta + 1:
        return f"{batch.count} records do not fill offsets 0 to {batch.last_offset_delta}"
    if batch.producer_id >= 0 and batch.base_sequence < 0:
        return f"producer {batch.producer_id} has sequence {batch.base_sequence}"
    if batch.is_transactional and batch.producer_id < 0:
        return "a transactional batch needs a producer id"
    if columns is not None and columns.offsets != list(range(batch.base_offset, batch.next_offset)):
        return "the records' offsets have gaps"
    return None
