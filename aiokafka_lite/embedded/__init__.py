"""Kafka brokers inside the process: for tests, for demonstrations, and for learning how a broker works."""

from __future__ import annotations

from .broker_metrics import BrokerMetrics, ClusterMetrics, TopicMetrics
from .cluster import EmbeddedCluster, MemoryConnector
from .cluster_config import ClusterConfig
from .controller import Refused
from .faults import Exchange, Fault
from .schema_registry import EmbeddedSchemaRegistry
from .security import Security
from .telemetry import ClientMetrics

__all__ = [
    "BrokerMetrics",
    "ClientMetrics",
    "ClusterConfig",
    "ClusterMetrics",
    "EmbeddedCluster",
    "EmbeddedSchemaRegistry",
    "Exchange",
    "Fault",
    "MemoryConnector",
    "Refused",
    "Security",
    "TopicMetrics",
]
