"""The events that ``on_event`` of a client receives: facts about its connections, outages, partitions and commits.

Each event is made at the place that counts or logs the same fact, and only if the client has an ``on_event``. So this
module is imported by the clients that use it, and it imports no client.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from .errors import KafkaError
from .types import TopicPartition

__all__ = [
    "ClientEvent",
    "CommitRefused",
    "ConnectionClosed",
    "ConnectionOpened",
    "OutageBegan",
    "OutageEnded",
    "PartitionsAssigned",
    "PartitionsLost",
    "PartitionsRevoked",
    "RebalanceBegan",
    "RebalanceEnded",
]


@dataclass(frozen=True, slots=True)
class ConnectionOpened:
    """A connection to a broker is open and logged in. A bootstrap address has a negative ``node_id``."""

    node_id: int
    address: str
    """The broker's ``host:port``."""
    purpose: str
    """``"produce"``, ``"fetch"``, ``"group"``, ``"admin"`` or ``"other"``. Each purpose has its own connection."""


@dataclass(frozen=True, slots=True)
class ConnectionClosed:
    """A connection that was open is closed: lost, with an ``error``, or closed by the client itself, without one."""

    node_id: int
    address: str
    purpose: str
    error: KafkaError | None


@dataclass(frozen=True, slots=True)
class OutageBegan:
    """Attempts of one kind have begun to fail, and are retried. Further failures are no events."""

    place: str
    """What fails, such as ``broker 1 at kafka-1:9092`` or ``commits of group billing``."""
    error: BaseException
    """The first failure."""


@dataclass(frozen=True, slots=True)
class OutageEnded:
    """An outage is over, by a success, or because nothing is retried any more."""

    place: str
    failures: int
    """The number of failed attempts."""
    seconds: float
    """The time since the first failure."""
    recovered: bool
    """Whether an attempt has succeeded. Otherwise the broker, partition or member no longer exists for this client."""


@dataclass(frozen=True, slots=True)
class RebalanceBegan:
    """A member of a group joins, or joins again; under the consumer protocol, it begins to release partitions."""

    group_id: str


@dataclass(frozen=True, slots=True)
class RebalanceEnded:
    """A rebalance has ended."""

    group_id: str
    generation: int
    """The generation, or member epoch, of the member; -1 or 0 if it has none now."""
    succeeded: bool
    """Whether the member has an assignment. Otherwise it left, was fenced, or joins once more."""
    seconds: float
    """The time since its beginning."""


@dataclass(frozen=True, slots=True)
class PartitionsAssigned:
    """The group has assigned these partitions, and the listener has returned: they are read from now on."""

    group_id: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class PartitionsRevoked:
    """These assigned partitions were given back: marked offsets are committed, and the listener has returned."""

    group_id: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class PartitionsLost:
    """These assigned partitions were lost without a commit: another member may read them already."""

    group_id: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class CommitRefused:
    """Offsets of a group were not committed, by a commit of the program or an automatic one.

    The records are read again, by this member or by the partitions' new owner.
    """

    group_id: str
    refused: Mapping[TopicPartition, KafkaError]


ClientEvent: TypeAlias = (
    ConnectionOpened
    | ConnectionClosed
    | OutageBegan
    | OutageEnded
    | RebalanceBegan
    | RebalanceEnded
    | PartitionsAssigned
    | PartitionsRevoked
    | PartitionsLost
    | CommitRefused
)
