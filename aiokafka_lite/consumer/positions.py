"""The task that finds out where partitions without an offset begin, and who leads those without a leader.

It decides nothing that is not in ``plan_lookups``. Each leader is asked by a child of its own, so that a dead broker
delays only its own partitions.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ..aio.retry import Backoff
from ..cluster.client import Client
from ..cluster.metadata import ClusterView, TopicView
from ..config import ClientConfig, ConsumerConfig
from ..errors import ErrorCode, KafkaError, error_for
from ..net.connection import Purpose
from ..types import TopicPartition
from .offsets import EARLIEST, LATEST, OffsetAndTimestamp, is_passing, lookup_request, read_lookup
from .partition import OnOffsetReset, PartitionState, PositionState, Reset
from .subscription import Subscription, plan_lookups

logger = logging.getLogger(__name__)

Spawn = Callable[..., object]


class _Question(NamedTuple):
    """What was asked about a partition; by the time of the answer the user may have moved it and its ``reset``."""

    state: PartitionState
    version: int
    reset: Reset


class PositionKeeper:
    """Gives every assigned partition an offset. Owner: ``Fetching``, whose child ``run`` is.

    ``on_found`` is called when partitions may be fetched, ``on_ready`` when an error waits for the reader,
    ``report_reset`` when reading goes on elsewhere. ``wall_clock`` gives seconds since the epoch, which are what
    timestamps of records are compared with.
    """

    def __init__(
        self,
        *,
        client: Client,
        subscription: Subscription,
        client_config: ClientConfig,
        config: ConsumerConfig,
        spawn: Spawn,
        on_found: Callable[[], None],
        on_ready: Callable[[], None],
        report_reset: OnOffsetReset,
        wall_clock: Callable[[], float],
    ) -> None:
        self._client = client
        self._subscription = subscription
        self._client_config = client_config
        self._config = config
        self._spawn = spawn
        self._on_found = on_found
        self._on_ready = on_ready
        self._report_reset = report_reset
        self._wall_clock = wall_clock
        self._wake = asyncio.Event()
        self._retry_backoff = Backoff(client_config.retry_backoff, client_config.retry_backoff_max)
        self._refresh_backoff = Backoff(client_config.retry_backoff, client_config.retry_backoff_max)
        self._refresh_at = 0.0

    def wake(self) -> None:
        """A partition may have lost its offset, or metadata may have changed."""
        self._wake.set()

    async def run(self) -> None:
        """Look up what is missing, for ever."""
        loop = asyncio.get_running_loop()
        while True:
            self._wake.clear()
            now = loop.time()
            plan = plan_lookups(self._subscription, self._client.view, now)
            for node_id, states in plan.by_node.items():
                asked = [_Question(state, state.asked(), state.reset) for state in states]
                self._spawn(self._look_up, node_id, asked, name=f"look up offsets at broker {node_id}")
            deadlines = [plan.retry_at, self._attend(plan.leaderless, now)]
            deadline = min((each for each in deadlines if each is not None), default=None)
            try:
                async with asyncio.timeout_at(deadline):
                    await self._wake.wait()
            except TimeoutError:
                pass

    # ---- offsets

    async def _look_up(self, node_id: int, asked: Sequence[_Question]) -> None:
        """Ask one leader for the offsets of its partitions.

        Without a policy, both ends are asked for, to name them; by duration the end as well, for a partition in which
        nothing is that young.
        """
        low = {each.state.partition: self._low_of(each.reset) for each in asked if each.reset is not Reset.LATEST}
        high = {each.state.partition: LATEST for each in asked if each.reset is not Reset.EARLIEST}
        place = f"looking up offsets at broker {node_id}"
        try:
            beginnings, low_errors = await self._ask(node_id, low)
            ends, high_errors = await self._ask(node_id, high)
        except KafkaError as error:
            if not is_passing(error):
                raise
            level = logging.WARNING if self._client.outages.failed(place, error) else logging.DEBUG
            logger.log(level, "looking up offsets at broker %s failed, and is tried again: %s", node_id, error)
            for state, version, _ in asked:
                self._unanswered(state, version, error)
            self.wake()
            return
        spell = self._client.outages.over(place)
        if spell is not None:
            logger.warning("broker %s answers lookups of offsets again, after %s", node_id, spell)
        errors = {**low_errors, **high_errors}
        for state, version, reset in asked:
            partition = state.partition
            if partition in errors:
                self._refused(state, version, errors[partition])
            elif reset is Reset.NONE:
                self._no_policy(state, version, beginnings[partition], ends[partition])
            else:
                found = beginnings.get(partition)
                self._found(state, version, ends[partition] if found is None and partition in ends else found)
        self._on_found()
        self.wake()

    def _low_of(self, reset: Reset) -> int:
        duration = self._config.reset_duration
        if reset is not Reset.BY_DURATION or duration is None:
            return EARLIEST
        return max(0, round((self._wall_clock() - duration) * 1000))

    async def _ask(
        self, node_id: int, wanted: dict[TopicPartition, int]
    ) -> tuple[dict[TopicPartition, OffsetAndTimestamp | None], dict[TopicPartition, ErrorCode]]:
        if not wanted:
            return {}, {}
        request = lookup_request(self._client.view, wanted, self._config.isolation)
        response = await self._client.send(
            request, node=node_id, purpose=Purpose.OTHER, timeout=self._client_config.request_timeout, retry=False
        )
        answer = read_lookup(wanted, response)
        return answer.found, answer.errors

    def _found(self, state: PartitionState, version: int, found: OffsetAndTimestamp | None) -> None:
        offset = 0 if found is None else found.offset
        refused, reason = state.out_of_range, state.reset_reason
        if state.found(version, offset, None if found is None else found.leader_epoch) and refused is not None:
            logger.warning("%s: reset from offset %s to %s (%s)", state.partition, refused, offset, state.reset.value)
            self._report_reset(state.partition, refused, offset, reason)

    def _unanswered(self, state: PartitionState, version: int, error: KafkaError) -> None:
        if not state.not_found(version):
            return
        state.trouble = str(error)
        self._back_off(state)
        self._client.request_refresh()

    def _refused(self, state: PartitionState, version: int, code: ErrorCode) -> None:
        if not state.not_found(version):
            return
        state.trouble = f"its leader answered {code.name} ({code.description})"
        self._back_off(state)
        if code.retriable or code is ErrorCode.UNKNOWN_SERVER_ERROR:
            self._client.request_refresh()
        else:
            self._fail(state, error_for(code, f"looking up where {state.partition} begins"))

    def _no_policy(
        self, state: PartitionState, version: int, first: OffsetAndTimestamp | None, last: OffsetAndTimestamp | None
    ) -> None:
        if not state.not_found(version):
            return
        self._back_off(state)
        refused = state.out_of_range
        what = "has no position" if refused is None else f"has no offset {refused}"
        error = error_for(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{state.partition} {what}, and auto_offset_reset is none; it holds offsets "
            f"{first.offset if first else 0} up to {last.offset if last else 0}: seek to one of them",
        )
        self._fail(state, error)

    # ---- leaders

    def _attend(self, leaderless: Sequence[PartitionState], now: float) -> float | None:
        """Ask for metadata until every partition has a leader; tell the reader of those that do not exist.

        Returns when to look again.
        """
        missing = set(leaderless)
        for state in self._subscription:
            if state not in missing:
                state.unknown_since = None
        if not leaderless:
            self._refresh_backoff.reset()
            return None
        deadline: float | None = None
        for state in leaderless:
            deadline = _earlier(deadline, self._attend_one(state, now))
        if now >= self._refresh_at:
            self._client.request_refresh()
            self._refresh_at = now + self._refresh_backoff.next()
        return _earlier(deadline, self._refresh_at)

    def _attend_one(self, state: PartitionState, now: float) -> float | None:
        partition = state.partition
        topic = self._client.view.topics.get(partition.topic)
        if topic is not None and topic.is_usable and topic.partition(partition.partition) is not None:
            state.unknown_since = None  # it exists, and will have a leader again
            return None
        if state.failure is not None:
            return None
        if state.unknown_since is None:
            state.unknown_since = now
        code = ErrorCode.NONE if topic is None else topic.error
        hopeless = code is not ErrorCode.NONE and not code.retriable
        deadline = state.unknown_since + self._client_config.api_timeout
        if hopeless and state.retry_at <= now:
            self._back_off(state)
            self._fail(state, error_for(code, f"reading {partition}"))
        elif now >= deadline:
            state.unknown_since = None
            why = f"no broker has known {partition} for {self._client_config.api_timeout:g} s"
            self._fail(state, error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, why))
        return state.retry_at if hopeless else deadline

    def _fail(self, state: PartitionState, error: KafkaError) -> None:
        state.fail(error)
        self._subscription.update_ready(state)
        self._on_ready()

    def _back_off(self, state: PartitionState) -> None:
        state.back_off(asyncio.get_running_loop().time() + self._retry_backoff.after(state.attempts))


def why_unknown(state: PartitionState, view: ClusterView) -> str:
    """What keeps the position of a partition from being known, for the text of an error."""
    if state.hold:
        return state.hold.value
    leader = view.leader_of(state.partition)
    if leader is None:
        return _why_leaderless(state.partition, view.topics.get(state.partition.topic))
    if state.state is PositionState.LOOKING_UP:
        before = "" if state.trouble is None else f"; the time before: {state.trouble}"
        return f"its leader, broker {leader}, has not answered yet{before}"
    return state.trouble or "its leader has not been asked yet"


def _why_leaderless(partition: TopicPartition, topic: TopicView | None) -> str:
    if topic is None:
        return f"nothing is known of topic {partition.topic!r} yet"
    if topic.error is not ErrorCode.NONE:
        return f"brokers answer {topic.error.name} ({topic.error.description}) for topic {partition.topic!r}"
    if topic.partition(partition.partition) is None:
        return f"topic {partition.topic!r} has {len(topic.partitions)} partitions, and this is none of them"
    return "it has no leader"


def _earlier(one: float | None, other: float | None) -> float | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)
