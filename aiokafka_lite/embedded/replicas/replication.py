"""Followers copy from leaders: one fetcher for each pair of nodes, woken by events instead of by a poll.

A wake runs in the next turn of the loop, so all appends of this turn are copied together. An idle fetcher costs
nothing: an hour of virtual time passes in a moment.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

from ..metadata.topics import PartitionKey
from .in_sync import InSyncSets
from .manager import ReplicaManager
from .partition import Partition

logger = logging.getLogger(__name__)

MAX_BYTES_PER_FETCH = 16 * 1024 * 1024


class ReplicatingBroker(Protocol):
    """The part of a node that replication uses."""

    node_id: int
    replica_manager: ReplicaManager
    in_sync: InSyncSets

    @property
    def is_running(self) -> bool: ...


class Network:
    """The links between brokers, and from brokers to the controller. Clients reach all brokers. Owner: the cluster."""

    def __init__(self) -> None:
        self._groups: list[frozenset[int]] = []

    def split(self, groups: Iterable[Collection[int]]) -> None:
        """Cut all links between brokers of different groups. The controller is with the largest group."""
        self._groups = [frozenset(group) for group in groups]

    def heal(self) -> None:
        self._groups = []

    def is_cut(self, one: int, other: int) -> bool:
        return bool(self._groups) and one != other and self._group_of(one) is not self._group_of(other)

    def reaches_controller(self, node_id: int) -> bool:
        return not self._groups or self._group_of(node_id) is max(self._groups, key=len)

    def _group_of(self, node_id: int) -> frozenset[int] | None:
        return next((group for group in self._groups if node_id in group), None)


class Replication:
    """All fetchers between the brokers. Owner: the cluster.

    ``delay`` is the time in seconds between an append and its copy; it may be changed while the cluster runs.
    """

    def __init__(self, brokers: Mapping[int, ReplicatingBroker], network: Network, delay: float) -> None:
        self.delay = delay
        self._brokers = brokers
        self._network = network
        self._fetchers: dict[tuple[int, int], ReplicaFetcher] = {}

    def wake(self, follower: int, leader: int, key: PartitionKey) -> None:
        """Wake the fetcher, because a follower may have records to copy from the leader."""
        fetcher = self._fetchers.get((follower, leader))
        if fetcher is None:
            fetcher = ReplicaFetcher(self, self._brokers[follower], self._brokers[leader])
            self._fetchers[follower, leader] = fetcher
        fetcher.wake(key)

    def reaches(self, one: ReplicatingBroker, other: ReplicatingBroker) -> bool:
        return one.is_running and other.is_running and not self._network.is_cut(one.node_id, other.node_id)

    def resume(self) -> None:
        """Continue all fetchers whose nodes reach each other again."""
        for fetcher in self._fetchers.values():
            fetcher.resume()

    def stop(self) -> None:
        for fetcher in self._fetchers.values():
            fetcher.stop()


class ReplicaFetcher:
    """Copies the partitions that ``leader`` leads to ``follower``. Owner: the Replication."""

    def __init__(self, replication: Replication, follower: ReplicatingBroker, leader: ReplicatingBroker) -> None:
        self.follower = follower
        self.leader = leader
        self._replication = replication
        self._marked: dict[PartitionKey, None] = {}
        self._handle: asyncio.Handle | None = None

    def __repr__(self) -> str:
        return f"<ReplicaFetcher {self.leader.node_id} -> {self.follower.node_id} marked={len(self._marked)}>"

    def wake(self, key: PartitionKey) -> None:
        """Mark a partition that may have records to copy."""
        self._marked[key] = None
        self.resume()

    def resume(self) -> None:
        """Copy the marked partitions soon, if the two nodes reach each other."""
        if self._marked and self._handle is None and self._replication.reaches(self.follower, self.leader):
            loop, delay = asyncio.get_running_loop(), self._replication.delay
            self._handle = loop.call_later(delay, self._run) if delay else loop.call_soon(self._run)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _run(self) -> None:
        self._handle = None
        if not self._replication.reaches(self.follower, self.leader):
            return  # the marks stay until resume()
        marked, self._marked = self._marked, {}
        for key in marked:
            try:
                self._copy(key)
            except OSError as error:  # the follower's log is offline now
                logger.error("node %d failed to write to the log of %s-%d: %s", self.follower.node_id, *key, error)

    def _copy(self, key: PartitionKey) -> None:
        mine = self.follower.replica_manager.partitions.get(key)
        theirs = self.leader.replica_manager.partitions.get(key)
        if mine is None or theirs is None or mine.is_leader or not theirs.is_leader:
            return
        if mine.state.leader_epoch != theirs.state.leader_epoch or mine.offline or theirs.offline:
            return  # one of the two brokers does not know the election yet; its next metadata wakes this fetcher again
        if mine.must_truncate:
            truncate_as_follower(mine, theirs)
        complete = self._copy_batches(mine, theirs)
        # In Kafka, the offset of the follower's next fetch tells the leader this, and the answer to that fetch has the
        # high watermark that follows from it. So the order is the same here.
        self.leader.in_sync.follower_fetched(theirs, self.follower.node_id, mine.log.end_offset)
        if mine.log.advance_high_watermark(theirs.log.high_watermark):
            self.follower.replica_manager.fetch_purgatory.check_and_complete(key)
        # A log must not begin after its high watermark, which may be behind the leader's.
        mine.log.delete_before(min(theirs.log.start_offset, mine.log.high_watermark))
        if not complete:
            self.wake(key)

    def _copy_batches(self, mine: Partition, theirs: Partition) -> bool:
        """Copy batches up to a limit. True if the follower then has all records."""
        # The leader has deleted the records that come next here.
        if mine.log.end_offset < theirs.log.start_offset:
            mine.log.reset_to(theirs.log.start_offset)
        if mine.log.end_offset >= theirs.log.end_offset:
            return True
        room = MAX_BYTES_PER_FETCH
        batches = []
        for batch in theirs.log.batches_from(mine.log.end_offset):
            if room <= 0:
                break
            batches.append(batch)
            room -= batch.size
        mine.append_as_follower(batches)
        if mine.log.end_offset < theirs.log.end_offset and room > 0:
            mine.log.end_offset = theirs.log.end_offset  # compaction left a gap at the end
            mine.log.roll()  # a log on disk keeps its end by the name of the segment
        return mine.log.end_offset >= theirs.log.end_offset


def truncate_as_follower(mine: Partition, theirs: Partition) -> None:
    """Truncate this replica's log to where it and the new leader's log are the same (KIP-101, KIP-279)."""
    mine.must_truncate = False
    while mine.log.last_epoch >= 0:
        epoch = mine.log.last_epoch
        end = theirs.end_of_epoch(epoch)
        if end.end_offset < 0:
            # The leader does not know the epoch. Both logs are certainly the same only up to the high watermark.
            mine.truncate_to(mine.log.high_watermark)
            return
        mine.truncate_to(min(end.end_offset, mine.end_of_epoch(end.epoch).end_offset))
        # Else the log now ends in an older epoch, whose end is compared in the next round (KIP-279).
        if end.epoch == epoch or mine.log.last_epoch == epoch:
            break
    if mine.log.end_offset > theirs.log.end_offset:
        mine.truncate_to(theirs.log.end_offset)
