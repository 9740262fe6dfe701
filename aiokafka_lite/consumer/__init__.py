"""Reading records: ``Consumer`` and what it returns."""

from .columns import Batch
from .consumer import Batches, Consumer, GroupMetadata
from .offsets import OffsetAndTimestamp
from .rebalance import RebalanceHandle, RebalanceListener

__all__ = [
    "Batch",
    "Batches",
    "Consumer",
    "GroupMetadata",
    "OffsetAndTimestamp",
    "RebalanceHandle",
    "RebalanceListener",
]
