"""Batches for tests of the embedded broker."""

from __future__ import annotations

from aiokafka_lite.embedded.log.log import StoredBatch
from aiokafka_lite.protocol.records import encode_batch
from aiokafka_lite.types import Compression


def produced(
    *values: bytes,
    timestamp: int = 1000,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    compression: Compression = Compression.NONE,
    key: bytes | None = b"k",
    transactional: bool = False,
) -> bytes:
    """Return a batch as a producer sends it, of one record for each value."""
    rows = [(timestamp + index, key, value, ()) for index, value in enumerate(values or (b"v",))]
    return encode_batch(
        rows,
        compression=compression,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )


def stored(base_offset: int, count: int = 1, *, epoch: int = 0, timestamp: int = 1000, size: int = 1) -> StoredBatch:
    """Return a batch as a log stores it; record ``i`` has timestamp ``timestamp + i``."""
    rows = [(timestamp + index, b"k", b"v" * size, ()) for index in range(count)]
    data = encode_batch(rows, base_offset=base_offset, leader_epoch=epoch)
    return StoredBatch(base_offset, base_offset + count - 1, timestamp + count - 1, epoch, data)
