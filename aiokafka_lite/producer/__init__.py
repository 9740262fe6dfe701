"""Writing records: ``Producer``, its serializers, partitioners and interceptors.

Each name is imported at its first use: a program that only sends imports no metrics and no transactions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import lazy

if TYPE_CHECKING:
    from ..serialization.serializer import AsyncSerializer as AsyncSerializer
    from ..serialization.serializer import BytesSerializer as BytesSerializer
    from ..serialization.serializer import IntSerializer as IntSerializer
    from ..serialization.serializer import JsonSerializer as JsonSerializer
    from ..serialization.serializer import Serializer as Serializer
    from ..serialization.serializer import StrSerializer as StrSerializer
    from ..settings.producer import TopicSettings as TopicSettings
    from .accept.arrow import BulkDelivery as BulkDelivery
    from .accept.arrow import Written as Written
    from .accept.interceptor import ProducerInterceptor as ProducerInterceptor
    from .accept.interceptor import ProducerRecord as ProducerRecord
    from .accept.results import SendResults as SendResults
    from .delivery import Delivery as Delivery
    from .failures import FailedRecord as FailedRecord
    from .failures import Failures as Failures
    from .metrics import ProducerMetrics as ProducerMetrics
    from .metrics import SenderMetrics as SenderMetrics
    from .metrics import TransactionMetrics as TransactionMetrics
    from .partitioning.by_topic import PartitionerByTopic as PartitionerByTopic
    from .partitioning.interface import BrokerLoad as BrokerLoad
    from .partitioning.interface import Partitioner as Partitioner
    from .partitioning.partitioner import DefaultPartitioner as DefaultPartitioner
    from .partitioning.partitioner import ExplicitPartitioner as ExplicitPartitioner
    from .partitioning.partitioner import RoundRobinPartitioner as RoundRobinPartitioner
    from .producer import Producer as Producer
    from .transaction import Transaction as Transaction
else:  # with a __getattr__, a type checker would accept every name
    __all__, __getattr__, __dir__ = lazy.exports(
        __name__,
        {
            ".accept.arrow": "BulkDelivery Written",
            ".partitioning.partitioner": "DefaultPartitioner ExplicitPartitioner RoundRobinPartitioner",
            ".partitioning.by_topic": "PartitionerByTopic",
            ".partitioning.interface": "BrokerLoad Partitioner",
            ".delivery": "Delivery",
            ".failures": "FailedRecord Failures",
            ".accept.interceptor": "ProducerInterceptor ProducerRecord",
            ".metrics": "SenderMetrics ProducerMetrics TransactionMetrics",
            ".producer": "Producer",
            ".accept.results": "SendResults",
            "..serialization.serializer": """
                AsyncSerializer BytesSerializer IntSerializer JsonSerializer Serializer StrSerializer
            """,
            "..settings.producer": "TopicSettings",
            ".transaction": "Transaction",
        },
    )
