"""Reading records: ``Consumer`` and what it returns."""

from .columns import Batch
from .consumer import Batches, Consumer
from .offsets import OffsetAndTimestamp

__all__ = ["Batch", "Batches", "Consumer", "OffsetAndTimestamp"]
