"""Who fetches what: keeps a fetcher per broker that leads assigned partitions, and tells them what has changed."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection

import anyio

from ..cluster.client import Client
from ..cluster.metadata import ClusterView
from ..config import ClientConfig, ConsumerConfig
from ..protocol.schema import ZERO_UUID
from .fetcher import BrokerFetcher
from .partition import OnOffsetReset, PartitionState, Reset, ResetReason
from .positions import PositionKeeper, Spawn
from .subscription import Subscription, new_partitions, source_of

logger = logging.getLogger(__name__)


class Fetching:
    """The fetchers and the position keeper of one consumer. Owner: the consumer, whose task group they run in.

    ``spawn`` starts a child of the consumer; ``on_ready`` is called when there may be something to read, ``on_found``
    when an offset was found, ``settle`` before a position is moved that the reader may be in the midst of, and
    ``report_reset`` after it. ``topics`` are those of which every partition is to be read.
    """

    def __init__(
        self,
        *,
        client: Client,
        subscription: Subscription,
        client_config: ClientConfig,
        config: ConsumerConfig,
        topics: Collection[str],
        spawn: Spawn,
        on_ready: Callable[[], None],
        on_found: Callable[[], None],
        settle: Callable[[], None] = lambda: None,
        report_reset: OnOffsetReset = lambda *_: None,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._subscription = subscription
        self._client_config = client_config
        self._config = config
        self._topics = topics
        self._spawn = spawn
        self._on_ready = on_ready
        self._on_found = on_found
        self._settle = settle
        self._report_reset = report_reset
        self._fetchers: dict[int, BrokerFetcher] = {}
        self._keeper = PositionKeeper(
            client=client,
            subscription=subscription,
            client_config=client_config,
            config=config,
            spawn=spawn,
            on_found=self._found,
            on_ready=on_ready,
            report_reset=report_reset,
            wall_clock=wall_clock,
        )

    def start(self) -> None:
        """Begin, once metadata is there."""
        self._spawn(self._keeper.run, name="position keeper")
        self.view_changed(self._client.view)

    def hungry(self, state: PartitionState) -> None:
        """A partition may be fetched again."""
        fetcher = None if state.node_id is None else self._fetchers.get(state.node_id)
        if fetcher is not None:
            fetcher.wake()

    def changed(self) -> None:
        """The assignment, a position or a pause has changed."""
        self._place(self._client.view)
        for fetcher in self._fetchers.values():
            fetcher.wake()
        self._keeper.wake()

    def view_changed(self, view: ClusterView) -> None:
        """Metadata has changed: leaders, topic ids, the number of partitions."""
        for partition in new_partitions(view, self._topics, self._subscription.partitions):
            # Whatever is in a partition that came up while this consumer ran was written while it ran, so it is read
            # from its beginning whatever the policy says. (Java's "latest" skips what came before it noticed.)
            logger.info("%s is new, and is read from its beginning", partition)
            self._subscription.add(partition, Reset.EARLIEST)
        for state in self._subscription:
            topic = view.topics.get(state.partition.topic)
            if topic is not None and topic.topic_id != ZERO_UUID:
                self._see_topic_id(state, topic.topic_id)
        self.changed()

    def _see_topic_id(self, state: PartitionState, topic_id: bytes) -> None:
        known, state.topic_id = state.topic_id, topic_id
        if known in (ZERO_UUID, topic_id):
            return
        position = state.position
        logger.warning("%s was deleted and made anew; its offset %s means nothing now", state.partition, position)
        reset = Reset.of(self._config)
        self._settle()
        # "latest" is a choice about records older than the consumer; those of the new topic are younger.
        target = Reset.NONE if reset is Reset.NONE else Reset.EARLIEST
        state.seek_by(target, out_of_range=position, reason=ResetReason.RECREATED)
        self._subscription.update_ready(state)

    def _place(self, view: ClusterView) -> None:
        """Say which broker each partition is fetched from, and have a fetcher for each of those."""
        for state in self._subscription:
            if state.topic_id == ZERO_UUID and (topic := view.topics.get(state.partition.topic)) is not None:
                state.topic_id = topic.topic_id  # of the topic that is read, should another one take its name
            node_id = state.node_id = source_of(state, view)
            if node_id is not None and node_id not in self._fetchers:
                fetcher = self._fetchers[node_id] = BrokerFetcher(
                    node_id,
                    client=self._client,
                    subscription=self._subscription,
                    client_config=self._client_config,
                    config=self._config,
                    on_ready=self._on_ready,
                    on_reset=self._keeper.wake,
                    on_move=self.changed,
                    settle=self._settle,
                    report_reset=self._report_reset,
                )
                self._spawn(self._run, fetcher, name=f"fetch from broker {node_id}")

    async def _run(self, fetcher: BrokerFetcher) -> None:
        await fetcher.run()
        del self._fetchers[fetcher.node_id]

    async def close(self) -> None:
        """Stop fetching, and let the brokers forget the fetch sessions. Takes a moment at most; never raises."""
        async with anyio.create_task_group() as group:
            for fetcher in self._fetchers.values():
                group.start_soon(fetcher.close)

    def _found(self) -> None:
        for fetcher in self._fetchers.values():
            fetcher.wake()
        self._on_found()
