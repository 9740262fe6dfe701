"""Drives a ``Member``: takes events from one queue, and performs the actions that the member answers with.

Rules of this file:

Rule 1: Only ``run`` calls ``Member.handle``, so the member has one writer. Everything else posts events.
Rule 2: At most one request of the rebalance (JoinGroup, metadata, SyncGroup, LeaveGroup) runs at a time, as a child
        task. Its outcome is the next event. A new request cancels the one before it.
Rule 3: Heartbeats (``heartbeats``) and handovers to the reader (``handover``) are tasks of their own: heartbeats
        continue while user code works on a handover. Neither decides anything.
Rule 4: Nothing polls. Every retry has a growing pause, also when the coordinator answers at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress

import anyio

from ..cluster.client import Client
from ..cluster.coordinator_channel import CoordinatorChannel
from ..config import ClientConfig, GroupConfig
from ..errors import ErrorCode, KafkaError, KafkaTimeout, error_for
from ..net.connection import Purpose
from ..protocol.messages import JoinGroupRequest
from ..protocol.versions import VersionTable
from ..types import Node
from .counters import RebalanceCounters, RequestCounters
from .events import (
    Action,
    Assign,
    AwaitJoin,
    Close,
    CommitRefused,
    Event,
    Fail,
    GatherTopics,
    JoinAnswer,
    LeaveAnswer,
    Lose,
    Polled,
    PollOverdue,
    Report,
    RequestFailed,
    Revoke,
    SendJoin,
    SendLeave,
    SendSync,
    SyncAnswer,
    TopicsGathered,
)
from .handover import Handovers
from .heartbeats import Heartbeats
from .member import Member, MemberState
from .offsets import Offsets
from .reading import Reading
from .requests import is_retriable_by_member, leave_request
from .strategies import AssignmentStrategy, checked_strategies
from .topic_watcher import Spawn, Topics, TopicWatcher

logger = logging.getLogger(__name__)

JOIN_MARGIN = 5.0
"""Seconds that JoinGroup may take beyond the rebalance timeout, when the coordinator answers at the latest."""

GATHER_TIMEOUT = 5.0
"""Seconds that the leader waits for the metadata of topics that it does not know. Then it assigns without them."""

MANY_MEMBERS = 1_000
"""From this number of members on, the leader computes the assignment in a thread: in the event loop, 50,000 members
would take a second."""

PROBLEMS_LOGGED = 10
"""The maximum number of problems with other members' subscriptions that one rebalance logs."""

LEAVE_TIMEOUT = 2.0
"""Seconds for LeaveGroup, and for an answer to JoinGroup that LeaveGroup needs, when the member closes."""

_Request = SendJoin | GatherTopics | SendSync | SendLeave


class Coordinator:
    """The membership of one consumer. Owner: the consumer, in whose task group all tasks run (``spawn``).

    ``on_error`` is called with errors that are retried. An error that cannot be retried ends ``run`` or another task of
    the consumer as an exception.
    """

    def __init__(
        self,
        client: Client,
        config: GroupConfig,
        client_config: ClientConfig,
        *,
        strategies: Sequence[AssignmentStrategy | str],
        reading: Reading,
        spawn: Spawn,
        on_error: Callable[[KafkaError], None] = lambda error: None,
    ) -> None:
        self._client = client
        self._config = config
        self._client_config = client_config
        self._reading = reading
        self._spawn = spawn
        self._on_error = on_error
        self._place = f"group {config.group_id}"  # of outages
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._channel = CoordinatorChannel(client, config.group_id)
        self._backoff = client.retry_backoff()
        self._request: anyio.CancelScope | None = None  # rule 2
        self._polled = False  # a Polled event is queued; a second one would say nothing new
        self._gone = asyncio.Event()
        self.rebalances = RebalanceCounters()
        self.heartbeats = RequestCounters()
        self.member = Member(
            config.group_id,
            strategies=checked_strategies(strategies),
            session_timeout=config.session_timeout,
            rebalance_timeout=config.time_to_rebalance,
            instance_id=config.group_instance_id,
            rack=client_config.client_rack or None,
        )
        self.offsets = Offsets(
            client,
            config,
            client_config,
            identity=lambda: self.member.identity if self.member.generation >= 0 else None,
            is_rebalancing=lambda: self.member.state.is_rebalancing,
            collect=reading.collect_marks,
            on_mark=reading.marked,
            on_commit=reading.committed,
            on_refused=lambda identity, code: self._post(CommitRefused(identity, code)),
            on_error=on_error,
        )
        self._handovers = Handovers(
            config,
            client_config,
            self.member,
            reading,
            self.offsets,
            calm_at=lambda: self._heartbeats.calm_at,
            on_released=self._post,
            on_error=self._report,
        )
        self._heartbeats = Heartbeats(
            client,
            config,
            self._channel,
            self.member,
            self.heartbeats,
            place=self._place,
            is_overdue=self._is_overdue,
            post=self._post,
            on_answer=lambda code, node_id: self._record(code, node_id, "Heartbeat"),
            on_error=self._report,
        )
        self._topics = TopicWatcher(
            client,
            config.group_id,
            spawn=spawn,
            post=self._post,
            fail=self._handovers.put,
            on_error=self._report,
        )

    def __repr__(self) -> str:
        return f"<Coordinator of {self.member!r}>"

    # Called by the consumer.

    def start(self, topics: Topics) -> None:
        """Become a member that reads these topics. The client must be running."""
        self._topics.start()
        self._spawn(self.run, name="group member")
        self._spawn(self._heartbeats.run, name="heartbeats")
        self._spawn(self._handovers.run, name="handing over partitions")
        if self._config.auto_commit:
            self._spawn(self.offsets.run, name="commit marked offsets")
        self.subscribe(topics)

    @property
    def node(self) -> Node | None:
        """The broker that coordinates the group, if it is known."""
        return self._client.known_coordinator(self._config.group_id)

    @property
    def topics(self) -> frozenset[str]:
        """The topics that the member reads; of a pattern, those that match now."""
        return self._topics.subscribed

    def subscribe(self, topics: Topics) -> None:
        """Replace the subscription: topic names, or a pattern."""
        self._topics.subscribe(topics)

    def polled(self) -> None:
        """The user asks for records: a member that left because of ``max_poll_interval`` joins again."""
        if self.member.state in (MemberState.UNJOINED, MemberState.LEAVING) and not self._polled:
            self._polled = True
            self._post(Polled())

    async def close(self, *, leave: bool) -> None:
        """Commit what is marked, release all partitions and, if ``leave``, send LeaveGroup.

        Each step has its own time limit; the caller bounds the whole.
        """
        # First, so that a handover that waits for the user ends now and not after its time limit.
        self._handovers.close()
        self._post(Close(leave))
        await self._gone.wait()

    # The task.

    async def run(self) -> None:
        """Handle events until the member is closed."""
        while not self.member.is_gone:
            event = await self._events.get()
            before = self.member.state
            # The user may read again in the turn in which the event was posted. The member would leave, and that read
            # would wait without end: it has posted no Polled, because the member was in the group.
            if isinstance(event, PollOverdue):
                if not self._is_overdue():
                    continue
                logger.warning(
                    "%r leaves the group: no records were requested for more than max_poll_interval = %g s",
                    self.member,
                    self._config.max_poll_interval,
                )
            # The next event is handled only after ``_follow``: it would meet a member whose actions are not performed.
            if self._is_large(event):
                actions = await asyncio.to_thread(self.member.handle, event)
            else:
                actions = self.member.handle(event)
            if isinstance(event, Polled):
                self._polled = False
            if self.member.state is not before:
                logger.info("%r moved from %s after %s", self.member, before.name, type(event).__name__)
            for action in actions:
                self._perform(action)
            self._count_rebalance(before, actions)
            self._follow()
        self._gone.set()

    def _count_rebalance(self, before: MemberState, actions: Sequence[Action]) -> None:
        now, state = asyncio.get_running_loop().time(), self.member.state
        if any(isinstance(action, Assign) for action in actions):
            self.rebalances.end(now)
        if state is not before and state is not MemberState.SYNCING:
            self.rebalances.fail()
            if state is MemberState.JOINING:
                self.rebalances.begin(now)

    def _is_overdue(self) -> bool:
        """Whether the user has not read for more than ``max_poll_interval``, and the member must leave for it."""
        idle = self._reading.idle_for(asyncio.get_running_loop().time())
        return idle > self._config.max_poll_interval and self.member.state.sends_heartbeats

    def _is_large(self, event: Event) -> bool:
        """Whether the member takes long to handle this event, because it leads a large group."""
        if isinstance(event, JoinAnswer):
            return len(event.response.members) > MANY_MEMBERS
        leadership = self.member.leadership
        return isinstance(event, TopicsGathered) and leadership is not None and len(leadership.members) > MANY_MEMBERS

    def _post(self, event: Event) -> None:
        self._events.put_nowait(event)

    def _perform(self, action: Action) -> None:
        match action:
            case SendJoin():
                self._send(action, self._join)
            case GatherTopics():
                self._log_problems()
                self._send(action, self._gather)
            case SendSync():
                self._send(action, self._sync)
            case SendLeave():
                self._send(action, self._leave)
            case AwaitJoin():
                # Not by ``_send``, which would cancel the JoinGroup that this waits for.
                self._spawn(self._abandon_join, action.attempt, name="await JoinGroup before leaving")
            case Assign() | Revoke() | Lose() | Fail():
                self._handovers.put(action)
            case Report():
                self._report(action.error)

    def _log_problems(self) -> None:
        problems = [] if self.member.leadership is None else self.member.leadership.problems
        for problem in problems[:PROBLEMS_LOGGED]:
            logger.warning("%r leads the group: %s", self.member, problem)
        if len(problems) > PROBLEMS_LOGGED:
            logger.warning("%r leads the group: %d more such problems", self.member, len(problems) - PROBLEMS_LOGGED)

    def _follow(self) -> None:
        """Apply the member's state: heartbeats, backoff, watched topics."""
        self._heartbeats.follow()
        # Only a complete generation ends the growing pauses. A JoinGroup that is answered proves little: a SyncGroup
        # may fail again and again after it.
        if self.member.state is MemberState.STABLE:
            self._backoff.reset()
        leadership = self.member.leadership
        self._topics.watch(frozenset() if leadership is None else leadership.topics)

    # Requests.

    def _send(self, action: _Request, perform: Callable[..., object]) -> None:
        # A cancelled request posts no event. The member would drop it anyway, by its attempt.
        if self._request is not None:
            self._request.cancel()
        self._request = self._spawn(self._run_request, action, perform, name=type(action).__name__)

    async def _run_request(self, action: _Request, perform: Callable[[_Request], object]) -> None:
        try:
            event = await perform(action)  # type: ignore[misc]
        except KafkaError as error:
            self._report(error)
            event = RequestFailed(action.attempt, error, is_retriable_by_member(error))
        self._post(event)

    async def _join(self, action: SendJoin) -> JoinAnswer:
        if action.pause:
            await asyncio.sleep(self._backoff.next())

        def build(versions: VersionTable) -> JoinGroupRequest:
            if self._config.group_instance_id is not None:
                versions.require(
                    JoinGroupRequest.STATIC_MEMBERS, f"group_instance_id={self._config.group_instance_id!r}"
                )
            return action.request

        # The coordinator answers only when all members have joined, or when the rebalance timeout is over.
        timeout = max(self._client_config.request_timeout, self._config.time_to_rebalance + JOIN_MARGIN)
        response, node_id = await self._channel.send(build, purpose=Purpose.GROUP, timeout=timeout)
        self._record(ErrorCode.of(response.error_code), node_id, "JoinGroup")
        return JoinAnswer(action.attempt, response)

    async def _abandon_join(self, attempt: int) -> None:
        await asyncio.sleep(LEAVE_TIMEOUT)
        self._post(RequestFailed(attempt, KafkaTimeout("JoinGroup was not answered"), retriable=True))

    async def _gather(self, action: GatherTopics) -> TopicsGathered:
        missing = [name for name in action.topics if name not in self._client.view.topics]
        # Topics that appear later start another rebalance (``TopicsSeen``). The leader sends no heartbeats here, and
        # all members wait for it, so this must end well before its session does.
        if missing:
            with suppress(KafkaTimeout):
                await self._client.refresh(missing, timeout=min(GATHER_TIMEOUT, self._config.session_timeout / 3))
        return TopicsGathered(action.attempt, self._topics.racks(action.topics))

    async def _sync(self, action: SendSync) -> SyncAnswer:
        response, node_id = await self._channel.send(
            lambda versions: action.request, purpose=Purpose.GROUP, timeout=self._client_config.request_timeout
        )
        self._record(ErrorCode.of(response.error_code), node_id, "SyncGroup")
        return SyncAnswer(action.attempt, response)

    async def _leave(self, action: SendLeave) -> LeaveAnswer:
        with anyio.move_on_after(LEAVE_TIMEOUT) as leaving:
            await self._channel.send(
                lambda versions: leave_request(self._config.group_id, action, versions),
                purpose=Purpose.OTHER,  # a JoinGroup that waits at the coordinator must not delay it
                timeout=self._client_config.request_timeout,
            )
        if leaving.cancelled_caught:
            logger.warning(
                "%r got no answer to LeaveGroup within %g s; the coordinator evicts it when its session times out",
                self.member,
                LEAVE_TIMEOUT,
            )
        return LeaveAnswer(action.attempt)

    def _record(self, code: ErrorCode, node_id: int, api: str) -> None:
        self._channel.record([code], node_id)
        # These answers are regular steps of a rebalance, not failures that an outage should count.
        if code not in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.REBALANCE_IN_PROGRESS):
            self._report(error_for(code, f"{api} of group {self._config.group_id!r}"))

    def _report(self, error: KafkaError) -> None:
        # INFO, not WARNING: a group that rebalances answers with errors as a matter of course.
        self._client.outages.report(logger, self._place, error, "%r: %s", self.member, error, level=logging.INFO)
        self._on_error(error)
