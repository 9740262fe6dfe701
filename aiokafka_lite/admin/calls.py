"""Sends an admin call on many items to the brokers: chooses the broker of each item, retries, and has a deadline.

Every family of calls uses ``Calls.settle``. An item is settled when it has its result or its error.

Rule 1: Each round finds the brokers of the unsettled items, and asks all these brokers at the same time, each once. A
  round does not wait for the end of the previous one, so a broker that does not answer delays only its own items.

Rule 2: An item whose error is retriable stays for the next round, which begins after a backoff and with new metadata.
At the deadline it fails with KafkaTimeout, which names its last error.

Rule 3: Three answers are treated differently from ``aio.retry.is_retriable``, as Java's admin client does.
UNKNOWN_TOPIC_OR_PARTITION is final from the controller, which knows all topics. Other brokers may not know a new topic
yet, so their answer is retried for ``GRACE`` seconds. Codes in ``final`` are not retried. Codes in ``already``
are a success if an earlier attempt of the same call may have been executed.

This module does not know what requests contain.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any, Generic, TypeVar

import anyio
import anyio.abc

from ..aio.light_event import LightEvent
from ..aio.retry import is_retriable
from ..aio.service import Service, unwrapped
from ..arguments import in_seconds, must_be, plural
from ..cluster.client import Client
from ..cluster.coordinators import CoordinatorKey, CoordinatorKind
from ..cluster.metadata import TopicView
from ..cluster.topics import check_topic_name
from ..errors import (
    BrokerError,
    ConfigurationError,
    ConnectionLost,
    ErrorCode,
    KafkaError,
    KafkaTimeout,
    ProtocolError,
    UnsupportedVersion,
    error_for,
)
from ..net.broker import Broker, Purpose
from ..protocol.schema import Request, Since
from ..protocol.versions import VersionTable
from ..settings.checks import LONGEST
from ..types import Node, TopicPartition
from .results import Results

K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R")

GRACE = 0.5
"""Seconds for which a new topic may be unknown to a broker."""

LEADERS_MAX_AGE = 1.0
"""Seconds for which known leaders are used, so that a series of calls does not wait for metadata each time. If a broker
no longer leads a partition, it answers with an error, and the metadata is refreshed."""

NOT_FOUND = frozenset((ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID))
NOTHING: Mapping[Any, Any] = MappingProxyType({})
_MAYBE_DONE = "An earlier attempt of this call had no answer, and may have been carried out."
_COORDINATOR_MOVED = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)


class Deadline:
    """The end of a call in the loop's time, ``timeout`` seconds from now. Raises ConfigurationError."""

    __slots__ = ("at", "timeout")

    def __init__(self, timeout: float) -> None:
        if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout <= sys.float_info.max:
            raise ConfigurationError(must_be("timeout", "a number of seconds > 0", timeout))
        self.timeout: float = float(timeout)
        self.at: float = asyncio.get_running_loop().time() + timeout

    @property
    def left(self) -> float:
        """Seconds left, never below zero."""
        return max(0.0, self.at - asyncio.get_running_loop().time())

    def first_part(self) -> Deadline:
        """Return a deadline after three quarters of the remaining time. If the step times out, later steps still have
        time.
        """
        return Deadline(max(self.left * 0.75, 0.001))


class Peer:
    """A broker for one attempt: its versions, and a way to send it requests."""

    def __init__(self, broker: Broker, versions: VersionTable, timeout: float) -> None:
        self.node: Node = broker.node
        self.node_id: int = broker.node.node_id
        self.versions = versions
        self._broker = broker
        self._timeout = timeout

    @property
    def timeout_ms(self) -> int:
        """The milliseconds that the broker may take: 90 % of the client's timeout, so that its answer still arrives."""
        return max(1, round(min(self._timeout, LONGEST) * 900))

    async def send(self, request: Request[R], *, at_most: int | None = None) -> R:
        """Send the request once and return the response. ``at_most`` bounds the version."""
        return await self._broker.send(request, purpose=Purpose.ADMIN, timeout=self._timeout, at_most=at_most)

    def speaks(self, what: type[Request[Any]] | Since) -> bool:
        """Return whether the broker and this client both support an API, or a version of the API that has a feature."""
        request, version = (what.message, int(what)) if isinstance(what, Since) else (what, 0)
        newest = self.versions.maximum(request)
        return newest is not None and newest >= version

    def require(self, feature: Since, what: str) -> None:
        """Raise UnsupportedVersion unless the broker has the feature. The error names the Kafka release that has it."""
        if not self.speaks(feature):
            raise UnsupportedVersion(
                f"{what} requires Kafka {feature.kafka} or newer, and {self.versions.peer} is older"
            )


@dataclass(slots=True)
class Targets:
    """The items of each broker to ask, and the errors of items without a broker."""

    by_node: dict[int, list[Any]] = field(default_factory=dict)
    errors: dict[Any, KafkaError] = field(default_factory=dict)
    any_broker: bool = False
    """Whether any broker can answer. If so, a broker that does not answer must leave time to ask another one."""

    def put(self, node_id: int, item: Any) -> None:
        self.by_node.setdefault(node_id, []).append(item)


FindTargets = Callable[[list[Any], Deadline], Awaitable[Targets]]
Ask = Callable[[Peer, list[K]], Awaitable[Mapping[K, V | KafkaError]]]


class Calls:
    """The calls of one admin client. ``owner`` is the service that the user starts, by default the client's."""

    def __init__(self, client: Client, owner: Service | None = None) -> None:
        self._client = client
        self._owner = owner or client.service
        self._avoided: set[int] = set()  # brokers whose last attempt failed

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
        *,
        grace: float = GRACE,
        final: Collection[ErrorCode] = (),
        already: Mapping[ErrorCode, Callable[[K], V]] = NOTHING,
        key_of: Callable[[K], CoordinatorKey] | None = None,
    ) -> Results[K, V]:
        """Ask until every item has its result or its error. ``what`` names the call in errors.

        - ``find_targets`` chooses the brokers.
        - ``ask`` sends the requests of one attempt, and returns the result or the error of each item. An item that it
          omits has failed. An error that it raises is the error of all items of the attempt.
        - ``grace`` is the number of seconds for which a missing topic is retried.
        - ``final`` has the codes that are not retried.
        - ``already`` turns an error of a repeated request into a result. For example, UNKNOWN_TOPIC_OR_PARTITION is a
          success of a deletion whose first request had no answer.
        - ``key_of`` returns the group or transactional id of an item whose coordinator is asked. If the coordinator
          has moved, it is looked up again.
        """
        call = _Call(self, what, items, deadline, _Rules(grace, final, already, key_of))
        return await self._owner.while_running(call.run(find_targets, ask))

    async def one(
        self, what: str, find_targets: FindTargets, ask: Callable[[Peer], Awaitable[R]], deadline: Deadline
    ) -> R:
        """Do the same as ``settle`` for one item. Return its result, or raise its error."""

        async def each(peer: Peer, items: list[str]) -> Mapping[str, R | KafkaError]:
            result = await ask(peer)
            return dict.fromkeys(items, result)

        results: Results[str, R] = await self.settle(what, [what], find_targets, each, deadline)
        return results[what]

    async def of_groups(
        self,
        what: str,
        groups: Iterable[str],
        ask: Ask[str, V],
        deadline: Deadline,
        *,
        already: Mapping[ErrorCode, Callable[[str], V]] = NOTHING,
    ) -> Results[str, V]:
        """Settle each group at its coordinator."""
        find = partial(self._coordinators, CoordinatorKind.GROUP)
        return await self.settle(what, groups, find, ask, deadline, already=already, key_of=_group_key)

    async def coordinators(self, kind: CoordinatorKind, names: Iterable[str], deadline: Deadline) -> Results[str, Node]:
        """Return the coordinators of groups or of transactional ids. Each of them accepts connections.

        They are looked up again, because only a request to a cached coordinator would show that it has moved.
        """
        names = list(names)
        for name in names:
            self._client.forget_coordinator(name, kind)

        async def ask(peer: Peer, items: list[str]) -> Mapping[str, Node | KafkaError]:
            return dict.fromkeys(items, peer.node)

        return await self.settle(
            "finding coordinators",
            names,
            partial(self._coordinators, kind),
            ask,
            deadline,
            key_of=partial(CoordinatorKey, kind),
        )

    async def of_group(
        self,
        what: str,
        group_id: str,
        items: Iterable[K],
        ask: Ask[K, V],
        deadline: Deadline,
        *,
        already: Mapping[ErrorCode, Callable[[K], V]] = NOTHING,
    ) -> Results[K, V]:
        """Settle all items at the coordinator of one group."""

        async def find(items: list[Any], deadline: Deadline) -> Targets:
            targets = await self._coordinators(CoordinatorKind.GROUP, [group_id], deadline)
            if targets.errors:
                raise targets.errors[group_id]
            return Targets({node_id: list(items) for node_id in targets.by_node})

        return await self.settle(
            what, items, find, ask, deadline, already=already, key_of=lambda item: _group_key(group_id)
        )

    async def of_transactions(
        self, what: str, transactional_ids: Iterable[str], ask: Ask[str, V], deadline: Deadline
    ) -> Results[str, V]:
        """Settle each transactional id at its coordinator."""
        find = partial(self._coordinators, CoordinatorKind.TRANSACTION)
        return await self.settle(
            what,
            transactional_ids,
            find,
            ask,
            deadline,
            key_of=lambda item: CoordinatorKey(CoordinatorKind.TRANSACTION, item),
        )

    # Targets.

    async def any_broker(self, items: list[Any], deadline: Deadline) -> Targets:
        """Send all items to one broker, preferably a connected one whose last attempt did not fail."""
        nodes = self._client.view.nodes
        good = [node_id for node_id in nodes if node_id not in self._avoided] or list(nodes)
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
        """Send each group or transactional id to its coordinator.

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
                listed = ", ".join(map(str, sorted(nodes)))
                text = f"broker {node_id} is not in the cluster, which has {listed}"
                targets.errors[node_id] = error_for(ErrorCode.BROKER_ID_NOT_REGISTERED, reason=text)
        return targets

    async def all_brokers(self, deadline: Deadline, *, at_once: bool = True) -> list[int]:
        """Return the ids of all brokers, by new metadata. In a loop, ``at_once`` must be false, so that requests are
        paced.
        """
        view = await self._client.refresh((), timeout=max(deadline.left, 0.001), at_once=at_once)
        return sorted(view.nodes)

    async def of_all_brokers(self, what: str, ask: Ask[int, V], deadline: Deadline) -> Mapping[int, V]:
        """Ask every broker. If one leaves, ask all again, because others took over its groups.

        Raises the error if one broker did not answer: a list would not be complete.
        """
        nodes = await self.all_brokers(deadline)
        while True:
            answers = await self.settle(what, nodes, self.brokers, ask, deadline)
            gone = next(filter(_is_gone, answers.failed.values()), None)
            if gone is None:
                return answers.raise_for_errors()
            try:
                nodes = await self.all_brokers(deadline, at_once=False)
            except KafkaTimeout:
                late = f"{what} did not succeed within {in_seconds(deadline.timeout)}"
                raise KafkaTimeout(f"{late}; the last error was: {gone}") from None

    # Brokers.

    async def peer(self, node_id: int, deadline: Deadline, *, share: float = 1.0) -> Peer:
        """Connect to the broker for an attempt. ``share`` is the part of the remaining time for it."""
        broker = self._client.broker(node_id)
        connection = await broker.connection(Purpose.ADMIN)
        # After the connection is open, because this takes a part of the time as well.
        bound = max(min(deadline.left * share, self._client.config.request_timeout), 0.001)
        return Peer(broker, connection.versions, bound)

    def broker_failed(self, node_id: int) -> None:
        """Prefer other brokers from now on. Refresh the metadata, because the broker may have left the cluster."""
        self._avoided.add(node_id)
        self._client.request_refresh()

    def broker_answered(self, node_id: int) -> None:
        """Record that the broker is reachable."""
        self._avoided.discard(node_id)


@dataclass(frozen=True, slots=True)
class _Rules(Generic[K, V]):
    """The rules by which a call classifies errors; ``Calls.settle`` explains the fields."""

    grace: float
    final: Collection[ErrorCode]
    already: Mapping[ErrorCode, Callable[[K], V]]
    key_of: Callable[[K], CoordinatorKey] | None


class _Call(Generic[K, V]):
    """One call of ``settle``: the pending items with their last errors, and the settled ones."""

    def __init__(self, calls: Calls, what: str, items: Iterable[K], deadline: Deadline, rules: _Rules[K, V]) -> None:
        self._calls = calls
        self._what = what
        self._deadline = deadline
        self._rules = rules
        self._started = asyncio.get_running_loop().time()
        self._items = list(dict.fromkeys(items))
        self._pending: dict[K, KafkaError | None] = dict.fromkeys(self._items)
        self._done: dict[K, V] = {}
        self._failed: dict[K, KafkaError] = {}
        # Items of which an earlier attempt had no answer. The broker may have executed it, so an error such as "exists
        # already" may be the result of this call itself.
        self._repeated: set[K] = set()
        self._asked: set[K] = set()  # items with a request in flight
        self._answered = LightEvent()
        self._wrong: list[Exception] = []  # errors of the caller's arguments, not of an item

    async def run(self, find_targets: FindTargets, ask: Ask[K, V]) -> Results[K, V]:
        backoff = self._calls.client.retry_backoff()
        try:
            with anyio.CancelScope(deadline=self._deadline.at) as scope:
                async with anyio.create_task_group() as requests:
                    while self._pending:
                        await self._begin_round(requests, find_targets, ask)
                        await self._until_next_round()
                        if self._pending:
                            # The error may come from old metadata, such as a leader that has moved (rule 2).
                            await asyncio.sleep(backoff.next())
                            await self._refresh_metadata()
        except BaseExceptionGroup as errors:
            raise unwrapped(errors) from None
        if scope.cancelled_caught:
            self._time_out()
        return Results(
            {item: self._done[item] for item in self._items if item in self._done},
            {item: self._failed[item] for item in self._items if item in self._failed},
        )

    async def _begin_round(self, requests: anyio.abc.TaskGroup, find_targets: FindTargets, ask: Ask[K, V]) -> None:
        items = [item for item in self._pending if item not in self._asked]
        try:
            targets = await find_targets(items, self._deadline)
        except KafkaError as error:
            self._classify_all(items, error)
            return
        self._classify(targets.errors)
        for node_id, share in targets.by_node.items():
            self._asked.update(share)
            requests.start_soon(self._ask_one, node_id, share, ask, 0.5 if targets.any_broker else 1.0)

    async def _until_next_round(self) -> None:
        """Wait until a pending item can be retried, or no item is pending.

        Raises the TypeError or ValueError of an argument that no version of the request can carry.
        """
        while self._pending and self._asked.issuperset(self._pending):
            self._answered.clear()
            await self._answered.wait()
        if self._wrong:
            raise self._wrong[0]

    async def _ask_one(self, node_id: int, share: list[K], ask: Ask[K, V], of_time: float) -> None:
        try:
            await self._ask(node_id, share, ask, of_time)
        except (TypeError, ValueError) as error:
            self._wrong.append(error)
        self._asked.difference_update(share)
        self._answered.set()

    async def _ask(self, node_id: int, share: list[K], ask: Ask[K, V], of_time: float) -> None:
        try:
            peer = await self._calls.peer(node_id, self._deadline, share=of_time)
            answers = await ask(peer, share)
        except KafkaError as error:
            self._note_unreachable(node_id, share, error)
            self._classify_all(share, error)
            return
        self._calls.broker_answered(node_id)
        self._classify(answers, node_id)
        missing = [item for item in share if item in self._pending and item not in answers]
        text = f"{self._what}: the response does not have this item"
        self._classify_all(missing, error_for(ErrorCode.UNKNOWN_SERVER_ERROR, text))

    def _note_unreachable(self, node_id: int, share: list[K], error: KafkaError) -> None:
        if not isinstance(error, ConnectionLost | KafkaTimeout | ProtocolError):
            return
        # Unless the request was never sent, the broker may have executed it.
        if not (isinstance(error, ConnectionLost) and not error.sent):
            self._repeated.update(share)
        self._calls.broker_failed(node_id)
        self._forget_coordinators(share, node_id)

    def _forget_coordinators(self, items: Iterable[K], node_id: int) -> None:
        if self._rules.key_of is not None:
            for key in dict.fromkeys(map(self._rules.key_of, items)):
                self._calls.client.forget_coordinator(key.name, key.kind, node_id=node_id)

    # Classifying answers.

    def _classify_all(self, items: Iterable[K], error: KafkaError) -> None:
        self._classify(dict.fromkeys(items, error))

    def _classify(self, answers: Mapping[K, V | KafkaError], node_id: int = -1) -> None:
        for item, answer in answers.items():
            # A broker may also answer for items that it was not asked about.
            if item not in self._pending:
                continue
            if not isinstance(answer, KafkaError):
                self._succeed(item, answer)
                continue
            code = answer.code if isinstance(answer, BrokerError) else None
            if code in _COORDINATOR_MOVED:
                self._forget_coordinators([item], node_id)
            # The broker may still complete the operation after this answer.
            if code is ErrorCode.REQUEST_TIMED_OUT:
                self._repeated.add(item)
            already = None if code is None else self._rules.already.get(code)
            if already is not None and item in self._repeated:
                self._succeed(item, already(item))
            elif self._is_retriable(answer):
                self._pending[item] = answer
            else:
                self._fail(item, answer)

    def _succeed(self, item: K, value: V) -> None:
        del self._pending[item]
        self._done[item] = value

    def _fail(self, item: K, error: KafkaError) -> None:
        del self._pending[item]
        if item in self._repeated and _MAYBE_DONE not in getattr(error, "__notes__", ()):
            error.add_note(_MAYBE_DONE)
        self._failed[item] = error

    def _is_retriable(self, error: KafkaError) -> bool:
        """Decide as ``is_retriable`` does, with the exceptions of Rule 3."""
        if isinstance(error, BrokerError):
            if error.code in NOT_FOUND:
                return asyncio.get_running_loop().time() < self._started + self._rules.grace
            if error.code in self._rules.final:
                return False
        return is_retriable(error)

    def _time_out(self) -> None:
        for item, error in list(self._pending.items()):
            last = "no broker answered" if error is None else f"the last error was: {error}"
            what = self._what if item == self._what else f"{self._what}: {item}"
            text = f"{what} did not succeed within {in_seconds(self._deadline.timeout)}; {last}"
            self._fail(item, KafkaTimeout(text))

    async def _refresh_metadata(self) -> None:
        """Wait for metadata that is newer than the errors, if any broker answers."""
        try:
            bound = min(self._deadline.left, self._calls.client.config.request_timeout)
            await self._calls.client.refresh(timeout=max(bound, 0.001))
        except KafkaTimeout:
            pass  # the next round uses the old metadata


def answer_of(code: int, what: str, value: V, message: str | None = None) -> V | KafkaError:
    """Return the value if the code is 0, otherwise its error. ``what`` names the operation, ``message`` is from the
    broker.
    """
    return value if code == ErrorCode.NONE else refusal(code, what, message)


def refusal(code: int, what: str, message: str | None) -> KafkaError:
    """Return the error of a code. ``what`` names the operation, ``message`` is from the broker."""
    return error_for(code, what, reason=message)


def _group_key(group_id: str) -> CoordinatorKey:
    return CoordinatorKey(CoordinatorKind.GROUP, group_id)


def _is_gone(error: KafkaError) -> bool:
    """Return whether the broker has left the cluster."""
    return isinstance(error, BrokerError) and error.code is ErrorCode.BROKER_ID_NOT_REGISTERED


def _without_leader(item: TopicPartition, topic: TopicView | None) -> KafkaError:
    """Return the error of a partition that has no leader in metadata."""
    if topic is not None and topic.error is not ErrorCode.NONE:
        return error_for(topic.error, f"topic {item.topic!r}")
    if topic is not None and topic.is_usable and topic.partition(item.partition) is None:
        text = f"topic {item.topic!r} has {plural(len(topic.partitions), 'partition')}; there is no {item}"
        return error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, reason=text)
    return error_for(ErrorCode.LEADER_NOT_AVAILABLE, f"{item} has no leader")
