"""Replaces a batch by others: its halves, or the records that the broker did not refuse. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..protocol.records import RecordBatch
from .batch import BatchFactory, ProducerBatch
from .delivery import BatchResult
from .settle import Parts

_ALL = 2**62


def halves(whole: ProducerBatch, factory: BatchFactory) -> Parts:
    """Divide a batch that was too large into halves (KIP-126). Each half may be split again."""
    half = whole.count // 2
    return _replaced(whole, factory, [range(half), range(half, whole.count)], {})


def without(whole: ProducerBatch, factory: BatchFactory, refused: Mapping[int, BatchResult]) -> Parts:
    """Remove the records that the broker refused (KIP-467). ``refused`` contains their results, by index."""
    return _replaced(whole, factory, [[index for index in range(whole.count) if index not in refused]], refused)


def _replaced(
    whole: ProducerBatch, factory: BatchFactory, groups: list[Sequence[int]], settled: Mapping[int, BatchResult]
) -> Parts:
    # The records are decoded from the batch's bytes, because Python objects are not kept for such a rare case.
    records = RecordBatch(whole.encode()).columns(_ALL)
    places: list[tuple[BatchResult, int]] = [
        (settled[index], 0) if index in settled else (whole, 0) for index in range(whole.count)
    ]
    parts: list[ProducerBatch] = []
    for group in groups:
        part = factory.part_of(whole)
        for index in group:
            part.builder.append(
                records.timestamps[index], records.keys[index], records.values[index], records.headers[index]
            )
            places[index] = (part, part.count - 1)
        parts.append(part)
    return Parts(parts, places)
