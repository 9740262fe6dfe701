"""The producer as users see it. ``Pipeline`` has the stages that a record goes through."""

from __future__ import annotations

import logging
import random as _random
import sys
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Unpack

from ..aio.deadline import deadline, within
from ..aio.runtime import Runtime, wall_clock
from ..aio.service import Component
from ..arguments import INT64_MAX, check_methods, check_timeout, plural, whole
from ..cluster.client import Client
from ..cluster.metadata import ClusterView, PartitionView
from ..errors import ErrorCode, IllegalStateError, KafkaError
from ..method_names import PRODUCER, named_elsewhere
from ..net.connector import Connector
from ..protocol.records import check_available, check_level
from ..serialization.headers import Headers
from ..serialization.serializer import GivenSerializer, Serialization
from ..types import Compression, K_contra, RecordMetadata, V_contra
from .accept.accept import Acceptor, largest_pending_record
from .accept.arguments import ValuesAndKeys
from .accept.bulk import BulkDelivery, Written
from .counters import ProducerCounters
from .delivery import Delivery, FailureLog, settled
from .failures import Failures, FailureStreams
from .interceptor import Interceptors, ProducerInterceptor
from .partitioning.interface import Partitioner
from .partitioning.partitioner import DefaultPartitioner
from .pipeline import Pipeline
from .results import SendResults, SinglePiece
from .settings import ProducerSettings, configs
from .transactions.transaction import Transaction, TransactionCalls

if TYPE_CHECKING:
    from ..cluster.health import Health
    from ..cluster.otlp import MetricsReport
    from ..net.metrics import BrokerTraffic
    from ..settings.config import ProducerConfig
    from .diagnosis import ProducerDiagnosis
    from .metrics import ProducerMetrics
    from .transactions.transactions import TransactionManager

CLOSE_TIMEOUT = 30.0
"""Seconds that ``Producer.close`` waits for acknowledgements."""

ABRUPT_CLOSE_TIMEOUT = 4.0
"""Seconds that ``close`` waits for acknowledgements when the body of ``async with`` has raised."""


class Producer(TransactionCalls, Component, Generic[K_contra, V_contra]):
    """Writes records to a cluster. No record is lost, reordered within its partition, or written twice.

    Use it as ``async with Producer("localhost:9092") as producer``, or call ``start`` and ``close``. The constructor
    needs no event loop and does no I/O; it raises ConfigurationError. The settings are those of ``ClientConfig`` and
    ``ProducerConfig``. ``connector`` makes the connections, ``clock`` returns the seconds since the epoch for
    timestamps, ``random`` returns numbers in [0, 1) for jitter.

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

    # The acceptor exists after the start; every call checks that first.
    _acceptor: Acceptor

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
        super().__init__()
        self.config: ProducerConfig
        client_config, self.config = configs(bootstrap_servers, settings)
        codec = Compression.parse(self.config.compression)
        check_available(codec)
        check_level(codec, self.config.compression_level)
        if partitioner is not None:
            check_methods("partitioner", partitioner, "partition", "on_new_batch")
        self._runtime = Runtime(clock, random)
        self._client = Client(client_config, connector=connector, runtime=self._runtime, report_metrics=_reporter(self))
        self._partitioner = DefaultPartitioner(random=random) if partitioner is None else partitioner
        self._interceptors = Interceptors(interceptors)
        self._serialization = Serialization(key_serializer, value_serializer)
        self._failures = FailureStreams(self._service.check_process)
        self._pipeline: Pipeline | None = None

    # Lifetime.

    async def _on_start(self) -> None:
        await self._service.attach(self._client.service)
        pipeline = self._pipeline = Pipeline(
            self._client,
            self.config,
            self._partitioner,
            self._serialization,
            self._interceptors,
            self._failures,
            self._runtime.clock,
            self._service,
        )
        self._acceptor = pipeline.acceptor
        use_load = getattr(self._partitioner, "use_load", None)
        if use_load is not None:
            use_load(pipeline.senders)
        await pipeline.start()

    async def close(self, timeout: float | None = CLOSE_TIMEOUT) -> None:
        """Send all accepted records and wait for their acknowledgements, for at most ``timeout`` seconds; then end.

        Records that are not acknowledged by then fail with KafkaTimeout. May be called more than once, from any task of
        the event loop. When cancelled, it closes at once. Raises only the exception that had already ended the
        producer.
        """
        check_timeout(timeout)
        try:
            await super().close(CLOSE_TIMEOUT if timeout is None else timeout)
        finally:
            # A producer that never started has no pipeline that would end the streams.
            self._failures.end()

    async def _on_close(self) -> None:
        await self._running().finish()

    async def _close_after_error(self) -> None:
        await self.close(ABRUPT_CLOSE_TIMEOUT)

    def _running(self) -> Pipeline:
        assert self._pipeline is not None, "the producer has started"
        return self._pipeline

    # Records.

    async def send(
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
        ``delivery_timeout`` seconds. Cancelling the call, or its timeout, ends only the wait: an accepted record is
        sent in any case.

        Raises SerializationError, InvalidTopic, UnknownTopic and RecordTooLarge for a wrong record or argument, and
        ConfigurationError for a wrong ``timeout``. Raises KafkaTimeout, and BrokerError and its subclasses. Raises
        IllegalStateError if the producer is not running, or if the partitioner raises another error than a KafkaError.
        """
        if timeout is not None:
            check_timeout(timeout)
            sending = self.send(topic, value, key=key, headers=headers, partition=partition, timestamp=timestamp)
            return await within(timeout, sending, _late(self._client, topic, partition, "acknowledged", timeout))
        self._service.check()
        try:
            accepted = self._acceptor.accept(topic, value, key, headers, partition, timestamp)
            return await (accepted if isinstance(accepted, Delivery) else await accepted)
        except KafkaError:
            # Also of a record that was on its way when the transaction failed.
            if self._acceptor.deferred is None:
                raise
            return RecordMetadata(topic, -1 if partition is None else partition, -1, -1, -1, -1)

    async def put(
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
        ``max_block``. When cancelled, the record is not accepted.

        Raises the errors of ``send`` for a wrong record, and KafkaTimeout. Later errors, UnknownTopic among them, are
        raised by the ``Delivery``.
        """
        if timeout is not None:
            check_timeout(timeout)
            putting = self.put(topic, value, key=key, headers=headers, partition=partition, timestamp=timestamp)
            return await within(timeout, putting, _late(self._client, topic, partition, "accepted", timeout))
        self._service.check()
        try:
            accepted = self._acceptor.accept(topic, value, key, headers, partition, timestamp)
            return accepted if isinstance(accepted, Delivery) else await accepted
        except KafkaError as error:
            if error is not self._acceptor.deferred:
                raise
            return self._acceptor.failed(topic, error)

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
        self._service.check()
        try:
            return self._acceptor.accept_nowait(topic, value, key, headers, partition, timestamp)
        except KafkaError as error:
            if error is not self._acceptor.deferred:
                raise
            return self._acceptor.failed(topic, error)

    async def send_many(
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

        The results are a sequence. The sequence has an error for each record that is refused or not delivered, and a
        ``RecordMetadata`` for each other record. ``keys`` has one key for each value; ``headers``, ``partition`` and
        ``timestamp`` are the same for all. Cancelling the call, or its ``timeout`` in seconds, ends only the wait:
        accepted records are sent in any case. Bytes and str are the fastest: without serializers, interceptors and a
        partitioner of your own, no Python code runs for a single record.

        Raises SerializationError if ``values`` or ``keys`` are not iterables of the same length. Raises
        IllegalStateError if the producer is not running, and KafkaTimeout if there is no room for ``max_block``
        seconds.
        """
        self._service.check()
        if (deferred := self._acceptor.deferred) is not None:
            values_left, _ = ValuesAndKeys(topic, values, keys).take(sys.maxsize)
            return SendResults([SinglePiece(topic, [deferred] * len(values_left), FailureLog(deferred, logging.DEBUG))])
        self._acceptor.check_writable()
        with _bounded(timeout, lambda: f"records for topic {topic!r} were not acknowledged"):
            given = ValuesAndKeys(topic, values, keys)
            pieces = await self._running().many_acceptor.accept(topic, given, headers, partition, timestamp)
            for piece in pieces:
                await settled(piece.open)
            return SendResults(pieces)

    async def send_arrow(self, topic: str, table: object, *, timeout: float | None = None) -> list[Written]:
        """Write the rows of an Arrow table or record batch. Returns their offsets when all are acknowledged.

        The column ``value`` is required: binary or string. Optional columns are ``key`` (binary or string), ``headers``
        (a list of structs of ``key`` and ``value``), ``partition`` (integer) and ``timestamp`` (a timestamp, or integer
        milliseconds). Rows of a partition stay in order. No Python object is made for a row, so serializers and
        interceptors cannot be used. ``timeout`` bounds the whole call, in seconds; accepted rows are sent in any case.

        Raises SerializationError, RecordTooLarge, UnknownTopic and InvalidTopic before anything is sent. When all rows
        are settled, raises the error of the first row that was not written. Raises KafkaTimeout, and ConfigurationError
        without the extra ``arrow``.
        """
        with _bounded(timeout, lambda: f"a table for topic {topic!r} was not acknowledged"):
            return await (await self.put_arrow(topic, table))

    async def put_arrow(self, topic: str, table: object, *, timeout: float | None = None) -> BulkDelivery:
        """Accept the rows of an Arrow table as ``send_arrow`` does, and return their promise when all are buffered.

        Rows of one call stay in order. Rows of concurrent calls interleave. After a ``timeout``, in seconds, or a
        cancellation, some of the rows may have been accepted; those are sent.
        """
        self._service.check()
        plain = self._serialization.plain_keys and self._serialization.plain_values
        if self._interceptors or not plain:
            raise IllegalStateError(
                "a producer with serializers or interceptors cannot write columns of Arrow; use another producer"
            )
        with _bounded(timeout, lambda: f"a table for topic {topic!r} was not accepted"):
            return await self._running().arrow_acceptor.accept(topic, table)

    def transaction(self, *, timeout: float | None = None) -> Transaction[K_contra, V_contra]:
        """Return a transaction, for ``async with``: it begins with the body, and is committed or aborted at its end.

        ``timeout`` bounds the wait for the outcome of the previous transaction, and then the commit, in seconds;
        without it, each has ``api_timeout``. One transaction is open at a time.
        """
        check_timeout(timeout)
        return Transaction(self, self._transactions(), timeout)

    def _transactions(self) -> TransactionManager:
        self._service.check()
        return self._running().required_transactions()

    # Waiting.

    async def drain(self, *, timeout: float | None = None) -> None:
        """Wait until the buffer has room for a record of any allowed size.

        Use it after BufferFull. ``put`` does both. Raises KafkaTimeout after ``timeout`` seconds.
        """
        self._service.check()
        with _bounded(timeout, lambda: "the buffer had no room"):
            await self._running().room.drain(largest_pending_record(self.config))

    async def flush(self, timeout: float | None = None) -> None:
        """Wait until all records that were accepted before this call are settled; no batch lingers meanwhile.

        The error of a record is raised by its delivery and not by this call. Raises KafkaTimeout after ``timeout``
        seconds; the records are sent in any case.
        """
        self._service.check()
        pipeline = self._running()
        with _bounded(timeout, lambda: f"{plural(len(pipeline.settlement.unsettled), 'batch')} had no acknowledgement"):
            await self._service.while_running(pipeline.flush())

    async def partitions_for(self, topic: str, *, timeout: float | None = None) -> tuple[PartitionView, ...]:
        """Return the partitions of a topic, with their leaders and replicas.

        Waits for metadata for ``timeout`` seconds, by default ``max_block``. Raises UnknownTopic, InvalidTopic,
        AuthorizationError and KafkaTimeout.
        """
        check_timeout(timeout)
        self._service.check()
        asking = self._client.topic(topic, self.config.max_block if timeout is None else timeout)
        return (await self._service.while_running(asking)).partitions

    # Observing.

    def failures(self, *, max_bytes: int | None = None) -> Failures:
        """Return a stream of the records that fail from now on: ``async for failure in producer.failures()``.

        Each item is a ``FailedRecord``, whose error is then not logged. The iteration ends when the producer has ended.
        Records that a call refuses are not in the stream, because the call raises. The stream keeps at most
        ``max_bytes`` of records, by default ``buffer_memory``, and counts further ones in ``dropped``. May be called at
        any time; each call makes another stream. Raises TypeError and ValueError for wrong ``max_bytes``.
        """
        self._service.check_process()
        limit = self.config.buffer_memory if max_bytes is None else whole("max_bytes", max_bytes, 1, INT64_MAX)
        return self._failures.open(limit)

    def metrics(self) -> ProducerMetrics:
        """Return a snapshot of counters and gauges. May be called at any time; costs some microseconds."""
        from ..cluster.metrics import client_metrics
        from .metrics import snapshot  # imported here: the dataclasses of the snapshot take 2 ms to import

        self._service.check_process()
        client, memory = client_metrics(self._client), self.config.buffer_memory
        if self._pipeline is None:
            return snapshot(ProducerCounters(), {}, client, buffer_memory=memory)
        return self._pipeline.metrics(client, memory)

    def health(self, *, max_silence: float = 60.0) -> Health:
        """Return whether the producer works, for liveness and readiness probes. Call it in the event loop.

        It is not live after a failure and after ``close``. A transactional producer is also not live after a final
        error, for example when another producer has fenced it. It is not ready before the start, while it closes, and
        while brokers refuse a producer id. It is also not ready when requests wait or fail, and no broker has answered
        for ``max_silence`` seconds. Raises ConfigurationError.
        """
        from .diagnosis import producer_health

        self._service.check_process()
        return producer_health(self._service, self._client, self._pipeline, max_silence)

    def traffic(self) -> Mapping[int, BrokerTraffic]:
        """Requests, bytes, latencies and throttle times of each broker so far, by its id, over all APIs.

        A bootstrap address has a negative id. Call it in the event loop.
        """
        self._service.check_process()
        return self._client.traffic()

    def diagnose(self) -> ProducerDiagnosis:
        """Return the state of the producer, its connections and its event loop, for a bug report: ``print`` it.

        Sends no request and does not wait. Call it in the event loop.
        """
        from .diagnosis import producer_diagnosis

        self._service.check_process()
        return producer_diagnosis(self._service, self._client, self.config, self._pipeline, self.metrics())

    def __repr__(self) -> str:
        buffered = 0 if self._pipeline is None else self._pipeline.room.budget.used
        return f"<Producer {self._client.config.client_id} {self.state.name} buffered={buffered}>"


def _reporter(producer: Producer[Any, Any]) -> Callable[[], MetricsReport]:
    """Return a function that makes the metrics to push. It must not refer to the producer, because a task keeps it."""
    reference = weakref.ref(producer)

    def report() -> MetricsReport:
        from .telemetry import producer_report

        found = reference()
        assert found is not None, "the owner of the client"
        return producer_report(found.metrics())

    return report


def _late(client: Client, topic: str, partition: int | None, what: str, timeout: float) -> Callable[[], str]:
    """Makes the error of a call for one record, with the state of its topic at that time."""

    def describe() -> str:
        about = _state_of(topic, partition, client.view)
        return f"a record for topic {topic!r} was not {what} within timeout={timeout:g} s{about}"

    return describe


def _state_of(name: str, partition: int | None, view: ClusterView) -> str:
    """Return the state of a topic or a partition in metadata, for the error of a call that waited for it without
    success.
    """
    known = view.topics.get(name)
    if known is None:
        return "; no broker has sent metadata of the topic yet"
    if known.error is not ErrorCode.NONE:
        return f"; brokers report {known.error.name} for the topic"
    if partition is not None and known.partition(partition) is None:
        return f"; the topic has {plural(len(known.partitions), 'partition')}, got partition={partition}"
    return ""


def _bounded(timeout: float | None, what: Callable[[], str]) -> deadline:
    """Bound a call by its ``timeout`` in seconds. ``what()`` begins the text of the KafkaTimeout."""
    check_timeout(timeout)
    return deadline(timeout, lambda: f"{what()} within timeout={timeout:g} s")
