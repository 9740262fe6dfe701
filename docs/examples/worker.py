"""Prepare many purchases at once, retry the failed ones, and end cleanly on SIGTERM."""

import asyncio
import os
import signal

from aiokafka_lite import ConsumerGroup, Producer, Record, Workers
from aiokafka_lite.processing import dead_letter, retry

SERVERS = os.environ.get("BOOTSTRAP_SERVERS", "localhost:9092")


async def prepare(purchase: Record[bytes, bytes]) -> None:
    await asyncio.sleep(0.05)  # the real work
    print(f"prepared offset {purchase.offset} of partition {purchase.partition}")


async def main() -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    producer = Producer(SERVERS)
    rules = [retry(attempts=3), dead_letter(topic="purchases.dead")]
    workers = Workers(
        prepare, concurrency=32, order="key", timeout=10.0, rules=rules, producer=producer
    )

    async def work() -> None:
        async with producer:
            await ConsumerGroup(SERVERS, group_id="workers").consume(["purchases"], workers)

    working = asyncio.create_task(work())
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    await workers.drain(timeout=25.0)  # less than the 30 seconds that Kubernetes waits
    working.cancel()  # commits and leaves the group; while Kafka is down, it ends the start
    await asyncio.wait([working])
    if not working.cancelled():
        working.result()  # raises the error that ended the work
    print(f"stopped: {workers.metrics().to_dict()}")


asyncio.run(main())
