"""Limits of the connections of a node: of their number, and of the rate of new connections (KIP-402, KIP-612).

A listener accepts one connection after the other. A connection above ``max.connection.creation.rate`` waits at most one
window, and later connections wait for their turn. A client that disconnects while it waits leaves the queue. A
connection above the quota of its IP address is closed after the throttle time.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection, Iterator, MutableMapping
from typing import Protocol, TypeVar

from ..arguments import INT32_MAX
from .quotas import QuotaManager, Usage
from .settings.configs import CREATION_RATE, MOST_CONNECTIONS, MOST_OF_ADDRESS, OVERRIDES, BrokerSettings

LONGEST_SILENCE = 0.5
"""Seconds after which a connection without a request has to make room for another one."""


class Connected(Protocol):
    """The part of a connection that the limits look at."""

    listener: str
    client_address: str
    is_refused: bool
    silent_since: float | None

    def replace(self) -> None: ...


C = TypeVar("C", bound=Connected)


class ConnectionLimits:
    """The limits of one node. Owner: the node. ``clock`` gives the loop's time in seconds."""

    def __init__(self, settings: BrokerSettings, quotas: QuotaManager, clock: Callable[[], float]) -> None:
        self._settings = settings
        self._quotas = quotas
        self._clock = clock
        self._windows = settings.number("quota.window.num")
        self._window = float(settings.number("quota.window.size.seconds"))
        self._usage: dict[str, Usage] = {}  # by listener; "" is all of them
        self._turns: dict[str, asyncio.Lock] = {}  # by listener; asyncio gives a lock in FIFO order

    def clear(self) -> None:
        """Drop all connections from the counts, because the broker starts."""
        self._usage.clear()
        self._turns.clear()

    def make_room(self, connections: MutableMapping[C, None], listener: str, address: str) -> bool:
        """Close a connection without requests if that is necessary, and return whether one more is allowed.

        Otherwise, a client that opens all connections and sends nothing would shut out all others. The closed
        connection must count for each limit that is reached. Connections that wait for their turn count; refused
        connections do not.
        """
        rivals = self._rivals(connections, listener, address)
        if rivals is None:
            return True
        silent = [(since, rival) for rival in rivals if (since := rival.silent_since) is not None]
        since, longest = min(silent, key=lambda rival: rival[0], default=(math.inf, None))
        if longest is None or since > self._clock() - LONGEST_SILENCE:
            return False
        del connections[longest]
        longest.replace()
        return True

    def _rivals(self, connections: Collection[C], listener: str, address: str) -> list[C] | None:
        """Return the connections that make room for a new one if one of them closes; None if there is room already."""
        rivals: list[C] | None = None
        for most, counts in self._limits(listener, address):
            if len(connections) < most:
                continue
            counted = [connection for connection in connections if not connection.is_refused and counts(connection)]
            if len(counted) > most:
                return []  # one connection fewer is still too many
            if len(counted) == most:
                rivals = counted if rivals is None else [rival for rival in rivals if counts(rival)]
        return rivals

    def _limits(self, listener: str, address: str) -> Iterator[tuple[int, Callable[[Connected], bool]]]:
        """Yield the limits for a new connection, each with a function that tells which connections count."""
        settings = self._settings
        most = settings.number(MOST_OF_ADDRESS)
        for override in filter(None, settings.value(OVERRIDES).split(",")):
            host, _, number = override.rpartition(":")
            if host.strip() == address:
                most = int(number)
        yield settings.number(MOST_CONNECTIONS), lambda connection: True
        of_listener = settings.of_listener(listener).number(MOST_CONNECTIONS)
        yield of_listener, lambda connection: connection.listener == listener
        yield most, lambda connection: connection.client_address == address

    async def admit(self, listener: str, address: str) -> float:
        """Wait until the listener accepts a new connection, and return 0. A cancellation leaves the queue.

        If the IP address is above its quota, returns the seconds after which the broker closes the connection.
        """
        # One after the other, so that a burst is spread at the rate, instead of waiting as one and coming as one.
        async with self._turns.setdefault(listener, asyncio.Lock()):
            throttle = self._throttle("", self._settings.number(CREATION_RATE))
            if own := self._settings.of_listener(listener).own_value(CREATION_RATE):
                throttle = max(throttle, self._throttle(listener, int(own)))
            if throttle:
                await asyncio.sleep(throttle)
        return self._quotas.connection_wait(address)

    def _throttle(self, listener: str, rate: int) -> float:
        """Count a connection, and return the seconds until its listener accepts it: at most one window, as in Kafka."""
        if rate >= INT32_MAX:
            self._usage.pop(listener, None)
            return 0.0
        usage = self._usage.setdefault(listener, Usage(self._windows, self._window))
        now = self._clock()
        usage.add(1, now)
        return self._window if rate == 0 else min(usage.throttle_seconds(rate, now), self._window)
