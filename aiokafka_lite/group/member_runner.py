"""Drives a member: takes events from one queue, and performs the actions that the member returns.

The member is a state machine of the classic protocol (``Member``) or of the consumer protocol (``ConsumerMember``).
``ClassicProtocol`` and ``ConsumerProtocol`` send its requests; everything else is the same for both.

Rules of this file:

Rule 1: Only ``run`` calls ``handle`` of the member, so the member has one writer. Everything else posts events.
Rule 2: At most one request of the member runs at a time (``MemberRequests``), as a child task. Its outcome is the next
        event. A new request cancels the previous request. Heartbeats of the classic protocol are the exception.
Rule 3: Heartbeats and handovers to the reader (``handover``) are tasks of their own: heartbeats continue while user
        code works on a handover. These tasks make no decisions.
Rule 4: Nothing polls. Every retry has a growing pause, also when the coordinator answers at once.
Rule 5: ``group_protocol="auto"`` is decided once, by the versions of the coordinator, before the first event is
        handled. The member does not change its protocol afterwards.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence

import anyio

from ..aio.light_event import LightEvent
from ..aio.retry import is_momentary
from ..cluster.client import Client
from ..cluster.standstill import Wait
from ..errors import KafkaError
from ..net.traffic import RequestCounters
from ..settings.group import GroupConfig
from ..types import Node
from .base_member import BaseMember
from .classic_protocol import ClassicProtocol
from .committer import CurrentMember
from .consumer_member import ConsumerMember
from .consumer_protocol import ConsumerProtocol, is_offered
from .counters import RebalanceCounters
from .events import (
    Action,
    Assign,
    Close,
    Event,
    Fail,
    Lose,
    MembershipRefused,
    Polled,
    PollOverdue,
    Report,
    Revoke,
)
from .handover import Handovers
from .leadership import LongEvent, takes_long
from .member import Member
from .member_requests import MemberRequests
from .offsets import Offsets
from .reading import Reading
from .states import MemberState
from .strategies import AssignmentStrategy, checked_strategies
from .topic_watcher import Spawn, Topics, TopicWatcher
from .waits import MemberWaits

logger = logging.getLogger(__name__)

_OUTSIDE = (MemberState.UNJOINED, MemberState.LEAVING)


class MemberRunner:
    """The membership of one consumer. Owner: the consumer. All tasks are its children (``spawn``).

    ``on_error`` is called with errors that are retried. An error that cannot be retried ends ``run`` or another task of
    the consumer as an exception.
    """

    def __init__(
        self,
        client: Client,
        config: GroupConfig,
        *,
        strategies: Sequence[AssignmentStrategy | str],
        reading: Reading,
        spawn: Spawn,
        on_error: Callable[[KafkaError], None] = lambda error: None,
    ) -> None:
        self._client = client
        self._config = config
        self._strategies = checked_strategies(strategies)
        self._reading = reading
        self._spawn = spawn
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._post = self._events.put_nowait
        self._polled = False  # whether a Polled event is queued; a second one would add nothing
        self._choosing: anyio.CancelScope | None = None  # rule 5
        self._closing = False  # ``close`` was called, perhaps before the protocol is decided
        self._gone = LightEvent()  # ``run`` has handled the last event
        # With "auto", a member of the classic protocol stands in until the protocol is decided.
        self._current = CurrentMember(
            self._new_member("consumer" if config.group_protocol == "consumer" else "classic")
        )
        self.rebalances: RebalanceCounters = RebalanceCounters(self._current, client.on_event)
        self._requests = MemberRequests(client, config, self._current, spawn=spawn, post=self._post, on_error=on_error)
        self.offsets: Offsets = Offsets(
            client,
            config,
            reading,
            committer=self._current,
            on_refused=lambda identity, code: self._post(MembershipRefused(identity, code)),
            on_error=on_error,
        )
        self._topics = TopicWatcher(client, config.group_id, spawn=spawn, post=self._post, on_error=on_error)
        self._handovers = Handovers(client, config, self._current, reading, self.offsets, on_released=self._post)
        self._waits = MemberWaits(
            client, config, self._current, self._topics, self._handovers, self._requests, self.rebalances
        )

    def _new_member(self, protocol: str) -> Member | ConsumerMember:
        config, rack = self._config, self._client.config.client_rack or None
        if protocol == "consumer":
            return ConsumerMember(
                config.group_id,
                rebalance_timeout=config.time_to_rebalance,
                session_timeout=config.session_timeout,
                assignor=config.group_remote_assignor,
                instance_id=config.group_instance_id,
                rack=rack,
                new_id=self._client.runtime.new_id,
            )
        return Member(
            config.group_id,
            strategies=self._strategies,
            session_timeout=config.session_timeout,
            rebalance_timeout=config.time_to_rebalance,
            instance_id=config.group_instance_id,
            rack=rack,
        )

    def _new_protocol(self) -> ClassicProtocol | ConsumerProtocol:
        """Create the sender of the member's requests. The member is decided by now."""
        member = self._current.member
        if isinstance(member, ConsumerMember):
            return ConsumerProtocol(
                self._client,
                self._config,
                member,
                requests=self._requests,
                spawn=self._spawn,
                post=self._post,
                reading=self._reading,
                topics=self._topics,
            )
        return ClassicProtocol(
            self._client,
            self._config,
            member,
            requests=self._requests,
            topics=self._topics,
            spawn=self._spawn,
            post=self._post,
            reading=self._reading,
        )

    def __repr__(self) -> str:
        return f"<MemberRunner of {self.member!r}>"

    # Called by the consumer.

    def start(self, topics: Topics) -> None:
        """Become a member that reads these topics. The client must be running."""
        self._topics.start()
        self._spawn(self.run, name="group member")
        if self._config.auto_commit:
            self._spawn(self.offsets.run, name="commit marked offsets")
        self.subscribe(topics)

    @property
    def member(self) -> BaseMember:
        """The member; with ``group_protocol="auto"``, one that has not joined until the protocol is decided."""
        return self._current.member

    @property
    def heartbeats(self) -> RequestCounters:
        """The heartbeats of the member."""
        return self._requests.heartbeats

    @property
    def thread_heartbeats(self) -> int:
        """The answered heartbeats that a thread has sent while the event loop was blocked."""
        return self._requests.thread_heartbeats

    @property
    def node(self) -> Node | None:
        """The broker that coordinates the group, if it is known."""
        return self._client.known_coordinator(self._config.group_id)

    @property
    def topics(self) -> frozenset[str]:
        """The topics that the member reads; for a pattern, the topics that match now, or that brokers assigned."""
        return self._topics.subscribed

    def subscribe(self, topics: Topics) -> None:
        """Replace the subscription: topic names, or a pattern."""
        self._topics.subscribe(topics)

    def polled(self) -> None:
        """Record that the user asks for records. A member that left because of ``max_poll_interval`` joins again."""
        # In all other states, the member is in the group or joins it already.
        if self.member.state in _OUTSIDE and not self._polled:
            self._polled = True
            self._post(Polled())

    async def close(self, *, leave: bool) -> None:
        """Commit the marked offsets, release all partitions and, if ``leave``, leave the group.

        Each step has its own time limit; the caller limits the total time.
        """
        # This comes first, so that a handover that waits for the user ends now and not after its time limit.
        self._closing = True
        self._handovers.close()
        # The choice of the protocol retries until the coordinator answers, which may be never.
        if self._choosing is not None:
            self._choosing.cancel()
        self._post(Close(leave))
        await self._gone.wait()

    def waits(self) -> Iterator[Wait]:
        """Yield what the member waits for now, for ``Client.standstill``."""
        return self._waits.look()

    # The task.

    async def run(self) -> None:
        """Handle events until the member is closed."""
        if self._config.group_protocol == "auto" and not self._closing:
            with anyio.CancelScope() as self._choosing:
                self._current.member = self._new_member(await self._choose())
        member, protocol = self.member, self._new_protocol()
        protocol.start()
        self._spawn(self._handovers.run, name="handing over partitions")
        applied: object = None
        while True:
            event = await self._events.get()
            before = member.state
            if isinstance(event, PollOverdue):
                # The user may read again in the turn in which the event was posted. The member would then leave, and
                # that read would wait without end: it has not posted Polled, because the member was in the group.
                if not self._is_overdue():
                    continue
                logger.warning(
                    "%r is leaving the group: no records were requested for more than max_poll_interval = %g s",
                    member,
                    self._config.max_poll_interval,
                )
            # The next event is handled only after ``follow``, because all actions must be performed before it.
            # The member still has one writer: this task waits for the thread, and nothing else calls ``handle``.
            if isinstance(event, LongEvent) and takes_long(event, member.leadership):
                actions = await asyncio.to_thread(member.handle, event)
            else:
                actions = member.handle(event)
            if isinstance(event, Polled):
                self._polled = False
            # Before the actions, because the reader needs the metadata of the topics that it gets.
            if self._topics.sent_pattern is not None and isinstance(member, ConsumerMember):
                self._topics.follow(member.topics_in_use)
            if member.state is not before:
                logger.info("%r moved from %s after %s", member, before.name, type(event).__name__)
            for action in actions:
                match action:
                    case Assign() | Revoke() | Lose() | Fail():
                        self._handovers.put(action, calm_at=protocol.calm_at)
                    case Report():
                        self._requests.report(action.error)
                    case _:
                        protocol.perform(action)
            self._count_rebalance(before, actions)
            # A heartbeat that brings nothing new changes none of these.
            status = (member.state, member.generation, member.member_id, member.leadership)
            if status != applied:
                applied = status
                protocol.follow()
            if member.state is MemberState.UNJOINED:
                self._client.outages.forget(self._requests.place)  # it sends no more requests that could end the outage
            if member.is_gone:
                break
        self._gone.set()

    def _count_rebalance(self, before: MemberState, actions: Sequence[Action]) -> None:
        now, state = asyncio.get_running_loop().time(), self.member.state
        if any(isinstance(action, Assign) for action in actions):
            self.rebalances.end(now)
        # JOINING and SYNCING are two steps of one rebalance.
        if state is not before and state is not MemberState.SYNCING:
            self.rebalances.fail(now)
            # A member of the consumer protocol releases partitions without joining again.
            if state is MemberState.JOINING or (state is MemberState.REVOKING and self.member.protocol == "consumer"):
                self.rebalances.begin(now)

    def _is_overdue(self) -> bool:
        """Return whether the user has not read for more than ``max_poll_interval``, so that the member must leave."""
        idle = self._reading.idle_for(asyncio.get_running_loop().time())
        return idle > self._config.max_poll_interval and self.member.state.sends_heartbeats

    async def _choose(self) -> str:
        """Choose the protocol of ``group_protocol="auto"`` (rule 5). Retries until the coordinator is reachable."""
        backoff = self._client.retry_backoff()
        while True:
            try:
                offered = is_offered(await self._requests.channel.versions())
            except KafkaError as error:
                if not is_momentary(error):
                    raise
                self._requests.report(error)
                await asyncio.sleep(backoff.next())
                continue
            protocol = "consumer" if offered else "classic"
            logger.info("group %s: the %s protocol is in use", self._config.group_id, protocol)
            return protocol
