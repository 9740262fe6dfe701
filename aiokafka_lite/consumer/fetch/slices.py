"""Slices of many partitions, between which other tasks run."""

from __future__ import annotations

from itertools import islice

from ..partition import AssignedPartition

SLICE = 2_000
"""Partitions that are served in one turn of the event loop, in some milliseconds."""


def take_some(waiting: dict[AssignedPartition, None], limit: int) -> list[AssignedPartition]:
    """Remove the first partitions, at most ``limit``, and return them."""
    partitions = list(islice(waiting, limit))
    if len(partitions) == len(waiting):
        waiting.clear()  # deletions would leave the table at its size: 50 bytes for each partition
    else:
        for assigned in partitions:
            del waiting[assigned]
    return partitions
