"""Writing records: ``Producer``, its serializers, partitioners and interceptors."""

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
