"""Reads all records of a topic, and shows the result of the checks: for all parts of the demo."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence

import typer

from aiokafka_lite import Consumer, Record, TopicPartition

CHUNK = 5000
STALLED_AFTER = 30.0
MAX_FAULTS = 10


async def read_all(servers: str, topic: str, partitions: int, count: int = 0) -> AsyncIterator[list[Record]]:
    """Read a topic to its end, and until there are ``count`` records, unless none comes for ``STALLED_AFTER`` s."""
    topic_partitions = [TopicPartition(topic, partition) for partition in range(partitions)]
    async with Consumer(servers, auto_offset_reset="earliest") as consumer:
        consumer.assign(topic_partitions)
        records_left = max(sum((await consumer.end_offsets(topic_partitions)).values()), count)
        while records_left > 0 and (records := await consumer.poll(max_records=CHUNK, timeout=STALLED_AFTER)):
            records_left -= len(records)
            yield records


def show_result(faults: Sequence[str], success: str) -> int:
    """Print the first faults, or the success. Return the exit status: 0 if there are no faults, else 1."""
    color = None if os.environ.get("NO_COLOR") else "red" if faults else "green"
    typer.secho("\n".join(faults[:MAX_FAULTS] or [success]), fg=color)
    return 1 if faults else 0
