"""Fetching the ranges of one task: the client's own fetchers, until each partition has come to the end of its range.

It runs on the loop, and knows nothing of Arrow or Spark. What is fetched is handed out as the batches of the log, still
packed; whoever takes them decodes them in a thread of its own, while the next are on their way.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace

import anyio

from ..aio.retry import Backoff
from ..aio.service import Component
from ..cluster.client import Client
from ..cluster.metadata import ClusterView
from ..config import MIB, ConsumerConfig
from ..consumer.fetched import AbortedTransactions
from ..consumer.fetching import Fetching
from ..consumer.offsets import EARLIEST, LATEST, is_passing, list_offsets
from ..consumer.partition import PartitionState, Reset
from ..consumer.subscription import Subscription
from ..errors import ErrorCode, KafkaError, KafkaTimeout, OffsetOutOfRange, error_for
from ..net.connection import Purpose
from ..protocol.messages import FetchRequest, FetchRequestPartition, FetchRequestTopic
from ..protocol.records import RecordBatch
from ..types import IsolationLevel, TopicPartition
from .offsets import Range, Task

logger = logging.getLogger(__name__)

PROBE_INTERVAL = 1.0
"""Seconds without any news after which leaders are asked whether there is anything left in a range at all."""

PROBE_TIMEOUT = 5.0
"""Seconds for their answer: what is fetched meanwhile waits for it."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """Consecutive batches of one partition; those of aborted transactions are for the reader to leave out.

    Only records of ``range`` are wanted: the first and the last batch may have others.
    """

    range: Range
    batches: list[tuple[RecordBatch, AbortedTransactions | None]]


class RangeReader(Component):
    """Reads some ranges, of as many partitions. Owner: one Spark task; the client is shared with others.

    ``config`` bounds what one partition may have fetched and not taken; times their number, that is what waits here.
    With ``fail_on_data_loss``, records that are gone are an error, else a warning. Every partition occurs once.
    """

    def __init__(
        self, client: Client, config: ConsumerConfig, task: Task, *, fail_on_data_loss: bool, poll_timeout: float
    ) -> None:
        super().__init__()
        self._client = client
        self._config = config
        self._fail_on_data_loss = fail_on_data_loss
        self._poll_timeout = poll_timeout
        self._left: dict[TopicPartition, Range] = {each.partition: each for each in task}
        self._complete: list[Fetched] = []  # what was fetched of partitions that are at the end of their ranges
        self._ready = asyncio.Event()
        self._subscription = Subscription(Reset.NONE, config.max_partition_fetch_bytes)
        self._fetching: Fetching | None = None

    def __repr__(self) -> str:
        return f"<RangeReader {self.state.name} partitions={len(self._left)}>"

    # ---- the lifetime

    async def _on_start(self) -> None:
        topics = {partition.topic for partition in self._left}
        for topic in topics:
            await self._client.topic(topic)
        self._client.add_topics(topics)
        self._service.start_child(self._watch, topics, name="RangeReader: metadata")
        self._subscription.assign(self._left)
        for state in self._subscription:
            state.seek(self._left[state.partition].start)
        self._fetching = Fetching(
            client=self._client,
            subscription=self._subscription,
            client_config=self._client.config,
            config=self._config,
            topics=(),
            spawn=self._service.start_child,
            on_ready=self._on_ready,
            on_found=self._ready.set,
        )
        self._fetching.start()

    async def _watch(self, topics: set[str]) -> None:
        """Follow the leaders, for as long as this lives."""
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

    # ---- the way out

    def _on_ready(self) -> None:
        """Something came. A partition that has come to its end is not asked for again: it would wait for more."""
        for state in tuple(self._subscription.ready.values()):
            wanted = self._left[state.partition]
            if state.fetch_offset >= wanted.end and state.failure is None:
                self._complete.append(Fetched(wanted, state.take_batches()))
                del self._left[state.partition]
        self._subscription.assign(self._left)
        self._ready.set()

    def _finish(self, partition: TopicPartition) -> None:
        del self._left[partition]
        self._subscription.assign(self._left)

    async def take(self) -> list[Fetched]:
        """All that is there, waiting until there is something; an empty list when every range was read to its end.

        Raises OffsetOutOfRange for records that are gone, KafkaTimeout when nothing came for ``poll_timeout`` seconds,
        and what ended the fetching.
        """
        return await self._service.while_running(self._take())

    async def _take(self) -> list[Fetched]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._poll_timeout
        while True:
            self._ready.clear()
            await self._attend_failures()
            taken = self._complete
            self._complete = []
            for state in tuple(self._subscription.ready.values()):
                taken.append(Fetched(self._left[state.partition], state.take_batches()))
                self._subscription.update_ready(state)
                if self._fetching is not None:
                    self._fetching.hungry(state)
            if taken or not self._left:
                return taken
            await self._wait_until(deadline)

    async def _wait_until(self, deadline: float) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout_at(min(deadline, loop.time() + PROBE_INTERVAL)):
                await self._ready.wait()
            return
        except TimeoutError:
            pass
        if loop.time() >= deadline:
            raise self._stalled()
        for partition in tuple(self._left):
            await self._probe(partition)

    def _stalled(self) -> KafkaTimeout:
        where = ", ".join(
            f"{state.partition} at offset {state.position}, up to {self._left[state.partition].end}"
            + (f" ({state.trouble})" if state.trouble else "")
            for state in self._subscription
        )
        return KafkaTimeout(
            f"nothing came within {self._poll_timeout:g} s (kafkaConsumer.pollTimeoutMs) of {where}; "
            "an end beyond the log's is never reached"
        )

    # ---- ranges whose end has no record

    async def _probe(self, partition: TopicPartition) -> None:
        """End a range that has nothing left: compaction may have taken its last records, and no fetch would say so."""
        state, wanted = self._subscription[partition], self._left[partition]
        leader = self._client.view.leader_of(partition)
        topic = self._client.view.topics.get(partition.topic)
        if leader is None or topic is None or state.has_data or state.failure:
            return
        offset = state.fetch_offset
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            isolation_level=int(self._config.isolation),
            topics=[
                FetchRequestTopic(
                    topic=partition.topic,
                    topic_id=topic.topic_id,
                    partitions=[
                        FetchRequestPartition(
                            partition=partition.partition, fetch_offset=offset, partition_max_bytes=MIB
                        )
                    ],
                )
            ],
        )
        try:
            answer = await self._client.send(
                request, node=leader.node_id, purpose=Purpose.OTHER, timeout=PROBE_TIMEOUT, retry=False
            )
        except KafkaError as error:
            if is_passing(error):
                return  # the leader may just have moved, and the fetchers go after it: this only looks whether to end
            raise
        for given in (each for of_topic in answer.responses for each in of_topic.partitions):
            committed = self._config.isolation is IsolationLevel.READ_COMMITTED
            end = given.last_stable_offset if committed else given.high_watermark
            nothing = given.error_code == 0 and not given.records and end >= wanted.end
            if nothing and state.fetch_offset == offset and partition in self._left and not state.has_data:
                self._finish(partition)
                self._ready.set()

    # ---- records that are gone

    async def _attend_failures(self) -> None:
        for state in tuple(self._subscription):
            if state.failure is None or state.has_data:
                continue
            if not isinstance(state.failure, OffsetOutOfRange):
                raise state.failure
            await self._attend_loss(state)

    async def _attend_loss(self, state: PartitionState) -> None:
        """The log does not have the next offset: an error, or go on where there is something of the range."""
        partition, wanted = state.partition, self._left[state.partition]
        position = state.out_of_range if state.out_of_range is not None else state.position
        wanted = replace(wanted, start=wanted.start if position is None else max(position, wanted.start))
        earliest = (await self._edges(EARLIEST, partition))[partition]
        latest = (await self._edges(LATEST, partition))[partition]
        offsets = f"offsets {wanted.start} up to {wanted.end} are to be read, and the log has {earliest} up to {latest}"
        what = f"{partition}: {offsets}"
        if self._fail_on_data_loss:
            raise error_for(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{what}; records were deleted before they were read. Set failOnDataLoss=false to go on without them",
            )
        logger.warning("%s; reading goes on without those that are gone", what)
        if wanted.start < earliest < wanted.end:
            self._left[partition] = replace(wanted, start=earliest)  # a batch may still hold what was deleted
            state.seek(earliest)
            self._subscription.update_ready(state)
            if self._fetching is not None:
                self._fetching.changed()
        else:
            self._finish(partition)

    async def _edges(self, which: int, partition: TopicPartition) -> Mapping[TopicPartition, int]:
        config = self._client.config
        found = await list_offsets(
            self._client,
            {partition: which},
            IsolationLevel.READ_UNCOMMITTED,
            timeout=config.api_timeout,
            backoff=Backoff(config.retry_backoff, config.retry_backoff_max),
        )
        return {each: 0 if answer is None else answer.offset for each, answer in found.items()}
