"""Pushes the metrics of a client to the brokers (KIP-714), if the operator of the cluster has subscribed to them.

Rules of this file:

1. A broker offers the APIs only if it has a receiver for metrics. Without one, no task runs and no request is sent.
2. A failed push never raises an error: it is logged at DEBUG, and the next push follows an interval later.
3. Brokers refuse a push that comes before its interval. So the pause follows each answer, also after a failure.
4. The last push, when the client closes, has the flag ``terminating`` and may come at any time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator

import anyio

from ..aio.runtime import Runtime
from ..errors import ErrorCode, KafkaError, ProtocolError, error_for
from ..net.broker import Broker
from ..protocol.messages.telemetry import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryRequest,
)
from ..protocol.records.compression import compress
from ..protocol.schema import ZERO_UUID
from ..types import Compression
from .otlp import CUMULATIVE, DELTA, Metric, MetricsReport, encode_metrics

logger = logging.getLogger(__name__)

LAST_PUSH_TIMEOUT = 0.5
"""Seconds for the push of a client that closes."""

DEFAULT_INTERVAL = 300.0
"""Seconds between pushes if the subscription has no interval above 0, as in Java's client."""

SHORTEST_INTERVAL = 1.0
"""The shortest time between pushes, in seconds. Brokers allow 0.1 s, and a wrong subscription may have 1 ms."""

RETRY_AFTER = 30.0
"""Seconds until the subscription is requested again after a failure."""

FIRST_SHARE = 0.5, 1.5
"""The limits of the random share of the interval before the first push. So clients that start together do not push
together."""

COMPRESSIONS = (Compression.ZSTD, Compression.LZ4, Compression.GZIP)


class Telemetry:
    """The pushes of one client. Owner: the ``Client``, whose task ``run`` is.

    ``report`` makes the present metrics. ``choose_broker`` returns the broker that gets all later pushes.
    """

    def __init__(
        self, report: Callable[[], MetricsReport], choose_broker: Callable[[], Broker], runtime: Runtime
    ) -> None:
        self._report = report
        self._choose_broker = choose_broker
        self._runtime = runtime
        self._instance_id = ZERO_UUID
        self._broker: Broker | None = None
        self._subscription: GetTelemetrySubscriptionsResponse | None = None
        self._counted: dict[tuple[object, ...], float] = {}
        self._start_ns = self._begin_ns = self._now_ns()

    async def run(self) -> None:
        """Push at the interval of the subscription, until cancelled. An unexpected error ends only the pushing."""
        try:
            await self._run()
        except Exception as error:  # a client must not end because its metrics cannot be made
            logger.error("no more metrics are pushed to the brokers, because of an unexpected error", exc_info=error)
            self._subscription = None

    async def _run(self) -> None:
        low, high = FIRST_SHARE
        while True:
            try:
                await self._subscribe()
                assert self._subscription is not None
                interval_ms = self._subscription.push_interval_ms
                interval = max(interval_ms / 1000, SHORTEST_INTERVAL) if interval_ms > 0 else DEFAULT_INTERVAL
                if self._subscription.requested_metrics:
                    await asyncio.sleep(interval * (low + (high - low) * self._runtime.random()))
                    while await self._push():  # noqa: ASYNC110 - a period, not polling
                        await asyncio.sleep(interval)
                else:
                    await asyncio.sleep(interval)
            except KafkaError as error:
                logger.debug("pushing metrics failed; next attempt in %g s: %s", RETRY_AFTER, error)
                self._subscription = None
                await asyncio.sleep(RETRY_AFTER)

    async def end(self) -> None:
        """Push for the last time, within ``LAST_PUSH_TIMEOUT`` seconds. Never raises."""
        if self._subscription is None or not self._subscription.requested_metrics:
            return
        with anyio.move_on_after(LAST_PUSH_TIMEOUT):
            try:
                await self._push(is_last=True)
            except KafkaError as error:
                logger.debug("the last push of metrics failed: %s", error)

    async def _subscribe(self) -> None:
        self._broker = self._choose_broker()
        answer = await self._broker.send(GetTelemetrySubscriptionsRequest(client_instance_id=self._instance_id))
        code = ErrorCode.of(answer.error_code)
        if code is not ErrorCode.NONE:
            raise error_for(code, "requesting the subscription of metrics")
        # A broker assigns an id once. To a client that has one, it answers with the same id, or with 0.
        if answer.client_instance_id != ZERO_UUID:
            self._instance_id = answer.client_instance_id
        if self._instance_id == ZERO_UUID:
            raise ProtocolError(f"broker {self._broker.node.node_id} assigned no instance id to this client")
        self._subscription = answer

    async def _push(self, *, is_last: bool = False) -> bool:
        """Push once. False if the subscription is no longer valid. Raises KafkaError if no broker answers."""
        subscription, broker = self._subscription, self._broker
        assert subscription is not None
        assert broker is not None
        report = self._report()
        prefixes, now = tuple(subscription.requested_metrics), self._now_ns()
        metrics = [metric for metric in report.metrics if metric.name.startswith(prefixes)]
        is_delta = subscription.delta_temporality
        data = encode_metrics(
            self._deltas(metrics) if is_delta else metrics,
            report.resource,
            begin_ns=self._begin_ns if is_delta else self._start_ns,
            now_ns=now,
            temporality=DELTA if is_delta else CUMULATIVE,
        )
        compression, data = _compressed(data, subscription.accepted_compression_types)
        request = PushTelemetryRequest(
            client_instance_id=self._instance_id,
            subscription_id=subscription.subscription_id,
            terminating=is_last,
            compression_type=compression,
            metrics=data,
        )
        code = ErrorCode.of((await broker.send(request)).error_code)
        if code is ErrorCode.NONE and is_delta:
            # This comes after the answer, so that the next push repeats the counts of a lost push.
            self._counted = {(metric.name, metric.attributes): metric.value for metric in metrics if metric.is_counter}
            self._begin_ns = now
        elif code is not ErrorCode.NONE:
            logger.debug("broker %d refused %d bytes of metrics: %s", broker.node.node_id, len(data), code.name)
        return code not in (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)

    def _deltas(self, metrics: Iterable[Metric]) -> Iterator[Metric]:
        """Replace each counter by its increase since the last accepted push."""
        for metric in metrics:
            if not metric.is_counter:
                yield metric
                continue
            counted = self._counted.get((metric.name, metric.attributes), 0.0)
            # Sums over the brokers fall when a broker leaves the cluster.
            yield metric._replace(value=max(metric.value - counted, 0.0))

    def _now_ns(self) -> int:
        return int(self._runtime.clock() * 1e9)


def _compressed(data: bytes, accepted: Collection[int]) -> tuple[Compression, bytes]:
    """Compress the data with the best codec that the broker accepts."""
    compression = next((codec for codec in COMPRESSIONS if codec in accepted), Compression.NONE)
    return compression, data if compression is Compression.NONE else compress(compression, data)
