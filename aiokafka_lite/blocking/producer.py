"""``Producer`` and its ``Transaction``, for threads without an event loop.

Written by docs/make_blocking.py from the asyncio classes, which have the same calls.
"""

from __future__ import annotations

import random as _random
from typing import TYPE_CHECKING, Generic

from ..aio.runtime import wall_clock
from ..arguments import check_timeout
from ..method_names import PRODUCER, TRANSACTION
from ..producer.failures import Failures as AsyncFailures
from ..producer.producer import CLOSE_TIMEOUT
from ..producer.producer import Producer as AsyncProducer
from ..producer.record_calls import RecordCalls as AsyncRecordCalls
from ..producer.transaction import Transaction as AsyncTransaction
from ..types import K_contra, V_contra
from .producing import BlockingProducer, BlockingTransaction, BulkDelivery, Sending
from .sending import Delivery
from .wrapper import Blocking, named_elsewhere

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from types import TracebackType
    from typing import Self, Unpack

    from ..aio.service import ServiceState
    from ..cluster.health import Health
    from ..cluster.metadata import PartitionView
    from ..errors import KafkaError
    from ..net.connector import Connector
    from ..net.metrics import BrokerTraffic
    from ..producer.accept.arrow import Written
    from ..producer.accept.interceptor import ProducerInterceptor
    from ..producer.accept.results import SendResults
    from ..producer.diagnosis import ProducerDiagnosis
    from ..producer.failures import FailedRecord
    from ..producer.metrics import ProducerMetrics
    from ..producer.partitioning.interface import Partitioner
    from ..producer.transactions.detached_transaction import DetachedTransaction
    from ..serialization.headers import Headers
    from ..serialization.serializer import GivenSerializer
    from ..settings.keywords import ProducerSettings
    from ..settings.producer import ProducerConfig
    from ..types import GroupMetadata, OffsetAndMetadata, RecordMetadata, TopicPartition


class RecordCalls(Sending, Generic[K_contra, V_contra]):
    """The calls that send records through the pipeline of a producer.

    ``_check`` raises if no record can be sent now. The pipeline and its acceptor exist when ``_check`` returns.
    """

    _inner: AsyncRecordCalls[K_contra, V_contra]

    def send(
        self,
        topic: str,
        value: V_contra | None = None,
        *,
        key: K_contra | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp: int | None = None,
        timeout: float | None = None,
    ) -> RecordMetadata:
        """Write a record, and return when it is acknowledged.

        ``timestamp`` is in milliseconds since the epoch; None means now. ``timeout`` bounds the whole call, in seconds.
        Without it, the call waits for room and for metadata for ``max_block`` seconds, and for the acknowledgement for
        ``delivery_timeout`` seconds. Interrupting the call, or its timeout, ends only the wait: an accepted record is
        sent in any case.

        Raises:

         - SerializationError, InvalidTopic, UnknownTopic or RecordTooLarge: the record or an argument is wrong.
         - ConfigurationError: ``timeout`` is wrong.
         - KafkaTimeout, BrokerError and its subclasses: the record may not be written.
         - IllegalStateError: the producer is not running, or the partitioner raised another error than a KafkaError.
        """
        return self._await(
            self._inner.send,
            topic,
            value,
            key=key,
            headers=headers,
            partition=partition,
            timestamp=timestamp,
            timeout=timeout,
        )

    def put(
        self,
        topic: str,
        value: V_contra | None = None,
        *,
        key: K_contra | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp: int | None = None,
        timeout: float | None = None,
    ) -> Delivery:
        """Accept a record, waiting for room in ``buffer_memory``, and return its promise.

        Use it to write many records. While there is room, it is as fast as ``send_nowait``. Without room, it waits, so
        the caller is as fast as the brokers. ``timeout`` bounds the wait in seconds; without it, the bound is
        ``max_block``. When interrupted, the record is not accepted.

        Raises the errors of ``send`` for a wrong record, and KafkaTimeout. Later errors, UnknownTopic among them, are
        raised by the ``Delivery``.
        """
        return Delivery(
            self._queue,
            self._await(
                self._inner.put,
                topic,
                value,
                key=key,
                headers=headers,
                partition=partition,
                timestamp=timestamp,
                timeout=timeout,
            ),
        )

    def send_nowait(
        self,
        topic: str,
        value: V_contra | None = None,
        *,
        key: K_contra | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> Delivery:
        """Accept a record now and return its promise. Raises BufferFull if ``buffer_memory`` has no room for it.

        A record for an unknown topic or partition is pending until metadata has it, for at most ``max_block`` seconds.
        Raises the errors of ``send`` for a wrong record; later errors, UnknownTopic among them, are raised by the
        ``Delivery``. Raises IllegalStateError if a serializer is async.
        """
        return self._queue.add(self._inner, topic, value, key, headers, partition, timestamp)

    def send_many(
        self,
        topic: str,
        values: Iterable[V_contra | None],
        *,
        keys: Iterable[K_contra | None] | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp: int | None = None,
        timeout: float | None = None,
    ) -> SendResults:
        """Write many records, waiting for room, and return the result of each, in their order.

        The results are a sequence. It contains an error for each record that is refused or not delivered, and a
        ``RecordMetadata`` for each other record. ``keys`` contains one key for each value; ``headers``, ``partition``
        and ``timestamp`` are the same for all. Interrupting the call, or its ``timeout`` in seconds, ends only the
        wait: accepted records are sent in any case. Bytes and str are the fastest: without serializers, interceptors
        and a partitioner of your own, no Python code runs for a single record.

        Raises SerializationError if ``values`` or ``keys`` are not iterables of the same length. Raises
        IllegalStateError if the producer is not running, and KafkaTimeout if there is no room for ``max_block``
        seconds.
        """
        return self._await(
            self._inner.send_many,
            topic,
            values,
            keys=keys,
            headers=headers,
            partition=partition,
            timestamp=timestamp,
            timeout=timeout,
        )

    def send_arrow(self, topic: str, table: object, *, timeout: float | None = None) -> list[Written]:
        """Write the rows of an Arrow table or record batch. Returns their offsets when all are acknowledged.

        The column ``value`` is required: binary or string. Optional columns are ``key`` (binary or string), ``headers``
        (a list of structs of ``key`` and ``value``), ``partition`` (integer) and ``timestamp`` (a timestamp, or integer
        milliseconds). Rows of a partition stay in order. No Python object is made for a row, so serializers and
        interceptors cannot be used. ``timeout`` bounds the whole call, in seconds; accepted rows are sent in any case.

        Raises:

         - SerializationError, RecordTooLarge, UnknownTopic or InvalidTopic: nothing was sent.
         - KafkaTimeout, BrokerError and its subclasses: the error of the first row that was not written, when all rows
           are settled.
         - ConfigurationError: the extra ``arrow`` is not installed.
        """
        return self._await(self._inner.send_arrow, topic, table, timeout=timeout)

    def put_arrow(self, topic: str, table: object, *, timeout: float | None = None) -> BulkDelivery:
        """Accept the rows of an Arrow table as ``send_arrow`` does, and return their promise when all are buffered.

        Rows of one call stay in order. Rows of concurrent calls interleave. After a ``timeout``, in seconds, or an
        interrupt, some of the rows may have been accepted; those are sent.
        """
        return BulkDelivery(self._await(self._inner.put_arrow, topic, table, timeout=timeout))


class Producer(RecordCalls[K_contra, V_contra], BlockingProducer):
    """Writes records to a cluster. No record is lost, reordered within its partition, or written twice.

    This is ``aiokafka_lite.Producer`` for threads without an event loop: its calls wait.

    Use it as ``with Producer("localhost:9092") as producer``, or call ``start`` and ``close``. The constructor does no
    I/O; it raises ConfigurationError. The settings are those of ``ClientConfig`` and ``ProducerConfig``. ``connector``
    makes the connections, ``clock`` returns the seconds since the epoch for timestamps, ``random`` returns numbers in
    [0, 1) for jitter.

    Type checkers infer ``Producer[K, V]``: it accepts only keys and values that the serializers accept.

    ``partitioner`` chooses a partition for records that name none. ``key_serializer`` and ``value_serializer`` convert
    keys and values to bytes, and may be functions of the key or value alone. Without them, keys and values must be
    bytes or str. If a serializer is async, serializing overlaps, but records of a topic are accepted and written in the
    order in which the calls began. So a slow record delays the records after it, and ``send_nowait`` cannot be used.
    ``interceptors`` see each record before it is serialized and when it is settled, in their order.

    Without idempotence (``acks`` 0 or 1, or ``idempotence=False``) a retry may write records twice. The order is still
    kept, because a partition has one batch in flight. With ``acks=0`` the broker does not answer, so a lost record is
    neither detected nor retried.
    """

    _inner: AsyncProducer[K_contra, V_contra]

    if not TYPE_CHECKING:
        __getattr__ = named_elsewhere(PRODUCER)

    def __init__(
        self,
        bootstrap_servers: str | list[str] | tuple[str, ...],
        *,
        partitioner: Partitioner | None = None,
        key_serializer: GivenSerializer[K_contra] | None = None,
        value_serializer: GivenSerializer[V_contra] | None = None,
        interceptors: Sequence[ProducerInterceptor] = (),
        connector: Connector | None = None,
        clock: Callable[[], float] = wall_clock,
        random: Callable[[], float] = _random.random,
        **settings: Unpack[ProducerSettings],
    ) -> None:
        super().__init__(
            AsyncProducer(
                bootstrap_servers,
                partitioner=partitioner,
                key_serializer=key_serializer,
                value_serializer=value_serializer,
                interceptors=interceptors,
                connector=connector,
                clock=clock,
                random=random,
                **settings,
            )
        )
        self.config: ProducerConfig = self._inner.config

    def close(self, timeout: float | None = CLOSE_TIMEOUT) -> None:
        """Send all accepted records and wait for their acknowledgements, for at most ``timeout`` seconds; then end.

        Records that are not acknowledged by then fail with KafkaTimeout. May be called more than once, from any thread.
        When interrupted, it closes at once. Raises only the exception that had already ended the producer.
        """
        check_timeout(timeout)
        self._finish(timeout)

    def transaction(self, *, timeout: float | None = None) -> Transaction[K_contra, V_contra]:
        """Make a transaction, for ``with``: it begins with the body, and is committed or aborted at its end.

        ``timeout`` bounds the wait for the outcome of the previous transaction, and then the commit, in seconds;
        without it, each has ``api_timeout``. One transaction is open at a time.
        """
        return Transaction(self._run(self._inner.transaction, timeout=timeout), self._queue)

    def begin_transaction(
        self, *, timeout: float | None = None, defer: Callable[[KafkaError], bool] | None = None
    ) -> None:
        """Begin a transaction. Waits until the outcome of the previous one is known, for ``timeout`` seconds.

        ``defer`` is for a program that repeats its work in another transaction; ``ExactlyOnce`` uses it. If the
        transaction fails with an error for which ``defer`` returns True, ``commit_transaction`` raises the error, and
        the sends before it do not: a ``Delivery`` has the error, and ``send`` returns metadata with the offset -1.

        Raises IllegalStateError if one is open, and KafkaTimeout. Raises the error that ended the producer:
        ProducerFenced if another producer with the same ``transactional_id`` has taken over.
        """
        self._await(self._inner.begin_transaction, timeout=timeout, defer=defer)

    def commit_transaction(self, *, timeout: float | None = None) -> None:
        """Flush, and commit. If it returns, all records and offsets of the transaction are visible together.

        Raises the first failure in the transaction; then nothing is committed, and ``abort_transaction`` must be
        called. Raises KafkaTimeout after ``timeout`` seconds, by default ``api_timeout``; its text says whether the
        outcome is known. If it is not, the producer continues to request it: call this again to wait for it. Raises
        ProducerFenced if another producer has taken over. If the call is interrupted before the records are flushed,
        nothing is committed. If it is interrupted later, the commit continues.

        After ``prepare_transaction``, a failure does not require an abort: the transaction stays prepared, and this can
        be called again. After an error that ends the producer, the transaction stays open for the next start.
        """
        self._await(self._inner.commit_transaction, timeout=timeout)

    def prepare_transaction(self, *, timeout: float | None = None) -> str:
        """Flush, and prepare the transaction for the second phase of a two-phase commit (KIP-939).

        Returns a short text. Another system stores it in its own transaction, which decides: if that commits, call
        ``commit_transaction``, otherwise ``abort_transaction``. Until then, the transaction takes no more records, and
        neither a timeout, nor an exception in ``with``, nor ``close`` ends it. After a restart, a producer with
        ``prepared_transaction`` set to the stored text commits it, and aborts a transaction that was not decided. The
        text is empty if the transaction has no records and offsets.

        Raises the first failure in the transaction, and KafkaTimeout after ``timeout`` seconds, by default
        ``api_timeout``. The transaction is then not prepared: call ``abort_transaction``, or close the producer. Raises
        IllegalStateError without ``two_phase_commit``.
        """
        return self._await(self._inner.prepare_transaction, timeout=timeout)

    def abort_transaction(self, *, timeout: float | None = None) -> None:
        """Abort: no record of the transaction becomes visible, and records that are not written yet fail.

        Raises KafkaTimeout after ``timeout`` seconds, by default ``api_timeout``; the abort continues, and the next
        transaction begins after it. Raises ProducerFenced if another producer has taken over.
        """
        self._await(self._inner.abort_transaction, timeout=timeout)

    def detach_transaction(self, *, timeout: float | None = None) -> DetachedTransaction:
        """Flush, and leave the transaction open, so that another process can end it with ``end_detached``.

        Afterwards this producer can only be closed; that does not end the transaction. Another producer that starts
        with the same ``transactional_id`` aborts it, and so does the coordinator after ``transaction_timeout``.

        Raises the first failure in the transaction, and KafkaTimeout after ``timeout`` seconds, by default
        ``api_timeout``. The transaction is then not detached: call ``abort_transaction``, or close the producer.
        """
        return self._await(self._inner.detach_transaction, timeout=timeout)

    def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group_metadata: GroupMetadata,
        *,
        timeout: float | None = None,
    ) -> None:
        """Commit offsets of a group in the open transaction: they are committed together with its records.

        ``offsets`` contains the offset of the next record to read of each partition. ``group_metadata`` is the result
        of ``Consumer.group_metadata``. With it, the group's coordinator detects a former member. Brokers before Kafka
        2.5 do not check it; the first such call of a producer logs a warning.

        After an error, and an interrupt, the transaction can only be aborted. Raises:

         - CommitFailed: the group has taken the partitions away.
         - KafkaTimeout: ``timeout`` seconds have passed, by default ``api_timeout``.
         - AuthorizationError: a permission is missing.
         - ProducerFenced: another producer has taken over.
         - TypeError or ValueError: an argument is wrong.
        """
        self._await(self._inner.send_offsets_to_transaction, offsets, group_metadata, timeout=timeout)

    def drain(self, *, timeout: float | None = None) -> None:
        """Wait until the buffer has room for a record of any allowed size.

        Use it after BufferFull. ``put`` does both. Raises KafkaTimeout after ``timeout`` seconds.
        """
        self._await(self._inner.drain, timeout=timeout)

    def flush(self, timeout: float | None = None) -> None:
        """Wait until all records that were accepted before this call are settled; no batch lingers meanwhile.

        The error of a record is raised by its delivery and not by this call. Raises KafkaTimeout after ``timeout``
        seconds; the records are sent in any case.
        """
        self._await(self._inner.flush, timeout)

    def partitions_for(self, topic: str, *, timeout: float | None = None) -> tuple[PartitionView, ...]:
        """Ask for the partitions of a topic, with their leaders and replicas.

        Waits for metadata for ``timeout`` seconds, by default ``max_block``, and raises KafkaTimeout after that. Raises
        UnknownTopic, or InvalidTopic for a name that no topic can have. Raises AuthorizationError.
        """
        return self._await(self._inner.partitions_for, topic, timeout=timeout)

    def failures(self, *, max_bytes: int | None = None) -> Failures:
        """Open a stream of the records that fail from now on: ``for failure in producer.failures()``.

        Each item is a ``FailedRecord``, whose error is then not logged. The iteration ends when the producer has ended.
        Records that a call refuses are not in the stream, because the call raises. The stream keeps at most
        ``max_bytes`` of records, by default ``buffer_memory``, and counts further ones in ``dropped``. May be called at
        any time; each call makes another stream. Raises TypeError and ValueError for wrong ``max_bytes``.
        """
        return Failures(self._run(self._inner.failures, max_bytes=max_bytes))

    def metrics(self) -> ProducerMetrics:
        """Return a snapshot of counters and gauges. May be called at any time; costs some microseconds."""
        return self._run(self._inner.metrics)

    def health(self, *, max_silence: float = 60.0) -> Health:
        """Report whether the producer works, for liveness and readiness probes.

        It is not live after a failure and after ``close``. A transactional producer is also not live after a final
        error, for example when another producer has fenced it. It is not ready before the start, while it closes, and
        while brokers refuse a producer id. It is also not ready when requests wait or fail, and no broker has answered
        for ``max_silence`` seconds. Raises ConfigurationError.
        """
        return self._run(self._inner.health, max_silence=max_silence)

    def set_credentials(self, username: str, password: str) -> None:
        """Log in with this user name and password from now on (PLAIN and SCRAM), for example after a rotation.

        Open connections stay open; they use the new password when they log in again. May be called before the start
        too. Raises ConfigurationError for a wrong value, for a client that does not log in with a password, and if
        ``sasl_password`` is a function.
        """
        self._run(self._inner.set_credentials, username, password)

    def traffic(self) -> Mapping[int, BrokerTraffic]:
        """Return requests, bytes, latencies and throttle times of each broker, by its id, over all APIs.

        A bootstrap address has a negative id.
        """
        return self._run(self._inner.traffic)

    def diagnose(self) -> ProducerDiagnosis:
        """Describe the producer, its connections and its event loop, for a bug report: ``print`` the result.

        Sends no request and does not wait.
        """
        return self._run(self._inner.diagnose)

    @property
    def state(self) -> ServiceState:
        value: ServiceState = self._read("state")
        return value

    def start(self, timeout: float | None = None) -> None:
        """Start the component within ``timeout`` seconds (``api_timeout`` by default).

        Raises KafkaTimeout, or the error that prevented the start. After an error or an interrupt, no task and no
        connection remains.
        """
        self._begin(self._inner.start, timeout)


class Transaction(RecordCalls[K_contra, V_contra], BlockingTransaction):
    """One transaction: ``with producer.transaction() as transaction``. Made by ``Producer.transaction``.

    Leaving the body commits: all records are flushed first. If the body raises, also an interrupt, or if a record or an
    offset was not written, the transaction is aborted. The caller gets the exception of the body, or otherwise the
    first failure. The text of a KafkaTimeout of the commit tells whether the outcome is known.

    Its methods for records are those of the producer, and can be used inside the body. Records that are sent with the
    producer itself belong to the transaction too.
    """

    _inner: AsyncTransaction[K_contra, V_contra]

    if not TYPE_CHECKING:
        __getattr__ = named_elsewhere(TRANSACTION)

    def __enter__(self) -> Self:
        self._enter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._exit(kind, error, traceback)

    def send_offsets(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group_metadata: GroupMetadata,
        *,
        timeout: float | None = None,
    ) -> None:
        """Commit offsets of a group in this transaction, as ``Producer.send_offsets_to_transaction``."""
        self._await(self._inner.send_offsets, offsets, group_metadata, timeout=timeout)


class Failures(Blocking):
    """Failed deliveries since this stream was created. It ends when the producer has ended and no failure remains.

    The stream holds at most ``max_bytes`` of records. ``dropped`` counts the records without room, because the user
    takes records too slowly. Made by ``Producer.failures``. One thread takes from it.
    """

    _inner: AsyncFailures

    def __iter__(self) -> Self:
        self._run(self._inner.__aiter__)
        return self

    def __next__(self) -> FailedRecord:
        """Wait for the next failed record. An interrupted wait loses no record.

        Raises IllegalStateError in a forked process: the producer's tasks are in its parent.
        """
        return self._next(self._inner.__anext__)
