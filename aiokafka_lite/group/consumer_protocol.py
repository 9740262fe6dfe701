"""Performs the actions of a ``ConsumerMember``: heartbeats of the consumer protocol (KIP-848), and their pauses."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from ..cluster.client import Client
from ..errors import ErrorCode, KafkaError, KafkaTimeout
from ..net.connection import Purpose
from ..protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    MetadataRequest,
    MetadataRequestTopic,
)
from ..protocol.versions import VersionTable
from ..settings.group import GroupConfig
from .blocked_loop import BlockedLoop
from .consumer_member import FENCED, JOIN_EPOCH, ConsumerMember, problem_of
from .events import (
    Action,
    ConsumerHeartbeatAnswer,
    Event,
    HeartbeatDue,
    LeaveAnswer,
    MovedByThread,
    PauseHeartbeat,
    PollOverdue,
    ResolveTopics,
    SendHeartbeat,
    ThreadStarted,
    TopicsNamed,
)
from .heartbeat_thread import HeartbeatThread, ThreadAnswer
from .member_requests import MemberRequests
from .reading import Reading
from .states import MemberState
from .topic_watcher import Spawn, TopicWatcher

if TYPE_CHECKING:
    from .beats import ConsumerBeat

FEATURE = "group.version"
"""The feature of clusters with consumer groups; level 1 is the first level that has them."""

MISSED_INTERVALS = 3
"""The number of heartbeat intervals that an answer may take. With the brokers' defaults, this is a third of a
session."""

POLL_MARGIN = 0.001
"""Seconds to wait beyond ``max_poll_interval``, so that it has certainly ended."""

RESOLVE_TIMEOUT = 5.0
"""Seconds for one refresh of the metadata that lacks the name of an assigned topic."""

logger = logging.getLogger(__name__)


def is_offered(versions: VersionTable) -> bool:
    """Return whether the cluster of a broker with these versions has consumer groups of the consumer protocol."""
    return versions.supports(ConsumerGroupHeartbeatRequest.CONSUMER_GROUPS) and versions.level(FEATURE) >= 1


class ConsumerProtocol:
    """The consumer protocol of one member. Owner: the ``MemberRunner``. The member is read, never changed."""

    def __init__(
        self,
        client: Client,
        config: GroupConfig,
        member: ConsumerMember,
        *,
        requests: MemberRequests,
        spawn: Spawn,
        post: Callable[[Event], None],
        reading: Reading,
        topics: TopicWatcher,
    ) -> None:
        self._client = client
        self._topics = topics
        self._config = config
        self._member = member
        self._requests = requests
        self._spawn = spawn
        self._post = post
        self._backoff = client.retry_backoff()
        self._failed_at = -math.inf  # the loop's time of the last failure that the backoff has counted
        self._resolving = False
        self._thread = HeartbeatThread(
            client,
            config.group_id,
            config.heartbeat_thread,
            spawn,
            beat=self._beat,
            on_answer=self._thread_answered,
            poll_left=self._poll_left,
            on_start=lambda: post(ThreadStarted()),
        )
        self._blocked_loop = BlockedLoop(
            client.loop_delay,
            member,
            interval=lambda: self._interval,
            needs_heartbeats=lambda: member.state.sends_heartbeats,
            consequence="the coordinator evicts a member whose session ends",
            thread=self._thread,
            confirm=self._confirm,
        )
        self._reading = reading
        self._confirming_since: float | None = None
        self._kept_until = -math.inf  # the loop's time of the last accepted heartbeat of the thread
        self.calm_at: float = 0.0
        """The loop's time at which the last successful heartbeat was sent. The next revocation began after it."""

    def start(self) -> None:
        """Watch for a blocked loop. Heartbeats are actions of the member, so no other task is needed."""
        self._blocked_loop.watch()

    def perform(self, action: Action) -> None:
        """Pause, send a heartbeat, or look up topics."""
        match action:
            case PauseHeartbeat():
                self._requests.start(action, self._pause)
            case SendHeartbeat():
                self._requests.start(action, self._leave if action.leaves else self._heartbeat)
            case ResolveTopics() if not self._resolving:
                self._resolving = True
                self._spawn(self._resolve, name="names of assigned topics")

    def follow(self) -> None:
        """Apply the member's state: only the thread needs it, because each heartbeat is an action of the member."""
        self._thread.member_changed()

    def _beat(self) -> ConsumerBeat | None:
        """Make the heartbeat of the thread."""
        from .beats import ConsumerBeat  # imported here: few programs block their loop

        member = self._member
        return ConsumerBeat(member.group_id, member.identity, self._interval) if member.state.sends_heartbeats else None

    def _thread_answered(self, answer: ThreadAnswer) -> None:
        response, epoch = answer.response, answer.beat.identity.generation
        self._requests.thread_heartbeats += 1
        if answer.code is not ErrorCode.NONE:
            return  # the next heartbeat of the member gets the same error, unless it is up to date
        self._requests.heartbeats.succeeded(answer.sent_at, answer.answered_at)
        if response.member_epoch != epoch or response.assignment is not None:
            self._post(MovedByThread(answer.posted.identity.generation, response.member_epoch))
        else:
            self.calm_at = max(self.calm_at, answer.sent_at)  # a revocation begins later than this
        self._kept_until = max(self._kept_until, answer.sent_at)

    @property
    def _interval(self) -> float:
        """The seconds between two heartbeats that the coordinator asks for; long before its first answer.

        At least a second, because the timeout of a request is a multiple of this. Else a busy broker could exceed it.
        """
        interval = self._member.heartbeat_interval
        return self._client.config.request_timeout if interval is None else max(interval, 1.0)

    def _confirm(self) -> None:
        """Suspend the reading until a heartbeat is answered, if the session may have ended during a block.

        The coordinator does not tell how long a session is, but it is several intervals.
        """
        now = asyncio.get_running_loop().time()
        if now - max(self.calm_at, self._kept_until) >= MISSED_INTERVALS * self._interval:
            if self._confirming_since is None:
                self._reading.suspend()
            self._confirming_since = now

    async def _pause(self, action: PauseHeartbeat) -> HeartbeatDue:
        loop = asyncio.get_running_loop()
        # The pause between two heartbeats is counted from the sending, like the session, because the answer may have
        # waited for a blocked loop.
        if action.seconds is None:
            self._failed_at = loop.time()
            due = self._failed_at + self._backoff.next()
        else:
            due = self.calm_at + action.seconds
        while (now := loop.time()) < due:
            # The user may exceed max_poll_interval before the next heartbeat is due.
            poll_left = self._poll_left()
            await asyncio.sleep(min(due - now, poll_left + POLL_MARGIN) if poll_left > 0 else due - now)
            if self._poll_left() < 0 and self._member.state.sends_heartbeats:
                # If the user does not read before the member handles this event, the member leaves, and this pause is
                # cancelled.
                self._post(PollOverdue())
                await asyncio.sleep(0)
        return HeartbeatDue(action.attempt)

    def _poll_left(self) -> float:
        """Return the seconds until the user exceeds ``max_poll_interval``, unless the user reads."""
        return self._config.max_poll_interval - self._reading.idle_for(asyncio.get_running_loop().time())

    def _build(self, action: SendHeartbeat, versions: VersionTable) -> ConsumerGroupHeartbeatRequest:
        versions.require(ConsumerGroupHeartbeatRequest.CONSUMER_GROUPS, 'group_protocol="consumer"')
        request, newest = action.request, self._thread.newest
        if request.subscribed_topic_regex is not None:
            versions.require(ConsumerGroupHeartbeatRequest.REGEX, "a SubscriptionPattern")
        # A block between the action and this moment may have let the thread move the member.
        if request.member_epoch > JOIN_EPOCH:
            moved = self._member.generation if newest is None else newest.identity.generation
            request.member_epoch = max(request.member_epoch, self._member.generation, moved)
        return request

    async def _heartbeat(self, action: SendHeartbeat) -> ConsumerHeartbeatAnswer:
        began = asyncio.get_running_loop().time()
        try:
            response, node_id = await self._requests.channel.send(
                lambda versions: self._build(action, versions),
                purpose=Purpose.GROUP,
                timeout=min(self._client.config.request_timeout, MISSED_INTERVALS * self._interval),
            )
        except KafkaError:
            self._requests.heartbeats.failures += 1
            raise
        code = ErrorCode.of(response.error_code)
        if code is not ErrorCode.NONE or self._client.outages:
            self._requests.record(code, node_id, "ConsumerGroupHeartbeat")
        problem = await self._problem_of(response)
        if code is ErrorCode.NONE and problem is None:
            self._requests.heartbeats.succeeded(began, asyncio.get_running_loop().time())
            self.calm_at = began
            if self._confirming_since is not None and began >= self._confirming_since:
                self._confirming_since = None
                self._reading.resume()
            # A join alone ends no outage: the coordinator may evict the member at its next heartbeat, again and again.
            if self._member.state is not MemberState.JOINING:
                # The first heartbeat after a failure does not reset the backoff: each fetch of offsets may be refused.
                if began >= self._failed_at + self._interval:
                    self._backoff.reset()
                self._client.outages.recovered(logger, self._requests.place, "%r: heartbeats succeeded", self._member)
        else:
            self._requests.heartbeats.failures += 1
            if code in FENCED and self._member.state.sends_heartbeats:
                cause = self._blocked_loop.cause(since=self.calm_at)
                logger.warning("%r was evicted from the group%s: %s; it joins again", self._member, cause, code.name)
        answered_at = asyncio.get_running_loop().time()
        return ConsumerHeartbeatAnswer(
            action.attempt, response, self._client.view.topic_names, problem, answered_at=answered_at
        )

    async def _problem_of(self, response: ConsumerGroupHeartbeatResponse) -> str | None:
        """Find the reason why this answer is invalid, with new metadata if needed; None if it is valid."""
        problem = problem_of(response)
        if problem is not None or response.assignment is None:
            return problem
        names = self._client.view.topic_names
        topics = {
            names[topic_partition.topic_id]: topic_partition.partitions
            for topic_partition in response.assignment.topic_partitions
            if topic_partition.topic_id in names
        }
        return await self._requests.problem_after_refresh(topics)

    async def _leave(self, action: SendHeartbeat) -> LeaveAnswer:
        # The request uses the connection of the heartbeats, so that a heartbeat that joins cannot arrive after it.
        await self._requests.leave(
            lambda: self._requests.channel.send(
                lambda versions: self._build(action, versions),
                purpose=Purpose.GROUP,
                timeout=self._client.config.request_timeout,
            )
        )
        return LeaveAnswer(action.attempt)

    async def _track_unnamed(self) -> None:
        """Track the topics that only the coordinator's pattern matches, so that metadata has them."""
        topics = [MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in self._member.unnamed_topics]
        response = await self._client.send(MetadataRequest(topics=topics), timeout=RESOLVE_TIMEOUT)
        self._topics.expect(topic.name for topic in response.topics if topic.name is not None and not topic.error_code)

    async def _resolve(self) -> None:
        """Refresh metadata until it has the names of all assigned topics."""
        backoff = self._client.retry_backoff()
        try:
            while self._member.has_unnamed_topics and self._member.state is not MemberState.FATAL:
                with suppress(KafkaTimeout):
                    if self._topics.sent_pattern is not None:
                        await self._track_unnamed()
                    view = await self._client.refresh(timeout=RESOLVE_TIMEOUT)
                    self._post(TopicsNamed(view.topic_names))
                await asyncio.sleep(backoff.next())
        except KafkaError as error:
            self._requests.report(error)  # the next answered heartbeat starts another attempt
        finally:
            self._resolving = False
            self._topics.expect(())
