"""What ``on_event`` of a client must be told: each fact once, its beginning before its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from aiokafka_lite.events import (
    ClientEvent,
    CommitRefused,
    ConnectionClosed,
    ConnectionOpened,
    OutageBegan,
    OutageEnded,
    PartitionsAssigned,
    PartitionsLost,
    PartitionsRevoked,
    RebalanceBegan,
    RebalanceEnded,
)
from aiokafka_lite.types import TopicPartition


class EventJournal:
    """Takes the events of one client, and reports each one that contradicts the earlier ones."""

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._connections: Counter[tuple[int, str, str]] = Counter()
        self._outages: set[str] = set()
        self._assigned: set[TopicPartition] = set()
        self._is_rebalancing = False

    def __call__(self, event: ClientEvent) -> None:
        if not self._is_consistent(event):
            self._report(f"event out of order: {event!r}")

    def _is_consistent(self, event: ClientEvent) -> bool:
        match event:
            case ConnectionOpened(node_id, address, purpose):
                self._connections[node_id, address, purpose] += 1
                return True
            case ConnectionClosed(node_id, address, purpose):
                self._connections[node_id, address, purpose] -= 1
                return self._connections[node_id, address, purpose] >= 0
            case OutageBegan(place):
                is_new = place not in self._outages
                self._outages.add(place)
                return is_new
            case OutageEnded(place, failures, seconds):
                was_ongoing = place in self._outages
                self._outages.discard(place)
                return was_ongoing and failures > 0 and seconds >= 0
            case RebalanceBegan():
                was_rebalancing, self._is_rebalancing = self._is_rebalancing, True
                return not was_rebalancing
            case RebalanceEnded():
                was_rebalancing, self._is_rebalancing = self._is_rebalancing, False
                return was_rebalancing
            case PartitionsAssigned(_, partitions):
                are_new = bool(partitions) and self._assigned.isdisjoint(partitions)
                self._assigned.update(partitions)
                return are_new
            case PartitionsRevoked(_, partitions) | PartitionsLost(_, partitions):
                were_assigned = bool(partitions) and self._assigned.issuperset(partitions)
                self._assigned.difference_update(partitions)
                return were_assigned
            case CommitRefused(_, refused):
                return bool(refused)

    def end(self) -> None:
        """Report what has not ended, although the client is closed."""
        for connection in sorted(self._connections.elements()):
            self._report(f"no event has closed the connection {connection}")
        for place in sorted(self._outages):
            self._report(f"no event has ended the outage of {place}")
