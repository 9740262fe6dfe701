"""Byte rates and request shares that clients may use up, and for how long they must wait then (KIP-124, 219).

Limits belong to the cluster and change at run time; what was used is measured by each node for itself. A rate is an
average over eleven windows of one second, as Kafka's defaults have it. Who is over is told to wait until the average is
back at the limit, and is not read from in the meantime.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .connection import RequestContext

WINDOWS = 11
WINDOW_SECONDS = 1.0
LONGEST_THROTTLE = (2**31 - 1) // 1000
"""Seconds: as much as the answer's milliseconds can say."""
FORGET_AFTER = 3600.0
"""Seconds of silence after which a client's use is forgotten, as Kafka's sensors are."""

USER = "user"
CLIENT_ID = "client-id"
IP = "ip"
PRODUCE = "producer_byte_rate"
FETCH = "consumer_byte_rate"
REQUEST = "request_percentage"
KEYS = (PRODUCE, FETCH, REQUEST, "controller_mutation_rate", "connection_creation_rate")
DEFAULT = None

Entity = frozenset[tuple[str, str | None]]
"""Whom a limit is for: ``{("user", name), ("client-id", name)}`` or a part of it; None as a name is the default."""


class QuotaLimits:
    """The limits in force. Owner: the cluster."""

    def __init__(self) -> None:
        self._limits: dict[Entity, dict[str, float]] = {}

    def __iter__(self) -> Iterator[tuple[Entity, Mapping[str, float]]]:
        return iter([(entity, dict(limits)) for entity, limits in self._limits.items()])

    def set(self, entity: Entity, key: str, value: float) -> None:
        self._limits.setdefault(entity, {})[key] = value

    def remove(self, entity: Entity, key: str) -> None:
        limits = self._limits.get(entity, {})
        limits.pop(key, None)
        if not limits:
            self._limits.pop(entity, None)

    def find(self, user: str, client_id: str, key: str) -> tuple[Entity, float] | None:
        """The most specific limit for a client, and whom it counts together."""
        if not self._limits:
            return None
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
            # "" stands for a part that the entity does not have; None for its default.
            parts = [part for part in ((USER, name), (CLIENT_ID, client)) if part[1] != ""]
            limit = self._limits.get(frozenset(parts), {}).get(key)
            if limit is not None:
                counted = [(kind, user if kind == USER else client_id) for kind, _ in parts]
                return frozenset(counted), limit
        return None


class Usage:
    """What one entity has used lately, in samples of one second."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, float]] = deque()

    def add(self, amount: float, now: float) -> None:
        if self._samples and now - self._samples[-1][0] < WINDOW_SECONDS:
            began, used = self._samples[-1]
            self._samples[-1] = (began, used + amount)
        else:
            self._samples.append((now, amount))

    def throttle_seconds(self, limit: float, now: float) -> float:
        """How long to wait until the average is at ``limit`` a second again."""
        while self._samples and now - self._samples[0][0] >= WINDOWS * WINDOW_SECONDS:
            self._samples.popleft()
        used = sum(amount for _, amount in self._samples)
        oldest = self._samples[0][0] if self._samples else now
        span = max(now - oldest, (WINDOWS - 1) * WINDOW_SECONDS)
        return min(max(0.0, used / limit - span), LONGEST_THROTTLE)

    @property
    def last_used(self) -> float:
        return self._samples[-1][0] if self._samples else -inf


class Quotas:
    """What clients have used of a node. Owner: the node."""

    def __init__(self, limits: QuotaLimits, clock: Callable[[], float]) -> None:
        self._limits = limits
        self._clock = clock
        self._usage: dict[tuple[str, Entity], Usage] = {}

    def record_produce(self, context: RequestContext, size: int) -> int:
        """Note bytes produced; gives the milliseconds that the client must wait."""
        return self._record(context, PRODUCE, size)

    def record_fetch(self, context: RequestContext, size: int) -> int:
        """Note bytes about to be sent; gives the milliseconds to wait before they may be, and then takes them back."""
        wait = self._record(context, FETCH, size)
        if wait:
            self._record(context, FETCH, -size)
        return wait

    def record_request(self, context: RequestContext, busy: float) -> int:
        """Note seconds of work; gives the milliseconds that the client must wait."""
        return min(self._record(context, REQUEST, busy * 100), int(WINDOW_SECONDS * 1000))

    def fetch_limit(self, context: RequestContext) -> int | None:
        """As many bytes as a fetch may give at once without being over for ever."""
        found = self._limits.find(user_of(context.principal), context.client_id, FETCH)
        return None if found is None else int(found[1] * (WINDOWS - 1) * WINDOW_SECONDS)

    def limits_requests(self, context: RequestContext) -> bool:
        """Whether the client's work has to be measured at all."""
        return self._limits.find(user_of(context.principal), context.client_id, REQUEST) is not None

    def clean_up(self) -> None:
        """Forget clients that have long been silent."""
        before = self._clock() - FORGET_AFTER
        for each in [each for each, usage in self._usage.items() if usage.last_used < before]:
            del self._usage[each]

    def _record(self, context: RequestContext, key: str, amount: float) -> int:
        found = self._limits.find(user_of(context.principal), context.client_id, key)
        if found is None:
            return 0
        entity, limit = found
        now = self._clock()
        usage = self._usage.get((key, entity))
        if usage is None:
            usage = self._usage[key, entity] = Usage()
        usage.add(amount, now)
        return int(usage.throttle_seconds(limit, now) * 1000)


def user_of(principal: str) -> str:
    """The name in ``User:name``."""
    return principal.partition(":")[2]
