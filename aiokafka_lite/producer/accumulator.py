"""Records accumulate here: a topic and a partition for each record, a place in a batch, or a wait for metadata.

Rule 1: the accumulator owns the topics. It is the only caller of the partitioner, so no sender's loop runs user code.

Rule 2: ``append`` either raises, and then the record is nowhere, or returns the record's place. A place is a batch, or
``PendingRecords`` while metadata does not have the topic. Pending records move to batches in their order, and newer
records wait behind them.

Rule 3: a topic that is dropped while batches of it exist would give its partitions two owners, both of which start at
sequence number 0. So only idle topics are dropped (``_drop_idle_topics``), and a topic that was not found is dropped
*before* its records fail: a caller that is woken by the failure can send to it again at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from operator import index
from typing import Any, TypeAlias

from ..aio.byte_budget import ByteBudget
from ..cluster.client import Client
from ..cluster.metadata import ClusterView
from ..cluster.topics import check_topic_name
from ..config import ProducerConfig
from ..errors import ErrorCode, IllegalStateError, KafkaError, SerializationError, UnknownTopic
from ..protocol.records.columns import EncodedRecords
from .batch import Batch, BatchFactory
from .bulk import Chooser
from .delivery import BatchResult, FailureLog
from .dispatch import Dispatcher
from .metrics import Counters
from .partition import PartitionProducer
from .partition_batches import Sealed
from .partitioner import DefaultPartitioner, Partitioner
from .producer_ids import ProducerIds
from .record import PreparedRecord
from .settle import Settlement
from .timers import Timers
from .topic import UNASSIGNED, PendingRecords, TopicProducer

logger = logging.getLogger(__name__)

SLICE = 500
"""Pending records that move in one iteration of the loop: a few milliseconds."""

TOPIC_IDLE = 3600.0
"""Seconds without a record after which a topic is dropped, with the sequence numbers of its partitions. Brokers may
remember those for longer, so a later record is written under a newer epoch. (That metadata lacks a topic is no reason
to drop it.)"""

Spawn: TypeAlias = Callable[[Callable[[], Coroutine[Any, Any, object]], str], object]
"""Starts a task of the producer, with a name."""


class Accumulator:
    """Owner of the topics and their pending records, and caller of the partitioner.

    ``spawn`` starts a task that asks metadata for a topic. ``ids`` is None without idempotence.
    """

    def __init__(
        self,
        client: Client,
        config: ProducerConfig,
        partitioner: Partitioner,
        *,
        budget: ByteBudget,
        settlement: Settlement,
        dispatcher: Dispatcher,
        timers: Timers,
        batches: BatchFactory,
        load: Counter[int],
        ids: ProducerIds | None,
        counters: Counters,
        spawn: Spawn,
    ) -> None:
        self.topics: dict[str, TopicProducer] = {}
        self._view = client.view
        self._client = client
        self._config = config
        self._partitioner = partitioner
        self._budget = budget
        self._settlement = settlement
        self._dispatcher = dispatcher
        self._timers = timers
        self._sealed: deque[Sealed] = deque()
        self._counters = counters
        self._spawn = spawn
        self._make_partition = partial(
            PartitionProducer,
            batches=batches,
            ids=ids,
            load=load,
            sealed=self._sealed,
            depth=config.max_in_flight_requests_per_connection,
            make_backoff=client.retry_backoff,
            now=timers.now,
        )
        self._next_sweep = 0.0
        self._logged_errors: set[type[Exception]] = set()

    # Records in.

    # Hot: runs for each record.
    def append(self, record: PreparedRecord, sent_at: float | None = None) -> tuple[BatchResult, int]:
        """Add a record to a batch, or to the pending records of its topic. Returns its place.

        ``sent_at`` is the loop's time of the send of a pending record that moves; None for a new record. Raises
        UnknownTopic, InvalidTopic and SerializationError for a wrong topic or partition, and the partitioner's error.
        """
        name, key, value, _, number, _, _, _ = record
        topic = self.topics.get(name)
        # A new record must not overtake pending ones of its topic. A pending record that moves (``sent_at``) is the
        # oldest one and goes on although the topic is not open yet.
        if topic is None or not (topic.is_open or sent_at is not None):
            return self._add_pending(record)
        # Before the choice, so that a sticky partitioner knows which of its batches are full.
        if self._sealed:
            self._report_sealed()
        if number is None:
            partition = topic.partitions[self._choose(topic, key, value)]
            may_move = key is None
        # ``type``, not ``isinstance``: True is no partition. Negative numbers would index from the end.
        elif type(number) is int and 0 <= number < len(topic.partitions):
            partition, may_move = topic.partitions[number], False
        else:
            raise wrong_partition(topic.name, len(topic.partitions), number)
        batch, position, sealed = partition.append(record, sent_at, may_move)
        if batch is None:
            # The partition's batch is full. A record without a key may change its partition now.
            self._dispatcher.offer(partition)
            self._report_sealed()
            partition = topic.partitions[self._choose(topic, None, value)]
            # Without ``may_move``: the second choice is final, or a partitioner that alternates would never place the
            # record.
            batch, position, sealed = partition.append(record, sent_at)
            assert batch is not None
        # Once per batch. Everything that is done for each record costs throughput.
        if position == 0:
            self._begun(topic, partition, batch, sent_at is None)
            self._dispatcher.begun(partition, batch)
            if sealed:
                self._dispatcher.offer(partition)
        return batch, position

    def append_encoded(self, topic: TopicProducer, number: int | None, records: EncodedRecords, size: int) -> Batch:
        """Add encoded records as a batch of their own. A partition is chosen if ``number`` is None.

        ``size`` is what the records hold of ``buffer_memory``; the caller releases it if this raises.
        """
        self._report_sealed()
        chosen = self._choose(topic, None, None) if number is None else number
        if chosen >= len(topic.partitions):  # the topic was created again while the caller waited for room
            raise wrong_partition(topic.name, len(topic.partitions), chosen)
        partition = topic.partitions[chosen]
        batch, _, _ = partition.append_encoded(records, size)
        assert batch is not None
        self._begun(topic, partition, batch, True)
        self._dispatcher.offer(partition)
        return batch

    def _begun(self, topic: TopicProducer, partition: PartitionProducer, batch: Batch, is_ordered: bool) -> None:
        """A batch was begun. Comes before anything that can raise, so that the batch is settled in any case."""
        # The topic counts as used for as long as the batch may wait for a leader, or metadata would drop it.
        self._client.known_topic(topic.name, in_use_for=self._config.delivery_timeout)
        self._settlement.register(batch, partition, is_ordered=is_ordered)
        topic.last_used = batch.opened

    def _report_sealed(self) -> None:
        """Notify the partitioner of the batches that were sealed since its last choice, by an append or by a sender."""
        while self._sealed:
            (name, number), size = self._sealed.popleft()
            if name not in self._view.topics:
                continue
            try:
                self._partitioner.on_new_batch(name, number, size, self._view)
            except Exception as error:
                if type(error) not in self._logged_errors:
                    self._logged_errors.add(type(error))
                    name = type(self._partitioner).__name__
                    logger.error("%s.on_new_batch failed; this error is not logged again", name, exc_info=error)

    def _choose(self, topic: TopicProducer, key: bytes | None, value: bytes | None) -> int:
        try:
            number = index(self._partitioner.partition(topic.name, key, value, self._view))
        except KafkaError:
            raise
        except Exception as error:
            raise IllegalStateError(
                f"{type(self._partitioner).__name__} could not choose a partition of topic {topic.name!r}: {error!r}"
            ) from error
        # A user's partitioner may be wrong; a negative number would silently go to one of the last partitions.
        if not 0 <= number < len(topic.partitions):
            raise IllegalStateError(
                f"{type(self._partitioner).__name__} chose partition {number} of topic {topic.name!r},"
                f" which has {len(topic.partitions)} partitions"
            )
        return number

    def chooser(self, topic: TopicProducer) -> Chooser | None:
        """Chooses a partition for a key and a value; None if keys go by their hash, so that columns need no calls."""
        return None if type(self._partitioner) is DefaultPartitioner else partial(self._choose, topic)

    def flush(self) -> None:
        """Let no open batch linger."""
        for partition in self._settlement.partitions():
            if partition.expedite():
                self._dispatcher.offer(partition)

    # Topics.

    def partitions(self) -> Iterator[PartitionProducer]:
        """All partitions of all topics."""
        for topic in self.topics.values():
            yield from topic.partitions

    async def open_topic(self, name: str) -> TopicProducer:
        """The topic, once metadata has it and no earlier record is pending. Raises as ``Client.topic`` does."""
        while True:
            check_topic_name(name)
            # Looked up again after each wait: by then the topic may be gone, or newer records may be pending.
            topic = self.topics.get(name)
            if topic is not None and topic.is_open:
                return topic
            await self._client.topic(name, self._config.max_block)
            pending = self._topic(name).pending
            if pending is not None:
                await pending.wait()

    def view_changed(self, view: ClusterView) -> None:
        """Metadata has changed."""
        for topic in self.topics.values():
            self._update(topic, view)

    def _update(self, topic: TopicProducer, view: ClusterView) -> None:
        self._view = view
        # Most changes of metadata do not concern a topic. With thousands of partitions, this check keeps them cheap.
        if topic.update(view):
            for each in topic.partitions:
                leader = view.leader_of(each.topic_partition)
                known = view.partition(each.topic_partition)
                epoch = None if known is None else known.leader_epoch
                self._dispatcher.act(each, each.led_by(None if leader is None else leader.node_id, epoch))
        # Taken out before they fail: a woken caller may send to the topic and come back here.
        vanished, topic.vanished = topic.vanished, []
        for each in vanished:
            number = each.topic_partition.partition
            self._settlement.fail_partition(each, wrong_partition(topic.name, len(topic.partitions), number))

    def _topic(self, name: str) -> TopicProducer:
        """The topic. If metadata does not have it, a task asks for it, and records are pending meanwhile."""
        topic = self.topics.get(name)
        if topic is None:
            now = self._timers.now()
            # Swept when a topic comes, not by a timer: only new topics make the number of topics grow.
            if now >= self._next_sweep:
                self._drop_idle_topics(now)
            topic = TopicProducer(name, self._make_partition, now)
        # A task asks for it already. A second task would move the same records.
        if topic.pending is not None:
            return topic
        if self._client.known_topic(name) is not None:
            self.topics[name] = topic
            self._update(topic, self._client.view)
            return topic
        # Before anything is registered: a name that no broker accepts must leave no trace (rule 2).
        check_topic_name(name)
        self.topics[name] = topic
        self._settlement.add_pending(topic.start_pending())
        self._spawn(partial(self._ask_for, topic), f"topic {name}")
        return topic

    def _drop_idle_topics(self, now: float) -> None:
        """Drop topics that were idle for long. Runs now and then, when a new topic comes."""
        self._next_sweep = now + TOPIC_IDLE / 10
        idle = [each for each in self.topics.values() if each.last_used + TOPIC_IDLE <= now and each.is_idle]
        on_topic_removed = getattr(self._partitioner, "on_topic_removed", None)
        for topic in idle:
            # A partition that comes back later starts at sequence 0, which brokers refuse under the old identity.
            topic.retire()
            del self.topics[topic.name]
            if on_topic_removed is not None:
                on_topic_removed(topic.name)

    # Pending records.

    def _add_pending(self, record: PreparedRecord) -> tuple[BatchResult, int]:
        """Keep a record until metadata has its topic; or append it, if metadata has the topic by now."""
        topic = self.topics.get(record.topic)
        if topic is None or not topic.is_known:
            topic = self._topic(record.topic)
            # Metadata has had the topic already, so no record is pending before this one.
            if topic.is_open:
                return self.append(record)
        assert topic.pending is not None
        return topic.pending, topic.pending.add(record, self._timers.now())

    async def _ask_for(self, topic: TopicProducer) -> None:
        """Ask metadata for a topic until it is there, and its pending records have moved to batches."""
        while topic.pending is not None:
            try:
                # ``max_block`` bounds the wait for metadata. A record must not be pending for longer than its delivery
                # timeout.
                await self._client.topic(topic.name, min(self._config.max_block, self._config.delivery_timeout))
            except KafkaError as error:
                if not topic.partitions:
                    del self.topics[topic.name]  # rule 3: before the callers are woken
                self._fail_pending(topic, error)
                return
            self._update(topic, self._client.view)
            # The producer may have ended while metadata was awaited; in batches the records would fail one by one.
            if self._settlement.fatal is not None:
                self._fail_pending(topic, self._settlement.fatal)
            else:
                await self._move_pending(topic, topic.pending)

    async def _move_pending(self, topic: TopicProducer, pending: PendingRecords) -> None:
        """Move records to batches, a slice per iteration of the loop, unless metadata loses the topic again.

        A slice has as many records as arrived since the last slice, plus ``SLICE``: so this ends although newer records
        wait behind the older ones.
        """
        before = len(pending.records)
        while topic.pending is pending and topic.is_known and self._settlement.fatal is None:
            for _ in range(SLICE + len(pending.records) - before):
                # Checked before each record, so ``end_pending`` comes in the same iteration of the loop as the last
                # move: no newer record can slip in between.
                if not pending.records:
                    topic.end_pending()
                    self._settlement.remove_pending(pending)
                    pending.move(pending.places)
                    return
                pending.places.append(self._move(pending.records.popleft(), pending.times.popleft()))
            before = len(pending.records)
            await asyncio.sleep(0)

    def _move(self, record: PreparedRecord, sent_at: float) -> tuple[BatchResult, int]:
        """The new place of a pending record. An error concerns this record alone, so its own delivery raises it."""
        # While pending, the record was charged for its objects. In a batch it needs only its bytes.
        if record.surplus:
            self._budget.release(record.surplus)
            record = PreparedRecord(*record[:6], record.size - record.surplus)
        try:
            return self.append(record, sent_at)
        except Exception as error:  # noqa: BLE001 - the record's delivery raises it
            failed = BatchResult(record.topic, UNASSIGNED)
            failed.fail(error)
            self._counters.records_failed += 1
            self._budget.release(record.size)
            return failed, 0

    def fail_pending(self, error: Exception, log: FailureLog) -> None:
        """Fail the pending records of all topics."""
        for topic in self.topics.values():
            if topic.pending is not None:
                self._fail_pending(topic, error, log)

    def _fail_pending(self, topic: TopicProducer, error: Exception, log: FailureLog | None = None) -> None:
        pending = topic.pending
        assert pending is not None
        # First, so that a woken caller that sends to the topic does not add to records that are failing.
        topic.end_pending()
        for record in pending.records:
            self._budget.release(record.size)
        self._settlement.remove_pending(pending)
        self._counters.records_failed += pending.fail_rest(error, log)


def wrong_partition(topic: str, count: int, number: object) -> SerializationError | UnknownTopic:
    """The error for a partition that is not an int, or that the topic does not have."""
    if type(number) is not int:
        return SerializationError(f"partition of a record for topic {topic!r} must be an int or None, got {number!r}")
    return UnknownTopic(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        f"topic {topic!r} has partitions 0 to {count - 1}, got partition={number!r}",
    )
