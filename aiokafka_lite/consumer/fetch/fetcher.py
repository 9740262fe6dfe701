"""One broker's fetcher: requests all wanted data from that broker, one request at a time.

Rules of this file:

1. The fetcher waits for events only: drained buffers, a changed assignment or metadata, the end of a backoff. If there
   is nothing to fetch, it sends nothing. If there is nothing to read, it has one long poll at the broker at a time.
2. ``_wake`` is cleared before the plan is made, and nothing is awaited until the plan is complete: no event is missed.
3. Each request and its answer pass through the fetch session: ``next`` before it, then exactly one of ``answered`` and
   ``lost``.
4. No failure is retried at once. An empty answer that comes too early counts as a failure. Otherwise a broken broker
   would be asked in a busy loop.
5. A request that the broker answers only when new data comes delays every later request on this connection. So while
   some buffers are full, such a request is held back for ``SHORT_WAIT``. A quick reader empties its buffers in that
   time, and the request then asks for those partitions as well.
6. The fetcher ends when no partition is assigned to its broker, and then ends the session: brokers keep a limited
   number.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

import anyio

from ...aio.light_event import LightEvent
from ...aio.retry import Backoff, is_momentary
from ...cluster.client import Client
from ...errors import NO_ERROR, ErrorCode, KafkaError, error_for
from ...net.connection import Purpose
from ...net.traffic import RequestCounters
from ...protocol.framing import FrameTooLarge
from ...protocol.messages import FetchRequest, OffsetForLeaderEpochRequest
from ...settings.consumer import ConsumerConfig
from ..partition import AssignedPartition
from ..subscription import Subscription
from .answers import LOGGED_ATTEMPTS, FetchAnswers
from .plan import FetchPlan, FetchPlanner
from .request import end_session_request, fetch_request
from .session import NO_SESSION
from .truncation import TruncationCheck, by_leader, checks_of, epochs_request

logger = logging.getLogger(__name__)

SHORT_WAIT = 0.01
"""Seconds for which a request is held back if it leaves out partitions with full buffers (rule 5). The broker may then
hold the request for the same time at first, see ``_max_wait``."""

SESSION_CLOSE_TIMEOUT = 0.3
"""Seconds for the request that ends a fetch session. Without it, the broker evicts the session later."""


class BrokerFetcher:
    """Fetches from one broker until no partition is assigned to it. Owner: ``Fetching``, which runs it as a task."""

    def __init__(
        self,
        node_id: int,
        client: Client,
        subscription: Subscription,
        config: ConsumerConfig,
        counters: RequestCounters,
        *,
        on_lost_position: Callable[[], None],
        on_source_change: Callable[[Iterable[AssignedPartition]], None],
    ) -> None:
        self.node_id = node_id
        self._client = client
        self._config = config
        self._counters = counters
        self._timeout = client.config.request_timeout + config.fetch_max_wait
        self._wake = LightEvent()
        self.planner: FetchPlanner = FetchPlanner(node_id, config.fetch_max_bytes, self._wake.set)
        self._session = self.planner.session
        self._answers = FetchAnswers(
            node_id,
            client,
            subscription,
            self.planner,
            config,
            on_lost_position=on_lost_position,
            on_source_change=on_source_change,
        )
        self._place = f"fetching from broker {node_id}"
        self._closing = False
        self._answered_at = 0.0
        self._backoff = client.retry_backoff()
        self._refused_sessions = 0  # ends of sessions in a row
        self._short_waits = Backoff(SHORT_WAIT, max(config.fetch_max_wait, SHORT_WAIT), jitter=0.0)

    def __repr__(self) -> str:
        return f"<BrokerFetcher node={self.node_id} session={self._session.session_id}/{self._session.epoch}>"

    def wake(self) -> None:
        """Wake the task: it checks again whether to fetch."""
        self._wake.set()

    async def run(self) -> None:
        """Fetch until no partition is assigned to this broker. Raises an error if a retry cannot help."""
        loop = asyncio.get_running_loop()
        while True:
            self._wake.clear()
            now = loop.time()
            # The leader is asked at intervals whether this follower is still the best replica.
            expired = self.planner.expired_followers(now)
            if expired:
                self._answers.leave_follower(expired)
            plan = self.planner.plan(self._client.view, now)
            if self._closing:
                return
            if plan.is_partial and not plan.targets:
                await asyncio.sleep(0)  # the rest of the plan may have something to fetch
            elif not plan.count:
                if self._session.session_id == NO_SESSION:
                    self._client.outages.forget(self._place)
                    return
                await self._end_session()  # the plan is made again, because partitions may have been assigned meanwhile
            # Rule 1: an event, or the end of a backoff, wakes the fetcher.
            elif not plan.targets:
                await self._sleep_until(plan.retry_at)
            # The wait counts from the last answer, so that wake-ups do not make it longer.
            elif plan.may_wait and now < self._answered_at + SHORT_WAIT:
                await self._sleep_until(self._answered_at + SHORT_WAIT)
            else:
                await self._fetch(plan)

    async def _sleep_until(self, time: float | None) -> None:
        with anyio.CancelScope() as scope:
            if time is not None:
                scope.deadline = time
            await self._wake.wait()

    async def _fetch(self, plan: FetchPlan) -> None:
        assert plan.targets, "if there is nothing to fetch, nothing is sent (rule 1)"
        loop = asyncio.get_running_loop()
        max_wait = self._max_wait(plan)
        began = loop.time()
        try:
            connection = await self._client.broker(self.node_id).connection(Purpose.FETCH)
            compares = connection.versions.supports(FetchRequest.DIVERGING_EPOCHS)
            # Such a broker does not compare the logs in Fetch, so another request checks them first.
            if not compares and connection.versions.supports(OffsetForLeaderEpochRequest.FOR_CONSUMERS):
                checks = checks_of(self.planner, self._client.view)
                if checks:
                    await self._check_logs(checks)
                    return
            session_request, rack = self._session.next(), self._client.config.client_rack
            request = fetch_request(
                session_request, plan, self._config, max_wait=max_wait, rack=rack, with_epochs=compares
            )
            # A topic without an id can only be requested by its name.
            at_most = FetchRequest.TOPIC_IDS.before if plan.by_name else None
            sent_at = loop.time()
            response = await connection.send(request, timeout=self._timeout, at_most=at_most)
        except KafkaError as error:
            self._counters.failures += 1
            # Rule 3: without an answer, it is not known what the broker has in its session.
            self._session.lost()
            if not is_momentary(error):
                raise
            await self._recover(error)
            return
        self._answered_at = loop.time()
        self._counters.succeeded(sent_at, self._answered_at)
        code = ErrorCode.of(response.error_code)
        self._session.answered(response.session_id, code)
        if code is not NO_ERROR:
            await self._begin_session_again(code)
            return
        self._refused_sessions = 0
        if self._client.outages:
            self._client.outages.recovered(logger, self._place, "fetched from broker %s again", self.node_id)
        if await self._answers.apply(plan, response):
            self._backoff.reset()
            self._short_waits.reset()
        elif loop.time() - began < max_wait / 2:
            await asyncio.sleep(self._backoff.next())  # an empty answer that came too early
        else:
            self._backoff.reset()

    async def _begin_session_again(self, code: ErrorCode) -> None:
        """Back off after an answer that ends the session. One such answer is normal; several in a row are an outage."""
        logger.debug("broker %s ended the fetch session: %s", self.node_id, code.name)
        self._refused_sessions += 1
        if self._refused_sessions >= LOGGED_ATTEMPTS:
            error = error_for(code, f"fetching from broker {self.node_id}")
            what = "broker %s answers each fetch with %s; retrying"
            problem = f"fetching from broker {self.node_id} fails: {error}"
            self._client.outages.report(
                logger, self._place, error, what, self.node_id, code.name, problem=problem, is_partial=True
            )
        await asyncio.sleep(self._backoff.next())

    async def _recover(self, error: KafkaError) -> None:
        """Handle a failed request: leave preferred followers, refresh metadata, and back off."""
        what = "fetching from broker %s failed; retrying: %s"
        problem = f"fetching from broker {self.node_id} fails: {error}"
        self._client.outages.report(
            logger, self._place, error, what, self.node_id, error, problem=problem, is_partial=True
        )
        partitions = self.planner.wanted()
        # A follower that fails must not keep its partitions, because the leader may be healthy (KIP-392).
        self._answers.leave_follower(partitions)
        self._client.request_refresh()
        if isinstance(error.__cause__, FrameTooLarge):
            self._answers.fail_too_large(partitions)
        await asyncio.sleep(self._backoff.next())

    def _max_wait(self, plan: FetchPlan) -> float:
        """Return how long the broker may wait for data, in seconds.

        While the broker waits, no other request can be sent on this connection. So when partitions are left out because
        their buffers are full, the wait begins short and doubles. A quick reader then does not wait for its next data
        behind an idle partition, and a slow reader does not cause many requests.
        """
        # The next request follows at once, because it asks for the rest of the partitions.
        if plan.is_partial:
            return 0.0
        longest = self._config.fetch_max_wait
        return min(longest, self._short_waits.next()) if plan.has_full_buffers else longest

    async def _check_logs(self, checks: Iterable[TruncationCheck]) -> None:
        """Ask the leaders for a truncation check. These partitions are not fetched before the leaders answer."""
        for node_id, share in by_leader(checks).items():
            response = await self._client.send(
                epochs_request(share.values()),
                node=node_id,
                purpose=Purpose.FETCH,
                timeout=self._timeout,
                retry=False,
            )
            self._answers.apply_epochs(share, response)

    async def close(self) -> None:
        """Send no more fetches and end the session, within ``SESSION_CLOSE_TIMEOUT`` seconds. Never raises."""
        # Set first, so that ``run`` sends no fetch in the session that is ended here.
        self._closing = True
        self.wake()
        await self._end_session()

    async def _end_session(self) -> None:
        """Ask the broker to drop the session. Fetches may wait in a long poll, so this uses another connection."""
        session_id = self._session.session_id
        # The session ends here before the request, so that no fetch uses it.
        self._session.end()
        if session_id == NO_SESSION:
            return
        request = end_session_request(session_id, self._config)
        with anyio.move_on_after(SESSION_CLOSE_TIMEOUT):
            try:
                await self._client.send(
                    request, node=self.node_id, purpose=Purpose.OTHER, timeout=SESSION_CLOSE_TIMEOUT, retry=False
                )
            except KafkaError as error:
                logger.debug("could not close fetch session %s of broker %s: %s", session_id, self.node_id, error)
