"""Kafka brokers inside the process: for tests, for demonstrations, and for learning how a broker works."""

from __future__ import annotations

from .broker_metrics import BrokerMetrics, ClusterMetrics, RequestMetrics, TopicMetrics
from .client_telemetry import MetricsPush
from .cluster import EmbeddedCluster, MemoryConnector
from .cluster_config import ClusterConfig
from .faults import Exchange, Fault
from .metadata.controller import Refused
from .registry.schema_registry import EmbeddedSchemaRegistry
from .security.security import Security
from .services import service_cluster

__all__ = [
    "BrokerMetrics",
    "ClusterConfig",
    "ClusterMetrics",
    "EmbeddedCluster",
    "EmbeddedSchemaRegistry",
    "Exchange",
    "Fault",
    "MemoryConnector",
    "MetricsPush",
    "Refused",
    "RequestMetrics",
    "Security",
    "TopicMetrics",
    "service_cluster",
]
