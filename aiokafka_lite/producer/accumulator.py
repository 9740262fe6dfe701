"""Accumulates records: gives each record a partition and a place in a batch, or lets it wait for metadata.

Rule 1: the accumulator owns the topics. It is the only caller of the partitioner, so no sender's loop runs user code.

Rule 2: ``append`` returns the record's place, or raises and does not keep the record. A place is a batch, or
``PendingRecords`` while metadata does not have the topic. Pending records move to batches in their order, and newer
records wait behind them.

Rule 3: only idle topics are dropped (``_drop_idle_topics``). If a topic with batches were dropped, its partitions could
get a second owner, and both owners would start at sequence number 0. A topic that was not found is dropped *before* its
records fail. The failure may wake a caller that sends to the topic again at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from ..aio.byte_budget import ByteBudget
from ..arguments import INT32_MAX
from ..cluster.client import Client
from ..cluster.metadata import ClusterView
from ..cluster.topics import check_topic_name
from ..errors import ErrorCode, KafkaError, SerializationError, UnknownTopic, error_for
from ..protocol.records import RecordLists
from ..settings.producer import ProducerConfig
from ..types import Header
from .batch import BatchFactories, ProducerBatch
from .delivery import BatchResult, FailureLog
from .dispatch import Dispatcher
from .partition import PartitionProducer
from .partition_batches import Sealed
from .partitioning.choice import PartitionChoice
from .partitioning.interface import Partitioner
from .producer_ids import ProducerIds
from .record import PreparedRecord
from .settle import Settlement
from .timers import Timers
from .topic import PendingRecords, TopicProducer

if TYPE_CHECKING:
    from ..protocol.records.columns import EncodedRecords

logger = logging.getLogger(__name__)

SLICE = 500
"""The number of pending records that move in one iteration of the loop. They take a few milliseconds."""

TOPIC_IDLE = 3600.0
"""Seconds without a record after which a topic is dropped, with the sequence numbers of its partitions. Brokers may
remember those for longer, so a later record is written under a newer epoch. (A topic that is missing in metadata is not
dropped.)"""

USED_AHEAD = 1.0
"""Seconds by which a topic counts as used in advance, so that only some batches have to record the use."""

Spawn: TypeAlias = Callable[[Callable[[], Coroutine[Any, Any, object]], str], object]
"""Starts a task of the producer, with a name."""


class Accumulator:
    """Owns the topics and their pending records, and calls the partitioner.

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
        batches: BatchFactories,
        load: Counter[int],
        ids: ProducerIds | None,
        compress: Callable[[PartitionProducer, ProducerBatch], bool],
        spawn: Spawn,
    ) -> None:
        self.topics: dict[str, TopicProducer] = {}
        self._client = client
        self._config = config
        self._budget = budget
        self._settlement = settlement
        self._dispatcher = dispatcher
        self._timers = timers
        sealed: deque[Sealed] = deque()
        self._sealed = sealed
        self.choice: PartitionChoice = PartitionChoice(partitioner, client.view, sealed)
        self._spawn = spawn
        self._batches = batches
        self._expire_in_order = batches.expire_in_order
        self._make_partition = partial(
            PartitionProducer,
            ids=ids,
            load=load,
            sealed=sealed,
            depth=config.max_in_flight_requests_per_connection,
            make_backoff=client.retry_backoff,
            now=timers.now,
            compress=compress,
        )
        self._next_sweep = 0.0

    # Appending.

    # Hot: runs for each record.
    def append(
        self, name: str, key: bytes | None, value: bytes | None, headers: tuple[Header, ...],
        number: int | None, timestamp: int, size: int, sent_at: float | None = None
    ) -> tuple[BatchResult, int]:  # fmt: skip
        """Add a record to a batch, or to the pending records of its topic. Returns its place.

        The arguments are fields of ``PreparedRecord``, because making one takes 0.15 µs. ``sent_at`` is the loop's time
        of the send of a pending record that moves; None for a new record. Raises UnknownTopic, InvalidTopic and
        SerializationError for a wrong topic or partition, and the partitioner's error.
        """
        topic = self.topics.get(name)
        # A new record must not overtake pending ones of its topic. A pending record that moves (``sent_at``) is the
        # oldest one and goes on although the topic is not open yet.
        if topic is None or not (topic.is_open or sent_at is not None):
            return self._add_pending(PreparedRecord(name, key, value, headers, number, timestamp, size))
        # Computed before the partitioner sets ``number``: a partition that the user has named is final.
        may_move = number is None and key is None
        if number is None:
            number = self.choice.choose(name, key, value, topic.partitions)
        # The partitioner is not asked for this record. Without this report, ``sealed`` would grow for as long as all
        # records name their partitions.
        elif self._sealed:
            self.choice.report_sealed()
        partition = topic.partitions.get(number)
        if partition is None:
            unlisted = PreparedRecord(name, key, value, headers, number, timestamp, size)
            return self._add_unplaced(topic, unlisted, sent_at)
        batch, position, sealed = partition.append(key, value, headers, timestamp, size, sent_at, may_move)
        if batch is None:
            # The partition's batch is full. A record without a key may change its partition now.
            # Offered before the next choice, because the partitioner may raise.
            self._dispatcher.offer(partition)
            number = self.choice.choose(name, None, value, topic.partitions)
            partition = topic.partitions.get(number)
            if partition is None:
                unlisted = PreparedRecord(name, key, value, headers, number, timestamp, size)
                return self._add_unplaced(topic, unlisted, sent_at)
            # ``may_move`` is not passed: the second choice is final. Otherwise a partitioner that alternates would
            # never place the record.
            batch, position, sealed = partition.append(key, value, headers, timestamp, size, sent_at)
            assert batch is not None
        # This runs once per batch. All work that is done for each record costs throughput.
        if position == 0:
            self._register(topic, partition, batch, sent_at is None)
            self._dispatcher.begun(partition, batch)
            if sealed:
                self._dispatcher.offer(partition)
        return batch, position

    def add(self, record: PreparedRecord) -> tuple[BatchResult, int]:
        """Add a record that was prepared as a pending one. If it gets a place in a batch, its surplus is released."""
        topic = self.topics.get(record.topic)
        if topic is None or not topic.is_open:
            return self._add_pending(record)
        if record.partition is not None and record.partition not in topic.partitions:
            return self._add_unplaced(topic, record, None)
        place = self.append(*record[:6], record.size - record.surplus)
        self._budget.release(record.surplus)
        return place

    def append_lists(
        self, topic: TopicProducer, number: int | None, lists: RecordLists, charges: list[int], start: int, stop: int
    ) -> tuple[ProducerBatch, int, int]:
        """Add records from ``start`` up to ``stop`` to one batch. Returns ``batch``, ``index`` of the first, ``count``.

        ``count`` is at least 1, and less than requested if the batch is full. A partition is chosen if ``number`` is
        None. ``charges`` has, for each record, the bytes of ``buffer_memory`` that the records up to it use in total.
        """
        self.choice.report_sealed()
        while True:
            partition = self._choose(topic, number)
            batch, index, count = partition.append_lists(lists, charges, start, stop)
            if batch is not None:
                if index == 0:
                    self._register(topic, partition, batch)
                    self._dispatcher.begun(partition, batch)
                return batch, index, count
            self._dispatcher.offer(partition)

    def append_encoded(
        self, topic: TopicProducer, number: int | None, records: EncodedRecords, size: int
    ) -> ProducerBatch:
        """Add encoded records as a batch of their own. A partition is chosen if ``number`` is None.

        ``size`` is the bytes of ``buffer_memory`` that the records use; the caller releases them if this raises.
        """
        self.choice.report_sealed()
        partition = self._choose(topic, number)
        batch = partition.append_encoded(records, size)
        self._register(topic, partition, batch)
        self._dispatcher.offer(partition)
        return batch

    def _choose(self, topic: TopicProducer, number: int | None) -> PartitionProducer:
        if number is None:
            number = self.choice.choose(topic.name, None, None, topic.partitions)
        partition = topic.partitions.get(number)
        if partition is None:  # the topic was created again while the caller waited for room
            raise wrong_partition(topic.name, topic.partitions, number)
        return partition

    def _register(
        self, topic: TopicProducer, partition: PartitionProducer, batch: ProducerBatch, is_ordered: bool = True
    ) -> None:
        """Register a batch that was begun. Call it before any step that can raise, so that the batch is settled."""
        # The topic counts as used as long as the batch may wait for a leader. Otherwise metadata would drop the topic.
        # ``USED_AHEAD`` covers the next batches.
        if batch.deadline > topic.used_until:
            in_use_for = self._batches.of(topic.name).delivery_timeout + USED_AHEAD
            if self._client.known_topic(topic.name, in_use_for=in_use_for) is not None:  # None: no use is recorded
                topic.used_until = batch.deadline + USED_AHEAD
        self._settlement.register(batch, partition, is_ordered=is_ordered and self._expire_in_order)
        topic.last_used = batch.opened

    def flush(self) -> None:
        """Send the open batches now, without waiting for ``linger``."""
        for partition in self._settlement.partitions():
            if partition.expedite():
                self._dispatcher.offer(partition)

    # Topics.

    def partitions(self) -> Iterator[PartitionProducer]:
        """Yield all partitions of all topics."""
        for topic in self.topics.values():
            yield from topic.partitions.values()

    async def open_topic(self, name: str, partition: int | None = None) -> TopicProducer:
        """Wait until metadata has the topic and its ``partition``, and no earlier record is pending. Returns the topic.

        Raises the errors of ``Client.topic``, and UnknownTopic if the partition does not exist after ``max_block``.
        """
        end = self._timers.now() + self._longest_wait(name)
        while True:
            check_topic_name(name)
            # The topic is looked up again after each wait: it may be dropped, or newer records may be pending.
            topic = self.topics.get(name)
            if topic is not None and topic.is_open:
                if partition is None or partition in topic.partitions:
                    return topic
                if not 0 <= partition <= INT32_MAX or self._timers.now() >= end:
                    raise wrong_partition(name, topic.partitions, partition)
                await self._refresh(name, end)
                continue
            await self._client.topic(name, self._config.max_block)
            pending = self._topic(name).pending
            if pending is not None:
                await pending.wait()

    def view_changed(self, view: ClusterView) -> None:
        """Update the topics after a change of metadata."""
        for topic in self.topics.values():
            self._update(topic, view)

    def _update(self, topic: TopicProducer, view: ClusterView) -> None:
        # First, because no record below may be placed by older metadata than its topic's partitions have.
        self.choice.view_changed(view)
        # Most changes of metadata do not concern a topic. With thousands of partitions, this check keeps them cheap.
        if topic.update(view):
            for partition in topic.partitions.values():
                leader = view.leader_of(partition.topic_partition)
                metadata = view.partition(partition.topic_partition)
                epoch = None if metadata is None else metadata.leader_epoch
                self._dispatcher.act(partition, partition.led_by(None if leader is None else leader.node_id, epoch))
        # The batches are taken out before they fail, because a caller that wakes up may send to the topic and call this
        # again.
        vanished, topic.vanished = topic.vanished, []
        for partition in vanished:
            number = partition.topic_partition.partition
            self._settlement.fail_partition(partition, wrong_partition(topic.name, topic.partitions, number))
        if topic.unplaced is not None and topic.is_known:
            self._place(topic, topic.unplaced, self._timers.now())

    def _topic(self, name: str) -> TopicProducer:
        """Find the topic. If metadata does not contain it, a task asks for it, and records are pending meanwhile."""
        topic = self.topics.get(name)
        if topic is None:
            now = self._timers.now()
            # Idle topics are dropped when a topic is added, not by a timer, because only new topics increase their
            # number.
            if now >= self._next_sweep:
                self._drop_idle_topics(now)
            topic = TopicProducer(name, partial(self._make_partition, batches=self._batches.of(name)), now)
        # A task asks for it already. A second task would move the same records.
        if topic.pending is not None:
            return topic
        if self._client.known_topic(name) is not None:
            self.topics[name] = topic
            self._update(topic, self._client.view)
            return topic
        # Checked before anything is registered, because an invalid name must leave no trace (rule 2).
        check_topic_name(name)
        self.topics[name] = topic
        self._settlement.add_pending(pending := topic.start_pending())
        self._spawn(partial(self._ask_for, topic, pending), f"topic {name}")
        return topic

    def _drop_idle_topics(self, now: float) -> None:
        """Drop topics that were idle for ``TOPIC_IDLE`` seconds. Runs at most every six minutes."""
        self._next_sweep = now + TOPIC_IDLE / 10
        idle = [topic for topic in self.topics.values() if topic.last_used + TOPIC_IDLE <= now and topic.is_idle]
        for topic in idle:
            # If a partition is used again, it starts at sequence 0, which brokers refuse under the old identity.
            topic.retire()
            del self.topics[topic.name]
            self.choice.topic_removed(topic.name)

    # Pending records.

    def _longest_wait(self, topic: str) -> float:
        """Return the seconds that a record may be pending: not longer than its delivery timeout."""
        return min(self._config.max_block, self._batches.of(topic).delivery_timeout)

    def _add_pending(self, record: PreparedRecord) -> tuple[BatchResult, int]:
        """Keep a record until metadata has its topic, or append it if metadata has the topic now."""
        topic = self.topics.get(record.topic)
        if topic is None or not topic.is_known:
            topic = self._topic(record.topic)
            # Metadata has had the topic already, so no earlier record is pending.
            if topic.is_open:
                return self.add(record)
        assert topic.pending is not None
        return topic.pending, topic.pending.add(record, self._timers.now())

    async def _ask_for(self, topic: TopicProducer, pending: PendingRecords) -> None:
        """Request metadata of a topic until it is available and these records have moved or were aborted."""
        while _are_pending(topic, pending):
            try:
                await self._client.topic(topic.name, self._longest_wait(topic.name))
            except KafkaError as error:
                # During the await, the records may have failed with a closing producer, or an aborted transaction.
                if _are_pending(topic, pending):
                    if not topic.partitions:
                        del self.topics[topic.name]  # rule 3: this comes before the callers wake up
                    self._fail_pending(topic, pending, error)
                return
            self._update(topic, self._client.view)
            # If the producer has ended during the wait, records that moved to batches would fail one by one.
            if _are_pending(topic, pending) and self._settlement.fatal is not None:
                self._fail_pending(topic, pending, self._settlement.fatal)
            else:
                await self._move_pending(topic, pending)

    async def _move_pending(self, topic: TopicProducer, pending: PendingRecords) -> None:
        """Move records to batches, a slice per iteration of the loop, unless metadata loses the topic again.

        A slice has ``SLICE`` more records than arrived since the last slice, so this ends although newer records wait.
        """
        before = len(pending.records)
        while _are_pending(topic, pending) and topic.is_known and self._settlement.fatal is None:
            for _ in range(SLICE + len(pending.records) - before):
                # Checked before each record. So ``end_pending`` runs in the same iteration of the loop as the last
                # move, and no newer record can come between them.
                if not pending.records:
                    topic.end_pending()
                    self._settlement.remove_pending(pending)
                    pending.move(pending.places)
                    return
                pending.places.append(self._move(pending.records.popleft(), pending.times.popleft()))
            before = len(pending.records)
            await asyncio.sleep(0)

    def _move(self, record: PreparedRecord, sent_at: float) -> tuple[BatchResult, int]:
        """Move a pending record. Returns its new place; an error is raised by the record's own delivery."""
        # While pending, the record was charged for its objects. In a batch it needs only its bytes.
        if record.surplus:
            self._budget.release(record.surplus)
            record = PreparedRecord(*record[:6], record.size - record.surplus)
        try:
            return self.append(*record[:7], sent_at)
        except Exception as error:  # noqa: BLE001 - the record's delivery raises it
            return self._settlement.fail_record(record, error), 0

    def fail_unsent(self, error: Exception, log: FailureLog) -> None:
        """Fail the records that no request has carried yet."""
        self.fail_pending(error, log)
        self._settlement.fail_unsent(error, log)

    def fail_pending(self, error: Exception, log: FailureLog) -> None:
        """Fail the pending records of all topics."""
        for topic in list(self.topics.values()):  # a callback of a record may send to another topic
            for pending in (topic.pending, topic.unplaced):
                if pending is not None:
                    self._fail_pending(topic, pending, error, log)

    def _fail_pending(
        self, topic: TopicProducer, pending: PendingRecords, error: Exception, log: FailureLog | None = None
    ) -> None:
        # This comes first, so that a caller that wakes up and sends to the topic does not add to records that are
        # failing.
        if pending is topic.pending:
            topic.end_pending()
        else:
            topic.unplaced = None
        self._settlement.fail_pending(pending, error, log)

    # Records for partitions that metadata does not list.

    def _add_unplaced(
        self, topic: TopicProducer, record: PreparedRecord, sent_at: float | None
    ) -> tuple[BatchResult, int]:
        """Keep a record until metadata lists its partition, which may be new.

        Raises UnknownTopic for a number that no partition can have, and when ``max_block`` has passed since the send.
        """
        number, now = record.partition, self._timers.now()
        if number is None or not 0 <= number <= INT32_MAX:
            raise wrong_partition(topic.name, topic.partitions, number)
        if sent_at is not None and sent_at + self._longest_wait(topic.name) <= now:
            raise wrong_partition(topic.name, topic.partitions, number)
        return self._keep_unplaced(topic, record, now if sent_at is None else sent_at)

    def _keep_unplaced(self, topic: TopicProducer, record: PreparedRecord, sent_at: float) -> tuple[BatchResult, int]:
        unplaced = topic.unplaced
        if unplaced is None:
            # The task is started first: it may be refused, because the producer has ended. Then nothing is registered.
            if not topic.is_asking:
                self._spawn(partial(self._ask_for_partitions, topic), f"partitions of topic {topic.name}")
                topic.is_asking = True
            unplaced = topic.unplaced = PendingRecords(topic.name)
            self._settlement.add_pending(unplaced)
        return unplaced, unplaced.add(record, sent_at)

    async def _ask_for_partitions(self, topic: TopicProducer) -> None:
        """Refresh metadata until all unplaced records of a topic have a partition or have failed."""
        try:
            while (unplaced := topic.unplaced) is not None:
                # The first record has waited for the longest time.
                end = unplaced.times[0] + self._longest_wait(topic.name)
                await self._refresh(topic.name, end)
                error = self._settlement.fatal or _refusal(topic.name, self._client.view)
                # ``topic.unplaced`` and not ``unplaced``: during the await, ``_place`` may have moved these records and
                # kept other records.
                if error is not None and topic.unplaced is not None:
                    self._fail_pending(topic, topic.unplaced, error)
                elif unplaced is topic.unplaced and end <= (now := self._timers.now()):
                    self._place(topic, unplaced, now)
        finally:
            topic.is_asking = False

    async def _refresh(self, name: str, end: float) -> None:
        """Wait for newer metadata of a topic, at most until the loop's time ``end``. The updater paces the requests."""
        try:
            await self._client.refresh([name], timeout=max(0.0, end - self._timers.now()))
        except KafkaError as error:
            logger.debug("could not refresh the metadata of topic %r: %s", name, error)
            await asyncio.sleep(min(self._client.config.retry_backoff, max(0.0, end - self._timers.now())))

    def _place(self, topic: TopicProducer, unplaced: PendingRecords, now: float) -> None:
        """Move records to partitions that exist now, and fail expired records. The others continue to wait.

        This happens in one iteration of the loop, so that no newer record of these partitions overtakes them. ``now``
        is the only time that decides which records have expired: a second reading of the clock is later, so a record
        that this method keeps would be refused as expired where it is kept.
        """
        longest_wait = self._longest_wait(topic.name)
        is_due = unplaced.times[0] + longest_wait <= now
        if not is_due and not any(record.partition in topic.partitions for record in unplaced.records):
            return
        # Reset before the records move: records that still have to wait start another ``PendingRecords``. These records
        # stay registered until each has a new place, so that they are settled even if a step below raises.
        topic.unplaced = None
        log: FailureLog | None = None
        while unplaced.records:
            record, sent_at = unplaced.records[0], unplaced.times[0]
            if record.partition in topic.partitions:
                place = self._move(record, sent_at)
            elif sent_at + longest_wait <= now:
                error = wrong_partition(topic.name, topic.partitions, record.partition)
                log = log or FailureLog(error)  # one log line for all of them
                place = self._settlement.fail_record(record, error, log), 0
            else:
                place = self._keep_unplaced(topic, record, sent_at)
            unplaced.places.append(place)
            unplaced.records.popleft()
            unplaced.times.popleft()
        self._settlement.remove_pending(unplaced)
        unplaced.move(unplaced.places)


def wrong_partition(topic: str, listed: Iterable[int], number: object) -> SerializationError | UnknownTopic:
    """Return the error for a partition that is not an int, or not one of the topic's ``listed`` partitions."""
    if type(number) is not int:
        return SerializationError(f"partition of a record for topic {topic!r} must be an int or None, got {number!r}")
    last = max(listed, default=-1)
    if 0 <= number < last:  # the numbers have a gap
        message = f"brokers list no partition={number} of topic {topic!r}, which has partition {last}"
    else:
        message = f"topic {topic!r} has partitions 0 to {last}, got partition={number}"
    return UnknownTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, reason=message)


def _refusal(name: str, view: ClusterView) -> KafkaError | None:
    """Return the error of a topic that newer metadata cannot resolve, such as a missing permission."""
    topic = view.topics.get(name)
    if topic is None or topic.error is ErrorCode.NONE or topic.error.retriable:
        return None
    return error_for(topic.error, f"topic {name!r} cannot be used", topic=name)


def _are_pending(topic: TopicProducer, pending: PendingRecords) -> bool:
    """Return whether the topic still has these pending records.

    A function, because mypy narrows ``topic.pending`` where it is compared, and does not undo that at an ``await``. The
    compiled build would then raise TypeError for a None.
    """
    return topic.pending is pending
