"""Reads records for the page: the last or first ones of a topic, those that contain a text, and the live tail."""

from __future__ import annotations

import asyncio
import math
import time
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any

from ..admin import Admin, OffsetSpec
from ..arguments import must_be
from ..consumer import Consumer
from ..schemas.json_forms import JsonForms
from ..types import Record, TopicPartition
from .values import contains, record_shown

MOST_RECORDS = 500
SCAN_SECONDS = 10.0
"""The longest time that a search may take. The page says how far it came."""

MOST_BYTES = 64 * 1024 * 1024
"""The most bytes of the records in an answer. Larger ones are left out, and the page says so."""

_SPARE = 10  # more of each partition at first than its share, since partitions are not equal
_TOO_LARGE = "the records are too large"

TAIL_RECORDS = 100
"""The most records that the live tail sends at a time. Others are counted and left out: nobody can read more."""

NewConsumer = Callable[[], Consumer[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Query:
    """What to read. ``place`` is ``latest``, ``earliest``, an offset of one partition, or ``@`` and milliseconds."""

    topic: str
    partition: int | None
    place: str
    limit: int
    search: str

    def __post_init__(self) -> None:
        if not 1 <= self.limit <= MOST_RECORDS:
            raise ValueError(must_be("limit", f"a number from 1 to {MOST_RECORDS}", self.limit))
        digits = self.place.removeprefix("@")
        if self.place not in ("latest", "earliest") and not (digits.isdigit() and len(digits) < 19):
            raise ValueError(must_be("from", "latest, earliest, an offset, or @ and milliseconds", self.place))


async def read(admin: Admin, new_consumer: NewConsumer, query: Query, forms: JsonForms | None = None) -> dict[str, Any]:
    """Read records, the newest first. Raises KafkaError, ValueError for a partition that does not exist."""
    starts, ends = await _bounds(admin, query)
    async with new_consumer() as consumer:
        reading = _Reading(consumer, query)
        if query.place == "latest":
            await reading.back(starts, ends)
        else:
            await reading.on(await _begins(admin, query, starts, ends), ends)
    return {
        "records": [await record_shown(record, forms) for record in reading.chosen],
        "scanned": reading.scanned,
        "stopped": reading.stopped,
        "since": reading.since,
    }


class _Reading:
    """Reads records for one query, and keeps those that it needs."""

    def __init__(self, consumer: Consumer[bytes, bytes], query: Query) -> None:
        self.chosen: list[Record[bytes, bytes]] = []
        self.scanned = 0
        self.stopped: str | None = None
        """Why it ended before the end."""
        self.since: int | None = None
        """The time from which on all records were looked at; None if all were, or if the query has a beginning."""
        self._consumer = consumer
        self._query = query
        self._text = query.search.encode()
        self._deadline = time.monotonic() + SCAN_SECONDS

    def __repr__(self) -> str:
        return f"<_Reading {self._query} scanned={self.scanned}>"

    async def on(self, begins: dict[TopicPartition, int], ends: dict[TopicPartition, int]) -> None:
        """Read the first records from ``begins`` on."""
        await self._read({item: begin for item, begin in begins.items() if begin < ends[item]}, ends, self._add)

    def _add(self, records: list[Record[bytes, bytes]]) -> bool:
        self._choose([*self.chosen, *self._matching(records)][: self._query.limit])
        return self.stopped is None and len(self.chosen) < self._query.limit

    def _choose(self, records: list[Record[bytes, bytes]]) -> None:
        sizes = list(accumulate(map(_size, records)))
        self.chosen = records[: max(1, bisect_right(sizes, MOST_BYTES))]
        if len(self.chosen) < len(records):
            self.stopped = _TOO_LARGE

    async def back(self, starts: dict[TopicPartition, int], ends: dict[TopicPartition, int]) -> None:
        """Read the newest records: some of each partition, and then earlier ones of those that may have newer ones than
        the oldest that was chosen.
        """
        limit = self._query.limit
        lows, oldest = dict(ends), dict.fromkeys(ends, math.inf)
        window = -(-limit // max(1, len(ends))) + _SPARE
        while self.stopped is None:
            last = self.chosen[-1].timestamp if len(self.chosen) == limit else -math.inf
            begins = {
                item: max(starts[item], low - window)
                for item, low in lows.items()
                if low > starts[item] and oldest[item] > last
            }
            if not begins:
                break
            times: dict[TopicPartition, int] = {}
            if not await self._read(begins, lows, partial(self._keep, times)):
                break
            lows |= begins
            oldest |= times
            window *= 2
        unread = [oldest[item] for item, low in lows.items() if low > starts[item]]
        self.since = int(max(unread)) if unread and max(unread) < math.inf else None

    def _keep(self, times: dict[TopicPartition, int], records: list[Record[bytes, bytes]]) -> bool:
        for record in records:
            item = TopicPartition(record.topic, record.partition)
            times[item] = min(record.timestamp, times.get(item, record.timestamp))
        records = [*self.chosen, *self._matching(records)]
        records.sort(key=lambda record: (record.timestamp, record.offset), reverse=True)
        self._choose(records[: self._query.limit])
        return True  # even if they are too large: what follows in this window is newer

    def _matching(self, records: list[Record[bytes, bytes]]) -> list[Record[bytes, bytes]]:
        return [record for record in records if not self._text or contains(record, self._text)]

    async def _read(
        self,
        begins: dict[TopicPartition, int],
        ends: dict[TopicPartition, int],
        use: Callable[[list[Record[bytes, bytes]]], bool],
    ) -> bool:
        """Read from ``begins`` to ``ends`` while ``use`` returns True. Returns whether it came to the end."""
        if not begins:
            return True
        self._consumer.assign(begins)
        for item, begin in begins.items():
            self._consumer.seek(item, begin)
        while not await _is_done(self._consumer, begins, ends):
            if time.monotonic() > self._deadline:
                self.stopped = "the time was up"
                return False
            polled = await self._consumer.poll(1000, timeout=0.5)
            records = [item for item in polled if item.offset < ends[TopicPartition(item.topic, item.partition)]]
            self.scanned += len(records)
            if not use(records):
                return False
        return True


def _size(record: Record[bytes, bytes]) -> int:
    return (
        len(record.key or b"") + len(record.value or b"") + sum(len(header.value or b"") for header in record.headers)
    )


async def _is_done(
    consumer: Consumer[bytes, bytes], targets: dict[TopicPartition, int], ends: dict[TopicPartition, int]
) -> bool:
    for item in targets:
        if await consumer.position(item) < ends[item]:
            return False
    return True


async def _bounds(admin: Admin, query: Query) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    answered = await admin.topics.describe([query.topic])
    numbers = [partition.partition for partition in answered[query.topic].partitions]
    if query.partition is not None:
        if query.partition not in numbers:
            raise ValueError(f"topic {query.topic!r} has no partition {query.partition}; it has {len(numbers)}")
        numbers = [query.partition]
    items = [TopicPartition(query.topic, number) for number in numbers]
    if not items:
        raise ValueError(f"topic {query.topic!r} has no partitions")
    places = [await admin.offsets.list(dict.fromkeys(items, spec)) for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST)]
    starts, ends = (
        {item: place.offset for item, place in answer.done.items() if place is not None} for answer in places
    )
    return starts, {item: end for item, end in ends.items() if item in starts}


async def _begins(
    admin: Admin, query: Query, starts: dict[TopicPartition, int], ends: dict[TopicPartition, int]
) -> dict[TopicPartition, int]:
    if query.place == "earliest":
        return {item: starts[item] for item in ends}
    if query.place.startswith("@"):
        answered = await admin.offsets.list(dict.fromkeys(ends, int(query.place[1:])))
        return {item: place.offset for item, place in answered.done.items() if place is not None}
    return {item: max(starts[item], int(query.place)) for item in ends}


async def tail(
    new_consumer: NewConsumer, admin: Admin, topic: str, closing: asyncio.Event, forms: JsonForms | None = None
) -> AsyncIterator[dict[str, Any]]:
    """Yield the records that arrive from now on, some at a time, until the page goes away or ``closing`` is set."""
    description = (await admin.topics.describe([topic]))[topic]
    consumer = new_consumer()
    async with consumer:
        items = [TopicPartition(topic, partition.partition) for partition in description.partitions]
        consumer.assign(items)
        await consumer.seek_to_end(items)
        yield {"records": [], "skipped": 0}
        while not closing.is_set():
            # Short, because the server waits a second for it to end.
            records = await consumer.poll(10_000, timeout=0.3)
            kept = records[-TAIL_RECORDS:]
            rows = [await record_shown(record, forms) for record in kept]
            yield {"records": rows, "skipped": len(records) - len(kept)}
            await asyncio.sleep(0.2)
