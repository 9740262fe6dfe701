"""Counters of one embedded broker. A restart of the node keeps them; ``broker_metrics`` makes a snapshot of them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass


@dataclass(slots=True)
class TopicCounters:
    """The requests of clients for one topic. A request counts once for each of its partitions."""

    messages_in: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    produce_requests: int = 0
    failed_produce_requests: int = 0
    fetch_requests: int = 0
    failed_fetch_requests: int = 0

    def produced(self, messages: int, size: int, *, failed: bool) -> None:
        """Count a batch from a client, with its size in bytes. ``failed`` means that it was not appended."""
        self.produce_requests += 1
        if failed:
            self.failed_produce_requests += 1
        else:
            self.messages_in += messages
            self.bytes_in += size

    def fetched(self, size: int, *, failed: bool) -> None:
        """Count the bytes of a partition that a client gets, or an error."""
        self.fetch_requests += 1
        self.bytes_out += size
        self.failed_fetch_requests += failed


@dataclass(slots=True)
class ApiCounters:
    """The requests of one API, and the seconds from the arrival of each request until its handler returned."""

    count: int = 0
    total_time: float = 0.0
    longest_time: float = 0.0

    def handled(self, seconds: float) -> None:
        """Count a request."""
        self.count += 1
        self.total_time += seconds
        self.longest_time = max(self.longest_time, seconds)


class BrokerCounters:
    """The counters of one broker. Owner: its ``ReplicaManager``."""

    def __init__(self) -> None:
        self.topics: defaultdict[str, TopicCounters] = defaultdict(TopicCounters)
        self.apis: defaultdict[int, ApiCounters] = defaultdict(ApiCounters)
        """The requests of clients, by API key."""
        self.isr_expands = 0
        self.isr_shrinks = 0
