"""Compaction: keep the last record of each key, and the tombstones of deleted keys for a while. Pure.

As in Kafka, only closed segments below the high watermark are compacted, here all of them at once. Offsets stay:
batches keep their first and last offsets, records keep theirs, and removed records leave gaps.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..protocol.records import replace_records, scan
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
    return {record.key: record.offset for batch in batches for record in batch.scan() if record.key is not None}


def _clean(batch: StoredBatch, latest: dict[bytes, int], tombstones_before: int) -> StoredBatch | None:
    """The batch without outdated records: the same batch if it has none, None if all of its records are outdated."""
    view = batch.view()
    if view.is_control:
        return batch
    body = view.body(MAX_DECOMPRESSED_SIZE)
    kept = [
        record
        for record in scan(view, body)
        if record.key is not None
        and latest[record.key] == record.offset
        and (record.has_value or record.timestamp >= tombstones_before)
    ]
    if len(kept) == view.count:
        return batch
    if not kept:
        return None
    max_timestamp = max(record.timestamp for record in kept)
    data = replace_records(
        view,
        b"".join([body[record.start : record.end] for record in kept]),
        count=len(kept),
        max_timestamp=max_timestamp,
        compression=view.compression,
    )
    return batch._replace(max_timestamp=max_timestamp, data=data)
