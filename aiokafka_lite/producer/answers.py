"""Handles the answers of brokers: classifies each, and has its batch delivered, sent again, split or failed.

Rule 1: the partition handles an event first and decides the next action (``Next``). Then ``Settlement`` sets the
  result, which wakes the callers. Then the ``Dispatcher`` performs the action. A caller that wakes up can send again at
  once, so the partition must be consistent before that.

Rule 2: a batch may expire while a request carries it. The answer then only ends the request.

Invariants that once broke:

 - A batch that is proven written (``is_written``) is delivered without an offset. A later error of the broker changes
   nothing: the broker has only forgotten the batch. With other sequence numbers it would be written twice.
 - An answer may name records that the batch does not have. Such records are ignored. Otherwise the batch would be sent
   again unchanged, forever.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection
from typing import NamedTuple

from ..aio.retry import is_retriable
from ..arguments import INT64_MAX, plural
from ..cluster.client import Client
from ..errors import BrokerError, ErrorCode, KafkaError, ProtocolError, error_for
from ..protocol.messages import ProduceResponseNodeEndpoint, ProduceResponsePartition
from ..settings.producer import ProducerConfig
from ..types import TopicPartition
from .batch import BatchFactories, ProducerBatch
from .counters import ProducerCounters
from .delivery import UNKNOWN_OFFSET, BatchResult
from .dispatch import Dispatcher
from .outcome import FENCED, UNUSABLE_IDS, BatchOutcome, classify, write_refused
from .partition import PartitionProducer
from .settle import Parts, Settlement

logger = logging.getLogger(__name__)

_FORMAT_REFUSED = (ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)

_PLACE = "writing"
"""The name under which failed attempts are counted as an outage."""


class InFlightBatch(NamedTuple):
    """A batch that a request carries, and the partition that waits for the answer."""

    partition: PartitionProducer
    batch: ProducerBatch


class Answers:
    """Handles the answers for all partitions of a producer. Senders call it, and ``settlement`` sets the results."""

    def __init__(
        self,
        client: Client,
        batches: BatchFactories,
        settlement: Settlement,
        dispatcher: Dispatcher,
        counters: ProducerCounters,
        config: ProducerConfig,
    ) -> None:
        self._client = client
        self._batches = batches
        self._settlement = settlement
        self._dispatcher = dispatcher
        self._counters = counters
        self._retries = config.retries
        self._is_idempotent = bool(config.idempotence)
        self._transactional_id = config.transactional_id
        self._transaction_timeout = math.inf if config.two_phase_commit else config.transaction_timeout
        self._retrying: set[TopicPartition] = set()  # partitions whose last answer required another attempt

    def answered(
        self,
        in_flight: InFlightBatch,
        answer: ProduceResponsePartition,
        endpoints: Collection[ProduceResponseNodeEndpoint],
        peer: object,
    ) -> None:
        """Handle the answer of a broker for one batch."""
        batch = in_flight.batch
        code = ErrorCode.of(answer.error_code)
        # An offset outside this range is impossible. The batch is then delivered below, without an offset.
        if code is ErrorCode.NONE and 0 <= answer.base_offset <= INT64_MAX - batch.builder.count:
            self.delivered(in_flight, answer.base_offset, answer.log_append_time_ms, answer.log_start_offset)
            return
        # Indexes that the batch does not have are ignored; see the invariants above.
        refused = {
            error.batch_index: error.batch_index_error_message
            for error in answer.record_errors
            if 0 <= error.batch_index < batch.count
        }
        outcome = self._classified(in_flight, code, len(refused))
        if outcome is BatchOutcome.DELIVERED:
            self._note_missing_offset(in_flight, answer, peer)
            self.delivered(in_flight, UNKNOWN_OFFSET, answer.log_append_time_ms, answer.log_start_offset)
            return
        # After RETRY, a later attempt may still return the batch's offset.
        if batch.is_written and outcome is not BatchOutcome.RETRY:
            self.delivered(in_flight, UNKNOWN_OFFSET)
            return
        attempt = f"writing {plural(batch.count, 'record')} to {in_flight.partition.topic_partition} on {peer}"
        if outcome is BatchOutcome.SPLIT:
            self._split(in_flight)
        elif outcome is BatchOutcome.SOME_REFUSED:
            self._refuse_records(in_flight, refused, answer.error_code, attempt)
        else:
            self._not_written(in_flight, outcome, self._error(code, answer, attempt, batch.topic), answer, endpoints)

    def _classified(self, in_flight: InFlightBatch, code: ErrorCode, refused: int) -> BatchOutcome:
        partition, batch = in_flight
        transactional = self._transactional_id is not None
        idempotent = partition.sequences is not None
        outcome = classify(code, count=batch.count, refused=refused, idempotent=idempotent, transactional=transactional)
        # A transaction has one epoch, so a gap in the sequence of its first batch can only end the transaction.
        if outcome is BatchOutcome.UNKNOWN_SEQUENCE and transactional and partition.is_first(batch):
            return BatchOutcome.REFUSED
        return outcome

    def _not_written(
        self,
        in_flight: InFlightBatch,
        outcome: BatchOutcome,
        error: KafkaError,
        answer: ProduceResponsePartition,
        endpoints: Collection[ProduceResponseNodeEndpoint],
    ) -> None:
        """Send a whole batch again, or fail it."""
        if outcome is BatchOutcome.RETRY or outcome is BatchOutcome.UNKNOWN_SEQUENCE:
            # If the answer names the new leader, no request for metadata is necessary.
            is_stale = ErrorCode.of(answer.error_code).stale_metadata
            if is_stale and not self._take_leader_hint(in_flight.partition, answer, endpoints):
                self._client.request_refresh()
            self.retry(in_flight, error, unknown_sequence=outcome is BatchOutcome.UNKNOWN_SEQUENCE)
        elif outcome is BatchOutcome.UNUSABLE_ID:
            self._use_another_producer_id(in_flight, error)
        else:
            self.refuse(in_flight, error)

    def delivered(
        self, in_flight: InFlightBatch, base_offset: int, log_append_time: int = -1, log_start_offset: int = -1
    ) -> None:
        """Deliver a batch that the broker has written.

        ``log_append_time`` is in milliseconds, -1 if the broker sets none; ``log_start_offset`` is -1 if unknown.
        """
        partition, batch = in_flight
        following = partition.delivered(batch)
        # Hot: without an outage, a delivered batch needs only two checks of empty sets.
        if self._retrying:
            self._recovered(partition)
        if self._settlement.expiring:
            self._settlement.acknowledged(partition)
        # An expired batch has failed already, and its caller may have sent the record again. The result is final.
        if not batch.settled:
            self._settlement.deliver(batch, base_offset, log_append_time, log_start_offset)
        self._dispatcher.act(partition, following)

    def retry(self, in_flight: InFlightBatch, error: Exception, *, unknown_sequence: bool = False) -> None:
        """Send a batch again. If all its ``retries`` are used up, it fails instead."""
        partition, batch = in_flight
        # ``attempts`` includes the first one, which is not a retry.
        if batch.attempts > self._retries and not batch.settled:
            # The batch is dropped like an expired batch: it may be written, so its sequence numbers are a gap. The
            # partition backs off as after any failure, because the broker may also fail the next batches.
            partition.expired(batch)
            self._settlement.fail(batch, error)
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
        # The partition comes first (rule 1): ``fail`` wakes the caller, which may send to this partition at once.
        following = partition.refused(batch)
        self._settlement.fail(batch, error)
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
                self._settlement.fail(batch, error)
        self._dispatcher.act(partition, partition.unreachable(error))

    def _recovered(self, partition: PartitionProducer) -> None:
        """End the outage. All partitions share one outage, because a broker that is down affects all its partitions."""
        self._retrying.discard(partition.topic_partition)
        if not self._retrying:
            self._client.outages.recovered(logger, _PLACE, "brokers write batches again")

    def _note_missing_offset(self, in_flight: InFlightBatch, answer: ProduceResponsePartition, peer: object) -> None:
        """Log a success with an impossible offset. The batch is not written again."""
        if not answer.error_code:
            what = f"{peer!r} acknowledged {in_flight.batch!r} at offset {answer.base_offset}, which is impossible"
            error = ProtocolError(what)
            self._client.outages.report(
                logger, f"offsets that {peer!r} answers", error, "%s; further cases are logged at DEBUG", error
            )

    def _use_another_producer_id(self, in_flight: InFlightBatch, error: KafkaError) -> None:
        partition, batch = in_flight
        # Under another producer id, the broker could not recognize the batch, and a retry might write it twice. The
        # caller gets an unknown outcome as an error, but could not detect a duplicate.
        if not batch.settled and batch.may_be_written:
            partition.expired(batch)
            self._settlement.fail(batch, error)
        else:
            self._counters.retries += 1
        self._retrying.add(partition.topic_partition)
        text = "requesting another producer id for %r: %s"
        self._client.outages.report(logger, _PLACE, error, text, batch, error, level=logging.WARNING)
        self._dispatcher.act(partition, partition.id_refused(batch, error))

    def _error(self, code: ErrorCode, answer: ProduceResponsePartition, attempt: str, topic: str) -> KafkaError:
        if self._transactional_id is not None and code in FENCED:
            return write_refused(code, attempt, self._transactional_id, self._transaction_timeout)
        if self._transactional_id is None and code in UNUSABLE_IDS:
            # Not ``error_for``: no producer has taken over. Brokers explain these codes by a transactional id.
            reason = "the broker refuses this producer's id or its epoch, and the producer continues under another id"
            return BrokerError(code, attempt, reason=reason)
        if advice := self._advice(code, topic):
            return error_for(code, attempt, reason=f"{answer.error_message or code.description}; {advice}")
        return error_for(answer.error_code, f"{attempt}: {answer.error_message}" if answer.error_message else attempt)

    def _advice(self, code: ErrorCode, topic: str) -> str:
        """Return the settings that the format of the topic, which was refused, requires."""
        settings = []
        if code is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT and self._transactional_id is not None:
            return "transactions require message.format.version 0.11 or newer of the topic"
        if code is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT and self._is_idempotent:
            settings.append("idempotence=False")
        if code in _FORMAT_REFUSED and self._batches.of(topic).compresses:
            settings.append('compression="none"')
        return f"set {' or '.join(settings)}" if settings else ""

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
        from .split import halves  # imported here: few batches are too large

        # Also a batch that an earlier attempt may have written: a broker refuses the size before it appends, so the
        # earlier attempt was refused as well, unless the limit was lowered meanwhile.
        # One outage per topic, not per batch: the setting is wrong for all of them.
        error = error_for(ErrorCode.MESSAGE_TOO_LARGE, f"splitting {batch!r}, which is too large for the broker")
        advice = "%s; lower batch_size; further cases for this topic are logged at DEBUG"
        self._client.outages.report(logger, f"batches for topic {batch.topic}", error, advice, error)
        self._replace(in_flight, halves(batch, self._batches.of(batch.topic)))

    def _refuse_records(
        self, in_flight: InFlightBatch, refused: dict[int, str | None], code: int, attempt: str
    ) -> None:
        """Fail the records that the broker names, and send all other records again (KIP-467)."""
        partition, batch = in_flight
        if batch.settled:
            self._dispatcher.act(partition, partition.split(batch, []))
            return
        from .split import without  # imported here: few records are refused

        failed: dict[int, BatchResult] = {}
        for index, message in refused.items():
            failed[index] = result = BatchResult(batch.topic, batch.partition)
            result.fail(error_for(code, f"{attempt}: record {index}: {message or 'refused'}"))
        self._settlement.records_refused(batch, failed)
        self._replace(in_flight, without(batch, self._batches.of(batch.topic), failed))

    def _replace(self, in_flight: InFlightBatch, parts: Parts) -> None:
        partition, batch = in_flight
        following = partition.split(batch, parts.batches)
        self._settlement.replace(batch, partition, parts)
        self._dispatcher.act(partition, following)
