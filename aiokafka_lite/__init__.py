"""An asyncio-native Apache Kafka client, and an embedded broker to test against.

The public names, nothing else. Each is imported when it is first asked for: `import aiokafka_lite` costs a command
line or a test session that only looks at it next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from aiokafka_lite.version import VERSION

if TYPE_CHECKING:
    from aiokafka_lite.admin import Admin
    from aiokafka_lite.config import ClientConfig, ConsumerConfig, GroupConfig, ProducerConfig
    from aiokafka_lite.consumer import (
        Claim,
        Consumer,
        ConsumerGroup,
        ConsumerGroupHandler,
        ConsumerGroupSession,
        GroupMetadata,
        IntDeserializer,
        JsonDeserializer,
        RebalanceHandle,
        RebalanceListener,
        ResetReason,
        StrDeserializer,
    )
    from aiokafka_lite.embedded import EmbeddedCluster
    from aiokafka_lite.errors import (
        AuthenticationError,
        AuthorizationError,
        BrokerError,
        BufferFull,
        CommitFailed,
        ConfigurationError,
        ConnectionLost,
        CorruptRecord,
        DeserializationError,
        ErrorCode,
        IllegalStateError,
        InvalidTopic,
        KafkaError,
        KafkaTimeout,
        OffsetOutOfRange,
        ProducerFenced,
        ProtocolError,
        RecordTooLarge,
        SerializationError,
        UnknownTopic,
        UnsupportedVersion,
    )
    from aiokafka_lite.group import (
        AssignmentStrategy,
        CommitResult,
        CooperativeStickyStrategy,
        GroupMember,
        MemberState,
        RangeStrategy,
        RoundRobinStrategy,
        StickyStrategy,
    )
    from aiokafka_lite.producer import (
        AsyncSerializer,
        BrokerLoad,
        BrokerMetrics,
        BytesSerializer,
        DefaultPartitioner,
        Delivery,
        ExplicitPartitioner,
        IntSerializer,
        JsonSerializer,
        LoadAware,
        Partitioner,
        Producer,
        ProducerInterceptor,
        ProducerMetrics,
        ProducerRecord,
        RoundRobinPartitioner,
        Serializer,
        StrSerializer,
    )
    from aiokafka_lite.types import (
        Compression,
        Header,
        IsolationLevel,
        Node,
        OffsetAndMetadata,
        Record,
        RecordMetadata,
        TimestampType,
        TopicPartition,
    )

__version__ = VERSION

_HOMES = {
    "admin": ("Admin",),
    "config": ("ClientConfig", "ConsumerConfig", "GroupConfig", "ProducerConfig"),
    "consumer": (
        "Claim",
        "Consumer",
        "ConsumerGroup",
        "ConsumerGroupHandler",
        "ConsumerGroupSession",
        "GroupMetadata",
        "RebalanceHandle",
        "RebalanceListener",
        "IntDeserializer",
        "JsonDeserializer",
        "ResetReason",
        "StrDeserializer",
    ),
    "embedded": ("EmbeddedCluster",),
    "errors": (
        "AuthenticationError",
        "AuthorizationError",
        "BrokerError",
        "BufferFull",
        "CommitFailed",
        "ConfigurationError",
        "ConnectionLost",
        "CorruptRecord",
        "DeserializationError",
        "ErrorCode",
        "IllegalStateError",
        "InvalidTopic",
        "KafkaError",
        "KafkaTimeout",
        "OffsetOutOfRange",
        "ProducerFenced",
        "ProtocolError",
        "RecordTooLarge",
        "SerializationError",
        "UnknownTopic",
        "UnsupportedVersion",
    ),
    "group": (
        "AssignmentStrategy",
        "CommitResult",
        "CooperativeStickyStrategy",
        "GroupMember",
        "MemberState",
        "RangeStrategy",
        "RoundRobinStrategy",
        "StickyStrategy",
    ),
    "producer": (
        "AsyncSerializer",
        "BrokerLoad",
        "BrokerMetrics",
        "BytesSerializer",
        "DefaultPartitioner",
        "Delivery",
        "ExplicitPartitioner",
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
    ),
    "types": (
        "Compression",
        "Header",
        "IsolationLevel",
        "Node",
        "OffsetAndMetadata",
        "Record",
        "RecordMetadata",
        "TimestampType",
        "TopicPartition",
    ),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "Admin",
    "AssignmentStrategy",
    "AsyncSerializer",
    "AuthenticationError",
    "AuthorizationError",
    "BrokerError",
    "BrokerLoad",
    "BrokerMetrics",
    "BufferFull",
    "BytesSerializer",
    "Claim",
    "ClientConfig",
    "CommitFailed",
    "CommitResult",
    "Compression",
    "ConfigurationError",
    "ConnectionLost",
    "Consumer",
    "ConsumerConfig",
    "ConsumerGroup",
    "ConsumerGroupHandler",
    "ConsumerGroupSession",
    "CooperativeStickyStrategy",
    "CorruptRecord",
    "DefaultPartitioner",
    "Delivery",
    "DeserializationError",
    "EmbeddedCluster",
    "ErrorCode",
    "ExplicitPartitioner",
    "GroupConfig",
    "GroupMember",
    "GroupMetadata",
    "Header",
    "IllegalStateError",
    "IntDeserializer",
    "IntSerializer",
    "InvalidTopic",
    "IsolationLevel",
    "JsonDeserializer",
    "JsonSerializer",
    "KafkaError",
    "KafkaTimeout",
    "LoadAware",
    "MemberState",
    "Node",
    "OffsetAndMetadata",
    "OffsetOutOfRange",
    "Partitioner",
    "Producer",
    "ProducerConfig",
    "ProducerFenced",
    "ProducerInterceptor",
    "ProducerMetrics",
    "ProducerRecord",
    "ProtocolError",
    "RangeStrategy",
    "RebalanceHandle",
    "RebalanceListener",
    "Record",
    "RecordMetadata",
    "RecordTooLarge",
    "ResetReason",
    "RoundRobinPartitioner",
    "RoundRobinStrategy",
    "SerializationError",
    "Serializer",
    "StickyStrategy",
    "StrDeserializer",
    "StrSerializer",
    "TimestampType",
    "TopicPartition",
    "UnknownTopic",
    "UnsupportedVersion",
    "__version__",
]


def __getattr__(name: str) -> object:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
