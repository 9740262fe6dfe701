"""Snapshots of the client of a cluster: the metrics that producers, consumers, groups and admin clients all have."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from ..errors import IllegalStateError
from ..net.metrics import BrokerTraffic
from ..snapshot import SECONDS, Counter, Gauge, Snapshot

if TYPE_CHECKING:
    from .client import Client


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientMetrics(Snapshot):
    """The connections, the metadata and the event loop of a client at one moment.

    - ``connections`` is the number of open connections.
    - ``connects``, ``connect_failures``, ``requests``, ``responses``, ``bytes_sent``, ``bytes_received`` and
      ``throttle_time`` (seconds) are sums over ``brokers`` and over the brokers that have left the cluster.
    - ``brokers`` has the traffic with each broker by its id. A bootstrap address has a negative id.
    - ``metadata_age`` and ``last_response_ago`` are the seconds since the last metadata and since the last response of
      any broker, None before the first one.
    - ``outages`` is the number of places, such as brokers, whose failures are being retried now.
    - ``loop_delay`` is the longest delay of a timer of the event loop in the last minute, in seconds, and
      ``loop_delay_max`` the longest one so far.
    - ``loop_blocks`` is the number of delays of more than a second, and ``loop_blocked_time`` their sum in seconds.
    """

    client_id: str
    connections: Annotated[int, Gauge("connections", "Open connections.")]
    connects: int
    connect_failures: int
    requests: int
    requests_in_flight: int
    responses: int
    bytes_sent: int
    bytes_received: int
    throttle_time: float
    metadata_age: Annotated[float | None, Gauge("metadata.age", "Time since the last metadata.", SECONDS)]
    last_response_ago: Annotated[
        float | None, Gauge("last.response.ago", "Time since the last response of any broker.", SECONDS)
    ]
    outages: Annotated[int, Gauge("outages", "Places, such as brokers, whose failures are being retried now.")]
    loop_delay: Annotated[float, Gauge("loop.delay", "Longest delay of the event loop in the last minute.", SECONDS)]
    loop_delay_max: float
    loop_blocks: Annotated[int, Counter("loop.blocks", "Times that the event loop was blocked for more than a second.")]
    loop_blocked_time: Annotated[
        float, Counter("loop.blocked", "Time that the event loop was blocked in these blocks.", SECONDS)
    ]
    brokers: Mapping[int, BrokerTraffic]


_SUMS = ("connects", "connect_failures", "requests", "responses", "bytes_sent", "bytes_received", "throttle_time")
"""The fields that are sums over the brokers, with those that have left the cluster."""


def loop_time() -> float:
    """Return the time of the running loop. Raises IllegalStateError where none runs, as in another thread."""
    try:
        return asyncio.get_running_loop().time()
    except RuntimeError:
        raise IllegalStateError(
            "metrics(), health() and diagnose() must be called in the event loop; in another thread, use an exporter "
            "of aiokafka_lite.metrics, or asyncio.run_coroutine_threadsafe"
        ) from None


def client_metrics(client: Client) -> ClientMetrics:
    """Return the current metrics. May be called before the start and after the end."""
    brokers = client.traffic()
    view, delay, now = client.view, client.loop_delay, loop_time()
    sums = {
        name: getattr(client.departed, name) + sum(getattr(broker, name) for broker in brokers.values())
        for name in _SUMS
    }
    response_times = [broker.last_response_at for broker in client.brokers if broker.last_response_at is not None]
    return ClientMetrics(
        **sums,
        client_id=client.config.client_id,
        connections=sum(broker.connections for broker in brokers.values()),
        requests_in_flight=sum(broker.requests_in_flight for broker in brokers.values()),
        metadata_age=None if view.updated_at is None else view.age(now),
        last_response_ago=now - max(response_times) if response_times else None,
        outages=sum(outage.began is not None for outage in client.outages.all()),
        loop_delay=max(delay.recent, default=0.0),
        loop_delay_max=delay.longest,
        loop_blocks=delay.blocks,
        loop_blocked_time=delay.blocked_time,
        brokers=brokers,
    )
