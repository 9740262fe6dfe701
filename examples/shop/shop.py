"""A shop with a database of its own: FastAPI, PostgreSQL, `Workers` and an outbox.

    pip install 'aiokafka_lite[postgres]' fastapi uvicorn
    DATABASE_URL=postgresql://localhost/shop python shop.py
    curl localhost:8000/orders --json '{"id": "1", "item": "coffee"}'
    curl localhost:8000/orders/1

An order is a row of `orders` and a row of the outbox, in one transaction. So it is accepted
while Kafka is down, and is never in one of the two alone. A relay sends it to the topic
`orders`. `Workers` read the topic and bake: they change the order, and write a receipt into
the outbox, in one transaction as well. An order that is read twice writes one receipt.

Start several instances (`PORT=8001`): they share the orders and the rows of the outbox.
"""

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import uvicorn
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

from aiokafka_lite import ConsumerGroup, JsonDeserializer, Producer, Record, Workers
from aiokafka_lite.processing import dead_letter, retry
from aiokafka_lite.processing.outbox import OutboxRelay, PostgresOutbox

ORDERS = """
CREATE TABLE orders (
    id text PRIMARY KEY, item text NOT NULL, is_baked boolean NOT NULL DEFAULT false
)
"""
OUTBOX = "INSERT INTO kafka_outbox (topic, key, value) VALUES ($1, $2, $3)"


class Order(BaseModel):
    id: str
    item: str


class Shop:
    """The orders of one database."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self.pool = pool

    async def place(self, order: Order) -> bool:
        """Add an order. Returns False if there is one with its id."""
        async with self.pool.acquire() as connection, connection.transaction():
            insert = "INSERT INTO orders (id, item) VALUES ($1, $2) ON CONFLICT DO NOTHING"
            if await connection.execute(insert, order.id, order.item) != "INSERT 0 1":
                return False
            value = order.model_dump_json().encode()
            await connection.execute(OUTBOX, "orders", order.id.encode(), value)
            return True

    async def bake(self, record: Record[bytes, Any]) -> None:
        """Mark an order as baked and write its receipt, unless that was done before."""
        order = Order.model_validate(record.value)
        async with self.pool.acquire() as connection, connection.transaction():
            update = "UPDATE orders SET is_baked = true WHERE id = $1 AND NOT is_baked"
            if await connection.execute(update, order.id) == "UPDATE 1":
                value = json.dumps({"receipt_for": order.id}).encode()
                await connection.execute(OUTBOX, "receipts", order.id.encode(), value)

    async def is_baked(self, order_id: str) -> bool | None:
        """Return whether an order is baked; None if there is no such order."""
        return await self.pool.fetchval("SELECT is_baked FROM orders WHERE id = $1", order_id)


async def create_tables(pool: asyncpg.Pool) -> None:
    """Create the tables of an empty database. A real service has migrations for this."""
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock(1)")  # one instance at a time
        if await connection.fetchval("SELECT to_regclass('orders')") is None:
            await connection.execute(ORDERS)
            await connection.execute(PostgresOutbox(pool).ddl)


@contextlib.asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    servers = os.environ.get("BOOTSTRAP_SERVERS", "localhost:9092")
    database = os.environ.get("DATABASE_URL", "postgresql://localhost/shop")
    producer = Producer(servers)
    group = ConsumerGroup(servers, group_id="bakery", value_deserializer=JsonDeserializer())
    async with asyncpg.create_pool(database) as pool, producer, group:
        await create_tables(pool)
        app.state.shop = shop = Shop(pool)
        rules = [
            # A restart of the database is no fault of the order.
            retry(asyncpg.PostgresError, OSError, attempts=1_000_000),
            dead_letter(topic="orders.dead"),
        ]
        workers = Workers(shop.bake, concurrency=8, rules=rules, producer=producer)
        relay = OutboxRelay(producer, PostgresOutbox(pool))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(relay.run())
            tasks.create_task(group.consume(["orders"], workers))
            yield
            # All requests are finished. What waits is done by another instance, or later.
            await workers.drain(timeout=10.0)
            await group.close()
            relay.stop()


app = FastAPI(lifespan=lifespan)


@app.post("/orders", status_code=201)
async def place(order: Order) -> Order:
    """Accept an order. It is safe when this returns, also while Kafka is down."""
    if not await app.state.shop.place(order):
        raise HTTPException(409, f"there is an order {order.id}")
    return order


@app.get("/orders/{order_id}")
async def look(order_id: str) -> dict[str, bool]:
    """Return whether the order is baked."""
    is_baked = await app.state.shop.is_baked(order_id)
    if is_baked is None:
        raise HTTPException(404, f"there is no order {order_id}")
    return {"is_baked": is_baked}


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(os.environ.get("PORT", "8000")))
