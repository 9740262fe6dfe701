"""Keeps the client's snapshot of the cluster fresh: one task that asks, and any number of waiters that share it.

Owns the present view, what is wanted of the next, and the pace. A waiter takes a *ticket* and waits until it is
served: an answer serves every ticket that was given out before its request was sent. So a waiter never gets an answer
older than its question, and a thousand waiters cost one request. No waiter runs the request, so none can take it down.

The pace, since an endless hot loop is what this machinery has most often been in other clients: a topic that is asked
for the first time is asked for at once; everything else leaves ``retry_backoff`` between two answers, doubled up to
``retry_backoff_max`` while answers say nothing new. A round that reached no broker backs off in the same way.

A round goes through the live brokers, then through the bootstrap addresses. Brokers that fail are put aside, and taken
back when none is left (KIP-899). One that keeps silent is waited for, but not alone: after `PATIENCE` the next is asked
as well, then after twice that, and so on, and the first answer ends the round. So a frozen broker costs a second where
its request times out after thirty, and a cluster that is slow as a whole gets few requests more.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable

import anyio

from ..aio.outages import Outages
from ..aio.retry import Backoff
from ..aio.runtime import Runtime
from ..config import ClientConfig
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
from ..types import TopicPartition
from .brokers import Brokers
from .metadata import ClusterView, Endpoint, merge, merge_leader
from .topics import TrackedTopics

logger = logging.getLogger(__name__)

TOPIC_IDLE = 300.0
"""Seconds after which a topic that was used only in passing is not asked for any longer."""

PATIENCE = 1.0
"""Seconds without an answer, to connecting or to the request, until another broker is asked as well; then doubled."""

MISSING_FOR = 2.0
"""Seconds from which on a topic that does not exist is worth a warning; one that was just created appears sooner."""

_RELIABLE_EPOCHS = 9
"""The version of Metadata from which on leader epochs may be believed: older brokers answer with outdated ones."""


_PLACE = "metadata"
"""Where outages are counted."""


class Updater:
    """Owner of the view. ``run`` is its only task; everything else is called on the same loop and does not wait."""

    def __init__(self, config: ClientConfig, brokers: Brokers, runtime: Runtime, outages: Outages) -> None:
        self.view = ClusterView()
        self.tracked = TrackedTopics(TOPIC_IDLE)
        self.failures: dict[str, KafkaError] = {}  # since the last answer, the latest of each address
        self._config = config
        self.creates_topics = config.allow_auto_create_topics
        self._brokers = brokers
        self._runtime = runtime
        self._outages = outages
        self._callbacks: dict[int, Callable[[ClusterView], None]] = {}
        self._next_callback = 0

        self._given = 0  # the newest ticket; tickets up to _sent are in a request or done, up to _served are answered
        self._sent = 0
        self._served = 0
        self._refused = 0  # up to here tickets were ended by _refusal, which trying again would not cure
        self._refusal: KafkaError | None = None
        self._useless_rounds = 0  # in a row, before there was any answer: each address spoke something strange
        self._whole = 0  # the newest ticket that wants all tracked topics
        self._wanted: dict[str, int] = {}  # the newest ticket that wants this topic
        self._unheard: set[str] = set()  # wanted, and never asked for yet: not paced

        self._pace = Backoff(config.retry_backoff, config.retry_backoff_max, random=runtime.random)
        self._not_before = 0.0
        self._last_whole = 0.0
        self._settling = False  # a tracked topic lacks leaders or is in a passing error: ask again without being told
        self._missing: dict[str, float] = {}  # tracked topics that do not exist, since when; infinite once that is said
        self._wake = asyncio.Event()
        self._answered = asyncio.Event()  # replaced at each answer

    # What others ask of it.

    def demand(self, topics: Iterable[str] | None = None) -> int:
        """Ask for the topics, or for all tracked ones, soon; the ticket to wait for with ``wait_served``."""
        if self._given == self._sent:
            self._given += 1
        if topics is None:
            self._whole = self._given
        else:
            for name in topics:
                self._wanted[name] = self._given
                if name not in self.view.topics:
                    self._unheard.add(name)
        self._wake.set()
        return self._given

    async def wait_served(self, ticket: int) -> None:
        """Wait until an answer has come to a request that was sent after the ticket was given.

        Raises what ended the asking for good: AuthenticationError, or errors of all bootstrap servers that trying again
        would not cure. Waiting is without a bound; cancelling it cancels nothing else.
        """
        while self._served < ticket:
            if self._refused >= ticket:
                assert self._refusal is not None
                raise self._refusal
            await self._answered.wait()

    async def wait_settled(self) -> None:
        """Wait until nothing is asked for that was asked for by now. Raises as ``wait_served`` does."""
        if self._given > max(self._served, self._refused):
            await self.wait_served(self._given)

    def hint(
        self, topic_partition: TopicPartition, leader: int, leader_epoch: int, endpoints: Iterable[Endpoint]
    ) -> bool:
        """Take a hint about a new leader (KIP-951); whether it was news."""
        view = merge_leader(self.view, topic_partition, leader, leader_epoch, endpoints)
        if view is self.view:
            return False
        self._replace(view)
        return True

    def on_change(self, callback: Callable[[ClusterView], None]) -> Callable[[], None]:
        """Call ``callback(view)`` after each change of the view; what is returned ends that."""
        number = self._next_callback
        self._next_callback += 1
        self._callbacks[number] = callback

        def forget() -> None:
            self._callbacks.pop(number, None)

        return forget

    def describe_failures(self) -> str:
        """What each address that was tried since the last answer said last, for an error's text."""
        return "; ".join(f"{address}: {error}" for address, error in self.failures.items())

    # The task.

    async def run(self) -> None:
        """Ask when it is due, for as long as the client lives."""
        while True:
            await self._wait_until_due()
            await self._ask_until_answered()

    async def _wait_until_due(self) -> None:
        loop = asyncio.get_running_loop()
        while (due := self._due()) > loop.time():
            self._wake.clear()
            try:
                async with asyncio.timeout_at(due):
                    await self._wake.wait()
            except TimeoutError:
                pass
        if loop.time() >= self._last_whole + self._config.metadata_max_age:
            self.demand()

    def _due(self) -> float:
        if self._unheard:
            return 0.0
        if self._settling or self._given > max(self._served, self._refused):
            return self._not_before
        return self._last_whole + self._config.metadata_max_age

    async def _ask_until_answered(self) -> None:
        backoff = Backoff(self._config.retry_backoff, self._config.retry_backoff_max, random=self._runtime.random)
        answered = await self._round()
        while not answered:
            await asyncio.sleep(backoff.next())
            answered = await self._round()

    async def _round(self) -> bool:
        """Ask one broker after the other; whether the asking is over, by an answer or for good."""
        patience = PATIENCE
        over = False

        async def attempt(broker: Broker, failed: asyncio.Event) -> None:
            nonlocal over
            if await self._attempt(broker):
                over = True
                attempts.cancel_scope.cancel()
            failed.set()

        async with anyio.create_task_group() as attempts:
            for broker in self._brokers.candidates(self.view):
                failed = asyncio.Event()
                attempts.start_soon(attempt, broker, failed, name=f"metadata: {broker.address}")
                with anyio.move_on_after(patience) as waiting:
                    await failed.wait()
                if waiting.cancelled_caught:
                    patience *= 2
        if over:
            return True
        self._brokers.resurrect()
        if self._outages.failed(_PLACE, ConnectionLost(self.describe_failures(), sent=False)):
            logger.warning("no broker answers a request for metadata: %s", self.describe_failures())
        if self.view.updated_at is None and self._is_hopeless():
            self._refuse(_joined(self.failures))
            return True
        return False

    async def _attempt(self, broker: Broker) -> bool:
        """Ask one broker; whether the asking is over, by its answer or for good."""
        try:
            return await self._ask(broker)
        except AuthenticationError as error:
            self._refuse(error)
            return True
        except (ConnectionLost, KafkaTimeout, ProtocolError, UnsupportedVersion, BrokerError) as error:
            self._failed(broker, error)
            return False

    def _is_hopeless(self) -> bool:
        """Whether the addresses will say the same again: other protocols, or versions that we do not speak.

        Bytes that make no sense may be an accident of this one connection, so they are believed the second time only.
        """
        errors = self.failures.values()
        if not all(isinstance(error, (ProtocolError, UnsupportedVersion)) for error in errors):
            self._useless_rounds = 0
            return False
        self._useless_rounds += 1
        if self._useless_rounds > 1:
            return True
        return all(isinstance(error, (WrongProtocol, UnsupportedVersion)) for error in errors)

    def _failed(self, broker: Broker, error: KafkaError) -> None:
        self.failures[broker.address] = error
        self._brokers.put_aside(broker)
        logger.debug("%r is put aside: %s", broker, error)  # the broker itself says what happened to it

    async def _ask(self, broker: Broker) -> bool:
        connection = await broker.connection(Purpose.OTHER)
        # Nothing is awaited from here until the request is written: what is wanted now is what it asks for.
        now = asyncio.get_running_loop().time()
        if now > self._not_before + self._config.retry_backoff_max:
            self._pace.reset()  # the last answers are long ago, so that they said nothing new is no reason to be slow
        ticket, asked = self._given, self._asked(now)
        self._sent = ticket
        self._unheard.clear()
        answer = connection.send_nowait(
            MetadataRequest(
                topics=[MetadataRequestTopic(name=name) for name in asked],
                allow_auto_topic_creation=self.creates_topics,
            ),
            timeout=self._config.request_timeout,
        )
        response = await answer
        reason = _unusable(response)
        if reason is not None:
            self._failed(broker, reason)
            if response.error_code == ErrorCode.REBOOTSTRAP_REQUIRED:
                self._brokers.put_all_aside(self.view)
            return False
        self._brokers.revive(broker)
        self._accept(response, ticket, asked, connection.versions.supports(MetadataRequest, _RELIABLE_EPOCHS))
        return True

    def _asked(self, now: float) -> set[str]:
        """The topics to ask for: all tracked ones when somebody or the interval wants it, else only what is wanted."""
        wanted = set(self._wanted)
        if self._whole > self._served:
            self.tracked.expire(now)
            return wanted.union(self.tracked.names)
        return wanted.union(self.view.unsettled(self.tracked.names))

    def _accept(self, response: MetadataResponse, ticket: int, asked: set[str], epochs_reliable: bool) -> None:
        now = asyncio.get_running_loop().time()
        if self._whole > self._served:
            self._last_whole = now
        view = merge(
            self.view,
            response,
            asked=asked,
            keep=self.tracked.names,
            now=now,
            epochs_reliable=epochs_reliable,
        )
        spell = self._outages.over(_PLACE)
        if spell is not None:
            logger.warning("a broker answers a request for metadata again, after %s", spell)
        news = not view.same_as(self.view)
        if view.cluster_id != self.view.cluster_id and self.view.cluster_id is not None:
            logger.warning("another cluster answers: %s instead of %s", view.cluster_id, self.view.cluster_id)
        for name in [name for name, wanted in self._wanted.items() if wanted <= ticket]:
            del self._wanted[name]
        if news:
            self._pace.reset()
        self._not_before = now + self._pace.next()
        self._settling = any(True for _ in view.unsettled(self.tracked.names))
        self._say_what_is_missing(view, now)
        self._served = ticket
        self.failures.clear()
        self._brokers.follow(view)
        if news:
            self._replace(view)
        else:
            self.view = view
        self._tell()

    def _say_what_is_missing(self, view: ClusterView, now: float) -> None:
        """Warn once of a topic that is waited for and does not exist: else a typo is met with silence."""
        unsettled = view.unsettled(self.tracked.names)
        missing = {name for name in unsettled if view.topics[name].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        for name in self._missing.keys() - missing:
            if self._missing.pop(name) == math.inf and name in self.tracked:
                logger.warning("topic %r exists now", name)
        for name in missing:
            if now >= self._missing.setdefault(name, now) + MISSING_FOR and self._missing[name] < math.inf:
                self._missing[name] = math.inf
                logger.warning("topic %r does not exist, and is waited for; is it the right name?", name)

    def _replace(self, view: ClusterView) -> None:
        self.view = view
        for callback in tuple(self._callbacks.values()):
            callback(view)

    def _refuse(self, error: KafkaError) -> None:
        """End the asking for all that wait now. The next ticket, or the interval, begins anew."""
        now = asyncio.get_running_loop().time()
        self._refusal, self._refused = error, self._given
        self._useless_rounds = 0
        self._sent = self._given
        self._unheard.clear()
        self._settling = False
        self._last_whole = now
        self._not_before = now + self._pace.next()
        self._tell()

    def _tell(self) -> None:
        answered, self._answered = self._answered, asyncio.Event()
        answered.set()


def _unusable(response: MetadataResponse) -> KafkaError | None:
    if response.error_code:
        return error_for(response.error_code, "the request for metadata was refused")
    if not response.brokers:
        return error_for(ErrorCode.BROKER_NOT_AVAILABLE, "the answer to a request for metadata names no broker")
    return None


def _joined(failures: dict[str, KafkaError]) -> KafkaError:
    """One error for all addresses: the only one, or one of the same kind that names them all."""
    errors = list(failures.values())
    text = "; ".join(f"{address}: {error}" for address, error in failures.items())
    kind = UnsupportedVersion if all(isinstance(error, UnsupportedVersion) for error in errors) else ProtocolError
    return kind(f"no bootstrap server can be used: {text}")
