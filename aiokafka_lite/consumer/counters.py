"""Counters of fetching: counting is per request, never per record."""

from __future__ import annotations

from ..net.traffic import Latencies


class FetchCounters:
    """Counters over all brokers of one consumer. Its fetchers update them."""

    __slots__ = ("failures", "latencies")

    def __init__(self) -> None:
        self.latencies: Latencies = Latencies()
        self.failures: int = 0
