"""Counters of a share consumer. Counting is per answer and per batch, never per record."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import TypeVar

from ..errors import KafkaError
from ..net.traffic import RequestCounters
from .acquired import DecodedBatch

T = TypeVar("T")


@dataclass(slots=True)
class ShareCounters:
    """The counters of one share consumer since its creation. ``ShareConsumerMetrics`` has a field of the same name."""

    fetch_requests: int = 0
    acknowledge_requests: int = 0
    fetches: RequestCounters = field(default_factory=RequestCounters)
    acknowledges: RequestCounters = field(default_factory=RequestCounters)
    records_acquired: int = 0
    records_redelivered: int = 0
    bytes_fetched: int = 0
    accepted: int = 0
    released: int = 0
    rejected: int = 0
    renewed: int = 0
    refused: int = 0
    sessions_opened: int = 0
    sessions_lost: int = 0

    def add_decoded(self, batch: DecodedBatch) -> None:
        """Count a decoded batch."""
        self.records_acquired += len(batch.records)
        self.records_redelivered += batch.redelivered


async def counted(requests: RequestCounters, answer: Awaitable[T]) -> T:
    """Await the answer to a request, and count its latency, or its failure if there is no answer."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    try:
        response = await answer
    except KafkaError:
        requests.failures += 1
        raise
    requests.succeeded(began, loop.time())
    return response
