"""What the controller decides about topics: immutable states, replaced whole and sent to the nodes."""

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
    """Kafka's rule: 1 to 249 of ``a-z A-Z 0-9 . _ -``, and not ``.`` or ``..``."""
    return _LEGAL_NAME.fullmatch(name) is not None and name not in (".", "..")


@dataclass(frozen=True, slots=True)
class PartitionState:
    """Who leads, who follows, who is in sync. ``partition_epoch`` grows with every change, ``leader_epoch`` with every
    election."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int = 0
    partition_epoch: int = 0
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    def elected(self, leader: int, isr: tuple[int, ...] | None = None) -> PartitionState:
        """The state after an election (also one that nobody won)."""
        return replace(
            self,
            leader=leader,
            isr=self.isr if isr is None else isr,
            leader_epoch=self.leader_epoch + 1,
            partition_epoch=self.partition_epoch + 1,
        )


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as the controller knows it."""

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
    """Replicas for ``count`` partitions, leaders round robin from ``first`` on, followers behind them."""
    return [
        tuple(brokers[(first + index + step) % len(brokers)] for step in range(replication_factor))
        for index in range(count)
    ]
