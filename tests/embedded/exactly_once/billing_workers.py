"""Workers that carry records from ``orders`` to ``bills`` exactly once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from aiokafka_lite import Consumer, ExactlyOnce, KafkaError, Producer
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.group import CooperativeStickyStrategy, RangeStrategy

STRATEGIES: dict[str, dict[str, Any]] = {
    "eager": {"strategies": [RangeStrategy()], "session_timeout": 10.0},
    "cooperative": {"strategies": [CooperativeStickyStrategy()], "session_timeout": 10.0},
    "consumer": {"group_protocol": "consumer"},
}
"""The settings of a member: the classic protocol with a strategy of each kind, and the consumer protocol (KIP-848)."""


async def write(cluster: EmbeddedCluster, count: int, *, first: int = 0) -> list[str]:
    """Write that many distinct orders, and return their values."""
    values = [str(first + number) for number in range(count)]
    async with Producer(cluster.bootstrap_servers, connector=cluster.connector) as producer:
        for delivery in await producer.send_many("orders", values, keys=values):
            assert not isinstance(delivery, Exception), delivery
    return values


@asynccontextmanager
async def worker(
    cluster: EmbeddedCluster,
    name: str,
    strategy: str = "eager",
    *,
    reading: dict[str, Any] | None = None,
    writing: dict[str, Any] | None = None,
    **own: Any,
) -> AsyncIterator[tuple[ExactlyOnce, Producer]]:
    """Open a session with its clients."""
    settings: dict[str, Any] = {"connector": cluster.connector}
    async with (
        Consumer(
            cluster.bootstrap_servers,
            topics=["orders"],
            group_id="billing",
            auto_commit=False,
            **{**STRATEGIES[strategy], **settings, **(reading or {})},
        ) as consumer,
        Producer(
            cluster.bootstrap_servers,
            transactional_id=name,
            **{"transaction_timeout": 20.0, **settings, **(writing or {})},
        ) as producer,
    ):
        yield ExactlyOnce(consumer, producer, **{"max_records": 10, **own}), producer


async def bill(session: ExactlyOnce, producer: Producer, work: float = 0.05) -> None:
    """Send each record on, until the session is stopped."""
    async for records in session:
        for record in records:
            producer.send_nowait("bills", record.value, key=record.key)
        await asyncio.sleep(work)


async def bills(cluster: EmbeddedCluster, count: int, *, within: float = 600.0) -> Counter[str]:
    """Return the committed values of ``bills``, once there are that many distinct ones."""
    values: Counter[str] = Counter()
    settings: dict[str, Any] = {"connector": cluster.connector, "topics": ["bills"]}
    async with Consumer(cluster.bootstrap_servers, **settings) as consumer, asyncio.timeout(within):
        while len(values) < count:
            with suppress(KafkaError):
                values.update((record.value or b"").decode() for record in await consumer.poll(timeout=1.0))
        values.update((record.value or b"").decode() for record in await consumer.poll(timeout=30.0))
    return values
