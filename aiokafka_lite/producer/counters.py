"""Counters of a producer, which cost next to nothing: counting is per batch and per request, never per record."""

from __future__ import annotations


class ProducerCounters:
    """Counters over all brokers. ``ProducerMetrics`` has a field of the same name for each of them.

    Requests are counted by the senders, results by ``Settlement``, pending records that fail included.
    """

    def __init__(self) -> None:
        self.requests_sent: int = 0
        self.batches_sent: int = 0
        self.records_sent: int = 0
        self.bytes_sent: int = 0
        self.records_delivered = 0
        self.records_failed = 0
        self.retries = 0

    def request_sent(self, batches: int, records: int, size: int) -> None:
        """Count a request. ``size`` is the bytes of its batches."""
        self.requests_sent += 1
        self.batches_sent += batches
        self.records_sent += records
        self.bytes_sent += size
