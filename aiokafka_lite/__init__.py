"""An asyncio-native Apache Kafka client, and an embedded Kafka broker for tests.

This module contains the names that most programs need: the clients, their records and results, ``Workers``,
``ExactlyOnce``, and the serializers. Of the errors it contains the four that say whose fault it
is: ``KafkaError`` is the base of all, ``ConfigurationError`` means a wrong argument, ``BrokerError`` a broker's
refusal, ``KafkaTimeout`` no answer in time. All others are in ``aiokafka_lite.errors``.

Other names are in ``aiokafka_lite.admin``, ``.producer`` (partitioners, interceptors), ``.consumer`` (rebalance
listeners, interceptors), ``.group`` (assignment strategies), ``.share``, ``.types``, ``.config``, ``.metrics``,
``.embedded`` and ``.testing``. Each name is imported at its first use, so ``import aiokafka_lite`` itself is fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokafka_lite import lazy
from aiokafka_lite.compiled import COMPILED  # first: it decides which build of all other modules runs
from aiokafka_lite.version import VERSION

if TYPE_CHECKING:
    from aiokafka_lite.admin import Admin as Admin
    from aiokafka_lite.consumer import Claim as Claim
    from aiokafka_lite.consumer import Consumer as Consumer
    from aiokafka_lite.consumer import ConsumerGroup as ConsumerGroup
    from aiokafka_lite.consumer import ConsumerGroupHandler as ConsumerGroupHandler
    from aiokafka_lite.consumer import ConsumerGroupSession as ConsumerGroupSession
    from aiokafka_lite.consumer import Deserializer as Deserializer
    from aiokafka_lite.consumer import JsonDeserializer as JsonDeserializer
    from aiokafka_lite.consumer import StrDeserializer as StrDeserializer
    from aiokafka_lite.embedded import EmbeddedCluster as EmbeddedCluster
    from aiokafka_lite.errors import BrokerError as BrokerError
    from aiokafka_lite.errors import ConfigurationError as ConfigurationError
    from aiokafka_lite.errors import KafkaError as KafkaError
    from aiokafka_lite.errors import KafkaTimeout as KafkaTimeout
    from aiokafka_lite.processing.exactly_once import ExactlyOnce as ExactlyOnce
    from aiokafka_lite.processing.workers import Workers as Workers
    from aiokafka_lite.producer import Delivery as Delivery
    from aiokafka_lite.producer import JsonSerializer as JsonSerializer
    from aiokafka_lite.producer import Producer as Producer
    from aiokafka_lite.producer import Serializer as Serializer
    from aiokafka_lite.producer import StrSerializer as StrSerializer
    from aiokafka_lite.serialization.models import ModelDeserializer as ModelDeserializer
    from aiokafka_lite.serialization.models import ModelSerializer as ModelSerializer
    from aiokafka_lite.share import ShareConsumer as ShareConsumer
    from aiokafka_lite.types import OffsetAndMetadata as OffsetAndMetadata
    from aiokafka_lite.types import Record as Record
    from aiokafka_lite.types import RecordMetadata as RecordMetadata
    from aiokafka_lite.types import ShareRecord as ShareRecord
    from aiokafka_lite.types import SubscriptionPattern as SubscriptionPattern
    from aiokafka_lite.types import TopicPartition as TopicPartition
else:  # with a __getattr__, a type checker would accept every name
    __all__, __getattr__, __dir__ = lazy.exports(
        __name__,
        {
            ".admin": "Admin",
            ".consumer": """
                Claim Consumer ConsumerGroup ConsumerGroupHandler ConsumerGroupSession Deserializer JsonDeserializer
                StrDeserializer
            """,
            ".embedded": "EmbeddedCluster",
            ".errors": "BrokerError ConfigurationError KafkaError KafkaTimeout",
            ".processing.exactly_once": "ExactlyOnce",
            ".processing.workers": "Workers",
            ".producer": "Delivery JsonSerializer Producer Serializer StrSerializer",
            ".serialization.models": "ModelDeserializer ModelSerializer",
            ".share": "ShareConsumer",
            ".types": "OffsetAndMetadata Record RecordMetadata ShareRecord SubscriptionPattern TopicPartition",
        },
    )
    __all__ += ["__version__"]

__version__ = VERSION
