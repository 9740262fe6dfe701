"""Small services with the mistakes that simulation is for, each beside the service without it.

``docs/simulation-testing.md`` describes them.
"""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from aiokafka_lite import Consumer, ConsumerGroup, ExactlyOnce, Producer, Record, TopicPartition, Workers
from aiokafka_lite.consumer import RebalanceHandle, RebalanceListener
from aiokafka_lite.processing import dead_letter, retry, skip
from aiokafka_lite.testing.simulation import EffectFailed, Instance
from tests.embedded.simulated import database_services

Service = Callable[[Instance], Awaitable[None]]


def order_of(record: Record[bytes, bytes]) -> str:
    return str(json.loads(record.value)["order"])


def orders_of(
    instance: Instance, *, auto_commit: bool = True, offset_reset: str = "earliest"
) -> Consumer[bytes, bytes]:
    return Consumer(
        instance.bootstrap_servers,
        topics=["orders"],
        group_id="billing",
        auto_commit=auto_commit,
        auto_offset_reset=offset_reset,
        metadata_max_age=10.0,
    )


async def charge(instance: Instance, order: str) -> None:
    """Charge an order. The idempotence key lets the bank ignore a repetition."""
    while True:
        try:
            await instance.effect("charge", order, idempotence_key=order)
        except EffectFailed:
            await asyncio.sleep(0.1)
        else:
            return


async def billing(instance: Instance) -> None:
    """Charge each order before the next one is requested, which is when its offset may be committed."""
    async with orders_of(instance) as consumer:
        async for record in consumer:
            await charge(instance, order_of(record))


async def commits_first(instance: Instance) -> None:
    async with orders_of(instance, auto_commit=False) as consumer:
        async for record in consumer:
            consumer.mark(record)
            await consumer.commit()
            await charge(instance, order_of(record))


async def fans_out(instance: Instance) -> None:
    async with orders_of(instance) as consumer, asyncio.TaskGroup() as tasks:
        async for record in consumer:
            tasks.create_task(charge(instance, order_of(record)))


async def works_in_parallel(instance: Instance) -> None:
    async def bill(record: Record[bytes, bytes]) -> None:
        await charge(instance, order_of(record))

    group: ConsumerGroup[bytes, bytes] = ConsumerGroup(
        instance.bootstrap_servers, group_id="billing", metadata_max_age=10.0
    )
    async with group:
        await group.consume(["orders"], Workers(bill, concurrency=16))


async def retries_later(instance: Instance) -> None:
    async with orders_of(instance) as consumer:
        failed: list[str] = []
        while True:
            for record in await consumer.poll(timeout=0.5, max_records=10):
                order = order_of(record)
                try:
                    await instance.effect("charge", order, idempotence_key=order)
                except EffectFailed:
                    failed.append(order)
            while failed:
                await charge(instance, failed.pop())


async def charges_without_key(instance: Instance) -> None:
    async with orders_of(instance) as consumer:
        async for record in consumer:
            while True:
                with suppress(EffectFailed):
                    await instance.effect("charge", order_of(record))
                    break


async def remembers_in_memory(instance: Instance) -> None:
    charged: set[str] = set()
    async with orders_of(instance) as consumer:
        async for record in consumer:
            order = order_of(record)
            if order not in charged:
                await instance.effect("charge", order)
                charged.add(order)


async def reads_the_latest(instance: Instance) -> None:
    async with orders_of(instance, offset_reset="latest") as consumer:
        async for record in consumer:
            await charge(instance, order_of(record))


async def swallows_cancellation(instance: Instance) -> None:
    async with orders_of(instance) as consumer:
        while True:
            try:
                record = await anext(consumer)
                await charge(instance, order_of(record))
            except asyncio.CancelledError:
                await asyncio.sleep(0.01)


async def retries_without_limit(instance: Instance) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with orders_of(instance) as consumer:
        while not stop.is_set():
            for record in await consumer.poll(timeout=0.5):
                await charge(instance, order_of(record))


async def stops_on_a_signal(instance: Instance) -> None:
    """Charge orders until SIGTERM. An order that cannot be charged then is left to the next process."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)

    async def charge_unless_stopped(order: str) -> None:
        while True:
            try:
                await instance.effect("charge", order, idempotence_key=order)
            except EffectFailed:
                if stop.is_set():
                    raise
                await asyncio.sleep(0.1)
            else:
                return

    async with orders_of(instance) as consumer:
        while not stop.is_set():
            for record in await consumer.poll(timeout=0.5):
                await charge_unless_stopped(order_of(record))


async def skips_after_two_attempts(instance: Instance) -> None:
    async def bill(record: Record[bytes, bytes]) -> None:
        await instance.effect("charge", order_of(record), idempotence_key=order_of(record))

    group: ConsumerGroup[bytes, bytes] = ConsumerGroup(instance.bootstrap_servers, group_id="billing")
    async with group:
        await group.consume(["orders"], Workers(bill, rules=[retry(attempts=2), skip()]))


async def keeps_what_fails(instance: Instance) -> None:
    async def bill(record: Record[bytes, bytes]) -> None:
        await instance.effect("charge", order_of(record), idempotence_key=order_of(record))

    group: ConsumerGroup[bytes, bytes] = ConsumerGroup(instance.bootstrap_servers, group_id="billing")
    producer: Producer[bytes, bytes] = Producer(instance.bootstrap_servers)
    async with producer, group:
        rules = [retry(attempts=2), dead_letter(topic="orders.dead")]
        await group.consume(["orders"], Workers(bill, rules=rules, producer=producer))


async def writes_bills_twice(instance: Instance) -> None:
    async with orders_of(instance) as consumer, Producer(instance.bootstrap_servers) as producer:
        async for record in consumer:
            await producer.send("bills", order_of(record), key=record.key)


async def sends_without_waiting(instance: Instance) -> None:
    """Send each bill, and await no delivery. An offset may be committed before its bill is written."""
    async with orders_of(instance) as consumer, Producer(instance.bootstrap_servers) as producer:
        async for record in consumer:
            producer.send_nowait("bills", order_of(record).encode(), key=record.key)


class CommitsWhatWasRead(RebalanceListener):
    async def on_revoked(self, handle: RebalanceHandle, partitions: Sequence[TopicPartition]) -> None:
        await handle.commit({partition: await handle.position(partition) for partition in partitions})


async def commits_what_was_read(instance: Instance) -> None:
    """Charge orders in the background. A rebalance commits those that wait in the queue, too."""
    queue: asyncio.Queue[str] = asyncio.Queue(20)

    async def work() -> None:
        while True:
            await charge(instance, await queue.get())

    async with orders_of(instance, auto_commit=False) as consumer, asyncio.TaskGroup() as tasks:
        consumer.add_listener(CommitsWhatWasRead())
        tasks.create_task(work())
        async for record in consumer:
            await queue.put(order_of(record))


async def writes_bills_once(instance: Instance) -> None:
    consumer = orders_of(instance, auto_commit=False)
    producer: Producer[bytes, bytes] = Producer(
        instance.bootstrap_servers, transactional_id=f"billing-{instance.number}"
    )
    async with consumer, producer:
        async for records in ExactlyOnce(consumer, producer):
            for record in records:
                producer.send_nowait("bills", order_of(record).encode(), key=record.key)


@dataclass(frozen=True, slots=True)
class Mistake:
    """A mistake, a pattern of what the check that finds it says, and the service without it."""

    name: str
    broken: Service
    symptom: str
    repaired: Service


MISTAKES = (
    Mistake("commit before processing", commits_first, "before the effect", billing),
    Mistake("fan-out with create_task", fans_out, "before the effect|came after", works_in_parallel),
    Mistake("a retry that reorders", retries_later, "came after", billing),
    Mistake("an effect without an idempotence key", charges_without_key, "happened 2 times", billing),
    Mistake("duplicates are remembered in memory only", remembers_in_memory, "times", billing),
    Mistake("latest on the first start", reads_the_latest, "no effect", billing),
    Mistake("a handler that swallows CancelledError", swallows_cancellation, "did not end", stops_on_a_signal),
    Mistake("a retry without limit blocks SIGTERM", retries_without_limit, "did not end", stops_on_a_signal),
    Mistake(
        "an outbox is read without a lock",
        database_services.reads_the_outbox_without_lock,
        "no effect",
        database_services.fills_an_outbox,
    ),
    Mistake(
        "the offset in the database is not compared",
        database_services.does_not_compare_its_offset,
        "happened 2 times",
        database_services.keeps_offsets_in_the_database,
    ),
    Mistake("a record is skipped after two attempts", skips_after_two_attempts, "no effect", keeps_what_fails),
    Mistake("output without a transaction", writes_bills_twice, "equal records", writes_bills_once),
    Mistake("a delivery is not awaited", sends_without_waiting, "in bills was acknowledged", writes_bills_once),
    Mistake("a rebalance commits what was read", commits_what_was_read, "effect", works_in_parallel),
    Mistake(
        "a lease without a fencing token",
        database_services.has_a_lease_only,
        "happened 2 times",
        database_services.has_a_lease_and_a_token,
    ),
)
