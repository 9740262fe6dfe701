"""The heartbeats of a member, and the check of ``max_poll_interval`` that comes with them.

Rules of this file:

Rule 1: Heartbeats are sent in a task of their own, so they continue while user code runs.
Rule 2: Heartbeats are sent only while the member needs them (``Member.needs_session``). During a rebalance, their codes
        only show that the coordinator is alive. They use another connection than JoinGroup, which may wait at the
        coordinator for minutes. A heartbeat without an error causes no event. After each event that a heartbeat causes,
        the task yields once, so that no heartbeat is sent under an outdated identity.
Rule 3: A cooperative member sends its first heartbeats of a generation early. A cooperative rebalance often causes a
        second one. Members that released partitions join again at once, and the next owners of these partitions detect
        this only by a heartbeat. Without this, the moved partitions would have no reader for half an interval or
        longer.
Rule 4: A member that reaches no coordinator for ``session_timeout`` counts its session as ended: another coordinator
        may have given its partitions to other members. The time counts from the sending of the last successful
        heartbeat. So the session ends here before it ends at the coordinator. It ends only after a failed attempt. A
        member whose event loop was blocked sends a heartbeat first, even if the loop was blocked during the failed
        attempt.
Rule 5: A member whose event loop was blocked beyond the end of its session may have lost its partitions. It returns no
        more records until a heartbeat that was sent after the block is answered.
Rule 6: While the loop is blocked, a thread may send the heartbeats (``heartbeat_thread``). Their answers are handled
        here when the loop turns again, like those to heartbeats of this task.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..aio.deadline import deadline
from ..aio.light_event import LightEvent
from ..aio.retry import Backoff, is_momentary
from ..cluster.client import Client
from ..errors import ErrorCode, KafkaError
from ..net.connection import Purpose
from ..settings.group import GroupConfig
from .blocked_loop import BlockedLoop
from .events import Event, HeartbeatAnswer, Identity, PollOverdue, SessionExpired
from .heartbeat_thread import HeartbeatThread, ThreadAnswer
from .member import Member
from .member_requests import MemberRequests
from .reading import Reading
from .requests import REFUSALS, heartbeat_request
from .topic_watcher import Spawn

if TYPE_CHECKING:
    from .beats import ClassicBeat

logger = logging.getLogger(__name__)

EARLY = 0.1
"""Seconds until the first heartbeat of a cooperative generation. The time then doubles up to ``heartbeat_interval``
(rule 3)."""

SHORTEST_ATTEMPT = 1.0
"""The shortest timeout of a heartbeat, in seconds. It applies even if the session ends earlier, as it may after a
blocked loop."""

_RENEWS_SESSION = (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
"""Answers with which the coordinator renews the session. After loading a group, it renews the sessions of all
members."""


class Heartbeats:
    """The heartbeat task of one member. Owner: the ``ClassicProtocol``.

    ``post`` sends an event to the member, which is read here and never changed.
    """

    def __init__(
        self,
        client: Client,
        config: GroupConfig,
        member: Member,
        requests: MemberRequests,
        *,
        post: Callable[[Event], None],
        reading: Reading,
        spawn: Spawn,
    ) -> None:
        self._client = client
        self._config = config
        self._member = member
        self._requests = requests
        self._post = post
        self._reading = reading
        # Read from the member in ``follow``, so that a heartbeat asks the member nothing.
        self._identity = member.identity
        self._request = heartbeat_request(config.group_id, member.identity)
        self._is_member = self._is_rebalancing = False
        self._needed = LightEvent()
        self._new_generation = LightEvent()  # a generation has begun, and its first heartbeat is not sent yet
        self._generation = member.generation
        self._session_ends = 0.0  # the loop's time (rule 4)
        self._calm_at = 0.0
        self._thread = HeartbeatThread(
            client,
            config.group_id,
            config.heartbeat_thread,
            spawn,
            beat=self._beat,
            on_answer=self._thread_answered,
            poll_left=lambda: config.max_poll_interval - reading.idle_for(asyncio.get_running_loop().time()),
        )
        self._blocked_loop = BlockedLoop(
            client.loop_delay,
            member,
            interval=lambda: config.heartbeat_interval,
            needs_heartbeats=lambda: member.needs_session,
            consequence=f"the session ends after {config.session_timeout:g} s",
            thread=self._thread,
            confirm=self._confirm,
        )
        self._is_confirming = False  # rule 5

    @property
    def calm_at(self) -> float:
        """The loop's time of the last heartbeat without an error, when the group did not rebalance.

        A rebalance that a later heartbeat reports may have begun just after this time.
        """
        if self._generation != self._member.generation:
            return asyncio.get_running_loop().time()  # the generation has just begun
        return self._calm_at

    def follow(self) -> None:
        """Apply the member's state: start or stop heartbeats, and start early for a new generation."""
        member = self._member
        self._is_member, self._is_rebalancing = member.state.sends_heartbeats, member.state.is_rebalancing
        self._thread.member_changed()
        if not member.needs_session:
            self._needed.clear()
            return
        self._identity = member.identity
        self._request = heartbeat_request(self._config.group_id, member.identity)
        is_new = member.generation != self._generation
        if is_new or not self._needed.is_set():
            self._needed.set()
            self._renew_session(asyncio.get_running_loop().time())
        if is_new and self._is_member:
            self._generation = member.generation
            self._calm_at = asyncio.get_running_loop().time()
            self._new_generation.set()

    async def run(self) -> None:
        """Send heartbeats while they are needed, until cancelled. Raises the first error that is not retriable."""
        interval = self._config.heartbeat_interval
        loop = asyncio.get_running_loop()
        backoff = self._client.retry_backoff(at_most=interval)
        early = Backoff(EARLY, interval, jitter=0.0)
        pause = interval
        self._blocked_loop.watch()
        while True:
            if not self._needed.is_set():
                await self._needed.wait()
                pause = interval
            if self._new_generation.is_set():
                self._new_generation.clear()
                early.reset()
                pause = self._pause(early)
            # Waits for the event, because a new generation cuts the pause short (rule 3).
            if await self._new_generation.wait_until(loop.time() + pause):
                continue
            if not self._needed.is_set():
                continue  # the state changed during the pause
            if self._is_member and self._reading.idle_for(loop.time()) > self._config.max_poll_interval:
                self._post(PollOverdue())
                await asyncio.sleep(0)  # rule 2
                continue
            began = loop.time()
            if await self._send():
                # Counted from the sending, like the session, because the answer may have waited for a blocked loop.
                pause = self._pause(early) - (loop.time() - began)
                backoff.reset()
            else:
                pause = backoff.next()
                if loop.time() + pause >= self._session_ends and not self._blocked_loop.was_blocked(since=began):
                    await self._expire()

    async def _expire(self) -> None:
        if not self._needed.is_set():
            return  # the state changed during the attempt
        member, timeout = self._member, self._config.session_timeout
        logger.warning("%r lost its partitions: no heartbeat succeeded for session_timeout = %g s", member, timeout)
        self._post(SessionExpired(self._identity))
        await asyncio.sleep(0)  # rule 2

    def _confirm(self) -> None:
        """Suspend the reading if the session may have ended while the loop was blocked (rule 5)."""
        if asyncio.get_running_loop().time() >= self._session_ends and not self._is_confirming:
            self._is_confirming = True
            self._reading.suspend()

    def _renew_session(self, since: float) -> None:
        # ``max``, because ``follow`` may have renewed the session after the heartbeat was sent.
        self._session_ends = max(self._session_ends, since + self._config.session_timeout)
        # The answer to a heartbeat that was sent before the block does not confirm anything.
        if self._is_confirming and asyncio.get_running_loop().time() < self._session_ends:
            self._is_confirming = False
            self._reading.resume()

    def _pause(self, early: Backoff) -> float:
        return early.next() if self._member.cooperative else self._config.heartbeat_interval

    async def _send(self) -> bool:
        """Send one heartbeat. Returns False if the next heartbeat should follow after a backoff."""
        config, requests = self._config, self._requests
        identity, request, is_rebalancing = self._identity, self._request, self._is_rebalancing
        # A third of the session, so that two more attempts fit into it after a lost answer.
        timeout = min(self._client.config.request_timeout, max(config.heartbeat_interval, config.session_timeout / 3))
        began = asyncio.get_running_loop().time()
        try:
            # The deadline also bounds the lookup of the coordinator and the connection to it.
            session_left = max(self._session_ends - began, SHORTEST_ATTEMPT)
            with deadline(session_left, lambda: "a heartbeat was not answered before the end of the session"):
                response, node_id = await requests.channel.send(
                    lambda versions: request,
                    # Rule 2: a JoinGroup may wait on the connection for groups.
                    purpose=Purpose.OTHER if is_rebalancing else Purpose.GROUP,
                    timeout=timeout,
                )
        except KafkaError as error:
            requests.heartbeats.failures += 1
            requests.report(error)
            if not is_momentary(error):
                raise
            return False
        code = ErrorCode.of(response.error_code)
        if is_rebalancing and code is ErrorCode.ILLEGAL_GENERATION:
            code = ErrorCode.REBALANCE_IN_PROGRESS  # the next generation has begun, and its answer follows
        self._count(identity, code, began, asyncio.get_running_loop().time())
        if code is ErrorCode.NONE:
            if self._client.outages:
                requests.record(code, node_id, "Heartbeat")
                self._client.outages.recovered(logger, requests.place, "%r: heartbeats succeeded", self._member)
            return True
        requests.record(code, node_id, "Heartbeat")
        self._post(HeartbeatAnswer(identity, code))
        await asyncio.sleep(0)  # rule 2
        may_pass = code.retriable or code is ErrorCode.UNKNOWN_SERVER_ERROR or code in REFUSALS
        return not may_pass

    def _count(self, identity: Identity, code: ErrorCode, began: float, now: float) -> None:
        """Renew the session with an answer, and count it."""
        # An answer for an earlier identity does not renew the present session.
        if code in _RENEWS_SESSION and identity == self._identity:
            self._renew_session(began)
            self._requests.heartbeats.succeeded(began, now)
        else:
            self._requests.heartbeats.failures += 1
        if code is ErrorCode.NONE:
            self._calm_at = max(self._calm_at, began)

    # The thread (rule 6).

    def _beat(self) -> ClassicBeat | None:
        """Make the heartbeat of the thread. A member that joins has a session too if it has a generation."""
        from .beats import ClassicBeat  # imported here: few programs block their loop

        member, config = self._member, self._config
        joins = member.state.is_rebalancing
        if not (member.state.sends_heartbeats or (joins and member.generation >= 0)):
            return None
        return ClassicBeat(config.group_id, member.identity, config.session_timeout, config.heartbeat_interval, joins)

    def _thread_answered(self, answer: ThreadAnswer) -> None:
        code, identity, joined = answer.code, answer.posted.identity, answer.posted.is_joining
        if joined and code in (ErrorCode.NONE, ErrorCode.ILLEGAL_GENERATION):
            code = ErrorCode.REBALANCE_IN_PROGRESS  # the answer to JoinGroup follows
        self._requests.thread_heartbeats += 1
        self._count(identity, code, answer.sent_at, answer.answered_at)
        if code is not ErrorCode.NONE:
            self._post(HeartbeatAnswer(identity, code))
