"""Reading records: ``Consumer`` and what it returns.

Each name is imported when it is first asked for: who takes a part, as Spark's workers do, does not pay for the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import lazy

if TYPE_CHECKING:
    from .columns import Batch, BytesColumn
    from .consumer import Batches, Consumer, GroupMetadata
    from .deserializer import Deserializer, IntDeserializer, JsonDeserializer, StrDeserializer
    from .deserializing import OnDeserializationError
    from .offsets import OffsetAndTimestamp
    from .partition import OnOffsetReset, ResetReason
    from .rebalance import RebalanceHandle, RebalanceListener
    from .session import Claim, ConsumerGroup, ConsumerGroupHandler, ConsumerGroupSession

_HOMES = {
    "columns": ("Batch", "BytesColumn"),
    "consumer": ("Batches", "Consumer", "GroupMetadata"),
    "deserializer": ("Deserializer", "IntDeserializer", "JsonDeserializer", "StrDeserializer"),
    "deserializing": ("OnDeserializationError",),
    "offsets": ("OffsetAndTimestamp",),
    "partition": ("OnOffsetReset", "ResetReason"),
    "rebalance": ("RebalanceHandle", "RebalanceListener"),
    "session": ("Claim", "ConsumerGroup", "ConsumerGroupHandler", "ConsumerGroupSession"),
}

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

if not TYPE_CHECKING:  # a checker would take any name whatever for one of ours
    __getattr__ = lazy.attributes(__name__, _HOMES)
