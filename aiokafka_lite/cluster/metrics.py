"""Snapshots of the client of a cluster: the metrics that producers, consumers, groups and admin clients all have."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import IllegalStateError
from ..net.metrics import BrokerTraffic
from ..snapshot import Snapshot

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
    """

    client_id: str
    connections: int
    connects: int
    connect_failures: int
    requests: int
    requests_in_flight: int
    responses: int
    bytes_sent: int
    bytes_received: int
    throttle_time: float
    metadata_age: float | None
    last_response_ago: float | None
    outages: int
    loop_delay: float
    loop_delay_max: float
    brokers: Mapping[int, BrokerTraffic]


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
    every, departed = brokers.values(), client.departed
    view, delay, now = client.view, client.loop_delay, loop_time()
    answered = [broker.last_response_at for broker in client.brokers if broker.last_response_at is not None]
    return ClientMetrics(
        client_id=client.config.client_id,
        connections=sum(broker.connections for broker in every),
        connects=departed.connects + sum(broker.connects for broker in every),
        connect_failures=departed.connect_failures + sum(broker.connect_failures for broker in every),
        requests=departed.requests + sum(broker.requests for broker in every),
        requests_in_flight=sum(broker.requests_in_flight for broker in every),
        responses=departed.responses + sum(broker.responses for broker in every),
        bytes_sent=departed.bytes_sent + sum(broker.bytes_sent for broker in every),
        bytes_received=departed.bytes_received + sum(broker.bytes_received for broker in every),
        throttle_time=departed.throttle_time + sum(broker.throttle_time for broker in every),
        metadata_age=None if view.updated_at is None else view.age(now),
        last_response_ago=now - max(answered) if answered else None,
        outages=sum(outage.began is not None for outage in client.outages.all()),
        loop_delay=max(delay.recent, default=0.0),
        loop_delay_max=delay.longest,
        brokers=brokers,
    )
