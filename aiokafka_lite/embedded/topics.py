"""The controller's decisions about topics: immutable states, which the nodes receive whole."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from .configs import TopicConfig

NO_LEADER = -1
MAX_NAME = 249
_LEGAL_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})

PartitionKey = tuple[str, int]


def is_legal_name(name: str) -> bool:
    """Kafka's rule: 1 to 249 characters of ``a-z A-Z 0-9 . _ -``, but not ``.`` or ``..``."""
    return _LEGAL_NAME.fullmatch(name) is not None and name not in (".", "..")


@dataclass(frozen=True, slots=True)
class PartitionState:
    """The leader, the replicas and the in-sync set of a partition, as node ids; -1 is no leader.

    ``partition_epoch`` grows with every change, ``leader_epoch`` with every election. ``adding`` and ``removing`` are
    the replicas of a reassignment in progress.
    """

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int = 0
    partition_epoch: int = 0
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def is_settled(self) -> bool:
        """Whether every replica is in sync, and none is being moved."""
        return set(self.isr) == set(self.replicas) and not self.adding and not self.removing

    def elected(self, leader: int, isr: tuple[int, ...] | None = None) -> PartitionState:
        """The state after an election; -1 as the leader if there is no candidate."""
        return replace(
            self,
            leader=leader,
            isr=self.isr if isr is None else isr,
            leader_epoch=self.leader_epoch + 1,
            partition_epoch=self.partition_epoch + 1,
        )


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic in the metadata. ``configs`` are its own settings, ``config`` all settings in force."""

    name: str
    topic_id: bytes
    partitions: tuple[PartitionState, ...]
    config: TopicConfig
    configs: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS

    def with_partition(self, index: int, state: PartitionState) -> Topic:
        partitions = list(self.partitions)
        partitions[index] = state
        return replace(self, partitions=tuple(partitions))


def spread(count: int, replication_factor: int, brokers: Sequence[int], first: int = 0) -> list[tuple[int, ...]]:
    """Replicas for ``count`` partitions. Leaders rotate from broker ``first`` on; followers are the next brokers."""
    return [
        tuple(brokers[(first + index + step) % len(brokers)] for step in range(replication_factor))
        for index in range(count)
    ]
