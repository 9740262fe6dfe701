"""The calls of ``Consumer`` that show its state. None of them asks a broker or waits; call them in the event loop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from .consumer_core import ConsumerCore

if TYPE_CHECKING:
    from ..cluster.health import Health
    from ..net.metrics import BrokerTraffic
    from .diagnosis import ConsumerDiagnosis
    from .metrics import ConsumerMetrics


class ObservationCalls:
    """A base of ``Consumer``, which sets ``_core``."""

    _core: ConsumerCore

    def metrics(self) -> ConsumerMetrics:
        """Return a snapshot of counters and gauges. It takes some microseconds, and some more for each partition."""
        return self._core.metrics()

    def health(self, *, max_silence: float = 60.0, max_poll_ago: float | None = None) -> Health:
        """Return whether the consumer works, for liveness and readiness probes.

        It is not live after a failure and after ``close``. A member is also not live if its program has not asked for
        records for more than ``max_poll_ago`` seconds (``max_poll_interval`` by default). The consumer is not ready
        before the start and the first assignment, and while it is not a member. It is also not ready when requests wait
        or fail, and no broker has answered for more than ``max_silence`` seconds. Raises ConfigurationError for a wrong
        limit.
        """
        return self._core.health(max_silence, max_poll_ago)

    def traffic(self) -> Mapping[int, BrokerTraffic]:
        """Requests, bytes, latencies and throttle times of each broker so far, by its id, over all APIs.

        A bootstrap address has a negative id.
        """
        return self._core.traffic()

    def diagnose(self) -> ConsumerDiagnosis:
        """Return the state of the consumer, its membership, its connections and its event loop, to print into a bug
        report.

        The lag is known from the last answers of brokers.
        """
        return self._core.diagnose(self._core.coordinator)
