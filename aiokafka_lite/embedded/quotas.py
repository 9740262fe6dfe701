"""Quotas on byte rates and request times of clients, and the wait of a client over its limit (KIP-124, KIP-219).

Limits belong to the cluster and change at run time; each node measures the usage on its own. A rate is an average over
``quota.window.num`` windows. A client over its limit has to wait until the average is back at the limit, and the broker
does not read from it meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from math import inf
from typing import Any

from ..arguments import INT32_MAX
from .settings.configs import BrokerSettings

LONGEST_THROTTLE = INT32_MAX // 1000
"""Seconds: the largest throttle time that a response can carry."""
DROP_AFTER = 3600.0
"""Seconds without requests after which the usage of a client is dropped, as Kafka drops its sensors."""

USER = "user"
CLIENT_ID = "client-id"
IP = "ip"
PRODUCE = "producer_byte_rate"
FETCH = "consumer_byte_rate"
REQUEST = "request_percentage"
MUTATIONS = "controller_mutation_rate"
CONNECTIONS = "connection_creation_rate"
KEYS = (PRODUCE, FETCH, REQUEST, MUTATIONS, CONNECTIONS)
DEFAULT = None

Entity = frozenset[tuple[str, str | None]]
"""The clients that a limit applies to: ``{("user", name), ("client-id", name)}`` or a part of it. The name None is the
default."""


class QuotaLimits:
    """The limits in force. Owner: the cluster."""

    def __init__(self) -> None:
        self._limits: dict[Entity, dict[str, float]] = {}

    def __iter__(self) -> Iterator[tuple[Entity, Mapping[str, float]]]:
        return iter([(entity, dict(limits)) for entity, limits in self._limits.items()])

    @property
    def are_set(self) -> bool:
        """Whether there is a limit for any client. Most clusters have none."""
        return bool(self._limits)

    def set(self, entity: Entity, key: str, value: float) -> None:
        self._limits.setdefault(entity, {})[key] = value

    def remove(self, entity: Entity, key: str) -> None:
        limits = self._limits.get(entity, {})
        limits.pop(key, None)
        if not limits:
            self._limits.pop(entity, None)

    def saved(self) -> list[list[Any]]:
        return [[sorted(map(list, entity)), dict(limits)] for entity, limits in self._limits.items()]

    def restore(self, state: list[list[Any]]) -> None:
        self._limits = {frozenset((kind, name) for kind, name in entity): dict(limits) for entity, limits in state}

    def find(self, user: str, client_id: str, key: str) -> tuple[Entity, float] | None:
        """Return the most specific limit for a client, and the entity whose usage it counts."""
        # Kafka's order: the most specific limit, and a limit of the user before a limit of the client id.
        for name, client in (
            (user, client_id),
            (user, DEFAULT),
            (user, ""),
            (DEFAULT, client_id),
            (DEFAULT, DEFAULT),
            (DEFAULT, ""),
            ("", client_id),
            ("", DEFAULT),
        ):
            # "" is a part that the entity does not have; None is its default.
            parts = [part for part in ((USER, name), (CLIENT_ID, client)) if part[1] != ""]
            limit = self._limits.get(frozenset(parts), {}).get(key)
            if limit is not None:
                counted = [(kind, user if kind == USER else client_id) for kind, _ in parts]
                return frozenset(counted), limit
        return None

    def find_address(self, address: str) -> tuple[Entity, float] | None:
        """Return the limit of new connections from an IP address, and the entity whose usage it counts."""
        for name in (address, DEFAULT):
            limit = self._limits.get(frozenset([(IP, name)]), {}).get(CONNECTIONS)
            if limit is not None:
                return frozenset([(IP, address)]), limit
        return None


class Usage:
    """The recent usage of one entity, in ``windows`` samples of ``window`` seconds."""

    def __init__(self, windows: int, window: float) -> None:
        self._windows = windows
        self._window = window
        self._samples: deque[tuple[float, float]] = deque()

    def add(self, amount: float, now: float) -> None:
        if self._samples and now - self._samples[-1][0] < self._window:
            began, used = self._samples.pop()
            now, amount = began, used + amount
        assert amount >= 0, "usage is never negative"
        self._samples.append((now, amount))

    def throttle_seconds(self, limit: float, now: float) -> float:
        """Return the seconds to wait until the average is at ``limit`` per second again."""
        while self._samples and now - self._samples[0][0] >= self._windows * self._window:
            self._samples.popleft()
        used = sum(amount for _, amount in self._samples)
        oldest = self._samples[0][0] if self._samples else now
        span = now - oldest
        # As in Kafka: add the windows that have not passed yet to the time since the oldest sample.
        span += max(0, self._windows - 1 - int(span / self._window)) * self._window
        return min(max(0.0, used / limit - span), LONGEST_THROTTLE)

    @property
    def last_used(self) -> float:
        return self._samples[-1][0] if self._samples else -inf


class TokenBucket(Usage):
    """The usage of an entity that may use the limits of all windows together in one burst (KIP-599)."""

    def __init__(self, windows: int, window: float) -> None:
        super().__init__(windows, window)
        self._longest = windows * window
        self._used = 0.0
        self._at = 0.0

    def add(self, amount: float, now: float) -> None:
        assert amount >= 0, "usage is never negative"
        self._used += amount

    def throttle_seconds(self, limit: float, now: float) -> float:
        # The bucket drains at the rate of the limit, and an empty one saves no credit for later.
        self._used = max(0.0, self._used - limit * (now - self._at))
        self._at = now
        return min(max(0.0, self._used / limit - self._longest), LONGEST_THROTTLE)

    @property
    def last_used(self) -> float:
        return self._at


class QuotaManager:
    """The usage of one node by its clients. Owner: the node. ``clock`` gives the loop's time in seconds."""

    def __init__(self, limits: QuotaLimits, clock: Callable[[], float], settings: BrokerSettings) -> None:
        self._limits = limits
        self._clock = clock
        self._windows = settings.number("quota.window.num")
        self._window = float(settings.number("quota.window.size.seconds"))
        self._usage: dict[tuple[str, Entity], Usage] = {}

    def record_produce(self, principal: str, client_id: str, size: int) -> int:
        """Count produced bytes. Returns the milliseconds that the client must wait."""
        return self._record(principal, client_id, PRODUCE, size)

    def record_fetch(self, principal: str, client_id: str, size: int) -> int:
        """Count bytes to send. Returns the milliseconds to wait first; if not 0, the bytes are not counted."""
        return self._record(principal, client_id, FETCH, size, refunds=True)

    def record_request(self, principal: str, client_id: str, busy: float) -> int:
        """Count seconds of work. Returns the milliseconds that the client must wait."""
        return min(self._record(principal, client_id, REQUEST, busy * 100), int(self._window * 1000))

    def mutation_wait(self, principal: str, client_id: str) -> int:
        """Return the milliseconds until the client may create or delete partitions again (KIP-599)."""
        return self._record(principal, client_id, MUTATIONS, 0)

    def record_mutations(self, principal: str, client_id: str, partitions: int) -> int:
        """Count partitions that were created or deleted. Returns the milliseconds that the client must wait."""
        return self._record(principal, client_id, MUTATIONS, partitions)

    def connection_wait(self, address: str) -> float:
        """Count a new connection from an IP address (KIP-612), and return 0.

        Above the quota it is not counted; returns the seconds after which the broker closes it.
        """
        limit = self._limits.find_address(address)
        if limit is None:
            return 0.0
        return min(self._throttle(CONNECTIONS, *limit, 1, refunds=True) / 1000, self._window)

    def fetch_limit(self, principal: str, client_id: str) -> int | None:
        """Return the maximum bytes of one fetch: more would always exceed the limit. None if there is no limit."""
        if not self._limits.are_set:
            return None
        limit = self._limits.find(_user_of(principal), client_id, FETCH)
        return None if limit is None else int(limit[1] * max(self._windows - 1, 1) * self._window)

    def limits_requests(self, principal: str, client_id: str) -> bool:
        """Return whether a request quota applies to the client, so that its work has to be measured."""
        return self._limits.are_set and self._limits.find(_user_of(principal), client_id, REQUEST) is not None

    def clear(self) -> None:
        """Drop all usage, because the broker starts."""
        self._usage.clear()

    def clean_up(self) -> None:
        """Drop the usage of clients that sent nothing for an hour."""
        before = self._clock() - DROP_AFTER
        for key in [key for key, usage in self._usage.items() if usage.last_used < before]:
            del self._usage[key]

    def _record(self, principal: str, client_id: str, key: str, amount: float, *, refunds: bool = False) -> int:
        if not self._limits.are_set:
            return 0
        limit = self._limits.find(_user_of(principal), client_id, key)
        if limit is None:
            return 0
        return self._throttle(key, *limit, amount, refunds=refunds)

    def _throttle(self, key: str, entity: Entity, limit: float, amount: float, *, refunds: bool = False) -> int:
        """Count ``amount`` of a quota, and return the milliseconds to wait.

        With ``refunds``, an amount for which the client has to wait is not counted.
        """
        now = self._clock()
        usage = self._usage.get((key, entity))
        if usage is None:
            kind = TokenBucket if key == MUTATIONS else Usage
            usage = self._usage[key, entity] = kind(self._windows, self._window)
        # Called before the amount is added, because earlier time must not pay for the amount.
        usage.throttle_seconds(limit, now)
        usage.add(amount, now)
        throttle_ms = int(usage.throttle_seconds(limit, now) * 1000)
        if refunds and throttle_ms:
            usage.add(-amount, now)
        return throttle_ms


def _user_of(principal: str) -> str:
    """Return the name in ``User:name``."""
    return principal.partition(":")[2]
