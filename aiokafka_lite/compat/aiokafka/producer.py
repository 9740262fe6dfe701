"""``AIOKafkaProducer`` on top of ``Producer``."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, NamedTuple, Self, Unpack

from ... import producer as native
from ...aio import forks
from ...arguments import INT32_MAX, must_be
from ...cluster.metadata import ClusterView
from ...errors import KafkaError as NativeKafkaError
from ...errors import TransactionAborted
from ...settings.checks import FromMilliseconds
from ...types import GroupMetadata, Header, TopicPartition
from ...types import OffsetAndMetadata as NativeOffset
from ...types import RecordMetadata as NativeMetadata
from .cluster import ClusterMetadata, known
from .errors import (
    IllegalOperation,
    IllegalStateError,
    MessageSizeTooLargeError,
    ProducerClosed,
    ProducerFenced,
    connecting,
    translated,
    translating,
)
from .partitioner import DefaultPartitioner
from .running import Managed
from .settings import ConnectionSettings, changed, connection_settings, listing_settings, naming, seconds
from .structs import RecordMetadata

Serialize = Callable[[Any], bytes]
PartitionerFunction = Callable[[bytes | None, list[int], list[int]], int]
Headers = Iterable[tuple[str, bytes | None]]

_missing: Any = object()
"""The value of an argument that is not given. It has aiokafka's name, because FastStream imports it."""

LEAST_REQUEST_SIZE = 1024
"""The smallest ``max_request_size`` that this client accepts. A smaller value of the program bounds only records."""

BATCH_OVERHEAD = 61
"""The size of a record batch without its records, in bytes."""


class AIOKafkaProducer(Managed):
    """Has the interface of aiokafka's class.

    Raises ValueError for wrong settings, TypeError for unknown ones and for times that are not numbers.
    """

    @listing_settings
    def __init__(
        self,
        *,
        acks: Any = _missing,
        key_serializer: Serialize | None = None,
        value_serializer: Serialize | None = None,
        compression_type: str | None = None,
        max_batch_size: int = 16384,
        partitioner: PartitionerFunction | None = None,
        max_request_size: int = 1048576,
        linger_ms: float = 0,
        enable_idempotence: bool = False,
        transactional_id: str | None = None,
        transaction_timeout_ms: float = 60000,
        **settings: Unpack[ConnectionSettings],
    ) -> None:
        self._given = settings
        self._named = changed(locals(), _DEFAULTS) | settings
        connection = connection_settings(settings)
        is_idempotent = enable_idempotence or transactional_id is not None
        if acks is _missing:
            acks = "all" if is_idempotent else 1
        if transactional_id is not None:
            timeout = seconds("transaction_timeout_ms", transaction_timeout_ms)
            connection |= {"transactional_id": transactional_id, "transaction_timeout": timeout}
        # They have aiokafka's names, because instrumentations read them.
        self._key_serializer, self._value_serializer, self._partitioner = key_serializer, value_serializer, partitioner
        self._max_batch_size = max_batch_size
        self._max_request_size = max_request_size
        self._closed = False
        """Whether ``stop()`` was called. It has aiokafka's name, because frameworks read it."""
        self._partitions: dict[str, set[int]] = {}
        linger = _checked_linger(linger_ms, connection["request_timeout"] * 1000)
        self._settings = {
            "partitioner": None if partitioner is None else _Partitioner(partitioner),
            "acks": acks,
            "idempotence": is_idempotent,
            "compression": compression_type or "none",
            "batch_size": max_batch_size,
            "max_request_size": max(max_request_size, LEAST_REQUEST_SIZE),
            "linger": linger,
            "delivery_timeout": FromMilliseconds(connection["request_timeout"] + max(0.0, linger)),
            "max_block": connection["api_timeout"],
            **connection,
        }
        self._process: int | None = None  # the fork generation of the first start
        self._producer = self._create()

    def _check_process(self) -> None:
        """Raise IllegalStateError in a forked process, if its parent started the producer."""
        if self._process is not None:
            with translating():
                forks.check_process(self._producer, self._process)

    def _create(self) -> native.Producer:
        with naming(self._named):
            return native.Producer(**self._settings)

    async def start(self) -> None:
        """Connect. Raises KafkaConnectionError if no broker answers within ``request_timeout_ms``."""
        self._check_process()
        self._process = forks.generation
        try:
            with connecting():
                await self._producer.start()
        except BaseException:
            self._producer = self._create()  # so that another start() is possible
            raise

    async def stop(self) -> None:
        """Send all accepted records, and close the producer."""
        self._check_process()
        self._closed = True
        try:
            with translating():
                await self._producer.close()
        finally:
            await self._close_client()

    def _known_cluster(self) -> ClusterMetadata:
        with translating():
            return known(self._producer.traffic(), self._partitions)

    def _use_of_topics(self) -> Callable[[str], Awaitable[object]]:
        return self.partitions_for

    async def flush(self) -> None:
        """Wait until each accepted record is acknowledged or has failed."""
        with self._calling():
            await self._producer.flush()

    async def partitions_for(self, topic: str) -> set[int]:
        """Return the numbers of the topic's partitions."""
        with self._calling():
            numbers = {partition.partition for partition in await self._producer.partitions_for(topic)}
        self._partitions[topic] = numbers
        return set(numbers)

    def _partition(
        self,
        topic: str,
        partition: int | None,
        key: Any,
        value: Any,
        key_bytes: bytes | None,
        value_bytes: bytes | None,
    ) -> int | None:
        """Choose the partition of a record of a known topic, for instrumentations; None if the send chooses it."""
        if partition is None and (key_bytes is not None or self._partitioner is not None):
            numbers = sorted(self._partitions[topic])
            return (self._partitioner or DefaultPartitioner())(key_bytes, numbers, numbers)
        return partition

    # Sending.

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
    ) -> asyncio.Future[RecordMetadata]:
        """Accept a record; the future is done when it is acknowledged. Its result is None with ``acks=0``."""
        delivery = await self._put(topic, value, key, partition, timestamp_ms, headers)
        future: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
        is_acknowledged = self._settings["acks"] != 0
        delivery.report(lambda metadata, error: _settle(future, metadata if is_acknowledged else None, error))
        return future

    async def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
    ) -> RecordMetadata:
        """Write a record, and return when it is acknowledged."""
        # As in aiokafka, this calls send(), because instrumentations and subclasses replace it.
        return await (await self.send(topic, value, key, partition, timestamp_ms, headers))

    async def _put(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp_ms: int | None,
        headers: Headers | None,
    ) -> native.Delivery:
        if key is None and value is None:
            raise AssertionError("a record needs a key or a value")
        if partition is not None or topic not in self._partitions:
            await self._check_partition(topic, partition)
        key, value = _serialized(key, self._key_serializer), _serialized(value, self._value_serializer)
        listed = () if headers is None else [Header(*header) for header in headers]
        # The inner producer takes no smaller limit, so the smaller one is checked here.
        if self._max_request_size < LEAST_REQUEST_SIZE:
            self._check_size(key, value, listed)
        with self._calling():
            return await self._producer.put(
                topic, value, key=key, partition=partition, timestamp=timestamp_ms, headers=listed
            )

    async def _check_partition(self, topic: str, partition: int | None) -> None:
        """Wait until the topic and the partition exist. As in aiokafka, ``send`` itself raises, and not its future."""
        numbers = self._partitions.get(topic)
        if numbers is None or (partition is not None and partition not in numbers):
            numbers = await self.partitions_for(topic)
            if partition is not None and partition not in numbers:
                raise AssertionError(f"topic {topic!r} has no partition {partition}")

    def _check_size(self, key: bytes | None, value: bytes | None, headers: Sequence[Header]) -> None:
        if BATCH_OVERHEAD + _size(0, 0, key, value, headers) > self._max_request_size:
            raise MessageSizeTooLargeError(f"the record is larger than max_request_size={self._max_request_size} bytes")

    def create_batch(self) -> BatchBuilder:
        """Create a batch for ``send_batch``, of at most ``max_batch_size`` bytes."""
        return BatchBuilder(self._max_batch_size, self._key_serializer, self._value_serializer)

    async def send_batch(self, batch: BatchBuilder, topic: str, *, partition: int) -> asyncio.Future[RecordMetadata]:
        """Send the records of the batch. When all are acknowledged, the future has the metadata of the first record."""
        await self._check_partition(topic, partition)
        batch.close()
        with self._calling():
            deliveries = [
                await self._producer.put(
                    topic, value, key=key, partition=partition, timestamp=timestamp, headers=headers
                )
                for timestamp, key, value, headers in batch.records
            ]
        if not deliveries:
            raise ValueError("batch must have at least one record")
        future: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
        waiting = list(deliveries)
        is_acknowledged = self._settings["acks"] != 0

        def settle(metadata: NativeMetadata, error: Exception | None) -> None:
            waiting.pop()
            if error is not None:
                _settle(future, metadata, error)
            elif not waiting and not future.done():
                _settle(future, deliveries[0].result() if is_acknowledged else None, None)

        for delivery in deliveries:
            delivery.report(settle)
        return future

    # Transactions.

    async def begin_transaction(self) -> None:
        with self._calling():
            await asyncio.sleep(0)  # as in aiokafka, a task that is cancelled now has not begun the transaction
            await self._producer.begin_transaction()

    async def commit_transaction(self) -> None:
        with self._calling():
            await self._producer.commit_transaction()

    async def abort_transaction(self) -> None:
        with self._calling():
            await self._producer.abort_transaction()

    def transaction(self) -> TransactionContext:
        """Return a transaction for ``async with``: commits at the end, aborts after an exception."""
        return TransactionContext(self)

    async def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, int | tuple[int, str]], group_id: str
    ) -> None:
        """Commit these offsets of the group together with the transaction."""
        with self._calling():
            # As in aiokafka, the state is checked before the arguments. Without offsets, this sends nothing.
            await self._producer.send_offsets_to_transaction({}, GroupMetadata("-", -1, "", None))
        if not group_id or not isinstance(group_id, str):
            raise ValueError(must_be("group_id", "a string that is not empty", group_id))
        with self._calling():
            await self._producer.send_offsets_to_transaction(
                native_offsets(offsets), GroupMetadata(group_id, -1, "", None)
            )

    @contextmanager
    def _calling(self) -> Iterator[None]:
        self._check_process()
        if self._closed:
            raise ProducerClosed("the producer was stopped")
        try:
            with translating():
                yield
        except IllegalStateError as error:
            if error.__cause__ is not None and isinstance(error.__cause__.__cause__, _PartitionerFailed):
                failed: BaseException = error.__cause__.__cause__.args[0]
                raise failed from failed.__cause__
            # a call that needs a transactional_id, or a transaction in another state
            raise IllegalOperation(*error.args) from error.__cause__


_DEFAULTS = AIOKafkaProducer.__init__.__kwdefaults__


def _checked_linger(linger_ms: float, request_timeout_ms: float) -> float:
    """Convert the linger to seconds.

    Raises ValueError if linger and request timeout exceed the longest delivery timeout.
    """
    linger = seconds("linger_ms", linger_ms)
    most = INT32_MAX - min(request_timeout_ms, INT32_MAX)
    if linger_ms > most:
        what = f"a number of milliseconds <= {most:.0f}, so that request_timeout_ms fits"
        raise ValueError(must_be("linger_ms", what, linger_ms))
    return linger


class TransactionContext:
    """The context manager that ``transaction()`` returns."""

    def __init__(self, producer: AIOKafkaProducer) -> None:
        self._producer = producer

    async def __aenter__(self) -> Self:
        await self._producer.begin_transaction()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            await self._producer.commit_transaction()
        else:
            with suppress(ProducerFenced, IllegalOperation):  # a producer that cannot continue cannot abort
                await self._producer.abort_transaction()


class BatchRecord(NamedTuple):
    """A record in a batch: its number, its size in bytes, and its timestamp in milliseconds. ``crc`` is always None."""

    offset: int
    size: int
    timestamp: int
    crc: None = None


class BatchBuilder:
    """Records for ``send_batch``, up to a size."""

    def __init__(self, max_size: int, key_serializer: Serialize | None, value_serializer: Serialize | None) -> None:
        self.records: list[tuple[int, bytes | None, bytes | None, list[Header]]] = []
        self._max_size = max_size
        self._key_serializer = key_serializer
        self._value_serializer = value_serializer
        self._size = BATCH_OVERHEAD
        self._is_closed = False

    def append(
        self, *, timestamp: int | None, key: Any, value: Any, headers: Headers | None = ()
    ) -> BatchRecord | None:
        """Add a record. Without a timestamp, it has the present time.

        Returns None if the batch is closed. A record that does not fit closes the batch.
        """
        if self._is_closed:
            return None
        key, value = _serialized(key, self._key_serializer), _serialized(value, self._value_serializer)
        listed = [Header(*header) for header in headers or ()]
        if timestamp is None:
            timestamp = int(time.time() * 1000)
        first = self.records[0][0] if self.records else timestamp
        size = _size(len(self.records), timestamp - first, key, value, listed)
        if self.records and self._size + size >= self._max_size:  # as in aiokafka, a batch is never full to the byte
            self.close()
            return None
        self._size += size
        self.records.append((timestamp, key, value, listed))
        return BatchRecord(len(self.records) - 1, size, timestamp)

    def close(self) -> None:
        """Take no more records."""
        self._is_closed = True

    def closed(self) -> bool:
        """Return whether the batch takes no more records."""
        return self._is_closed

    def size(self) -> int:
        """Return the size of the batch without compression, in bytes."""
        return self._size

    def record_count(self) -> int:
        return len(self.records)


class _PartitionerFailed(Exception):
    """Carries the exception that a partitioner raised. As in aiokafka, ``send`` raises that exception."""


class _Partitioner:
    """A partitioner of this client that calls a partitioner of aiokafka: a function of the key and the partitions."""

    def __init__(self, function: PartitionerFunction) -> None:
        self._function = function

    def partition(self, topic: str, key: bytes | None, value: bytes | None, view: ClusterView) -> int:
        partitions = view.topics[topic].partitions
        available = [partition.partition for partition in partitions if partition.leader is not None]
        try:
            return self._function(key, list(range(len(partitions))), available)
        except Exception as error:
            raise _PartitionerFailed(error) from error

    def on_new_batch(self, topic: str, partition: int, size: int, view: ClusterView) -> None: ...


def _serialized(value: Any, serialize: Serialize | None) -> bytes | None:
    """Serialize a key or value. Raises TypeError if the result is not bytes; as in aiokafka, str is refused too."""
    data = value if serialize is None else serialize(value)
    if data is None or type(data) is bytes:
        return data
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    raise TypeError(f"a key or value must be bytes, got {type(data).__name__}; use a serializer")


def _size(number: int, delay: int, key: bytes | None, value: bytes | None, headers: Sequence[Header]) -> int:
    """Compute the bytes of a record in a batch, of the given number and ``delay`` milliseconds after the first."""
    size = 1 + _varint_size(delay) + _varint_size(number) + _varint_size(len(headers))
    parts = [key, value]
    for name, content in headers:
        parts += [name.encode(), content]
    for part in parts:
        size += _varint_size(-1) if part is None else _varint_size(len(part)) + len(part)
    return _varint_size(size) + size


def _varint_size(number: int) -> int:
    zigzag = number << 1 if number >= 0 else ~(number << 1)
    return max(1, -(-zigzag.bit_length() // 7))


def native_offsets(offsets: Mapping[TopicPartition, int | tuple[int, str]]) -> dict[TopicPartition, NativeOffset]:
    """Convert offsets to those of this client. Raises ValueError or TypeError for a wrong form, as aiokafka does."""
    if not offsets or not isinstance(offsets, Mapping):
        raise ValueError(f"offsets must be a mapping of TopicPartition to offsets, got {offsets!r}")
    converted = {}
    for partition, entry in offsets.items():
        if not isinstance(partition, TopicPartition):
            raise TypeError(must_be("a key of offsets", "a TopicPartition", partition))
        if not isinstance(entry, int | tuple | list):
            raise ValueError(must_be(f"the offset of {partition}", "a number, or a tuple with metadata", entry))
        offset, metadata = (entry, "") if isinstance(entry, int) else entry  # ValueError for three values
        if not isinstance(metadata, str):
            raise TypeError(must_be("metadata", "a string", metadata))
        converted[partition] = NativeOffset(offset, metadata)
    return converted


def _metadata(metadata: NativeMetadata) -> RecordMetadata:
    place = TopicPartition(metadata.topic, metadata.partition)
    start = None if metadata.log_start_offset < 0 else metadata.log_start_offset
    return RecordMetadata(*place, place, metadata.offset, metadata.timestamp, int(metadata.timestamp_type), start)


def _settle(future: asyncio.Future[Any], metadata: NativeMetadata | None, error: Exception | None) -> None:
    if future.done():  # the program has cancelled the future
        return
    if error is None:
        future.set_result(None if metadata is None else _metadata(metadata))
    else:
        failure = translated(error) if isinstance(error, NativeKafkaError) else error
        failure.__cause__ = error if failure is not error else None
        future.set_exception(failure)
        if isinstance(error, TransactionAborted):
            future.exception()  # the program aborted the transaction, so asyncio need not log a future that is not read
