"""The client of one cluster: a current snapshot of its metadata, and requests that find their broker.

A ``Client`` owns the connections, the metadata updater and the cache of coordinators. Each producer, consumer and admin
client has one. It does not depend on the content of a request: it chooses the broker, and retries until the deadline.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, TypeVar

from ..aio.callbacks import EventHook
from ..aio.component import Component
from ..aio.deadline import deadline
from ..aio.loop_delay import LoopDelay
from ..aio.outages import Outages
from ..aio.retry import Backoff
from ..aio.runtime import Runtime
from ..aio.service import Service
from ..arguments import check_timeout, in_seconds
from ..errors import ConfigurationError
from ..net.broker import Broker, Purpose
from ..net.connector import Connector, TcpConnector, check_connector, default_connector
from ..protocol.framing import WaitingFrameMemory
from ..protocol.schema import Request
from ..settings.client import ClientConfig
from ..types import Node, TopicPartition
from .bootstrap import parse_bootstrap_servers
from .brokers import Brokers
from .coordinators import CoordinatorKey, CoordinatorKind, Coordinators, place_of
from .metadata import ClusterView, Endpoint, TopicView
from .requests import Requests
from .standstill import Standstill
from .topics import check_topic_name
from .updater import Updater

if TYPE_CHECKING:
    from ..events import ClientEvent
    from ..net.login import Login
    from ..net.metrics import BrokerTraffic
    from ..net.tls import RenewedContext
    from ..net.traffic import TrafficCounters
    from .otlp import MetricsReport
    from .telemetry import Telemetry

R = TypeVar("R")

GET_TELEMETRY = 71
"""The key of GetTelemetrySubscriptions. Brokers offer it if they have a receiver for metrics (KIP-714)."""


class Client(Component):
    """One application's connection to one cluster. Creating it does no I/O; ``start`` finds the cluster.

    ``connector`` makes the connections (if None: ``default_connector``, or TCP). Every component takes the time of
    day and random numbers from ``runtime``. ``report_metrics`` makes the metrics to push to brokers (None: none).
    ``login`` replaces the credentials of the settings; without ``has_events``, ``on_event`` is not called. All methods
    must be called in the loop of ``start``. A call that waits ends after its ``timeout``, or else after
    ``api_timeout``. A cancelled call does not end the lookups that it shares with other calls.
    """

    def __init__(
        self,
        config: ClientConfig,
        *,
        connector: Connector | None = None,
        runtime: Runtime | None = None,
        report_metrics: Callable[[], MetricsReport] | None = None,
        login: Login | None = None,
        has_events: bool = True,
        asks_controllers: bool = False,
    ) -> None:
        super().__init__()
        check_connector(connector)
        if connector is not None and config.uses_tls:
            raise ConfigurationError(
                f"connector cannot be combined with TLS, got {connector!r}: give the TLS context to the connector, "
                'and set security_protocol to "PLAINTEXT" or "SASL_PLAINTEXT"'
            )
        for name in ("local_address", "proxy"):
            if connector is not None and getattr(config, name) is not None:
                raise ConfigurationError(f"connector cannot be combined with {name}: the connector chooses addresses")
        self.config = config
        self.runtime: Runtime = runtime or Runtime()
        on_event = config.on_event if has_events else None
        self.on_event: EventHook[ClientEvent] | None = None if on_event is None else EventHook(on_event)
        """The program's function for events. Whoever calls it makes the event only if there is one."""
        self.outages: Outages = Outages(self.on_event)
        self.standstill: Standstill = Standstill(self.outages)
        self.loop_delay: LoopDelay = LoopDelay()
        self._login = login or _login_of(config)
        self._report_metrics = report_metrics
        self._telemetry: Telemetry | None = None
        self._connector = connector or default_connector.get()
        connects = self._connector or _connector_of(config)
        self._brokers = Brokers(
            parse_bootstrap_servers(config.servers),
            self._broker_factory(connects),
            self.runtime,
            are_controllers=asks_controllers,
        )
        self._updater = Updater(config, self._brokers, self.runtime, self.outages)
        self._coordinators = Coordinators(
            lambda: self._brokers.by_load(self.view),
            lambda broker: self._requests.mark_unreachable(broker),
            self._service.start_child,
            config.request_timeout,
            self.outages,
            self._brokers.record,
        )
        self._requests = Requests(
            self._brokers, self._updater, self._coordinators, self.retry_backoff, config.request_timeout
        )

    @property
    def has_own_connector(self) -> bool:
        """Whether the connections are made by another connector than TCP."""
        return self._connector is not None

    @property
    def login_needs_loop(self) -> bool:
        """Whether a login calls an async function of the user, which runs in the event loop of the client."""
        return self._login is not None and self._login.needs_loop

    @property
    def asks_controllers(self) -> bool:
        """Whether all servers are controllers."""
        return self._brokers.are_controllers

    def twin(self, home: asyncio.AbstractEventLoop) -> Client:
        """Create another client with the same settings, to start in another event loop. May be called in any thread.

        ``home`` is the loop of this client: an async function that returns a password or token runs there, because it
        may use what belongs to the loop.
        """
        login = None if self._login is None else self._login.twin(home)
        return Client(
            self.config,
            connector=self._connector,
            login=login,
            has_events=False,
            asks_controllers=self.asks_controllers,
        )

    def _broker_factory(self, connector: Connector) -> Callable[[Node], Broker]:
        largest = self.config.max_response_size
        memory = WaitingFrameMemory(self.config.response_memory or 4 * largest, largest)

        def make(node: Node) -> Broker:
            return Broker(
                node,
                config=self.config,
                connector=connector,
                spawn=self._service.start_child,
                login=self._login,
                random=self.runtime.random,
                outages=self.outages,
                memory=memory,
            )

        return make

    def _describe_late_start(self, timeout: float) -> str:
        # Empty if the cluster was found, because another step took too long then.
        return "" if self.view.updated_at is not None else self._updater.describe_unreachable(timeout)

    def __repr__(self) -> str:
        return (
            f"<Client {self.config.client_id} {self.state.name} cluster={self.view.cluster_id} "
            f"brokers={len(self.view.nodes)} topics={len(self.view.topics)}>"
        )

    def retry_backoff(self, *, at_most: float = math.inf) -> Backoff:
        """Return a new backoff: ``retry_backoff`` to ``retry_backoff_max``, or to ``at_most`` seconds if that is less.

        ``retry_backoff_function`` replaces both, within ``at_most``.
        """
        config = self.config
        return Backoff(
            config.retry_backoff,
            min(config.retry_backoff_max, at_most),
            random=self.runtime.random,
            function=config.retry_backoff_function,
            at_most=at_most,
        )

    # Lifetime.

    async def _on_start(self) -> None:
        """Find the cluster: try the bootstrap servers in turn, repeatedly, until one answers.

        Raises KafkaTimeout after the timeout of ``start``, ``api_timeout`` by default, with the last error of each
        address. Raises AuthenticationError, UnsupportedVersion or ProtocolError at once if a retry cannot help.
        """
        self._service.at_end(self._close_connections)
        self.loop_delay.start()
        self._updater.task.start(self._service.start_child, lambda: self._service.accepts_children)
        # ``start(timeout)`` is bounded as a whole by the service that was started.
        bound = self.config.api_timeout if self._service.start_timeout is None else None
        with deadline(bound, lambda: self._updater.describe_unreachable(self.config.api_timeout)):
            await self._updater.wait_served(self._updater.demand())
        self.loop_delay.on_measured(self.standstill.start())
        self._push_metrics()

    async def _on_close(self) -> None:
        if self._telemetry is not None:
            await self._telemetry.end()

    def _push_metrics(self) -> None:
        """Push metrics from now on, if a broker accepts them. The import is here, because few brokers accept them."""
        report = self._report_metrics
        if report is None or not self.config.enable_metrics_push:
            return
        if any(broker.versions is not None and broker.versions.has_api(GET_TELEMETRY) for broker in self._brokers):
            from .telemetry import Telemetry

            self._telemetry = Telemetry(report, lambda: self._brokers.by_load(self.view)[0], self.runtime)
            self._service.start_child(self._telemetry.run, name="Client: metrics to brokers")

    async def _close_connections(self) -> None:
        self.loop_delay.stop()
        self.standstill.stop()
        self._updater.task.stop()
        try:
            await self._brokers.close()
        finally:
            self.outages.close()

    @property
    def service(self) -> Service:
        """The machinery of this client's lifetime, for the component that owns the client."""
        return self._service

    def set_credentials(self, username: str, password: str) -> None:
        """Log in with this user name and password from now on. Open connections keep their login until it expires.

        May be called at any time, in the event loop. Raises ConfigurationError for a wrong value, for a client that
        does not log in with a password, and if ``sasl_password`` is a function.
        """
        checked = self.config.with_credentials(username, password)
        assert self._login is not None, "the settings have a login"
        assert isinstance(checked.sasl_username, str)
        assert isinstance(checked.sasl_password, str)
        self._login.set_credentials(checked.sasl_username, checked.sasl_password)

    # The snapshot of the cluster.

    @property
    def view(self) -> ClusterView:
        """The current snapshot of the cluster. It never changes; a newer one replaces it."""
        return self._updater.view

    def on_view_change(self, callback: Callable[[ClusterView], None]) -> Callable[[], None]:
        """Call ``callback(view)`` after each change. Returns a function that removes the callback.

        The callback must neither block nor raise: an exception ends the client.
        """
        return self._updater.on_change(callback)

    def request_refresh(self, topics: Iterable[str] | None = None) -> None:
        """Request new metadata of the topics (by default all tracked topics) without waiting. Calls are cheap."""
        self._updater.demand(topics)

    async def refresh(
        self, topics: Iterable[str] | None = None, *, timeout: float | None = None, at_once: bool = False
    ) -> ClusterView:
        """Wait for metadata that is newer than this call, and return it. Topics are by default all tracked topics.

        Requests are paced. ``at_once`` skips the pause; a caller that repeats the call in a loop must not set it. Only
        the returned snapshot has topics that are not tracked. Raises KafkaTimeout with the last error of each address,
        InvalidTopic, AuthenticationError.
        """
        self._service.check()
        names = None if topics is None else list(topics)
        for name in names or ():
            check_topic_name(name)
        bound = self.limit(timeout)

        def describe() -> str:
            causes = self._updater.describe_failures()
            return f"no new metadata within {in_seconds(bound)}" + (f": {causes}" if causes else "")

        async def wait() -> None:
            with deadline(bound, describe):
                await self._updater.wait_served(self._updater.demand(names, at_once=at_once))

        await self._service.while_running(wait())
        return self.view

    def known_topic(self, name: str, *, in_use_for: float = 0.0) -> TopicView | None:
        """Return the topic if its metadata is known without an error, otherwise None. Does not wait.

        The call counts as a use, so the topic stays tracked. ``in_use_for`` extends this by a number of seconds.
        """
        topic = self._updater.view.topics.get(name)
        if topic is None or not topic.is_usable:
            return None
        self._updater.tracked.use(name, asyncio.get_running_loop().time() + in_use_for)
        return topic

    async def topic(self, name: str, timeout: float | None = None) -> TopicView:
        """Track the topic from now on, and wait until it exists and has no error. Its partitions may lack a leader.

        Raises InvalidTopic without asking a broker. Raises UnknownTopic at the deadline if the topic does not exist,
        and KafkaTimeout if no broker answered or the topic keeps a retriable error. An error that is not retriable,
        such as AuthorizationError, is raised at once.
        """
        check_topic_name(name)
        self._service.check()
        topic = self.known_topic(name)
        if topic is not None:
            return topic
        from .topic_lookup import wait_for_topic

        return await self._service.while_running(wait_for_topic(self._updater, name, self.limit(timeout)))

    def allow_topic_creation(self, allowed: bool) -> None:
        """Override ``allow_auto_create_topics``.

        A subscription by pattern turns the setting off. Otherwise the request for a topic that was just deleted would
        create the topic again.
        """
        self._updater.creates_topics = allowed

    def is_new(self, partition: TopicPartition) -> bool:
        """Return whether the partition was created after this client began to track its topic.

        All its records are younger than the client then.
        """
        return self._updater.history.is_new(partition)

    def add_list_of_topics(self, names: Collection[str]) -> None:
        """Record a complete list of the cluster's topics: a topic that appears in later lists is new."""
        self._updater.history.add_list(names)

    def add_topics(self, names: Iterable[str]) -> None:
        """Track the topics until ``remove_topics``. Unknown topics are requested at once, or by ``start``."""
        topics = list(names)
        for name in topics:
            check_topic_name(name)
        self._updater.tracked.add(topics)
        missing = [name for name in topics if name not in self.view.topics]
        if missing:
            self._updater.demand(missing)

    def remove_topics(self, names: Iterable[str]) -> None:
        """Stop tracking the topics. The next answer removes them from the snapshot."""
        self._updater.tracked.remove(names)

    def update_leader(
        self,
        topic_partition: TopicPartition,
        leader_id: int,
        leader_epoch: int,
        endpoints: Iterable[Endpoint] = (),
    ) -> bool:
        """Apply the hint about a new leader in a Produce or Fetch error (KIP-951).

        Returns False if the hint is not newer than the snapshot: its epoch is not above the known epoch.
        """
        return self._updater.hint(topic_partition, leader_id, leader_epoch, endpoints)

    # Brokers and requests.

    def broker(self, node_id: int) -> Broker:
        """Return the broker with this id. Raises BrokerError (BROKER_NOT_AVAILABLE) if the metadata does not list
        it."""
        self._service.check()
        return self._requests.broker_of(node_id)

    @property
    def brokers(self) -> tuple[Broker, ...]:
        """All known brokers, and the bootstrap addresses that were tried."""
        return tuple(self._brokers)

    @property
    def departed(self) -> TrafficCounters:
        """The traffic with the brokers that have left the cluster."""
        return self._brokers.departed

    def traffic(self) -> dict[int, BrokerTraffic]:
        """Return the traffic with each broker so far, by its id; a bootstrap address has a negative id."""
        return {broker.node.node_id: broker.traffic for broker in self._brokers}

    async def send(
        self,
        request: Request[R],
        *,
        node: int | Node | None = None,
        purpose: Purpose = Purpose.OTHER,
        timeout: float | None = None,
        retry: bool = True,
    ) -> R:
        """Send the request to a broker and return the answer. If ``node`` is None, any broker can answer.

        ``timeout`` bounds the whole call. Lost connections, request timeouts and answers with a retriable top-level
        error are retried with backoff, so the request must be safe to apply twice. An answer with another error is
        returned. With ``retry=False`` there is one attempt: connection errors are raised, and every answer is returned.

        Raises KafkaTimeout with the last error, BrokerError if the metadata does not list the broker, ConnectionLost
        (``retry=False`` only), UnsupportedVersion, ProtocolError, AuthenticationError.
        """
        self._service.check()
        sending = self._requests.send(request, node, purpose, self.limit(timeout), retry)
        return await self._service.while_running(sending)

    # Coordinators.

    def known_coordinator(self, name: str, kind: CoordinatorKind = CoordinatorKind.GROUP) -> Node | None:
        """Return the cached coordinator, or None."""
        return self._coordinators.known(CoordinatorKey(kind, name))

    def broker_of_coordinator(self, name: str, kind: CoordinatorKind = CoordinatorKind.GROUP) -> Broker | None:
        """Return the broker of the cached coordinator, or None."""
        node = self._coordinators.known(CoordinatorKey(kind, name))
        return None if node is None else self._brokers.of(node)

    async def coordinator(
        self,
        name: str,
        kind: CoordinatorKind = CoordinatorKind.GROUP,
        *,
        timeout: float | None = None,
        retry: bool = True,
    ) -> Broker:
        """Find the broker that coordinates the group or transactional id. With ``retry=False`` there is one lookup.

        Retriable errors are retried until the deadline, then KafkaTimeout is raised. Raises AuthorizationError and
        other errors that are not retriable at once.
        """
        self._service.check()
        key = CoordinatorKey(kind, name)
        node = self._coordinators.known(key)
        if node is not None:
            return self._brokers.of(node)

        async def find() -> Broker:
            return self._brokers.of(await self._coordinators.find(key))

        if not retry:
            return await self._service.while_running(find())
        what = f"the coordinator of {key}"
        return await self._service.while_running(self._requests.repeat(find, what, self.limit(timeout)))

    def lacks_coordinator(self, name: str, kind: CoordinatorKind = CoordinatorKind.GROUP) -> bool:
        """Return whether the last lookup of this coordinator has failed."""
        return self.outages.is_ongoing(place_of(CoordinatorKey(kind, name)))

    def refresh_coordinator(self, name: str, kind: CoordinatorKind = CoordinatorKind.GROUP) -> None:
        """Look the coordinator up in the background. The cached coordinator stays until the answer."""
        self._coordinators.refresh(CoordinatorKey(kind, name))

    def forget_coordinator(
        self, name: str, kind: CoordinatorKind = CoordinatorKind.GROUP, *, node_id: int | None = None
    ) -> None:
        """Drop the coordinator from the cache; with ``node_id``, only if that broker is the cached coordinator."""
        self._coordinators.forget(CoordinatorKey(kind, name), node_id)

    def limit(self, timeout: float | None) -> float:
        """Return the seconds that a call may take: ``timeout``, or ``api_timeout`` if it is None."""
        check_timeout(timeout)
        return self.config.api_timeout if timeout is None else timeout


def _connector_of(config: ClientConfig) -> Connector:
    context = _renewed_context(config)
    if config.proxy is None:
        return TcpConnector(config.connect_timeout, context, config.local_address)
    from ..net.proxy import ProxyConnector
    from ..settings.proxy_address import parse_proxy

    return ProxyConnector(parse_proxy(config.proxy), config.connect_timeout, context, config.local_address)


def _renewed_context(config: ClientConfig) -> RenewedContext | None:
    """Return the TLS context of the settings; None for connections without TLS."""
    if config.ssl_context is None:
        return None
    from ..net.tls import RenewedContext  # imported here: many clients have no TLS

    return RenewedContext(config, config.ssl_context)


def _login_of(config: ClientConfig) -> Login | None:
    """Return the SASL credentials of the settings. The import is here, because clients without SASL do not need it."""
    if not config.uses_sasl:
        return None
    from ..net.login import Login

    return Login.of(config)
