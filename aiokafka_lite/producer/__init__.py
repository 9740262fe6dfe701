"""Writing records: `Producer`, and what it can be given."""

from .delivery import Delivery
from .partitioner import DefaultPartitioner, Partitioner, RoundRobinPartitioner
from .producer import Producer
from .serializer import BytesSerializer, Serializer

__all__ = [
    "BytesSerializer",
    "DefaultPartitioner",
    "Delivery",
    "Partitioner",
    "Producer",
    "RoundRobinPartitioner",
    "Serializer",
]
