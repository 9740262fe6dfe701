"""Reading records: ``Consumer`` and what it returns."""

from .arrow import BytesColumn
from .columns import Batch
from .consumer import Batches, Consumer, GroupMetadata
from .deserializer import Deserializer, IntDeserializer, JsonDeserializer, StrDeserializer
from .deserializing import OnDeserializationError
from .offsets import OffsetAndTimestamp
from .partition import OnOffsetReset, ResetReason
from .rebalance import RebalanceHandle, RebalanceListener
from .session import Claim, ConsumerGroup, ConsumerGroupHandler, ConsumerGroupSession

__all__ = [
    "Batch",
    "Batches",
    "BytesColumn",
    "Claim",
    "Consumer",
    "ConsumerGroup",
    "ConsumerGroupHandler",
    "ConsumerGroupSession",
    "Deserializer",
    "GroupMetadata",
    "IntDeserializer",
    "JsonDeserializer",
    "OffsetAndTimestamp",
    "OnDeserializationError",
    "OnOffsetReset",
    "RebalanceHandle",
    "RebalanceListener",
    "ResetReason",
    "StrDeserializer",
]
