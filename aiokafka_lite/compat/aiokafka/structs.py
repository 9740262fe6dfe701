"""The values that the methods of aiokafka take and return."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, NamedTuple

from ...types import K, TopicPartition, V

__all__ = [
    "BrokerMetadata",
    "ConsumerRecord",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "PartitionMetadata",
    "RecordMetadata",
    "TopicPartition",
]


class BrokerMetadata(NamedTuple):
    """A broker in ``ClusterMetadata``."""

    nodeId: int | str  # noqa: N815 - aiokafka's name
    host: str
    port: int
    rack: str | None


class PartitionMetadata(NamedTuple):
    """A partition in ``ClusterMetadata``. ``leader`` is -1 if there is none, None if it is not known."""

    topic: str
    partition: int
    leader: int | None
    replicas: list[int]
    isr: list[int]
    error: Exception | None


class OffsetAndMetadata(NamedTuple):
    """An offset to commit, and any string of the program."""

    offset: int
    metadata: str


class OffsetAndTimestamp(NamedTuple):
    """An offset, and the timestamp of its record in milliseconds."""

    offset: int
    timestamp: int | None


class RecordMetadata(NamedTuple):
    """The place of an acknowledged record. ``timestamp_type`` is 1 if the broker sets timestamps, else 0.

    ``log_start_offset`` is None if the broker does not return it.
    """

    topic: str
    partition: int
    topic_partition: TopicPartition
    offset: int
    timestamp: int | None
    timestamp_type: int
    log_start_offset: int | None


@dataclass(slots=True)
class ConsumerRecord(Generic[K, V]):
    """A record that a consumer returns. ``checksum`` is None, as for all records of Kafka 0.11 and later.

    Sizes are in bytes, -1 for a null.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: K | None
    value: V | None
    checksum: int | None
    serialized_key_size: int
    serialized_value_size: int
    headers: tuple[tuple[str, bytes | None], ...]
