"""Compaction: keep the last record of each key, and the tombstones of deleted keys for a while. Pure.

As in Kafka, only closed segments below the high watermark are compacted, here all of them at once. Offsets stay:
batches keep their first and last offsets, records keep theirs, and removed records leave gaps.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..protocol.records import RecordBatch, RecordColumns, encode_batch
from .log import MAX_DECOMPRESSED_SIZE, Log, StoredBatch


def compact(log: Log, now_ms: int, delete_retention_ms: int) -> bool:
    """Compact the closed segments below the high watermark. True if a record was removed."""
    closed = 0
    while closed < len(log.segments) - 1 and log.segments[closed + 1].base_offset <= log.high_watermark:
        closed += 1
    dirty = [batch for segment in log.segments[:closed] for batch in segment.batches]
    latest = _latest_offsets(log.batches())
    kept = [after for before in dirty if (after := _clean(before, latest, now_ms - delete_retention_ms)) is not None]
    if kept == dirty:
        return False
    log.replace_segments(closed, kept)
    return True


def _latest_offsets(batches: Iterable[StoredBatch]) -> dict[bytes, int]:
    """The offset of each key's last record."""
    latest: dict[bytes, int] = {}
    for batch in batches:
        columns = batch.view().columns(MAX_DECOMPRESSED_SIZE)
        for key, offset in zip(columns.keys, columns.offsets, strict=True):
            if key is not None:
                latest[bytes(key)] = offset
    return latest


def _clean(batch: StoredBatch, latest: dict[bytes, int], tombstones_before: int) -> StoredBatch | None:
    """The batch without outdated records: the same batch if it has none, None if all of its records are outdated."""
    view = batch.view()
    if view.is_control:
        return batch
    columns = view.columns(MAX_DECOMPRESSED_SIZE)
    kept = [
        index
        for index, (key, offset) in enumerate(zip(columns.keys, columns.offsets, strict=True))
        if key is not None
        and latest[bytes(key)] == offset
        and not (columns.values[index] is None and columns.timestamps[index] < tombstones_before)
    ]
    if len(kept) == len(columns.offsets):
        return batch
    if not kept:
        return None
    return _rebuilt(batch, view, columns, kept)


def _rebuilt(batch: StoredBatch, view: RecordBatch, columns: RecordColumns, kept: list[int]) -> StoredBatch:
    rows = [(columns.timestamps[i], columns.keys[i], columns.values[i], columns.headers[i]) for i in kept]
    data = encode_batch(
        rows,
        base_offset=batch.base_offset,
        compression=view.compression,
        timestamp_type=view.timestamp_type,
        producer_id=view.producer_id,
        producer_epoch=view.producer_epoch,
        base_sequence=view.base_sequence,
        transactional=view.is_transactional,
        leader_epoch=batch.leader_epoch,
        offset_deltas=[columns.offsets[i] - batch.base_offset for i in kept],
        last_offset_delta=batch.last_offset - batch.base_offset,
    )
    timestamps = [columns.timestamps[i] for i in kept]
    return StoredBatch(batch.base_offset, batch.last_offset, max(timestamps), batch.leader_epoch, data)
