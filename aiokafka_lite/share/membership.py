"""The heartbeats of a member of a share group: one task joins, keeps the membership, and joins again after a fence.

Rule 1: Only this task calls the member, except for ``close``. There is one request at a time.
Rule 2: Heartbeats run while the user processes records. A share group needs no ``max_poll_interval``: a record whose
        consumer is stuck is delivered again when its acquisition lock expires.
Rule 3: A member without partitions sends its next heartbeats early. The coordinator assigns partitions only after it
        has initialized their state, so the answer to the first heartbeat of a group never has any.
Rule 4: While the event loop is blocked, a thread may send heartbeats. The thread does not
        use an assignment that it gets. When the loop turns again, the member asks for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import anyio

from ..aio.light_event import LightEvent
from ..aio.retry import Backoff, is_momentary
from ..cluster.client import Client
from ..cluster.coordinator_channel import CoordinatorChannel
from ..errors import ErrorCode, KafkaError, UnsupportedVersion
from ..group.blocked_loop import BlockedLoop
from ..group.heartbeat_thread import HeartbeatThread, ThreadAnswer
from ..group.requests import is_refused
from ..group.topic_watcher import Spawn
from ..net.connection import Purpose
from ..net.traffic import RequestCounters
from ..protocol.messages import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from ..protocol.versions import VersionTable
from ..settings.group import HeartbeatThreadMode
from .member import JOIN_EPOCH, ShareMember, ShareMemberState

if TYPE_CHECKING:
    from .beat import ShareBeat

logger = logging.getLogger(__name__)

EARLY = 0.1
"""Seconds until the next heartbeat of a member without partitions; doubled up to the interval (rule 3)."""

LONGEST_BLOCK = 300.0
"""Seconds for which the event loop may be blocked until the heartbeat thread stops. Share groups have no
``max_poll_interval``."""

LEAVE_TIMEOUT = 0.7
"""Seconds for the request to leave when the consumer closes. Without it the session of the member times out."""


class ShareMembership:
    """Drives one ``ShareMember``. Owner: the ``ShareCore``.

    ``on_assignment`` is called when the assigned partitions change. ``topic_names`` returns the names of topics by
    their ids. ``thread`` is the setting ``heartbeat_thread``, and ``spawn`` starts its task. An error that is not
    retriable ends ``run``.
    """

    def __init__(
        self,
        client: Client,
        member: ShareMember,
        *,
        on_assignment: Callable[[], None],
        topic_names: Callable[[], Mapping[bytes, str]],
        thread: HeartbeatThreadMode,
        spawn: Spawn,
    ) -> None:
        self.member = member
        self.heartbeats: RequestCounters = RequestCounters()
        self.rebalances: int = 0
        """How often the assigned partitions have changed."""
        self._client = client
        self._on_assignment = on_assignment
        self._topic_names = topic_names
        self._channel = CoordinatorChannel(client, member.group_id)
        self._place = f"share group {member.group_id}"
        self._access = f"access to share group {member.group_id}"
        self.thread_heartbeats: int = 0
        """The answered heartbeats that the heartbeat thread has sent, while the event loop was blocked."""
        self._closing = LightEvent()
        self._news = LightEvent()  # ``_closing`` is set, or the thread has got an assignment
        self._renewed_at = 0.0  # the loop's time at which the last successful heartbeat was sent
        self._thread = HeartbeatThread(
            client,
            member.group_id,
            thread,
            spawn,
            beat=self._thread_beat,
            on_answer=self._thread_answered,
            poll_left=lambda: LONGEST_BLOCK,
        )
        self._blocked_loop = BlockedLoop(
            client.loop_delay,
            member,
            interval=lambda: member.heartbeat_interval,
            needs_heartbeats=lambda: member.state is ShareMemberState.STABLE,
            consequence="the coordinator evicts a member whose session ends, and records whose locks end are delivered "
            "again",
            thread=self._thread,
        )

    async def run(self) -> None:
        """Send heartbeats until ``leave``. Raises a refusal by the coordinator that a retry cannot help."""
        loop = asyncio.get_running_loop()
        backoff = self._client.retry_backoff()
        early = Backoff(EARLY, self.member.heartbeat_interval, jitter=0.0)
        self._blocked_loop.watch()
        while not self._closing.is_set():
            began, was = loop.time(), self.member.state
            if await self._beat():
                # A join does not reset the backoff: the coordinator may evict the member again at its next heartbeat.
                if was is ShareMemberState.STABLE:
                    backoff.reset()
                pause = self.member.heartbeat_interval
                if self.member.assignment:
                    early.reset()
                else:
                    pause = min(pause, early.next())
                pause -= loop.time() - began  # the interval counts from the request, not from its answer
            else:
                pause = backoff.next()
            with anyio.move_on_after(pause):
                await self._news.wait()
            if not self._closing.is_set():
                self._news.clear()

    async def leave(self) -> None:
        """Leave the group, within ``LEAVE_TIMEOUT`` seconds. Never raises a KafkaError."""
        self._closing.set()
        self._news.set()
        self.member.close()
        self._thread.member_changed()
        if self.member.state is not ShareMemberState.LEAVING:
            return
        with anyio.move_on_after(LEAVE_TIMEOUT):
            try:
                await self._send(self.member.heartbeat())
            except KafkaError as error:
                logger.debug("%r could not leave its group: %s", self.member, error)
        self.member.left()

    async def _beat(self) -> bool:
        """Send one heartbeat. Returns False if the next heartbeat should follow after a backoff."""
        member = self.member
        before, was = member.assignment, member.state
        began = asyncio.get_running_loop().time()
        names = self._topic_names()
        if any(key.topic_id not in names for key in before):
            member.unanswered()  # the assignment may be wrong, so the coordinator has to repeat it
            self._client.request_refresh(member.topics)  # or the client's metadata is outdated
        try:
            response, node_id = await self._send(member.heartbeat())
        except KafkaError as error:
            member.unanswered()
            self.heartbeats.failures += 1
            self._report(error)
            if not is_momentary(error):
                raise
            return False
        epoch = member.epoch
        failure = member.answered(response)
        if (member.state, member.epoch) != (was, epoch):
            self._thread.member_changed()
        self._channel.record([ErrorCode.of(response.error_code)], node_id)
        if member.state is not was:
            logger.info("%r moved from %s", member, was.name)
        if member.state is ShareMemberState.FENCED and was is ShareMemberState.STABLE:
            cause = self._blocked_loop.cause(since=self._renewed_at)
            code = ErrorCode.of(response.error_code)
            logger.warning("%r was evicted from the group%s: %s; it joins again", member, cause, code.name)
        if member.assignment != before:
            self.rebalances += 1
            self._on_assignment()
        if failure is not None:
            self.heartbeats.failures += 1
            self._report(failure)
            if member.state is ShareMemberState.FAILED:
                raise failure
            return False
        self.heartbeats.succeeded(began, asyncio.get_running_loop().time())
        self._renewed_at = began
        self._client.outages.recovered(logger, self._access, "%r: the coordinator accepts the member", member)
        if was is ShareMemberState.STABLE:
            self._client.outages.recovered(logger, self._place, "%r: heartbeats succeeded", member)
        return True

    # The thread (rule 4).

    def _thread_beat(self) -> ShareBeat | None:
        from .beat import ShareBeat  # imported here: few programs block their loop

        member = self.member
        if member.state is not ShareMemberState.STABLE:
            return None
        return ShareBeat(member.group_id, member.member_id, member.epoch, member.heartbeat_interval)

    def _thread_answered(self, answer: ThreadAnswer) -> None:
        response, epoch = answer.response, answer.beat.epoch
        self.thread_heartbeats += 1
        if answer.code is not ErrorCode.NONE:
            return  # the member's next heartbeat gets the same error, unless it is up to date
        self.heartbeats.succeeded(answer.sent_at, answer.answered_at)
        self._renewed_at = max(self._renewed_at, answer.sent_at)
        if response.member_epoch != epoch or response.assignment is not None:
            self.member.moved(answer.posted.epoch, response.member_epoch)
            self._thread.member_changed()
            self._news.set()

    async def _send(self, request: ShareGroupHeartbeatRequest) -> tuple[ShareGroupHeartbeatResponse, int]:
        def build(versions: VersionTable) -> ShareGroupHeartbeatRequest:
            if versions.maximum(ShareGroupHeartbeatRequest) is None:
                raise UnsupportedVersion(
                    f"share groups require Kafka 4.2 or newer, or 4.1 with share.version=1; {versions.peer} has none"
                )
            newest = self._thread.newest
            # A block between the making of the request and this moment may have let the thread move the member.
            if request.member_epoch > JOIN_EPOCH:
                moved = self.member.epoch if newest is None else newest.epoch
                request.member_epoch = max(request.member_epoch, self.member.epoch, moved)
            return request

        return await self._channel.send(build, purpose=Purpose.GROUP, timeout=self._client.config.request_timeout)

    def _report(self, error: KafkaError) -> None:
        if is_refused(error):
            what = "%r is refused, and tries again: %s"
            self._client.outages.report_refusal(logger, self._access, error, what, self.member, error)
            return
        # INFO, not WARNING: errors are normal while a coordinator moves to another broker.
        problem = f"requests of share group {self.member.group_id!r} to its coordinator fail: {error}"
        self._client.outages.report(
            logger, self._place, error, "%r: %s", self.member, error, level=logging.INFO, problem=problem
        )
