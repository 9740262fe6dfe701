"""The connections that a node serves, and when: limits of their number, and of the rate of new ones (KIP-402, KIP-612).

A listener accepts one connection after the other. A connection above ``max.connection.creation.rate`` waits for its
turn, and so do those behind it. A connection above the quota of its IP address is closed after the throttle time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple, Protocol

from ..arguments import INT32_MAX
from .configs import CREATION_RATE, MOST_CONNECTIONS, MOST_OF_ADDRESS, OVERRIDES, BrokerSettings
from .quotas import Quotas, Usage


class Connected(Protocol):
    """The part of a connection that the limits look at."""

    listener: str
    client_address: str


class Admission(NamedTuple):
    """What happens to a new connection: the seconds that it waits, and whether it is served after them."""

    wait: float
    is_served: bool


class ConnectionLimits:
    """The limits of one node. Owner: the node. ``clock`` gives the loop's time in seconds."""

    def __init__(self, settings: BrokerSettings, quotas: Quotas, clock: Callable[[], float]) -> None:
        self._settings = settings
        self._quotas = quotas
        self._clock = clock
        self._windows = settings.number("quota.window.num")
        self._window = float(settings.number("quota.window.size.seconds"))
        self._usage: dict[str, Usage] = {}  # by listener; "" is all of them
        self._next_turn: dict[str, float] = {}  # by listener, the time at which it accepts the next connection

    def are_reached(self, connections: Collection[Connected], listener: str, address: str) -> bool:
        """Whether a broker has all the connections it may have: in all, of this listener, or from this IP address."""
        settings = self._settings
        if len(connections) >= settings.number(MOST_CONNECTIONS):
            return True
        of_listener = settings.of_listener(listener).number(MOST_CONNECTIONS)
        if len(connections) >= of_listener and sum(each.listener == listener for each in connections) >= of_listener:
            return True
        most = settings.number(MOST_OF_ADDRESS)
        for override in filter(None, settings.value(OVERRIDES).split(",")):
            host, _, number = override.rpartition(":")
            if host.strip() == address:
                most = int(number)
        return most < INT32_MAX and sum(each.client_address == address for each in connections) >= most

    def admit(self, listener: str, address: str) -> Admission:
        """Count a new connection."""
        now = self._clock()
        turn = max(now, self._next_turn.get(listener, now))
        own = self._settings.of_listener(listener).own_value(CREATION_RATE)
        throttle = self._throttle("", self._settings.number(CREATION_RATE), turn)
        if own:
            throttle = max(throttle, self._throttle(listener, int(own), turn))
        accepted = self._next_turn[listener] = turn + throttle
        refused_for = self._quotas.connection_wait(address)
        return Admission(accepted - now + refused_for, not refused_for)

    def _throttle(self, listener: str, rate: int, now: float) -> float:
        """Count a connection, and return the seconds until its listener accepts it: at most one window, as in Kafka."""
        if rate >= INT32_MAX:
            self._usage.pop(listener, None)
            return 0.0
        usage = self._usage.setdefault(listener, Usage(self._windows, self._window))
        usage.add(1, now)
        return self._window if rate == 0 else min(usage.throttle_seconds(rate, now), self._window)
