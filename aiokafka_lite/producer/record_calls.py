"""The calls that send records: of a ``Producer``, and of a ``Transaction``."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Generic

from ..aio.deadline import deadline
from ..arguments import check_timeout, plural
from ..cluster.metadata import ClusterView
from ..errors import ErrorCode, KafkaError
from ..serialization.headers import Headers
from ..types import K_contra, RecordMetadata, V_contra
from .accept.accept import Acceptor
from .delivery import Delivery, FailureLog, failed_delivery, settled
from .pipeline import Pipeline

if TYPE_CHECKING:
    from .accept.arrow import BulkDelivery, Written
    from .accept.results import SendResults


class RecordCalls(Generic[K_contra, V_contra]):
    """The calls that send records through the pipeline of a producer.

    ``_check`` raises if no record can be sent now. The pipeline and its acceptor exist when ``_check`` returns.
    """

    _check: Callable[[], object]
    _pipeline: Pipeline | None
    _acceptor: Acceptor

    def _running(self) -> Pipeline:
        assert self._pipeline is not None, "the producer has started"
        return self._pipeline

    @property
    def acceptor(self) -> Acceptor:
        """What accepts single records, for a queue of the package. Raises if no record can be sent now."""
        self._check()
        return self._acceptor

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

        Raises:

         - SerializationError, InvalidTopic, UnknownTopic or RecordTooLarge: the record or an argument is wrong.
         - ConfigurationError: ``timeout`` is wrong.
         - KafkaTimeout, BrokerError and its subclasses: the record may not be written.
         - IllegalStateError: the producer is not running, or the partitioner raised another error than a KafkaError.
        """
        if timeout is not None:
            check_timeout(timeout)
            with deadline(timeout, self._late(topic, partition, "acknowledged", timeout)):
                return await self.send(topic, value, key=key, headers=headers, partition=partition, timestamp=timestamp)
        self._check()
        try:
            accepted = self._acceptor.accept(topic, value, key, headers, partition, timestamp)
            return await (accepted if isinstance(accepted, Delivery) else await accepted)
        except KafkaError:
            # Also of a record that was on its way when the transaction failed.
            if self._running().admission.deferred is None:
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
            with deadline(timeout, self._late(topic, partition, "accepted", timeout)):
                return await self.put(topic, value, key=key, headers=headers, partition=partition, timestamp=timestamp)
        self._check()
        try:
            accepted = self._acceptor.accept(topic, value, key, headers, partition, timestamp)
            return accepted if isinstance(accepted, Delivery) else await accepted
        except KafkaError as error:
            if error is not self._running().admission.deferred:
                raise
            return failed_delivery(topic, error)

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
        self._check()
        try:
            return self._acceptor.accept_nowait(topic, value, key, headers, partition, timestamp)
        except KafkaError as error:
            if error is not self._running().admission.deferred:
                raise
            return failed_delivery(topic, error)

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

        The results are a sequence. It contains an error for each record that is refused or not delivered, and a
        ``RecordMetadata`` for each other record. ``keys`` contains one key for each value; ``headers``, ``partition``
        and ``timestamp`` are the same for all. Cancelling the call, or its ``timeout`` in seconds, ends only the wait:
        accepted records are sent in any case. Bytes and str are the fastest: without serializers, interceptors and a
        partitioner of your own, no Python code runs for a single record.

        Raises SerializationError if ``values`` or ``keys`` are not iterables of the same length. Raises
        IllegalStateError if the producer is not running, and KafkaTimeout if there is no room for ``max_block``
        seconds.
        """
        from .accept.many import ValuesAndKeys  # imported here: most producers send single records
        from .accept.results import SendResults, SinglePiece

        self._check()
        pipeline = self._running()
        if (deferred := pipeline.admission.deferred) is not None:
            refused, _ = ValuesAndKeys(topic, values, keys).take(sys.maxsize)
            return SendResults([SinglePiece(topic, [deferred] * len(refused), FailureLog(deferred, logging.DEBUG))])
        pipeline.admission.check()
        with bounded(timeout, lambda: f"records for topic {topic!r} were not acknowledged"):
            items = ValuesAndKeys(topic, values, keys)
            pieces = await pipeline.many_acceptor().accept(topic, items, headers, partition, timestamp)
            for piece in pieces:
                await settled(piece.open)
            return SendResults(pieces)

    async def send_arrow(self, topic: str, table: object, *, timeout: float | None = None) -> list[Written]:
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
        with bounded(timeout, lambda: f"a table for topic {topic!r} was not acknowledged"):
            return await (await self.put_arrow(topic, table))

    async def put_arrow(self, topic: str, table: object, *, timeout: float | None = None) -> BulkDelivery:
        """Accept the rows of an Arrow table as ``send_arrow`` does, and return their promise when all are buffered.

        Rows of one call stay in order. Rows of concurrent calls interleave. After a ``timeout``, in seconds, or a
        cancellation, some of the rows may have been accepted; those are sent.
        """
        self._check()
        with bounded(timeout, lambda: f"a table for topic {topic!r} was not accepted"):
            return await self._running().arrow_acceptor().accept(topic, table)

    def _late(self, topic: str, partition: int | None, what: str, timeout: float) -> Callable[[], str]:
        """Return the function that makes the error of a late call, with the state of its topic at that time."""

        def describe() -> str:
            about = _state_of(topic, partition, self._running().client.view)
            return f"a record for topic {topic!r} was not {what} within timeout={timeout:g} s{about}"

        return describe


def _state_of(name: str, partition: int | None, view: ClusterView) -> str:
    """Return what metadata says about a topic or a partition, for the error of a call that waited for it."""
    topic = view.topics.get(name)
    if topic is None:
        return "; no broker has sent metadata of the topic yet"
    if topic.error is not ErrorCode.NONE:
        return f"; brokers report {topic.error.name} for the topic"
    if partition is not None and topic.partition(partition) is None:
        return f"; the topic has {plural(len(topic.partitions), 'partition')}, got partition={partition}"
    return ""


def bounded(timeout: float | None, what: Callable[[], str]) -> deadline:
    """Bound a call by its ``timeout`` in seconds. ``what()`` begins the text of the KafkaTimeout."""
    check_timeout(timeout)
    return deadline(timeout, lambda: f"{what()} within timeout={timeout:g} s")
