"""Plain values that users pass in and get back: partitions, records, offsets, brokers.

This module imports no other module of the package.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, Protocol, TypeAlias

__all__ = [
    "Compression",
    "GroupMetadata",
    "Header",
    "IsolationLevel",
    "Names",
    "Node",
    "OffsetAndMetadata",
    "Record",
    "RecordMetadata",
    "ShareRecord",
    "SubscriptionPattern",
    "TimestampType",
    "TombstoneValue",
    "TopicPartition",
]


def printable(name: str) -> str:
    """Return a name for logs and errors. Names come from the wire too, and may contain control characters."""
    return name if name.isprintable() else ascii(name)


class Header(NamedTuple):
    """One header of a record. A key may occur more than once, and the order is kept."""

    key: str
    value: bytes | None


class TopicPartition(NamedTuple):
    """One partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{printable(self.topic)}-{self.partition}"


@dataclass(frozen=True, slots=True)
class SubscriptionPattern:
    """A regular expression for names of topics, which the brokers match: in the syntax of RE2, against whole names.

    It needs ``group_protocol="consumer"`` and Kafka 4.0. The coordinator finds new topics; a member lists topics only
    once, when it starts. A compiled pattern of ``re`` is matched by the client instead.
    """

    pattern: str


class Names(Protocol):
    """Several names: a list, a tuple, a set, or any other collection of strings, but not a string.

    A string is a collection of strings as well, and would be read as many names of one character. Type checkers refuse
    it here, because its ``__contains__`` takes strings only.
    """

    def __iter__(self) -> Iterator[str]: ...

    def __contains__(self, name: object, /) -> bool: ...


class TimestampType(IntEnum):
    """The clock that a record's timestamp comes from."""

    NONE = -1  # message format v0 has no timestamps
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class Compression(IntEnum):
    """Codecs of record batches; a value is the number in a batch's attributes.

    Each codec is a module in ``protocol/records/codecs/``, with the same name in lower case.
    """

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def parse(cls, name: str | Compression) -> Compression:
        """Return the codec with this name in Kafka, or with this number. Raises ValueError for any other value."""
        if isinstance(name, cls):
            return name
        try:
            # True is an int, but not a codec.
            return cls[name.upper()] if isinstance(name, str) else cls(name if type(name) is int else -1)
        except (KeyError, ValueError):
            allowed = ", ".join(repr(member.name.lower()) for member in cls)
            raise ValueError(f"compression must be one of {allowed}, got {name!r}") from None


CompressionName = Literal["none", "gzip", "snappy", "lz4", "zstd"]
"""The names of ``Compression``, as users write them."""


class IsolationLevel(IntEnum):
    """Whether a consumer reads records of open and aborted transactions."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class Node(NamedTuple):
    """A broker in the cluster's metadata."""

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
    K_contra = TypeVar("K_contra", contravariant=True, default=bytes | str)
    V_contra = TypeVar("V_contra", contravariant=True, default=bytes | str)
else:  # type variables have defaults since Python 3.13; at run time nothing uses them
    from typing import TypeVar

    K = TypeVar("K")
    V = TypeVar("V")
    K_contra = TypeVar("K_contra", contravariant=True)
    V_contra = TypeVar("V_contra", contravariant=True)


TombstoneValue: TypeAlias = Any
"""The type of the value of a tombstone, which is None.

``V | None`` would make a type checker refuse ``record.value["item"]`` in each program, although most topics have no
tombstones. So the type is ``V | Any``, as the type checkers advise for a result that is seldom None (``re.Match.group``
is one): what ``V`` does not have is refused, and ``record.value is None`` can be asked.
"""


class Record(NamedTuple, Generic[K, V]):
    """A record that a consumer returns. ``timestamp`` is in milliseconds since the epoch, -1 if the log has none.

    Keys and values are bytes unless the consumer has deserializers. A null is None: the key of a record without one,
    and the value of a tombstone, which a compacted topic has for a deleted key. The type of the key includes None, that
    of the value does not, so check for tombstones yourself. It is a NamedTuple, because a program creates millions of
    records: decoding into frozen dataclasses takes 1.7 times as long (``benchmarks/records.py``).
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: TimestampType
    key: K | None
    value: V | TombstoneValue
    headers: tuple[Header, ...] = ()
    leader_epoch: int | None = None


class ShareRecord(NamedTuple, Generic[K, V]):
    """A record that a ``ShareConsumer`` returns: a ``Record`` with the number of its deliveries.

    ``delivery_count`` is 1 for the first delivery to any consumer of the group.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: TimestampType
    key: K | None
    value: V | TombstoneValue
    headers: tuple[Header, ...]
    leader_epoch: int | None
    delivery_count: int


class RecordMetadata(NamedTuple):
    """The place of an acknowledged record. It is a NamedTuple for the same reason as ``Record``.

    ``offset`` is -1 if the broker does not return it: with ``acks=0``, and for a batch that the broker already had.
    ``timestamp`` is in milliseconds since the epoch: the broker's time if the topic uses log-append time, otherwise the
    record's own; see ``timestamp_type``. Serialized sizes are in bytes, -1 for a null. ``log_start_offset`` is the
    first offset of the partition when the record was written, -1 if the broker does not return it.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    serialized_key_size: int
    serialized_value_size: int
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    log_start_offset: int = -1


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """An offset to commit: the offset of the next record to read.

    ``metadata`` is any string of the user, ``leader_epoch`` the leader epoch of the last record that was read.
    """

    offset: int
    metadata: str = ""
    leader_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """The identity of a group's member, as ``Consumer.group_metadata`` returns it.

    A producer sends it with the offsets of a transaction, so that the coordinator can refuse the offsets of a former
    member (KIP-447). ``generation_id`` is -1 and ``member_id`` empty for a consumer that is not a member; the
    coordinator then checks nothing.
    """

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
