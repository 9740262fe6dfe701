"""Tests on Apache Kafka in a container.

All tests of a session share it, so each test uses its own topics and groups. Needs
``pip install testcontainers`` and a container engine. Without them the test is skipped with
the reason.
"""

import asyncio

from invoices import write_invoices

from aiokafka_lite import Consumer, Producer


async def test_each_order_gets_an_invoice(kafka_bootstrap_servers: str) -> None:
    async with Producer(kafka_bootstrap_servers) as producer:
        await producer.send("orders", b"two coffees", key=b"table-7")

    work = asyncio.create_task(write_invoices(kafka_bootstrap_servers))
    async with Consumer(kafka_bootstrap_servers, topics=["invoices"]) as consumer:
        assert (await anext(consumer)).value == b"invoice for two coffees"
    work.cancel()
    await asyncio.wait([work])
