"""The metrics that clients push to one broker (KIP-714), as Kafka's ClientMetricsManager takes them.

A client asks for its subscription, which is made of the CLIENT_METRICS resources that match it, and pushes at the
interval of the subscription. Requests that come too early are refused, and so are pushes for an old subscription.
"""

from __future__ import annotations

import logging
import re
import uuid
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf

from ..errors import CorruptRecord, ErrorCode
from ..protocol.records.compression import decompress
from ..types import Compression
from .settings.configs import ClusterSettings
from .settings.resource_configs import CLIENT_METRICS, CLIENT_METRICS_KEYS
from .settings.topic_patterns import InvalidPattern, matches, topic_pattern

logger = logging.getLogger(__name__)

ACCEPTED = (Compression.ZSTD, Compression.LZ4, Compression.GZIP, Compression.SNAPPY)
ALL = "*"
DEFAULT_INTERVAL_MS = int(CLIENT_METRICS_KEYS["interval.ms"].default or 0)
"""The interval of a client without a subscription, after which it asks for one again."""


@dataclass(frozen=True, slots=True)
class MetricsPush:
    """One push of a client.

    ``metrics`` is OpenTelemetry's ``MetricsData`` in protobuf, not compressed. ``is_last`` is True if the client ends.
    """

    node_id: int
    client_instance_id: uuid.UUID
    client_id: str
    principal: str
    is_last: bool
    metrics: bytes


@dataclass(frozen=True, slots=True)
class MetricsSubscription:
    """The metrics that one client has to push. ``metrics`` are prefixes of names; an empty prefix means all."""

    subscription_id: int
    metrics: tuple[str, ...]
    interval_ms: int


MOST_INSTANCES = 16_384
"""Clients that a node remembers, as in Kafka. The client that asked for its subscription first is dropped first."""


@dataclass(slots=True)
class _Instance:
    """A client that has asked for its subscription. Times are the loop's, in seconds."""

    subscription: MetricsSubscription
    client: Mapping[str, str]
    asked_at: float
    pushed_at: float = -inf
    is_over: bool = False

    def is_repeated(self, subscription: MetricsSubscription, now: float) -> bool:
        """Return whether the client asks for the same subscription again too early."""
        return self.subscription == subscription and self.is_too_early(self.asked_at, now)

    def is_too_early(self, last: float, now: float) -> bool:
        """Return whether less than the interval has passed since ``last``."""
        return now - last < self.subscription.interval_ms / 1000


class ClientTelemetry:
    """The clients of one node that push metrics. Owner: the node.

    ``clock`` gives the loop's time in seconds, ``receive`` gets each push.
    """

    def __init__(
        self, settings: ClusterSettings, clock: Callable[[], float], receive: Callable[[MetricsPush], None]
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._receive = receive
        self._instances: dict[bytes, _Instance] = {}

    def subscribe(self, instance_id: bytes, client: Mapping[str, str]) -> tuple[MetricsSubscription, ErrorCode]:
        """Register a client with these properties. Return its subscription, and an error if it asks again too early."""
        subscription = self._subscription(client)
        instance, now = self._instances.get(instance_id), self._clock()
        if instance is not None and instance.is_repeated(subscription, now):
            return subscription, ErrorCode.THROTTLING_QUOTA_EXCEEDED
        self._instances.pop(instance_id, None)
        if len(self._instances) >= MOST_INSTANCES:
            del self._instances[next(iter(self._instances))]
        self._instances[instance_id] = _Instance(subscription, client, now)
        return subscription, ErrorCode.NONE

    def push(self, pushed: MetricsPush, subscription_id: int, compression: int, max_bytes: int) -> ErrorCode:
        """Take the metrics of a client, which are still compressed. Returns the error, if any."""
        instance = self._instances.get(pushed.client_instance_id.bytes)
        if instance is None or self._subscription(instance.client).subscription_id != subscription_id:
            return ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        if instance.is_over:
            return ErrorCode.INVALID_REQUEST
        now = self._clock()
        if not pushed.is_last and instance.is_too_early(instance.pushed_at, now):
            return ErrorCode.THROTTLING_QUOTA_EXCEEDED
        if compression not in (Compression.NONE, *ACCEPTED):
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        if len(pushed.metrics) > max_bytes:
            return ErrorCode.TELEMETRY_TOO_LARGE
        metrics = pushed.metrics
        if compression:
            try:
                metrics = decompress(Compression(compression), metrics, max_bytes)
            except CorruptRecord:
                return ErrorCode.INVALID_RECORD
        instance.pushed_at, instance.is_over = now, pushed.is_last
        self._receive(replace(pushed, metrics=metrics))
        return ErrorCode.NONE

    def _subscription(self, client: Mapping[str, str]) -> MetricsSubscription:
        """Merge all subscriptions that match: their metrics, and the shortest interval."""
        metrics: set[str] = set()
        intervals = []
        for name in self._settings.resources(CLIENT_METRICS):
            own = self._settings.resource(CLIENT_METRICS, name)
            if _matches(own.get("match", ""), client):
                metrics.update(filter(None, (prefix.strip() for prefix in own.get("metrics", "").split(","))))
                intervals.append(int(own.get("interval.ms", DEFAULT_INTERVAL_MS)))
        prefixes = ("",) if ALL in metrics else tuple(sorted(metrics))
        interval = min(intervals, default=DEFAULT_INTERVAL_MS)
        # Any number that changes with the content; Kafka's is signed too.
        checksum = zlib.crc32(repr((prefixes, interval)).encode()) - 2**31
        return MetricsSubscription(checksum, prefixes, interval)


def _matches(patterns: str, client: Mapping[str, str]) -> bool:
    """Return whether every pattern, ``property=expression``, matches the client's property as a whole."""
    for pattern in filter(None, patterns.split(",")):
        name, _, expression = (part.strip() for part in pattern.partition("="))
        compiled = _compiled(expression)
        if compiled is None or not matches(compiled, client.get(name, "")):
            return False
    return True


@lru_cache(maxsize=64)
def _compiled(expression: str) -> re.Pattern[str] | None:
    """Return the pattern; None if it is not valid. AlterConfigs refuses such a pattern, but an older version accepted
    it.
    """
    try:
        return topic_pattern(expression)
    except InvalidPattern as error:
        logger.warning("the pattern %.300r in a subscription of client metrics matches nothing: %s", expression, error)
        return None
