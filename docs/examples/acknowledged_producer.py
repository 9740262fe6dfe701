"""Write records, each acknowledged by all in-sync replicas before the next step is taken."""

import asyncio
import os

from aiokafka_lite import KafkaError, KafkaTimeout, Producer, RecordTooLarge

SERVERS = os.environ.get("BOOTSTRAP_SERVERS", "localhost:9092")


async def sell(producer: Producer, customer: str, item: str) -> None:
    """Return when the purchase is safe, and say so; otherwise say what became of it."""
    try:
        written = await producer.send("purchases", item, key=customer)
    except RecordTooLarge as error:
        print(f"refused: {error}")  # the record is at fault: sending it again would not help
    except KafkaTimeout as error:
        print(f"unknown: {error}")  # it may have been written: who sends it again may write it twice
    except KafkaError as error:
        print(f"failed: {error}")
    else:
        print(f"{customer} bought {item}: {written.topic}-{written.partition} at offset {written.offset}")


async def main() -> None:
    async with Producer(SERVERS) as producer:
        await sell(producer, "ann", "coffee")  # one after the other ...
        await sell(producer, "ann", "cake")
        async with asyncio.TaskGroup() as sales:  # ... or all at once: they share requests, each has its own result
            for number in range(100):
                sales.create_task(sell(producer, f"guest-{number}", "tea"))
        await sell(producer, "bob", "a cake far too large " * 100_000)


asyncio.run(main())
