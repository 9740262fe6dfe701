"""The client's way to the cluster: a fresh snapshot of it, and requests that find their broker by themselves.

A ``Client`` owns the brokers' connections, the updater of the snapshot and the memory of coordinators; a producer, a
consumer or an admin client each stands on one. Nothing here knows what is in a request: it picks the broker, and
repeats what is safe to repeat until the deadline.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from enum import Enum
from typing import TYPE_CHECKING, TypeVar, assert_never

import anyio
import anyio.abc

from ..aio.loop_delay import LoopDelay
from ..aio.outages import Outages
from ..aio.retry import Backoff
from ..aio.runtime import Runtime
from ..aio.service import Component, Service
from ..config import ClientConfig
from ..errors import (
    BrokerError,
    ConfigurationError,
    ConnectionLost,
    ErrorCode,
    KafkaError,
    KafkaTimeout,
    UnknownTopic,
    error_for,
)
from ..net.broker import Broker, Purpose
from ..net.connector import Connector, TcpConnector, check_connector
from ..protocol.schema import Request, Response
from ..types import Node, TopicPartition
from .bootstrap import parse_bootstrap_servers
from .brokers import Brokers
from .coordinators import CoordinatorKey, CoordinatorKind, Coordinators
from .metadata import ClusterView, Endpoint, TopicView
from .topics import check_topic_name
from .updater import Updater

if TYPE_CHECKING:
    from ..net.login import Login

R = TypeVar("R")

_NOT_THE_COORDINATOR = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)


class Role(Enum):
    """Receivers of a request that are known by what they do."""

    ANY = "any broker"
    CONTROLLER = "the controller"


Target = int | Node | TopicPartition | CoordinatorKey | Role
"""Whom a request is for: a broker by id or by address, a partition's leader, a coordinator, or a role."""


class Client(Component):
    """One application's view of one cluster. Constructing it does no I/O; ``start`` finds the cluster.

    ``connector`` makes connections (TCP if None). Every component of the
    client takes the time of day and random numbers from ``runtime``.

    All methods belong to the loop of ``start``. Waiting calls have a deadline (``api_timeout`` unless told otherwise)
    and may be cancelled: what they share with others goes on.
    """

    def __init__(
        self,
        config: ClientConfig,
        *,
        connector: Connector | None = None,
        runtime: Runtime | None = None,
    ) -> None:
        super().__init__()
        check_connector(connector)
        if connector is not None and config.uses_tls:
            raise ConfigurationError(
                f"connector={connector!r}: it makes the connections, so TLS is its own business: "
                'give it the context, and set security_protocol to "PLAINTEXT" or "SASL_PLAINTEXT"'
            )
        self.config = config
        self.runtime = runtime or Runtime()
        self._connector = connector or TcpConnector(config.connect_timeout, config.ssl_context)
        self._login = _login_of(config)
        self.outages = Outages()
        self.loop_delay = LoopDelay()
        self._brokers = Brokers(parse_bootstrap_servers(config.servers), self._make_broker, self.runtime)
        self._updater = Updater(config, self._brokers, self.runtime, self.outages)
        self._coordinators = Coordinators(
            lambda: self._brokers.by_load(self.view),
            lambda broker: self._learn_unreachable(Role.ANY, broker),
            self._service.start_child,
            config.request_timeout,
        )

    def _make_broker(self, node: Node) -> Broker:
        return Broker(
            node,
            config=self.config,
            connector=self._connector,
            spawn=self._service.start_child,
            login=self._login,
            random=self.runtime.random,
            outages=self.outages,
        )

    def retry_backoff(self, *, at_most: float = math.inf) -> Backoff:
        """A new backoff: ``retry_backoff`` to ``retry_backoff_max``, or to ``at_most`` seconds if that is less."""
        maximum = min(self.config.retry_backoff_max, at_most)
        return Backoff(self.config.retry_backoff, maximum, random=self.runtime.random)

    # The lifetime.

    async def _on_start(self) -> None:
        """Find the cluster: bootstrap servers are tried in turn, again and again, until one answers.

        Raises KafkaTimeout after ``api_timeout`` and names each address with its cause; at once what another try would
        not cure, as AuthenticationError, or ProtocolError when every address speaks something other than Kafka.
        """
        self._service.start_child(self._hold_connections, name="Client: connections")
        self._service.start_child(self._updater.run, name="Client: metadata")
        async with _deadline(self.config.api_timeout, self._describe_unreachable):
            await self._updater.wait_served(self._updater.demand())

    async def _hold_connections(self) -> None:
        """Close all connections when the client ends, whether it was closed or failed."""
        self.loop_delay.start()
        try:
            await anyio.sleep_forever()
        finally:
            self.loop_delay.stop()
            await self._brokers.close()

    def _describe_unreachable(self) -> str:
        causes = self._updater.failures
        addresses = dict.fromkeys([*map(str, self._brokers.bootstrap), *causes])
        unknown = "no answer yet; is that the port of a broker?"
        text = "; ".join(f"{address}: {causes.get(address, unknown)}" for address in addresses)
        return f"no bootstrap server answered within {self.config.api_timeout:g} s: {text}"

    @property
    def service(self) -> Service:
        """The machinery of its lifetime, for the component that owns it."""
        return self._service

    # What is known.

    @property
    def view(self) -> ClusterView:
        """The present snapshot of the cluster; it never changes, a newer one takes its place."""
        return self._updater.view

    def on_view_change(self, callback: Callable[[ClusterView], None]) -> Callable[[], None]:
        """Call ``callback(view)`` after each change; returns a function that ends this.

        The callback runs between two turns of the loop and must neither wait nor raise: an exception ends the client.
        """
        return self._updater.on_change(callback)

    def request_refresh(self, topics: Iterable[str] | None = None) -> None:
        """Ask for fresh metadata of the topics, or of all tracked ones, without waiting for it. Calls are cheap."""
        self._updater.demand(topics)

    async def refresh(self, topics: Iterable[str] | None = None, *, timeout: float | None = None) -> ClusterView:
        """Wait for an answer that is newer than this call, about the topics or all tracked ones, and return it.

        Topics that are not tracked are in that snapshot, and in later ones no more. Raises KafkaTimeout with the last
        causes, InvalidTopic, AuthenticationError.
        """
        self._service.check()
        names = None if topics is None else list(topics)
        for name in names or ():
            check_topic_name(name)
        bound = self.config.api_timeout if timeout is None else timeout

        async def wait() -> None:
            async with _deadline(bound, lambda: f"no fresh metadata within {bound:g} s{self._because_of_failures()}"):
                await self._updater.wait_served(self._updater.demand(names))

        await self._service.while_running(wait())
        return self.view

    def known_topic(self, name: str, *, in_use_for: float = 0.0) -> TopicView | None:
        """The topic if it is known and usable, without waiting; noted as used, so that it stays known.

        ``in_use_for`` seconds it counts as being used from now on.
        """
        topic = self._updater.view.topics.get(name)
        if topic is None or not topic.is_usable:
            return None
        self._updater.tracked.use(name, self._now() + in_use_for)
        return topic

    async def topic(self, name: str, timeout: float | None = None) -> TopicView:
        """The topic, tracked from now on; waits until it is known and usable.

        An unknown topic may be about to appear (just created here and not yet heard of by the broker that answers, or
        created by this very question), so it is asked for until the deadline, as the Java client does, and UnknownTopic
        is raised only then. Raises InvalidTopic without asking; AuthorizationError and other errors that do not pass by
        themselves at the first answer; KafkaTimeout when no broker answered or the topic stays in a passing error.
        Partitions may lack leaders in what is returned.
        """
        check_topic_name(name)
        self._service.check()
        known = self.known_topic(name)
        if known is not None:
            return known
        return await self._service.while_running(self._wait_for_topic(name, timeout))

    async def _wait_for_topic(self, name: str, timeout: float | None) -> TopicView:
        bound = self.config.api_timeout if timeout is None else timeout
        try:
            async with _deadline(bound, lambda: f"topic {name!r}: no metadata within {bound:g} s"):
                while True:
                    self._updater.tracked.use(name, self._now())
                    await self._updater.wait_served(self._updater.demand([name]))
                    topic = self.view.topics.get(name)
                    if topic is None or (topic.error.retriable or topic.error is ErrorCode.NONE):
                        if topic is not None and topic.is_usable:
                            return topic
                        continue
                    raise error_for(topic.error, f"topic {name!r} cannot be used")
        except KafkaTimeout as error:
            self._updater.tracked.forget_use(name)
            raise self._topic_missing(name, bound, error) from None
        except BrokerError:
            self._updater.tracked.forget_use(name)
            raise

    def _topic_missing(self, name: str, bound: float, error: KafkaTimeout) -> KafkaError:
        topic = self.view.topics.get(name)
        if topic is None or self._updater.failures:
            return KafkaTimeout(f"{error}{self._because_of_failures()}")
        if topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            creation = "" if self._updater.creates_topics else ", and allow_auto_create_topics is off"
            return UnknownTopic(topic.error, f"topic {name!r} did not appear within {bound:g} s{creation}")
        return KafkaTimeout(f"{error}; the last answer was {topic.error.name} ({topic.error.description})")

    def create_topics_by_asking(self, whether: bool) -> None:
        """As ``allow_auto_create_topics``; where topics match a pattern, creating them would undo a deletion."""
        self._updater.creates_topics = whether

    def add_topics(self, names: Iterable[str]) -> None:
        """Track the topics until ``remove_topics``; they are asked for soon, or by ``start``."""
        wanted = list(names)
        for name in wanted:
            check_topic_name(name)
        self._updater.tracked.add(wanted)
        missing = [name for name in wanted if name not in self.view.topics]
        if missing:
            self._updater.demand(missing)

    def remove_topics(self, names: Iterable[str]) -> None:
        """Track the topics no longer; they leave the snapshot with the next answer."""
        self._updater.tracked.remove(names)

    def update_leader(
        self,
        topic_partition: TopicPartition,
        leader_id: int,
        leader_epoch: int,
        endpoints: Iterable[Endpoint] = (),
    ) -> bool:
        """Take the hint about a new leader from a Produce or Fetch error (KIP-951); whether it was news.

        A hint whose epoch is not above the known one is not.
        """
        return self._updater.hint(topic_partition, leader_id, leader_epoch, endpoints)

    # Brokers and requests.

    def broker(self, node_id: int) -> Broker:
        """The broker of that id. Raises BrokerError (BROKER_NOT_AVAILABLE) when the cluster does not list it."""
        self._service.check()
        return self._broker(node_id)

    def _broker(self, node_id: int) -> Broker:
        node = self.view.nodes.get(node_id)
        if node is None:
            listed = ", ".join(str(known) for known in sorted(self.view.nodes))
            raise error_for(
                ErrorCode.BROKER_NOT_AVAILABLE, f"broker {node_id} is not in the cluster, which has {listed}"
            )
        return self._brokers.of(node)

    async def send(
        self,
        request: Request[R],
        *,
        node: int | Node | None = None,
        leader: TopicPartition | None = None,
        controller: bool = False,
        coordinator: str | CoordinatorKey | None = None,
        purpose: Purpose | None = None,
        timeout: float | None = None,
        retry: bool = True,
    ) -> R:
        """Send the request to the broker it is for and return the answer; to any broker if none is named.

        ``coordinator`` is a group id, or a ``CoordinatorKey`` for a transactional id. ``timeout`` bounds all of it.
        Lost connections, request timeouts and answers whose error code at the top may pass are tried again, with
        backoff and fresh metadata, so the request must be one that may be applied twice. With ``retry=False`` there is
        one try: errors of the way are raised, and an answer is returned whatever it says, after its lesson was learnt
        (stale metadata is refreshed, a wrong coordinator forgotten). An answer with a lasting error is always returned.

        Raises KafkaTimeout that names the last error, ConnectionLost (``retry=False`` only), UnsupportedVersion,
        ProtocolError, AuthenticationError.
        """
        self._service.check()
        target = _target(node, leader, controller, coordinator)
        if purpose is None:
            purpose = Purpose.GROUP if isinstance(target, CoordinatorKey) else Purpose.OTHER
        bound = self.config.api_timeout if timeout is None else timeout
        return await self._service.while_running(self._send_until(request, target, purpose, bound, retry))

    @property
    def brokers(self) -> tuple[Broker, ...]:
        """All that are known at the moment, with the bootstrap addresses that were tried."""
        return tuple(self._brokers)

    def known_coordinator(self, name: str, kind: CoordinatorKind = CoordinatorKind.GROUP) -> Node | None:
        """The coordinator if it is remembered, without asking."""
        return self._coordinators.known(CoordinatorKey(kind, name))

    async def coordinator(
        self, name: str, kind: CoordinatorKind = CoordinatorKind.GROUP, *, timeout: float | None = None
    ) -> Broker:
        """The broker that coordinates the group or transaction; looked for until the deadline, then KafkaTimeout."""
        self._service.check()
        key = CoordinatorKey(kind, name)
        bound = self.config.api_timeout if timeout is None else timeout

        async def find() -> Broker:
            return await self._route(key)

        what = f"the coordinator of {key}"
        return await self._service.while_running(self._repeat(find, what, bound))

    async def find_coordinator(self, name: str, kind: CoordinatorKind = CoordinatorKind.GROUP) -> Broker:
        """As ``coordinator``, but asks once: raises whatever the broker that was asked, or the way to it, answered."""
        self._service.check()
        return await self._service.while_running(self._route(CoordinatorKey(kind, name)))

    def look_for_coordinator_again(self, name: str, kind: CoordinatorKind = CoordinatorKind.GROUP) -> None:
        """Find out, in the background, whether it is still the one remembered."""
        self._coordinators.look_again(CoordinatorKey(kind, name))

    def forget_coordinator(
        self, name: str, kind: CoordinatorKind = CoordinatorKind.GROUP, *, node_id: int | None = None
    ) -> None:
        """Look for the coordinator anew next time; with ``node_id`` only if it is the broker remembered."""
        self._coordinators.forget(CoordinatorKey(kind, name), node_id)

    async def _send_until(self, request: Request[R], target: Target, purpose: Purpose, bound: float, retry: bool) -> R:
        what = f"{type(request).__name__.removesuffix('Request')} to {_described(target)}"

        async def attempt() -> R:
            return await self._send_once(request, target, purpose, what, retry)

        if retry:
            return await self._repeat(attempt, what, bound, wants_metadata=_is_found_in_metadata(target))
        async with _deadline(bound, lambda: f"{what}: no answer within {bound:g} s"):
            return await attempt()

    async def _repeat(
        self, attempt: Callable[[], Awaitable[R]], what: str, bound: float, *, wants_metadata: bool = False
    ) -> R:
        """Try until it succeeds, fails for good, or the time is over; ``wants_metadata`` waits for it to be fresh."""
        backoff = self.retry_backoff()
        last: KafkaError | None = None

        def describe() -> str:
            return f"{what}: no success within {bound:g} s" + ("" if last is None else f"; the last error was: {last}")

        async with _deadline(bound, describe):
            while True:
                try:
                    return await attempt()
                except (ConnectionLost, KafkaTimeout, BrokerError) as error:
                    if isinstance(error, BrokerError) and not error.code.retriable:
                        raise
                    last = error
                await asyncio.sleep(backoff.next())
                if wants_metadata:
                    await self._updater.wait_settled()

    async def _send_once(self, request: Request[R], target: Target, purpose: Purpose, what: str, retry: bool) -> R:
        broker = await self._route(target)
        try:
            response = await broker.send(request, purpose=purpose, timeout=self.config.request_timeout)
        except (ConnectionLost, KafkaTimeout):
            self._learn_unreachable(target, broker)
            raise
        self._brokers.revive(broker)
        code = _error_in(response, target)
        if code is ErrorCode.NONE:
            return response
        self._learn_refused(target, broker, code)
        if retry and code.retriable:
            raise error_for(code, what)
        return response

    async def _route(self, target: Target) -> Broker:
        """The broker for a target; raises a BrokerError that passes when it is not known at the moment."""
        match target:
            case Node():
                return self._brokers.of(target)
            case TopicPartition():
                return self._leader(target)
            case CoordinatorKey():
                return self._brokers.of(await self._coordinators.find(target))
            case Role.CONTROLLER:
                controller = self.view.controller
                if controller is None:
                    self._updater.demand()
                    raise error_for(ErrorCode.NOT_CONTROLLER, "the cluster names no controller at the moment")
                return self._brokers.of(controller)
            case Role.ANY:
                return self._brokers.by_load(self.view)[0]
            case int():
                return self._broker(target)
            case _:
                assert_never(target)

    def _leader(self, topic_partition: TopicPartition) -> Broker:
        topic = topic_partition.topic
        check_topic_name(topic)
        self._updater.tracked.use(topic, self._now())
        leader = self.view.leader_of(topic_partition)
        if leader is not None:
            return self._brokers.of(leader)
        self._updater.demand([topic])
        known = self.view.topics.get(topic)
        if known is not None and known.error is not ErrorCode.NONE:
            raise error_for(known.error, f"topic {topic!r}")
        if known is not None and known.partition(topic_partition.partition) is None:
            raise error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic_partition}: there is no such partition")
        raise error_for(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic_partition}: no leader is known")

    def _learn_unreachable(self, target: Target, broker: Broker) -> None:
        self._brokers.put_aside(broker)
        self._coordinators.forget_node(broker.node.node_id)
        if not isinstance(target, CoordinatorKey):
            self._updater.demand()

    def _learn_refused(self, target: Target, broker: Broker, code: ErrorCode) -> None:
        if isinstance(target, CoordinatorKey) and code in _NOT_THE_COORDINATOR:
            self._coordinators.forget(target, broker.node.node_id)
        elif code.stale_metadata or code is ErrorCode.NOT_CONTROLLER:
            self._updater.demand()

    # Inside.

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _because_of_failures(self) -> str:
        causes = self._updater.describe_failures()
        return f": {causes}" if causes else ""

    def __repr__(self) -> str:
        return (
            f"<Client {self.config.client_id} {self.state.name} cluster={self.view.cluster_id} "
            f"brokers={len(self.view.nodes)} topics={len(self.view.topics)}>"
        )


@asynccontextmanager
async def _deadline(timeout: float, describe: Callable[[], str]) -> AsyncIterator[None]:
    """End the body after ``timeout`` seconds with a KafkaTimeout that says what ``describe`` says then."""
    try:
        async with asyncio.timeout(timeout) as scope:
            yield
    except TimeoutError:
        if not scope.expired():
            raise  # a timeout of something inside
        raise KafkaTimeout(describe()) from None


def _target(
    node: int | Node | None, leader: TopicPartition | None, controller: bool, coordinator: str | CoordinatorKey | None
) -> Target:
    if isinstance(coordinator, str):
        coordinator = CoordinatorKey(CoordinatorKind.GROUP, coordinator)
    given = [
        target for target in (node, leader, coordinator, Role.CONTROLLER if controller else None) if target is not None
    ]
    if len(given) > 1:
        raise TypeError(f"a request goes to one broker, and {len(given)} were named: {given}")
    return given[0] if given else Role.ANY


def _login_of(config: ClientConfig) -> Login | None:
    """Who the settings say we are. Imported here, as those without a login have no use for what one takes."""
    if not config.uses_sasl:
        return None
    from ..net.login import Login

    return Login.of(config)


def _is_found_in_metadata(target: Target) -> bool:
    return isinstance(target, TopicPartition) or target is Role.CONTROLLER


def _described(target: Target) -> str:
    match target:
        case Role():
            return target.value
        case TopicPartition():
            return f"the leader of {target}"
        case CoordinatorKey():
            return f"the coordinator of {target}"
        case _:
            return f"broker {target}"


def _error_in(response: object, target: Target) -> ErrorCode:
    """The error of the whole answer. Controllers say NOT_CONTROLLER of each item, and mean the request."""
    code = ErrorCode.of(getattr(response, "error_code", 0))
    if code is ErrorCode.NONE and target is Role.CONTROLLER and isinstance(response, Response):
        for name in response.specs:
            items = getattr(response, name)
            if isinstance(items, list) and any(
                getattr(item, "error_code", 0) == ErrorCode.NOT_CONTROLLER for item in items
            ):
                return ErrorCode.NOT_CONTROLLER
    return code
