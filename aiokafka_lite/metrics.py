"""Snapshots that ``metrics()`` of a client returns."""

from .producer.metrics import BrokerMetrics, ProducerMetrics

__all__ = ["BrokerMetrics", "ProducerMetrics"]
