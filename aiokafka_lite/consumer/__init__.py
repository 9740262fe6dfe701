"""Reading records: ``Consumer`` and what it returns.

Each name is imported at its first use: a program that needs only a part, such as a Spark worker, imports only that
part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import lazy

if TYPE_CHECKING:
    from .claim import Claim
    from .columns import Batch, BytesColumn
    from .consumer import Consumer
    from .consumer_group import ConsumerGroup
    from .deserializer import Deserializer, IntDeserializer, JsonDeserializer, StrDeserializer
    from .deserializing import OnDeserializationError
    from .group_side import GroupMetadata
    from .handler import ConsumerGroupHandler
    from .interceptor import ConsumerInterceptor
    from .iteration import ArrowBatches, Batches, PartitionReader
    from .offsets import OffsetAndTimestamp
    from .position import OnOffsetReset, ResetReason
    from .rebalance import RebalanceHandle, RebalanceListener
    from .session import ConsumerGroupSession

_HOMES = {
    "columns": ("Batch", "BytesColumn"),
    "claim": ("Claim",),
    "consumer": ("Consumer",),
    "consumer_group": ("ConsumerGroup",),
    "deserializer": ("Deserializer", "IntDeserializer", "JsonDeserializer", "StrDeserializer"),
    "deserializing": ("OnDeserializationError",),
    "group_side": ("GroupMetadata",),
    "handler": ("ConsumerGroupHandler",),
    "interceptor": ("ConsumerInterceptor",),
    "iteration": ("ArrowBatches", "Batches", "PartitionReader"),
    "offsets": ("OffsetAndTimestamp",),
    "position": ("OnOffsetReset", "ResetReason"),
    "rebalance": ("RebalanceHandle", "RebalanceListener"),
    "session": ("ConsumerGroupSession",),
}

__all__ = [
    "ArrowBatches",
    "Batch",
    "Batches",
    "BytesColumn",
    "Claim",
    "Consumer",
    "ConsumerGroup",
    "ConsumerGroupHandler",
    "ConsumerGroupSession",
    "ConsumerInterceptor",
    "Deserializer",
    "GroupMetadata",
    "IntDeserializer",
    "JsonDeserializer",
    "OffsetAndTimestamp",
    "OnDeserializationError",
    "OnOffsetReset",
    "PartitionReader",
    "RebalanceHandle",
    "RebalanceListener",
    "ResetReason",
    "StrDeserializer",
]

if not TYPE_CHECKING:  # with a __getattr__, a type checker would accept every name
    __getattr__ = lazy.attributes(__name__, _HOMES)
