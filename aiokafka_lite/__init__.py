"""An asyncio-native Apache Kafka client, and an embedded Kafka broker for tests.

The names here are what most programs need. The rest is in ``aiokafka_lite.admin``, ``.producer``, ``.consumer``,
``.group`` (assignment strategies), ``.share``, ``.errors``, ``.types``, ``.config``, ``.metrics``, ``.embedded`` and
``.testing``.
Each name is imported at its first use, so ``import aiokafka_lite`` itself costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokafka_lite import lazy
from aiokafka_lite.compiled import COMPILED  # first: it decides which build of all other modules runs
from aiokafka_lite.version import VERSION

if TYPE_CHECKING:
    from aiokafka_lite.admin import Admin
    from aiokafka_lite.consumer import (
        Claim,
        Consumer,
        ConsumerGroup,
        ConsumerGroupHandler,
        ConsumerGroupSession,
        Deserializer,
        IntDeserializer,
        JsonDeserializer,
        RebalanceHandle,
        RebalanceListener,
        StrDeserializer,
    )
    from aiokafka_lite.embedded import EmbeddedCluster
    from aiokafka_lite.errors import (
        AcknowledgementFailed,
        BrokerError,
        BufferFull,
        CommitFailed,
        ConfigurationError,
        ConnectionLost,
        DeserializationError,
        ErrorCode,
        IllegalStateError,
        KafkaError,
        KafkaTimeout,
        SerializationError,
    )
    from aiokafka_lite.exactly_once import ExactlyOnce
    from aiokafka_lite.group import CommitResult
    from aiokafka_lite.models import ModelDeserializer, ModelSerializer
    from aiokafka_lite.producer import (
        Delivery,
        IntSerializer,
        JsonSerializer,
        Partitioner,
        Producer,
        ProducerInterceptor,
        ProducerRecord,
        Serializer,
        StrSerializer,
    )
    from aiokafka_lite.share import AcknowledgementResult, ShareConsumer
    from aiokafka_lite.types import (
        GroupMetadata,
        Header,
        OffsetAndMetadata,
        Record,
        RecordMetadata,
        ShareRecord,
        TopicPartition,
    )
    from aiokafka_lite.workers import FailureTopics, Workers

__version__ = VERSION

_HOMES = {
    "admin": ("Admin",),
    "consumer": (
        "Claim",
        "Consumer",
        "ConsumerGroup",
        "ConsumerGroupHandler",
        "ConsumerGroupSession",
        "Deserializer",
        "IntDeserializer",
        "JsonDeserializer",
        "RebalanceHandle",
        "RebalanceListener",
        "StrDeserializer",
    ),
    "embedded": ("EmbeddedCluster",),
    "errors": (
        "AcknowledgementFailed",
        "BrokerError",
        "BufferFull",
        "CommitFailed",
        "ConfigurationError",
        "ConnectionLost",
        "DeserializationError",
        "ErrorCode",
        "IllegalStateError",
        "KafkaError",
        "KafkaTimeout",
        "SerializationError",
    ),
    "exactly_once": ("ExactlyOnce",),
    "group": ("CommitResult",),
    "models": ("ModelDeserializer", "ModelSerializer"),
    "producer": (
        "Delivery",
        "IntSerializer",
        "JsonSerializer",
        "Partitioner",
        "Producer",
        "ProducerInterceptor",
        "ProducerRecord",
        "Serializer",
        "StrSerializer",
    ),
    "share": ("AcknowledgementResult", "ShareConsumer"),
    "types": (
        "GroupMetadata",
        "Header",
        "OffsetAndMetadata",
        "Record",
        "RecordMetadata",
        "ShareRecord",
        "TopicPartition",
    ),
    "workers": ("FailureTopics", "Workers"),
}

__all__ = [
    "COMPILED",
    "AcknowledgementFailed",
    "AcknowledgementResult",
    "Admin",
    "BrokerError",
    "BufferFull",
    "Claim",
    "CommitFailed",
    "CommitResult",
    "ConfigurationError",
    "ConnectionLost",
    "Consumer",
    "ConsumerGroup",
    "ConsumerGroupHandler",
    "ConsumerGroupSession",
    "Delivery",
    "DeserializationError",
    "Deserializer",
    "EmbeddedCluster",
    "ErrorCode",
    "ExactlyOnce",
    "FailureTopics",
    "GroupMetadata",
    "Header",
    "IllegalStateError",
    "IntDeserializer",
    "IntSerializer",
    "JsonDeserializer",
    "JsonSerializer",
    "KafkaError",
    "KafkaTimeout",
    "ModelDeserializer",
    "ModelSerializer",
    "OffsetAndMetadata",
    "Partitioner",
    "Producer",
    "ProducerInterceptor",
    "ProducerRecord",
    "RebalanceHandle",
    "RebalanceListener",
    "Record",
    "RecordMetadata",
    "SerializationError",
    "Serializer",
    "ShareConsumer",
    "ShareRecord",
    "StrDeserializer",
    "StrSerializer",
    "TopicPartition",
    "Workers",
    "__version__",
]

if not TYPE_CHECKING:  # with a __getattr__, a type checker would accept every name
    __getattr__ = lazy.attributes(__name__, _HOMES)


def __dir__() -> list[str]:
    return list(__all__)
