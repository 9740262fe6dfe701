"""Small services with a database: their offsets are in it, or messages to others are in an outbox.

Each mistake is beside the same service without it. ``docs/simulation-testing.md`` describes them.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from aiokafka_lite import Consumer, Record, TopicPartition
from aiokafka_lite.consumer import RebalanceHandle, RebalanceListener
from aiokafka_lite.processing import ExactlyOnceInto
from aiokafka_lite.testing.simulation import (
    DatabaseFailed,
    DatabaseSession,
    DatabaseTransaction,
    EffectFailed,
    Instance,
    RowExists,
    SimulatedStore,
)

PAUSE = 0.1
"""Seconds before a failed transaction is tried again."""
LEASE = 10.0
"""Seconds for which a process has a lease."""


def order_of(record: Record[bytes, bytes]) -> str:
    return str(json.loads(record.value)["order"])


def orders_of(instance: Instance, listener: RebalanceListener | None = None) -> Consumer[bytes, bytes]:
    return Consumer(
        instance.bootstrap_servers,
        topics=["orders"],
        group_id="billing",
        auto_commit=listener is None,
        listener=listener,
        metadata_max_age=10.0,
    )


class StartsAtStoredOffsets(RebalanceListener):
    """Begins each partition at its offset in the database. The lock waits for a transaction of the former owner."""

    def __init__(self, database: DatabaseSession) -> None:
        self._database = database

    async def on_assigned(self, handle: RebalanceHandle, partitions: Sequence[TopicPartition]) -> None:
        while True:
            with suppress(DatabaseFailed):
                async with self._database.transaction() as transaction:
                    for partition in partitions:
                        handle.seek(partition, await transaction.get("offsets", partition, lock=True) or 0)
                return
            await asyncio.sleep(PAUSE)


async def keeps_offsets_in_the_database(instance: Instance) -> None:
    """Charge an order and keep its offset in one transaction, unless the stored offset says that it is charged."""
    async with orders_of(instance, StartsAtStoredOffsets(instance.database)) as consumer:
        async for record in consumer:
            await _charge(instance, record, compares=True)


async def bills_into_the_database(instance: Instance) -> None:
    """Charge orders with ``ExactlyOnceInto``, which keeps the offsets."""

    async def bill(records: list[Record[bytes, bytes]], transaction: DatabaseTransaction) -> None:
        for record in records:
            transaction.effect("charge", order_of(record))
            await transaction.insert("bills", "charged", key=order_of(record))

    consumer = Consumer(
        instance.bootstrap_servers, topics=["orders"], group_id="billing", auto_commit=False, metadata_max_age=10.0
    )
    async with consumer:
        await ExactlyOnceInto(consumer, SimulatedStore(instance.database)).run(bill)


async def does_not_compare_its_offset(instance: Instance) -> None:
    async with orders_of(instance, StartsAtStoredOffsets(instance.database)) as consumer:
        async for record in consumer:
            await _charge(instance, record, compares=False)


async def _charge(instance: Instance, record: Record[bytes, bytes], *, compares: bool) -> None:
    place = TopicPartition(record.topic, record.partition)
    while True:
        with suppress(DatabaseFailed):
            async with instance.database.transaction() as transaction:
                next_offset = await transaction.get("offsets", place, lock=True) or 0
                if compares and record.offset < next_offset:
                    return
                transaction.effect("charge", order_of(record))
                await transaction.put("offsets", place, record.offset + 1)
            return
        await asyncio.sleep(PAUSE)


class Lease:
    """A lock that one process has for some seconds. Each owner gets a higher token than the one before."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance

    async def take(self) -> int | None:
        """Take or extend the lease. Returns its token; None if another process has it."""
        async with self._instance.database.transaction() as transaction:
            row = await transaction.get("leases", "billing", lock=True) or {"owner": "", "until": 0.0, "token": 0}
            now = asyncio.get_running_loop().time()
            if row["owner"] != self._instance.name:
                if row["until"] > now:
                    return None
                row["token"] += 1
            await transaction.put("leases", "billing", {**row, "owner": self._instance.name, "until": now + LEASE})
            return int(row["token"])


async def has_a_lease_and_a_token(instance: Instance) -> None:
    """Charge all orders in the one process that has the lease. The token refuses an owner that has lost it."""
    await _charge_with_lease(instance, compares=True)


async def has_a_lease_only(instance: Instance) -> None:
    """Charge all orders in the one process that has the lease, even if it was paused and the lease is over."""
    await _charge_with_lease(instance, compares=False)


async def _charge_with_lease(instance: Instance, *, compares: bool) -> None:
    lease = Lease(instance)

    async def charge_once(order: str) -> bool:
        token = await lease.take()
        if token is None:
            return False
        async with instance.database.transaction() as transaction:
            if await transaction.get("charged", order):
                return True
        async with instance.database.transaction() as transaction:
            if compares and (await transaction.get("leases", "billing", lock=True))["token"] != token:
                return False
            transaction.effect("charge", order)
            await transaction.put("charged", order, "charged")
        return True

    async with Consumer(instance.bootstrap_servers, topics=["orders"], metadata_max_age=10.0) as consumer:
        async for record in consumer:
            is_charged = False
            while not is_charged:
                with suppress(DatabaseFailed):
                    is_charged = await charge_once(order_of(record))
                if not is_charged:
                    await asyncio.sleep(PAUSE)


async def fills_an_outbox(instance: Instance) -> None:
    """Store each order with a row of the outbox. The relay sends the rows, which it locks, and deletes them."""

    async def relay() -> None:
        async with instance.database.transaction() as transaction:
            for number, order in (await transaction.select("outbox", lock=True)).items():
                await instance.effect("email", order, idempotence_key=order)
                await transaction.delete("outbox", number)

    await _store_and_relay(instance, relay)


async def reads_the_outbox_without_lock(instance: Instance) -> None:
    """Read the rows after the last one. A row with a lower number may be committed later, and is never sent."""

    async def relay() -> None:
        async with instance.database.transaction() as transaction:
            last = await transaction.get("relay", "last") or 0
            for number, order in (await transaction.select("outbox")).items():
                if number > last:
                    await instance.effect("email", order, idempotence_key=order)
                    await transaction.put("relay", "last", number)

    await _store_and_relay(instance, relay)


async def _store_and_relay(instance: Instance, relay: Callable[[], Awaitable[None]]) -> None:
    async def keep_relaying() -> None:
        while True:
            with suppress(EffectFailed):
                await relay()
            await asyncio.sleep(0.5)

    async with orders_of(instance) as consumer, asyncio.TaskGroup() as tasks:
        tasks.create_task(keep_relaying())
        async for record in consumer:
            await _store(instance, order_of(record))


async def _store(instance: Instance, order: str) -> None:
    while True:
        with suppress(DatabaseFailed):
            async with instance.database.transaction() as transaction:
                with suppress(RowExists):
                    await transaction.insert("orders", "new", key=order)
                    await transaction.insert("outbox", order)
            return
        await asyncio.sleep(PAUSE)
