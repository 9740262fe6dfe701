"""The topics of a member: its subscription by name or pattern, and the topics that it watches as the leader."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Collection, Iterable

import anyio

from ..aio.retry import Backoff
from ..cluster.client import Client
from ..cluster.metadata import ClusterView
from ..errors import ErrorCode, KafkaError, error_for
from ..protocol.messages import MetadataRequest
from .coordinator_channel import is_retriable_by_member
from .events import Event, Fail, Subscribe, TopicsSeen
from .strategies import TopicRacks

logger = logging.getLogger(__name__)

Topics = Collection[str] | re.Pattern[str]
"""Topic names, or a regular expression that must match a whole name."""

Spawn = Callable[..., "anyio.CancelScope"]
"""Runs a coroutine function as a task of the owning component: ``Service.start_child``."""


class TopicWatcher:
    """Keeps the client's metadata on the member's topics, and reports changes. Owner: the group coordinator.

    ``post`` sends an event to the member, ``fail`` ends the membership, ``on_error`` gets errors that are retried.
    """

    def __init__(
        self,
        client: Client,
        group_id: str,
        *,
        spawn: Spawn,
        post: Callable[[Event], None],
        fail: Callable[[Fail], None],
        on_error: Callable[[KafkaError], None],
    ) -> None:
        self._client = client
        self._group_id = group_id
        self._spawn = spawn
        self._post = post
        self._fail = fail
        self._on_error = on_error
        self._pattern_task: anyio.CancelScope | None = None
        self._topic_gone = asyncio.Event()  # a matching topic was deleted: list the topics now and not at the interval
        self.subscribed: frozenset[str] = frozenset()
        """The topics to read; of a pattern, those that match now."""
        self._watched: frozenset[str] = frozenset()
        self._tracked: frozenset[str] = frozenset()

    def start(self) -> None:
        """Follow the metadata. The client must be running."""
        self._client.on_view_change(self._view_changed)

    def subscribe(self, topics: Topics) -> None:
        """Replace the subscription."""
        if self._pattern_task is not None:
            self._pattern_task.cancel()
            self._pattern_task = None
        if isinstance(topics, re.Pattern):
            # With a pattern, a request for a matching topic that was just deleted would create it again.
            self._client.allow_topic_creation(False)
            self._pattern_task = self._spawn(self._watch_pattern, topics, name="topics that match")
        else:
            self._client.allow_topic_creation(self._client.config.allow_auto_create_topics)
            self._subscribe(frozenset(topics))

    def watch(self, topics: frozenset[str]) -> None:
        """Report changes in the number of partitions of these topics too: this member is the leader."""
        self._watched = topics
        self._track()

    def _subscribe(self, topics: frozenset[str]) -> None:
        self.subscribed = topics
        self._track()
        self._post(Subscribe(topics))

    def _track(self) -> None:
        wanted = self.subscribed | self._watched
        # The client drops topics that are not in use (KIP-526), so the member's topics are added explicitly.
        self._client.add_topics(wanted - self._tracked)
        self._client.remove_topics(self._tracked - wanted)
        self._tracked = wanted

    def _view_changed(self, view: ClusterView) -> None:
        for name in self.subscribed:
            topic = view.topics.get(name)
            if topic is None:
                continue
            # A pattern matches only topics that the principal may describe, so only names can be refused.
            if topic.error is ErrorCode.TOPIC_AUTHORIZATION_FAILED and self._pattern_task is None:
                self._fail(Fail(error_for(topic.error, f"group {self._group_id!r}, {name!r}")))
            if topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self._topic_gone.set()
        if self._watched:
            counts = {name: len(racks) for name, racks in topic_racks(view, self._watched).items()}
            self._post(TopicsSeen(counts))

    async def _watch_pattern(self, pattern: re.Pattern[str]) -> None:
        """List all topics every ``metadata_max_age`` seconds, and subscribe to those that match."""
        config = self._client.config
        known: frozenset[str] | None = None
        backoff = self._client.retry_backoff()
        # The metadata may report a deleted topic for a while, so its early refresh is repeated with a growing pause.
        early = Backoff(config.retry_backoff, config.metadata_max_age, random=self._client.runtime.random)
        while True:
            try:
                response = await self._client.send(MetadataRequest(topics=None))
            except KafkaError as error:
                if not is_retriable_by_member(error):
                    raise
                self._on_error(error)
                await asyncio.sleep(backoff.next())
                continue
            backoff.reset()
            names = frozenset(
                topic.name
                for topic in response.topics
                if topic.name is not None
                and not topic.is_internal
                and not topic.error_code
                and pattern.fullmatch(topic.name)
            )
            if names != known:
                known = names
                self._subscribe(names)
            self._topic_gone.clear()
            with anyio.move_on_after(config.metadata_max_age) as waiting:
                await self._topic_gone.wait()
            if waiting.cancelled_caught:
                early.reset()
            else:
                await asyncio.sleep(early.next())


def topic_racks(view: ClusterView, names: Iterable[str]) -> TopicRacks:
    """Those of the topics that exist: for each partition, the racks that hold a replica.

    A topic with a retriable error counts with its last known partitions: a short outage must not cause a rebalance.
    """
    racks = {node_id: node.rack for node_id, node in view.nodes.items()}
    found: dict[str, list[frozenset[str]]] = {}
    for name in sorted(names):
        topic = view.topics.get(name)
        if topic is None or not topic.partitions or not (topic.error is ErrorCode.NONE or topic.error.retriable):
            continue
        held: list[frozenset[str]] = [frozenset()] * (topic.partitions[-1].partition + 1)
        for partition in topic.partitions:
            held[partition.partition] = frozenset(
                rack for node_id in partition.replicas if (rack := racks.get(node_id)) is not None
            )
        found[name] = held
    return found
