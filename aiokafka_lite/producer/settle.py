"""Settles batches: classifies an answer, and delivers, retries, splits, fails or expires the batch.

Rule 1: ``Settlement`` owns the set of unsettled batches, and is the only writer of a batch's result. A batch enters it
by ``register`` with its first record and leaves it once, by ``_deliver``, ``_fail`` or ``_replace``; then its bytes of
``buffer_memory`` are released.

Rule 2: the partition handles an event first and decides the next action (``Next``). Then the result is set, which wakes
  the callers. Then the ``Dispatcher`` performs the action. A caller that wakes up can send again at once, so the
  partition must be consistent before that.

Rule 3: a batch may expire while a request carries it. Its answer still arrives, and only ends the request.

Invariants that once broke:

 - A batch that is proven written (``is_written``) is delivered without an offset, even if the broker answers with an
   error later, because the broker has only forgotten it. With other sequence numbers it would be written twice.
 - An answer may name records that the batch does not have. If these were not ignored, the batch would be sent again
   unchanged, without an end.
 - Batches expire in the order in which they were begun, so one timer is enough. Only pending records (``is_ordered``)
   and split batches can change that order, and the set is sorted then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from typing import NamedTuple

from ..aio.byte_budget import ByteBudget
from ..aio.retry import is_retriable
from ..arguments import INT64_MAX, plural
from ..cluster.client import Client
from ..config import ProducerConfig
from ..errors import BrokerError, ErrorCode, KafkaError, KafkaTimeout, ProtocolError, error_for
from ..net.connection import Purpose
from ..protocol.messages import ProduceResponseNodeEndpoint, ProduceResponsePartition
from ..types import TopicPartition
from .batch import Batch, BatchFactory
from .counters import Counters
from .delivery import UNKNOWN_OFFSET, BatchResult, ExpiryLog, FailureLog
from .dispatch import Dispatcher
from .failures import FailureStreams
from .outcome import FENCED, Outcome, classify
from .partition import PartitionProducer, PartitionState
from .split import Parts, halves, without
from .timers import Timers

logger = logging.getLogger(__name__)

_PLACE = "writing"
"""The name under which failed attempts are counted as an outage."""


class InFlightBatch(NamedTuple):
    """A batch that a request carries, and the partition that waits for the answer."""

    partition: PartitionProducer
    batch: Batch


class Settlement:
    """Owns the unsettled batches of a producer.

    ``fatal`` is the error that ended the producer. ``refusal`` is the error with which new records are refused: the
    same error or, with transactions, the reason why none is open. ``transaction`` is the number of the last
    transaction.
    """

    def __init__(
        self,
        client: Client,
        budget: ByteBudget,
        batches: BatchFactory,
        dispatcher: Dispatcher,
        timers: Timers,
        counters: Counters,
        config: ProducerConfig,
        failures: FailureStreams,
    ) -> None:
        self.fatal: KafkaError | None = None
        self.refusal: KafkaError | None = None
        self.transaction = 0
        self.unsettled: dict[BatchResult, None] = {}  # in the order of their deadlines if ``_is_ordered``
        self._client = client
        self._budget = budget
        self._batches = batches
        self._dispatcher = dispatcher
        self._timers = timers
        self._counters = counters
        self._failures = failures
        self._delivery_timeout = config.delivery_timeout
        self._retries = config.retries
        self._transactional_id = config.transactional_id
        self._transaction_timeout = config.transaction_timeout
        self._partitions: dict[Batch, PartitionProducer] = {}
        self._expiry: asyncio.TimerHandle | None = None
        self._is_ordered = True
        self._retrying: set[TopicPartition] = set()  # whether the last answer required another attempt
        self._expiring: set[TopicPartition] = set()  # whether the last settled batch had expired
        self._expiry_log = ExpiryLog()

    # New batches.

    def register(self, batch: Batch, partition: PartitionProducer, *, is_ordered: bool = True) -> None:
        """Add a new batch. ``is_ordered`` is False if an earlier batch may expire after this batch."""
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

    def partitions(self) -> list[PartitionProducer]:
        """The partitions that have unsettled batches."""
        return list(dict.fromkeys(self._partitions.values()))

    # Answers.

    def answered(
        self,
        in_flight: InFlightBatch,
        answer: ProduceResponsePartition,
        endpoints: Collection[ProduceResponseNodeEndpoint],
        peer: object,
    ) -> None:
        """Handle the answer of a broker for one batch."""
        partition, batch = in_flight
        code = ErrorCode.of(answer.error_code)
        if code is ErrorCode.NONE and 0 <= answer.base_offset <= INT64_MAX - batch.builder.count:
            self.delivered(in_flight, answer.base_offset, answer.log_append_time_ms, answer.log_start_offset)
            return
        # Indexes that the batch does not have are ignored; see the invariants above.
        refused = {
            error.batch_index: error.batch_index_error_message
            for error in answer.record_errors
            if 0 <= error.batch_index < batch.count
        }
        idempotent = partition.identity is not None
        outcome = classify(
            code,
            count=batch.count,
            refused=len(refused),
            idempotent=idempotent,
            transactional=self._transactional_id is not None,
        )
        # A transaction has one epoch, so a gap in the sequence of its first batch can only end the transaction.
        if outcome is Outcome.UNKNOWN_SEQUENCE and self._transactional_id and partition.is_first(batch):
            outcome = Outcome.REFUSED
        if outcome is Outcome.DELIVERED:
            self._note_missing_offset(in_flight, answer, peer)
            self.delivered(in_flight, UNKNOWN_OFFSET, answer.log_append_time_ms, answer.log_start_offset)
            return
        # After RETRY, a later attempt may still return the batch's offset. FATAL has to end the producer, and ``_fail``
        # still delivers a written batch.
        if batch.is_written and outcome not in (Outcome.RETRY, Outcome.FATAL):
            self.delivered(in_flight, UNKNOWN_OFFSET)
            return
        attempt = f"writing {plural(batch.count, 'record')} to {partition.topic_partition} on {peer}"
        error = self._error(code, answer, attempt)
        if outcome in (Outcome.RETRY, Outcome.UNKNOWN_SEQUENCE):
            # If the answer names the new leader, no request for metadata is necessary.
            if code.stale_metadata and not self._take_leader_hint(partition, answer, endpoints):
                self._client.request_refresh()
            self.retry(in_flight, error, unknown_sequence=outcome is Outcome.UNKNOWN_SEQUENCE)
        elif outcome is Outcome.OUTDATED_EPOCH:
            self._use_another_producer_id(in_flight, error)
        elif outcome is Outcome.SPLIT:
            self._split(in_flight)
        elif outcome is Outcome.SOME_REFUSED:
            self._refuse_records(in_flight, refused, answer.error_code, attempt)
        elif outcome is Outcome.FATAL:
            self.refuse(in_flight, error)
            self.fail_all(error, fatal=True)
        else:
            self.refuse(in_flight, error)

    def delivered(
        self, in_flight: InFlightBatch, base_offset: int, log_append_time: int = -1, log_start_offset: int = -1
    ) -> None:
        """Deliver a batch that the broker has written.

        ``log_append_time`` is in milliseconds, -1 if the broker sets none; ``log_start_offset`` is -1 if it is not
        known.
        """
        partition, batch = in_flight
        following = partition.delivered(batch)
        # Hot: without an outage, a delivered batch needs only two checks of empty sets.
        if self._retrying or self._expiring:
            self._recovered(partition)
        # An expired batch has failed already, and its caller may have sent the record again. The result is final.
        if not batch.settled:
            self._deliver(batch, base_offset, log_append_time, log_start_offset)
        self._dispatcher.act(partition, following)

    def retry(self, in_flight: InFlightBatch, error: Exception, *, unknown_sequence: bool = False) -> None:
        """Send a batch again. If all its ``retries`` are used up, it fails instead."""
        partition, batch = in_flight
        if batch.attempts > self._retries and not batch.settled:
            # The batch is dropped like an expired batch: it may be written, so its sequence numbers are a gap. The
            # partition backs off as after any failure, because the broker may also fail the next batches.
            partition.expired(batch)
            self._fail(batch, error)
            self._dispatcher.act(partition, partition.failed(batch, error))
            return
        self._counters.retries += 1
        self._retrying.add(partition.topic_partition)
        # INFO, not WARNING: a moved leader causes retries in every rolling restart, and no operator has to act.
        self._client.outages.report(logger, _PLACE, error, "retrying %r: %s", batch, error, level=logging.INFO)
        self._dispatcher.act(partition, partition.failed(batch, error, unknown_sequence=unknown_sequence))

    def refuse(self, in_flight: InFlightBatch, error: Exception) -> None:
        """Fail a batch, because another attempt would fail as well."""
        partition, batch = in_flight
        # The partition comes first (rule 2): ``_fail`` wakes the caller, which may send to this partition at once.
        following = partition.refused(batch)
        self._fail(batch, error)
        self._dispatcher.act(partition, following)

    def unreachable(self, partition: PartitionProducer, error: KafkaError) -> None:
        """Handle an unreachable leader of a partition. The batches wait, unless the error is not retriable.

        An error answer during the handshake is retried with any code, as in Java's client: the
        batches were not sent, and ``delivery_timeout`` bounds the attempts.
        """
        self._client.request_refresh()
        if not is_retriable(error) and not isinstance(error, BrokerError):
            # Batches in flight fail as well, because they have no answer either when a connection is finally refused.
            for batch in partition.batches:
                partition.expired(batch)
                self._fail(batch, error)
        self._dispatcher.act(partition, partition.unreachable(error))

    def _recovered(self, partition: PartitionProducer) -> None:
        """End the outage. All partitions share one, because a broker that is down affects all that it leads."""
        self._retrying.discard(partition.topic_partition)
        if not self._retrying:
            self._client.outages.recovered(logger, _PLACE, "batches are written without a retry")
        self._expiring.discard(partition.topic_partition)
        if not self._expiring:
            self._expiry_log.finish()

    def _note_missing_offset(self, in_flight: InFlightBatch, answer: ProduceResponsePartition, peer: object) -> None:
        """Log a success with an impossible offset. The batch is not written again."""
        if not answer.error_code:
            error = ProtocolError(f"{peer!r} acknowledged {in_flight.batch!r} at offset {answer.base_offset}")
            self._client.outages.report(
                logger, f"offsets that {peer!r} answers", error, "%s; further cases are logged at DEBUG", error
            )

    def _use_another_producer_id(self, in_flight: InFlightBatch, error: KafkaError) -> None:
        partition, batch = in_flight
        # Under another producer id, the broker could not recognize the batch, and a retry might write it twice. The
        # caller gets an unknown outcome as an error, but could not detect a duplicate.
        if not batch.settled and batch.may_be_written:
            partition.expired(batch)
            self._fail(batch, error)
        else:
            self._counters.retries += 1
        level = logging.WARNING if partition.state is PartitionState.OPEN else logging.DEBUG
        logger.log(level, "requesting another producer id for %r: %s", batch, error)
        self._dispatcher.act(partition, partition.outdated(batch, error))

    def _error(self, code: ErrorCode, answer: ProduceResponsePartition, attempt: str) -> KafkaError:
        if self._transactional_id is not None and code in FENCED:
            from .transaction_requests import write_refused  # imported here, because other producers do not need it

            return write_refused(code, attempt, self._transactional_id, self._transaction_timeout)
        return error_for(answer.error_code, f"{attempt}: {answer.error_message}" if answer.error_message else attempt)

    def _take_leader_hint(
        self,
        partition: PartitionProducer,
        answer: ProduceResponsePartition,
        endpoints: Collection[ProduceResponseNodeEndpoint],
    ) -> bool:
        """Take the leader that the answer names (KIP-951). Returns whether it names one."""
        hint = answer.current_leader
        if hint.leader_id < 0 or hint.leader_epoch < 0:
            return False
        news = self._client.update_leader(partition.topic_partition, hint.leader_id, hint.leader_epoch, endpoints)
        # If metadata is already newer than the hint, no refresh is necessary either.
        return news or partition.leader == hint.leader_id

    # Batches that are replaced by others.

    def _split(self, in_flight: InFlightBatch) -> None:
        partition, batch = in_flight
        if batch.settled:
            self._dispatcher.act(partition, partition.split(batch, []))
            return
        # One outage per topic, not per batch: the setting is wrong for all of them.
        error = error_for(ErrorCode.MESSAGE_TOO_LARGE, f"splitting {batch!r}, which is too large for the broker")
        advice = "%s; lower batch_size; further cases for this topic are logged at DEBUG"
        self._client.outages.report(logger, f"batches for topic {batch.topic}", error, advice, error)
        self._replace(in_flight, halves(batch, self._batches))

    def _refuse_records(
        self, in_flight: InFlightBatch, refused: dict[int, str | None], code: int, attempt: str
    ) -> None:
        """Fail the records that the broker names, and send all other records again (KIP-467)."""
        partition, batch = in_flight
        if batch.settled:
            self._dispatcher.act(partition, partition.split(batch, []))
            return
        failed: dict[int, BatchResult] = {}
        for index, message in refused.items():
            failed[index] = result = BatchResult(batch.topic, batch.partition)
            result.fail(error_for(code, f"{attempt}: record {index}: {message or 'refused'}"))
        self._counters.records_failed += len(failed)
        self._failures.batch_failed(batch, failed)
        self._replace(in_flight, without(batch, self._batches, failed))

    def _replace(self, in_flight: InFlightBatch, parts: Parts) -> None:
        partition, batch = in_flight
        following = partition.split(batch, parts.batches)
        self._remove(batch)
        # The parts now have the bytes of ``reserved``, so nothing is released here.
        for part in parts.batches:
            self.register(part, partition)
        # The parts have the old deadline, but were registered behind younger batches.
        self._sort()
        batch.move(parts.places)
        self._dispatcher.act(partition, following)

    # Settled batches.

    def _deliver(self, batch: Batch, base_offset: int, log_append_time: int = -1, log_start_offset: int = -1) -> None:
        self._remove(batch)
        self._budget.release(batch.reserved)
        self._counters.records_delivered += batch.builder.count
        # Deliveries that a caller keeps refer to the batch. They must not keep its bytes, which no longer count in
        # ``buffer_memory``.
        batch.builder.drop()
        batch.deliver(base_offset, log_append_time, log_start_offset)

    def _fail(self, batch: Batch, error: Exception, log: FailureLog | ExpiryLog | None = None) -> None:
        """Fail a batch. A batch that is proven written is delivered instead, without an offset."""
        if batch.settled:
            return
        # The record is in the log. An error would make the caller send it again.
        if batch.is_written:
            self._deliver(batch, UNKNOWN_OFFSET, -1)
            return
        self._remove(batch)
        self._budget.release(batch.reserved)
        self._counters.records_failed += batch.count
        batch.fail(error, log)
        self._failures.batch_failed(batch)

    def _remove(self, batch: Batch) -> None:
        self.unsettled.pop(batch, None)
        self._partitions.pop(batch, None)

    def fail_partition(self, partition: PartitionProducer, error: Exception) -> None:
        """Fail all batches of a partition that no longer exists."""
        # Listed before ``abandon`` empties the partition. A linear search is sufficient, because partitions are rarely
        # deleted.
        batches = [batch for batch, owner in self._partitions.items() if owner is partition]
        partition.abandon()
        partition.retire()
        for batch in batches:
            self._fail(batch, error)

    def fail_unsent(self, error: Exception, log: FailureLog) -> None:
        """Fail the batches that no request has carried yet: no broker can have them."""
        for batch, partition in list(self._partitions.items()):
            if not batch.attempts:
                partition.expired(batch)
                self._fail(batch, error, log)

    def fail_all(self, error: Exception, *, fatal: bool = False, log: FailureLog | None = None) -> None:
        """Fail every batch; if ``fatal``, later records as well. ``log`` may be shared with other records."""
        log = FailureLog(error) if log is None else log
        if fatal and isinstance(error, KafkaError) and self.fatal is None:
            self.fatal = self.refusal = error
            logger.error("the producer fails every record from now on: %s", error)
        # All partitions are emptied before the first caller wakes up, so that its next call does not find a part of the
        # old state.
        for partition in self.partitions():
            partition.abandon()
        for batch in list(self._partitions):
            self._fail(batch, error, log)

    def stop(self) -> None:
        """Cancel the timer and end the log of expired batches."""
        self._expiry_log.finish()
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None

    # Expiry.

    def _expire(self) -> None:
        """Fail the batches whose ``delivery_timeout`` has ended, even if their requests are in flight."""
        now = self._timers.now()
        # The timer has fired. It is reset, so that ``register`` sets a new one when the caller of a failing batch sends
        # again.
        self._expiry = None
        if not self._is_ordered:
            self._sort()
        due: list[Batch] = []
        for batch in self.unsettled:
            if not isinstance(batch, Batch):
                continue  # pending records have a timeout of their own
            if batch.deadline > now:
                self._expiry = self._timers.at(batch.deadline, self._expire)
                break
            due.append(batch)
        # In two passes, because failing a batch changes ``unsettled`` and may run code of the user.
        for batch in due:
            partition = self._partitions[batch]
            following = partition.expired(batch)
            self._expiring.add(partition.topic_partition)
            age, timeout = now - batch.opened, self._delivery_timeout
            self._fail(batch, _expired_error(partition, batch, age, timeout, self._client), self._expiry_log)
            self._dispatcher.act(partition, following)

    def _sort(self) -> None:
        self.unsettled = dict.fromkeys(sorted(self.unsettled, key=_deadline))
        self._is_ordered = True


def _deadline(result: BatchResult) -> float:
    return result.deadline if isinstance(result, Batch) else float("-inf")


def _expired_error(
    partition: PartitionProducer, batch: Batch, age: float, timeout: float, client: Client
) -> KafkaTimeout:
    error = KafkaTimeout(
        f"no acknowledgement of {plural(batch.count, 'record')} for {partition.topic_partition} within"
        f" delivery_timeout={timeout:g} s, after {age:.1f} s and {plural(batch.attempts, 'attempt')}:"
        f" {_why_expired(partition, batch, client)}"
    )
    error.__cause__ = batch.last_error
    return error


def _why_expired(partition: PartitionProducer, batch: Batch, client: Client) -> str:
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
