"""Writing records: ``Producer``, its serializers, partitioners and interceptors.

Each name is imported at its first use: a program that only sends imports no metrics and no transactions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import lazy

if TYPE_CHECKING:
    from .bulk import BulkDelivery, Written
    from .delivery import Delivery
    from .failures import FailedRecord, Failures
    from .interceptor import ProducerInterceptor, ProducerRecord
    from .metrics import BrokerMetrics, ProducerMetrics, TransactionMetrics
    from .partitioner import DefaultPartitioner, ExplicitPartitioner, RoundRobinPartitioner
    from .partitioner_interface import BrokerLoad, Partitioner
    from .producer import Producer
    from .results import SendResults
    from .serializer import AsyncSerializer, BytesSerializer, IntSerializer, JsonSerializer, Serializer, StrSerializer
    from .transaction import Transaction

_HOMES = {
    "bulk": ("BulkDelivery", "Written"),
    "delivery": ("Delivery",),
    "failures": ("FailedRecord", "Failures"),
    "interceptor": ("ProducerInterceptor", "ProducerRecord"),
    "metrics": ("BrokerMetrics", "ProducerMetrics", "TransactionMetrics"),
    "partitioner": ("DefaultPartitioner", "ExplicitPartitioner", "RoundRobinPartitioner"),
    "partitioner_interface": ("BrokerLoad", "Partitioner"),
    "producer": ("Producer",),
    "results": ("SendResults",),
    "serializer": (
        "AsyncSerializer",
        "BytesSerializer",
        "IntSerializer",
        "JsonSerializer",
        "Serializer",
        "StrSerializer",
    ),
    "transaction": ("Transaction",),
}

__all__ = [
    "AsyncSerializer",
    "BrokerLoad",
    "BrokerMetrics",
    "BulkDelivery",
    "BytesSerializer",
    "DefaultPartitioner",
    "Delivery",
    "ExplicitPartitioner",
    "FailedRecord",
    "Failures",
    "IntSerializer",
    "JsonSerializer",
    "Partitioner",
    "Producer",
    "ProducerInterceptor",
    "ProducerMetrics",
    "ProducerRecord",
    "RoundRobinPartitioner",
    "SendResults",
    "Serializer",
    "StrSerializer",
    "Transaction",
    "TransactionMetrics",
    "Written",
]

if not TYPE_CHECKING:  # with a __getattr__, a type checker would accept every name
    __getattr__ = lazy.attributes(__name__, _HOMES)
