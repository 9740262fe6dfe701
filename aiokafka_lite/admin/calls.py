"""Sends an admin call on many items to the brokers: chooses the broker of each item, and settles the items.

Every family of calls uses ``Calls.settle``. An item is settled when it has its result or its error; the rules are in
``settling``. This module does not know what requests contain.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any, TypeVar

import anyio

from ..aio.service import Service
from ..arguments import in_seconds, plural
from ..cluster.client import Client
from ..cluster.coordinators import CoordinatorKey, CoordinatorKind
from ..cluster.metadata import TopicView
from ..cluster.topics import check_topic_name
from ..errors import BrokerError, ErrorCode, KafkaError, KafkaTimeout, UnsupportedVersion, error_for
from ..types import Node, TopicPartition
from .answers import has_code
from .peer import Ask, Brokers, Deadline, FindTargets, Peer, Targets
from .results import Results
from .settling import Rules, Settling

K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R")

LEADERS_MAX_AGE = 1.0
"""Seconds for which known leaders are used, so that a series of calls does not wait for metadata each time. If a broker
no longer leads a partition, it answers with an error, and the metadata is refreshed."""

_RULES: Rules[Any] = Rules()


class Calls:
    """The calls of one admin client. ``owner`` is the service that the user starts, by default the client's."""

    def __init__(self, client: Client, owner: Service | None = None) -> None:
        self._client = client
        self._owner = owner or client.service
        self._brokers = Brokers(client)

    @property
    def client(self) -> Client:
        return self._client

    def deadline(self, timeout: float | None) -> Deadline:
        """Return a deadline ``timeout`` seconds from now (``api_timeout`` if None).

        Raises IllegalStateError unless the client is started.
        """
        self._owner.check()
        return Deadline(self._client.config.api_timeout if timeout is None else timeout)

    async def settle(
        self,
        what: str,
        items: Iterable[K],
        find_targets: FindTargets,
        ask: Ask[K, V],
        deadline: Deadline,
        rules: Rules[K] = _RULES,
    ) -> Results[K, V]:
        """Ask until every item has its result or its error. ``what`` names the call in errors.

        - ``find_targets`` chooses the brokers.
        - ``ask`` sends the requests of one attempt, and returns the result or the error of each item. An item that it
          omits has failed. An error that it raises is the error of all items of the attempt.
        - ``rules`` says which errors are retried.
        """
        call: Settling[K, V] = Settling(self._brokers, what, items, deadline, rules)
        return await self._owner.while_running(call.run(find_targets, ask))

    async def one(
        self, what: str, find_targets: FindTargets, ask: Callable[[Peer], Awaitable[R]], deadline: Deadline
    ) -> R:
        """Do the same as ``settle`` for one item. Returns its result, or raises its error."""

        async def ask_once(peer: Peer, items: list[str]) -> Mapping[str, R | KafkaError]:
            return dict.fromkeys(items, await ask(peer))

        results: Results[str, R] = await self.settle(what, [what], find_targets, ask_once, deadline)
        return results[what]

    async def at_coordinators(
        self,
        kind: CoordinatorKind,
        what: str,
        names: Iterable[str],
        ask: Ask[str, V],
        deadline: Deadline,
        *,
        already: Collection[ErrorCode] = (),
    ) -> Results[str, V]:
        """Settle each group or transactional id at its coordinator."""
        rules: Rules[str] = Rules(already=already, key_of=partial(CoordinatorKey, kind))
        return await self.settle(what, names, partial(self._coordinators, kind), ask, deadline, rules)

    async def coordinators(self, kind: CoordinatorKind, names: Iterable[str], deadline: Deadline) -> Results[str, Node]:
        """Look up the coordinators of groups or transactional ids again, and connect to each of them.

        A cached coordinator may have moved, and only a request to it would show that.
        """
        names = list(names)
        for name in names:
            self._client.forget_coordinator(name, kind)

        async def ask(peer: Peer, items: list[str]) -> Mapping[str, Node | KafkaError]:
            return dict.fromkeys(items, peer.node)

        return await self.at_coordinators(kind, "finding coordinators", names, ask, deadline)

    async def of_group(
        self,
        what: str,
        group_id: str,
        items: Iterable[K],
        ask: Ask[K, V],
        deadline: Deadline,
        *,
        already: Collection[ErrorCode] = (),
    ) -> Results[K, V]:
        """Settle all items at the coordinator of one group."""

        async def find(items: list[Any], deadline: Deadline) -> Targets:
            targets = await self._coordinators(CoordinatorKind.GROUP, [group_id], deadline)
            if targets.errors:
                raise targets.errors[group_id]
            return Targets({node_id: list(items) for node_id in targets.by_node})

        key = CoordinatorKey(CoordinatorKind.GROUP, group_id)
        return await self.settle(what, items, find, ask, deadline, Rules(already=already, key_of=lambda _: key))

    # Targets.

    @property
    def asks_controllers(self) -> bool:
        """Whether the client asks the controllers, and no brokers."""
        return self._client.asks_controllers

    async def any_broker(self, items: list[Any], deadline: Deadline) -> Targets:
        """Send all items to one broker, preferably a connected one whose last attempt did not fail."""
        nodes = self._client.view.nodes
        good = [node_id for node_id in nodes if not self._brokers.is_avoided(node_id)] or list(nodes)
        if not good:
            return Targets(any_broker=True)
        candidates = [node_id for node_id in good if self._client.broker(node_id).connected] or good
        chosen = candidates[int(self._client.runtime.random() * len(candidates))]
        return Targets({chosen: list(items)}, any_broker=True)

    async def controller(self, items: list[Any], deadline: Deadline) -> Targets:
        """Send all items to the controller.

        If none is known, any broker gets them: it forwards the request, or answers NOT_CONTROLLER. librdkafka's
        mock cluster, for example, never names a controller.
        """
        controller = self._client.view.controller
        if controller is None:
            # An attempt gets the whole time, or a second broker could repeat a change that the first one executes.
            return Targets((await self.any_broker(items, deadline)).by_node)
        return Targets({controller.node_id: list(items)})

    async def leaders(self, items: list[TopicPartition], deadline: Deadline) -> Targets:
        """Send each partition to its leader, by recent metadata."""
        if self.asks_controllers:
            raise UnsupportedVersion("controllers do not know the leaders of partitions; give bootstrap_servers")
        targets = Targets()
        for item in items:
            try:
                check_topic_name(item.topic)
            except BrokerError as error:
                targets.errors[item] = error
        partitions = [item for item in items if item not in targets.errors]
        if not partitions:
            return targets
        view = self._client.view
        if view.age(asyncio.get_running_loop().time()) > LEADERS_MAX_AGE or not all(map(view.leader_of, partitions)):
            view = await self._client.refresh({item.topic for item in partitions}, timeout=max(deadline.left, 0.001))
        for item in partitions:
            if (leader := view.leader_of(item)) is not None:
                targets.put(leader.node_id, item)
            else:
                targets.errors[item] = _without_leader(item, view.topics.get(item.topic))
        return targets

    async def _coordinators(self, kind: CoordinatorKind, items: list[str], deadline: Deadline) -> Targets:
        """Sort groups or transactional ids by their coordinator, with the errors of failed lookups.

        Unknown coordinators are looked up at the same time, each once. So an unreachable coordinator delays only its
        own items.
        """
        targets = Targets()

        async def find(name: str) -> None:
            try:
                # Not retried here: ``settle`` retries, with pauses and a deadline.
                broker = await self._client.coordinator(name, kind, retry=False)
            except KafkaError as error:
                targets.errors[name] = error
            else:
                targets.put(broker.node.node_id, name)

        async with anyio.create_task_group() as lookups:
            for name in items:
                lookups.start_soon(find, name)
        return targets

    async def brokers(self, items: list[int], deadline: Deadline) -> Targets:
        """Send each broker id to that broker."""
        nodes = self._client.view.nodes
        targets = Targets({node_id: [node_id] for node_id in items if node_id in nodes})
        for node_id in items:
            if node_id not in nodes:
                broker_ids = ", ".join(map(str, sorted(nodes)))
                text = f"broker {node_id} is not in the cluster, which has {broker_ids}"
                targets.errors[node_id] = error_for(ErrorCode.BROKER_ID_NOT_REGISTERED, reason=text)
        return targets

    async def all_brokers(self, deadline: Deadline, *, at_once: bool = True) -> list[int]:
        """Refresh the metadata, and return the ids of all brokers. ``at_once`` skips the pause between requests."""
        view = await self._client.refresh((), timeout=max(deadline.left, 0.001), at_once=at_once)
        return sorted(view.nodes)

    async def of_all_brokers(self, what: str, ask: Ask[int, V], deadline: Deadline) -> Mapping[int, V]:
        """Ask every broker. If one leaves, ask all again, because others took over its groups.

        Raises the error if one broker did not answer: a list would not be complete.
        """
        nodes = await self.all_brokers(deadline)
        while True:
            answers = await self.settle(what, nodes, self.brokers, ask, deadline)
            left_cluster = ErrorCode.BROKER_ID_NOT_REGISTERED
            departure = next((error for error in answers.failed.values() if has_code(error, left_cluster)), None)
            if departure is None:
                return answers.raise_for_errors()
            try:
                nodes = await self.all_brokers(deadline, at_once=False)
            except KafkaTimeout:
                late = f"{what} did not succeed within {in_seconds(deadline.timeout)}"
                raise KafkaTimeout(f"{late}; the last error was: {departure}") from None


def _without_leader(item: TopicPartition, topic: TopicView | None) -> KafkaError:
    if topic is not None and topic.error is not ErrorCode.NONE:
        return error_for(topic.error, f"topic {item.topic!r}")
    if topic is not None and topic.is_usable and topic.partition(item.partition) is None:
        text = f"topic {item.topic!r} has {plural(len(topic.partitions), 'partition')}; there is no {item}"
        return error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, reason=text)
    return error_for(ErrorCode.LEADER_NOT_AVAILABLE, f"{item} has no leader")
