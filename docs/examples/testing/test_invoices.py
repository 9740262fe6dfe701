"""Tests on the embedded cluster: each test gets a new one, with faults on demand."""

import asyncio

from invoices import write_invoices

from aiokafka_lite import Consumer, EmbeddedCluster, Producer
from aiokafka_lite.errors import ErrorCode
from aiokafka_lite.protocol.messages import ProduceRequest


async def test_each_order_gets_an_invoice(embedded_bootstrap_servers: str) -> None:
    servers = embedded_bootstrap_servers
    async with Producer(servers) as producer:
        await producer.send("orders", b"two coffees", key=b"table-7")
        await producer.send("orders", None, key=b"table-8")
        await producer.send("orders", b"a cake", key=b"table-9")

    work = asyncio.create_task(write_invoices(servers))
    async with Consumer(servers, topics=["invoices"]) as consumer:
        assert (await anext(consumer)).value == b"invoice for two coffees"
        assert (await anext(consumer)).value == b"invoice for a cake"
    work.cancel()
    await asyncio.wait([work])


async def test_an_invoice_survives_a_broker_that_has_moved(
    embedded_kafka: EmbeddedCluster,
) -> None:
    servers = embedded_kafka.bootstrap_servers
    async with Producer(servers) as producer:
        await producer.send("orders", b"two coffees")

    moved = embedded_kafka.on(ProduceRequest, topic="invoices", times=2).fail(
        ErrorCode.NOT_LEADER_OR_FOLLOWER
    )
    work = asyncio.create_task(write_invoices(servers))
    async with Consumer(servers, topics=["invoices"]) as consumer:
        assert (await anext(consumer)).value == b"invoice for two coffees"
    assert moved.hits == 2
    work.cancel()
    await asyncio.wait([work])
