"""The producer as users see it: records in, promises out.

A record goes through stages that each have an owner: serialized here, given a partition by the partitioner, counted
against ``buffer_memory``, appended to its partition's open batch (`PartitionProducer`), and taken from there by the
partition's leader (`BrokerProducer`). Whatever happens to it after that happens to its batch; the record has a light
`Delivery` that points there.
"""

from __future__ import annotations

import asyncio
import logging
import random as _random
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import index
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Unpack

import anyio
import anyio.abc

from ..aio.byte_budget import ByteBudget
from ..aio.retry import Backoff
from ..aio.runtime import Runtime
from ..aio.service import Component, ServiceState
from ..cluster.client import Client
from ..cluster.metadata import ClusterView, PartitionView
from ..cluster.topics import check_topic_name
from ..config import check_function, check_methods, check_timeout
from ..errors import (
    BrokerError,
    BufferFull,
    ErrorCode,
    IllegalStateError,
    KafkaError,
    KafkaTimeout,
    RecordTooLarge,
    SerializationError,
    UnknownTopic,
    error_for,
)
from ..net.connector import Connector
from ..protocol.messages import InitProducerIdRequest
from ..protocol.records import HEADER_SIZE, check_available, check_level
from ..protocol.records.columns import Rows, slices
from ..types import Compression, Header, RecordMetadata, TopicPartition
from .arguments import pairs_of
from .batch import Batch
from .broker import BrokerProducer
from .bulk import ANY, BulkDelivery, Written, placed, rows_of
from .delivery import Delivery, Fate, Loss
from .idempotence import Identities, ProducerIdentity
from .interceptor import Interceptors, ProducerInterceptor, ProducerRecord
from .metrics import Counters, ProducerMetrics, average
from .partition import PartitionProducer
from .partitioner import DefaultPartitioner, Forgetful, LoadAware, Partitioner
from .router import Router
from .serializer import (
    BytesSerializer,
    GivenSerializer,
    Headers,
    as_serializer,
    headers_of,
    is_async,
    serialize,
    serialize_async,
)
from .settings import ProducerSettings, configs
from .topic import UNASSIGNED, HeldRecord, HeldRecords, TopicProducer
from .turns import Turns
from .verdict import is_retriable

if TYPE_CHECKING:
    from .diagnosis import ProducerDiagnosis

logger = logging.getLogger(__name__)

_new_tuple = tuple.__new__

RECORD_OVERHEAD = 24
"""Bytes that a record takes besides key, value and headers: the most that its lengths and deltas can need."""

HEADER_OVERHEAD = 10
"""Bytes that a header takes besides its name and value, at most."""

BATCH_OVERHEAD = 1_000
"""Bytes that an unsettled batch takes besides its records, about. Records of batches smaller than eight times this
are charged for it."""

HELD_OVERHEAD = 256
"""Bytes that a record takes besides the above while it is held for its topic, as it consists of Python objects then."""

STALE_AFTER = 1.0
"""Seconds after which a batch that is due but cannot be sent takes no more records. Its delivery timeout counts from
its first record; later ones should not lose more of theirs than this."""

TURN = 500
"""Records that are accepted, or moved from where they were held, in one turn of the loop: a few milliseconds."""

TOPIC_IDLE = 3600.0
"""Seconds without a record after which a topic is forgotten. With it go its partitions' sequence numbers, which brokers
may remember for longer: so the next record for it is written under a newer epoch. (That metadata does not list a topic
is no reason to forget it.)"""

CLOSE_TIMEOUT = 30.0
"""Seconds that `Producer.close` gives to what is not acknowledged yet."""

ABRUPT_CLOSE_TIMEOUT = 4.0
"""The same, when the body of ``async with`` has raised."""


class Producer(Component):
    """Writes records to a cluster, with nothing lost, reordered within a partition, or written twice.

    ``async with Producer("localhost:9092") as producer`` is its lifetime; ``start`` and ``close`` may also be called by
    themselves. The constructor needs no loop and does no I/O, and raises ``ConfigurationError``. Settings are those of
    `ClientConfig` and `ProducerConfig`. ``connector`` makes the connections, ``clock`` gives the time of day in seconds
    for timestamps, ``random`` numbers in [0, 1) for jitter.

    ``partitioner`` chooses for records that name no partition. ``key_serializer`` and ``value_serializer`` turn what is
    sent into bytes, and may be functions of the key or value alone; without one, bytes and str are taken. If one of
    them is async, serializing overlaps, but records of a topic are accepted, and written within their partition, in the
    order in which the calls began; a record that takes long holds up those after it, and ``send_nowait`` cannot be
    used. ``interceptors`` see each record before it is serialized and when it is settled, in their order.

    Without idempotence (``acks`` 0 or 1, or ``idempotence=False``) a retry may write records twice. Order holds even
    then, as a partition has one batch in flight; with ``acks=0`` nothing is known of any record, and none is retried.
    """

    def __init__(
        self,
        bootstrap_servers: str | list[str] | tuple[str, ...],
        *,
        partitioner: Partitioner | None = None,
        key_serializer: GivenSerializer | None = None,
        value_serializer: GivenSerializer | None = None,
        interceptors: Sequence[ProducerInterceptor] = (),
        connector: Connector | None = None,
        clock: Callable[[], float] = time.time,
        random: Callable[[], float] = _random.random,
        **settings: Unpack[ProducerSettings],
    ) -> None:
        super().__init__()
        client_config, config = configs(bootstrap_servers, settings)
        self.config = config
        codec = Compression.parse(config.compression)
        check_available(codec)
        check_level(codec, config.compression_level)
        check_function("clock", clock, "gives seconds since the epoch")
        check_function("random", random, "gives numbers from 0 up to 1")
        if partitioner is not None:
            check_methods("partitioner", partitioner, "partition", "on_new_batch")
        self._client = Client(client_config, connector=connector, runtime=Runtime(clock, random))
        self._partitioner = DefaultPartitioner(random=random) if partitioner is None else partitioner
        self._interceptors = Interceptors(interceptors) or None  # none at all cost a record nothing
        self._key_serializer, self._value_serializer = (
            BytesSerializer() if given is None else as_serializer(name, given)
            for name, given in (("key_serializer", key_serializer), ("value_serializer", value_serializer))
        )
        self._plain_keys = key_serializer is None
        self._plain_values = value_serializer is None
        self._serializes_async = is_async(self._key_serializer) or is_async(self._value_serializer)
        self._turns = Turns()
        self._clock = clock
        self._random = random
        self._budget = ByteBudget(config.buffer_memory)
        self._has_small_batches = config.batch_size < 8 * BATCH_OVERHEAD
        self._largest = min(config.max_request_size - HEADER_SIZE, config.buffer_memory)
        overhead = HELD_OVERHEAD + (BATCH_OVERHEAD if self._has_small_batches else 0)
        self._largest_held = min(self._largest + overhead, config.buffer_memory)
        self._identities = Identities(self._want_identity) if config.idempotence else None
        self._identity_wanted = asyncio.Event()
        self._topics: dict[str, TopicProducer] = {}
        self._next_sweep = 0.0
        self._router: Router | None = None
        self._crashed: asyncio.Future[None] | None = None
        self._blocked = 0
        self._partitioner_errors: set[type[Exception]] = set()

    # The lifetime.

    async def _on_start(self) -> None:
        self._crashed = asyncio.get_running_loop().create_future()
        await self._service.attach(self._client.service)
        self._router = Router(
            self._client,
            self.config,
            self._budget,
            request_timeout=self._client.config.request_timeout,
            spawn=self._spawn,
            crash=self._crash,
        )
        if isinstance(self._partitioner, LoadAware):
            self._partitioner.use_load(self._router)
        self._client.on_view_change(self._view_changed)
        self._service.start_child(self._answer_for_deliveries, name="Producer: deliveries")
        if self._identities is not None:
            self._service.start_child(self._identify, name="Producer: identity")

    async def close(self, timeout: float | None = CLOSE_TIMEOUT) -> None:
        """Send what is left, for at most ``timeout`` seconds; then end.

        Records that are not acknowledged by then fail with KafkaTimeout. Raises only what the producer itself died of.
        May be called more than once, from any task of the loop; when cancelled, it closes at once.
        """
        check_timeout(timeout)
        await super().close(CLOSE_TIMEOUT if timeout is None else timeout)

    async def _on_close(self) -> None:
        await self._flush()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            await self.close()
            return
        try:
            await self.close(ABRUPT_CLOSE_TIMEOUT)
        except Exception as failure:  # noqa: BLE001 - the body's own exception is the one to report
            if failure is not error:
                logger.warning("%r, while closing because of %r: %r", self, error, failure)

    def _spawn(self, broker: BrokerProducer) -> anyio.CancelScope:
        return self._service.start_child(broker.run, name=f"Producer: broker {broker.node_id}")

    def _crash(self, error: BaseException) -> None:
        if self._crashed is not None and not self._crashed.done():
            self._crashed.set_exception(error)
            self._crashed.exception()  # counts as seen: the producer may be ending already

    async def _answer_for_deliveries(self) -> None:
        """Die of what a callback died of; and when the producer ends, however it does, leave no promise open."""
        assert self._crashed is not None
        assert self._router is not None
        crash: BaseException | None = None
        try:
            await self._crashed
        except Exception as crashed:
            crash = crashed
            raise
        finally:
            self._router.stop()
            error = crash or self._service.failure
            if not isinstance(error, Exception):
                error = KafkaTimeout("the producer was closed before the record was acknowledged")
            loss = Loss(error)
            for topic in self._topics.values():
                if topic.held is not None:
                    self._fail_held(topic, error, loss)
            self._router.fail_all(error, loss=loss)

    # Records in.

    async def send(
        self,
        topic: str,
        value: object = None,
        *,
        key: object = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp: int | None = None,
        timeout: float | None = None,
    ) -> RecordMetadata:
        """Write a record, and return when it is acknowledged.

        ``timestamp`` is in milliseconds, now if None. ``timeout`` bounds the whole call; without it, room is waited for
        ``max_block`` seconds and the acknowledgement ``delivery_timeout``. Cancelling the call, or its timeout,
        abandons the wait and not the record: once accepted it is written all the same, and only ``close`` gives it up.

        Raises SerializationError, RecordTooLarge, UnknownTopic and InvalidTopic, which name what is wrong (arguments of
        a wrong type are SerializationError or InvalidTopic, and ConfigurationError for ``timeout``); KafkaTimeout;
        BrokerError and its kind; IllegalStateError, also for a partitioner that raises something else than a
        KafkaError.
        """
        if timeout is not None:
            return await self._send_within(timeout, topic, value, key, headers, partition, timestamp)
        if self._serializes_async:
            return await (await self._accept_in_turn(topic, value, key, headers, partition, timestamp))
        record = self._record(topic, value, key, headers, partition, timestamp)
        if not self._budget.try_acquire(record.size):
            await self._wait_for_room(record)
        return await self._accept(record)

    async def _send_within(
        self,
        timeout: float,
        topic: str,
        value: object,
        key: object,
        headers: Headers,
        partition: int | None,
        timestamp: int | None,
    ) -> RecordMetadata:
        check_timeout(timeout)
        try:
            async with asyncio.timeout(timeout) as scope:
                return await self.send(topic, value, key=key, headers=headers, partition=partition, timestamp=timestamp)
        except TimeoutError as error:
            if isinstance(error, KafkaError) or not scope.expired():
                raise
            raise KafkaTimeout(
                f"a record for topic {topic!r} was not acknowledged within timeout={timeout:g} s{self._doubt(topic)}"
            ) from None

    def _doubt(self, topic: str) -> str:
        """What speaks against a topic that was waited for, for the text of an error."""
        known = self._client.view.topics.get(topic)
        if known is None:
            return "; no broker has told anything of that topic yet"
        return "" if known.error is ErrorCode.NONE else f"; brokers say of it {known.error.name}"

    def send_nowait(
        self,
        topic: str,
        value: object = None,
        *,
        key: object = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> Delivery:
        """Accept a record now and return its promise; BufferFull when ``buffer_memory`` has no room for it.

        A record for a topic that is not known yet is held back until it is. Raises what is wrong with the record itself
        as `send` does; what comes later, UnknownTopic too, comes out of the `Delivery`. IllegalStateError if a
        serializer is async.
        """
        if self._serializes_async:
            raise IllegalStateError("send_nowait cannot wait for an async serializer: use send or send_many")
        record = self._record(topic, value, key, headers, partition, timestamp)
        if not self._budget.try_acquire(record.size):
            self._hurry()
            error = BufferFull(
                f"no room for a record of {record.size} bytes for topic {record.topic!r}:"
                f" {self._budget.used} of buffer_memory={self._budget.total} bytes are in use; await drain()"
            )
            self._refused(record.topic, record.partition, error)
            raise error
        return self._accept(record)

    async def send_many(
        self,
        topic: str,
        values: Iterable[object],
        *,
        keys: Iterable[object] | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> list[RecordMetadata | Exception]:
        """Write many records, waiting for room as needed, and return what came of each, in their order.

        A record that is refused or not delivered has its error in the list, and the others go on. ``keys`` has one for
        each value; ``headers``, ``partition`` and ``timestamp`` are the same for all. Cancelling abandons the wait, not
        what was accepted. Raises SerializationError when ``values`` or ``keys`` are no collections or differ in
        length; IllegalStateError for a producer that is not running; KafkaTimeout when there is no room for
        ``max_block`` seconds.
        """
        results: list[RecordMetadata | Exception | Delivery] = []
        for value, key in pairs_of(topic, values, keys):
            try:
                if self._serializes_async:
                    results.append(await self._accept_in_turn(topic, value, key, headers, partition, timestamp))
                else:
                    record = self._record(topic, value, key, headers, partition, timestamp)
                    if not self._budget.try_acquire(record.size):
                        await self._wait_for_room(record)
                    results.append(self._accept(record))
            except (SerializationError, BrokerError) as error:
                results.append(error)
            except IllegalStateError as error:
                self._service.check()  # what is left is a partitioner's, for this record
                results.append(error)
            if len(results) % TURN == 0:
                await asyncio.sleep(0)  # others have a turn, and what is accepted already goes out
        settled: list[RecordMetadata | Exception] = []
        for result in results:
            if isinstance(result, Delivery):
                try:
                    settled.append(await result)
                except KafkaError as error:
                    settled.append(error)
            else:
                settled.append(result)
        return settled

    async def send_arrow(self, topic: str, table: object) -> list[Written]:
        """Write the rows of an Arrow table or record batch, and return where they are, run by run, when all are there.

        The columns are ``value``, and as wanted ``key`` (both binary or string), ``headers`` (a list of structs of
        ``key`` and ``value``), ``partition`` and ``timestamp`` (a timestamp, or milliseconds). Rows of a partition stay
        in order. No Python object is made for any of them, so serializers and interceptors have no part in it. Waits
        for room as `send_many` does.

        Raises what is wrong with the table, before anything is sent: SerializationError, RecordTooLarge, UnknownTopic,
        InvalidTopic. Then, when all the others are settled, what the first row failed with that was not written.
        Needs the extra ``arrow``: ConfigurationError without.
        """
        return await (await self.put_arrow(topic, table))

    async def put_arrow(self, topic: str, table: object) -> BulkDelivery:
        """Accept the rows of an Arrow table as `send_arrow` does, and return their promise once all have found room.

        Rows of one call stay in order. Of calls that overlap, rows interleave.
        """
        self._check_may_write()
        if self._interceptors is not None or not (self._plain_keys and self._plain_values):
            raise IllegalStateError(
                "columns of Arrow are written as they are: use a Producer without serializers and interceptors for them"
            )
        parts = rows_of(topic, table, int(self._clock() * 1000))
        for rows in parts:
            if (largest := int(rows.sizes().max())) > self._largest:
                raise self._too_large(topic, largest)
        target = await self._opened(topic)
        for rows in parts:
            if (wrong := rows.partition_beyond(len(target.partitions))) is not None:
                raise self._wrong_partition(topic, len(target.partitions), wrong)
        delivery = BulkDelivery()
        for rows in parts:
            choose = None if type(self._partitioner) is DefaultPartitioner else partial(self._choose, target)
            for number, share in placed(rows, len(target.partitions), choose):
                await self._put(topic, number, share, delivery)
        return delivery

    async def drain(self) -> None:
        """Wait until the buffer has room for a record of any size that may be sent. May be cancelled."""
        self._service.check()
        room = self._largest_held
        if self._budget.free < room or self._budget.is_short:
            self._hurry()
            await self._service.while_running(self._budget.room_for(room))

    async def flush(self, timeout: float | None = None) -> None:
        """Wait until all that was accepted before this call is acknowledged or given up; nothing lingers meanwhile.

        Does not raise what single records failed with: their deliveries do. KafkaTimeout after ``timeout`` seconds, the
        records then go on. May be cancelled.
        """
        self._service.check()
        check_timeout(timeout)
        try:
            async with asyncio.timeout(timeout) as scope:
                await self._service.while_running(self._flush())
        except TimeoutError as error:
            if isinstance(error, KafkaError) or not scope.expired():
                raise
            assert self._router is not None
            raise KafkaTimeout(
                f"{len(self._router.unsettled)} batches were not acknowledged within timeout={timeout:g} s"
            ) from None

    async def partitions_for(self, topic: str) -> tuple[PartitionView, ...]:
        """The partitions of a topic, with leaders and replicas. Raises as `send`, within ``max_block`` seconds."""
        self._service.check()
        return (await self._client.topic(topic, self.config.max_block)).partitions

    def metrics(self) -> ProducerMetrics:
        """What the producer has done and is doing; may be called at any time, and costs some microseconds."""
        router = self._router
        counters = Counters() if router is None else router.counters
        brokers = {} if router is None else router.broker_metrics()
        return ProducerMetrics(
            buffered_bytes=self._budget.used,
            buffer_memory=self._budget.total,
            senders_waiting=self._blocked,
            batches_unsettled=0 if router is None else len(router.unsettled),
            requests_in_flight=sum(broker.requests_in_flight for broker in brokers.values()),
            requests_sent=counters.requests_sent,
            batches_sent=counters.batches_sent,
            records_sent=counters.records_sent,
            bytes_sent=counters.bytes_sent,
            records_delivered=counters.records_delivered,
            records_failed=counters.records_failed,
            retries=counters.retries,
            batch_size_average=average(counters.bytes_sent, counters.batches_sent),
            records_per_batch_average=average(counters.records_sent, counters.batches_sent),
            records_per_request_average=average(counters.records_sent, counters.requests_sent),
            throttle_time=sum(broker.throttle_time for broker in brokers.values()),
            brokers=MappingProxyType(brokers),
        )

    def diagnose(self) -> ProducerDiagnosis:
        """What the producer, its connections and its event loop are doing, to print into a bug report.

        Asks no broker and does not wait. To be called in the event loop.
        """
        from ..cluster.diagnosis import common
        from .diagnosis import ProducerDiagnosis, busy, states_of

        partitions = [partition for topic in self._topics.values() for partition in topic.partitions]
        newest = None if self._identities is None else self._identities.newest
        return ProducerDiagnosis(
            **common(self._service, self._client, self.config),  # type: ignore[arg-type]
            metrics=self.metrics(),
            identity=str(newest) if newest is not None else "none",
            states=states_of(partitions),
            partitions=busy(partitions),
        )

    # Inside: from arguments to a record.

    # Hot: this and `_accept` run for each record. ``is_prepared`` says that the user's code has run already.
    def _record(
        self,
        topic: str,
        value: object,
        key: object,
        headers: Headers,
        partition: int | None,
        timestamp: int | None,
        is_prepared: bool = False,
    ) -> HeldRecord:
        if not is_prepared:
            self._check_may_write()
            if self._interceptors is not None:
                record = self._interceptors.on_send(ProducerRecord(topic, value, key, headers, partition, timestamp))
                topic, value, key, headers = record.topic, record.value, record.key, record.headers
                partition, timestamp = record.partition, record.timestamp
        try:
            size = RECORD_OVERHEAD
            if headers:
                headers = headers_of(topic, headers)
                for name, data in headers:
                    size += HEADER_OVERHEAD + 3 * len(name) + (0 if data is None else len(data))
            if key is not None:
                if type(key) is not bytes or not (self._plain_keys or is_prepared):
                    key = serialize(self._key_serializer, topic, "key", key, tuple(headers))  # type: ignore[arg-type]
                size += len(key)
            if value is not None:
                if type(value) is not bytes or not (self._plain_values or is_prepared):
                    value = serialize(self._value_serializer, topic, "value", value, tuple(headers))  # type: ignore[arg-type]
                size += len(value)
            if size > self._largest:
                raise self._too_large(topic, size)
            if self._has_small_batches:
                size += min(BATCH_OVERHEAD, BATCH_OVERHEAD * size // self.config.batch_size, self._budget.total - size)
            if timestamp is None:
                timestamp = int(self._clock() * 1000)
            elif type(timestamp) is not int or not 0 <= timestamp < 2**63:
                raise SerializationError(
                    f"timestamp={timestamp!r} of a record for topic {topic!r}:"
                    " an int of milliseconds since 1970 is needed"
                )
            surplus = 0
            try:
                target = self._topics.get(topic)
            except TypeError:
                check_topic_name(topic)  # what has no hash is no str
                raise
            if target is None or not target.is_open:
                if partition is not None and type(partition) is not int:
                    raise self._wrong_partition(topic, 0, partition)
                surplus = min(HELD_OVERHEAD, self._budget.total - size)
        except KafkaError as error:
            self._refused(topic, partition, error)
            raise
        # What the constructor of a NamedTuple calls, without the call around it: 150 ns in place of 260.
        return _new_tuple(HeldRecord, (topic, key, value, headers, partition, timestamp, size + surplus, surplus))

    def _check_may_write(self) -> None:
        self._service.check()
        if self._router is not None and self._router.fatal is not None:
            raise self._router.fatal.with_traceback(None)

    def _refused(self, topic: str, partition: int | None, error: BaseException) -> None:
        """Tell the interceptors that a record was not accepted."""
        if self._interceptors is not None:
            if not isinstance(error, Exception):
                error = KafkaTimeout("the call was cancelled before the record was accepted")
            self._interceptors.refused(topic, partition, error)

    async def _accept_in_turn(
        self,
        topic: str,
        value: object,
        key: object,
        headers: Headers,
        partition: int | None,
        timestamp: int | None,
    ) -> Delivery:
        """Accept a record that has to be waited for to be serialized, behind those whose calls began before."""
        self._check_may_write()
        if self._interceptors is not None:
            record = self._interceptors.on_send(ProducerRecord(topic, value, key, headers, partition, timestamp))
            topic, value, key, headers = record.topic, record.value, record.key, record.headers
            partition, timestamp = record.partition, record.timestamp
        try:
            check_topic_name(topic)  # or it could not stand in line
        except KafkaError as error:
            self._refused(topic, partition, error)
            raise
        turn = self._turns.join(topic)
        try:
            try:
                headers = headers_of(topic, headers)
                key, value = await self._serialized(topic, key, value, headers, turn)
                self._check_may_write()
            except BaseException as error:
                self._refused(topic, partition, error)
                raise
            held = self._record(topic, value, key, headers, partition, timestamp, is_prepared=True)
            if not self._budget.try_acquire(held.size):
                await self._wait_for_room(held)
            return self._accept(held)
        finally:
            self._turns.leave(topic, turn)

    async def _serialized(
        self, topic: str, key: object, value: object, headers: tuple[Header, ...], turn: asyncio.Future[None]
    ) -> tuple[bytes | None, bytes | None]:
        """Key and value as bytes, once it is the record's turn."""
        bound = self.config.max_block

        async def ready() -> tuple[bytes | None, bytes | None]:
            of_key = of_value = None
            if key is not None:
                of_key = await serialize_async(self._key_serializer, topic, "key", key, headers)
            if value is not None:
                of_value = await serialize_async(self._value_serializer, topic, "value", value, headers)
            await turn
            return of_key, of_value

        try:
            async with asyncio.timeout(bound) as scope:
                return await self._service.while_running(ready())
        except TimeoutError as error:
            if isinstance(error, KafkaError) or not scope.expired():
                raise
            raise KafkaTimeout(
                f"a record for topic {topic!r}, with those sent before it, was not serialized within"
                f" max_block={bound:g} s"
            ) from None

    def _accept(self, record: HeldRecord) -> Delivery:
        """Put a record, for which room has been taken, on its way; the room is given back if that raises."""
        topic, key, value, _, _, timestamp, size, _ = record
        try:
            target = self._topics.get(topic)
            if target is None or not target.is_open:
                fate, index = self._hold(topic, record)
            else:
                fate, index = self._append(target, record)
        except BaseException as error:
            self._budget.release(size)
            self._refused(topic, record.partition, error)
            raise
        delivery = Delivery(
            fate,
            index,
            timestamp,
            -1 if key is None else len(key),
            -1 if value is None else len(value),
        )
        if self._interceptors is not None:
            delivery.report(self._interceptors.on_acknowledgement)
        return delivery

    def _append(self, target: TopicProducer, record: HeldRecord, sent_at: float | None = None) -> tuple[Batch, int]:
        _, key, value, headers, number, timestamp, size, _ = record
        sticky = number is None
        if number is None:
            number = self._choose(target, key, value)
        elif type(number) is not int or not 0 <= number < len(target.partitions):
            raise self._wrong_partition(target.name, len(target.partitions), number)
        partition = target.partitions[number]
        batch = partition.open
        if batch is not None:
            if (not batch.due or self._is_fresh(batch, sent_at)) and batch.builder.append(
                timestamp, key, value, headers
            ):
                batch.reserved += size
                return batch, batch.builder.count - 1
            assert self._router is not None
            partition.seal()
            self._router.offer(partition)
            if sticky and key is None:  # a full batch is where records without a key may change their partition
                partition = target.partitions[self._choose(target, key, value)]
        return self._append_to_new(target, partition, record, sent_at)

    def _append_to_new(
        self, target: TopicProducer, partition: PartitionProducer, record: HeldRecord, sent_at: float | None
    ) -> tuple[Batch, int]:
        assert self._router is not None
        batch = partition.open
        if batch is None or not batch.builder.append(record.timestamp, record.key, record.value, record.headers):
            if batch is not None:
                partition.seal()
                self._router.offer(partition)
            # Noted as in use for as long as the batch may have to wait for a leader, or metadata would drop it.
            self._client.known_topic(target.name, in_use_for=self.config.delivery_timeout)
            batch = self._router.new_batch(partition, sent_at)
            batch.builder.append(record.timestamp, record.key, record.value, record.headers)
            target.last_used = asyncio.get_running_loop().time()
            batch.due = sent_at is not None and not self._is_fresh(batch)  # those sent later have more time left
        batch.reserved += record.size
        return batch, batch.builder.count - 1

    async def _put(self, topic: str, number: int, rows: Rows, delivery: BulkDelivery) -> None:
        """Make batches of rows for one partition, each when there is room for it; ``number`` may be `ANY`."""
        assert self._router is not None
        for start, stop in slices(rows.sizes(), self._router.room):
            encoded = rows.encode(start, stop)
            size = min(len(encoded.records) + BATCH_OVERHEAD, self._budget.total)
            if not self._budget.try_acquire(size):
                await self._acquire(size, topic)
            try:
                target = await self._opened(topic)
                self._check_may_write()
                chosen = self._choose(target, None, None) if number == ANY else number
                if chosen >= len(target.partitions):  # the topic was created anew meanwhile
                    raise self._wrong_partition(topic, len(target.partitions), chosen)
                partition = target.partitions[chosen]
                self._client.known_topic(topic, in_use_for=self.config.delivery_timeout)
                batch = self._router.full_batch(partition, encoded)
            except BaseException:
                self._budget.release(size)
                raise
            batch.reserved = size
            target.last_used = batch.opened
            delivery.add(batch, len(encoded.records))
            await asyncio.sleep(0)  # others have a turn, and what is accepted already goes out

    async def _opened(self, topic: str) -> TopicProducer:
        """A topic, once it is known and no records are held that came before."""
        while True:
            check_topic_name(topic)
            target = self._topics.get(topic)
            if target is not None and target.is_open:
                return target
            await self._service.while_running(self._client.topic(topic, self.config.max_block))
            held = self._learn(topic).held
            if held is not None:
                await self._service.while_running(held.wait())

    def _is_fresh(self, batch: Batch, sent_at: float | None = None) -> bool:
        now = asyncio.get_running_loop().time() if sent_at is None else sent_at
        return now - batch.opened < STALE_AFTER

    def _choose(self, target: TopicProducer, key: bytes | None, value: bytes | None) -> int:
        try:
            number = index(self._partitioner.partition(target.name, key, value, self._client.view))
        except KafkaError:
            raise
        except Exception as error:
            raise IllegalStateError(
                f"{type(self._partitioner).__name__} could not choose a partition of topic {target.name!r}: {error!r}"
            ) from error
        if not 0 <= number < len(target.partitions):
            raise IllegalStateError(
                f"{type(self._partitioner).__name__} chose partition {number} for topic {target.name!r},"
                f" which has {len(target.partitions)}"
            )
        return number

    def _sealed(self, batch: Batch) -> None:
        if batch.timer is not None:
            batch.timer.cancel()
            batch.timer = None
        assert self._router is not None
        self._router.sealed(batch)
        view = self._client.view
        if batch.topic in view.topics:
            try:
                self._partitioner.on_new_batch(batch.topic, batch.partition, batch.builder.uncompressed_size, view)
            except Exception as error:  # noqa: BLE001 - the batch is closed all the same, and no record is to blame
                self._log_partitioner(error)

    def _log_partitioner(self, error: Exception) -> None:
        if type(error) not in self._partitioner_errors:  # what goes wrong for one batch mostly does so for all
            self._partitioner_errors.add(type(error))
            logger.error("%s.on_new_batch failed; not logged again", type(self._partitioner).__name__, exc_info=error)

    def _too_large(self, topic: str, size: int) -> RecordTooLarge:
        config = self.config
        limit = "max_request_size" if config.max_request_size <= config.buffer_memory else "buffer_memory"
        return RecordTooLarge(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a record of {size + HEADER_SIZE} bytes for topic {topic!r} is above {limit}={getattr(config, limit)}",
        )

    def _wrong_partition(self, topic: str, count: int, number: object) -> SerializationError | UnknownTopic:
        if type(number) is not int:
            return SerializationError(f"partition={number!r} of a record for topic {topic!r}: an int or None is needed")
        return UnknownTopic(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"partition={number!r}: topic {topic!r} has partitions 0 to {count - 1}",
        )

    # Inside: room.

    async def _wait_for_room(self, record: HeldRecord) -> None:
        try:
            await self._acquire(record.size, record.topic)
        except BaseException as error:
            self._refused(record.topic, record.partition, error)
            raise

    async def _acquire(self, size: int, topic: str) -> None:
        self._hurry()
        self._blocked += 1
        bound = self.config.max_block
        try:
            async with asyncio.timeout(bound) as scope:
                await self._service.while_running(self._budget.acquire(size))
        except TimeoutError as error:
            if isinstance(error, KafkaError) or not scope.expired():
                raise
            raise KafkaTimeout(
                f"no room for a record of {size} bytes for topic {topic!r} within max_block={bound:g} s:"
                f" {self._budget.used} of buffer_memory={self._budget.total} bytes are in use"
            ) from None
        finally:
            self._blocked -= 1
        try:
            self._service.check()  # the producer may have been closed in the meantime
        except BaseException:
            self._budget.release(size)
            raise

    def _hurry(self) -> None:
        """Without room nothing should linger. Once is enough: what is begun while somebody waits does not linger."""
        if not self._budget.is_short and self._router is not None:
            self._router.flush()

    async def _flush(self) -> None:
        router = self._router
        if router is None:
            return
        router.flush()
        waiting: list[Fate] = list(router.unsettled)
        while waiting:
            fate = waiting.pop()
            if not fate.settled:
                waiter = fate.wait()
                try:
                    await waiter
                except asyncio.CancelledError:
                    fate.forget(waiter)
                    raise
            if fate.moved is not None:
                waiting.extend(dict.fromkeys(place for place, _ in fate.moved))
                router.flush()

    # Inside: topics.

    def _hold(self, name: str, record: HeldRecord) -> tuple[Fate, int]:
        """Keep a record until its topic is known; or put it on its way, if it is known by now."""
        target = self._topics.get(name)
        if target is None or not target.is_known:
            target = self._learn(name)
            if target.is_known and target.held is None:
                return self._append(target, record)
        assert target.held is not None
        return target.held, target.held.add(record, asyncio.get_running_loop().time())

    def _learn(self, name: str) -> TopicProducer:
        """The topic, known at once if metadata has it; else a task asks for it, and records are held meanwhile."""
        target = self._topics.get(name)
        if target is None:
            now = asyncio.get_running_loop().time()
            if now >= self._next_sweep:
                self._sweep(now)
            target = TopicProducer(name, self._make_partition, now)
        if target.held is not None:
            return target
        if self._client.known_topic(name) is not None:
            self._topics[name] = target
            self._update(target, self._client.view)
            return target
        check_topic_name(name)
        self._topics[name] = target
        assert self._router is not None
        self._router.hold(target.hold())
        self._service.start_child(self._ask_for, target, name=f"Producer: topic {name}")
        return target

    def _sweep(self, now: float) -> None:
        """Forget topics that have been idle for long. Done now and then when one comes along that would be one more."""
        self._next_sweep = now + TOPIC_IDLE / 10
        idle = [each for each in self._topics.values() if each.last_used + TOPIC_IDLE <= now and each.is_idle]
        for target in idle:
            target.retire()
            del self._topics[target.name]
        if isinstance(self._partitioner, Forgetful):
            for target in idle:
                self._partitioner.forget(target.name)

    async def _ask_for(self, target: TopicProducer) -> None:
        """Ask for a topic until it is known, and what was held back for it has moved to batches."""
        assert self._router is not None
        while target.held is not None:
            try:
                await self._client.topic(target.name, min(self.config.max_block, self.config.delivery_timeout))
            except KafkaError as error:
                # First, as who is told of the failure may send again at once: that must not come to what is forgotten
                # here, or there would be two of a partition that both begin at sequence 0.
                if not target.partitions:
                    del self._topics[target.name]
                self._fail_held(target, error)
                return
            self._update(target, self._client.view)
            if self._router.fatal is not None:
                self._fail_held(target, self._router.fatal)
            else:
                await self._move_held(target, target.held)

    async def _move_held(self, target: TopicProducer, held: HeldRecords) -> None:
        """Move records to batches, some in each turn of the loop, unless the topic vanishes again meanwhile.

        Newer ones line up behind them. A slice takes as many as have come since the last one, and some more: so there
        is an end to it.
        """
        assert self._router is not None
        behind = len(held.records)
        while target.held is held and target.is_known and self._router.fatal is None:
            for _ in range(TURN + len(held.records) - behind):
                if not held.records:
                    target.let_go()
                    self._router.let_go(held)
                    held.move(held.places)
                    return
                held.places.append(self._place(target, held.records.popleft(), held.times.popleft()))
            behind = len(held.records)
            await asyncio.sleep(0)

    def _place(self, target: TopicProducer, record: HeldRecord, sent_at: float) -> tuple[Fate, int]:
        """Where a record goes that was held. Whatever is wrong with it is told by its own delivery, and no other."""
        assert self._router is not None
        if record.surplus:
            self._budget.release(record.surplus)
            record = HeldRecord(*record[:6], record.size - record.surplus)
        try:
            return self._append(target, record, sent_at)
        except Exception as error:  # noqa: BLE001 - nobody else is there to be told
            failed = Fate(target.name, UNASSIGNED)
            failed.fail(error)
            self._router.counters.records_failed += 1
            self._budget.release(record.size)
            return failed, 0

    def _fail_held(self, target: TopicProducer, error: Exception, loss: Loss | None = None) -> None:
        held = target.held
        assert held is not None
        assert self._router is not None
        target.let_go()
        for record in held.records:
            self._budget.release(record.size)
        self._router.let_go(held)
        self._router.counters.records_failed += held.fail_rest(error, loss)

    def _make_partition(self, topic_partition: TopicPartition) -> PartitionProducer:
        return PartitionProducer(
            topic_partition,
            identities=self._identities,
            depth=self.config.max_in_flight_requests_per_connection,
            make_backoff=self._make_backoff,
            on_sealed=self._sealed,
        )

    def _make_backoff(self) -> Backoff:
        config = self._client.config
        return Backoff(config.retry_backoff, config.retry_backoff_max, random=self._random)

    def _view_changed(self, view: ClusterView) -> None:
        if self._router is None or self._router.stopped:
            return
        for target in self._topics.values():
            self._update(target, view)
        self._router.keep_brokers(view.nodes)

    def _update(self, target: TopicProducer, view: ClusterView) -> None:
        assert self._router is not None
        if target.update(view):
            self._router.view_changed(view, target.partitions)
        vanished, target.vanished = target.vanished, []
        for partition in vanished:
            self._router.give_up(
                partition,
                self._wrong_partition(target.name, len(target.partitions), partition.topic_partition.partition),
            )

    # Inside: who we are to brokers.

    def _want_identity(self) -> None:
        self._identity_wanted.set()

    async def _identify(self) -> None:
        """Get a producer id whenever one is needed: before the first batch, and when the epochs of one are used up."""
        assert self._identities is not None
        assert self._router is not None
        backoff = self._make_backoff()
        while True:
            await self._identity_wanted.wait()
            try:
                self._identities.arrived(await self._ask_for_identity())
            except KafkaError as error:
                if self.state is not ServiceState.RUNNING and self.state is not ServiceState.CLOSING:
                    raise
                if not is_retriable(error) or (isinstance(error, BrokerError) and not error.code.retriable):
                    self._router.fail_all(error, fatal=True)
                    return
                level = logging.WARNING if self._client.outages.failed("producer id", error) else logging.DEBUG
                logger.log(level, "no producer id yet: %s", error)
                await asyncio.sleep(backoff.next())
                continue
            spell = self._client.outages.over("producer id")
            if spell is not None:
                logger.warning("there is a producer id, after %s", spell)
            self._identity_wanted.clear()
            backoff.reset()
            self._router.offer_all()

    async def _ask_for_identity(self) -> ProducerIdentity:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
        answer = await self._client.send(request)
        if answer.error_code:
            raise error_for(
                answer.error_code, "getting a producer id, which idempotence needs (idempotence=False does without)"
            )
        return ProducerIdentity(answer.producer_id, answer.producer_epoch)

    def __repr__(self) -> str:
        return f"<Producer {self._client.config.client_id} {self.state.name} buffered={self._budget.used}>"
