"""Metrics for Prometheus: a collector for ``prometheus_client`` (``pip install aiokafka_lite[prometheus]``)."""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..errors import IllegalStateError
from ..extras import extra
from .clients import MeasuredClient, ObservedClients
from .instruments import INSTRUMENTS, Instrument, by_instrument

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric
    from prometheus_client.registry import CollectorRegistry

logger = logging.getLogger(__name__)


class KafkaCollector:
    """A collector of ``prometheus_client`` with the metrics of clients.

    ::

        collector = KafkaCollector(producer, consumer)
        prometheus_client.start_http_server(9464)

    It registers itself in ``registry``, by default the global one; pass None to register it yourself. A registry takes
    one collector: add the clients of other modules with ``add``, those of another event loop in that loop. A scrape in
    another thread waits until the event loop has read the clients. The scrape fails if the loop is blocked for 5
    seconds. The collector keeps no client alive: a client that the program drops is no longer exported.

    Raises ConfigurationError without the extra ``prometheus``, IllegalStateError outside of an event loop and for a
    second collector of a registry. A collector whose event loops are all closed is replaced.
    """

    def __init__(self, *clients: MeasuredClient, registry: CollectorRegistry | Any | None = ...) -> None:
        self._core = extra("prometheus_client.metrics_core", "prometheus")
        self._clients = ObservedClients()
        for client in clients:
            self.add(client)
        if registry is ...:
            registry = extra("prometheus_client", "prometheus").REGISTRY
            if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
                logger.warning(
                    "PROMETHEUS_MULTIPROC_DIR is set: the multiprocess mode of prometheus_client exports no metrics of "
                    "collectors, so none of Kafka; docs/metrics.md says what works with several processes"
                )
        if registry is not None:
            self._register(registry)

    @property
    def is_over(self) -> bool:
        """Whether all event loops of its clients are closed."""
        return self._clients.is_over

    def add(self, client: MeasuredClient, *, name: str | None = None) -> None:
        """Export another client. ``name`` is the value of the label ``client``: by default the client id.

        If several clients have the same name, the second one gets the suffix ``-2``, and so on. Call it in the event
        loop of the client.
        """
        self._clients.add(client, name)

    def remove(self, client: MeasuredClient) -> None:
        """Stop exporting this client."""
        self._clients.remove(client)

    def describe(self) -> list[Metric]:
        """Return all metrics without samples: ``prometheus_client`` refuses a second collector by their names.

        It calls this at the registration, which must not wait for the clients.
        """
        return [self._family(instrument) for instrument in INSTRUMENTS]

    def collect(self) -> Iterator[Metric]:
        """Yield the present metrics; ``prometheus_client`` calls it. Raises TimeoutError if the loop is blocked."""
        for instrument, samples in by_instrument(self._clients.samples()).items():
            family = self._family(instrument)
            for sample in samples:
                family.add_metric(sample.labels, sample.value)
            yield family

    def _family(self, instrument: Instrument) -> Any:
        kind = self._core.CounterMetricFamily if instrument.is_counter else self._core.GaugeMetricFamily
        return kind(instrument.family, instrument.description, labels=instrument.labels)

    def _register(self, registry: CollectorRegistry) -> None:
        earlier = _COLLECTORS.get(registry)
        if earlier is not None and earlier.is_over:
            with suppress(KeyError):  # the program may have unregistered it
                registry.unregister(earlier)
        try:
            registry.register(self)
        except ValueError as error:
            if earlier is None:
                raise  # a metric of the program has a name of ours
            raise IllegalStateError(
                "this registry has a KafkaCollector already, and both would export the same series; add the clients "
                "to the first one: collector.add(client)"
            ) from error
        _COLLECTORS[registry] = self


_COLLECTORS: weakref.WeakKeyDictionary[Any, KafkaCollector] = weakref.WeakKeyDictionary()
"""The collector of each registry, which keeps it alive anyway."""
