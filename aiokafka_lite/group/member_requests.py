"""The requests of a member to its coordinator: one at a time, each with an outcome that is the member's next event."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import anyio

from ..aio.children import ChildScope
from ..aio.retry import is_momentary
from ..cluster.client import Client
from ..cluster.coordinator_channel import CoordinatorChannel
from ..errors import ErrorCode, KafkaError, error_for
from ..net.traffic import RequestCounters
from ..settings.group import GroupConfig
from .committer import CurrentMember
from .events import Event, RequestFailed
from .requests import is_refused, problem_of_unlisted
from .topic_watcher import Spawn

logger = logging.getLogger(__name__)

LEAVE_TIMEOUT = 2.0
"""Seconds that a closing member waits for the answer to its request to leave, and earlier for a pending JoinGroup.
"""

REFRESH_TIMEOUT = 5.0
"""Seconds for a refresh of metadata that lacks assigned partitions."""

_REGULAR = (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.REBALANCE_IN_PROGRESS)
"""Error codes that are normal steps of a rebalance, and not failures that an outage should count."""


class MemberRequests:
    """Runs the request of a member as a child task, and reports failures. Owner: the ``MemberRunner``.

    ``post`` sends an event to the member, ``on_error`` gets errors that are retried.
    """

    def __init__(
        self,
        client: Client,
        config: GroupConfig,
        current: CurrentMember,
        *,
        spawn: Spawn,
        post: Callable[[Event], None],
        on_error: Callable[[KafkaError], None],
    ) -> None:
        self.channel: CoordinatorChannel = CoordinatorChannel(client, config.group_id)
        self.place: str = f"group {config.group_id}"
        """The name under which failed requests are counted as an outage."""
        self.heartbeats: RequestCounters = RequestCounters()
        self.thread_heartbeats: int = 0
        """The answered heartbeats that the heartbeat thread has sent, while the event loop was blocked."""
        self._access = f"access to group {config.group_id}"  # the same for refusals
        self._client = client
        self._config = config
        self._current = current  # for its name in the log
        self._spawn = spawn
        self._post = post
        self._on_error = on_error
        self._request: ChildScope | None = None

    def start(self, action: Any, perform: Callable[[Any], Awaitable[Event]]) -> None:
        """Perform this action and post its outcome. If the action fails, this is ``RequestFailed`` with its attempt.

        Cancels the previous action, which then posts nothing. The member would drop its outcome anyway.
        """
        if self._request is not None:
            self._request.cancel()
        self._request = self._spawn(self._run, action, perform, name=type(action).__name__)

    @property
    def are_failing(self) -> bool:
        """Whether the coordinator is not found or does not answer, so that an outage says why the member waits."""
        return self._client.outages.is_ongoing(self.place) or self._client.lacks_coordinator(self._config.group_id)

    async def _run(self, action: Any, perform: Callable[[Any], Awaitable[Event]]) -> None:
        try:
            event = await perform(action)
        except KafkaError as error:
            self.report(error)
            event = RequestFailed(action.attempt, error, is_momentary(error))
        self._post(event)

    async def leave(self, send: Callable[[], Awaitable[object]]) -> None:
        """Send the request that leaves, and wait for its answer briefly."""
        with anyio.move_on_after(LEAVE_TIMEOUT) as leaving:
            await send()
        if leaving.cancelled_caught:
            logger.warning(
                "%r got no answer within %g s when it left; the coordinator evicts it when its session times out",
                self._current.member,
                LEAVE_TIMEOUT,
            )

    async def problem_after_refresh(self, topics: Mapping[str, Sequence[int]]) -> str | None:
        """Call ``problem_of_unlisted``, after a refresh of metadata if needed. None if the refresh fails."""
        if problem_of_unlisted(topics, self._client.view) is None:
            return None
        try:
            # A member of the classic protocol sends no heartbeats meanwhile.
            await self._client.refresh(timeout=min(REFRESH_TIMEOUT, self._config.session_timeout / 3))
        except KafkaError:
            return None  # the partitions may be new
        return problem_of_unlisted(topics, self._client.view)

    def record(self, code: ErrorCode, node_id: int, api: str) -> None:
        """Record the top-level error code of an answer."""
        self.channel.record([code], node_id)
        if code is ErrorCode.NONE and self._client.outages:
            what = "%r: the coordinator accepts the member"
            self._client.outages.recovered(logger, self._access, what, self._current.member)
        if code in _REGULAR:
            return
        error = error_for(code, f"{api} of group {self._config.group_id!r}")
        # The member reports a refusal itself, because it knows what the request has asked for.
        if not is_refused(error):
            self.report(error)

    def report(self, error: KafkaError) -> None:
        """Log an error that is retried."""
        outages, group, member = self._client.outages, self._config.group_id, self._current.member
        if is_refused(error):
            # In an outage of its own, because an operator has to act, and a rebalance begins many outages.
            what = "%r is refused, and tries again: %s"
            outages.report_refusal(logger, self._access, error, what, member, error)
        else:
            # INFO, not WARNING: errors are normal while a group rebalances.
            problem = f"requests of group {group!r} to its coordinator fail: {error}"
            outages.report(logger, self.place, error, "%r: %s", member, error, level=logging.INFO, problem=problem)
        self._on_error(error)
