"""Accepts records: intercepts and serializes them, charges them against ``buffer_memory``, and keeps their order.

Rule 1: the acceptor acquires bytes of ``buffer_memory`` before it passes a record to the ``Accumulator``, and releases
them if the accumulator raises. Otherwise the bytes belong to the record's batch, or to the pending records.

Rule 2: each record that went through ``on_send`` reaches ``on_acknowledgement`` exactly once: through ``_refused`` if
  it is not accepted, otherwise through its delivery.

Rule 3: the records of a topic are accepted in the order in which the calls began. With async serializers, calls wait
for their turn in a ``FifoLock``. A serializer that is not async may return an awaitable, for example until it has a
schema. Then the call waits in the same way, and later calls for its topic wait too. The byte budget serves senders that
wait for memory in their order.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeAlias

from ...aio.deadline import deadline
from ...aio.fifo_lock import FifoLock
from ...aio.service import Service
from ...arguments import INT64_MAX
from ...cluster.topics import check_topic_name
from ...errors import (
    BufferFull,
    ErrorCode,
    IllegalStateError,
    KafkaError,
    KafkaTimeout,
    RecordTooLarge,
    SerializationError,
)
from ...protocol.records import HEADER_SIZE
from ...serialization.headers import Headers, headers_of
from ...serialization.serializer import MustAwait, Serialization, serialize, serialize_async
from ...settings.config import ProducerConfig
from ...types import Header
from ..accumulator import Accumulator, wrong_partition
from ..buffer_memory import BufferMemory
from ..delivery import BatchResult, Delivery, FailureLog
from ..interceptor import Interceptors, ProducerRecord
from ..record import (
    BATCH_OVERHEAD,
    PENDING_OVERHEAD,
    RECORD_OVERHEAD,
    PreparedRecord,
    size_of_headers,
)
from ..settle import Settlement

Prepared: TypeAlias = tuple[Any, bytes | None, bytes | None, tuple[Header, ...], Any, int, int, int]
"""The fields of a ``PreparedRecord``. In a compiled module, this tuple is a struct in C and not a Python object."""


class Acceptor:
    """Turns the arguments of a send into a ``Delivery``. ``clock`` returns seconds since the epoch.

    All calls take ``(topic, value, key, headers, partition, timestamp)`` as ``Producer.send`` does, and expect that the
    producer runs. Topic, partition and timestamp are ``Any`` until they are checked. In the compiled build, a typed
    argument would raise a TypeError of Python instead of the error of the check.
    """

    def __init__(
        self,
        accumulator: Accumulator,
        settlement: Settlement,
        room: BufferMemory,
        config: ProducerConfig,
        serialization: Serialization,
        interceptors: Interceptors,
        clock: Callable[[], float],
        service: Service,
    ) -> None:
        self.in_order: FifoLock = FifoLock()
        self._accumulator = accumulator
        self._topics = accumulator.topics
        self._settlement = settlement
        self._room = room
        self._budget = room.budget
        self._config = config
        self._serialization = serialization
        self._is_async = serialization.is_async
        self._may_wait = self._is_async  # also set when a serializer that is not async has returned an awaitable
        self._plain_keys = serialization.plain_keys
        self._plain_values = serialization.plain_values
        self._interceptors = interceptors or None  # with None, interceptors cost nothing
        self._clock = clock
        self._service = service
        self._largest = largest_record(config)
        self._small_batches = config.batch_size < 8 * BATCH_OVERHEAD

    # Hot: these methods run for each record.
    def accept_nowait(
        self,
        topic: Any,
        value: object,
        key: object,
        headers: Headers,
        partition: Any,
        timestamp: Any,
    ) -> Delivery:
        """Accept a record now. Raises BufferFull if there is no room, IllegalStateError for async serializers."""
        # A queue in use has earlier calls for the topic, which this record must not overtake (rule 3).
        if self._may_wait and (self._is_async or self.in_order.is_used(topic)):
            raise _cannot_wait()
        try:
            topic, key, value, headers, partition, timestamp, size, surplus = self._prepare(
                topic, value, key, headers, partition, timestamp
            )
        except MustAwait as waiting:
            error = _cannot_wait()
            # The interceptors have seen the record before its serializer returned an awaitable (rule 2).
            self._refused(topic, partition, waiting.args[0].headers, error)
            raise error from None
        if not self._budget.try_acquire(size):
            raise self._buffer_full(topic, partition, headers, size)
        return self._append(topic, key, value, headers, partition, timestamp, size, surplus)

    # Hot as well. It is not ``async``, because a second coroutine for each record costs 0.3 µs.
    def accept(
        self,
        topic: Any,
        value: object,
        key: object,
        headers: Headers,
        partition: Any,
        timestamp: Any,
    ) -> Delivery | Coroutine[Any, Any, Delivery]:
        """Accept a record. If it has to wait for room or for an async serializer, the result is a coroutine.

        If the coroutine is cancelled, the record is not accepted.
        """
        if self._may_wait and (self._is_async or self.in_order.is_used(topic)):
            return self._accept_in_order(topic, value, key, headers, partition, timestamp)
        try:
            topic, key, value, headers, partition, timestamp, size, surplus = self._prepare(
                topic, value, key, headers, partition, timestamp
            )
        except MustAwait as error:
            self._may_wait = True
            return self._accept_in_order(*_fields(error.args[0]), is_intercepted=True)
        if not self._budget.try_acquire(size):
            return self._accept_later(PreparedRecord(topic, key, value, headers, partition, timestamp, size, surplus))
        return self._append(topic, key, value, headers, partition, timestamp, size, surplus)

    # From arguments to a record.

    def _prepare(
        self,
        topic: Any,
        value: object,
        key: object,
        headers: Headers,
        partition: Any,
        timestamp: Any,
        is_serialized: bool = False,
    ) -> Prepared:
        """Serialize and measure a record. ``is_serialized``: interceptors and serializers have run already."""
        if not is_serialized and (self._settlement.refusal is not None or self._interceptors is not None):
            topic, value, key, headers, partition, timestamp = self._intercepted(
                topic, value, key, headers, partition, timestamp
            )
        given_key, given_headers = key, headers
        try:
            size = RECORD_OVERHEAD
            headers = given_headers = headers_of(topic, headers) if headers else ()
            # The key comes first, as in Java's client: the value's serializer gets the headers that the key's
            # serializer has added.
            if key is not None:
                if type(key) is not bytes or not (self._plain_keys or is_serialized):
                    key, headers = serialize(self._serialization.key, topic, "key", key, headers)
                size += len(key)
            if value is not None:
                if type(value) is not bytes or not (self._plain_values or is_serialized):
                    value, headers = serialize(self._serialization.value, topic, "value", value, headers)
                size += len(value)
            if headers:
                size += size_of_headers(headers)
            if size > self._largest:
                raise too_large(self._config, topic, size)
            # Without this charge, batches of a few records could use several times ``buffer_memory``.
            if self._small_batches:
                size += self._share_of_batch(size)
            if timestamp is None:
                timestamp = int(self._clock() * 1000)
            elif type(timestamp) is not int or not 0 <= timestamp <= INT64_MAX:
                raise SerializationError(
                    f"timestamp of a record for topic {topic!r} must be an int of milliseconds >= 0, got {timestamp!r}"
                )
            try:
                target = self._topics.get(topic)
                surplus = (
                    0
                    if target is not None
                    and target.is_open
                    # ``type``: the compiled accumulator, whose partition is an int, would take True for 1.
                    and (partition is None or (type(partition) is int and partition in target.partitions))
                    else self._surplus(topic, partition, size)
                )
            except TypeError:  # an object without a hash is not a str
                check_topic_name(topic)
                raise
        except KafkaError as error:
            self._refused(topic, partition, headers, error)
            raise
        except MustAwait:
            # The steps of a record after its interceptors.
            record = ProducerRecord(topic, value, given_key, given_headers, partition, timestamp)
            raise MustAwait(record) from None
        return topic, key, value, headers, partition, timestamp, size + surplus, surplus

    def _intercepted(
        self, topic: Any, value: object, key: object, headers: Headers, partition: Any, timestamp: Any
    ) -> tuple[Any, object, object, Headers, Any, Any]:
        """Return the arguments of a send after the interceptors. Raises the errors of ``check_writable``."""
        # Before ``on_send``: for a record that is refused here, rule 2 then requires no acknowledgement.
        self.check_writable()
        record = ProducerRecord(topic, value, key, headers, partition, timestamp)
        return _fields(record if self._interceptors is None else self._interceptors.on_send(record))

    def _surplus(self, topic: Any, partition: Any, size: int) -> int:
        """Return the additional bytes of a record that will be pending, because its topic or partition is not known."""
        if not isinstance(topic, str):
            check_topic_name(topic)
        if partition is not None and type(partition) is not int:
            raise wrong_partition(topic, (), partition)
        # Bounded, because a record that fits into the empty buffer must not wait forever for its overhead.
        return min(PENDING_OVERHEAD, self._budget.total - size)

    def _share_of_batch(self, size: int) -> int:
        """Return the part of a small batch's overhead that a record of this size is charged for."""
        return min(BATCH_OVERHEAD, BATCH_OVERHEAD * size // self._config.batch_size, self._budget.total - size)

    def check_writable(self) -> None:
        """Raise if this producer takes no records now: it has failed, or no transaction is open."""
        if self._settlement.refusal is not None:
            # The same object is raised for each record. Without this, its traceback would grow with each raise.
            raise self._settlement.refusal.with_traceback(None)

    @property
    def deferred(self) -> KafkaError | None:
        """The error of a failed transaction that the commit will raise, and no send; None if there is none."""
        return self._settlement.refusal if self._settlement.defers_refusal else None

    def failed(self, topic: object, error: KafkaError) -> Delivery:
        """Return a promise that has failed with this error."""
        result = BatchResult(str(topic), -1)
        result.fail(error, FailureLog(error, logging.DEBUG))
        return Delivery(result, 0, -1, -1, -1)

    @property
    def transaction(self) -> int:
        """The number of the present or last transaction, for ``check_transaction``."""
        return self._settlement.transaction

    def check_transaction(self, number: int) -> None:
        """Raise unless the transaction with this number is open, for a call that has waited."""
        self.check_writable()
        if number != self._settlement.transaction:
            raise IllegalStateError(
                "the record was not accepted: its transaction ended while the call waited; await each send before the"
                " transaction ends"
            )

    # From a record to a delivery.

    def _append(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: tuple[Header, ...],
        partition: int | None,
        timestamp: int,
        size: int,
        surplus: int,
    ) -> Delivery:
        """Pass a record to the accumulator. Its room is taken already, and is released if this raises."""
        try:
            result, position = self._accumulator.append(topic, key, value, headers, partition, timestamp, size, surplus)
        except BaseException as error:
            self._budget.release(size)
            self._refused(topic, partition, headers, error)
            raise
        delivery = Delivery(
            result, position, timestamp, -1 if key is None else len(key), -1 if value is None else len(value)
        )
        if self._interceptors is not None:
            delivery.report(partial(self._interceptors.on_acknowledgement, headers))
        return delivery

    async def _accept_later(self, record: PreparedRecord) -> Delivery:
        # Read before the wait. After the wait, another transaction may be open, and the record does not belong to it.
        number = self._settlement.transaction
        await self._wait_for_room(record, number)
        return self._append(*record)

    async def _wait_for_room(self, record: PreparedRecord, number: int) -> None:
        try:
            await self._room.acquire(record.size, record.topic)
            try:
                self.check_transaction(number)
            except BaseException:
                self._budget.release(record.size)
                raise
        except BaseException as error:
            self._refused(record.topic, record.partition, record.headers, error)
            raise

    def _buffer_full(self, topic: str, partition: int | None, headers: Headers, size: int) -> BufferFull:
        # A caller that tries again later finds room only if the batches of the full buffer do not linger.
        self._room.hurry()
        error = BufferFull(
            f"no room for a record of {size} bytes for topic {topic!r}: {self._budget.used} of"
            f" buffer_memory={self._budget.total} bytes are in use; use `await put(...)`, which waits for room"
        )
        self._refused(topic, partition, headers, error)
        return error

    def _refused(self, topic: Any, partition: Any, headers: Headers, error: BaseException) -> None:
        """Notify the interceptors that a record was not accepted."""
        if self._interceptors is not None:
            if not isinstance(error, Exception):
                error = KafkaTimeout("the call was cancelled before the record was accepted")
            self._interceptors.refused(topic, partition, headers, error)

    # Async serializers.

    async def _accept_in_order(
        self,
        topic: Any,
        value: object,
        key: object,
        headers: Headers,
        partition: Any,
        timestamp: Any,
        is_intercepted: bool = False,
    ) -> Delivery:
        """Accept a record with async serializers, behind the records of its topic whose calls began before."""
        number = self._settlement.transaction
        if not is_intercepted:
            topic, value, key, headers, partition, timestamp = self._intercepted(
                topic, value, key, headers, partition, timestamp
            )
        try:
            check_topic_name(topic)  # the name is the key of a queue
        except KafkaError as error:
            self._refused(topic, partition, headers, error)
            raise
        # Joined before the first await, so that the queue has the order of the calls (rule 3).
        turn = self.in_order.join(topic)
        try:
            try:
                headers = headers_of(topic, headers)
                key, value, headers = await self._serialized(topic, key, value, headers, turn)
                self._service.check()
                self.check_transaction(number)
            except BaseException as error:
                self._refused(topic, partition, headers, error)
                self._room.raise_if_closed(topic, error)
                raise
            record = PreparedRecord(
                *self._prepare(topic, value, key, headers, partition, timestamp, is_serialized=True)
            )
            # Waits for room without leaving the queue, so that no later record of the topic overtakes this one.
            if not self._budget.try_acquire(record.size):
                await self._wait_for_room(record, number)
            return self._append(*record)
        finally:
            self.in_order.leave(topic, turn)

    async def _serialized(
        self, topic: str, key: object, value: object, headers: tuple[Header, ...], turn: asyncio.Future[None]
    ) -> tuple[bytes | None, bytes | None, tuple[Header, ...]]:
        """Wait for the record's turn.

        Returns key and value as bytes, and the headers, which serializers may have changed.
        """
        bound = self._config.max_block

        async def serialized() -> tuple[bytes | None, bytes | None, tuple[Header, ...]]:
            made, key_bytes, value_bytes = headers, None, None
            if key is not None:
                key_bytes, made = await serialize_async(self._serialization.key, topic, "key", key, made)
            if value is not None:
                value_bytes, made = await serialize_async(self._serialization.value, topic, "value", value, made)
            # Awaited after the serializers, so that the serializers of several records of a topic overlap.
            await turn
            return key_bytes, value_bytes, made

        def describe() -> str:
            return (
                f"a record for topic {topic!r}, or an earlier record for it, was not serialized within"
                f" max_block={bound:g} s"
            )

        with deadline(bound, describe):
            return await self._service.while_running(serialized())


def _cannot_wait() -> IllegalStateError:
    return IllegalStateError(
        "send_nowait cannot wait for an async serializer, or for the first schema of a topic; use put, send or"
        " send_many"
    )


def largest_record(config: ProducerConfig) -> int:
    """Return the bytes of the largest record that may be sent, without its batch's header."""
    return min(config.max_request_size - HEADER_SIZE, config.buffer_memory)


def largest_pending_record(config: ProducerConfig) -> int:
    """Return the most bytes of ``buffer_memory`` that a record can use while it is pending."""
    overhead = PENDING_OVERHEAD + (BATCH_OVERHEAD if config.batch_size < 8 * BATCH_OVERHEAD else 0)
    return min(largest_record(config) + overhead, config.buffer_memory)


def too_large(config: ProducerConfig, topic: str, size: int) -> RecordTooLarge:
    """Return the error for a record that is larger than ``largest_record``."""
    limit = "max_request_size" if config.max_request_size <= config.buffer_memory else "buffer_memory"
    return RecordTooLarge(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"a record of {size + HEADER_SIZE} bytes for topic {topic!r} is above {limit}={getattr(config, limit)}",
    )


def _fields(record: Any) -> tuple[Any, object, object, Headers, Any, Any]:
    return record.topic, record.value, record.key, record.headers, record.partition, record.timestamp
