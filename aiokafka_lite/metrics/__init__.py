"""Snapshots that ``metrics()``, ``traffic()`` and ``health()`` of a client return, and their exporters.

``prometheus`` and ``opentelemetry`` need the extras of these names.
"""

from ..cluster.health import Health
from ..cluster.metrics import ClientMetrics
from ..consumer.metrics import ConsumerMetrics, GroupMetrics, MemberMetrics, PartitionMetrics
from ..net.metrics import BrokerTraffic, LatencyMetrics, RequestMetrics
from ..processing.workers import WorkersMetrics
from ..producer.metrics import ProducerMetrics, SenderMetrics, TransactionMetrics
from ..share.metrics import ShareConsumerMetrics

__all__ = [
    "BrokerTraffic",
    "ClientMetrics",
    "ConsumerMetrics",
    "GroupMetrics",
    "Health",
    "LatencyMetrics",
    "MemberMetrics",
    "PartitionMetrics",
    "ProducerMetrics",
    "RequestMetrics",
    "SenderMetrics",
    "ShareConsumerMetrics",
    "TransactionMetrics",
    "WorkersMetrics",
]
