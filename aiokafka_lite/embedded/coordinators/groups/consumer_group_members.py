"""The members of a consumer group (KIP-848), and how one of them gets from its partitions to its target.

Rules of this file:

 1. A member revokes first: it keeps its epoch, in UNREVOKED_PARTITIONS, until a heartbeat lists none of the partitions
    that it has to revoke.
 2. Then it takes the epoch of the target, and all partitions of the target that no other member has.
 3. Partitions that another member still has come later: the member is in UNRELEASED_PARTITIONS until then.
 4. A partition that a member has to revoke belongs to it until rule 1 is done, so two members never own one partition.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from .assignors import TopicIdPartition
from .heartbeat_group import HeartbeatMember

LEAVE_STATIC = -2
"""The member epoch of a heartbeat of a static member that leaves and will return."""


class MemberState(IntEnum):
    """The state of a member, numbered as in Kafka's records.

    ``MemberState`` of ``group`` is the state that the member itself is in.
    """

    STABLE = 0
    """The member has the partitions of the target at its epoch."""
    UNREVOKED_PARTITIONS = 1
    """The member has to revoke partitions."""
    UNRELEASED_PARTITIONS = 2
    """The member waits for partitions that other members have to revoke."""


class ClassicSupport(NamedTuple):
    """The data of a member of the classic protocol: its session timeout in seconds, and its protocols."""

    session_timeout: float
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(slots=True, eq=False)
class ConsumerMember(HeartbeatMember):
    """A member of a consumer group.

    ``assigned`` and ``revoking`` have the member epoch at which each partition was assigned. ``revocation`` also
    expires a ``classic`` member that does not join or sync in time.

    ``ConsumerMember`` of ``group`` is the member as its own client sees it.
    """

    instance_id: str | None = None
    topics: tuple[str, ...] = ()
    regex: str | None = None
    assignor: str | None = None
    classic: ClassicSupport | None = None
    state: MemberState = MemberState.STABLE
    assigned: dict[TopicIdPartition, int] = field(default_factory=dict)
    revoking: dict[TopicIdPartition, int] = field(default_factory=dict)

    @property
    def is_classic(self) -> bool:
        return self.classic is not None

    @property
    def must_revoke(self) -> bool:
        return bool(self.revoking) and self.classic is None

    def is_reconciled(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == epoch

    def has(self, partition: TopicIdPartition) -> bool:
        return partition in self.assigned or partition in self.revoking

    def may_commit(self, partition: TopicIdPartition, epoch: int) -> bool:
        """Return whether the member had the partition at an epoch before its present one."""
        since = self.assigned.get(partition, self.revoking.get(partition))
        return since is not None and since <= epoch

    # Reconciliation.

    def reconcile(
        self,
        epoch: int,
        target: AbstractSet[TopicIdPartition],
        subscribed: Collection[bytes],
        owned: Collection[TopicIdPartition] | None,
        is_free: Callable[[TopicIdPartition], bool],
    ) -> bool:
        """Move towards the ``target`` of an assignment ``epoch``. False if nothing changed.

        ``subscribed`` are the ids of the member's topics, ``owned`` the partitions that its heartbeat lists; None if
        it lists none. ``is_free`` says whether no other member has the partition.
        """
        before = (self.state, self.epoch, dict(self.assigned), dict(self.revoking))
        readable = {partition for partition in target if partition[0] in subscribed}
        if self.state is MemberState.UNREVOKED_PARTITIONS and _owns(owned, self.revoking):
            self._revoke([partition for partition in self.assigned if partition[0] not in subscribed])
        elif not self.is_reconciled(epoch):
            self._take(epoch, readable, owned, is_free)
        else:
            self._drop([partition for partition in self.assigned if partition[0] not in subscribed], owned)
        assert self.assigned.keys().isdisjoint(self.revoking), "a partition is assigned or to be revoked, never both"
        return before != (self.state, self.epoch, self.assigned, self.revoking)

    def _take(
        self,
        epoch: int,
        target: AbstractSet[TopicIdPartition],
        owned: Collection[TopicIdPartition] | None,
        is_free: Callable[[TopicIdPartition], bool],
    ) -> None:
        surplus = {partition: since for partition, since in self.assigned.items() if partition not in target}
        kept = {partition: since for partition, since in self.assigned.items() if partition in target}
        # Rule 1: the epoch stays until the member has revoked the surplus.
        if surplus and _owns(owned, surplus):
            self.assigned, self.revoking = kept, surplus
            self.state = MemberState.UNREVOKED_PARTITIONS
            self.previous_epoch: int = self.epoch
            return
        assert epoch >= self.epoch, "the epoch of a member only grows"
        # Rules 2 and 3: the free partitions now, and the others when their owners have revoked them.
        missing = target - kept.keys()
        free = {partition for partition in missing if is_free(partition)}
        self.assigned = {**kept, **dict.fromkeys(sorted(free), epoch)}
        self.revoking = {}
        self.state = MemberState.UNRELEASED_PARTITIONS if free != missing else MemberState.STABLE
        self.previous_epoch = self.epoch
        self.epoch: int = epoch

    def _drop(self, surplus: Collection[TopicIdPartition], owned: Collection[TopicIdPartition] | None) -> None:
        """Remove topics that the subscription lost, if no new target has been computed since."""
        if not surplus:
            return
        if _owns(owned, surplus):
            self.state = MemberState.UNREVOKED_PARTITIONS
            self._revoke(surplus)
        else:
            for partition in surplus:
                del self.assigned[partition]
        self.previous_epoch = self.epoch

    def _revoke(self, partitions: Collection[TopicIdPartition]) -> None:
        for partition in partitions:
            self.revoking[partition] = self.assigned.pop(partition)


def _owns(owned: Collection[TopicIdPartition] | None, partitions: Collection[TopicIdPartition]) -> bool:
    """Return whether a member may still own one of these partitions.

    It may if its heartbeat has no list of owned partitions.
    """
    return owned is None or any(partition in partitions for partition in owned)
