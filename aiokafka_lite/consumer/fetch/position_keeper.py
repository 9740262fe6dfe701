"""The task that finds the offset of partitions without one, and asks for metadata of partitions without a leader.

``plan_lookups`` decides which offsets to look up. A separate child task asks each leader, so that an unreachable broker
delays only its own partitions.

Rules of this file:

Rule 1: A lookup begins (``begin_lookup``) before its task runs, so that the next plan does not look up the same offset.
Rule 2: An answer counts only if the position still has the version of the request. So a seek has priority.
Rule 3: No error is repeated at once: the partition backs off, or its time without metadata starts again. Otherwise a
  program that continues to read would cause requests without a pause.
Rule 4: A partition that was never listed fails as soon as newer metadata confirms that its topic lacks it. Any other
  missing partition fails after ``api_timeout``, because brokers with outdated metadata may omit it for a while.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

import anyio

from ...aio.light_event import LightEvent
from ...aio.retry import is_momentary, is_refusal
from ...arguments import plural
from ...cluster.client import Client
from ...cluster.metadata import ClusterView, TopicView
from ...errors import ErrorCode, KafkaError, NoOffsetForPartition, OffsetOutOfRange, error_for
from ...net.connection import Purpose
from ...settings.consumer import ConsumerConfig
from ...types import TopicPartition
from ..offsets import (
    EARLIEST,
    LATEST,
    LOOKUPS_PER_REQUEST,
    OffsetAndTimestamp,
    is_confirmed,
    lookup_request,
    read_lookup,
)
from ..partition import AssignedPartition
from ..position import PauseReason, PositionState, ResetStrategy
from ..subscription import Subscription
from .answers import LOGGED_ATTEMPTS
from .lookup_plan import plan_lookups
from .slices import SLICE

logger = logging.getLogger(__name__)


class _Lookup(NamedTuple):
    """One lookup of an offset in flight. The user may change position and ``reset`` before the answer comes."""

    assigned: AssignedPartition
    version: int
    reset: ResetStrategy


class PositionKeeper:
    """Finds an offset for every assigned partition. Owner: ``Fetching``, which runs ``run`` as a task.

    ``on_found`` is called when partitions may be fetched that could not be fetched before.
    """

    def __init__(
        self,
        client: Client,
        subscription: Subscription,
        config: ConsumerConfig,
        spawn: Callable[..., object],
        *,
        on_found: Callable[[], None],
    ) -> None:
        self._client = client
        self._subscription = subscription
        self._config = config
        self._spawn = spawn
        self._on_found = on_found
        self._wake = LightEvent()
        self._retry_backoff = client.retry_backoff()
        # When to retry, by the number of failures. All partitions of one answer share the time: with random pauses, a
        # thousand partitions would cause a thousand requests. Cleared before the failures of each answer, which get new
        # times.
        self._retry_at: dict[int, float] = {}
        self._refresh_backoff = client.retry_backoff()
        self._refresh_at = 0.0

    def wake(self) -> None:
        """Wake the task: a partition may have lost its offset, or metadata may have changed."""
        self._wake.set()

    async def run(self) -> None:
        """Look up missing offsets until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            # Cleared before the plan is made, so that an offset that is lost meanwhile makes another plan.
            self._wake.clear()
            now = loop.time()
            next_check = await self._pass(now)
            with anyio.CancelScope() as scope:
                if next_check is not None:
                    scope.deadline = next_check
                await self._wake.wait()

    async def _pass(self, now: float) -> float | None:
        """Plan all partitions, in slices between which other tasks run. Returns the loop's time of the next check."""
        by_node: dict[int, list[_Lookup]] = {}
        leaderless: list[AssignedPartition] = []
        retry_at: float | None = None
        partitions = list(self._subscription)
        for start in range(0, len(partitions), SLICE):
            if start:
                await asyncio.sleep(0)
            present = list(filter(self._subscription.holds, partitions[start : start + SLICE]))
            plan = plan_lookups(present, self._client.view, now)
            # If a partition loses its leader again later, its time without a leader starts again.
            missing = set(plan.leaderless)
            for assigned in present:
                if assigned not in missing:
                    assigned.unknown_since = None
                    assigned.was_listed = True
            for node_id, planned in plan.by_node.items():
                # Begun here and not in the task, so that the next plan does not look the same offsets up.
                lookups = by_node.setdefault(node_id, [])
                for assigned in planned:
                    position = assigned.position
                    lookups.append(_Lookup(assigned, position.begin_lookup(), position.reset))
            leaderless += plan.leaderless
            retry_at = _earlier(retry_at, plan.retry_at)
        for node_id, lookups in by_node.items():
            self._spawn(self._look_up, node_id, lookups, name=f"look up offsets at broker {node_id}")
        return _earlier(retry_at, await self._check_leaderless(leaderless, now))

    # Offsets.

    async def _look_up(self, node_id: int, lookups: Sequence[_Lookup]) -> None:
        """Ask one leader for the offsets of its partitions, some thousands at a time."""
        outages, place = self._client.outages, place_of_lookups(node_id)
        for first in range(0, len(lookups), LOOKUPS_PER_REQUEST):
            try:
                await self._look_up_part(node_id, lookups[first : first + LOOKUPS_PER_REQUEST])
            except KafkaError as error:
                if not is_momentary(error):
                    raise
                outages.report(
                    logger, place, error, "looking up offsets at broker %s failed; retrying: %s", node_id, error
                )
                self._retry_at.clear()
                # The other parts fail as well. Each would wait for a timeout of its own if the broker does not answer.
                for assigned, version, _ in lookups[first:]:
                    self._retry(assigned, version, str(error))
                break
        else:
            outages.recovered(logger, place, "looked up offsets at broker %s", node_id)
        # Called once after all parts, so that fetchers ask for all partitions in one request.
        self._on_found()
        self._subscription.observer.on_located()
        self.wake()

    async def _look_up_part(self, node_id: int, lookups: Sequence[_Lookup]) -> None:
        """Look up offsets with one request for each end that is needed.

        If there is no policy, both ends are looked up for the text of the error. ``by_duration`` needs the end as well,
        for a partition whose records are all older.
        """
        low = {
            lookup.assigned.partition: self._timestamp_of(lookup.reset)
            for lookup in lookups
            if lookup.reset is not ResetStrategy.LATEST
        }
        high = {lookup.assigned.partition: LATEST for lookup in lookups if lookup.reset is not ResetStrategy.EARLIEST}
        # Two requests, because ListOffsets names one time for each partition.
        beginnings, low_errors = await self._ask(node_id, low)
        ends, high_errors = await self._ask(node_id, high)
        errors = {**low_errors, **high_errors}
        self._retry_at.clear()
        for assigned, version, reset in lookups:
            partition = assigned.partition
            if partition in errors:
                self._refused(assigned, version, errors[partition])
            elif reset is ResetStrategy.NONE:
                self._no_policy(assigned, version, beginnings[partition], ends[partition])
            else:
                beginning = beginnings.get(partition)
                self._found(
                    assigned, version, ends[partition] if beginning is None and partition in ends else beginning
                )

    def _timestamp_of(self, reset: ResetStrategy) -> int:
        """Return the lookup for the lower end: a time in milliseconds, or EARLIEST."""
        duration = self._config.reset_duration
        if reset is not ResetStrategy.BY_DURATION or duration is None:
            return EARLIEST
        return max(0, round((self._client.runtime.clock() - duration) * 1000))

    async def _ask(
        self, node_id: int, timestamps: dict[TopicPartition, int]
    ) -> tuple[dict[TopicPartition, OffsetAndTimestamp | None], dict[TopicPartition, ErrorCode]]:
        if not timestamps:
            return {}, {}
        request = lookup_request(self._client.view, timestamps, self._config.isolation)
        response = await self._client.send(
            request, node=node_id, purpose=Purpose.OTHER, timeout=self._client.config.request_timeout, retry=False
        )
        answer = read_lookup(timestamps, response)
        return answer.offsets, answer.errors

    def _found(self, assigned: AssignedPartition, version: int, result: OffsetAndTimestamp | None) -> None:
        offset, epoch = (0, None) if result is None else (result.offset, result.leader_epoch)
        position, partition = assigned.position, assigned.partition
        if self._client.outages:
            self._client.outages.recovered(logger, str(partition), "looked up the offset of %s", partition)
        # Read first, because ``end_lookup`` clears them.
        refused, reason = position.out_of_range, position.reset_reason
        if assigned.end_lookup(version, offset, epoch) and refused is not None:
            logger.warning("reset %s from offset %s to %s (%s)", partition, refused, offset, position.reset.value)
            self._subscription.observer.on_reset(partition, refused, offset, reason)

    def _retry(self, assigned: AssignedPartition, version: int, error: str) -> bool:
        """Handle a failed lookup. Returns False if the position has changed since the request."""
        if not assigned.position.fail_lookup(version, error):
            return False
        self._back_off(assigned)
        self._client.request_refresh()
        return True

    def _refused(self, assigned: AssignedPartition, version: int, code: ErrorCode) -> None:
        error = f"its leader answered {code.name} ({code.description})"
        if code.retriable or code is ErrorCode.UNKNOWN_SERVER_ERROR:  # Java's consumer retries the second code too
            if self._retry(assigned, version, error) and assigned.attempts >= LOGGED_ATTEMPTS:
                partition = assigned.partition
                self._client.outages.report(
                    logger,
                    str(partition),
                    error_for(code, f"looking up the offset of {partition}", at=partition),
                    "looking up the offset of %s failed; retrying: %s",
                    partition,
                    error,
                )
        elif assigned.position.fail_lookup(version, error):
            self._back_off(assigned)
            partition = assigned.partition
            self._fail(assigned, error_for(code, f"looking up the offset of {partition}", at=partition))

    def _no_policy(
        self,
        assigned: AssignedPartition,
        version: int,
        first: OffsetAndTimestamp | None,
        last: OffsetAndTimestamp | None,
    ) -> None:
        if not assigned.position.fail_lookup(version):
            return
        self._back_off(assigned)
        refused = assigned.position.out_of_range
        what = "has no position" if refused is None else f"has no offset {refused}"
        text = (
            f"{assigned.partition} {what}, and auto_offset_reset is none; it has offsets "
            f"{first.offset if first else 0} up to {last.offset if last else 0}: seek to one of them"
        )
        topic, partition = assigned.partition
        kind = NoOffsetForPartition if refused is None else OffsetOutOfRange
        self._fail(
            assigned, kind(ErrorCode.OFFSET_OUT_OF_RANGE, text, topic=topic, partition=partition, offset=refused)
        )

    # Leaders.

    async def _check_leaderless(self, leaderless: Sequence[AssignedPartition], now: float) -> float | None:
        """Ask for metadata until every partition has a leader; fail the partitions that do not exist.

        Returns the loop's time of the next check.
        """
        if not leaderless:
            self._refresh_backoff.reset()
            return None
        next_check: float | None = None
        self._retry_at.clear()
        for number, assigned in enumerate(leaderless, 1):
            if number % SLICE == 0:
                await asyncio.sleep(0)
            if self._subscription.holds(assigned):  # an earlier check may have dropped the topic
                next_check = _earlier(next_check, self._check_existence(assigned, now))
        if now >= self._refresh_at:
            self._client.request_refresh()
            self._refresh_at = now + self._refresh_backoff.next()
        return _earlier(next_check, self._refresh_at)

    def _check_existence(self, assigned: AssignedPartition, now: float) -> float | None:
        """Fail a partition that metadata refuses or lacks. Returns the time of the next check.

        A topic or partition may be missing in metadata for ``api_timeout``. If the topic is listed, and this partition
        never was, only a short time is allowed.
        """
        partition, timeout = assigned.partition, self._client.config.api_timeout
        topic = self._client.view.topics.get(partition.topic)
        if topic is not None and topic.is_usable and topic.partition(partition.partition) is not None:
            assigned.unknown_since = None  # the partition exists, and will have a leader again
            assigned.was_listed = True
            return None
        # No read has raised the last error yet.
        if assigned.failure is not None:
            return None
        if assigned.unknown_since is None:
            assigned.unknown_since = now
        code = ErrorCode.NONE if topic is None else topic.error
        if code is not ErrorCode.NONE and not code.retriable:
            # The error returns with each read, so the backoff limits its rate.
            if assigned.retry_at <= now:
                self._back_off(assigned)
                self._fail(assigned, error_for(code, f"reading {partition}", at=partition))
            return assigned.retry_at
        deadline = assigned.unknown_since + timeout
        if topic is not None and _lacks(topic, assigned, assigned.unknown_since, self._client.view):
            count = plural(len(topic.partitions), "partition")
            self._fail_unknown(assigned, f"topic {partition.topic!r} has {count}; there is no {partition}")
        elif now >= deadline:
            if self._drop_deleted(partition.topic):
                return None
            self._fail_unknown(assigned, f"no broker has listed {partition} for {timeout:g} s")
        return deadline

    def _fail_unknown(self, assigned: AssignedPartition, why: str) -> None:
        assigned.unknown_since = None
        self._fail(assigned, error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, reason=why, at=assigned.partition))

    def _drop_deleted(self, name: str) -> bool:
        """Continue without a deleted topic, if other whole topics are read. Returns False if no other topic is read."""
        subscription = self._subscription
        if name not in subscription.whole_topics or not subscription.topics - {name}:
            return False
        timeout = self._client.config.api_timeout
        logger.warning("no broker has listed topic %r for %g s; reading continues with the other topics", name, timeout)
        subscription.remove([partition for partition in subscription.partitions if partition.topic == name])
        return True

    def _fail(self, assigned: AssignedPartition, error: KafkaError) -> None:
        partition = assigned.partition
        if is_refusal(error) and self._client.outages.failed(str(partition), error):
            logger.warning("%s is refused; retrying: %s", partition, error)
        if not self._subscription.is_raised(partition, error):
            return
        assigned.fail(error)
        self._subscription.update_ready(assigned)
        self._subscription.observer.on_located()

    def _back_off(self, assigned: AssignedPartition) -> None:
        failures = assigned.attempts
        if failures not in self._retry_at:
            self._retry_at[failures] = asyncio.get_running_loop().time() + self._retry_backoff.after(failures)
        assigned.back_off(self._retry_at[failures])


def _lacks(topic: TopicView, assigned: AssignedPartition, since: float, view: ClusterView) -> bool:
    """Return whether metadata confirms that the topic does not have a partition that was never listed."""
    return not assigned.was_listed and topic.is_usable and is_confirmed(view, since)


def place_of_lookups(node_id: int) -> str:
    """Return the name under which failed lookups at a broker are counted as an outage."""
    return f"looking up offsets at broker {node_id}"


def why_unknown(assigned: AssignedPartition, view: ClusterView) -> str:
    """Return the reason why the position of a partition is not known, for the text of an error."""
    position = assigned.position
    # While a partition is ASSIGNING, its position is looked up.
    if assigned.pause_reason and assigned.pause_reason is not PauseReason.ASSIGNING:
        return str(assigned.pause_reason.value)
    leader = view.leader_of(assigned.partition)
    if leader is None:
        return _why_leaderless(assigned.partition, view.topics.get(assigned.partition.topic))
    if position.state is PositionState.LOOKING_UP:
        before = "" if position.lookup_error is None else f"; the previous attempt failed: {position.lookup_error}"
        return f"its leader, broker {leader}, has not answered yet{before}"
    return position.lookup_error or "its leader has not been asked yet"


def _why_leaderless(partition: TopicPartition, topic: TopicView | None) -> str:
    if topic is None:
        return f"there is no metadata of topic {partition.topic!r} yet"
    if topic.error is not ErrorCode.NONE:
        return f"brokers answer {topic.error.name} ({topic.error.description}) for topic {partition.topic!r}"
    if topic.partition(partition.partition) is None:
        return (
            f"topic {partition.topic!r} has {plural(len(topic.partitions), 'partition')}, and this is not one of them"
        )
    return "it has no leader"


def _earlier(one: float | None, other: float | None) -> float | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)
