"""Fetching for one consumer: a fetcher for each broker that has assigned partitions, and the position keeper."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Container, Iterable

import anyio

from ...aio.freed_memory import keep_freed_memory
from ...cluster.client import Client
from ...cluster.metadata import ClusterView
from ...net.traffic import RequestCounters
from ...protocol.schema import ZERO_UUID
from ...settings.consumer import ConsumerConfig
from ...types import TopicPartition
from ..partition import AssignedPartition
from ..position import ResetReason, ResetStrategy
from ..subscription import Subscription
from .fetcher import BrokerFetcher
from .position_keeper import PositionKeeper
from .slices import SLICE, take_some

logger = logging.getLogger(__name__)

Spawn = Callable[..., object]
"""Runs a coroutine function as a task of the owner: ``Service.start_child``."""


class Fetching:
    """The fetchers and the position keeper of one subscription. Owner: the consumer; ``spawn`` starts its tasks.

    Events are reported through the subscription, to its observer.
    """

    def __init__(self, client: Client, subscription: Subscription, config: ConsumerConfig, spawn: Spawn) -> None:
        self._client = client
        self._subscription = subscription
        self._config = config
        self._spawn = spawn
        self.counters: RequestCounters = RequestCounters()
        self._fetchers: dict[int, BrokerFetcher] = {}
        self._keeper = PositionKeeper(client, subscription, config, spawn, on_found=self._wake_fetchers)
        self._unplaced: dict[AssignedPartition, None] = {}  # the partitions whose broker is still to be chosen
        self._is_placing = False  # whether a task chooses the brokers of the rest

    def start(self) -> None:
        """Begin to fetch. The client must have metadata."""
        keep_freed_memory()
        self._spawn(self._keeper.run, name="position keeper")
        self.view_changed(self._client.view)

    def changed(self, partitions: Iterable[AssignedPartition]) -> None:
        """Fetch these partitions from the right brokers, because they are new, or their state has changed.

        Of many partitions, the first are served at once, and a task serves the rest in later turns of the loop.
        """
        self._unplaced.update(dict.fromkeys(partitions))
        self._place_slice()
        self._wake_fetchers()
        self._keeper.wake()
        if self._unplaced and not self._is_placing:
            self._is_placing = True
            self._spawn(self._place_rest, name="choose brokers")

    async def _place_rest(self) -> None:
        while self._unplaced:
            await asyncio.sleep(0)
            self._place_slice()
            self._wake_fetchers()
        self._is_placing = False
        self._keeper.wake()  # once, because the keeper passes all partitions

    def view_changed(self, view: ClusterView) -> None:
        """Apply changed metadata: leaders, topic ids, the number of partitions."""
        added = new_partitions(view, self._subscription.whole_topics, self._subscription.partitions)
        if added:
            # A partition that was created while this consumer runs has only records that are newer than the consumer.
            # So it is read from its beginning, with any policy. (Java's "latest" skips the records that were written
            # before it detected the partition.)
            logger.info("reading new partitions from their beginning: %s", ", ".join(map(str, added)))
            self._subscription.extend(added, reset=ResetStrategy.EARLIEST)
        self.changed(self._subscription)

    def _check_topic_id(self, assigned: AssignedPartition, topic_id: bytes) -> None:
        """Reset the positions if the topic was deleted and created again."""
        before, assigned.topic_id = assigned.topic_id, topic_id
        if before in (ZERO_UUID, topic_id):
            return
        offset = assigned.offset
        logger.warning("%s was deleted and created again; offset %s no longer exists", assigned.partition, offset)
        self._subscription.observer.settle()
        # "latest" is a choice about records older than the consumer; the records of the new topic are younger.
        target = ResetStrategy.NONE if ResetStrategy.of(self._config) is ResetStrategy.NONE else ResetStrategy.EARLIEST
        assigned.reset_by(target, out_of_range=offset, reason=ResetReason.RECREATED)
        self._subscription.update_ready(assigned)

    def _place_slice(self) -> None:
        """Set the broker that each of the next partitions is fetched from, and start the missing fetchers."""
        view = self._client.view
        for assigned in take_some(self._unplaced, SLICE):
            if not self._subscription.holds(assigned):
                continue
            topic = view.topics.get(assigned.partition.topic)
            if topic is not None and topic.topic_id != ZERO_UUID:
                self._check_topic_id(assigned, topic.topic_id)
            node_id = _source_of(assigned, view)
            if node_id is not None and node_id not in self._fetchers:
                fetcher = self._fetchers[node_id] = BrokerFetcher(
                    node_id,
                    self._client,
                    self._subscription,
                    self._config,
                    self.counters,
                    on_lost_position=self._keeper.wake,
                    on_source_change=self.changed,
                )
                self._divide_memory()
                self._spawn(self._run, fetcher, name=f"fetch from broker {node_id}")
            # A fetcher that has ended and was made again has another source under the same node id.
            source = None if node_id is None else self._fetchers[node_id].planner.source
            if assigned.source is not source:
                assigned.fetch_from(source)

    async def _run(self, fetcher: BrokerFetcher) -> None:
        await fetcher.run()
        # No await between the end of ``run`` and this line, so no partition is given to a fetcher that has ended.
        del self._fetchers[fetcher.node_id]
        self._divide_memory()

    def _divide_memory(self) -> None:
        """Give each broker an equal part of ``fetch_memory``."""
        # The memory is not a common pool: a broker that waits for data would keep its part of the pool, and another
        # broker would starve.
        memory = self._config.fetch_memory
        if memory is not None and self._fetchers:
            part = min(self._config.fetch_max_bytes, max(memory // len(self._fetchers), 1))
            for fetcher in self._fetchers.values():
                fetcher.planner.max_bytes = part

    async def close(self) -> None:
        """Stop fetching and end the fetch sessions. Takes less than a second; never raises."""
        self._unplaced.clear()
        async with anyio.create_task_group() as group:
            for fetcher in self._fetchers.values():
                group.start_soon(fetcher.close)

    def _wake_fetchers(self) -> None:
        for fetcher in self._fetchers.values():
            fetcher.wake()


def _source_of(assigned: AssignedPartition, view: ClusterView) -> int | None:
    """Return the broker to fetch a partition from: the preferred follower or the leader; None if neither is known."""
    if assigned.preferred is not None and assigned.preferred in view.nodes:
        return assigned.preferred
    leader = view.leader_of(assigned.partition)
    return None if leader is None else leader.node_id


def new_partitions(
    view: ClusterView, topics: Iterable[str], assigned: Container[TopicPartition]
) -> list[TopicPartition]:
    """Return the partitions of these topics that metadata lists and that are not assigned."""
    return [
        partition
        for name in topics
        if (topic := view.topics.get(name)) is not None
        for partition_view in topic.partitions
        if (partition := TopicPartition(name, partition_view.partition)) not in assigned
    ]
