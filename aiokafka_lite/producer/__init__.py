"""Writing records: ``Producer``, its serializers, partitioners and interceptors.

Each name is imported at its first use: a program that only sends imports no metrics and no transactions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import lazy

if TYPE_CHECKING:
    from .bulk import BulkDelivery as BulkDelivery
    from .bulk import Written as Written
    from .delivery import Delivery as Delivery
    from .failures import FailedRecord as FailedRecord
    from .failures import Failures as Failures
    from .interceptor import ProducerInterceptor as ProducerInterceptor
    from .interceptor import ProducerRecord as ProducerRecord
    from .metrics import BrokerMetrics as BrokerMetrics
    from .metrics import ProducerMetrics as ProducerMetrics
    from .metrics import TransactionMetrics as TransactionMetrics
    from .partitioner import DefaultPartitioner as DefaultPartitioner
    from .partitioner import ExplicitPartitioner as ExplicitPartitioner
    from .partitioner import RoundRobinPartitioner as RoundRobinPartitioner
    from .partitioner_interface import BrokerLoad as BrokerLoad
    from .partitioner_interface import Partitioner as Partitioner
    from .producer import Producer as Producer
    from .results import SendResults as SendResults
    from .serializer import AsyncSerializer as AsyncSerializer
    from .serializer import BytesSerializer as BytesSerializer
    from .serializer import IntSerializer as IntSerializer
    from .serializer import JsonSerializer as JsonSerializer
    from .serializer import Serializer as Serializer
    from .serializer import StrSerializer as StrSerializer
    from .transaction import Transaction as Transaction
else:  # with a __getattr__, a type checker would accept every name
    __all__, __getattr__, __dir__ = lazy.exports(
        __name__,
        bulk="BulkDelivery Written",
        delivery="Delivery",
        failures="FailedRecord Failures",
        interceptor="ProducerInterceptor ProducerRecord",
        metrics="BrokerMetrics ProducerMetrics TransactionMetrics",
        partitioner="DefaultPartitioner ExplicitPartitioner RoundRobinPartitioner",
        partitioner_interface="BrokerLoad Partitioner",
        producer="Producer",
        results="SendResults",
        serializer="AsyncSerializer BytesSerializer IntSerializer JsonSerializer Serializer StrSerializer",
        transaction="Transaction",
    )
