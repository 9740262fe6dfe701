"""The topics of a member: its subscription by name or pattern, and the topics that it watches as the leader."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Collection, Iterable

import anyio

from ..aio.children import ChildScope
from ..aio.light_event import LightEvent
from ..aio.retry import Backoff, is_momentary, is_refusal
from ..cluster.client import Client
from ..cluster.metadata import ClusterView
from ..cluster.topics import MISSING_AFTER
from ..errors import ErrorCode, KafkaError, error_for
from ..protocol.messages import MetadataRequest, MetadataResponse
from ..types import SubscriptionPattern
from .events import Event, Subscribe, TopicsSeen
from .strategies import TopicRacks

logger = logging.getLogger(__name__)

GONE_AFTER = 2.0
"""Seconds for which a topic must be unknown to all brokers before the group continues without it.

One answer is not enough, because brokers get the metadata of a new topic at different times.
"""

Topics = Collection[str] | re.Pattern[str] | SubscriptionPattern
"""Topic names, or a regular expression that must match a whole name: here, or at the coordinator."""

Spawn = Callable[..., ChildScope]
"""Runs a coroutine function as a task of the owning component: ``Service.start_child``."""


class TopicWatcher:
    """Makes the client track the member's topics, and reports changes of them. Owner: the ``MemberRunner``.

    ``post`` sends an event to the member, ``on_error`` gets errors that are retried.
    """

    def __init__(
        self,
        client: Client,
        group_id: str,
        *,
        spawn: Spawn,
        post: Callable[[Event], None],
        on_error: Callable[[KafkaError], None],
    ) -> None:
        self._client = client
        self._group_id = group_id
        self._spawn = spawn
        self._post = post
        self._on_error = on_error
        self._place = f"topics of group {group_id}"
        self._pattern_task: ChildScope | None = None
        # Set when a matching topic was deleted. Then the topics are listed at once.
        self._topic_gone = LightEvent()
        self.subscribed: frozenset[str] = frozenset()
        """The topics to read; for a pattern, the topics that match now; for that of the coordinator, the assigned
        ones."""
        self.pattern: re.Pattern[str] | None = None
        """The pattern of the subscription that this client matches."""
        self.sent_pattern: SubscriptionPattern | None = None
        """The pattern of the subscription that the coordinator matches."""
        self.listed: frozenset[str] | None = None
        """The topics of the cluster, as last listed for the pattern; None before the first list."""
        self._watched: frozenset[str] = frozenset()
        self._unknown: set[str] = set()  # topics that had partitions, and are unknown in the last metadata answers
        self._expected: frozenset[str] = frozenset()  # of the coordinator's pattern, until metadata has them
        self._gone: set[str] = set()  # topics that stayed unknown, so they are deleted
        self._tracked: frozenset[str] = frozenset()
        self._asks_for_access = False

    def start(self) -> None:
        """Follow the metadata. The client must be running."""
        self._client.on_view_change(self._view_changed)

    def subscribe(self, topics: Topics) -> None:
        """Replace the subscription."""
        if self._pattern_task is not None:
            self._pattern_task.cancel()
            self._pattern_task = None
            self._client.outages.forget(self._place)
        self._expected = frozenset()
        self.pattern = topics if isinstance(topics, re.Pattern) else None
        self.sent_pattern = topics if isinstance(topics, SubscriptionPattern) else None
        self.listed = None
        if isinstance(topics, SubscriptionPattern):
            self._client.allow_topic_creation(False)
            self._pattern_task = self._spawn(self._send_pattern, topics, name="topics before the pattern")
        elif isinstance(topics, re.Pattern):
            # With a pattern, a request for a matching topic that was just deleted would create it again.
            self._client.allow_topic_creation(False)
            self._pattern_task = self._spawn(self._watch_pattern, topics, name="topics that match")
        else:
            self._client.allow_topic_creation(self._client.config.allow_auto_create_topics)
            self._subscribe(frozenset(topics))

    def watch(self, topics: frozenset[str]) -> None:
        """Report changes in the number of partitions of these topics too, because this member is the leader."""
        self._watched = topics
        self._track()

    def expect(self, topics: Iterable[str]) -> None:
        """Track topics that the coordinator has assigned, and that metadata lacks. Each call replaces the last one."""
        self._expected = frozenset(topics)
        self.follow(self.subscribed)

    def follow(self, topics: frozenset[str]) -> None:
        """Track the topics that the coordinator has assigned by its pattern."""
        topics |= self._expected
        if topics != self.subscribed:
            self._client.add_list_of_topics(topics)
            self.subscribed = topics
            self._track()

    def _subscribe(self, topics: frozenset[str]) -> None:
        self.subscribed = topics
        self._track()
        self._post(Subscribe(self._existing()))

    def _track(self) -> None:
        topics = self.subscribed | self._watched
        # The client drops topics that are not in use (KIP-526), so the member's topics are added explicitly.
        self._client.add_topics(topics - self._tracked)
        self._client.remove_topics(self._tracked - topics)
        self._tracked = topics

    def _view_changed(self, view: ClusterView) -> None:
        for name in self.subscribed:
            topic = view.topics.get(name)
            if topic is None:
                continue
            if topic.error is ErrorCode.NONE:
                self._client.outages.recovered(logger, self._access(name), "the metadata of topic %r is shown", name)
            if topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self._topic_gone.set()
        if self.sent_pattern is not None:
            return  # the coordinator follows deletions, and assigns no topic that the principal may not describe
        self._follow_deletions(view)
        self._report_counts()
        if not self._asks_for_access and self._refused():
            self._asks_for_access = True
            self._spawn(self._ask_for_access, name="topics that are refused")

    # Refused topics.

    def _refused(self) -> list[str]:
        """Return the topics that the principal may not describe. The other topics are read meanwhile.

        A pattern matches only topics that the principal may describe, so only topics given by name can be refused.
        """
        if self._pattern_task is not None:
            return []
        topics = self._client.view.topics
        refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return sorted(name for name in self.subscribed if name in topics and topics[name].error is refused)

    def _access(self, name: str) -> str:
        return f"access of group {self._group_id} to topic {name}"

    async def _ask_for_access(self) -> None:
        """Ask again while topics are refused: the brokers may not know the ACLs yet, or an operator replaces them."""
        backoff, reported = self._client.retry_backoff(), set[str]()
        while names := self._refused():
            for name in reported.difference(names):  # shown again, deleted, or no longer subscribed to
                self._client.outages.forget(self._access(name))
            reported.update(names)
            for name in names:
                error = error_for(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"group {self._group_id!r}, {name!r}")
                what = "group %s cannot read topic %r, and tries again: %s"
                self._client.outages.report(logger, self._access(name), error, what, self._group_id, name, error)
            self._client.request_refresh(names)
            await asyncio.sleep(backoff.next())
        for name in reported:
            self._client.outages.forget(self._access(name))
        self._asks_for_access = False

    # Partitions.

    def _report_counts(self) -> None:
        if self._watched:
            self._post(TopicsSeen({name: len(racks) for name, racks in self.racks(self._watched).items()}))

    def racks(self, names: Iterable[str]) -> TopicRacks:
        """Return the racks that hold a replica, for each partition of the existing topics.

        A topic with an error that may pass counts with its last known partitions: a short outage must not cause a
        rebalance.
        """
        view = self._client.view
        racks = {node_id: node.rack for node_id, node in view.nodes.items()}
        racks_by_topic: dict[str, list[frozenset[str]]] = {}
        for name in sorted(set(names) - self._gone):
            topic = view.topics.get(name)
            if topic is None or not topic.partitions or not (topic.error is ErrorCode.NONE or topic.error_may_pass):
                continue
            # Metadata may lack a partition in the middle. It is still assigned, but without racks.
            partition_racks: list[frozenset[str]] = [frozenset()] * (topic.partitions[-1].partition + 1)
            for partition in topic.partitions:
                partition_racks[partition.partition] = frozenset(
                    rack for node_id in partition.replicas if (rack := racks.get(node_id)) is not None
                )
            racks_by_topic[name] = partition_racks
        return racks_by_topic

    # Deleted topics.

    def _follow_deletions(self, view: ClusterView) -> None:
        # A topic without partitions was never known to exist, so it is not deleted but perhaps about to be created.
        unknown = {
            name
            for name in self.subscribed | self._watched
            if (topic := view.topics.get(name)) is not None
            and topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            and topic.partitions
        }
        new = unknown - self._unknown
        self._unknown = unknown
        if not self._gone <= unknown:  # some exist again
            self._gone &= unknown
            self._post(Subscribe(self._existing()))
        if new:
            self._spawn(self._confirm_deletions, new, name="topics that were deleted")

    async def _confirm_deletions(self, names: Collection[str]) -> None:
        self._client.request_refresh()
        await asyncio.sleep(GONE_AFTER)
        deleted = sorted(self._unknown.intersection(names) - self._gone)
        if deleted:
            topics = ", ".join(deleted)
            logger.warning("group %s continues without the deleted topics %s", self._group_id, topics)
            self._gone.update(deleted)
            # The leader may detect the deletion minutes later. If the topics are not in its subscription, this member
            # is not assigned their partitions until then.
            if self._pattern_task is None:
                self._post(Subscribe(self._existing(), lazily=True))
            self._report_counts()

    def _existing(self) -> frozenset[str]:
        """Return the existing topics to subscribe to.

        If no topic exists, the result has all topics: a member without a subscription would leave the group.
        """
        return self.subscribed - self._gone or self.subscribed

    # Patterns.

    async def _send_pattern(self, pattern: SubscriptionPattern) -> None:
        """Subscribe by a pattern that the coordinator matches, after a list of the topics that exist before.

        All records of a topic that appears later are read, also with ``auto_offset_reset="latest"``.
        """
        backoff = self._client.retry_backoff()
        while (response := await self._list(pattern.pattern, backoff)) is None:
            pass
        names = {topic.name for topic in response.topics if topic.name is not None}
        for _ in range(2):  # one list is no proof, but a client that reads too much is better than one that skips
            self._client.add_list_of_topics(names)
        self._post(Subscribe(frozenset(), pattern=pattern.pattern))

    async def _list(self, pattern: str, backoff: Backoff) -> MetadataResponse | None:
        """List all topics. None after a failure and a pause."""
        try:
            response = await self._client.send(MetadataRequest(topics=None))
        except KafkaError as error:
            if not is_momentary(error):
                raise
            what = "group %s: listing the topics for its pattern failed; retrying: %s"
            problem = f"the topics for the pattern {pattern!r} cannot be listed: {error}"
            level = logging.WARNING if is_refusal(error) else logging.INFO
            self._client.outages.report(
                logger, self._place, error, what, self._group_id, error, level=level, problem=problem
            )
            self._on_error(error)
            await asyncio.sleep(backoff.next())
            return None
        self._client.outages.recovered(logger, self._place, "group %s: listed the topics", self._group_id)
        backoff.reset()
        return response

    async def _watch_pattern(self, pattern: re.Pattern[str]) -> None:
        """List all topics every ``metadata_max_age`` seconds, and subscribe to those that match."""
        config = self._client.config
        matches: frozenset[str] | None = None
        # Two lists say which topics exist at the start, because one broker may have outdated metadata.
        listed_again, second = False, min(MISSING_AFTER, config.metadata_max_age)
        backoff = self._client.retry_backoff()
        # The metadata may contain a deleted topic for a while, so the early refresh is repeated with a growing pause.
        early = Backoff(config.retry_backoff, config.metadata_max_age, random=self._client.runtime.random)
        while True:
            response = await self._list(pattern.pattern, backoff)
            if response is None:
                continue
            self.listed = frozenset(topic.name for topic in response.topics if topic.name is not None)
            self._client.add_list_of_topics(self.listed)
            names = frozenset(
                topic.name
                for topic in response.topics
                if topic.name is not None
                and not topic.is_internal
                and not topic.error_code
                and pattern.fullmatch(topic.name)
            )
            if names != matches:
                matches = names
                self._subscribe(names)
            self._topic_gone.clear()
            with anyio.move_on_after(config.metadata_max_age if listed_again else second) as waiting:
                await self._topic_gone.wait()
            listed_again = True
            if waiting.cancelled_caught:
                early.reset()
            else:
                await asyncio.sleep(early.next())
