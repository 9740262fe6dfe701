"""Metrics for Prometheus: a collector for ``prometheus_client`` (``pip install aiokafka_lite[prometheus]``)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..extras import extra
from .clients import Client, ObservedClients
from .instruments import by_instrument

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric
    from prometheus_client.registry import CollectorRegistry


class KafkaCollector:
    """A collector of ``prometheus_client`` with the metrics of clients of this event loop.

    ::

        collector = KafkaCollector(producer, consumer)
        prometheus_client.start_http_server(9464)

    It registers itself in ``registry``, by default the global one; pass None to register it yourself. A scrape in
    another thread waits until the event loop has read the clients. The scrape fails if the loop is blocked for 5
    seconds. The collector keeps no client alive: a client that the program drops is no longer exported.

    Raises ConfigurationError without the extra ``prometheus``, IllegalStateError outside of an event loop.
    """

    def __init__(self, *clients: Client, registry: CollectorRegistry | Any | None = ...) -> None:
        self._core = extra("prometheus_client.metrics_core", "prometheus")
        self._clients = ObservedClients()
        for client in clients:
            self.add(client)
        if registry is ...:
            registry = extra("prometheus_client", "prometheus").REGISTRY
        if registry is not None:
            registry.register(self)

    def add(self, client: Client, *, name: str | None = None) -> None:
        """Export another client. ``name`` is the value of the label ``client``: by default the client id.

        If several clients have the same name, the second one gets the suffix ``-2``, and so on.
        """
        self._clients.add(client, name)

    def remove(self, client: Client) -> None:
        """Stop exporting this client."""
        self._clients.remove(client)

    def describe(self) -> list[Metric]:
        """No metrics: ``prometheus_client`` calls this at the registration, which must not wait for the clients."""
        return []

    def collect(self) -> Iterator[Metric]:
        """The present metrics; ``prometheus_client`` calls it. Raises TimeoutError if the loop is blocked."""
        for instrument, samples in by_instrument(self._clients.samples()).items():
            kind = self._core.CounterMetricFamily if instrument.is_counter else self._core.GaugeMetricFamily
            family = kind(instrument.family, instrument.description, labels=instrument.labels)
            for sample in samples:
                family.add_metric(sample.labels, sample.value)
            yield family
