"""Kafka brokers inside the process: for tests, for demonstrations, and to learn how a broker works."""

from __future__ import annotations

from .cluster import EmbeddedCluster, MemoryConnector
from .cluster_config import ClusterConfig
from .controller import Refused
from .faults import Exchange, Fault
from .security import Security
from .telemetry import ClientMetrics

__all__ = [
    "ClientMetrics",
    "ClusterConfig",
    "EmbeddedCluster",
    "Exchange",
    "Fault",
    "MemoryConnector",
    "Refused",
    "Security",
]
