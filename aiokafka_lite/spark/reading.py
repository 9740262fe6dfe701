"""Fetches the ranges of one task, with the client's own fetchers, until each range is read to its end.

Rules of this file:

1. It runs on the worker loop, and imports neither Arrow nor Spark. ``take`` returns packed batches of the log; Spark's
   thread decodes them while the loop fetches the next ones.
2. A partition leaves the subscription as soon as its fetch position reaches the end of its range. Another fetch would
   wait for records that this task does not need.
3. A range may end at offsets without records, because compaction and transactions leave gaps. No fetch reports that, so
   after ``PROBE_INTERVAL`` without records ``_probe`` asks the leader.
4. A lost offset is an error or a warning, by ``fail_on_data_loss``. The position is never reset silently. The records
   of a range that the log still has are read, even after a loss.
5. The driver names the topic of a range by its id. The metadata of this client may be older than the task, and may have
   the id of a deleted topic. So a different id is looked up again before it counts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace

import anyio

from ..aio.component import Component
from ..aio.light_event import LightEvent
from ..aio.retry import is_retriable
from ..cluster.client import Client
from ..cluster.metadata import ClusterView
from ..consumer.buffer import FetchedBatch
from ..consumer.fetch.fetchers import Fetching
from ..consumer.offsets import EARLIEST, LATEST, list_offsets
from ..consumer.partition import AssignedPartition
from ..consumer.position import ResetReason, ResetStrategy
from ..consumer.subscription import Subscription, SubscriptionObserver
from ..errors import ErrorCode, KafkaError, KafkaTimeout, OffsetOutOfRange, UnknownTopic, error_for
from ..net.connection import Purpose
from ..protocol.messages import FetchRequest, FetchRequestPartition, FetchRequestTopic, FetchResponse
from ..protocol.schema import ZERO_UUID
from ..settings.checks import MIB
from ..settings.consumer import ConsumerConfig
from ..types import IsolationLevel, TopicPartition
from .offsets import Range, Task, TopicIds, recreated

logger = logging.getLogger(__name__)

PROBE_INTERVAL = 1.0
"""Seconds without records after which leaders are asked whether a range has further records."""

PROBE_TIMEOUT = 5.0
"""Seconds that a probe may take. Records that arrive meanwhile wait for it."""

STALE_METADATA = 2.0
"""Seconds that a broker may need until it knows a topic that the driver knows from another broker."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """Consecutive batches of one partition, each with the aborted transactions of its response.

    Only records of ``range`` are wanted. The first and the last batch may also have records outside of it.
    """

    range: Range
    batches: list[FetchedBatch]


class RangeReader(Component, SubscriptionObserver):
    """Reads several ranges, each of another partition. Owner: one Spark task; other tasks use the same client.

    ``config`` bounds the bytes per partition that are fetched and not taken yet. ``poll_timeout`` is in seconds.
    """

    def __init__(
        self, client: Client, config: ConsumerConfig, task: Task, *, fail_on_data_loss: bool, poll_timeout: float
    ) -> None:
        super().__init__()
        self._client = client
        self._config = config
        self._fail_on_data_loss = fail_on_data_loss
        self._poll_timeout = poll_timeout
        self._ranges: dict[TopicPartition, Range] = {range_.partition: range_ for range_ in task}
        self._refused = client.retry_backoff()
        self._warned: set[str] = set()
        self._complete: list[Fetched] = []  # the last batches of ranges that are read to their end
        self._ready = LightEvent()
        self._subscription = Subscription(ResetStrategy.NONE, config.max_partition_fetch_bytes, self)
        self._fetching: Fetching | None = None

    def __repr__(self) -> str:
        return f"<RangeReader {self.state.name} partitions={len(self._ranges)}>"

    # Lifetime.

    async def _on_start(self) -> None:
        for topic in {partition.topic for partition in self._ranges}:
            await self._wait_for(topic)
        await self._check_topic_ids()
        topics = {partition.topic for partition in self._ranges}
        self._client.add_topics(topics)
        self._service.start_child(self._watch, topics, name="RangeReader: metadata")
        self._subscription.assign(self._ranges)
        for state in self._subscription:
            state.seek(self._ranges[state.partition].start)
        self._fetching = Fetching(self._client, self._subscription, self._config, self._service.start_child)
        self._fetching.start()

    async def _wait_for(self, topic: str) -> None:
        """Wait until the topic is known. The records of a topic that does not exist any more are lost."""
        try:
            await self._client.topic(topic)
        except UnknownTopic as error:
            if self._fail_on_data_loss:
                raise
            self._lost(str(error))
            self._ranges = {partition: range_ for partition, range_ in self._ranges.items() if partition.topic != topic}

    async def _watch(self, topics: set[str]) -> None:
        """Follow changes of leaders until the reader is closed."""
        forget = self._client.on_view_change(self._view_changed)
        try:
            await anyio.sleep_forever()
        finally:
            forget()
            self._client.remove_topics(topics)

    def _view_changed(self, view: ClusterView) -> None:
        if self._fetching is not None:
            self._fetching.view_changed(view)

    async def _on_close(self) -> None:
        if self._fetching is not None:
            await self._fetching.close()

    # Records out.

    def on_ready(self) -> None:
        """Queue the fetched records, and unsubscribe a partition after the last fetch of its range."""
        is_complete = False
        for state in self._subscription.ready.values():
            range_ = self._ranges[state.partition]
            # Rule 2: everything of the range is fetched, so the partition leaves before its next fetch begins.
            if state.buffer.end >= range_.end and state.failure is None:
                self._complete.append(Fetched(range_, state.take_batches()))
                del self._ranges[state.partition]
                is_complete = True
        if is_complete:  # an assignment costs a step for each partition
            self._subscription.assign(self._ranges)
        self._ready.set()

    def _finish(self, partition: TopicPartition) -> None:
        del self._ranges[partition]
        self._subscription.assign(self._ranges)

    async def take(self) -> list[Fetched]:
        """Wait for a fetched batch, and return all that have arrived; an empty list at the end of all ranges.

        Raises OffsetOutOfRange for deleted records, KafkaTimeout if no record arrives within ``poll_timeout`` seconds,
        and any error that ended the fetching.
        """
        return await self._service.while_running(self._take())

    async def _take(self) -> list[Fetched]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._poll_timeout
        while True:
            self._ready.clear()
            await self._check_failures()
            fetched = self._complete
            self._complete = []
            for state in tuple(self._subscription.ready.values()):
                fetched.append(Fetched(self._ranges[state.partition], state.take_batches()))
                self._subscription.update_ready(state)
                state.wake_source()
            if fetched or not self._ranges:
                return fetched
            await self._wait_until(deadline)

    async def _wait_until(self, deadline: float) -> None:
        now = asyncio.get_running_loop().time()
        with anyio.move_on_after(min(deadline - now, PROBE_INTERVAL)):
            await self._ready.wait()
            return
        if now + PROBE_INTERVAL >= deadline:
            if await self._skip_truncated():
                return
            raise self._stalled()
        for partition in tuple(self._ranges):
            if partition in self._ranges:  # its last records may come while another partition is probed
                await self._probe(partition)

    def _stalled(self) -> KafkaTimeout:
        where = ", ".join(
            f"{state.partition} from offset {state.offset} to {self._ranges[state.partition].end}"
            + (f" ({state.position.lookup_error})" if state.position.lookup_error else "")
            for state in self._subscription
        )
        return KafkaTimeout(
            f"no records arrived within {self._poll_timeout:g} s (kafkaConsumer.pollTimeoutMs) for {where}; "
            "an end after the end of the log is never reached"
        )

    # Ranges whose end has no record.

    async def _probe(self, partition: TopicPartition) -> None:
        """Finish a range if the log has no further records of it (rule 3)."""
        state, range_ = self._subscription[partition], self._ranges[partition]
        leader = self._client.view.leader_of(partition)
        topic = self._client.view.topics.get(partition.topic)
        if leader is None or topic is None or state.buffer.has_data or state.failure:
            return
        offset = state.buffer.end
        request = _probe_request(partition, topic.topic_id, offset, self._config.isolation)
        try:
            answer = await self._client.send(
                request, node=leader.node_id, purpose=Purpose.OTHER, timeout=PROBE_TIMEOUT, retry=False
            )
        except KafkaError as error:
            if is_retriable(error):
                return  # the leader may have moved; the fetchers follow it, and the next probe repeats the request
            raise
        if state.buffer.end != offset or state.buffer.has_data or partition not in self._ranges:
            return  # records came meanwhile, or the range is finished
        if _has_no_more(answer, range_.end, self._config.isolation):
            self._finish(partition)
            self._ready.set()

    # Lost records.

    async def _check_topic_ids(self) -> None:
        """Compare topic ids with the driver's plan. Another topic of the same name means that records are lost."""
        planned = {
            range_.partition.topic: range_.topic_id for range_ in self._ranges.values() if range_.topic_id != ZERO_UUID
        }
        others = recreated(planned, self._known_ids(planned))
        loop, backoff = asyncio.get_running_loop(), self._client.retry_backoff()
        until = loop.time() + STALE_METADATA
        # Rule 5: a different id counts only when it stays different for longer than metadata may be stale.
        while others:
            await self._client.refresh(others)
            others = recreated(planned, self._known_ids(planned))
            if loop.time() >= until:
                break
            await anyio.sleep(backoff.next() if others else 0)
        for topic, what in others.items():
            self._lost(f"{what} after the query was planned")
            for range_ in tuple(self._ranges.values()):
                if range_.partition.topic != topic:
                    continue
                readable = _common(range_, await self._log_of(range_.partition))
                if readable is None:
                    del self._ranges[range_.partition]
                else:
                    self._ranges[range_.partition] = readable

    def _known_ids(self, topics: Iterable[str]) -> TopicIds:
        topics_by_name = {name: self._client.view.topics.get(name) for name in topics}
        return {name: topic.topic_id for name, topic in topics_by_name.items() if topic and topic.topic_id != ZERO_UUID}

    async def _check_failures(self) -> None:
        for state in tuple(self._subscription):
            # Fetched records are returned before the failure, which concerns the records after them.
            if state.failure is None or state.buffer.has_data:
                continue
            if isinstance(state.failure, UnknownTopic) and not self._fail_on_data_loss:
                self._lost(str(state.failure))
                self._finish(state.partition)
            elif isinstance(state.failure, OffsetOutOfRange):
                await self._read_what_exists(state)
            else:
                raise state.failure

    async def _read_what_exists(self, state: AssignedPartition) -> None:
        """Raise an error, or continue with the offsets that exist: the leader does not have the next offset."""
        partition, unread = state.partition, self._ranges[state.partition]
        reason = state.position.reset_reason
        position = state.offset if state.position.out_of_range is None else state.position.out_of_range
        unread = replace(unread, start=unread.start if position is None else max(position, unread.start))
        log = await self._log_of(partition)
        readable = _common(unread, log)
        if reason is ResetReason.RECREATED:
            self._lost(f"topic {partition.topic!r} was deleted and created again while it was read")
        elif reason is ResetReason.TRUNCATED or readable != unread:
            self._lost(_deleted(unread, log))
        else:
            await anyio.sleep(self._refused.next())  # the log has the offset, but this broker does not know it yet
        if readable is None:
            self._finish(partition)
            return
        self._ranges[partition] = readable  # a batch may still contain deleted records
        state.seek(readable.start)
        self._subscription.update_ready(state)
        if self._fetching is not None:
            self._fetching.changed([state])

    async def _skip_truncated(self) -> bool:
        """Finish the ranges that have nothing left to read, if losses are allowed.

        These are the ranges whose next offset is at or after the end of the log, or whose partition no longer exists.
        Returns whether any were finished.
        """
        if self._fail_on_data_loss:
            return False
        any_finished = False
        for state in tuple(self._subscription):
            offset, range_ = state.offset, self._ranges[state.partition]
            log = await self._log_of(state.partition)
            if offset is not None and not state.buffer.has_data and (log is None or log.end <= offset):
                self._lost(_deleted(replace(range_, start=offset), log))
                self._finish(state.partition)
                any_finished = True
        return any_finished

    def _lost(self, what: str) -> None:
        if self._fail_on_data_loss:
            raise error_for(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{what}. Set failOnDataLoss=false to read only the offsets that the log still has",
            )
        if what not in self._warned:
            self._warned.add(what)
            logger.warning("%s; reading continues with the offsets that the log still has (failOnDataLoss=false)", what)

    async def _log_of(self, partition: TopicPartition) -> Range | None:
        """Look up the readable offsets of a log; None if the partition does not exist any more."""
        try:
            return Range(partition, await self._edge(EARLIEST, partition), await self._edge(LATEST, partition))
        except UnknownTopic:
            return None

    async def _edge(self, which: int, partition: TopicPartition) -> int:
        timeout = self._client.config.api_timeout
        offsets = await list_offsets(self._client, {partition: which}, self._config.isolation, timeout=timeout)
        answer = offsets[partition]
        return 0 if answer is None else answer.offset


def _probe_request(partition: TopicPartition, topic_id: bytes, offset: int, isolation: IsolationLevel) -> FetchRequest:
    """Return a Fetch request for the records from an offset on. The leader answers at once, even without records."""
    request_partition = FetchRequestPartition(
        partition=partition.partition, fetch_offset=offset, partition_max_bytes=MIB
    )
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        isolation_level=int(isolation),
        topics=[FetchRequestTopic(topic=partition.topic, topic_id=topic_id, partitions=[request_partition])],
    )


def _has_no_more(answer: FetchResponse, end: int, isolation: IsolationLevel) -> bool:
    """Return whether the log has no records from the probed offset up to ``end``, and never will."""
    for partition in (partition for topic in answer.responses for partition in topic.partitions):
        readable = (
            partition.last_stable_offset if isolation is IsolationLevel.READ_COMMITTED else partition.high_watermark
        )
        if partition.error_code == 0 and not partition.records and readable >= end:
            return True
    return False


def _common(range_: Range, log: Range | None) -> Range | None:
    """Return the offsets of ``range_`` that the log has; None if the log has none of them."""
    if log is None:
        return None
    common = replace(range_, start=max(range_.start, log.start), end=min(range_.end, log.end))
    return common if common.size > 0 else None


def _deleted(range_: Range, log: Range | None) -> str:
    what = f"{range_.partition}: offsets {range_.start} to {range_.end} must be read, and "
    if log is None:
        return f"{what}the partition does not exist any more"
    return f"{what}the log has {log.start} to {log.end}; records were deleted before they were read"
