"""Metrics for OpenTelemetry, as observable instruments (``pip install aiokafka_lite[opentelemetry]``).

``aiokafka_lite.tracing`` makes the spans.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import IllegalStateError
from ..extras import extra
from ..version import VERSION
from .clients import MeasuredClient, ObservedClients
from .instruments import INSTRUMENTS, Instrument, Sample, by_instrument
from .totals import MonotonicTotals

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation


class KafkaMeter:
    """Observable instruments with the metrics of clients.

    ::

        meter = KafkaMeter(producer, consumer)

    The instruments belong to ``meter_provider``, by default the global one, which takes one meter: add the clients of
    other modules with ``add``, those of another event loop in that loop. A reader in another thread waits until the
    event loop has read the clients, for 5 seconds at most. The meter keeps no client alive. Counters never fall: if a
    client is made again under the same name, they continue.

    Raises ConfigurationError without the extra ``opentelemetry``, IllegalStateError outside of an event loop and for a
    second meter of a provider. A meter whose event loops are all closed is replaced.
    """

    def __init__(self, *clients: MeasuredClient, meter_provider: MeterProvider | None = None) -> None:
        api: Any = extra("opentelemetry.metrics", "opentelemetry")
        self._clients = ObservedClients()
        provider = api.get_meter_provider() if meter_provider is None else meter_provider
        exported = _EXPORTED.get(provider)
        if exported is None:
            exported = _Exported(api)
        elif not exported.is_over:
            raise IllegalStateError(
                "this meter provider has a KafkaMeter already, and both would export series with the same attributes; "
                "add the clients to the first one: meter.add(client)"
            )
        self._exported = exported
        for client in clients:
            self.add(client)
        exported.clients = self._clients
        if provider not in _EXPORTED:
            _EXPORTED[provider] = exported
            exported.make_instruments(provider)

    def add(self, client: MeasuredClient, *, name: str | None = None) -> None:
        """Observe another client. ``name`` is the attribute ``client``: by default the client id.

        If several clients have the same name, the second one gets the suffix ``-2``, and so on. Call it in the event
        loop of the client.
        """
        self._exported.named(self._clients.add(client, name), client)

    def remove(self, client: MeasuredClient) -> None:
        """Stop observing this client. Its counts remain in the totals of its name."""
        for sample in self._clients.samples_of(client):
            self._exported.totals.of(sample)
        self._clients.remove(client)


class _Exported:
    """The instruments of a provider, and their totals. A provider makes an instrument once, for each of its meters."""

    def __init__(self, api: Any) -> None:
        self._api = api
        self.clients: ObservedClients | None = None
        """The clients of the present meter."""
        self.totals = MonotonicTotals()
        self._named: dict[str, weakref.ref[MeasuredClient]] = {}  # the last client of each name
        self._samples: Mapping[Instrument, Sequence[Sample]] = {}
        self._read: set[Instrument] = set()  # the instruments that have read the present samples

    @property
    def is_over(self) -> bool:
        """Whether all event loops of the present clients are closed."""
        return self.clients is None or self.clients.is_over

    def make_instruments(self, provider: MeterProvider) -> None:
        meter = self._api.get_meter("aiokafka_lite", VERSION, provider)
        for instrument in INSTRUMENTS:
            make = meter.create_observable_counter if instrument.is_counter else meter.create_observable_gauge
            make(
                instrument.opentelemetry_name,
                [self._observer(instrument)],
                unit=instrument.unit,
                description=instrument.description,
            )

    def named(self, name: str, client: MeasuredClient) -> None:
        """Note the client of a name. The counters of an earlier client of this name have ended."""
        earlier = self._named.get(name)
        if earlier is not None and earlier() is not client:
            self.totals.end(name)
        self._named[name] = weakref.ref(client)

    def _observer(self, instrument: Instrument) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observe(options: CallbackOptions) -> Iterable[Observation]:
            # A reader asks each instrument once per reading. An instrument that is asked again begins the next reading.
            if instrument in self._read or not self._read:
                # Drop the old samples before reading new ones. If the event loop is blocked, only this instrument
                # fails: the others have no samples, and do not wait for the event loop again.
                self._samples, self._read = {}, {instrument}
                self._samples = by_instrument([] if self.clients is None else self.clients.samples())
            self._read.add(instrument)
            return [
                self._api.Observation(self.totals.of(sample), dict(zip(instrument.labels, sample.labels)))
                for sample in self._samples.get(instrument, ())
            ]

        return observe


_EXPORTED: weakref.WeakKeyDictionary[Any, _Exported] = weakref.WeakKeyDictionary()
"""The instruments of each provider. A provider keeps their callbacks alive as long as itself."""
