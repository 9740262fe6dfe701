"""Between partitions and brokers: who may send to whom, when, and what an answer does to a batch.

Owns what partitions and brokers share: the set of unsettled batches with their deadlines, the timers (linger, pause,
delivery timeout), and the brokers' tasks. A partition decides (`PartitionProducer` is pure); here it is done.

Timers are cheap on purpose: one for all delivery timeouts, since batches expire in the order they were opened; one for
a turn of the loop when linger is 0; one for a batch that lingers; one for a partition that backs off.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Container, Iterable
from typing import TypeVarTuple

import anyio

from ..aio.byte_budget import ByteBudget
from ..cluster.client import Client
from ..cluster.metadata import ClusterView
from ..config import ProducerConfig
from ..errors import ErrorCode, KafkaError, KafkaTimeout, ProtocolError, error_for
from ..protocol.messages import ProduceResponseNodeEndpoint, ProduceResponsePartition
from ..protocol.records import HEADER_SIZE, BatchBuilder, RecordBatch
from ..protocol.records.columns import EncodedRecords
from ..types import Compression, TopicPartition
from .batch import Batch
from .broker import REQUEST_OVERHEAD, BrokerProducer, Parcel
from .delivery import UNKNOWN_OFFSET, Fate, Lateness, Loss
from .metrics import BrokerMetrics, Counters
from .partition import Next, PartitionProducer
from .topic import HeldRecord
from .verdict import Verdict, is_retriable, judge

logger = logging.getLogger(__name__)

Ts = TypeVarTuple("Ts")

NO_LIMIT = 2**62

_PLACE = "writing"
"""Where outages are counted."""

RATIO_STEP = 0.02
"""By how much the expected compression ratio may fall with one batch."""

SMALLEST_RATIO = 0.1
"""The least expected: a batch holds its records uncompressed in memory, ten times its size then."""


class Router:
    """Owned by the producer; lives in its loop.

    ``spawn`` starts a task of the producer, ``crash`` ends the producer with an error: callbacks of the loop have
    nobody else to raise to. ``fatal`` is set once brokers have refused this producer for good.
    """

    def __init__(
        self,
        client: Client,
        config: ProducerConfig,
        budget: ByteBudget,
        *,
        request_timeout: float,
        spawn: Callable[[BrokerProducer], anyio.CancelScope],
        crash: Callable[[BaseException], None],
    ) -> None:
        self.client = client
        self.config = config
        self.request_timeout = request_timeout
        self.crash = crash
        self.fatal: KafkaError | None = None
        self.unsettled: dict[Fate, None] = {}  # in the order of their deadlines, unless `_is_ordered` says otherwise
        self._budget = budget
        self._spawn = spawn
        self._loop = asyncio.get_running_loop()
        self._brokers: dict[int, BrokerProducer] = {}
        self._tasks: dict[int, anyio.CancelScope] = {}
        self._opened_this_turn: list[tuple[PartitionProducer, Batch]] = []
        self._expiry: asyncio.TimerHandle | None = None
        self._is_ordered = True
        self._pauses: dict[PartitionProducer, asyncio.TimerHandle] = {}
        self._ratio = 1.0
        self._owners: dict[Batch, PartitionProducer] = {}
        self._queued: dict[int, int] = {}
        self.counters = Counters()
        self.stopped = False
        self._held_up: set[TopicPartition] = set()  # where the last answer was that it has to be sent again
        self._late: set[TopicPartition] = set()  # where the last batch to be settled was too late
        self._lateness = Lateness()

    # Callbacks.

    def _later(self, when: float, function: Callable[[*Ts], None], *args: *Ts) -> asyncio.TimerHandle:
        return self._loop.call_at(when, self._guarded, function, *args)

    def _guarded(self, function: Callable[[*Ts], None], *args: *Ts) -> None:
        if self.stopped:
            return
        try:
            function(*args)
        except Exception as error:  # noqa: BLE001 - a callback has nobody to raise to; the whole producer ends of it
            self.crash(error)

    # Batches come in.

    def new_batch(self, partition: PartitionProducer, opened: float | None = None) -> Batch:
        """An empty open batch of a partition, registered with its deadlines. The caller puts the first record in.

        ``opened`` is when that was sent: now, unless it was held for its topic.
        """
        batch = self._begin(partition, self._new_builder(self._batch_size, self._ratio), opened)
        now = batch.opened
        if self.config.linger and not self._budget.is_short:  # nothing lingers while senders wait for room
            batch.timer = self._later(now + self.config.linger, self._lingered, partition, batch)
        else:
            if not self._opened_this_turn:
                self._loop.call_soon(self._guarded, self._turn_is_over)
            self._opened_this_turn.append((partition, batch))
        return batch

    def full_batch(self, partition: PartitionProducer, encoded: EncodedRecords) -> Batch:
        """A batch of records that are encoded already, behind all that the partition has. Nothing is added to it."""
        partition.seal()
        builder = self._new_builder(self._batch_size)
        builder.fill(encoded.records, encoded.count, encoded.base_timestamp, encoded.max_timestamp)
        batch = self._begin(partition, builder)
        partition.seal()
        self.offer(partition)
        return batch

    @property
    def room(self) -> int:
        """Bytes of records, uncompressed, that a batch is expected to take."""
        return int((self._batch_size - HEADER_SIZE) / self._ratio)

    @property
    def _batch_size(self) -> int:
        return min(self.config.batch_size, self.config.max_request_size - REQUEST_OVERHEAD)

    def _begin(self, partition: PartitionProducer, builder: BatchBuilder, opened: float | None = None) -> Batch:
        if opened is None:
            opened = self._loop.time()
        else:
            self._is_ordered = False  # it has less time left than those begun before it
        batch = Batch(*partition.topic_partition, builder, opened, opened + self.config.delivery_timeout)
        self._register(batch, partition)
        partition.open = batch
        return batch

    def _new_builder(self, max_size: int, ratio: float = 1.0) -> BatchBuilder:
        config = self.config
        return BatchBuilder(Compression.parse(config.compression), config.compression_level, max_size, ratio)

    def learn_ratio(self, batch: Batch) -> None:
        """Take from a built batch what compression leaves of its records, so that the next ones fill up.

        Batches that compress worse than expected come out too large, those that compress better only too small: so the
        estimate rises at once and falls slowly.
        """
        measured = batch.builder.size / batch.builder.uncompressed_size
        self._ratio = min(1.0, max(measured, self._ratio - RATIO_STEP, SMALLEST_RATIO))

    def _register(self, batch: Batch, partition: PartitionProducer) -> None:
        self.unsettled[batch] = None
        self._owners[batch] = partition
        if self._expiry is not None and batch.deadline < self._expiry.when():
            self._expiry.cancel()
            self._expiry = None
        if self._expiry is None:
            self._expiry = self._later(batch.deadline, self._expire)

    def _turn_is_over(self) -> None:
        opened, self._opened_this_turn = self._opened_this_turn, []
        for partition, batch in opened:
            self._lingered(partition, batch)

    def _lingered(self, partition: PartitionProducer, batch: Batch) -> None:
        if partition.open is batch:
            batch.due = True
            self.offer(partition)

    def flush(self) -> None:
        """Let no open batch wait for company."""
        for partition in self._owners.values():
            if partition.open is not None:
                partition.open.due = True
                self.offer(partition)

    # What brokers have to do.

    def sealed(self, batch: Batch) -> None:
        """A batch takes no more records: from now until it is settled it is a load on the leader of this moment."""
        partition = self._owners.get(batch)
        if partition is not None and partition.broker is not None:
            batch.queued_for, batch.queued_bytes = partition.broker, batch.builder.size
            self._queued[partition.broker] = self._queued.get(partition.broker, 0) + batch.queued_bytes

    def queued(self, node_id: int) -> int:
        """Bytes of closed batches that wait for the broker, or for its answer."""
        return self._queued.get(node_id, 0)

    def is_reachable(self, node_id: int) -> bool:
        """False while connections to the broker fail."""
        broker = self._brokers.get(node_id)
        return broker is None or broker.is_reachable

    def broker_metrics(self) -> dict[int, BrokerMetrics]:
        """A snapshot of each broker that anything was sent to."""
        return {node_id: broker.metrics(self.queued(node_id)) for node_id, broker in self._brokers.items()}

    def keep_brokers(self, listed: Container[int]) -> None:
        """Forget those that are not listed and have nothing to do; the others may be asked about again later."""
        for node_id, broker in list(self._brokers.items()):
            if node_id not in listed and broker.is_idle and not self.queued(node_id):
                del self._brokers[node_id]
                self._queued.pop(node_id, None)
                self._tasks.pop(node_id).cancel()

    # Partitions go to brokers.

    def offer(self, partition: PartitionProducer) -> None:
        """Put a partition that has something to send into the queue of its leader."""
        if partition.is_ready and partition.broker is not None:
            broker = self._brokers.get(partition.broker)
            if broker is None:
                broker = self._brokers[partition.broker] = BrokerProducer(partition.broker, self)
                self._tasks[partition.broker] = self._spawn(broker)
            broker.offer(partition)

    def offer_all(self) -> None:
        """Offer whatever is ready: something that all partitions waited for is there."""
        for partition in set(self._owners.values()):
            self.offer(partition)

    def act(self, partition: PartitionProducer, following: Next) -> None:
        """Do what a partition has decided."""
        if following is Next.OFFER:
            self.offer(partition)
        elif following is Next.RESUME:
            self._resume(partition)
        elif following is Next.PAUSE:
            pause = partition.pause()
            if pause <= 0:
                self._resume(partition)
            else:
                self._pauses[partition] = self._later(self._loop.time() + pause, self._resume, partition)

    def _resume(self, partition: PartitionProducer) -> None:
        timer = self._pauses.pop(partition, None)
        if timer is not None:
            timer.cancel()
        self.act(partition, partition.backed_off())
        if partition.leader is None and partition.has_batches:
            self.client.request_refresh([partition.topic_partition.topic])

    def view_changed(self, view: ClusterView, partitions: Iterable[PartitionProducer]) -> None:
        """Tell the partitions of a topic who leads them now."""
        for partition in partitions:
            leader = view.leader_of(partition.topic_partition)
            known = view.partition(partition.topic_partition)
            epoch = None if known is None else known.leader_epoch
            self.act(partition, partition.led_by(None if leader is None else leader.node_id, epoch))

    def unreachable(self, partition: PartitionProducer, error: KafkaError) -> None:
        """The leader of a partition cannot be reached; where it does not accept who we are, waiting is of no use."""
        self.client.request_refresh()
        if not is_retriable(error):
            batches = [*partition.sent, *partition.unsent, *([partition.open] if partition.open is not None else [])]
            for batch in batches:
                partition.expired(batch)
                self._fail(batch, error)
        self.act(partition, partition.unreachable(error))

    # Answers come back.

    def answered(
        self,
        parcel: Parcel,
        answer: ProduceResponsePartition,
        endpoints: Collection[ProduceResponseNodeEndpoint],
        peer: object,
    ) -> None:
        """A broker's answer for one batch."""
        partition, batch = parcel
        code = ErrorCode.of(answer.error_code)
        # Blaming what is not in the batch blames nothing: left as it is, and sent again, it would be so for ever.
        blamed = {
            error.batch_index: error.batch_index_error_message
            for error in answer.record_errors
            if 0 <= error.batch_index < batch.count
        }
        idempotent = partition.identity is not None
        verdict = judge(code, count=batch.count, blamed=len(blamed), idempotent=idempotent)
        if verdict is Verdict.DELIVERED:
            self.delivered(parcel, self._offset_told(parcel, answer, peer), answer.log_append_time_ms)
            return
        if batch.written and verdict not in (Verdict.RETRY, Verdict.FATAL):
            # The broker only fails to remember it. Sent again under other numbers it would be there twice.
            self.delivered(parcel, UNKNOWN_OFFSET, -1)
            return
        what = f"writing {batch.count} records to {partition.topic_partition} on {peer}"
        error = error_for(answer.error_code, f"{what}: {answer.error_message}" if answer.error_message else what)
        if verdict is Verdict.RETRY or verdict is Verdict.UNKNOWN_SEQUENCE:
            if code.stale_metadata and not self._leader_told(partition, answer, endpoints):
                self.client.request_refresh()
            self.retry(parcel, error, unknown_sequence=verdict is Verdict.UNKNOWN_SEQUENCE)
        elif verdict is Verdict.OUTDATED_EPOCH:
            self._begin_under_another_id(parcel, error)
        elif verdict is Verdict.SPLIT:
            self._split(parcel)
        elif verdict is Verdict.PARTLY:
            self._leave_out(parcel, blamed, answer.error_code, what)
        elif verdict is Verdict.FATAL:
            self.refuse(parcel, error)
            self.fail_all(error, fatal=True)
        else:
            self.refuse(parcel, error)

    def delivered(self, parcel: Parcel, base_offset: int, log_append_time: int) -> None:
        """The broker has a batch."""
        partition, batch = parcel
        following = partition.delivered(batch)
        if self._held_up or self._late:
            self._goes_on(partition)
        if not batch.settled:
            self._forget(batch)
            self.counters.records_delivered += batch.count
            batch.deliver(base_offset, log_append_time)
        self.act(partition, following)

    def retry(self, parcel: Parcel, error: Exception, *, unknown_sequence: bool = False) -> None:
        """A batch has to be sent again."""
        partition, batch = parcel
        self.counters.retries += 1
        self._held_up.add(partition.topic_partition)
        level = logging.INFO if self.client.outages.failed(_PLACE, error) else logging.DEBUG
        logger.log(level, "%r is sent again: %s", batch, error)
        self.act(partition, partition.failed(batch, error, unknown_sequence=unknown_sequence))

    def _goes_on(self, partition: PartitionProducer) -> None:
        """One trouble for all partitions, as a broker that is down is that of each which it leads."""
        self._held_up.discard(partition.topic_partition)
        spell = None if self._held_up else self.client.outages.over(_PLACE)
        if spell is not None:
            logger.info("batches are written again without a retry, after %s", spell)
        self._late.discard(partition.topic_partition)
        if not self._late:
            self._lateness.over()

    def refuse(self, parcel: Parcel, error: Exception) -> None:
        """A batch is given up, as sending it again would not help."""
        partition, batch = parcel
        following = partition.refused(batch)
        self._fail(batch, error)
        self.act(partition, following)

    def _offset_told(self, parcel: Parcel, answer: ProduceResponsePartition, peer: object) -> int:
        """Where a batch is. An answer without an error that does not tell is no reason to write the batch again."""
        if answer.error_code:
            return UNKNOWN_OFFSET
        if answer.base_offset < 0:
            error = ProtocolError(f"{parcel.batch!r} is written, it says, at offset {answer.base_offset}")
            if self.client.outages.failed(f"offsets that {peer!r} answers", error):
                logger.warning("%r: %s; not logged again", peer, error)
            return UNKNOWN_OFFSET
        return answer.base_offset

    def _begin_under_another_id(self, parcel: Parcel, error: KafkaError) -> None:
        partition, batch = parcel
        if not batch.settled and batch.uncertain:
            partition.expired(batch)
            self._fail(batch, error)
        else:
            self.counters.retries += 1
        level = logging.WARNING if partition.state.name == "OPEN" else logging.DEBUG
        logger.log(level, "%r: %s; another producer id is asked for", batch, error)
        self.act(partition, partition.outdated(batch, error))

    def _leader_told(
        self,
        partition: PartitionProducer,
        answer: ProduceResponsePartition,
        endpoints: Collection[ProduceResponseNodeEndpoint],
    ) -> bool:
        """Take the answer's hint at the leader (KIP-951); whether it gave one."""
        hint = answer.current_leader
        if hint.leader_id < 0 or hint.leader_epoch < 0:
            return False
        news = self.client.update_leader(partition.topic_partition, hint.leader_id, hint.leader_epoch, endpoints)
        return news or partition.leader == hint.leader_id

    # A batch turns into others.

    def _split(self, parcel: Parcel) -> None:
        """Send a batch that was too large as two (KIP-126); each of them may come to be split again."""
        partition, batch = parcel
        if batch.settled:
            self.act(partition, partition.split(batch, []))
            return
        error = error_for(ErrorCode.MESSAGE_TOO_LARGE, f"{batch!r} is larger than the broker takes and is split")
        if self.client.outages.failed(f"batches for topic {batch.topic}", error):
            logger.warning("%s: lower batch_size; not logged again for this topic", error)
        records = _records_of(batch)
        half = len(records) // 2
        self._replace(parcel, [records[:half], records[half:]], {})

    def _leave_out(self, parcel: Parcel, blamed: dict[int, str | None], code: int, what: str) -> None:
        """Fail the records that the broker blames, and send the others again (KIP-467)."""
        partition, batch = parcel
        if batch.settled:
            self.act(partition, partition.split(batch, []))
            return
        failed: dict[int, Fate] = {}
        for index, message in blamed.items():
            failed[index] = fate = Fate(*partition.topic_partition)
            fate.fail(error_for(code, f"{what}: record {index}: {message or 'refused'}"))
        self.counters.records_failed += len(failed)
        records = _records_of(batch)
        self._replace(parcel, [[record for index, record in enumerate(records) if index not in failed]], failed)

    def _replace(self, parcel: Parcel, groups: list[list[HeldRecord]], elsewhere: dict[int, Fate]) -> None:
        """Put batches with the given records in a batch's place; records in ``elsewhere`` are settled already."""
        partition, batch = parcel
        parts: list[Batch] = []
        places: list[tuple[Fate, int]] = []
        for records in groups:
            part = Batch(*partition.topic_partition, self._new_builder(NO_LIMIT), batch.opened, batch.deadline)
            part.last_error = batch.last_error
            for record in records:
                part.builder.append(record.timestamp, record.key, record.value, record.headers)
                places.append((part, part.count - 1))
            parts.append(part)
        for index in sorted(elsewhere):
            places.insert(index, (elsewhere[index], 0))
        following = partition.split(batch, parts)
        # The parts share what the whole held, to the last byte.
        share, rest = divmod(batch.reserved, len(parts))
        for part in parts:
            part.reserved = share
        parts[0].reserved += rest
        batch.reserved = 0
        self._forget(batch)
        for part in parts:
            self._register(part, partition)
        self._in_order_of_deadlines()
        batch.move(places)
        self.act(partition, following)

    def _in_order_of_deadlines(self) -> None:
        ordered = sorted(self.unsettled, key=_deadline)
        self.unsettled = dict.fromkeys(ordered)
        self._is_ordered = True

    # Batches end.

    def hold(self, fate: Fate) -> None:
        """Count records that are not in a batch yet among the unsettled: `flush` waits for them."""
        self.unsettled[fate] = None

    def let_go(self, fate: Fate) -> None:
        """Records that were held are settled, or have moved into batches."""
        self.unsettled.pop(fate, None)

    def _fail(self, batch: Batch, error: Exception, loss: Loss | Lateness | None = None) -> None:
        """Give a batch up. One that is proven written has succeeded for all that; only its place was never told."""
        if batch.settled:
            return
        self._forget(batch)
        if batch.written:
            self.counters.records_delivered += batch.count
            batch.deliver(UNKNOWN_OFFSET)
        else:
            self.counters.records_failed += batch.count
            batch.fail(error, loss)

    def _forget(self, batch: Batch) -> None:
        self.unsettled.pop(batch, None)
        self._owners.pop(batch, None)
        if batch.timer is not None:
            batch.timer.cancel()
            batch.timer = None
        if batch.reserved:
            self._budget.release(batch.reserved)
            batch.reserved = 0
        if batch.queued_for is not None:
            self._queued[batch.queued_for] -= batch.queued_bytes
            batch.queued_for = None

    def _expire(self) -> None:
        """Give up the batches whose time is over, in flight or not."""
        now = self._loop.time()
        self._expiry = None
        if not self._is_ordered:
            self._in_order_of_deadlines()
        due: list[Batch] = []
        for batch in self.unsettled:
            if not isinstance(batch, Batch):
                continue  # records held for their topic have a deadline of their own
            if batch.deadline > now:
                self._expiry = self._later(batch.deadline, self._expire)
                break
            due.append(batch)
        for batch in due:
            partition = self._owners[batch]
            following = partition.expired(batch)
            self._late.add(partition.topic_partition)
            self._fail(batch, self._too_late(partition, batch, now), self._lateness)
            self.act(partition, following)

    def _too_late(self, partition: PartitionProducer, batch: Batch, now: float) -> KafkaTimeout:
        error = KafkaTimeout(
            f"{batch.count} records for {partition.topic_partition} were not acknowledged within"
            f" delivery_timeout={self.config.delivery_timeout:g} s, after {now - batch.opened:.1f} s and"
            f" {batch.attempts} attempts: {self._why_late(partition, batch)}"
        )
        error.__cause__ = batch.last_error
        return error

    def _why_late(self, partition: PartitionProducer, batch: Batch) -> str:
        reasons: list[str] = []
        if partition.leader is None:
            topic = self.client.view.topics.get(batch.topic)
            in_error = topic is not None and topic.error is not ErrorCode.NONE
            reasons.append(f"the topic is in error {topic.error.name}" if topic and in_error else "there is no leader")
        if batch.last_error is not None:
            reasons.append(f"last error: {batch.last_error}")
        elif batch.attempts:
            reasons.append("the broker did not answer")
        return (
            "; ".join(reasons) or "it was not sent, as earlier batches, a connection or a producer id were waited for"
        )

    def give_up(self, partition: PartitionProducer, error: Exception) -> None:
        """Fail what a partition has; there is none of its number any more."""
        batches = [batch for batch, owner in self._owners.items() if owner is partition]
        partition.abandon()
        partition.retire()
        for batch in batches:
            self._fail(batch, error)

    def fail_all(self, error: Exception, *, fatal: bool = False, loss: Loss | None = None) -> None:
        """Give up every batch. ``fatal``: and every record that is still to come. ``loss`` may have more in it."""
        loss = Loss(error) if loss is None else loss
        if fatal and isinstance(error, KafkaError) and self.fatal is None:
            self.fatal = error
            logger.error("the producer can write no more: %s", error)
        for partition in dict.fromkeys(self._owners.values()):
            partition.abandon()
        for batch in list(self._owners):
            self._fail(batch, error, loss)

    def stop(self) -> None:
        """Cancel all timers; nothing will be sent any more, and answers that still come are ignored."""
        self.stopped = True
        self._lateness.over()
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        for timer in self._pauses.values():
            timer.cancel()
        self._pauses.clear()


def _deadline(fate: Fate) -> float:
    return fate.deadline if isinstance(fate, Batch) else float("-inf")


def _records_of(batch: Batch) -> list[HeldRecord]:
    """The records of a batch, read back from its bytes: Python objects are not kept for a case this rare."""
    columns = RecordBatch(batch.encode()).columns(NO_LIMIT)
    rows = zip(columns.timestamps, columns.keys, columns.values, columns.headers)
    return [HeldRecord(batch.topic, key, value, headers, None, timestamp, 0) for timestamp, key, value, headers in rows]
