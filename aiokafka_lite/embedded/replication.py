"""Followers copy from leaders, one fetcher for each pair of nodes, woken by what happens instead of by a poll.

A wake runs in the loop's next turn, so that all appends of this turn travel together, as one fetch. Idle fetchers cost
nothing, which is what lets an hour of virtual time pass in a moment.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from .partition import Partition
from .topics import PartitionKey

if TYPE_CHECKING:
    from .node import BrokerNode

MAX_BYTES_PER_FETCH = 16 * 1024 * 1024


class ReplicaFetcher:
    """Copies what ``leader`` leads to ``follower``. Owner: the cluster."""

    def __init__(self, follower: BrokerNode, leader: BrokerNode) -> None:
        self.follower = follower
        self.leader = leader
        self._dirty: dict[PartitionKey, None] = {}
        self._handle: asyncio.Handle | None = None

    def __repr__(self) -> str:
        return f"<ReplicaFetcher {self.leader.node_id} -> {self.follower.node_id} dirty={len(self._dirty)}>"

    def wake(self, key: PartitionKey) -> None:
        """There may be something to copy of this partition."""
        self._dirty[key] = None
        self.resume()

    def resume(self) -> None:
        """Go on with what is marked, if the two nodes reach each other."""
        if self._dirty and self._handle is None and self.follower.reaches(self.leader):
            loop, delay = asyncio.get_running_loop(), self.follower.cluster.replication_delay
            self._handle = loop.call_later(delay, self._run) if delay else loop.call_soon(self._run)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _run(self) -> None:
        self._handle = None
        if not self.follower.reaches(self.leader):
            return  # what is marked stays marked until resume()
        dirty, self._dirty = self._dirty, {}
        for key in dirty:
            self._copy(key)

    def _copy(self, key: PartitionKey) -> None:
        mine = self.follower.replica_manager.partitions.get(key)
        theirs = self.leader.replica_manager.partitions.get(key)
        if mine is None or theirs is None or mine.is_leader or not theirs.is_leader:
            return
        if mine.state.leader_epoch != theirs.state.leader_epoch or mine.offline or theirs.offline:
            return  # one of the two has not heard of the election yet; hearing of it wakes this again
        if mine.must_truncate:
            truncate_as_follower(mine, theirs)
        complete = self._copy_batches(mine, theirs)
        self.leader.follower_fetched(theirs, self.follower.node_id, mine.log.end_offset)
        if mine.log.advance_high_watermark(theirs.log.high_watermark):
            self.follower.replica_manager.fetch_purgatory.check_and_complete(key)
        mine.log.delete_before(min(theirs.log.start_offset, mine.log.high_watermark))
        if not complete:
            self.wake(key)

    def _copy_batches(self, mine: Partition, theirs: Partition) -> bool:
        """Copy up to a limit; tell whether that was all."""
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
            room -= len(batch.data)
        mine.append_as_follower(batches)
        if mine.log.end_offset < theirs.log.end_offset and room > 0:
            mine.log.end_offset = theirs.log.end_offset  # compaction left a gap at the end
        return mine.log.end_offset >= theirs.log.end_offset


def truncate_as_follower(mine: Partition, theirs: Partition) -> None:
    """Go back to where this replica's log and the new leader's are the same (KIP-101, KIP-279)."""
    mine.must_truncate = False
    while mine.log.last_epoch >= 0:
        epoch = mine.log.last_epoch
        end = theirs.end_of_epoch(epoch)
        if end.end_offset < 0:
            mine.truncate_to(mine.log.high_watermark)
            return
        mine.truncate_to(min(end.end_offset, mine.end_of_epoch(end.epoch).end_offset))
        if end.epoch == epoch or mine.log.last_epoch == epoch:
            break
    if mine.log.end_offset > theirs.log.end_offset:
        mine.truncate_to(theirs.log.end_offset)
