"""What the parts of the demo share: all records of a topic, and the result of the checks."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence

import typer

from ..consumer import Consumer
from ..types import Record, TopicPartition

CHUNK = 5000
STALLED_AFTER = 30.0
MAX_FAULTS = 10


async def read_all(servers: str, topic: str, partitions: int, count: int = 0) -> AsyncIterator[list[Record]]:
    """Read a topic to its end, and until there are ``count`` records, unless none comes for ``STALLED_AFTER`` s."""
    assigned = [TopicPartition(topic, partition) for partition in range(partitions)]
    async with Consumer(servers, auto_offset_reset="earliest") as consumer:
        consumer.assign(assigned)
        missing = max(sum((await consumer.end_offsets(assigned)).values()), count)
        while missing > 0 and (records := await consumer.poll(max_records=CHUNK, timeout=STALLED_AFTER)):
            missing -= len(records)
            yield records


def show_result(faults: Sequence[str], success: str) -> int:
    """Print the first faults, or the success; 0 if there are no faults, else 1."""
    color = None if os.environ.get("NO_COLOR") else "red" if faults else "green"
    typer.secho("\n".join(faults[:MAX_FAULTS] or [success]), fg=color)
    return 1 if faults else 0
