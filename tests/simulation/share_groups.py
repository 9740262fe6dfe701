"""The share groups of a simulated world: their start, their end, and the check of their history."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from aiokafka_lite import Admin, EmbeddedCluster, TopicPartition
from aiokafka_lite.admin import ConfigResource
from tests.simulation.share_journal import ShareHistory, lock_anomalies, lost_records, user_anomalies
from tests.simulation.share_members import SimulatedShareGroup, Surroundings
from tests.simulation.workload import VOLATILE, SharePlan

Logs = Mapping[TopicPartition, Sequence[bytes | None]]
"""The values in the log of each partition."""

LOOK_INTERVAL = 0.05
"""Seconds between two looks at the leaders of the partitions."""


class World(Surroundings, Protocol):
    """The parts of the world that share groups use."""

    def partitions(self) -> list[TopicPartition]: ...


class Leaders:
    """When partitions got other leaders, to ``LOOK_INTERVAL`` seconds. Run ``watch`` as a task."""

    def __init__(self, world: World, cluster: EmbeddedCluster) -> None:
        self._world = world
        self._cluster = cluster
        self._epochs: dict[TopicPartition, int] = {}
        self._moves: defaultdict[TopicPartition, list[float]] = defaultdict(list)

    async def watch(self) -> None:
        while True:
            for partition in self._world.partitions():
                epoch = self._cluster.state_of(*partition).leader_epoch
                if self._epochs.setdefault(partition, epoch) != epoch:
                    self._epochs[partition] = epoch
                    self._moves[partition].append(asyncio.get_running_loop().time())
            await asyncio.sleep(LOOK_INTERVAL)

    def is_moved(self, partition: TopicPartition, since: float, until: float) -> bool:
        """Return whether a partition may have got another leader between two times."""
        moves = self._moves[partition]
        position = bisect_left(moves, since)
        return position < len(moves) and moves[position] <= until + LOOK_INTERVAL


class Sharing:
    """The share groups of a world."""

    def __init__(self, world: World, cluster: EmbeddedCluster, plans: Iterable[SharePlan]) -> None:
        self.groups = [SimulatedShareGroup(world, plan) for plan in plans]
        self._world = world
        self._cluster = cluster
        self._leaders = Leaders(world, cluster)
        self._watching: asyncio.Task[None] | None = None

    async def start(self, admin: Admin) -> None:
        """Configure the groups, and start two members of each."""
        if not self.groups:
            return
        settings = {
            ConfigResource.group(group.plan.group_id): {
                "share.auto.offset.reset": "earliest",
                "share.record.lock.duration.ms": str(int(group.plan.lock * 1000)),
                "share.delivery.count.limit": str(group.plan.limit),
            }
            for group in self.groups
        }
        (await admin.configs.alter(settings)).raise_for_errors()
        self._watching = asyncio.create_task(self._leaders.watch())
        for group in self.groups:
            group.start_member()
            group.start_member()

    async def finish(self, admin: Admin, logs: Logs, timeout: float) -> None:
        """Wait, with all faults ended, until the groups have processed everything; then end their members."""
        deadline = asyncio.get_running_loop().time() + timeout
        for group in self.groups:
            group.is_calm = True
            while (lag := await self._lag(admin, group, logs)) and asyncio.get_running_loop().time() < deadline:
                if not group.running:
                    group.start_member()
                await asyncio.sleep(1.0)
            if lag:
                self._world.anomaly(f"share group {group.plan.group_id} has a lag of {lag}")
        for group in self.groups:
            for member in group.running:
                await member.leave()
        if self._watching is not None:
            self._watching.cancel()

    async def _lag(self, admin: Admin, group: SimulatedShareGroup, logs: Logs) -> dict[str, int | None]:
        """Return the lag of each partition that the group has not read to its end; None if it has not begun."""
        name = group.plan.group_id
        offsets = (await admin.share_groups.offsets(name))[name]
        partitions = [partition for partition, log in logs.items() if log and partition.topic in group.plan.topics]
        lags = {partition: offsets[partition].lag if partition in offsets else None for partition in partitions}
        return {str(partition): lag for partition, lag in lags.items() if lag != 0}

    def check(self, logs: Logs, killed_at: Sequence[float]) -> None:
        """Check the history of all groups against the promises of ``share_journal``.

        A leader that was killed at one of these times and started again may be a leader without a new epoch.
        """

        def is_moved(partition: TopicPartition, since: float, until: float) -> bool:
            return self._leaders.is_moved(partition, since, until) or any(since <= at <= until for at in killed_at)

        topics = {bytes(topic.topic_id): name for name, topic in self._cluster.controller.topics.items()}
        # Places of a volatile topic would mix the records of the topics that had its name, one after the other.
        topics = {topic_id: name for topic_id, name in topics.items() if name not in VOLATILE}
        for group in self.groups:
            plan = group.plan
            history = ShareHistory(plan.group_id, self._cluster.history, topics)
            expected = {partition: log for partition, log in logs.items() if partition.topic in plan.topics}
            if lost := lost_records(group.journal, history, expected, plan.limit):
                self._world.anomaly(f"share group {plan.group_id} never processed {lost}")
            for anomaly in lock_anomalies(history, plan.lock, plan.limit, is_moved):
                self._world.anomaly(f"share group {plan.group_id}: {anomaly}")
            for anomaly in user_anomalies(group.journal, history, plan.lock):
                self._world.anomaly(f"share group {plan.group_id}: {anomaly}")
