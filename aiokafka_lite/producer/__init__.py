"""Writing records: `Producer`, and what it can be given."""

from .bulk import BulkDelivery, Written
from .delivery import Delivery
from .interceptor import ProducerInterceptor, ProducerRecord
from .metrics import BrokerMetrics, ProducerMetrics
from .partitioner import (
    BrokerLoad,
    DefaultPartitioner,
    ExplicitPartitioner,
    Forgetful,
    LoadAware,
    Partitioner,
    RoundRobinPartitioner,
)
from .producer import Producer
from .serializer import AsyncSerializer, BytesSerializer, IntSerializer, JsonSerializer, Serializer, StrSerializer

__all__ = [
    "AsyncSerializer",
    "BrokerLoad",
    "BrokerMetrics",
    "BulkDelivery",
    "BytesSerializer",
    "DefaultPartitioner",
    "Delivery",
    "ExplicitPartitioner",
    "Forgetful",
    "IntSerializer",
    "JsonSerializer",
    "LoadAware",
    "Partitioner",
    "Producer",
    "ProducerInterceptor",
    "ProducerMetrics",
    "ProducerRecord",
    "RoundRobinPartitioner",
    "Serializer",
    "StrSerializer",
    "Written",
]
