"""Snapshots that ``metrics()`` and ``traffic()`` of a client return."""

from .net.traffic import BrokerTraffic
from .producer.metrics import BrokerMetrics, ProducerMetrics

__all__ = ["BrokerMetrics", "BrokerTraffic", "ProducerMetrics"]
