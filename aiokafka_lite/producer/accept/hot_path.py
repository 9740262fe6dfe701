"""The path of one record from the arguments of a send to its batch. Hot: everything here runs for each record.

Therefore the arguments are passed one by one: an object for them takes 0.15 µs. A record that has to wait leaves this
path as a ``PreparedRecord``; ``accept`` waits.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ...aio.byte_budget import ByteBudget
from ...arguments import INT64_MAX
from ...cluster.topics import check_topic_name
from ...errors import KafkaError, KafkaTimeout, SerializationError
from ...serialization.headers import Headers, headers_of
from ...serialization.serializer import MustAwait, Serialization, serialize
from ...settings.producer import ProducerConfig
from ...types import Header
from ..accumulator import Accumulator, wrong_partition
from ..admission import Admission
from ..delivery import Delivery
from ..record import (
    BATCH_OVERHEAD,
    PENDING_OVERHEAD,
    RECORD_OVERHEAD,
    PreparedRecord,
    largest_record,
    size_of_headers,
    too_large,
)
from .interceptor import Interceptors, ProducerRecord


class HotPath:
    """Intercepts, serializes and measures a record, takes its bytes of ``buffer_memory``, and appends it to a batch.

    ``clock`` returns seconds since the epoch. Topic, partition and timestamp are ``Any`` until they are checked. In the
    compiled build, a typed argument would raise a TypeError of Python instead of the error of the check.
    """

    def __init__(
        self,
        accumulator: Accumulator,
        admission: Admission,
        budget: ByteBudget,
        config: ProducerConfig,
        serialization: Serialization,
        interceptors: Interceptors,
        clock: Callable[[], float],
    ) -> None:
        self._accumulator = accumulator
        self._topics = accumulator.topics
        self._admission = admission
        self._budget = budget
        self._config = config
        self._serialization = serialization
        self._plain_keys = serialization.plain_keys
        self._plain_values = serialization.plain_values
        self._interceptors = interceptors or None  # with None, interceptors cost nothing
        self._clock = clock
        self._largest = largest_record(config)
        self._batch_size = config.smallest_batch_size
        self._small_batches = self._batch_size < 8 * BATCH_OVERHEAD

    def accept(
        self,
        topic: Any,
        value: object,
        key: object,
        headers: Headers,
        partition: Any,
        timestamp: Any,
        is_serialized: bool = False,
    ) -> Delivery | PreparedRecord:
        """Append a record if ``buffer_memory`` has room for it; otherwise return it, so that the caller waits.

        ``is_serialized``: interceptors and serializers have run already. Raises MustAwait, with the ``ProducerRecord``
        after its interceptors, if a serializer returns an awaitable.
        """
        if not is_serialized and (self._admission.refusal is not None or self._interceptors is not None):
            record = self.intercepted(ProducerRecord(topic, value, key, headers, partition, timestamp))
            topic, value, key, headers, partition, timestamp = fields_of(record)
        unserialized_key, checked_headers = key, headers
        try:
            size = RECORD_OVERHEAD
            headers = checked_headers = headers_of(topic, headers) if headers else ()
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
            timestamp = int(self._clock() * 1000) if timestamp is None else _checked_timestamp(topic, timestamp)
            surplus = 0
            try:
                target = self._topics.get(topic)
                # ``type``: the compiled accumulator, whose partition is an int, would take True for 1.
                if (
                    target is None
                    or not target.is_open
                    or (partition is not None and (type(partition) is not int or partition not in target.partitions))
                ):
                    surplus = self._surplus(topic, partition, size)
            except TypeError:  # an object without a hash is not a str
                check_topic_name(topic)
                raise
        except KafkaError as error:
            self.refused(topic, partition, headers, error)
            raise
        except MustAwait:
            # The steps of a record after its interceptors.
            record = ProducerRecord(topic, value, unserialized_key, checked_headers, partition, timestamp)
            raise MustAwait(record) from None
        size += surplus
        if self._budget.try_acquire(size):
            return self._append(topic, key, value, headers, partition, timestamp, size, surplus)
        return PreparedRecord(topic, key, value, headers, partition, timestamp, size, surplus)

    def append(self, record: PreparedRecord) -> Delivery:
        """Append a record whose bytes of ``buffer_memory`` were taken after a wait. Releases them if it raises."""
        return self._append(*record)

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
        try:
            if surplus:
                record = PreparedRecord(topic, key, value, headers, partition, timestamp, size, surplus)
                result, position = self._accumulator.add(record)
            else:
                result, position = self._accumulator.append(topic, key, value, headers, partition, timestamp, size)
        except BaseException as error:
            self._budget.release(size)
            self.refused(topic, partition, headers, error)
            raise
        delivery = Delivery(
            result, position, timestamp, -1 if key is None else len(key), -1 if value is None else len(value)
        )
        if self._interceptors is not None:
            delivery.report(partial(self._interceptors.on_acknowledgement, headers))
        return delivery

    # Not for each record.

    def intercepted(self, record: ProducerRecord) -> ProducerRecord:
        """Pass a record through the interceptors. Raises the refusal of ``Admission``."""
        # Before ``on_send``: for a record that is refused here, rule 2 of ``accept`` then requires no acknowledgement.
        self._admission.check()
        return record if self._interceptors is None else self._interceptors.on_send(record)

    def refused(self, topic: Any, partition: Any, headers: Headers, error: BaseException) -> None:
        """Notify the interceptors that a record was not accepted."""
        if self._interceptors is not None:
            if not isinstance(error, Exception):
                error = KafkaTimeout("the call was cancelled before the record was accepted")
            self._interceptors.refused(topic, partition, headers, error)

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
        return min(BATCH_OVERHEAD, BATCH_OVERHEAD * size // self._batch_size, self._budget.total - size)


def _checked_timestamp(topic: object, timestamp: object) -> int:
    if type(timestamp) is int and 0 <= timestamp <= INT64_MAX:
        return timestamp
    raise SerializationError(
        f"timestamp of a record for topic {topic!r} must be an int of milliseconds >= 0, got {timestamp!r}"
    )


def fields_of(record: Any) -> tuple[Any, object, object, Headers, Any, Any]:
    """Return the fields of a ``ProducerRecord`` in the order of the arguments of ``HotPath.accept``."""
    return record.topic, record.value, record.key, record.headers, record.partition, record.timestamp
