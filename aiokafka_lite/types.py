"""The facts that travel between users and the package. Nothing here does anything."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Generic, NamedTuple

from .errors import ConfigurationError


def printable(name: str) -> str:
    """A name for a text. Names come from the wire as well, and may hold what a log must not."""
    return name if name.isprintable() else ascii(name)


class Header(NamedTuple):
    """One header of a record; a key may occur more than once, and order is kept."""

    key: str
    value: bytes | None


class TopicPartition(NamedTuple):
    """One partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{printable(self.topic)}-{self.partition}"


class TimestampType(IntEnum):
    """Whose clock a record's timestamp comes from."""

    NONE = -1  # message format v0 has no timestamps
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class Compression(IntEnum):
    """Codecs of record batches, by the number that a batch's attributes carry."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def parse(cls, name: str | Compression) -> Compression:
        """Read Kafka's name of a codec; ConfigurationError for any other."""
        if isinstance(name, cls):
            return name
        try:
            # By the number as well, but True, which is one, means nothing here.
            return cls[name.upper()] if isinstance(name, str) else cls(name if type(name) is int else -1)
        except (KeyError, ValueError):
            allowed = ", ".join(member.name.lower() for member in cls)
            raise ConfigurationError(f"compression={name!r}: use one of {allowed}") from None


class IsolationLevel(IntEnum):
    """Whether a reader sees records of transactions that are open or were aborted."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class Node(NamedTuple):
    """A broker as metadata names it."""

    node_id: int
    host: str
    port: int
    rack: str | None = None

    def __str__(self) -> str:
        return f"{self.node_id} ({printable(self.host)}:{self.port})"


if TYPE_CHECKING:
    from typing_extensions import TypeVar

    K = TypeVar("K", default=bytes)
    V = TypeVar("V", default=bytes)
else:  # Python has defaults of type variables from 3.13 on; at run time nobody asks for them
    from typing import TypeVar

    K = TypeVar("K")
    V = TypeVar("V")


class Record(NamedTuple, Generic[K, V]):
    """A record as a consumer gets it. ``timestamp`` is in milliseconds since the epoch, -1 where the log has none.

    Keys and values are bytes unless the consumer has deserializers; null ones are None.

    A NamedTuple and not a frozen dataclass: records are made by the million, and this is the cheapest immutable thing
    with names that the language has (frozen dataclasses decode 1.7 times as slowly: ``benchmarks/records.py``).
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: TimestampType
    key: K | None
    value: V | None
    headers: tuple[Header, ...] = ()
    leader_epoch: int | None = None


class RecordMetadata(NamedTuple):
    """Where an acknowledged record is. A NamedTuple for the reason that ``Record`` is one.

    ``offset`` is -1 where the broker does not say: with ``acks=0``, and for a batch that it had got before.
    ``timestamp`` is in milliseconds: the broker's where the topic is set to log-append time, else the record's own.
    Serialized sizes are in bytes, -1 for a null.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    serialized_key_size: int
    serialized_value_size: int


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """A position to commit: the offset of the next record to read, with a note and the epoch of the last one read."""

    offset: int
    metadata: str = ""
    leader_epoch: int | None = None
