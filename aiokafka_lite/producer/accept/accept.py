"""Accepts records: intercepts and serializes them, charges them against ``buffer_memory``, and keeps their order.

Rule 1: bytes of ``buffer_memory`` are acquired before a record is passed to the ``Accumulator``, and released if the
accumulator raises. Otherwise the bytes belong to the record's batch, or to the pending records.

Rule 2: each record that went through ``on_send`` reaches ``on_acknowledgement`` exactly once: through
  ``HotPath.refused`` if it is not accepted, otherwise through its delivery.

Rule 3: the records of a topic are accepted in the order in which the calls began. With async serializers, calls wait
for their turn in a ``FifoLock``. A serializer that is not async may return an awaitable, for example until it has a
schema. Then the call waits in the same way, and later calls for its topic wait too. The byte budget serves senders that
wait for memory in their order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from ...aio.deadline import deadline
from ...aio.fifo_lock import FifoLock
from ...aio.service import Service
from ...cluster.topics import check_topic_name
from ...errors import BufferFull, IllegalStateError, KafkaError
from ...serialization.headers import Headers, headers_of
from ...serialization.serializer import MustAwait, Serialization, serialize_async
from ...settings.producer import ProducerConfig
from ...types import Header
from ..admission import Admission
from ..buffer_memory import BufferMemory
from ..delivery import Delivery
from ..record import PreparedRecord
from .hot_path import HotPath, fields_of
from .interceptor import ProducerRecord


class Acceptor:
    """Accepts the records of single sends. ``path`` appends a record; this class waits where a record has to wait.

    Its calls take ``(topic, value, key, headers, partition, timestamp)`` as ``Producer.send`` does, while the producer
    runs.
    """

    def __init__(
        self,
        path: HotPath,
        admission: Admission,
        memory: BufferMemory,
        config: ProducerConfig,
        serialization: Serialization,
        service: Service,
    ) -> None:
        self.in_order: FifoLock = FifoLock()
        self._path = path
        self._admission = admission
        self._memory = memory
        self._budget = memory.budget
        self._max_block = config.max_block
        self._serialization = serialization
        self._is_async = serialization.is_async
        self._may_wait = self._is_async  # also set when a serializer that is not async has returned an awaitable
        self._service = service

    # Hot: runs for each record.
    def accept_nowait(
        self, topic: Any, value: object, key: object, headers: Headers, partition: Any, timestamp: Any
    ) -> Delivery:
        """Accept a record now. Raises BufferFull if there is no room, IllegalStateError for async serializers."""
        # A queue in use has earlier calls for the topic, which this record must not overtake (rule 3).
        if self._may_wait and (self._is_async or self.in_order.is_used(topic)):
            raise _cannot_wait()
        try:
            accepted = self._path.accept(topic, value, key, headers, partition, timestamp)
        except MustAwait as waiting:
            error = _cannot_wait()
            # The interceptors have seen the record before its serializer returned an awaitable (rule 2).
            self._path.refused(topic, partition, waiting.args[0].headers, error)
            raise error from None
        if isinstance(accepted, Delivery):
            return accepted
        raise self._buffer_full(accepted)

    # Hot as well. It is not ``async``, because a second coroutine for each record costs 0.3 µs.
    def accept(
        self, topic: Any, value: object, key: object, headers: Headers, partition: Any, timestamp: Any
    ) -> Delivery | Coroutine[Any, Any, Delivery]:
        """Accept a record. If it has to wait for room or for an async serializer, the result is a coroutine.

        If the coroutine is cancelled, the record is not accepted.
        """
        if self._may_wait and (self._is_async or self.in_order.is_used(topic)):
            return self._accept_in_order(ProducerRecord(topic, value, key, headers, partition, timestamp))
        try:
            accepted = self._path.accept(topic, value, key, headers, partition, timestamp)
        except MustAwait as error:
            self._may_wait = True
            return self._accept_in_order(error.args[0], is_intercepted=True)
        return accepted if isinstance(accepted, Delivery) else self._accept_later(accepted)

    # Waiting for room.

    async def _accept_later(self, record: PreparedRecord) -> Delivery:
        # Read before the wait. After the wait, another transaction may be open, and the record does not belong to it.
        return await self._accept_with_room(record, self._admission.transaction)

    async def _accept_with_room(self, record: PreparedRecord, transaction: int) -> Delivery:
        """Append a record when there is room for it, if its transaction is still open."""
        try:
            await self._memory.acquire(record.size, record.topic)
            try:
                self._admission.check_transaction(transaction)
            except BaseException:
                self._budget.release(record.size)
                raise
        except BaseException as error:
            self._path.refused(record.topic, record.partition, record.headers, error)
            raise
        return self._path.append(record)

    def _buffer_full(self, record: PreparedRecord) -> BufferFull:
        # A caller that tries again later finds room only if the batches of the full buffer do not linger.
        self._memory.hurry()
        error = BufferFull(
            f"no room for a record of {record.size} bytes for topic {record.topic!r}: {self._budget.used} of"
            f" buffer_memory={self._budget.total} bytes are in use; use `await put(...)`, which waits for room"
        )
        self._path.refused(record.topic, record.partition, record.headers, error)
        return error

    # Async serializers.

    async def _accept_in_order(self, record: ProducerRecord, is_intercepted: bool = False) -> Delivery:
        """Accept a record with async serializers, behind the records of its topic whose calls began before."""
        transaction = self._admission.transaction
        if not is_intercepted:
            record = self._path.intercepted(record)
        topic, value, key, headers, partition, timestamp = fields_of(record)
        try:
            check_topic_name(topic)  # the name is the key of a queue
        except KafkaError as error:
            self._path.refused(topic, partition, headers, error)
            raise
        # Joined before the first await, so that the queue has the order of the calls (rule 3).
        turn = self.in_order.join(topic)
        try:
            try:
                headers = headers_of(topic, headers)
                key, value, headers = await self._serialized(topic, key, value, headers, turn)
                self._service.check()
                self._admission.check_transaction(transaction)
            except BaseException as error:
                self._path.refused(topic, partition, headers, error)
                self._memory.raise_if_closed(topic, error)
                raise
            accepted = self._path.accept(topic, value, key, headers, partition, timestamp, is_serialized=True)
            # Waits for room without leaving the queue, so that no later record of the topic overtakes this one.
            return accepted if isinstance(accepted, Delivery) else await self._accept_with_room(accepted, transaction)
        finally:
            self.in_order.leave(topic, turn)

    async def _serialized(
        self, topic: str, key: object, value: object, headers: tuple[Header, ...], turn: asyncio.Future[None]
    ) -> tuple[bytes | None, bytes | None, tuple[Header, ...]]:
        """Wait for the record's turn. Returns key and value as bytes, and the headers, which serializers may change."""
        bound = self._max_block

        async def serialized() -> tuple[bytes | None, bytes | None, tuple[Header, ...]]:
            all_headers, key_bytes, value_bytes = headers, None, None
            if key is not None:
                key_bytes, all_headers = await serialize_async(self._serialization.key, topic, "key", key, all_headers)
            if value is not None:
                value_bytes, all_headers = await serialize_async(
                    self._serialization.value, topic, "value", value, all_headers
                )
            # Awaited after the serializers, so that the serializers of several records of a topic overlap.
            await turn
            return key_bytes, value_bytes, all_headers

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
