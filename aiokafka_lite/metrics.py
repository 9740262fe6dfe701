"""Snapshots that ``metrics()`` and ``traffic()`` of a client return."""

from .net.traffic import BrokerTraffic
from .producer.metrics import BrokerMetrics, ProducerMetrics, TransactionMetrics

__all__ = ["BrokerMetrics", "BrokerTraffic", "ProducerMetrics", "TransactionMetrics"]
