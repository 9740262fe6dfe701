"""Performs the actions of a ``Member``: the requests of the classic protocol, and its heartbeats."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from ..aio.retry import is_refusal, is_retriable_in_failover
from ..arguments import by_topic, plural
from ..cluster.client import Client
from ..errors import ErrorCode, KafkaError, KafkaTimeout, ProtocolError, error_for
from ..net.connection import Purpose
from ..protocol.messages import (
    DescribedGroup,
    DescribeGroupsRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupResponse,
)
from ..protocol.versions import VersionTable
from ..settings.group import GroupConfig
from .events import (
    Action,
    AssignmentsSeen,
    AwaitJoin,
    Event,
    GatherTopics,
    JoinAnswer,
    LeaveAnswer,
    LookUpAssignments,
    RequestFailed,
    SendJoin,
    SendLeave,
    SendSync,
    SyncAnswer,
    TopicsGathered,
)
from .heartbeats import Heartbeats
from .member import Member
from .member_requests import LEAVE_TIMEOUT, MemberRequests
from .payloads import read_assignment
from .reading import Reading
from .requests import MAX_UNLISTED, leave_request, leaves_by_id
from .states import MemberState
from .strategies import TopicRacks
from .topic_watcher import Spawn, TopicWatcher

logger = logging.getLogger(__name__)

JOIN_MARGIN = 5.0
"""Seconds that JoinGroup may take beyond the rebalance timeout. The coordinator answers when the timeout ends, or
earlier."""

GATHER_TIMEOUT = 5.0
"""Seconds that the leader waits for the metadata of unknown topics. After that, it assigns without them."""

LOOKUPS = 5
"""The maximum number of attempts to look up what is assigned. A failure of the connection also costs the heartbeats a
lookup of the coordinator."""

BYTES_OF_A_NUMBER = 4
"""The size of a partition number in an assignment."""

PROBLEMS_LOGGED = 10
"""The maximum number of problems with other members' subscriptions that one rebalance logs."""


class ClassicProtocol:
    """The classic protocol of one member. Owner: the ``MemberRunner``. The member is read, never changed."""

    def __init__(
        self,
        client: Client,
        config: GroupConfig,
        member: Member,
        *,
        requests: MemberRequests,
        topics: TopicWatcher,
        spawn: Spawn,
        post: Callable[[Event], None],
        reading: Reading,
    ) -> None:
        self._client = client
        self._config = config
        self._member = member
        self._requests = requests
        self._topics = topics
        self._spawn = spawn
        self._post = post
        self._backoff = client.retry_backoff()
        self._heartbeats = Heartbeats(client, config, member, requests, post=post, reading=reading, spawn=spawn)

    @property
    def calm_at(self) -> float:
        """The loop's time at which the group was last known not to rebalance."""
        return self._heartbeats.calm_at

    def start(self) -> None:
        """Start the tasks that run at the same time as requests."""
        self._spawn(self._heartbeats.run, name="heartbeats")

    def perform(self, action: Action) -> None:
        """Send the request of this action."""
        match action:
            case SendJoin():
                self._requests.start(action, self._join)
            case GatherTopics():
                self._log_problems()
                self._requests.start(action, self._gather)
            case SendSync():
                self._requests.start(action, self._sync)
            case SendLeave():
                self._requests.start(action, self._leave)
            case LookUpAssignments():
                self._spawn(self._look_up_assignments, action, name="look up assignments")
            case AwaitJoin():
                # This does not run as a request, because a new request would cancel the JoinGroup that it waits for.
                self._spawn(self._abandon_join, action.attempt, name="await JoinGroup before leaving")

    def follow(self) -> None:
        """Apply the member's state: heartbeats, backoff, watched topics."""
        self._heartbeats.follow()
        # Only a complete generation resets the backoff. An answered JoinGroup is not enough, because the SyncGroup
        # after it may fail each time.
        if self._member.state is MemberState.STABLE:
            self._backoff.reset()
        leadership = self._member.leadership
        self._topics.watch(frozenset() if leadership is None else leadership.topics)

    def _log_problems(self) -> None:
        problems = [] if self._member.leadership is None else self._member.leadership.problems
        for problem in problems[:PROBLEMS_LOGGED]:
            logger.warning("%r leads the group: %s", self._member, problem)
        if len(problems) > PROBLEMS_LOGGED:
            more = plural(len(problems) - PROBLEMS_LOGGED, "more problem")
            logger.warning("%r leads the group: %s like these", self._member, more)

    # Requests.

    async def _join(self, action: SendJoin) -> JoinAnswer:
        # The pause is a part of the request task, so that a newer request cancels the pause too.
        if action.pause:
            await asyncio.sleep(self._backoff.next())

        def build(versions: VersionTable) -> JoinGroupRequest:
            if self._config.group_instance_id is not None:
                versions.require(
                    JoinGroupRequest.STATIC_MEMBERS, f"group_instance_id={self._config.group_instance_id!r}"
                )
            return action.request

        # The coordinator answers only when all members have joined, or when the rebalance timeout is over.
        timeout = max(self._client.config.request_timeout, self._config.time_to_rebalance + JOIN_MARGIN)
        response, node_id = await self._requests.channel.send(build, purpose=Purpose.GROUP, timeout=timeout)
        self._requests.record(ErrorCode.of(response.error_code), node_id, "JoinGroup")
        return JoinAnswer(action.attempt, response)

    async def _abandon_join(self, attempt: int) -> None:
        await asyncio.sleep(LEAVE_TIMEOUT)
        self._post(RequestFailed(attempt, KafkaTimeout("JoinGroup was not answered"), retriable=True))

    async def _gather(self, action: GatherTopics) -> TopicsGathered:
        return TopicsGathered(action.attempt, await self._racks(action.topics))

    async def _racks(self, topics: frozenset[str]) -> TopicRacks:
        missing = [name for name in topics if name not in self._client.view.topics]
        # Topics that appear later start another rebalance (``TopicsSeen``). The leader sends no heartbeats meanwhile,
        # and all members wait for it, so this must end well before its session.
        if missing:
            with suppress(KafkaTimeout):
                await self._client.refresh(missing, timeout=min(GATHER_TIMEOUT, self._config.session_timeout / 3))
        return self._topics.racks(topics)

    async def _sync(self, action: SendSync) -> SyncAnswer:
        response, node_id = await self._requests.channel.send(
            lambda versions: action.request, purpose=Purpose.GROUP, timeout=self._client.config.request_timeout
        )
        self._requests.record(ErrorCode.of(response.error_code), node_id, "SyncGroup")
        return SyncAnswer(action.attempt, response, await self._problem_of(response))

    async def _look_up_assignments(self, action: LookUpAssignments) -> None:
        backoff = self._client.retry_backoff()
        for _ in range(LOOKUPS):
            if self._member.identity != action.identity:
                return  # the group has rebalanced
            try:
                group = await self._describe_group()
                racks = await self._racks(action.topics)
            except KafkaError as error:
                if is_retriable_in_failover(error):
                    await asyncio.sleep(backoff.next())
                    continue
                # Another error may mean that the coordinator itself assigns: a group of the consumer protocol.
                if is_refusal(error):
                    logger.warning("%r cannot see whether all partitions are assigned: %s", self._member, error)
                return
            # During a rebalance nothing is assigned, and then the leader sees all topics.
            if group.group_state == "Stable":
                counts = {topic: len(partitions) for topic, partitions in racks.items()}
                assignments = [member.member_assignment for member in group.members]
                self._post(AssignmentsSeen(action.identity, counts, assignments))
            return

    async def _describe_group(self) -> DescribedGroup:
        response, node_id = await self._requests.channel.send(
            lambda versions: DescribeGroupsRequest(groups=[self._config.group_id]),
            purpose=Purpose.OTHER,
            timeout=self._client.config.request_timeout,
        )
        if len(response.groups) != 1:
            raise ProtocolError(f"DescribeGroups of one group was answered with {len(response.groups)}")
        group = response.groups[0]
        code = ErrorCode.of(group.error_code)
        self._requests.channel.record([code], node_id)
        if code is not ErrorCode.NONE:
            raise error_for(code, f"DescribeGroups of group {self._config.group_id!r}")
        return group

    async def _problem_of(self, response: SyncGroupResponse) -> str | None:
        """Find the reason to refuse this assignment. None if there is none, or its bytes cannot be read."""
        if len(response.assignment) <= BYTES_OF_A_NUMBER * MAX_UNLISTED:
            return None  # too short for more than MAX_UNLISTED partitions; the member decodes the assignment
        try:
            assigned = read_assignment(response.assignment)
        except ProtocolError:
            return None  # the member also decodes the assignment, and refuses it
        return await self._requests.problem_after_refresh(by_topic(assigned))

    async def _leave(self, action: SendLeave) -> LeaveAnswer:
        await self._requests.leave(lambda: self._send_leave(action))
        return LeaveAnswer(action.attempt)

    async def _send_leave(self, action: SendLeave) -> tuple[LeaveGroupResponse, int]:
        by_id = leaves_by_id(action, await self._requests.channel.versions())
        return await self._requests.channel.send(
            lambda versions: leave_request(self._config.group_id, action, versions, by_id=by_id),
            purpose=Purpose.OTHER,  # a JoinGroup that waits at the coordinator must not delay it
            timeout=self._client.config.request_timeout,
            at_most=LeaveGroupRequest.MANY_MEMBERS.before if by_id else None,
        )
