"""Reading records: ``Consumer`` and the types that it returns.

Each name is imported at its first use: a program that needs only a part, such as a Spark worker, imports only that
part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import lazy

if TYPE_CHECKING:
    from .claim import Claim as Claim
    from .columns import Batch as Batch
    from .columns import BytesColumn as BytesColumn
    from .consumer import Consumer as Consumer
    from .consumer_group import ConsumerGroup as ConsumerGroup
    from .deserializer import Deserializer as Deserializer
    from .deserializer import IntDeserializer as IntDeserializer
    from .deserializer import JsonDeserializer as JsonDeserializer
    from .deserializer import StrDeserializer as StrDeserializer
    from .deserializing import OnDeserializationError as OnDeserializationError
    from .group_side import GroupMetadata as GroupMetadata
    from .handler import ConsumerGroupHandler as ConsumerGroupHandler
    from .interceptor import ConsumerInterceptor as ConsumerInterceptor
    from .iteration import ArrowBatches as ArrowBatches
    from .iteration import Batches as Batches
    from .iteration import PartitionReader as PartitionReader
    from .offsets import OffsetAndTimestamp as OffsetAndTimestamp
    from .position import OnOffsetReset as OnOffsetReset
    from .position import ResetReason as ResetReason
    from .rebalance import RebalanceHandle as RebalanceHandle
    from .rebalance import RebalanceListener as RebalanceListener
    from .session import ConsumerGroupSession as ConsumerGroupSession
else:  # with a __getattr__, a type checker would accept every name
    __all__, __getattr__, __dir__ = lazy.exports(
        __name__,
        claim="Claim",
        columns="Batch BytesColumn",
        consumer="Consumer",
        consumer_group="ConsumerGroup",
        deserializer="Deserializer IntDeserializer JsonDeserializer StrDeserializer",
        deserializing="OnDeserializationError",
        group_side="GroupMetadata",
        handler="ConsumerGroupHandler",
        interceptor="ConsumerInterceptor",
        iteration="ArrowBatches Batches PartitionReader",
        offsets="OffsetAndTimestamp",
        position="OnOffsetReset ResetReason",
        rebalance="RebalanceHandle RebalanceListener",
        session="ConsumerGroupSession",
    )
