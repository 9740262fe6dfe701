"""An asyncio-native Apache Kafka client, and an embedded Kafka broker for tests.

This module has the names that most programs need. The others are in ``aiokafka_lite.admin``, ``.producer``,
``.consumer``, ``.group`` (assignment strategies), ``.share``, ``.errors``, ``.types``, ``.config``, ``.metrics``,
``.embedded`` and ``.testing``. Each name is imported at its first use, so ``import aiokafka_lite`` itself is fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokafka_lite import lazy
from aiokafka_lite.compiled import COMPILED as COMPILED  # first: it decides which build of all other modules runs
from aiokafka_lite.version import VERSION

if TYPE_CHECKING:
    from aiokafka_lite.admin import Admin as Admin
    from aiokafka_lite.consumer import Claim as Claim
    from aiokafka_lite.consumer import Consumer as Consumer
    from aiokafka_lite.consumer import ConsumerGroup as ConsumerGroup
    from aiokafka_lite.consumer import ConsumerGroupHandler as ConsumerGroupHandler
    from aiokafka_lite.consumer import ConsumerGroupSession as ConsumerGroupSession
    from aiokafka_lite.consumer import ConsumerInterceptor as ConsumerInterceptor
    from aiokafka_lite.consumer import Deserializer as Deserializer
    from aiokafka_lite.consumer import IntDeserializer as IntDeserializer
    from aiokafka_lite.consumer import JsonDeserializer as JsonDeserializer
    from aiokafka_lite.consumer import RebalanceHandle as RebalanceHandle
    from aiokafka_lite.consumer import RebalanceListener as RebalanceListener
    from aiokafka_lite.consumer import StrDeserializer as StrDeserializer
    from aiokafka_lite.embedded import EmbeddedCluster as EmbeddedCluster
    from aiokafka_lite.errors import AcknowledgementFailed as AcknowledgementFailed
    from aiokafka_lite.errors import BrokerError as BrokerError
    from aiokafka_lite.errors import BufferFull as BufferFull
    from aiokafka_lite.errors import CommitFailed as CommitFailed
    from aiokafka_lite.errors import ConfigurationError as ConfigurationError
    from aiokafka_lite.errors import ConnectionLost as ConnectionLost
    from aiokafka_lite.errors import DeserializationError as DeserializationError
    from aiokafka_lite.errors import ErrorCode as ErrorCode
    from aiokafka_lite.errors import IllegalStateError as IllegalStateError
    from aiokafka_lite.errors import KafkaError as KafkaError
    from aiokafka_lite.errors import KafkaTimeout as KafkaTimeout
    from aiokafka_lite.errors import SerializationError as SerializationError
    from aiokafka_lite.group import CommitResult as CommitResult
    from aiokafka_lite.processing.exactly_once import ExactlyOnce as ExactlyOnce
    from aiokafka_lite.processing.failure_topics import FailureTopics as FailureTopics
    from aiokafka_lite.processing.workers import Workers as Workers
    from aiokafka_lite.producer import Delivery as Delivery
    from aiokafka_lite.producer import IntSerializer as IntSerializer
    from aiokafka_lite.producer import JsonSerializer as JsonSerializer
    from aiokafka_lite.producer import Partitioner as Partitioner
    from aiokafka_lite.producer import Producer as Producer
    from aiokafka_lite.producer import ProducerInterceptor as ProducerInterceptor
    from aiokafka_lite.producer import ProducerRecord as ProducerRecord
    from aiokafka_lite.producer import Serializer as Serializer
    from aiokafka_lite.producer import StrSerializer as StrSerializer
    from aiokafka_lite.serialization.models import ModelDeserializer as ModelDeserializer
    from aiokafka_lite.serialization.models import ModelSerializer as ModelSerializer
    from aiokafka_lite.share import AcknowledgementResult as AcknowledgementResult
    from aiokafka_lite.share import ShareConsumer as ShareConsumer
    from aiokafka_lite.types import GroupMetadata as GroupMetadata
    from aiokafka_lite.types import Header as Header
    from aiokafka_lite.types import OffsetAndMetadata as OffsetAndMetadata
    from aiokafka_lite.types import Record as Record
    from aiokafka_lite.types import RecordMetadata as RecordMetadata
    from aiokafka_lite.types import ShareRecord as ShareRecord
    from aiokafka_lite.types import TopicPartition as TopicPartition
else:  # with a __getattr__, a type checker would accept every name
    __all__, __getattr__, __dir__ = lazy.exports(
        __name__,
        {
            ".admin": "Admin",
            ".consumer": """
                Claim Consumer ConsumerGroup ConsumerGroupHandler ConsumerGroupSession ConsumerInterceptor
                Deserializer IntDeserializer JsonDeserializer RebalanceHandle RebalanceListener StrDeserializer
            """,
            ".embedded": "EmbeddedCluster",
            ".errors": """
                AcknowledgementFailed BrokerError BufferFull CommitFailed ConfigurationError ConnectionLost
                DeserializationError ErrorCode IllegalStateError KafkaError KafkaTimeout SerializationError
            """,
            ".group": "CommitResult",
            ".processing.exactly_once": "ExactlyOnce",
            ".processing.failure_topics": "FailureTopics",
            ".processing.workers": "Workers",
            ".producer": """
                Delivery IntSerializer JsonSerializer Partitioner Producer ProducerInterceptor ProducerRecord
                Serializer StrSerializer
            """,
            ".serialization.models": "ModelDeserializer ModelSerializer",
            ".share": "AcknowledgementResult ShareConsumer",
            ".types": "GroupMetadata Header OffsetAndMetadata Record RecordMetadata ShareRecord TopicPartition",
        },
    )
    __all__ += ["COMPILED", "__version__"]

__version__ = VERSION
