"""The in-sync sets of the partitions that one node leads: followers join when they catch up and leave when they lag."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from ..metadata.leadership import PartitionLeadership
from ..metadata.topics import PartitionKey
from .manager import ReplicaManager
from .partition import Partition

logger = logging.getLogger(__name__)


class InSyncSets:
    """Follows the followers of one node's partitions. Owner: the node.

    ``wake`` starts a follower's fetch, ``is_running`` returns whether the node runs, ``lag_max`` is the time in seconds
    that a follower may stay behind. Without a connection to the controller, neither the sets nor the high watermark
    change.
    """

    def __init__(
        self,
        replica_manager: ReplicaManager,
        leadership: PartitionLeadership,
        *,
        wake: Callable[[int, PartitionKey], None],
        is_running: Callable[[], bool],
        reaches_controller: Callable[[], bool],
        lag_max: float,
    ) -> None:
        self._replica_manager = replica_manager
        self._leadership = leadership
        self._wake = wake
        self._is_running = is_running
        self._reaches_controller = reaches_controller
        self._lag_max = lag_max
        self._timer: asyncio.TimerHandle | None = None

    def wake_followers(self, partition: Partition, *, except_for: int | None = None) -> None:
        """Wake the followers, because the leader has new data; not the one that has it already."""
        for node_id in partition.followers:
            if node_id != except_for:
                self._wake(node_id, partition.key)
        if partition.followers and self._timer is None and partition.is_behind:
            self._arm()

    def follower_fetched(self, partition: Partition, node_id: int, end_offset: int) -> None:
        """Record that a follower has all records before ``end_offset``."""
        moved = partition.update_follower(node_id, end_offset, asyncio.get_running_loop().time())
        if partition.may_join_isr(node_id):
            self._propose(partition, (*partition.state.isr, node_id))
            # One more in sync may reach min.insync.replicas. Below it the high watermark stands still (KIP-966).
            moved = partition.try_advance_high_watermark() or moved
        if moved:
            self._replica_manager.complete_delayed(partition.key)
            # The others get the new high watermark with their next fetch, and this one with the answer to this fetch.
            self.wake_followers(partition, except_for=node_id)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._lag_max / 2, self._check)

    def _check(self) -> None:
        """Remove followers that lag. While any follower is behind, repeat this every half of ``lag_max``."""
        self._timer = None
        any_behind = False
        now = asyncio.get_running_loop().time()
        for partition in list(self._replica_manager.leading()):
            lagging = partition.lagging(now, self._lag_max)
            if lagging and self._is_running():  # a frozen node proposes nothing
                self._propose(partition, tuple(node for node in partition.state.isr if node not in lagging))
            any_behind = any_behind or partition.is_behind
        if any_behind:
            self._arm()

    def _propose(self, partition: Partition, isr: tuple[int, ...]) -> None:
        if not self._reaches_controller():
            return
        assert partition.node_id in isr, "a leader is always in sync"
        # The epochs say which state the proposal changes (KIP-497). The controller refuses it if that is out of date.
        state, counters = partition.state, self._replica_manager.counters
        if self._leadership.alter_partition(
            partition.node_id, partition.key, state.leader_epoch, state.partition_epoch, isr
        ):
            has_grown = len(isr) > len(state.isr)
            counters.isr_expands += has_grown
            counters.isr_shrinks += not has_grown
            logger.info(
                "node %d %s the in-sync set of %s-%d from %s to %s",
                partition.node_id,
                "expanded" if has_grown else "shrank",
                *partition.key,
                list(state.isr),
                list(isr),
            )
