"""How a call on many things reaches the brokers: who is asked for what, what is tried again, and when it is enough.

Every family of calls stands on ``Calls.settle``. It holds the things that are not settled, asks in each round every
broker that is concerned, once and at the same time, and settles what the answers settle. What may pass (a controller
or leader that moved, a lost connection, a coordinator that is loading) stays for the next round, after a pause and
with fresh metadata, until the deadline; then it fails with KafkaTimeout that names the last trouble. A round does not
wait for the end of the one before: a broker that keeps silent holds up only what it was asked for. Nothing here knows
what is asked.

An answer that there is no such topic is believed at once from the controller, which decides. From any other broker it
is believed when it is repeated after ``GRACE`` seconds: who has just been told that a topic was created should find it.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Generic, TypeVar

import anyio
import anyio.abc

from ..aio.retry import Backoff
from ..aio.service import Service, unwrapped
from ..cluster.client import Client
from ..cluster.topics import check_topic_name
from ..errors import (
    BrokerError,
    ConnectionLost,
    ErrorCode,
    KafkaError,
    KafkaTimeout,
    ProtocolError,
    UnsupportedVersion,
    error_for,
)
from ..net.broker import Broker
from ..protocol.schema import Request
from ..protocol.versions import VersionTable
from ..types import TopicPartition
from .results import Results

K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R")

GRACE = 0.5
"""Seconds for which a broker that does not know a topic may only be late."""

FRESH = 1.0
"""Seconds for which leaders are believed, so that many calls in a row do not each wait for metadata. A leader that has
moved says so, and is looked for then."""

NOT_FOUND = frozenset((ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID))
NOTHING: Mapping[Any, Any] = MappingProxyType({})
_CUT_OFF = "An earlier try of the same call was cut off, and may have been carried out."
_ELSEWHERE = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)


class Deadline:
    """When a call must be over, on the clock of the loop."""

    __slots__ = ("at", "timeout")

    def __init__(self, timeout: float) -> None:
        if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout <= sys.float_info.max:
            raise ValueError(f"timeout={timeout!r}: a number of seconds above 0")
        self.timeout = float(timeout)
        self.at = asyncio.get_running_loop().time() + timeout

    @property
    def left(self) -> float:
        """Seconds left, never below zero."""
        return max(0.0, self.at - asyncio.get_running_loop().time())

    def first_part(self) -> Deadline:
        """Most of what is left, for a step that others follow: what cannot be settled is to leave time for the rest."""
        return Deadline(max(self.left * 0.75, 0.001))


class Peer:
    """A broker, for one try: what it speaks, and a way to ask it."""

    def __init__(self, broker: Broker, versions: VersionTable, timeout: float) -> None:
        self.node = broker.node
        self.node_id = broker.node.node_id
        self.versions = versions
        self._broker = broker
        self._timeout = timeout

    @property
    def timeout_ms(self) -> int:
        """How long the broker itself may work on a request, in milliseconds: a little less than it is waited for."""
        return max(1, round(self._timeout * 900))

    async def send(self, request: Request[R], *, at_most: int | None = None) -> R:
        """The answer; one try. ``at_most`` bounds the version."""
        return await self._broker.send(request, timeout=self._timeout, at_most=at_most)

    def speaks(self, request: type[Request[Any]], version: int = 0) -> bool:
        """Whether the broker and this client have that version of an API, or a later one, in common."""
        newest = self.versions.maximum(request)
        return newest is not None and newest >= version

    def require(self, request: type[Request[Any]], version: int, what: str, since: str) -> None:
        """Raise UnsupportedVersion, which names the release that brought it, unless the broker can do this."""
        if not self.speaks(request, version):
            raise UnsupportedVersion(f"{what} came with Kafka {since}, and {self.versions.peer} is older")


@dataclass(slots=True)
class Places:
    """Which broker to ask for which things, and the things for which there is none at the moment or at all."""

    by_node: dict[int, list[Any]] = field(default_factory=dict)
    errors: dict[Any, KafkaError] = field(default_factory=dict)
    by_anyone: bool = False
    """Whether any broker can answer: then one that keeps silent is to leave time for asking another."""

    def put(self, node_id: int, item: Any) -> None:
        self.by_node.setdefault(node_id, []).append(item)


Place = Callable[[list[Any], Deadline], Awaitable[Places]]
Ask = Callable[[Peer, list[K]], Awaitable[Mapping[K, V | KafkaError]]]


class Calls:
    """The way of one admin client to the brokers. ``owner`` is the service that users hold, by default the client's."""

    def __init__(self, client: Client, owner: Service | None = None) -> None:
        self._client = client
        self._owner = owner or client.service
        self._avoided: set[int] = set()

    @property
    def client(self) -> Client:
        return self._client

    def deadline(self, timeout: float | None) -> Deadline:
        """A deadline from now, ``api_timeout`` if None. Raises IllegalStateError when it is not usable."""
        self._owner.check()
        return Deadline(self._client.config.api_timeout if timeout is None else timeout)

    async def settle(
        self,
        what: str,
        items: Iterable[K],
        place: Place,
        ask: Ask[K, V],
        deadline: Deadline,
        *,
        grace: float = GRACE,
        final: Collection[ErrorCode] = (),
        already: Mapping[ErrorCode, Callable[[K], V]] = NOTHING,
        group_of: Callable[[K], str] | None = None,
    ) -> Results[K, V]:
        """Ask until everything is settled or the time is over.

        ``place`` says whom to ask for what, ``ask`` does it once and tells the result or the error of each thing; what
        it leaves out counts as failed, and what it raises counts for all that it was to ask for. ``final`` are codes
        that are not tried again although they may pass. ``already`` turns errors of a repeated request into results:
        "no such topic" after a deletion whose answer was lost is a success. ``group_of`` names the group whose
        coordinator is asked for a thing, so that another one is looked for when it has moved.
        """
        call = _Call(self, what, items, deadline, _Rules(grace, final, already, group_of))
        return await self._owner.while_running(call.run(place, ask))

    async def one(
        self,
        what: str,
        place: Place,
        ask: Callable[[Peer], Awaitable[R]],
        deadline: Deadline,
        *,
        final: Collection[ErrorCode] = (),
    ) -> R:
        """Ask for one thing as ``settle`` does for many, and return the result, or raise the error."""

        async def each(peer: Peer, items: list[str]) -> Mapping[str, R | KafkaError]:
            result = await ask(peer)
            return dict.fromkeys(items, result)

        results: Results[str, R] = await self.settle(what, [what], place, each, deadline, final=final)
        return results[what]

    # Whom to ask.

    async def any_broker(self, items: list[Any], deadline: Deadline) -> Places:
        """All things to one broker: one that is connected rather than not, and none that has just failed."""
        nodes = self._client.view.nodes
        good = [node_id for node_id in nodes if node_id not in self._avoided] or list(nodes)
        connected = [node_id for node_id in good if self._client.broker(node_id).connected]
        return Places({random.choice(connected or good): list(items)} if good else {}, by_anyone=True)

    async def controller(self, items: list[Any], deadline: Deadline) -> Places:
        """All things to the controller."""
        controller = self._client.view.controller
        if controller is None:
            error = error_for(ErrorCode.NOT_CONTROLLER, "the cluster names no controller at the moment")
            return Places(errors=dict.fromkeys(items, error))
        return Places({controller.node_id: list(items)})

    async def leaders(self, items: list[TopicPartition], deadline: Deadline) -> Places:
        """Each partition to its leader, by metadata that is fresh."""
        places = Places()
        for item in items:
            try:
                check_topic_name(item.topic)
            except BrokerError as error:
                places.errors[item] = error
        wanted = [item for item in items if item not in places.errors]
        if not wanted:
            return places
        view = self._client.view
        if view.age(asyncio.get_running_loop().time()) > FRESH or not all(map(view.leader_of, wanted)):
            view = await self._client.refresh({item.topic for item in wanted}, timeout=max(deadline.left, 0.001))
        for item in wanted:
            leader = view.leader_of(item)
            topic = view.topics.get(item.topic)
            if leader is not None:
                places.put(leader.node_id, item)
            elif topic is not None and topic.error is not ErrorCode.NONE:
                places.errors[item] = error_for(topic.error, f"topic {item.topic!r}")
            elif topic is not None and topic.is_usable and topic.partition(item.partition) is None:
                text = f"{item}: the topic has {len(topic.partitions)} partitions"
                places.errors[item] = error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
            else:
                places.errors[item] = error_for(ErrorCode.LEADER_NOT_AVAILABLE, f"{item} has no leader")
        return places

    async def coordinators(self, items: list[str], deadline: Deadline) -> Places:
        """Each group to its coordinator; those that are not known are looked for at the same time.

        Each is looked for once, so that the groups of a coordinator that is down hold up no others.
        """
        places = Places()

        async def find(group_id: str) -> None:
            try:
                broker = await self._client.coordinator(group_id, retry=False)
            except KafkaError as error:
                places.errors[group_id] = error
            else:
                places.put(broker.node.node_id, group_id)

        async with anyio.create_task_group() as group:
            for group_id in items:
                group.start_soon(find, group_id)
        return places

    async def brokers(self, items: list[int], deadline: Deadline) -> Places:
        """Each broker id to that broker."""
        nodes = self._client.view.nodes
        places = Places({node_id: [node_id] for node_id in items if node_id in nodes})
        for node_id in items:
            if node_id not in nodes:
                listed = ", ".join(map(str, sorted(nodes)))
                text = f"broker {node_id} is not in the cluster, which has {listed}"
                places.errors[node_id] = error_for(ErrorCode.BROKER_ID_NOT_REGISTERED, text)
        return places

    async def all_brokers(self, deadline: Deadline) -> list[int]:
        """The ids of the brokers that the cluster has now."""
        view = await self._client.refresh(timeout=max(deadline.left, 0.001))
        return sorted(view.nodes)

    # What is learnt from failures.

    async def peer(self, node_id: int, deadline: Deadline, *, share: float = 1.0) -> Peer:
        """The broker, connected, for a try that takes no more than that share of the time that is left."""
        broker = self._client.broker(node_id)
        connection = await broker.connection()
        bound = max(min(deadline.left * share, self._client.config.request_timeout), 0.001)
        return Peer(broker, connection.versions, bound)

    def broker_failed(self, node_id: int) -> None:
        """Ask others rather than this one, and hear whether it is gone."""
        self._avoided.add(node_id)
        self._client.request_refresh()

    def broker_answered(self, node_id: int) -> None:
        """It is well again."""
        self._avoided.discard(node_id)


@dataclass(frozen=True, slots=True)
class _Rules(Generic[K, V]):
    """What the caller says of errors; ``Calls.settle`` explains."""

    grace: float
    final: Collection[ErrorCode]
    already: Mapping[ErrorCode, Callable[[K], V]]
    group_of: Callable[[K], str] | None


class _Call(Generic[K, V]):
    """One call of ``settle``: what is pending and what troubled it last, and what is settled."""

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
        self._repeated: set[K] = set()  # asked for before, by a request that may have been carried out
        self._asked: set[K] = set()  # being asked for
        self._answered = asyncio.Event()
        self._wrong: list[Exception] = []  # the caller's own errors

    async def run(self, place: Place, ask: Ask[K, V]) -> Results[K, V]:
        config = self._calls.client.config
        backoff = Backoff(config.retry_backoff, config.retry_backoff_max)
        try:
            async with asyncio.timeout_at(self._deadline.at) as scope, anyio.create_task_group() as asking:
                while self._pending:
                    await self._begin_round(asking, place, ask)
                    await self._until_something_is_to_be_asked()
                    if self._pending:
                        await asyncio.sleep(backoff.next())
                        await self._freshen()
        except TimeoutError:
            if not scope.expired():
                raise
            self._give_up()
        except BaseExceptionGroup as errors:
            raise unwrapped(errors) from None
        return Results(
            {item: self._done[item] for item in self._items if item in self._done},
            {item: self._failed[item] for item in self._items if item in self._failed},
        )

    async def _begin_round(self, asking: anyio.abc.TaskGroup, place: Place, ask: Ask[K, V]) -> None:
        items = [item for item in self._pending if item not in self._asked]
        try:
            places = await place(items, self._deadline)
        except KafkaError as error:
            self._judge_all(items, error)
            return
        self._judge_each(places.errors)
        for node_id, share in places.by_node.items():
            self._asked.update(share)
            asking.start_soon(self._ask_one, node_id, share, ask, 0.5 if places.by_anyone else 1.0)

    async def _until_something_is_to_be_asked(self) -> None:
        """Or nothing is left. Raises the error of a value that no version can carry: the caller's, not an item's."""
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

    async def _ask(
        self,
        node_id: int,
        share: list[K],
        ask: Ask[K, V],
        of_time: float,
    ) -> None:
        try:
            peer = await self._calls.peer(node_id, self._deadline, share=of_time)
            answers = await ask(peer, share)
        except KafkaError as error:
            self._learn_unreachable(node_id, share, error)
            self._judge_all(share, error)
            return
        self._calls.broker_answered(node_id)
        self._judge_each(answers, node_id)
        missing = [item for item in share if item in self._pending and item not in answers]
        self._judge_all(missing, error_for(ErrorCode.UNKNOWN_SERVER_ERROR, f"{self._what}: the answer leaves it out"))

    def _learn_unreachable(self, node_id: int, share: list[K], error: KafkaError) -> None:
        if not isinstance(error, ConnectionLost | KafkaTimeout | ProtocolError):
            return
        if not (isinstance(error, ConnectionLost) and not error.sent):
            self._repeated.update(share)
        self._calls.broker_failed(node_id)
        self._forget_coordinators(share, node_id)

    def _forget_coordinators(self, items: Iterable[K], node_id: int) -> None:
        if self._rules.group_of is not None:
            for group_id in {self._rules.group_of(item) for item in items}:
                self._calls.client.forget_coordinator(group_id, node_id=node_id)

    # Verdicts.

    def _judge_all(self, items: Iterable[K], error: KafkaError) -> None:
        self._judge_each(dict.fromkeys(items, error))

    def _judge_each(self, answers: Mapping[K, V | KafkaError], node_id: int = -1) -> None:
        for item, answer in answers.items():
            if item not in self._pending:
                continue
            if not isinstance(answer, KafkaError):
                self._settle(item, answer)
                continue
            code = answer.code if isinstance(answer, BrokerError) else None
            if code in _ELSEWHERE:
                self._forget_coordinators([item], node_id)
            if code is ErrorCode.REQUEST_TIMED_OUT:
                self._repeated.add(item)
            already = None if code is None else self._rules.already.get(code)
            if already is not None and item in self._repeated:
                self._settle(item, already(item))
            elif self._may_pass(answer):
                self._pending[item] = answer
            else:
                self._fail(item, answer)

    def _settle(self, item: K, value: V) -> None:
        del self._pending[item]
        self._done[item] = value

    def _fail(self, item: K, error: KafkaError) -> None:
        del self._pending[item]
        if item in self._repeated and _CUT_OFF not in getattr(error, "__notes__", ()):
            error.add_note(_CUT_OFF)
        self._failed[item] = error

    def _may_pass(self, error: KafkaError) -> bool:
        if not isinstance(error, BrokerError):
            return isinstance(error, ConnectionLost | KafkaTimeout | ProtocolError)
        if error.code in NOT_FOUND:
            return asyncio.get_running_loop().time() < self._started + self._rules.grace
        if error.code in self._rules.final:
            return False
        return error.code.retriable or error.code is ErrorCode.BROKER_NOT_AVAILABLE

    def _give_up(self) -> None:
        for item, trouble in list(self._pending.items()):
            last = "no broker has answered" if trouble is None else f"the last error was: {trouble}"
            what = self._what if item == self._what else f"{self._what}: {item}"
            text = f"{what} was not settled within {self._deadline.timeout:.3g} s; {last}"
            self._fail(item, KafkaTimeout(text))

    async def _freshen(self) -> None:
        """Wait for metadata that is newer than the trouble, if any broker has it."""
        try:
            bound = min(self._deadline.left, self._calls.client.config.request_timeout)
            await self._calls.client.refresh(timeout=max(bound, 0.001))
        except KafkaTimeout:
            pass  # the next round finds out what it can do with the old one


def answer_of(code: int, what: str, value: V, message: str | None = None) -> V | KafkaError:
    """The value, or the error that the code stands for; ``what`` was asked and ``message`` is the broker's."""
    if code == ErrorCode.NONE:
        return value
    return error_for(code, f"{what}: {message}" if message else what)
