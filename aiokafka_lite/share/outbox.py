"""The acknowledgements for one broker: which of them the next request carries, and which calls wait for results."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from .in_flight import Acknowledgements, InFlight

ACKNOWLEDGE_AFTER = 0.5
"""Seconds that an acknowledgement waits for the next fetch before a request of its own carries it."""


class Outbox:
    """Owned by the ``BrokerShareFetcher``. ``on_settled`` is called with each acknowledgement that cannot be sent."""

    def __init__(self, node_id: int, in_flight: InFlight, on_settled: Callable[[Acknowledgements], None]) -> None:
        self.due: float | None = None
        """The loop's time at which the acknowledgements go without a fetch; None if there are none."""
        self._node_id = node_id
        self._in_flight = in_flight
        self._on_settled = on_settled
        self._flushes: list[asyncio.Future[None]] = []  # flushes that wait for the next request
        self._sent_flushes: list[asyncio.Future[None]] = []  # flushes that wait for the request in progress
        self._carries_acknowledgements = False  # whether the request in progress carries acknowledgements

    @property
    def has_flushes(self) -> bool:
        """Whether a flush waits for the next request."""
        return bool(self._flushes)

    def flush(self) -> asyncio.Future[None]:
        """Send all acknowledgements at once. The promise is fulfilled when they have results."""
        promise: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._in_flight.has_acknowledged(self._node_id):
            self._flushes.append(promise)
        elif self._carries_acknowledgements:
            self._sent_flushes.append(promise)
        else:
            promise.set_result(None)
        return promise

    def acknowledged(self, now: float) -> bool:
        """Delay new acknowledgements for a fetch. Returns whether no others waited before them."""
        if self.due is not None:
            return False
        self.due = now + ACKNOWLEDGE_AFTER
        return True

    def is_due(self, now: float, *, may_wait: bool) -> bool:
        """Return whether the acknowledgements must go now, without a fetch."""
        if not self._in_flight.has_acknowledged(self._node_id):
            self.due = None
            _fulfil(self._flushes)
            return False
        if self.due is None:
            self.due = now + ACKNOWLEDGE_AFTER
        return bool(self._flushes) or now >= self.due or not may_wait

    def take(self, now: float) -> list[Acknowledgements]:
        """Take the acknowledgements of the next request."""
        to_send, failed = self._in_flight.take_acknowledged(self._node_id, now)
        for acknowledgements in failed:
            self._on_settled(acknowledgements)
        self.due = None
        self._sent_flushes += self._flushes
        self._flushes = []
        self._carries_acknowledgements = bool(to_send)
        return to_send

    def settled(self) -> None:
        """End a request: its acknowledgements have results, or wait for the next request."""
        self._carries_acknowledgements = False
        if self._in_flight.has_acknowledged(self._node_id):
            self._flushes += self._sent_flushes
            self._sent_flushes = []
        else:
            _fulfil(self._sent_flushes)


def _fulfil(flushes: list[asyncio.Future[None]]) -> None:
    for promise in flushes:
        if not promise.done():
            promise.set_result(None)
    flushes.clear()
