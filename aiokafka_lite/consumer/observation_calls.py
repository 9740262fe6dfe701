"""The calls of ``Consumer`` that show its state. None of them asks a broker or waits; call them in the event loop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from .consumer_core import ConsumerCore

if TYPE_CHECKING:
    from ..net.metrics import BrokerTraffic
    from .diagnosis import ConsumerDiagnosis
    from .metrics import ConsumerMetrics


class ObservationCalls:
    """A base of ``Consumer``, which sets ``_core``."""

    _core: ConsumerCore

    def metrics(self) -> ConsumerMetrics:
        """A snapshot of counters and gauges. Costs some microseconds, and some for each partition."""
        return self._core.metrics()

    def traffic(self) -> Mapping[int, BrokerTraffic]:
        """Requests, bytes, latencies and throttle times of each broker so far, by its id, over all APIs.

        A bootstrap address has a negative id.
        """
        return self._core.client.traffic()

    def diagnose(self) -> ConsumerDiagnosis:
        """The state of the consumer, its membership, its connections and its event loop, to print into a bug report.

        Lag is by the last answers.
        """
        return self._core.diagnose(self._core.coordinator)
