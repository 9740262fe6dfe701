"""One broker's sender: takes ready partitions from its queue, makes requests of their batches, reports the answers.

Rule 1: a sender only sends. ``Answers`` interprets the answers; no code of the user runs in this loop.

Rule 2: there is no await between taking a batch and writing the request, so a batch that was taken is sent.

Rule 3: answers are handled by callbacks of the connection, in the order in which the broker answers. So the loop never
waits for an answer, only for a free slot (``max_in_flight_requests_per_connection``) and for the connection.

Rule 4: while this task waits for its queue and a request could be written at once, ``_send_now`` sends without the
task. This saves two iterations of the event loop. At any other time partitions go through the queue, so none overtakes
another.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Container
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import anyio

from ..aio.children import ChildScope
from ..aio.retry import is_retriable
from ..cluster.client import Client
from ..errors import ConnectionLost, KafkaError
from ..net.connection import Connection, Purpose
from ..net.traffic import Latencies
from ..protocol.messages import ProduceRequest, ProduceResponse
from ..settings.producer import ProducerConfig
from .answers import Answers, InFlightBatch
from .batch import REQUEST_OVERHEAD
from .dispatch import Dispatcher, Ready, ReadyQueue
from .partition import PartitionProducer
from .produce_requests import ProduceRequests
from .timers import Timers

if TYPE_CHECKING:
    from .metrics import SenderMetrics

RECHECK_LEADER = 1.0
"""Seconds between requests for metadata while a broker cannot be reached, because another broker may lead its
partitions."""

LONE_REQUESTS = 2
"""After this number of lone requests in a row, the sender expects another one. A lone request has a single record, and
no other request is in flight."""

AVOIDED_FOR = 5.0
"""Seconds for which records without a key avoid a broker after a failed attempt to connect. Then some records go to it
again. Without them, the broker would be avoided forever, because the client connects only to brokers with queued
batches."""


@dataclass(slots=True, frozen=True)
class SenderContext:
    """The objects that all senders of a producer share."""

    client: Client
    config: ProducerConfig
    dispatcher: Dispatcher
    answers: Answers
    requests: ProduceRequests
    timers: Timers


class SenderStatistics:
    """The requests to one broker, for metrics. ``throttle_time`` is in seconds."""

    def __init__(self) -> None:
        self.requests: int = 0
        self.latencies: Latencies = Latencies()
        self.throttle_time: float = 0.0

    def answered(self, latency: float, throttle_time_ms: int) -> None:
        """Count an answer that came ``latency`` seconds after its request."""
        self.latencies.add(latency)
        self.throttle_time += max(0, throttle_time_ms) / 1000


class Sender:
    """Sends to one broker. ``run`` is its task.

    The flags, and why each exists:

     - ``_serving``: the task has taken an entry from the queue, and its request is not written yet. ``_send_now`` must
       not overtake it, and ``Senders.keep`` must not stop the task.
     - ``_avoid_until``: the loop's time until which records without a key avoid the broker.
     - ``_lone_requests``: the number of lone requests in a row, which ``_expects_lone`` compares.
    """

    def __init__(self, node_id: int, context: SenderContext) -> None:
        config = context.config
        self.node_id = node_id
        self._client = context.client
        self._dispatcher = context.dispatcher
        self._answers = context.answers
        self._requests = context.requests
        self._timers = context.timers
        self._acks = config.required_acks
        self._request_limit = config.max_request_size - REQUEST_OVERHEAD
        self._request_timeout = context.client.config.request_timeout
        self._slots = config.max_in_flight_requests_per_connection
        self._slot_freed: asyncio.Future[None] | None = None
        self._connection: Connection | None = None
        self._takes_topic_ids = False
        self._avoid_until = 0.0
        self._serving = False
        self._in_flight = 0
        self._all_answered: asyncio.Future[None] | None = None
        self._statistics = SenderStatistics()
        self._lone_requests = 0
        # Last: the compiled build checks each use of an attribute that is set after ``self`` was passed on.
        self.queue = ReadyQueue(self._send_now, self._expects_lone)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is queued or in flight."""
        return not self._serving and not self._in_flight and not self.queue

    @property
    def is_reachable(self) -> bool:
        """False after a failed attempt to connect, or while an attempt takes long."""
        return self._timers.now() >= self._avoid_until

    async def wait_answered(self) -> bool:
        """Wait until every request is answered. Returns False if none was in flight. One task waits at a time."""
        waits = self._in_flight > 0
        while self._in_flight:
            self._all_answered = asyncio.get_running_loop().create_future()
            await self._all_answered
        return waits

    def metrics(self, queued_bytes: int) -> SenderMetrics:
        """Return a snapshot of this broker."""
        from .metrics import SenderMetrics  # imported here: its dataclasses take 2 ms to import

        p50, p90, p99, highest = self._statistics.latencies.at(0.5, 0.9, 0.99, 1.0)
        return SenderMetrics(
            node_id=self.node_id,
            is_reachable=self.is_reachable,
            requests=self._statistics.requests,
            requests_in_flight=self._in_flight,
            queued_bytes=queued_bytes,
            latency_p50=p50,
            latency_p90=p90,
            latency_p99=p99,
            latency_max=highest,
            throttle_time=self._statistics.throttle_time,
        )

    # The loop.

    async def run(self) -> None:
        """Send ready partitions until the producer ends."""
        while True:
            ready = await self.queue.get()
            # ``Senders.keep`` cancels an idle sender. This flag covers the time in which an entry has left the queue
            # and is not in a request yet.
            self._serving = True
            await self._serve(ready)
            self._serving = False

    async def _serve(self, first: Ready) -> None:
        """Send one request, once there is a slot and a connection.

        The method has its own frame, so that no variable keeps the batches of the last request alive.
        """
        # The slot is awaited first: while all slots are taken, batches grow in the partitions instead of waiting in a
        # finished request.
        while self._in_flight >= self._slots:
            self._slot_freed = asyncio.get_running_loop().create_future()
            await self._slot_freed
        try:
            connection = await self._connect()
        except KafkaError as error:
            self._unreachable(first, error)
            return
        in_flight = self._collect(first)  # rule 2: no await from here to the writing
        # The request is empty if the queued partitions were stale, or wait for a producer id.
        if in_flight and self._acks == 0:
            self._send_without_answer(connection, in_flight)
            with suppress(ConnectionLost):  # ``_hung_up`` handles a closed connection
                await connection.drain()
        elif in_flight:
            self._send(connection, in_flight)

    def _expects_lone(self) -> bool:
        """Return whether one caller sends one record after the other, and waits for each.

        This is never true for several callers that send in one iteration of the loop. One request carries their
        records, and its answer wakes all callers. Requests with a single record would double the cost.
        """
        return self._lone_requests >= LONE_REQUESTS and not self._in_flight

    def _send_now(self, first: Ready, others: list[Ready]) -> bool:
        """Send at once, if the task waits for its queue and nothing else delays a request (rule 4)."""
        connection = self._connection
        if (
            self._serving
            or self.queue
            or self._in_flight >= self._slots
            or connection is None
            or not connection.is_free
            or self._acks == 0  # acks=0 needs ``drain``, which waits
        ):
            return False
        # Queued before ``_collect``, which takes all partitions after the first from the queue.
        for ready in others:
            self.queue.put_nowait(ready)
        in_flight = self._collect(first)
        if in_flight:
            self._send(connection, in_flight)
        # True also for an empty request: its partitions wait until an event offers them again.
        return True

    async def _connect(self) -> Connection:
        """Wait until the broker allows the next request (KIP-219), while batches grow. Returns the connection."""
        while True:
            connection = self._connection
            if connection is None or not connection.ready:
                connection = await self._reach()
                self._use(connection)
            # The wait is here and not in the connection, because a request that is held back there could take no more
            # records.
            if not connection.throttled_until:
                return connection
            throttled = connection.throttled_until - self._timers.now()
            if throttled <= 0:
                return connection
            await asyncio.sleep(throttled)

    async def _reach(self) -> Connection:
        """Wait for the connection without a timeout.

        It takes long to detect a dead or frozen broker. Another broker may lead its partitions meanwhile, without any
        event, so metadata is requested repeatedly.
        """
        while True:
            with anyio.move_on_after(RECHECK_LEADER):
                connection = await self._client.broker(self.node_id).connection(Purpose.PRODUCE)
                self._avoid_until = 0.0
                return connection
            self._avoid()
            self._client.request_refresh()

    def _use(self, connection: Connection) -> None:
        """Use a new connection: store its versions and, with acks=0, watch whether it is closed."""
        if connection is self._connection:
            return
        self._connection = connection
        self._takes_topic_ids = connection.versions.supports(ProduceRequest.TOPIC_IDS)
        if self._acks == 0:
            connection.closed.add_done_callback(self._hung_up)

    def _avoid(self) -> None:
        self._avoid_until = self._timers.now() + AVOIDED_FOR

    def _unreachable(self, first: Ready, error: KafkaError) -> None:
        """Stop sending for all partitions that are queued here: each backs off, or moves to another leader."""
        self._avoid()
        waiting = [first]
        while self.queue:
            waiting.append(self.queue.get_nowait())
        for partition, level in waiting:
            # A stale entry has another leader by now, and does not depend on this broker.
            if level == partition.level:
                self._answers.unreachable(partition, error)

    def _collect(self, first: Ready) -> list[InFlightBatch]:
        """Collect the content of the next request: one batch of each queued partition, until the request is full.

        Partitions with more data are queued again, at the end.
        """
        collected: list[InFlightBatch] = []
        again: dict[PartitionProducer, None] = {}
        bytes_left = self._request_limit
        entry: Ready | None = first
        while entry is not None:
            partition, level = entry
            # ``first`` left the queue before the connection was ready, so its partition may be queued a second time.
            # One request carries one batch of a partition, because answers are matched by partition.
            if level == partition.level and partition not in again:
                # ``collected`` is checked first: a batch larger than the request limit is sent alone, because it would
                # wait forever otherwise.
                if collected and partition.next_size > bytes_left:
                    again[partition] = None
                    break
                batch = partition.take()
                if batch is not None:
                    collected.append(InFlightBatch(partition, batch))
                    bytes_left -= batch.builder.size
                    again[partition] = None
            entry = self.queue.get_nowait() if self.queue else None
        # These partitions go to the end of the queue, so that a backlog does not block the other partitions.
        for partition in again:
            if partition.is_ready:
                self.queue.put_nowait(Ready(partition, partition.level))
        return collected

    # Requests.

    def _encodable(self, connection: Connection, in_flight: list[InFlightBatch]) -> list[InFlightBatch]:
        """Fail the batches whose compression the broker does not know. Returns the others."""
        errors = self._requests.unknown_codecs(connection.versions)
        if not errors:
            return in_flight
        encodable: list[InFlightBatch] = []
        for entry in in_flight:
            error = errors.get(self._requests.compression_of(entry.batch))
            if error is None:
                encodable.append(entry)
            else:
                self._failed([entry], error)
        return encodable

    def _make(self, in_flight: list[InFlightBatch]) -> tuple[ProduceRequest, int | None]:
        self._statistics.requests += 1
        is_lone = len(in_flight) == 1 and in_flight[0].batch.builder.count == 1 and not self._in_flight
        self._lone_requests = self._lone_requests + 1 if is_lone else 0
        return self._requests.make(in_flight, takes_topic_ids=self._takes_topic_ids)

    def _send(self, connection: Connection, in_flight: list[InFlightBatch]) -> None:
        in_flight = self._encodable(connection, in_flight)
        if not in_flight:
            return
        request, at_most = self._make(in_flight)
        answered = partial(self._answered, connection, in_flight, self._timers.now())
        self._in_flight += 1  # set before the request is written, because the transport may fail at once
        assert self._in_flight <= self._slots, "a request waits for a free slot"
        try:
            connection.send_with_callback(request, answered, timeout=self._request_timeout, at_most=at_most)
        # The batches count as sent since ``take``, so they must be reported although no request was written.
        except KafkaError as error:
            self._request_ended()
            self._failed(in_flight, error)

    def _answered(
        self,
        connection: Connection,
        in_flight: list[InFlightBatch],
        sent_at: float,
        answer: ProduceResponse | Exception,
    ) -> None:
        # This comes first: the slot is free after any answer, and an exception below must not leak it. A request that
        # the end of the producer interrupts is not handled, but it is no longer in flight either.
        self._request_ended()
        self._timers.run(self._handle, connection, in_flight, sent_at, answer)

    def _request_ended(self) -> None:
        self._in_flight -= 1
        assert self._in_flight >= 0, "each request ends once"
        freed, self._slot_freed = self._slot_freed, None
        if freed is not None and not freed.done():
            freed.set_result(None)
        if self._all_answered is not None and not self._in_flight:
            # The waiter continues in a later iteration of the loop, when the answer is handled.
            waiter, self._all_answered = self._all_answered, None
            if not waiter.done():
                waiter.set_result(None)

    def _handle(
        self,
        connection: Connection,
        in_flight: list[InFlightBatch],
        sent_at: float,
        answer: ProduceResponse | Exception,
    ) -> None:
        if isinstance(answer, KafkaError):
            self._failed(in_flight, answer)
        elif isinstance(answer, Exception):
            # An exception that is not Kafka's is a bug. ``Timers.run`` ends the producer with it.
            raise answer
        else:
            self._statistics.answered(self._timers.now() - sent_at, answer.throttle_time_ms)
            self._settle(connection, in_flight, answer)

    def _settle(self, connection: Connection, in_flight: list[InFlightBatch], response: ProduceResponse) -> None:
        for batch, answer in zip(in_flight, self._requests.answers_of(in_flight, response)):
            self._answers.answered(batch, answer, response.node_endpoints, connection)

    def _failed(self, in_flight: list[InFlightBatch], error: KafkaError) -> None:
        """Handle a request without an answer. It is not known whether the broker has written its batches."""
        # The connection is lost or the broker is frozen, so another broker may lead its partitions now.
        self._client.request_refresh()
        retriable = is_retriable(error)
        for batch in in_flight:
            if retriable:
                self._answers.retry(batch, error)
            else:
                self._answers.refuse(batch, error)

    # Without acknowledgements.

    def _send_without_answer(self, connection: Connection, in_flight: list[InFlightBatch]) -> None:
        """Send batches with acks=0. They are delivered when they are written to the socket, because no answer comes."""
        in_flight = self._encodable(connection, in_flight)
        if not in_flight:
            return
        # There is no answer, so no slot is taken. ``drain`` bounds the unsent bytes instead.
        request, at_most = self._make(in_flight)
        try:
            connection.send_without_response(request, at_most=at_most)
        except KafkaError as error:
            self._failed(in_flight, error)
            return
        for batch in in_flight:
            self._answers.delivered(batch, -1)

    def _hung_up(self, closed: asyncio.Future[KafkaError | None]) -> None:
        """Handle a closed connection with acks=0: a broker that refuses a batch can only close the connection."""
        if not self._timers.stopped and not closed.cancelled() and closed.result() is not None:
            self._client.request_refresh()

    def __repr__(self) -> str:
        return f"<Sender broker={self.node_id} ready={len(self.queue)} in_flight={self._in_flight}>"


class Senders:
    """The senders of a producer, one per broker. Also the load of brokers for a partitioner (``BrokerLoad``)."""

    def __init__(self, context: SenderContext, load: Counter[int], spawn: Callable[[Sender], ChildScope]) -> None:
        self._context = context
        self._load = load
        self._spawn = spawn
        self._senders: dict[int, tuple[Sender, ChildScope]] = {}

    def start(self, node_id: int) -> ReadyQueue:
        """Start the sender of a broker. Returns its queue."""
        sender = Sender(node_id, self._context)
        self._senders[node_id] = sender, self._spawn(sender)
        return sender.queue

    def keep(self, nodes: Container[int]) -> None:
        """Stop the idle senders of brokers that metadata no longer lists."""
        for node_id, (sender, scope) in list(self._senders.items()):
            # If the broker has load, a partition still has sealed batches for it.
            if node_id not in nodes and sender.is_idle and not self._load[node_id]:
                del self._senders[node_id]
                self._context.dispatcher.drop_broker(node_id)
                scope.cancel()

    async def wait_answered(self) -> bool:
        """Wait until the requests to all brokers are answered, each within the request timeout.

        Returns False if no request was in flight.
        """
        # A list, not a generator: ``any`` would stop at the first True, before it waits for the other senders.
        return any([await sender.wait_answered() for sender, _ in list(self._senders.values())])

    def queued(self, node_id: int) -> int:
        """Return the bytes of sealed batches that wait for the broker, or for its answer."""
        return self._load[node_id]

    def is_reachable(self, node_id: int) -> bool:
        """Return False while connections to the broker fail."""
        entry = self._senders.get(node_id)
        return entry is None or entry[0].is_reachable

    def metrics(self) -> dict[int, SenderMetrics]:
        """Return a snapshot of each broker that records were sent to."""
        return {node_id: sender.metrics(self._load[node_id]) for node_id, (sender, _) in self._senders.items()}
