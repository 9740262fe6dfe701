"""Reading records: ``Consumer`` and the types that it returns.

Each name is imported at its first use: a program that needs only a part, such as a Spark worker, imports only that
part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import lazy

if TYPE_CHECKING:
    from ..serialization.deserializer import Deserializer as Deserializer
    from ..serialization.deserializer import IntDeserializer as IntDeserializer
    from ..serialization.deserializer import JsonDeserializer as JsonDeserializer
    from ..serialization.deserializer import StrDeserializer as StrDeserializer
    from .bounded import BoundedRead as BoundedRead
    from .columns import Batch as Batch
    from .columns import BytesColumn as BytesColumn
    from .consumer import Consumer as Consumer
    from .deserializing import OnDeserializationError as OnDeserializationError
    from .group.claim import Claim as Claim
    from .group.consumer_group import ConsumerGroup as ConsumerGroup
    from .group.handler import ConsumerGroupHandler as ConsumerGroupHandler
    from .group.participation import GroupMetadata as GroupMetadata
    from .group.rebalance import RebalanceHandle as RebalanceHandle
    from .group.rebalance import RebalanceListener as RebalanceListener
    from .group.session import ConsumerGroupSession as ConsumerGroupSession
    from .interceptor import ConsumerInterceptor as ConsumerInterceptor
    from .iteration import ArrowBatches as ArrowBatches
    from .iteration import Batches as Batches
    from .iteration import PartitionReader as PartitionReader
    from .offsets import OffsetAndTimestamp as OffsetAndTimestamp
    from .position import OnOffsetReset as OnOffsetReset
    from .position import ResetReason as ResetReason
else:  # with a __getattr__, a type checker would accept every name
    __all__, __getattr__, __dir__ = lazy.exports(
        __name__,
        {
            ".columns": "Batch BytesColumn",
            ".consumer": "Consumer",
            ".deserializing": "OnDeserializationError",
            ".group.claim": "Claim",
            ".group.consumer_group": "ConsumerGroup",
            ".group.participation": "GroupMetadata",
            ".group.handler": "ConsumerGroupHandler",
            ".group.rebalance": "RebalanceHandle RebalanceListener",
            ".group.session": "ConsumerGroupSession",
            ".interceptor": "ConsumerInterceptor",
            ".bounded": "BoundedRead",
            ".iteration": "ArrowBatches Batches PartitionReader",
            ".offsets": "OffsetAndTimestamp",
            ".position": "OnOffsetReset ResetReason",
            "..serialization.deserializer": "Deserializer IntDeserializer JsonDeserializer StrDeserializer",
        },
    )
