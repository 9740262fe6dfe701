"""Counters as sums that never fall, for exporters whose protocol has no other sums.

A counter begins again at 0 if its client is made again under the same name, or if a broker leaves the cluster and
returns. Prometheus expects that. OpenTelemetry does not: its SDK subtracts the last value from the present one, so a
backend gets a negative increase of a monotonic sum.
"""

from __future__ import annotations

from dataclasses import dataclass

from .instruments import Instrument, Sample


@dataclass(slots=True)
class _Total:
    ended: float = 0.0
    """The sum of the counters that have ended."""
    last: float = 0.0
    """The last value of the present counter."""


class MonotonicTotals:
    """The total of each counter, by its labels. The first label is the name of the client."""

    def __init__(self) -> None:
        self._totals: dict[tuple[Instrument, tuple[str, ...]], _Total] = {}

    def of(self, sample: Sample) -> float:
        """Return the value of a gauge, or the total of a counter. A counter that has fallen has begun again at 0."""
        if not sample.instrument.is_counter:
            return sample.value
        total = self._totals.setdefault((sample.instrument, sample.labels), _Total())
        if sample.value < total.last:
            total.ended += total.last
        total.last = sample.value
        return total.ended + total.last

    def end(self, client: str) -> None:
        """End the counters of a client, because another client has its name. It may soon have higher values."""
        for (_, labels), total in self._totals.items():
            if labels[0] == client:
                total.ended, total.last = total.ended + total.last, 0.0
