"""Keeps the client's snapshot of the cluster up to date: one task sends requests, all callers share the answers.

Rules of this file:

Rule 1: One task at a time sends requests, and all callers share the answers. It runs while a request is due; a timer
        starts it again. Callers take a ticket (``demand``) and wait for it (``wait_served``), so cancelling a caller
        never cancels a request that others wait for.
Rule 2: Requests are paced, because endless loops of metadata requests are the most frequent bug of this code in other
        clients. A topic that was never requested is requested at once. Everything else waits ``retry_backoff`` after an
        answer, doubled up to ``retry_backoff_max`` while answers bring no change. A round without an answer backs off
        in the same way. Calls that only a user repeats, such as ``groups.list()``, demand metadata ``at_once``: they
        are not paced.
Rule 3: A round asks the reachable brokers, then the bootstrap addresses (KIP-899). A broker that fails is marked
        unreachable; when all are unreachable, all are marked reachable again. If a broker is silent, the next one is
        asked as well (``aio.hedged``).
Rule 4: There is no await between choosing the topics and writing the request. So a request never serves a ticket whose
        topics it does not ask for.
Rule 5: A large answer is decoded and merged in slices, between which other tasks run. The snapshot is replaced once, as
        a whole. If a hint or another answer has replaced the snapshot meanwhile, the answer is merged again, with the
        newer snapshot.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from ..aio.children import DueTask
from ..aio.hedged import hedged
from ..aio.outages import Outages
from ..aio.retry import Backoff, is_refusal
from ..aio.runtime import Runtime
from ..errors import (
    AuthenticationError,
    BrokerError,
    ConnectionLost,
    ErrorCode,
    KafkaError,
    KafkaTimeout,
    ProtocolError,
    UnsupportedVersion,
    error_for,
)
from ..net.broker import Broker, Purpose
from ..protocol.framing import WrongProtocol
from ..protocol.messages import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ..protocol.wire import UndecodableResponse
from ..settings.client import ClientConfig
from ..types import TopicPartition
from .answer import MetadataAnswer, ReadTopics
from .brokers import Brokers
from .demands import Demands
from .metadata import ClusterView, Endpoint, TopicView, merge_leader, merging
from .topic_history import TopicHistory
from .topics import MissingTopics, TrackedTopics

if TYPE_CHECKING:
    from ..net.connection import Connection
    from ..protocol.partial import PartialResponse

logger = logging.getLogger(__name__)

TOPIC_IDLE = 300.0
"""Seconds from the last use of a topic until it is no longer requested (``TrackedTopics``)."""

MERGES = 5
"""The maximum number of times that an answer is merged in slices (rule 5). After that, it is merged in one turn of the
loop."""

_PLACE = "metadata"
"""The place of metadata outages in ``Outages``."""


class Updater:
    """Owns the snapshot (``view``), the demanded topics and the pace. Only its task sends requests.

    All methods belong to the loop of ``task``.
    """

    def __init__(self, config: ClientConfig, brokers: Brokers, runtime: Runtime, outages: Outages) -> None:
        self.view: ClusterView = ClusterView()
        self.tracked: TrackedTopics = TrackedTopics(TOPIC_IDLE)
        self.creates_topics: bool = config.allow_auto_create_topics
        self.failures: dict[str, KafkaError] = {}
        """The last error of each address since the last answer."""
        self._config = config
        self._brokers = brokers
        self._runtime = runtime
        self._outages = outages
        self._callbacks: dict[int, Callable[[ClusterView], None]] = {}
        self._next_callback = 0

        self._demands = Demands()
        self._pace = Backoff(config.retry_backoff, config.retry_backoff_max, random=runtime.random)
        self._not_before = 0.0
        self._last_refresh = 0.0  # of all tracked topics
        # A tracked topic lacks a leader or has a retriable error: ask again although no caller demands it.
        self._unsettled = False
        self._read_topics: ReadTopics[TopicView] = ReadTopics()  # of the last large answer
        self._missing = MissingTopics(logger)
        self.history: TopicHistory = TopicHistory()
        # Consecutive rounds before the first answer in which every address failed with a final error; see _is_hopeless.
        self._hopeless_rounds = 0
        self.task: DueTask = DueTask(self._refresh, self._due, "Client: metadata")
        """Sends the requests. The client starts and stops it."""

    # Called by the client.

    def demand(self, topics: Iterable[str] | None = None, *, at_once: bool = False) -> int:
        """Demand metadata of these or all tracked topics, soon or ``at_once``. Returns a ticket for ``wait_served``."""
        ticket = self._demands.issue(topics, self.view.topics.keys(), at_once=at_once)
        self.task.check()
        return ticket

    def was_left_out(self, name: str) -> bool:
        """Return whether the last response that was asked for this topic omitted it."""
        return name in self._demands.left_out

    async def wait_served(self, ticket: int) -> None:
        """Wait, without a time limit, for the answer to a request that was sent after the ticket was issued.

        Raises AuthenticationError. Raises ProtocolError or UnsupportedVersion if every bootstrap server fails with it.
        """
        await self._demands.wait(ticket)

    def hint(
        self, topic_partition: TopicPartition, leader: int, leader_epoch: int, endpoints: Iterable[Endpoint]
    ) -> bool:
        """Apply a hint about a new leader (KIP-951). False if the hint is not newer than the snapshot."""
        view = merge_leader(self.view, topic_partition, leader, leader_epoch, endpoints)
        if view is self.view:
            return False
        for node_id, node in view.nodes.items():
            if node is not self.view.nodes.get(node_id):
                self._brokers.record(node)
        self._replace(view)
        return True

    def on_change(self, callback: Callable[[ClusterView], None]) -> Callable[[], None]:
        """Call ``callback(view)`` after each change of the snapshot. Returns a function that removes the callback."""
        number = self._next_callback
        self._next_callback += 1
        self._callbacks[number] = callback

        def remove() -> None:
            self._callbacks.pop(number, None)

        return remove

    def describe_failures(self) -> str:
        """Describe the last error of each address since the last answer, for the text of an error."""
        return _described(self.failures)

    def describe_unreachable(self, timeout: float) -> str:
        """Describe why no cluster was found within ``timeout`` seconds, with the cause for each address."""
        addresses = dict.fromkeys([*map(str, self._brokers.bootstrap), *self.failures])
        unknown = "no answer yet; check that a broker listens on this port"
        text = _described({address: self.failures.get(address, unknown) for address in addresses})
        return f"no bootstrap server answered within {timeout:g} s: {text}"

    # The task.

    async def _refresh(self) -> None:
        is_old = asyncio.get_running_loop().time() >= self._last_refresh + self._config.metadata_max_age
        # Without a demand, the age is the reason although the clock is not there yet: a timer may be early by a
        # rounding. A request for no topics would leave the age as it is, and be repeated at once.
        if is_old or not (self._unsettled or self._demands.is_urgent or self._demands.is_pending):
            self.demand()
        await self._ask_until_answered()

    def _due(self) -> float:
        if self._demands.is_urgent:
            return 0.0  # not paced (rule 2)
        if self._unsettled or self._demands.is_pending:
            return self._not_before
        return self._last_refresh + self._config.metadata_max_age

    async def _ask_until_answered(self) -> None:
        backoff = Backoff(self._config.retry_backoff, self._config.retry_backoff_max, random=self._runtime.random)
        answered = await self._round()
        while not answered:
            await asyncio.sleep(backoff.next())
            answered = await self._round()

    async def _round(self) -> bool:
        """Ask one broker after the other. True if a broker answered, or if all tickets failed with a final error."""
        if await hedged(self._brokers.candidates(self.view), self._attempt, name="refresh metadata"):
            return True
        # Rule 3: all brokers have failed, so none is a worse choice than another in the next round.
        self._brokers.mark_all_reachable()
        failures = self.describe_failures()
        refusal = next(filter(is_refusal, self.failures.values()), None)
        error = ConnectionLost(failures, sent=False) if refusal is None else refusal
        if self.view.updated_at is None:
            message = "cannot reach the cluster, trying until start() times out: %s"
        else:
            message = "no broker answers metadata requests: %s"
        # Before the first answer, ``start`` raises the error.
        problem = "" if self.view.updated_at is None else f"no broker answers metadata requests: {failures}"
        self._outages.report(logger, _PLACE, error, message, failures, problem=problem)
        if self.view.updated_at is None and self._is_hopeless():
            self._fail(_joined(self.failures))
            return True
        if refusal is not None:
            # Callers that wait raise it now. The rounds continue, because it may pass.
            self._demands.fail(refusal)
        return False

    async def _attempt(self, broker: Broker) -> bool | None:
        """Ask one broker. Returns True to end the round, None to try the next candidate."""
        try:
            return await self._ask(broker)
        except AuthenticationError as error:
            if self.view.updated_at is None:
                # The other brokers would refuse the same credentials.
                self._fail(error)
                return True
            # These credentials were accepted before, so another broker may accept them.
            self._record_failure(broker, error)
            return None
        except (ConnectionLost, KafkaTimeout, ProtocolError, UnsupportedVersion, BrokerError) as error:
            self._record_failure(broker, error)
            return None

    def _is_hopeless(self) -> bool:
        """Return whether every address speaks another protocol, or no version that this client speaks.

        Undecodable bytes may be an accident of one connection, so they count only in the second round.
        """
        errors = self.failures.values()
        if not all(isinstance(error, (ProtocolError, UnsupportedVersion)) for error in errors):
            self._hopeless_rounds = 0
            return False
        self._hopeless_rounds += 1
        if self._hopeless_rounds > 1:
            return True
        return all(isinstance(error, (WrongProtocol, UnsupportedVersion)) for error in errors)

    def _record_failure(self, broker: Broker, error: KafkaError) -> None:
        self.failures[broker.address] = error
        self._brokers.mark_unreachable(broker)
        logger.debug("marked %r unreachable: %s", broker, error)  # DEBUG: the broker itself logs its outage

    async def _ask(self, broker: Broker) -> bool | None:
        connection = await broker.connection(Purpose.OTHER)
        # Rule 4: no await from here until the request is written.
        now = asyncio.get_running_loop().time()
        if now > self._not_before + self._config.retry_backoff_max:
            self._pace.reset()  # no request was due for a long time, so earlier answers without a change do not count
        ticket, topics = self._demands.send(), self._topics_to_ask(now)
        promise = self._send(connection, topics)
        answer: MetadataAnswer[TopicView] = MetadataAnswer(await promise, self._read_topics)
        reliable = connection.versions.supports(MetadataRequest.RELIABLE_EPOCHS)
        try:
            view = await self._merge(answer, topics, reliable)
        except UndecodableResponse as error:
            # The connection has not decoded these bytes, so it does not detect the error itself.
            connection.close(error)
            raise
        # Some proxies list no broker if all topics of a request are missing. The errors of the topics count then.
        is_about_topics = bool(self.view.nodes) and bool(answer.names) and _all_fail(view, answer.names)
        refusal = _error_in(answer.message, needs_brokers=not is_about_topics)
        if refusal is not None:
            self._record_failure(broker, refusal)
            if answer.message.error_code == ErrorCode.REBOOTSTRAP_REQUIRED:  # KIP-1102
                self._brokers.mark_all_unreachable(self.view)
            return None
        self._brokers.mark_reachable(broker)
        self._read_topics = answer.kept(view.topics)
        self._accept(view, answer, ticket, topics)
        return True

    def _send(self, connection: Connection, topics: set[str]) -> Awaitable[MetadataResponse | PartialResponse]:
        timeout = self._config.request_timeout
        if self._brokers.are_controllers:
            from .controllers import describe_controllers  # imported here, because few programs ask controllers

            return describe_controllers(connection, timeout)
        if connection.versions.offered(MetadataRequest) is None:
            peer = connection.versions.peer
            raise UnsupportedVersion(f"{peer} has no metadata: is it a controller? Admin takes bootstrap_controllers")
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in sorted(topics)],
            allow_auto_topic_creation=self.creates_topics or not topics,  # versions before 4 lack the switch
        )
        return connection.send_in_parts(request, "topics", timeout=timeout)

    async def _merge(self, answer: MetadataAnswer[TopicView], topics: set[str], epochs_reliable: bool) -> ClusterView:
        """Merge an answer into the next snapshot. Its base is still ``view`` then (rule 5)."""
        loop = asyncio.get_running_loop()
        attempt, base = 0, self.view
        while True:
            attempt += 1
            steps = merging(
                base,
                answer,
                requested=topics,
                keep=self.tracked.names,
                now=loop.time(),
                epochs_reliable=epochs_reliable,
            )
            for view in steps:
                # Without an await, no hint can replace the snapshot. So the last attempt succeeds (rule 5).
                if view is None and attempt <= MERGES:
                    await asyncio.sleep(0)
            if self.view is base:
                assert view is not None
                return view
            base = self.view

    def _topics_to_ask(self, now: float) -> set[str]:
        """Return all tracked topics if a caller or the interval demands them, otherwise the demanded and unsettled
        ones.
        """
        if self._demands.asks_for_all:
            self.tracked.expire(now)
            return self._demands.topics.union(self.tracked.names)
        return self._demands.topics.union(self.view.unsettled(self.tracked.names))

    def _accept(self, view: ClusterView, answer: MetadataAnswer[TopicView], ticket: int, topics: set[str]) -> None:
        now = asyncio.get_running_loop().time()
        if self._demands.asks_for_all:
            self._last_refresh = now
        self._outages.recovered(logger, _PLACE, "a broker answered a metadata request")
        changed = not view.same_as(self.view)
        if view.cluster_id != self.view.cluster_id and self.view.cluster_id is not None:
            logger.warning("cluster id changed from %s to %s", self.view.cluster_id, view.cluster_id)
        self._demands.settle(ticket, topics, answer.names, self.tracked.names)
        if changed:
            self._pace.reset()
        self._not_before = now + self._pace.next()
        self._unsettled = any(True for _ in view.unsettled(self.tracked.names))
        self._missing.update(view, self.tracked, now)
        self.history.update(view, topics.intersection(answer.names), self.tracked, now)
        self.failures.clear()
        if answer.message.brokers:
            self._brokers.follow(view)
        if changed:
            self._replace(view)
        else:
            self.view = view
        # This comes last, so that a callback that raises ends the client before a caller gets this answer.
        self._demands.serve(ticket)

    def _replace(self, view: ClusterView) -> None:
        self.view = view
        for callback in tuple(self._callbacks.values()):
            callback(view)

    def _fail(self, error: KafkaError) -> None:
        """End all tickets with an error. The next ticket, or the interval, starts a new round."""
        now = asyncio.get_running_loop().time()
        # All reasons for a request are dropped. Otherwise the task would ask again soon, and fail in the same way.
        self._demands.fail(error)
        self._demands.drop_urgency()
        self._hopeless_rounds = 0
        self._unsettled = False
        self._last_refresh = now
        self._not_before = now + self._pace.next()


def _all_fail(view: ClusterView, names: Iterable[str | None]) -> bool:
    topics = [view.topics.get(name or "") for name in names]
    return all(topic is not None and topic.error is not ErrorCode.NONE for topic in topics)


def _error_in(response: MetadataResponse, *, needs_brokers: bool) -> KafkaError | None:
    if response.error_code:
        return error_for(response.error_code, "the metadata request was refused")
    if needs_brokers and not response.brokers:
        return error_for(ErrorCode.BROKER_NOT_AVAILABLE, "the metadata response lists no broker")
    return None


def _described(failures: Mapping[str, object]) -> str:
    """Describe the failure of each address. Most failures name the address already. Equal ones are described once."""
    same: dict[str, list[str]] = {}
    for address, failure in failures.items():
        same.setdefault(str(failure).replace(address, "\0"), []).append(address)
    texts = []
    for template, (first, *other_addresses) in same.items():
        text = template.replace("\0", first) if "\0" in template else f"{first}: {template}"
        texts.append(f"{text}; the same with {', '.join(other_addresses)}" if other_addresses else text)
    return "; ".join(texts)


def _joined(failures: dict[str, KafkaError]) -> KafkaError:
    """Join the errors of all addresses: UnsupportedVersion if all failed with it, otherwise ProtocolError."""
    errors = list(failures.values())
    text = _described(failures)
    kind = UnsupportedVersion if all(isinstance(error, UnsupportedVersion) for error in errors) else ProtocolError
    return kind(f"no bootstrap server can be used: {text}")
