"""One broker's share of the producing: takes what is ready for it, makes requests of it, and hands answers back.

A queue joins it to the partitions. What lies in the queue are not batches but *partitions* that have something to send,
each at most once: so the queue is bounded by the number of partitions that the broker leads, no partition stands in
front of another, and a batch goes on growing until the moment it is sent.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ..errors import ConnectionLost, ErrorCode, KafkaError, UnsupportedVersion
from ..net.connection import Connection, Purpose
from ..protocol.messages import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
    ProduceResponsePartition,
)
from ..protocol.schema import ZERO_UUID
from ..types import Compression
from .batch import Batch
from .metrics import BrokerMetrics, Latencies
from .partition import PartitionProducer
from .verdict import is_retriable

if TYPE_CHECKING:
    from .router import Router

LAST_VERSION_WITH_NAMES = 12

FIRST_WITH_ZSTD = 7

REQUEST_OVERHEAD = 512
"""Bytes of a request that are not batches: its header, names and ids. Only an estimate is needed."""

BROKER_TIMEOUT_SHARE = 0.9
"""The share of the request timeout that the broker may take to have all replicas acknowledge: that it says so is better
than a request that times out here, as that costs the connection."""

STILL_LEADING = 1.0
"""Seconds between two questions whether a broker that cannot be reached still leads what is queued for it."""


AVOIDED_FOR = 5.0
"""Seconds after a failed attempt to connect during which records that may go anywhere do not come here. Then some are
let in again: a broker that nothing is queued for is not called, and so would stay avoided."""


class Ready(NamedTuple):
    """A partition that has something to send, and the level at which it said so."""

    partition: PartitionProducer
    level: int


class Parcel(NamedTuple):
    """A batch on its way, and the partition that waits for the answer."""

    partition: PartitionProducer
    batch: Batch


class ReadyQueue(asyncio.Queue[Ready]):
    """First come, first served, each partition once. An entry at a new level takes the old one's place."""

    _queue: OrderedDict[PartitionProducer, int]

    def _init(self, maxsize: int) -> None:
        self._queue = OrderedDict()

    def _put(self, item: Ready) -> None:
        self._queue[item.partition] = item.level

    def _get(self) -> Ready:
        return Ready(*self._queue.popitem(last=False))


class BrokerProducer:
    """Sends to one broker. ``run`` is its task; answers are handled as they come, by callbacks on their promises."""

    def __init__(self, node_id: int, router: Router) -> None:
        self.node_id = node_id
        self.in_flight = 0
        self._router = router
        self._ready = ReadyQueue()
        self._slots = asyncio.Semaphore(router.config.max_in_flight_requests_per_connection)
        self._watched: Connection | None = None
        self._loop = asyncio.get_running_loop()
        self._avoid_until = 0.0
        self._serving = False
        self._requests = 0
        self._latencies = Latencies()
        self._throttle_time = 0.0

    @property
    def is_idle(self) -> bool:
        """Whether nothing is queued or in flight."""
        return not self._serving and not self.in_flight and self._ready.empty()

    @property
    def is_reachable(self) -> bool:
        """False after an attempt to connect has failed, or while one takes long: nothing need be added to the queue."""
        return self._loop.time() >= self._avoid_until

    def metrics(self, queued_bytes: int) -> BrokerMetrics:
        """How the broker does; ``queued_bytes`` is counted elsewhere."""
        p50, p90, p99, highest = self._latencies.at(0.5, 0.9, 0.99, 1.0)
        return BrokerMetrics(
            node_id=self.node_id,
            is_reachable=self.is_reachable,
            requests=self._requests,
            requests_in_flight=self.in_flight,
            queued_bytes=queued_bytes,
            latency_p50=p50,
            latency_p90=p90,
            latency_p99=p99,
            latency_max=highest,
            throttle_time=self._throttle_time,
        )

    def offer(self, partition: PartitionProducer) -> None:
        """A partition has something to send."""
        self._ready.put_nowait(Ready(partition, partition.level))

    async def run(self) -> None:
        """Send what is ready, for as long as the producer lives."""
        while True:
            ready = await self._ready.get()
            self._serving = True
            await self._serve(ready)
            self._serving = False

    async def _serve(self, first: Ready) -> None:
        """Send one request, once there is a slot and a connection.

        A frame of its own, so that nothing keeps the batches of the last request alive while the next is waited for.
        """
        await self._slots.acquire()
        try:
            connection = await self._connect()
        except KafkaError as error:
            self._slots.release()
            self._unreachable(first, error)
            return
        # No await from here to the writing: a batch that was taken is sent.
        parcels = self._collect(first)
        if not parcels:
            self._slots.release()
        elif self._router.config.required_acks == 0:
            self._send_without_answer(connection, parcels)
            with suppress(ConnectionLost):  # who watches the connection reacts to that
                await connection.drain()
        else:
            self._send(connection, parcels)

    async def _connect(self) -> Connection:
        """The connection, once the broker allows the next request (KIP-219): batches grow until then."""
        while True:
            connection = await self._reach()
            self._avoid_until = 0.0
            throttled = connection.throttled_until - self._loop.time()
            if throttled <= 0:
                return connection
            await asyncio.sleep(throttled)

    async def _reach(self) -> Connection:
        """The connection, however long it takes.

        A broker that is dead or frozen takes long to be given up, and longer to be tried again. Others may lead by then
        what is queued here, and nobody says so unasked: so metadata is asked for again and again meanwhile.
        """
        client = self._router.client
        while True:
            try:
                async with asyncio.timeout(STILL_LEADING):
                    return await client.broker(self.node_id).connection(Purpose.PRODUCE)
            except TimeoutError as error:
                if isinstance(error, KafkaError):
                    raise
                self._avoid()
                client.request_refresh()

    def _avoid(self) -> None:
        self._avoid_until = self._loop.time() + AVOIDED_FOR

    def _unreachable(self, first: Ready, error: KafkaError) -> None:
        """All that is queued here has to look for another leader, or wait until this one is back."""
        self._avoid()
        waiting = [first]
        while not self._ready.empty():
            waiting.append(self._ready.get_nowait())
        for partition, level in waiting:
            if level == partition.level:
                self._router.unreachable(partition, error)

    def _collect(self, first: Ready) -> list[Parcel]:
        """What goes into the next request: a batch of each partition, until the request is full.

        Partitions that have more to send line up again behind the others.
        """
        parcels: list[Parcel] = []
        again: dict[PartitionProducer, None] = {}
        room = self._router.config.max_request_size - REQUEST_OVERHEAD
        entry: Ready | None = first
        while entry is not None:
            partition, level = entry
            # `first` was out of the queue while a connection was waited for, so that its partition may be here again.
            if partition not in again and level == partition.level and partition.is_ready:
                if parcels and partition.next_size > room:
                    again[partition] = None
                    break
                batch = partition.take()
                if batch is not None:
                    parcels.append(Parcel(partition, batch))
                    room -= batch.builder.size
                    again[partition] = None
            entry = None if self._ready.empty() else self._ready.get_nowait()
        for partition in again:
            if partition.is_ready:
                self.offer(partition)
        return parcels

    def _request(self, parcels: list[Parcel]) -> ProduceRequest:
        router = self._router
        topics: dict[str, ProduceRequestTopic] = {}
        count = size = 0
        for partition, batch in parcels:
            name, number = partition.topic_partition
            topic = topics.get(name)
            if topic is None:
                topic = topics[name] = ProduceRequestTopic(
                    name=name, topic_id=router.client.view.topics[name].topic_id, partition_data=[]
                )
            records = batch.encode()
            topic.partition_data.append(ProduceRequestPartition(index=number, records=records))
            count += batch.count
            size += len(records)
            if router.config.compression:
                router.learn_ratio(batch)
        self._requests += 1
        counters = router.counters
        counters.requests_sent += 1
        counters.batches_sent += len(parcels)
        counters.records_sent += count
        counters.bytes_sent += size
        return ProduceRequest(
            transactional_id=None,
            acks=router.config.required_acks,
            timeout_ms=int(router.request_timeout * BROKER_TIMEOUT_SHARE * 1000),
            topic_data=list(topics.values()),
        )

    def _send(self, connection: Connection, parcels: list[Parcel]) -> None:
        request = self._request(parcels)
        try:
            self._check_compression(connection)
            promise = connection.send_nowait(
                request, timeout=self._router.request_timeout, at_most=_newest_version(request)
            )
        except KafkaError as error:
            self._slots.release()
            self._failed(parcels, error)
            return
        self._note_topics(connection, request, parcels)
        self.in_flight += 1
        promise.add_done_callback(partial(self._answered, connection, parcels, self._loop.time()))

    def _note_topics(self, connection: Connection, request: ProduceRequest, parcels: list[Parcel]) -> None:
        """Should a topic be created anew, it matters which one a batch was sent to."""
        by_name = _newest_version(request) is not None or not connection.versions.supports(
            ProduceRequest, LAST_VERSION_WITH_NAMES + 1
        )
        topics = self._router.client.view.topics
        for _, batch in parcels:
            batch.note_topic(ZERO_UUID if by_name else topics[batch.topic].topic_id)

    def _check_compression(self, connection: Connection) -> None:
        """A broker before 2.1 knows no zstd and fails in ways that do not say so (KIP-110)."""
        if self._router.config.compression is not Compression.ZSTD:
            return
        if not connection.versions.supports(ProduceRequest, FIRST_WITH_ZSTD):
            raise UnsupportedVersion(f"{connection!r} cannot read compression='zstd', which came with Kafka 2.1")

    def _answered(
        self, connection: Connection, parcels: list[Parcel], sent_at: float, promise: asyncio.Future[ProduceResponse]
    ) -> None:
        self.in_flight -= 1
        self._slots.release()
        if self._router.stopped:
            return
        try:
            error = promise.exception()
            if error is None:
                response = promise.result()
                self._latencies.add(self._loop.time() - sent_at)
                self._throttle_time += response.throttle_time_ms / 1000
                self._settle(connection, parcels, response)
            elif isinstance(error, KafkaError):
                self._failed(parcels, error)
            else:
                raise error
        except Exception as error:  # noqa: BLE001 - a callback has nobody to raise to; the whole producer ends of it
            self._router.crash(error)

    def _settle(self, connection: Connection, parcels: list[Parcel], response: ProduceResponse) -> None:
        view = self._router.client.view
        answers: dict[tuple[str, int], ProduceResponsePartition] = {}
        for topic in response.responses:
            name = topic.name or view.topic_names.get(topic.topic_id, "")
            for answer in topic.partition_responses:
                answers[name, answer.index] = answer
        for parcel in parcels:
            answer_for_it = answers.get((parcel.batch.topic, parcel.batch.partition))
            if answer_for_it is None:
                answer_for_it = ProduceResponsePartition(
                    index=parcel.partition.topic_partition.partition,
                    error_code=ErrorCode.NETWORK_EXCEPTION,
                    base_offset=-1,
                    error_message="the answer does not mention this partition",
                )
            self._router.answered(parcel, answer_for_it, response.node_endpoints, connection)

    def _failed(self, parcels: list[Parcel], error: KafkaError) -> None:
        """A request ended without an answer; whether the broker acted on it is not known."""
        retriable = is_retriable(error)
        self._router.client.request_refresh()
        for parcel in parcels:
            if retriable:
                self._router.retry(parcel, error)
            else:
                self._router.refuse(parcel, error)

    def _send_without_answer(self, connection: Connection, parcels: list[Parcel]) -> None:
        """acks=0: written to the socket is all that will ever be known."""
        self._slots.release()
        self._watch(connection)
        request = self._request(parcels)
        try:
            self._check_compression(connection)
            connection.send_without_response(request, at_most=_newest_version(request))
        except KafkaError as error:
            self._failed(parcels, error)
            return
        for parcel in parcels:
            self._router.delivered(parcel, -1, -1)

    def _watch(self, connection: Connection) -> None:
        """With acks=0 a broker that refuses a batch can only close the connection: take it as a sign to look anew."""
        if connection is not self._watched:
            self._watched = connection
            connection.closed.add_done_callback(self._hung_up)

    def _hung_up(self, closed: asyncio.Future[KafkaError | None]) -> None:
        if not self._router.stopped and not closed.cancelled() and closed.result() is not None:
            self._router.client.request_refresh()

    def __repr__(self) -> str:
        return f"<BrokerProducer broker={self.node_id} ready={self._ready.qsize()} in_flight={self.in_flight}>"


def _newest_version(request: ProduceRequest) -> int | None:
    """The newest version that can carry the request: topics go by id from 13 on, and not every topic has one known."""
    named = any(topic.topic_id == ZERO_UUID for topic in request.topic_data)
    return LAST_VERSION_WITH_NAMES if named else None
