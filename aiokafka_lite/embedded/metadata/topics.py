"""The controller's decisions about topics: immutable states, which the nodes receive whole."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..settings.configs import TopicConfig

NO_LEADER = -1
_LEGAL_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})

METADATA_TOPIC = "__cluster_metadata"
"""The log of the controllers. Its name cannot be the name of a topic."""

PartitionKey = tuple[str, int]


def is_legal_name(name: str) -> bool:
    """Return whether a name has 1 to 249 characters of ``a-z A-Z 0-9 . _ -``, and is not ``.`` or ``..``."""
    return _LEGAL_NAME.fullmatch(name) is not None and name not in (".", "..")


@dataclass(frozen=True, slots=True)
class PartitionRegistration:
    """The leader, the replicas and the in-sync set of a partition, as node ids; -1 is no leader.

    ``partition_epoch`` grows with every change, ``leader_epoch`` with every election. ``adding`` and ``removing`` are
    the replicas of a reassignment in progress. ``elr`` are the eligible leader replicas (KIP-966): they left the
    in-sync set while it was below min.insync.replicas, so they have all committed records. ``last_leader`` is the
    leader that a partition had before its in-sync set became empty.
    """

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int = 0
    partition_epoch: int = 0
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    elr: tuple[int, ...] = ()
    last_leader: int = NO_LEADER

    def __post_init__(self) -> None:
        assert set(self.isr) <= set(self.replicas), "the in-sync set is a part of the replicas"

    def may_lead(self, node_id: int) -> bool:
        """Return whether a replica has all committed records."""
        return node_id in (self.isr or self.elr)

    @property
    def is_settled(self) -> bool:
        """Whether every replica is in sync, and none is being moved."""
        return set(self.isr) == set(self.replicas) and not self.adding and not self.removing

    def elected(self, leader: int) -> PartitionRegistration:
        """Return the state after an election of ``leader``; -1 if there is no candidate.

        A leader that was not in sync is the only member of the in-sync set.
        """
        return replace(
            self,
            leader=leader,
            isr=self.isr if leader == NO_LEADER or leader in self.isr else (leader,),
            leader_epoch=self.leader_epoch + 1,
            partition_epoch=self.partition_epoch + 1,
        )

    def after(self, before: PartitionRegistration, min_isr: int) -> PartitionRegistration:
        """Return this state with the eligible leader replicas that follow from the state before.

        The high watermark does not move while fewer than ``min_isr`` replicas are in sync, so replicas that leave the
        set then have all committed records. With ``min_isr`` replicas in sync, the others may lack some.
        """
        elr: tuple[int, ...] = ()
        if len(self.isr) < min(min_isr, len(self.replicas)):
            candidates = dict.fromkeys((*before.elr, *before.isr))
            elr = tuple(node for node in candidates if node in self.replicas and node not in self.isr)
        last_leader = NO_LEADER
        if not self.isr:
            last_leader = before.leader if before.isr else before.last_leader
        return replace(self, elr=elr, last_leader=last_leader)


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic in the metadata. ``configs`` are its own settings, ``config`` all settings in force."""

    name: str
    topic_id: bytes
    partitions: tuple[PartitionRegistration, ...]
    config: TopicConfig
    configs: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS

    def with_partition(self, index: int, state: PartitionRegistration) -> Topic:
        partitions = list(self.partitions)
        partitions[index] = state
        return replace(self, partitions=tuple(partitions))


def spread(count: int, replication_factor: int, brokers: Sequence[int], first: int = 0) -> list[tuple[int, ...]]:
    """Return the replicas of ``count`` partitions: leaders rotate from broker ``first`` on, followers come next."""
    return [
        tuple(brokers[(first + index + step) % len(brokers)] for step in range(replication_factor))
        for index in range(count)
    ]
