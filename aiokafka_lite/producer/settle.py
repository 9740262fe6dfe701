"""Settles batches: delivers, replaces, fails or expires each. ``answers`` decides which, from the broker's answer.

Rule 1: ``Settlement`` owns the set of unsettled batches, and is the only writer of a batch's result. ``register`` adds
a batch with its first record. ``deliver`` or ``fail`` removes the batch, and releases its bytes of ``buffer_memory``.
``replace`` removes the batch too, but its parts keep the bytes.

Rule 1a: every promise of the producer is in ``unsettled`` from its first record until it is settled, pending records
included. So ``end`` is the one place that settles whatever is open, whichever component has failed, and in whatever
step.

Rule 2: batches expire in the order in which they were begun, so one timer is enough. Only pending records
  (``is_ordered``) and split batches can change that order, and the set is sorted then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import NamedTuple

from ..aio.byte_budget import ByteBudget
from ..arguments import plural
from ..cluster.client import Client
from ..errors import ErrorCode, KafkaError, KafkaTimeout
from ..net.connection import Purpose
from ..types import TopicPartition
from .batch import ProducerBatch
from .counters import ProducerCounters
from .delivery import UNKNOWN_OFFSET, BatchResult, ExpiryLog, FailureLog
from .dispatch import Dispatcher
from .failures import FailureStreams
from .partition import PartitionProducer
from .record import PreparedRecord
from .timers import Timers
from .topic import UNASSIGNED, PendingRecords

logger = logging.getLogger(__name__)


class Parts(NamedTuple):
    """The batches that replace a batch, and the new place of each of its records."""

    batches: list[ProducerBatch]
    places: list[tuple[BatchResult, int]]


class Settlement:
    """Owns the unsettled batches of a producer.

    ``fatal`` is the error that ended the producer. ``expiring``: partitions whose last settled batch had expired.
    """

    def __init__(
        self,
        client: Client,
        budget: ByteBudget,
        dispatcher: Dispatcher,
        timers: Timers,
        counters: ProducerCounters,
        failures: FailureStreams,
    ) -> None:
        self.fatal: KafkaError | None = None
        self.unsettled: dict[BatchResult, None] = {}  # in the order of their deadlines if ``_is_ordered``
        self.expiring: set[TopicPartition] = set()
        self._client = client
        self._budget = budget
        self._dispatcher = dispatcher
        self._timers = timers
        self._counters = counters
        self._failures = failures
        self._partitions: dict[ProducerBatch, PartitionProducer] = {}
        self._expiry: asyncio.TimerHandle | None = None
        self._is_ordered = True
        self._expiry_log = ExpiryLog()

    # New batches.

    def register(self, batch: ProducerBatch, partition: PartitionProducer, *, is_ordered: bool = True) -> None:
        """Add a new batch. ``is_ordered`` is False if an earlier batch may expire after this batch."""
        assert batch not in self.unsettled, "a batch has one owner, and is registered once"
        self._is_ordered = self._is_ordered and is_ordered
        self.unsettled[batch] = None
        self._partitions[batch] = partition
        # The timer belongs to the earliest deadline. Setting it again for each batch would cost more than the batch.
        if self._expiry is not None:
            if batch.deadline >= self._expiry.when():
                return
            self._expiry.cancel()
        self._expiry = self._timers.at(batch.deadline, self._expire)

    def add_pending(self, records: BatchResult) -> None:
        """Count records that are in no batch yet among the unsettled ones, so that a flush waits for them."""
        self.unsettled[records] = None

    def remove_pending(self, records: BatchResult) -> None:
        """Remove pending records that have failed, or have moved into batches."""
        self.unsettled.pop(records, None)

    def fail_pending(self, pending: PendingRecords, error: Exception, log: FailureLog | None) -> None:
        """Fail the pending records that have not moved into batches."""
        records = list(pending.records)
        self.remove_pending(pending)
        self._release_failed(records)
        self._failures.records_failed(records, pending.fail_rest(error, log))

    def fail_record(self, record: PreparedRecord, error: Exception, log: FailureLog | None = None) -> BatchResult:
        """Fail a single record that is in no batch. Returns its result."""
        failed = BatchResult(record.topic, UNASSIGNED)
        self._release_failed([record])
        failed.fail(error, log)
        self._failures.records_failed([record], failed)
        return failed

    def _release_failed(self, records: Sequence[PreparedRecord]) -> None:
        # Released before the result is set, as in ``deliver``.
        self._budget.release(sum([record.size for record in records]))
        self._counters.records_failed += len(records)

    def partitions(self) -> list[PartitionProducer]:
        """Return the partitions that have unsettled batches."""
        return list(dict.fromkeys(self._partitions.values()))

    # Settled batches.

    def deliver(
        self, batch: ProducerBatch, base_offset: int, log_append_time: int = -1, log_start_offset: int = -1
    ) -> None:
        """Deliver a batch that is written. The arguments are as in ``Answers.delivered``."""
        self._remove(batch)
        # Released before the result is set: a callback of a delivery may send again at once, and needs this room.
        self._budget.release(batch.reserved)
        self._counters.records_delivered += batch.builder.count
        # Deliveries that a caller keeps refer to the batch. They must not keep its bytes, which no longer count in
        # ``buffer_memory``.
        batch.builder.drop()
        batch.deliver(base_offset, log_append_time, log_start_offset)

    def fail(self, batch: ProducerBatch, error: Exception, log: FailureLog | ExpiryLog | None = None) -> None:
        """Fail a batch. A batch that is proven written is delivered instead, without an offset."""
        if batch.settled:
            return
        # The record is in the log. An error would make the caller send it again.
        if batch.is_written:
            self.deliver(batch, UNKNOWN_OFFSET, -1)
            return
        self._remove(batch)
        self._budget.release(batch.reserved)
        self._counters.records_failed += batch.count
        # The builder keeps its bytes, unlike in ``deliver``, because a stream of failures decodes the records from
        # them.
        batch.fail(error, log)
        self._failures.batch_failed(batch)

    def replace(self, batch: ProducerBatch, partition: PartitionProducer, parts: Parts) -> None:
        """Replace a batch by its parts. They take over its reserved bytes, so nothing is released."""
        self._remove(batch)
        for part in parts.batches:
            self.register(part, partition)
        # The parts have the old deadline, but were registered behind younger batches.
        self._sort()
        batch.move(parts.places)

    def records_refused(self, batch: ProducerBatch, failed: dict[int, BatchResult]) -> None:
        """Count and report the records of a batch that the broker refused. Their results are set."""
        self._counters.records_failed += len(failed)
        self._failures.batch_failed(batch, failed)

    def acknowledged(self, partition: PartitionProducer) -> None:
        """End the log of expired batches when each of its partitions has an acknowledgement again."""
        self.expiring.discard(partition.topic_partition)
        if not self.expiring:
            self._expiry_log.finish()

    def _remove(self, batch: ProducerBatch) -> None:
        assert batch in self.unsettled, "every promise is in unsettled until it is settled"
        del self.unsettled[batch], self._partitions[batch]

    def fail_partition(self, partition: PartitionProducer, error: Exception) -> None:
        """Fail all batches of a partition that no longer exists."""
        # Listed before ``abandon`` empties the partition. A linear search is sufficient, because partitions are rarely
        # deleted.
        batches = [batch for batch, owner in self._partitions.items() if owner is partition]
        partition.abandon()
        partition.retire()
        for batch in batches:
            self.fail(batch, error)

    def fail_unsent(self, error: Exception, log: FailureLog) -> None:
        """Fail the batches that no request has carried yet: no broker can have them."""
        for batch, partition in list(self._partitions.items()):
            if not batch.attempts:
                partition.expired(batch)
                self.fail(batch, error, log)

    def fail_all(self, error: Exception, *, fatal: bool = False, log: FailureLog | None = None) -> None:
        """Fail every batch. ``fatal``: the producer writes no more records, because of this error.

        ``log`` is the failure log, which other records may use too.
        """
        reserved = sum([batch.reserved for batch in self._partitions])
        assert reserved <= self._budget.used, "the bytes of each unsettled batch are taken from buffer_memory"
        log = FailureLog(error) if log is None else log
        if fatal and isinstance(error, KafkaError) and self.fatal is None:
            self.fatal = error
            logger.error("the producer fails every record from now on: %s", error)
        # All partitions are emptied before the first caller wakes up, so that its next call does not find a part of the
        # old state.
        for partition in self.partitions():
            partition.abandon()
        for batch in list(self._partitions):
            self.fail(batch, error, log)

    def end(self, error: Exception, log: FailureLog) -> None:
        """Fail every promise that is open, because the producer has ended. ``Admission`` refuses new records."""
        self._expiry_log.finish()
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        self.fail_all(error, log=log)
        for result in list(self.unsettled):
            assert isinstance(result, PendingRecords), "fail_all has failed all batches"
            self.fail_pending(result, error, log)
        assert not self.unsettled, "every promise is settled when the producer has ended"

    # Expiry.

    def _expire(self) -> None:
        """Fail the batches whose ``delivery_timeout`` has ended, even if their requests are in flight."""
        now = self._timers.now()
        # The timer has fired. It is reset, so that ``register`` sets a new one when the caller of a failing batch sends
        # again.
        self._expiry = None
        if not self._is_ordered:
            self._sort()
        due: list[ProducerBatch] = []
        for batch in self.unsettled:
            if not isinstance(batch, ProducerBatch):
                continue  # pending records have a timeout of their own
            if batch.deadline > now:
                self._expiry = self._timers.at(batch.deadline, self._expire)
                break
            due.append(batch)
        # In two passes, because failing a batch changes ``unsettled`` and may run code of the user.
        for batch in due:
            partition = self._partitions[batch]
            following = partition.expired(batch)
            self.expiring.add(partition.topic_partition)
            age, timeout = now - batch.opened, batch.deadline - batch.opened
            self.fail(batch, _expired_error(partition, batch, age, timeout, self._client), self._expiry_log)
            self._dispatcher.act(partition, following)

    def _sort(self) -> None:
        self.unsettled = dict.fromkeys(sorted(self.unsettled, key=_deadline))
        self._is_ordered = True


def _deadline(result: BatchResult) -> float:
    # Pending records come first. ``_expire`` skips them, and stops at the first batch that is not due.
    return result.deadline if isinstance(result, ProducerBatch) else float("-inf")


def _expired_error(
    partition: PartitionProducer, batch: ProducerBatch, age: float, timeout: float, client: Client
) -> KafkaTimeout:
    error = KafkaTimeout(
        f"no acknowledgement of {plural(batch.count, 'record')} for {partition.topic_partition} within"
        f" delivery_timeout={timeout:g} s, after {age:.1f} s and {plural(batch.attempts, 'attempt')}:"
        f" {_why_expired(partition, batch, client)}"
    )
    error.__cause__ = batch.last_error
    return error


def _why_expired(partition: PartitionProducer, batch: ProducerBatch, client: Client) -> str:
    reasons: list[str] = []
    if partition.leader is None:
        topic = client.view.topics.get(batch.topic)
        in_error = topic is not None and topic.error is not ErrorCode.NONE
        reasons.append(f"the topic has error {topic.error.name}" if topic and in_error else "there is no leader")
    for broker in client.brokers:
        connection = broker.ready_connection(Purpose.PRODUCE)
        if broker.node.node_id == partition.leader and connection is not None and connection.throttled_until:
            reasons.append(f"{connection.peer} throttles this client, whose quota is used up")
    if batch.last_error is not None:
        reasons.append(f"last error: {batch.last_error}")
    elif batch.attempts:
        reasons.append("the broker did not answer")
    return "; ".join(reasons) or "it was not sent: earlier batches, a connection or a producer id were not ready"
