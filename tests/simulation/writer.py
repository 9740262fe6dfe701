"""A producer of a simulation: it writes unique, increasing values to each partition and notes how each send ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any, Protocol

from aiokafka_lite import Delivery, KafkaError, Producer, RecordMetadata, TopicPartition
from aiokafka_lite.errors import BufferFull
from aiokafka_lite.producer import ProducerRecord
from aiokafka_lite.types import Header
from tests.end_to_end.send_history import History, Outcome, Send
from tests.simulation.workload import RECORDS, WriterPlan

SEND_TIMEOUT = 185.0
"""``delivery_timeout`` at most 120 s, and ``max_block``."""


PROBE_TIMEOUT = 20.0
"""The longest time, in seconds, until a cluster without faults acknowledges a record."""


class Surroundings(Protocol):
    """The parts of the world that a writer uses."""

    random: Random

    def anomaly(self, text: str) -> None: ...

    def client(self, kind: Callable[..., Any], **settings: Any) -> Any: ...

    def wall_clock(self) -> float: ...

    def partitions(self) -> list[TopicPartition]: ...

    async def bounded(self, what: str, call: Awaitable[Any], seconds: float) -> Any: ...


class Writer:
    """One producer and its history."""

    def __init__(self, world: Surroundings, plan: WriterPlan) -> None:
        self.plan = plan
        self.history = History()
        self._world = world
        self._sends: dict[asyncio.Task[None], None] = {}
        settings: dict[str, Any] = dict(plan.settings)
        if plan.user_code == "serializer":
            settings["value_serializer"] = _refuse_some
        if plan.user_code == "interceptor":
            settings["interceptors"] = [_RaisingInterceptor()]
        self.producer: Producer = world.client(
            Producer,
            client_id=f"writer-{plan.name}",
            clock=world.wall_clock,
            random=world.random.random,
            metadata_max_age=10.0,
            **settings,
        )

    async def run(self) -> None:
        """Write all values, then wait for their ends."""
        for number in range(RECORDS):
            partitions = self._world.partitions()
            partition = partitions[number % len(partitions)]
            send = self.history.invoke(partition, f"{self.plan.name}-{number:06d}".encode())
            self._start(send)
            await asyncio.sleep(self._world.random.choice(self.plan.pauses))

    async def finish(self) -> None:
        await self._world.bounded("flush", self.producer.flush(SEND_TIMEOUT), SEND_TIMEOUT)
        if self._sends:
            await self._world.bounded("sends", asyncio.wait(list(self._sends)), SEND_TIMEOUT)

    async def probe(self) -> None:
        """Send one more record to each partition, with all faults ended."""
        for number, partition in enumerate(self._world.partitions(), RECORDS):
            send = self.history.invoke(partition, f"{self.plan.name}-{number:06d}".encode())
            self._start(send)
        if self._sends:
            await asyncio.wait(list(self._sends), timeout=PROBE_TIMEOUT)
        for send in self.history.sends:
            if send.number >= RECORDS and send.outcome is not Outcome.ACKNOWLEDGED:
                self._world.anomaly(f"{send}, {send.error!r}, although all faults ended {PROBE_TIMEOUT:g} s ago")

    def cancel_some(self) -> None:
        """Cancel the last sends: the caller no longer waits, and the record may be written."""
        for task in list(self._sends)[-3:]:
            task.cancel()

    def _start(self, send: Send) -> None:
        task = asyncio.create_task(self._send(send), name=f"send {send.value!r}")
        self._sends[task] = None
        task.add_done_callback(partial(self._ended, send))

    def _ended(self, send: Send, task: asyncio.Task[None]) -> None:
        del self._sends[task]
        if task.cancelled():  # before its first turn
            send.failed(asyncio.CancelledError())

    async def _send(self, send: Send) -> None:
        try:
            metadata = await self._world.bounded(f"send of {send}", self._call(send), SEND_TIMEOUT)
        except (KafkaError, asyncio.CancelledError) as error:
            send.failed(error)
        except Exception as error:  # noqa: BLE001 - every other error is an anomaly
            send.failed(error)
            self._world.anomaly(f"{send} raised {error!r}, which is not a KafkaError")
        else:
            if metadata is not None:
                send.acknowledged(TopicPartition(metadata.topic, metadata.partition), metadata.offset)

    async def _call(self, send: Send) -> RecordMetadata:
        topic, partition = send.topic_partition
        if self.plan.call == "send":
            return await self.producer.send(topic, send.value, partition=partition)
        delivery: Delivery
        if self.plan.call == "put":
            delivery = await self.producer.put(topic, send.value, partition=partition)
        else:
            try:
                delivery = self.producer.send_nowait(topic, send.value, partition=partition)
            except BufferFull:
                delivery = await self.producer.put(topic, send.value, partition=partition)
        if self.plan.user_code == "callback":
            delivery.report(_raise)
        return await delivery


def _refuse_some(value: object) -> bytes:
    assert isinstance(value, bytes)
    if value.endswith(b"7") and b"-0000" in value:
        raise ValueError("the serializer does not like this value")
    return value


def _raise(metadata: RecordMetadata, error: Exception | None) -> None:
    raise ValueError("the callback fails")


class _RaisingInterceptor:
    """An interceptor whose every call fails for some records."""

    def __init__(self) -> None:
        self._count = 0

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        self._count += 1
        if self._count % 5 == 0:
            raise ValueError("the interceptor fails")
        return replace(record, headers=(("seen", b"1"),))

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None, headers: Sequence[Header]) -> None:
        raise ValueError("the interceptor fails")
