"""Counters of a share consumer. Counting is per answer and per batch, never per record."""

from __future__ import annotations

from dataclasses import dataclass

from .acquired import DecodedBatch


@dataclass(slots=True)
class Counters:
    """The counters of one share consumer since its creation. ``ShareConsumerMetrics`` has a field for each of them."""

    fetch_requests: int = 0
    acknowledge_requests: int = 0
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
        """A batch was decoded."""
        self.records_acquired += len(batch.records)
        self.records_redelivered += batch.redelivered
