"""Read a topic until a number of records has arrived."""

from __future__ import annotations

import asyncio
from typing import Any

from aiokafka_lite import Consumer, Record
from tests.end_to_end.conftest import Kafka
from tests.waiting import DEADLINE


async def read(kafka: Kafka, topic: str, count: int, **settings: Any) -> list[Record]:
    """Return the first ``count`` records of the topic, in the order in which the consumer returned them."""
    async with Consumer(kafka.bootstrap_servers, topics=[topic], **settings) as consumer:
        return await take(consumer, count)


async def take(consumer: Consumer, count: int) -> list[Record]:
    """Return the next ``count`` records, exactly; TimeoutError if there are fewer."""
    records: list[Record] = []
    async with asyncio.timeout(DEADLINE):
        while len(records) < count:
            records += await consumer.poll(max_records=count - len(records), timeout=1.0)
    return records
