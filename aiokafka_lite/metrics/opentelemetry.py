"""Metrics for OpenTelemetry, as observable instruments (``pip install aiokafka_lite[opentelemetry]``).

``aiokafka_lite.tracing`` makes the spans.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..extras import extra
from ..version import VERSION
from .clients import Client, ObservedClients
from .instruments import INSTRUMENTS, Instrument, Sample, by_instrument

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation


class KafkaMeter:
    """Observable instruments with the metrics of clients of this event loop.

    ::

        meter = KafkaMeter(producer, consumer)

    The instruments belong to ``meter_provider``, by default the global one. A reader in another thread waits until the
    event loop has read the clients, for 5 seconds at most. The meter keeps no client alive.

    Raises ConfigurationError without the extra ``opentelemetry``, IllegalStateError outside of an event loop.
    """

    def __init__(self, *clients: Client, meter_provider: MeterProvider | None = None) -> None:
        self._api: Any = extra("opentelemetry.metrics", "opentelemetry")
        self._clients = ObservedClients()
        self._samples: Mapping[Instrument, Sequence[Sample]] = {}
        self._read: set[Instrument] = set()  # the instruments that have read the present samples
        for client in clients:
            self.add(client)
        meter = self._api.get_meter("aiokafka_lite", VERSION, meter_provider)
        for each in INSTRUMENTS:
            make = meter.create_observable_counter if each.is_counter else meter.create_observable_gauge
            make(each.opentelemetry_name, [self._observer(each)], unit=each.unit, description=each.description)

    def add(self, client: Client, *, name: str | None = None) -> None:
        """Observe another client. ``name`` is the attribute ``client``: by default the client id.

        If several clients have the same name, the second one gets the suffix ``-2``, and so on.
        """
        self._clients.add(client, name)

    def remove(self, client: Client) -> None:
        """Stop observing this client."""
        self._clients.remove(client)

    def _observer(self, instrument: Instrument) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observe(options: CallbackOptions) -> Iterable[Observation]:
            # A reader asks each instrument once per reading. An instrument that is asked again begins the next reading.
            if instrument in self._read or not self._read:
                # Drop the old samples before reading new ones. If the event loop is blocked, only this instrument
                # fails: the others have no samples, and do not wait for the event loop again.
                self._samples, self._read = {}, {instrument}
                self._samples = by_instrument(self._clients.samples())
            self._read.add(instrument)
            return [
                self._api.Observation(sample.value, dict(zip(instrument.labels, sample.labels)))
                for sample in self._samples.get(instrument, ())
            ]

        return observe
