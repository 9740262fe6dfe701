"""The producer as users see it. ``Pipeline`` has the stages that a record goes through."""

from __future__ import annotations

import random as _random
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from ..aio.component import Component
from ..aio.runtime import Runtime, wall_clock
from ..arguments import INT64_MAX, check_methods, check_timeout, plural, whole
from ..cluster.bootstrap import sorted_settings
from ..cluster.client import Client
from ..cluster.metadata import PartitionView
from ..cluster.topics import problem_of_topic_name
from ..errors import ConfigurationError
from ..method_names import PRODUCER, named_elsewhere
from ..net.connector import Connector
from ..protocol.records import check_available, check_level
from ..serialization.serializer import GivenSerializer, Serialization
from ..settings.client import ClientConfig
from ..settings.producer import ProducerConfig
from ..types import Compression, GroupMetadata, K_contra, OffsetAndMetadata, TopicPartition, V_contra
from .accept.interceptor import Interceptors, ProducerInterceptor
from .counters import ProducerCounters
from .failures import Failures, FailureStreams
from .partitioning.interface import Partitioner
from .partitioning.partitioner import DefaultPartitioner
from .pipeline import Pipeline
from .record import largest_pending_record
from .record_calls import RecordCalls, bounded

if TYPE_CHECKING:
    from ..cluster.health import Health
    from ..cluster.otlp import MetricsReport
    from ..errors import KafkaError
    from ..net.metrics import BrokerTraffic
    from ..settings.keywords import ProducerSettings
    from .diagnosis import ProducerDiagnosis
    from .metrics import ProducerMetrics
    from .transaction import Transaction
    from .transactions.detached_transaction import DetachedTransaction
    from .transactions.transactions import TransactionManager

CLOSE_TIMEOUT = 30.0
"""Seconds that ``Producer.close`` waits for acknowledgements."""

ABRUPT_CLOSE_TIMEOUT = 4.0
"""Seconds that ``close`` waits for acknowledgements when the body of ``async with`` has raised."""


class Producer(RecordCalls[K_contra, V_contra], Component):
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
        of_client, of_producer = sorted_settings(settings, ClientConfig, ProducerConfig)
        client_config = ClientConfig(bootstrap_servers=bootstrap_servers, **of_client)  # type: ignore[arg-type]
        self.config: ProducerConfig = ProducerConfig(**of_producer)  # type: ignore[arg-type]
        _check_compression(self.config)
        _check_topic_settings(self.config)
        if partitioner is not None:
            check_methods("partitioner", partitioner, "partition", "on_new_batch")
        self._runtime = Runtime(clock, random)
        self._client = Client(client_config, connector=connector, runtime=self._runtime, report_metrics=_reporter(self))
        rack = _rack_to_prefer(client_config, self.config, partitioner)
        self._partitioner = DefaultPartitioner(random=random, rack=rack) if partitioner is None else partitioner
        self._interceptors = Interceptors(interceptors, client_config.client_id)
        self._serialization = Serialization(key_serializer, value_serializer)
        self._failures = FailureStreams(self._service.check_process)
        self._pipeline: Pipeline | None = None
        self._check = self._service.check

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

    # Transactions.

    def transaction(self, *, timeout: float | None = None) -> Transaction[K_contra, V_contra]:
        """Make a transaction, for ``async with``: it begins with the body, and is committed or aborted at its end.

        ``timeout`` bounds the wait for the outcome of the previous transaction, and then the commit, in seconds;
        without it, each has ``api_timeout``. One transaction is open at a time.
        """
        check_timeout(timeout)
        self._service.check()
        from .transaction import Transaction

        return Transaction(self._running(), timeout)

    async def begin_transaction(
        self, *, timeout: float | None = None, defer: Callable[[KafkaError], bool] | None = None
    ) -> None:
        """Begin a transaction. Waits until the outcome of the previous one is known, for ``timeout`` seconds.

        ``defer`` is for a program that repeats its work in another transaction; ``ExactlyOnce`` uses it. If the
        transaction fails with an error for which ``defer`` returns True, ``commit_transaction`` raises the error, and
        the sends before it do not: a ``Delivery`` has the error, and ``send`` returns metadata with the offset -1.

        Raises IllegalStateError if one is open, and KafkaTimeout. Raises the error that ended the producer:
        ProducerFenced if another producer with the same ``transactional_id`` has taken over.
        """
        check_timeout(timeout)
        await self._transactions().begin(timeout, defer)

    async def commit_transaction(self, *, timeout: float | None = None) -> None:
        """Flush, and commit. If it returns, all records and offsets of the transaction are visible together.

        Raises the first failure in the transaction; then nothing is committed, and ``abort_transaction`` must be
        called. Raises KafkaTimeout after ``timeout`` seconds, by default ``api_timeout``; its text says whether the
        outcome is known. If it is not, the producer continues to request it: call this again to wait for it. Raises
        ProducerFenced if another producer has taken over. If the call is cancelled before the records are flushed,
        nothing is committed. If it is cancelled later, the commit continues.

        After ``prepare_transaction``, a failure does not require an abort: the transaction stays prepared, and this can
        be called again. After an error that ends the producer, the transaction stays open for the next start.
        """
        check_timeout(timeout)
        await self._transactions().commit(timeout)

    async def prepare_transaction(self, *, timeout: float | None = None) -> str:
        """Flush, and prepare the transaction for the second phase of a two-phase commit (KIP-939).

        Returns a short text. Another system stores it in its own transaction, which decides: if that commits, call
        ``commit_transaction``, otherwise ``abort_transaction``. Until then, the transaction takes no more records, and
        neither a timeout, nor an exception in ``async with``, nor ``close`` ends it. After a restart, a producer with
        ``prepared_transaction`` set to the stored text commits it, and aborts a transaction that was not decided. The
        text is empty if the transaction has no records and offsets.

        Raises the first failure in the transaction, and KafkaTimeout after ``timeout`` seconds, by default
        ``api_timeout``. The transaction is then not prepared: call ``abort_transaction``, or close the producer. Raises
        IllegalStateError without ``two_phase_commit``.
        """
        check_timeout(timeout)
        return await self._transactions().prepare(timeout)

    async def abort_transaction(self, *, timeout: float | None = None) -> None:
        """Abort: no record of the transaction becomes visible, and records that are not written yet fail.

        Raises KafkaTimeout after ``timeout`` seconds, by default ``api_timeout``; the abort continues, and the next
        transaction begins after it. Raises ProducerFenced if another producer has taken over.
        """
        check_timeout(timeout)
        await self._transactions().abort(timeout)

    async def detach_transaction(self, *, timeout: float | None = None) -> DetachedTransaction:
        """Flush, and leave the transaction open, so that another process can end it with ``end_detached``.

        Afterwards this producer can only be closed; that does not end the transaction. Another producer that starts
        with the same ``transactional_id`` aborts it, and so does the coordinator after ``transaction_timeout``.

        Raises the first failure in the transaction, and KafkaTimeout after ``timeout`` seconds, by default
        ``api_timeout``. The transaction is then not detached: call ``abort_transaction``, or close the producer.
        """
        check_timeout(timeout)
        return await self._transactions().detach(timeout)

    async def send_offsets_to_transaction(
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

        After an error, and after a cancellation, the transaction can only be aborted. Raises:

         - CommitFailed: the group has taken the partitions away.
         - KafkaTimeout: ``timeout`` seconds have passed, by default ``api_timeout``.
         - AuthorizationError: a permission is missing.
         - ProducerFenced: another producer has taken over.
         - TypeError or ValueError: an argument is wrong.
        """
        await self._transactions().send_offsets(offsets, group_metadata, timeout)

    def _transactions(self) -> TransactionManager:
        self._service.check()
        return self._running().required_transactions()

    # Waiting.

    async def drain(self, *, timeout: float | None = None) -> None:
        """Wait until the buffer has room for a record of any allowed size.

        Use it after BufferFull. ``put`` does both. Raises KafkaTimeout after ``timeout`` seconds.
        """
        self._service.check()
        with bounded(timeout, lambda: "the buffer had no room"):
            await self._running().memory.drain(largest_pending_record(self.config))

    async def flush(self, timeout: float | None = None) -> None:
        """Wait until all records that were accepted before this call are settled; no batch lingers meanwhile.

        The error of a record is raised by its delivery and not by this call. Raises KafkaTimeout after ``timeout``
        seconds; the records are sent in any case.
        """
        self._service.check()
        pipeline = self._running()
        with bounded(timeout, lambda: f"{plural(len(pipeline.settlement.unsettled), 'batch')} had no acknowledgement"):
            await self._service.while_running(pipeline.flush())

    async def partitions_for(self, topic: str, *, timeout: float | None = None) -> tuple[PartitionView, ...]:
        """Ask for the partitions of a topic, with their leaders and replicas.

        Waits for metadata for ``timeout`` seconds, by default ``max_block``, and raises KafkaTimeout after that. Raises
        UnknownTopic, or InvalidTopic for a name that no topic can have. Raises AuthorizationError.
        """
        check_timeout(timeout)
        self._service.check()
        asking = self._client.topic(topic, self.config.max_block if timeout is None else timeout)
        return (await self._service.while_running(asking)).partitions

    # Observing.

    def failures(self, *, max_bytes: int | None = None) -> Failures:
        """Open a stream of the records that fail from now on: ``async for failure in producer.failures()``.

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
        """Report whether the producer works, for liveness and readiness probes. Call it in the event loop.

        It is not live after a failure and after ``close``. A transactional producer is also not live after a final
        error, for example when another producer has fenced it. It is not ready before the start, while it closes, and
        while brokers refuse a producer id. It is also not ready when requests wait or fail, and no broker has answered
        for ``max_silence`` seconds. Raises ConfigurationError.
        """
        from .diagnosis import producer_health

        self._service.check_process()
        return producer_health(self._service, self._client, self._pipeline, max_silence)

    def set_credentials(self, username: str, password: str) -> None:
        """Log in with this user name and password from now on (PLAIN and SCRAM), for example after a rotation.

        Open connections stay open; they use the new password when they log in again. May be called before the start
        too, in the event loop. Raises ConfigurationError for a wrong value, for a client that does not log in with a
        password, and if ``sasl_password`` is a function.
        """
        self._service.check_process()
        self._client.set_credentials(username, password)

    def traffic(self) -> Mapping[int, BrokerTraffic]:
        """Return requests, bytes, latencies and throttle times of each broker, by its id, over all APIs.

        A bootstrap address has a negative id. Call it in the event loop.
        """
        self._service.check_process()
        return self._client.traffic()

    def diagnose(self) -> ProducerDiagnosis:
        """Describe the producer, its connections and its event loop, for a bug report: ``print`` the result.

        Sends no request and does not wait. Call it in the event loop.
        """
        from .diagnosis import producer_diagnosis

        self._service.check_process()
        return producer_diagnosis(self._service, self._client, self.config, self._pipeline, self.metrics())

    def __repr__(self) -> str:
        buffered = 0 if self._pipeline is None else self._pipeline.memory.budget.used
        return f"<Producer {self._client.config.client_id} {self.state.name} buffered={buffered}>"


def _check_compression(config: ProducerConfig) -> None:
    codec = Compression.parse(config.compression)
    check_available(codec)
    check_level(codec, config.compression_level)


def _check_topic_settings(config: ProducerConfig) -> None:
    """Check the names of the topics with settings of their own, and the compression of these topics."""
    for topic in config.topic_settings or ():
        try:
            if (problem := problem_of_topic_name(topic)) is not None:
                raise ConfigurationError(problem)
            _check_compression(config.for_topic(topic))
        except ConfigurationError as error:
            raise ConfigurationError(f"topic_settings[{topic!r}]: {error}") from None


def _rack_to_prefer(client: ClientConfig, config: ProducerConfig, partitioner: Partitioner | None) -> str | None:
    """Return the rack for the default partitioner; None without ``partitioner_rack_aware``."""
    if not config.partitioner_rack_aware:
        return None
    if partitioner is not None:
        raise ConfigurationError(
            "partitioner_rack_aware cannot be combined with partitioner; use DefaultPartitioner(rack=...)"
        )
    if not client.client_rack:
        raise ConfigurationError("partitioner_rack_aware=True requires client_rack, which is not set")
    return client.client_rack


def _reporter(producer: Producer[Any, Any]) -> Callable[[], MetricsReport]:
    """Return a function that makes the metrics to push. It must not refer to the producer, because a task keeps it."""
    reference = weakref.ref(producer)

    def report() -> MetricsReport:
        from ..cluster.reports import report_of

        owner = reference()
        assert owner is not None, "the owner of the client"
        metrics = owner.metrics()
        transactions = metrics.transactions
        resource = {} if transactions is None else {"transactional_id": transactions.transactional_id}
        return report_of("producer", metrics, metrics.client, resource)

    return report
