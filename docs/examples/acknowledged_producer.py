"""Write records and wait until all in-sync replicas have acknowledged each of them."""

import asyncio
import os

from aiokafka_lite import KafkaError, KafkaTimeout, Producer
from aiokafka_lite.errors import RecordTooLarge

SERVERS = os.environ.get("BOOTSTRAP_SERVERS", "localhost:9092")


async def sell(producer: Producer, customer: str, item: str) -> None:
    """Write a purchase and print its offset, or the error."""
    try:
        written = await producer.send("purchases", item, key=customer)
    except RecordTooLarge as error:
        print(f"refused: {error}")  # the record itself is invalid: do not retry
    except KafkaTimeout as error:
        # The outcome is unknown: a retry may write the record twice.
        print(f"unknown: {error}")
    except KafkaError as error:
        print(f"failed: {error}")
    else:
        place = f"{written.topic}-{written.partition} at offset {written.offset}"
        print(f"{customer} bought {item}: {place}")


async def main() -> None:
    async with Producer(SERVERS) as producer:
        await sell(producer, "ann", "coffee")  # one after the other
        await sell(producer, "ann", "cake")
        async with asyncio.TaskGroup() as sales:  # concurrently: they share requests
            for number in range(100):
                sales.create_task(sell(producer, f"guest-{number}", "tea"))
        await sell(producer, "bob", "a cake far too large " * 100_000)


asyncio.run(main())
