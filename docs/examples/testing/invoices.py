"""The code under test: it reads orders and writes an invoice for each."""

from aiokafka_lite import Consumer, Producer


async def write_invoices(bootstrap_servers: str) -> None:
    """Write invoices until the task is cancelled."""
    async with (
        Producer(bootstrap_servers) as producer,
        Consumer(bootstrap_servers, topics=["orders"], group_id="invoices") as consumer,
    ):
        async for order in consumer:
            if order.value is None:  # a tombstone: the order was withdrawn
                continue
            await producer.send("invoices", b"invoice for " + order.value, key=order.key)
