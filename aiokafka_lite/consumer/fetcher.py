"""One broker's fetcher: asks, in one request at a time, for everything that is wanted of that broker.

It waits for events only: data drained, assignment or metadata changed, a backoff over. With nothing to do it costs
nothing, and with nothing to read no more than the broker's long poll.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum, auto

from ..aio.retry import Backoff
from ..cluster.client import Client
from ..cluster.metadata import ClusterView
from ..config import ClientConfig, ConsumerConfig
from ..errors import CorruptRecord, ErrorCode, KafkaError, ProtocolError, error_for
from ..net.connection import Connection, Purpose
from ..protocol.messages import (
    FetchRequest,
    FetchRequestForgottenTopic,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
    FetchResponsePartition,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochRequestPartition,
    OffsetForLeaderEpochRequestTopic,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderEpochResponsePartition,
)
from ..protocol.records import split_batches
from ..protocol.schema import ZERO_UUID
from ..types import IsolationLevel, TopicPartition
from .fetch_session import FINAL, NO_SESSION, FetchSession, SessionRequest
from .fetched import AbortedTransactions
from .offsets import CONSUMER, is_passing
from .partition import ANY_LEADER, OnOffsetReset, PartitionState, Reset, ResetReason
from .subscription import FetchKey, FetchPlan, FetchTarget, Subscription, plan_fetch

logger = logging.getLogger(__name__)

SHORT_WAIT = 0.01
"""Seconds; the first wait of a request that leaves out partitions which may soon want data. See ``_max_wait``."""


FIRST_WITH_EPOCHS = 12
"""The first version of Fetch in which the broker compares logs; older brokers are asked by ``_check_logs``."""

FIRST_FOR_READERS = 3
"""The first version of OffsetForLeaderEpoch for which the right to read is enough."""

GOODBYE = 0.3
"""Seconds that telling a broker of the end of a fetch session may take. It would find out by itself."""

LAST_BY_NAME = 12
"""The last version of Fetch that names topics; later ones have only their ids (KIP-516)."""


@dataclass(frozen=True, slots=True)
class Doubt:
    """A partition whose leader may not have what was read of it: ``leader`` is the one to ask, and its epoch."""

    state: PartitionState
    version: int
    leader: tuple[int, int]
    last_epoch: int


def doubts_of(plan: FetchPlan, view: ClusterView) -> list[Doubt]:
    """Partitions of a plan that were read under another leader than the one they have now (KIP-320).

    Where nothing was read yet, as after a seek, there is nothing to compare, so the leader of the moment will do. So it
    will where a leader has just given the offset: asking whether it has it could go round in a circle.
    """
    doubts: list[Doubt] = []
    for key, (state, version) in plan.states.items():
        target = plan.targets[key]
        node = view.leader_of(state.partition)
        leader = (-1 if node is None else node.node_id, target.current_leader_epoch)
        if target.last_fetched_epoch < 0 or state.checked_with == ANY_LEADER:
            state.checked_with = leader
        elif state.checked_with != leader and node is not None:
            doubts.append(Doubt(state, version, leader, target.last_fetched_epoch))
    return doubts


def epochs_request(doubts: Iterable[Doubt]) -> OffsetForLeaderEpochRequest:
    """Ask where the epochs end that were read last."""
    topics: dict[str, OffsetForLeaderEpochRequestTopic] = {}
    for doubt in doubts:
        name, number = doubt.state.partition
        topic = topics.setdefault(name, OffsetForLeaderEpochRequestTopic(topic=name, partitions=[]))
        topic.partitions.append(
            OffsetForLeaderEpochRequestPartition(
                partition=number, current_leader_epoch=doubt.leader[1], leader_epoch=doubt.last_epoch
            )
        )
    return OffsetForLeaderEpochRequest(replica_id=CONSUMER, topics=list(topics.values()))


class Verdict(Enum):
    """What a partition's error code in a fetch answer asks for."""

    DATA = auto()
    """None: there are records, or at least news of the high watermark."""
    REFRESH = auto()
    """The broker or the topic id is the wrong one: metadata has to be read again."""
    RETRY = auto()
    """It may be better the next time."""
    RESET = auto()
    """The offset is not there: the policy decides."""
    RAISE = auto()
    """The user has to know."""


def judge(code: ErrorCode) -> Verdict:
    """What to do about a partition's error code."""
    if code is ErrorCode.NONE:
        return Verdict.DATA
    if code is ErrorCode.OFFSET_OUT_OF_RANGE:
        return Verdict.RESET
    if code is ErrorCode.CORRUPT_MESSAGE:
        return Verdict.RAISE  # retriable for producers; on the broker's disk it does not heal
    if code.stale_metadata or code is ErrorCode.UNKNOWN_LEADER_EPOCH:
        return Verdict.REFRESH
    if code.retriable or code is ErrorCode.UNKNOWN_SERVER_ERROR:
        return Verdict.RETRY
    return Verdict.RAISE


def fetch_request(
    asked: SessionRequest[FetchKey, FetchTarget],
    plan: FetchPlan,
    config: ConsumerConfig,
    *,
    max_wait: float,
    rack: str = "",
    with_epochs: bool = True,
) -> FetchRequest:
    """The request for what the session says has to be told, ``with_epochs`` of what was fetched last if they fit in."""
    topics: dict[tuple[str, bytes], FetchRequestTopic] = {}
    for key, target in asked.send.items():
        topic = topics.get((key.topic, key.topic_id))
        if topic is None:
            topic = FetchRequestTopic(topic=key.topic, topic_id=key.topic_id, partitions=[])
            topics[key.topic, key.topic_id] = topic
        topic.partitions.append(
            FetchRequestPartition(
                partition=key.partition,
                current_leader_epoch=target.current_leader_epoch,
                fetch_offset=target.offset,
                last_fetched_epoch=target.last_fetched_epoch if with_epochs else -1,
                partition_max_bytes=target.max_bytes,
            )
        )
    forgotten: dict[tuple[str, bytes], FetchRequestForgottenTopic] = {}
    for key in asked.forget:
        gone = forgotten.get((key.topic, key.topic_id))
        if gone is None:
            gone = FetchRequestForgottenTopic(topic=key.topic, topic_id=key.topic_id, partitions=[])
            forgotten[key.topic, key.topic_id] = gone
        gone.partitions.append(key.partition)
    return FetchRequest(
        max_wait_ms=round(max_wait * 1000),
        min_bytes=config.fetch_min_bytes,
        max_bytes=plan.max_bytes,
        isolation_level=int(config.isolation),
        session_id=asked.session_id,
        session_epoch=asked.epoch,
        topics=list(topics.values()),
        forgotten_topics_data=list(forgotten.values()),
        rack_id=rack,
    )


class BrokerFetcher:
    """Fetches from one broker until nothing is assigned there any longer. Owner: ``Fetching``, whose child it is."""

    def __init__(
        self,
        node_id: int,
        *,
        client: Client,
        subscription: Subscription,
        client_config: ClientConfig,
        config: ConsumerConfig,
        on_ready: Callable[[], None],
        on_reset: Callable[[], None],
        on_move: Callable[[], None],
        settle: Callable[[], None],
        report_reset: OnOffsetReset,
    ) -> None:
        self.node_id = node_id
        self._client = client
        self._subscription = subscription
        self._config = config
        self._timeout = client_config.request_timeout + config.fetch_max_wait
        self._rack = client_config.client_rack
        self._on_ready = on_ready
        self._on_reset = on_reset
        self._on_move = on_move
        self._settle = settle
        self._report_reset = report_reset
        self._closing = False
        self._preferred_for = client_config.metadata_max_age
        self._session: FetchSession[FetchKey, FetchTarget] = FetchSession()
        self._wake = asyncio.Event()
        self._place = f"fetching from broker {node_id}"
        self._backoff = Backoff(client_config.retry_backoff, client_config.retry_backoff_max)
        self._patience = Backoff(SHORT_WAIT, max(config.fetch_max_wait, SHORT_WAIT), jitter=0.0)

    def __repr__(self) -> str:
        return f"<BrokerFetcher node={self.node_id} session={self._session.session_id}/{self._session.epoch}>"

    def wake(self) -> None:
        """Something has changed that may be a reason to fetch."""
        self._wake.set()

    async def run(self) -> None:
        """Fetch, and return when no partition is assigned to this broker. Raises what can never get better."""
        loop = asyncio.get_running_loop()
        while True:
            # Cleared before the plan is made, and nothing is awaited until the plan is: no event can be missed.
            self._wake.clear()
            now = loop.time()
            # The leader is asked from time to time whether it would still send us here.
            self._leave(state for state in self._subscription if now >= state.preferred_until)
            plan = plan_fetch(self._subscription, self._client.view, self.node_id, now, self._config.fetch_max_bytes)
            if self._closing:
                return
            if not plan.assigned:
                if self._session.session_id == NO_SESSION:
                    self._log_the_end("nothing is fetched from broker %s any longer, after %s")
                    return
                await self._end_session()  # and look again, as something may have been assigned meanwhile
            elif plan.targets:
                await self._fetch(plan)
            else:
                await self._sleep_until(plan.retry_at)

    def _log_the_end(self, message: str) -> None:
        spell = self._client.outages.over(self._place)
        if spell is not None:
            logger.warning(message, self.node_id, spell)

    async def _sleep_until(self, deadline: float | None) -> None:
        try:
            async with asyncio.timeout_at(deadline):
                await self._wake.wait()
        except TimeoutError:
            pass

    async def _fetch(self, plan: FetchPlan) -> None:
        """One request and its answer."""
        loop = asyncio.get_running_loop()
        max_wait = self._max_wait(plan)
        began = loop.time()
        try:
            connection = await self._client.broker(self.node_id).connection(Purpose.FETCH)
            compares = connection.versions.supports(FetchRequest, FIRST_WITH_EPOCHS)
            if not compares and connection.versions.supports(OffsetForLeaderEpochRequest, FIRST_FOR_READERS):
                doubts = doubts_of(plan, self._client.view)
                if doubts:
                    await self._check_logs(doubts)
                    return
            asked = self._session.next(plan.targets)
            response = await self._send(connection, asked, plan, max_wait, with_epochs=compares)
        except KafkaError as error:
            self._session.lost()
            if not is_passing(error):
                raise
            level = logging.WARNING if self._client.outages.failed(self._place, error) else logging.DEBUG
            logger.log(level, "fetching from broker %s failed, and is tried again: %s", self.node_id, error)
            self._leave([state for state, _ in plan.states.values()])
            self._client.request_refresh()
            await asyncio.sleep(self._backoff.next())
            return
        if self._client.outages:
            self._log_the_end("broker %s is fetched from again, after %s")
        code = ErrorCode.of(response.error_code)
        self._session.answered(response.session_id, code)
        if code is not ErrorCode.NONE:
            logger.debug("broker %s ended the fetch session: %s", self.node_id, code.name)
            await asyncio.sleep(self._backoff.next())
            return
        if self._apply(plan, response):
            self._backoff.reset()
            self._patience.reset()
        elif loop.time() - began < max_wait / 2:
            # Nothing, and sooner than it had to be: a broker that does so again and again must not be asked in a spin.
            await asyncio.sleep(self._backoff.next())
        else:
            self._backoff.reset()

    async def _send(
        self,
        connection: Connection,
        asked: SessionRequest[FetchKey, FetchTarget],
        plan: FetchPlan,
        max_wait: float,
        *,
        with_epochs: bool,
    ) -> FetchResponse:
        request = fetch_request(asked, plan, self._config, max_wait=max_wait, rack=self._rack, with_epochs=with_epochs)
        at_most = LAST_BY_NAME if plan.by_name else None
        return await connection.send(request, timeout=self._timeout, at_most=at_most)

    async def close(self) -> None:
        """Send no more fetches, and end the session. Takes ``GOODBYE`` seconds at most; never raises."""
        self._closing = True
        self.wake()
        await self._end_session()

    async def _end_session(self) -> None:
        """Let the broker forget what it remembers for this session; it has room for a limited number of them.

        Not on the connection that fetches: there it would have to wait for the long poll.
        """
        session_id = self._session.session_id
        self._session = FetchSession()
        if session_id == NO_SESSION:
            return
        goodbye = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=0,
            isolation_level=int(self._config.isolation),
            session_id=session_id,
            session_epoch=FINAL,
            topics=[],
            forgotten_topics_data=[],
        )
        try:
            async with asyncio.timeout(GOODBYE):
                await self._client.send(
                    goodbye, node=self.node_id, purpose=Purpose.OTHER, timeout=GOODBYE, retry=False
                )
        except (KafkaError, TimeoutError) as error:
            logger.debug("broker %s was not told of the end of session %s: %s", self.node_id, session_id, error)

    async def _check_logs(self, doubts: Iterable[Doubt]) -> None:
        """Ask the leaders of brokers that do not compare logs when they fetch whether what was read is in theirs.

        A follower does not know where epochs end, so its leader is asked. Nothing of these partitions is fetched until
        there is an answer; an error that passes is tried again after the usual growing pause.
        """
        by_leader: dict[int, dict[TopicPartition, Doubt]] = {}
        for doubt in doubts:
            by_leader.setdefault(doubt.leader[0], {})[doubt.state.partition] = doubt
        for node_id, share in by_leader.items():
            response = await self._client.send(
                epochs_request(share.values()),
                node=node_id,
                purpose=Purpose.FETCH,
                timeout=self._timeout,
                retry=False,
            )
            self._apply_epochs(share, response)

    def _apply_epochs(self, asked: dict[TopicPartition, Doubt], response: OffsetForLeaderEpochResponse) -> None:
        given = {
            TopicPartition(topic.topic, each.partition): each for topic in response.topics for each in topic.partitions
        }
        for partition, doubt in asked.items():
            state = doubt.state
            if state.version != doubt.version or not self._subscription.holds(state):
                continue  # the user has moved on
            answer = given.get(partition)
            if answer is None:
                self._back_off(state)
            else:
                self._apply_epoch(doubt, answer)
            self._subscription.update_ready(state)
        if self._subscription.ready:
            self._on_ready()

    def _apply_epoch(self, doubt: Doubt, given: OffsetForLeaderEpochResponsePartition) -> None:
        state = doubt.state
        code = ErrorCode.of(given.error_code)
        verdict = judge(code)
        if verdict is Verdict.RAISE:
            self._back_off(state)
            state.fail(error_for(given.error_code, f"asking whether the log of {state.partition} was cut off"))
        elif verdict is not Verdict.DATA:
            if verdict is Verdict.REFRESH:
                self._client.request_refresh()
            self._back_off(state)
        elif given.end_offset < 0:
            # None of the epochs that were read is in that log, so there is no offset to go back to.
            self._settle()
            offset = state.position
            logger.warning("the log of %s has no epoch up to %s, which was read", state.partition, doubt.last_epoch)
            state.seek_by(Reset.of(self._config), out_of_range=offset, reason=ResetReason.TRUNCATED)
            self._on_reset()
        elif given.end_offset < state.fetch_offset or 0 <= given.leader_epoch < doubt.last_epoch:
            self._truncated(state, given.end_offset)
        else:
            state.checked_with = doubt.leader

    def _max_wait(self, plan: FetchPlan) -> float:
        """How long the broker may wait for data, in seconds.

        While the broker waits, nothing else can be asked of it on this connection. So when partitions are left out
        because they still have data, the wait begins short and doubles: a quick reader is not kept waiting for a second
        helping by another partition that is idle, and a slow one does not make the requests many.
        """
        longest = self._config.fetch_max_wait
        return min(longest, self._patience.next()) if plan.holding else longest

    def _apply(self, plan: FetchPlan, response: FetchResponse) -> bool:
        """Hand each partition what came for it; False if nothing came for any, not even an error."""
        by_name = {(key.topic, key.partition): asked for key, asked in plan.states.items()}
        by_id = {(key.topic_id, key.partition): asked for key, asked in plan.states.items()}
        total = sum(len(each.records) for topic in response.responses for each in topic.partitions if each.records)
        anything = False
        for topic in response.responses:
            for given in topic.partitions:
                if topic.topic_id != ZERO_UUID:
                    asked = by_id.get((topic.topic_id, given.partition_index))
                else:
                    asked = by_name.get((topic.topic, given.partition_index))
                if asked is None:
                    continue
                state, version = asked
                moved = state.node_id != self.node_id  # it is fetched from another broker now
                if moved or state.version != version or not self._subscription.holds(state):
                    anything = True
                    continue  # too late: the user has moved on since the request was made
                anything = self._apply_partition(state, given, response, total) or anything
                self._subscription.update_ready(state)
        if self._subscription.ready:
            self._on_ready()
        return anything

    def _apply_partition(
        self, state: PartitionState, given: FetchResponsePartition, response: FetchResponse, total: int
    ) -> bool:
        code = ErrorCode.of(given.error_code)
        verdict = judge(code)
        if state.preferred == self.node_id and verdict is not Verdict.DATA:
            # What a follower refuses says nothing yet: it may lag behind, or be no replica any longer.
            self._leave([state])
            self._back_off(state)  # as the leader may send us back at once
            return True
        if verdict is Verdict.DATA:
            state.high_watermark = given.high_watermark if given.high_watermark >= 0 else None
            state.last_stable_offset = given.last_stable_offset if given.last_stable_offset >= 0 else None
            state.log_start_offset = given.log_start_offset if given.log_start_offset >= 0 else None
            if given.preferred_read_replica >= 0 and given.preferred_read_replica != self.node_id:
                state.prefer(given.preferred_read_replica, self._now() + self._preferred_for)
                self._on_move()
                return True
            if given.diverging_epoch.epoch >= 0:
                self._truncated(state, given.diverging_epoch.end_offset)
                return True
            return self._keep(state, given, total)
        if verdict is Verdict.REFRESH:
            logger.debug("%s: %s from broker %s", state.partition, code.name, self.node_id)
            leader = given.current_leader
            told = leader.leader_id >= 0 and self._client.update_leader(
                state.partition, leader.leader_id, leader.leader_epoch, response.node_endpoints
            )
            # Who leads now, by a higher epoch, is asked at once: after a pause it may be another one again, and so on.
            if not told:
                self._client.request_refresh()
                self._back_off(state)
        elif verdict is Verdict.RETRY:
            self._back_off(state)
        elif verdict is Verdict.RESET:
            self._out_of_range(state)
        else:
            self._back_off(state)
            if code is ErrorCode.CORRUPT_MESSAGE:
                state.fail_corrupt("the broker found its own log damaged there")
            else:
                state.fail(error_for(given.error_code, f"fetching {state.partition} at offset {state.fetch_offset}"))
        return True

    def _keep(self, state: PartitionState, given: FetchResponsePartition, total: int) -> bool:
        """Put a partition's records into its buffer; False if there were none."""
        data = given.records
        if not data:
            state.succeeded()
            return False
        self._subscription.answers += 1
        state.last_served = self._subscription.answers
        # A slice keeps the whole frame alive. One that is most of its frame may; a small one of a paused partition
        # would hold on to megabytes for as long as the pause lasts.
        try:
            batches = split_batches(data if 2 * len(data) >= total else bytes(data))
        except CorruptRecord as error:
            self._back_off(state)
            state.fail_corrupt(str(error))
            return True
        aborted = None
        if self._config.isolation is IsolationLevel.READ_COMMITTED:
            aborted = AbortedTransactions(given.aborted_transactions or ())
        fresh = state.add(batches, aborted)
        if not batches:
            self._ask_for_more(state, len(data))
        elif not fresh:
            repeated = ProtocolError(f"broker {self.node_id} sent only what is before offset {state.fetch_offset}")
            if self._client.outages.failed(f"fetching {state.partition}", repeated):
                logger.warning("%s: %s; not logged again", state.partition, repeated)
            self._back_off(state)
        return True

    def _ask_for_more(self, state: PartitionState, size: int) -> None:
        """Not one whole batch came: brokers too old to send the first batch whole need to be asked for more."""
        if state.fetch_size >= self._config.fetch_max_bytes and size >= state.fetch_size:
            self._back_off(state)
            state.fail_corrupt(f"a batch is larger than fetch_max_bytes={self._config.fetch_max_bytes}")
            return
        state.fetch_size = min(2 * state.fetch_size, max(self._config.fetch_max_bytes, state.fetch_size))

    def _out_of_range(self, state: PartitionState) -> None:
        offset = state.fetch_offset
        if state.has_data:
            self._back_off(state)  # what is there is read first; then this is asked again
            return
        logger.warning(
            "%s has no offset %s; auto_offset_reset=%s decides", state.partition, offset, self._config.auto_offset_reset
        )
        state.seek_by(Reset.of(self._config), out_of_range=offset)
        self._on_reset()

    def _truncated(self, state: PartitionState, end_offset: int) -> None:
        """Another log than the one that was read: records were lost in an unclean election (KIP-320)."""
        self._settle()
        offset, position = state.fetch_offset, state.position
        if position is None or end_offset < 0:
            return
        logger.warning(
            "the log of %s was cut off at offset %s; it was read up to %s", state.partition, end_offset, offset
        )
        if position <= end_offset:
            state.seek(position)  # only what was fetched ahead is gone
        elif Reset.of(self._config) is not Reset.NONE:
            state.seek(end_offset)
            self._report_reset(state.partition, position, end_offset, ResetReason.TRUNCATED)
        else:
            self._back_off(state)
            what = f"{state.partition} was cut off at offset {end_offset}, and was read up to {position}"
            state.fail(error_for(ErrorCode.OFFSET_OUT_OF_RANGE, f"{what}; seek to go on"))

    def _leave(self, states: Iterable[PartitionState]) -> None:
        """Fetch partitions that this broker was only preferred for from their leaders again."""
        moved = [state for state in states if state.preferred == self.node_id]
        for state in moved:
            state.preferred = None
        if moved:
            self._on_move()

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _back_off(self, state: PartitionState) -> None:
        state.back_off(self._now() + self._backoff.after(state.attempts))
