"""Puts partitions with data to send into the queue of their leader, now or when a timer ends.

Rule 1: a queue holds *partitions*, each at most once, not batches. So it has at most one entry for each partition that
        the broker leads. No partition delays another, and a batch grows until it is sent.

Rule 2: a partition decides (``PartitionProducer`` is pure), and ``Dispatcher.act`` carries the decision out.

Timers are few. With linger 0, an iteration of the loop has one. All partitions that linger share one. Each partition
that backs off has one.
"""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final, NamedTuple

from ..aio.byte_budget import ByteBudget
from ..cluster.client import Client
from ..settings.producer import ProducerConfig
from .batch import ProducerBatch
from .partition import Next, PartitionProducer
from .timers import Timers

_new_tuple: Final = tuple.__new__  # creates a NamedTuple without the Python call of its constructor


class Ready(NamedTuple):
    """A partition that has something to send, and its level at that time. At another level the entry is stale."""

    partition: PartitionProducer
    level: int


class ReadyQueue:
    """Partitions in the order of their arrival, each once. An entry with a new level replaces the old entry.

    ``send_now(first, others)`` is a method of the queue's sender. If the sender is free, it sends the partitions at
    once and returns True. Otherwise it does nothing, and the caller puts them into the queue. ``expects_lone()``
    returns whether the broker usually gets one record at a time, so that a record need not wait for others.

    An ``asyncio.Queue`` would take 3 KB, because it has deques and an event for callers that wait for room.
    """

    def __init__(self, send_now: Callable[[Ready, list[Ready]], bool], expects_lone: Callable[[], bool]) -> None:
        self.send_now = send_now
        self.expects_lone = expects_lone
        self._levels: OrderedDict[PartitionProducer, int] = OrderedDict()
        self._waiter: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        """Return the number of queued partitions."""
        return len(self._levels)

    def put_nowait(self, ready: Ready) -> None:
        """Add a partition, and wake the sender."""
        partition, level = ready
        self._levels[partition] = level
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def get_nowait(self) -> Ready:
        """Remove the first partition. Raises KeyError if there is none."""
        return _new_tuple(Ready, self._levels.popitem(last=False))

    async def get(self) -> Ready:
        """Wait for a partition, and remove it. One task waits at a time."""
        while not self._levels:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return self.get_nowait()


class Dispatcher:
    """Owns the ready queues and the timers of partitions.

    ``start_sender(node_id)`` is called for the first partition of a broker, and returns the queue of its sender.
    """

    def __init__(
        self,
        client: Client,
        timers: Timers,
        budget: ByteBudget,
        config: ProducerConfig,
        start_sender: Callable[[int], ReadyQueue],
    ) -> None:
        self._client = client
        self._timers = timers
        self._budget = budget
        self._linger = config.linger
        self._lingers = {topic: config.for_topic(topic).linger for topic in config.topic_settings or ()}
        self._start_sender = start_sender
        self._queues: dict[int, ReadyQueue] = {}
        # Partitions that began a batch in this iteration of the loop, with linger 0.
        self._begun: list[tuple[PartitionProducer, ProducerBatch]] = []
        self._lingering: set[PartitionProducer] = set()
        self._linger_ends: list[tuple[float, int, PartitionProducer]] = []  # a heap; the numbers keep the order
        self._linger_number = 0
        self._linger_timer: asyncio.TimerHandle | None = None
        self._linger_timer_at = math.inf
        self._pauses: dict[PartitionProducer, asyncio.TimerHandle] = {}

    # From batches to queues.

    def begun(self, partition: PartitionProducer, batch: ProducerBatch) -> None:
        """Send the new open batch of a partition after ``linger``, or after this iteration of the loop.

        No batch lingers while senders wait for room. A lone record is sent in this iteration: if the previous requests
        carried one record each, no other record is expected.
        """
        linger = self._linger_of(partition) if self._lingers else self._linger
        if linger and not self._budget.is_short:
            if partition not in self._lingering:
                self._linger_until(partition, batch.opened + linger)
            return
        # Only the first batch of an iteration can be a lone record.
        if not self._begun:
            queue = None if partition.broker is None else self._queues.get(partition.broker)
            if queue is not None and queue.expects_lone() and partition.expedite():
                self._timers.run(self._send_begun, queue, [Ready(partition, partition.level)])
                return
            self._timers.soon(self._iteration_ended)
        self._begun.append((partition, batch))

    def _iteration_ended(self) -> None:
        """Send the batches begun in this iteration: at once if the broker's sender is free, otherwise by its queue."""
        begun, self._begun = self._begun, []
        by_broker: dict[int, list[Ready]] = {}
        for partition, batch in begun:
            # If the batch is no longer open, the event that sealed or expired it has offered the partition.
            if partition.open is batch and partition.expedite() and partition.is_ready:
                assert partition.broker is not None
                by_broker.setdefault(partition.broker, []).append(Ready(partition, partition.level))
        for broker, ready in by_broker.items():
            self._send_begun(self._queue_of(broker), ready)

    def _send_begun(self, queue: ReadyQueue, ready: list[Ready]) -> None:
        if not queue.send_now(ready[0], ready[1:]):
            for entry in ready:
                queue.put_nowait(entry)

    def _linger_of(self, partition: PartitionProducer) -> float:
        return self._lingers.get(partition.topic_partition.topic, self._linger)

    def _linger_until(self, partition: PartitionProducer, end: float) -> None:
        self._lingering.add(partition)
        self._linger_number += 1
        heappush(self._linger_ends, (end, self._linger_number, partition))
        if end < self._linger_timer_at:
            if self._linger_timer is not None:
                self._linger_timer.cancel()
            self._linger_timer, self._linger_timer_at = self._timers.at(end, self._linger_ended), end

    def _linger_ended(self) -> None:
        """Handle the partitions whose linger is over. An open batch that began later lingers for its own time.

        The partitions share one timer: the loop keeps its timers in a heap, and compares them in Python code.
        """
        now = self._timers.now()
        ends = self._linger_ends
        while ends and ends[0][0] <= now:
            partition = heappop(ends)[2]
            self._lingering.discard(partition)
            batch = partition.open
            if batch is None:
                continue
            end = batch.opened + self._linger_of(partition)
            if end > now:
                self._linger_until(partition, end)
            else:
                partition.expedite()
                self.offer(partition)
        self._linger_timer_at = ends[0][0] if ends else math.inf
        self._linger_timer = self._timers.at(self._linger_timer_at, self._linger_ended) if ends else None

    def offer(self, partition: PartitionProducer) -> None:
        """Put a partition into the queue of its leader, if it has data to send."""
        if partition.is_ready and partition.broker is not None:
            self._queue_of(partition.broker).put_nowait(Ready(partition, partition.level))

    def _queue_of(self, node_id: int) -> ReadyQueue:
        queue = self._queues.get(node_id)
        if queue is None:
            queue = self._queues[node_id] = self._start_sender(node_id)
        return queue

    def drop_broker(self, node_id: int) -> None:
        """Drop the queue of a broker whose sender has ended."""
        del self._queues[node_id]

    # Decisions of partitions.

    def act(self, partition: PartitionProducer, following: Next) -> None:
        """Perform the action that a partition has returned."""
        if following is Next.OFFER:
            self.offer(partition)
        elif following is Next.RESUME:
            self._resume(partition)
        elif following is Next.PAUSE:
            pause = partition.pause()
            if pause <= 0:
                self._resume(partition)
            else:
                assert partition not in self._pauses, "a partition that backs off has one timer"
                self._pauses[partition] = self._timers.at(self._timers.now() + pause, self._resume, partition)

    def _resume(self, partition: PartitionProducer) -> None:
        # A newer leader can end the pause early. Its timer would resume the partition a second time.
        timer = self._pauses.pop(partition, None)
        if timer is not None:
            timer.cancel()
        self.act(partition, partition.resume())
        # Without a leader no request is sent, so no failed request would refresh the metadata.
        if partition.leader is None and partition.has_batches:
            self._client.request_refresh([partition.topic_partition.topic])

    def stop(self) -> None:
        """Cancel all timers."""
        for timer in (self._linger_timer, *self._pauses.values()):
            if timer is not None:
                timer.cancel()
        self._linger_ends.clear()
        self._pauses.clear()
