"""Compaction: keep the last record of each key, and the tombstones of deleted keys for a while. Pure.

As in Kafka, only closed segments below the last stable offset are compacted. Here all of them are compacted at once,
when ``is_due`` is true. Offsets stay: batches keep their first and last offsets, records keep theirs, and removed
records leave gaps. Records of aborted transactions are removed. A record of an aborted or open transaction never counts
as the last record of its key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ...protocol.records import RecordBatch, replace_records
from ...protocol.records.scan import scan
from ..settings.configs import TopicConfig
from .log import MAX_DECOMPRESSED_SIZE, Log, StoredBatch


def is_due(log: Log, stable_offset: int, now_ms: int, config: TopicConfig) -> bool:
    """Return whether to compact: enough of the log is new since its last compaction, or a new record is too old to
    wait.
    """
    segments = log.segments[: _cleanable(log, stable_offset, now_ms, config.min_compaction_lag_ms)]
    dirty = [segment for segment in segments if segment.batches[-1].last_offset >= log.compacted_up_to]
    size = sum(segment.size for segment in dirty)
    if not size:
        return False
    if now_ms - dirty[0].batches[0].max_timestamp > config.max_compaction_lag_ms:
        return True
    return size > config.min_cleanable_dirty_ratio * sum(segment.size for segment in segments)


def _cleanable(log: Log, stable_offset: int, now_ms: int, min_lag_ms: int) -> int:
    """Return the number of segments to compact: closed, below the stable offset, no record younger than
    ``min_lag_ms``."""
    count = 0
    while (
        count < len(log.segments) - 1
        and log.segments[count + 1].base_offset <= stable_offset
        and (not min_lag_ms or log.segments[count].max_timestamp <= now_ms - min_lag_ms)
    ):
        count += 1
    return count


def compact(
    log: Log,
    stable_offset: int,
    now_ms: int,
    delete_retention_ms: int,
    min_lag_ms: int = 0,
    is_aborted: Callable[[RecordBatch], bool] = lambda batch: False,
) -> bool:
    """Compact the segments that may be compacted. True if a record was removed. Times are in milliseconds."""
    closed = _cleanable(log, stable_offset, now_ms, min_lag_ms)
    log.compacted_up_to = log.segments[closed].base_offset
    dirty = [batch for segment in log.segments[:closed] for batch in segment.batches]
    # A later record outdates an earlier one even if it is in a segment that is not compacted yet.
    valid = [batch for batch in log.batches() if batch.last_offset < stable_offset and not is_aborted(batch.view())]
    latest, horizon = _latest_offsets(valid), now_ms - delete_retention_ms
    compacted = [
        after
        for before in dirty
        if not is_aborted(before.view()) and (after := _clean(before, latest, horizon)) is not None
    ]
    if compacted == dirty:
        return False
    log.replace_segments(closed, compacted)
    return True


def _latest_offsets(batches: Iterable[StoredBatch]) -> dict[bytes, int]:
    return {
        record.key: record.offset
        for batch in batches
        if not batch.view().is_control
        for record in batch.scan()
        if record.key is not None
    }


def _clean(batch: StoredBatch, latest: dict[bytes, int], tombstones_before: int) -> StoredBatch | None:
    """Remove the outdated records of a batch. Return the same batch if there are none, None if all are outdated."""
    view = batch.view()
    # Kafka removes the marker of a transaction without records after delete.retention.ms. Here it stays.
    if view.is_control:
        return batch
    body = view.body(MAX_DECOMPRESSED_SIZE)
    # As in Kafka, a record without a key goes: it was written before the topic was compacted. Kafka counts the time of
    # a tombstone from its first compaction (KIP-534), this broker from its timestamp.
    records = [
        record
        for record in scan(view, body)
        if record.key is not None
        and latest[record.key] == record.offset
        and (record.has_value or record.timestamp >= tombstones_before)
    ]
    if len(records) == view.count:
        return batch
    if not records:
        return None
    max_timestamp = max(record.timestamp for record in records)
    data = replace_records(
        view,
        b"".join([body[record.start : record.end] for record in records]),
        count=len(records),
        max_timestamp=max_timestamp,
        compression=view.compression,
    )
    return StoredBatch(batch.base_offset, batch.last_offset, max_timestamp, batch.leader_epoch, data)
