"""Combine the state batches of a share partition: those that are stored, and those that a leader writes.

Where batches overlap, the higher delivery count counts, then the higher delivery state: a record is delivered once more
before it gets another state, and a leader may repeat an older write.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush
from itertools import pairwise

from .partition import StateBatch
from .records import DELIVERY_STATE_OF


def combine(batches: Iterable[StateBatch], start_offset: int) -> list[StateBatch]:
    """Return batches in the order of offsets that do not overlap. Offsets before ``start_offset`` are dropped."""
    waiting = [(max(batch.first, start_offset), batch) for batch in batches if batch.last >= start_offset]
    waiting.sort(key=lambda entry: entry[0])
    edges = sorted({edge for first, batch in waiting for edge in (first, batch.last + 1)})
    combined: list[StateBatch] = []
    # Batches that have begun, the most important one at the top. One that has ended stays until it gets there.
    open_batches: list[tuple[int, int, int, StateBatch]] = []
    position = 0
    for edge, following in pairwise(edges):
        while position < len(waiting) and waiting[position][0] <= edge:
            batch = waiting[position][1]
            heappush(open_batches, (-batch.delivery_count, -DELIVERY_STATE_OF[batch.state], position, batch))
            position += 1
        while open_batches and open_batches[0][-1].last < edge:
            heappop(open_batches)
        if not open_batches:
            continue
        top = open_batches[0][-1]
        piece = StateBatch(edge, following - 1, top.state, top.delivery_count)
        last = combined[-1] if combined else None
        if last is not None and last.last + 1 == piece.first and last[2:] == piece[2:]:
            combined[-1] = last._replace(last=piece.last)
        else:
            combined.append(piece)
    assert all(one.last < other.first for one, other in pairwise(combined)), "batches never overlap"
    return combined
