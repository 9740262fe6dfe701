"""Prepare many purchases at once, retry failed ones, and end cleanly on SIGTERM."""

import asyncio
import os
import signal

from aiokafka_lite import ConsumerGroup, FailureTopics, Producer, Record, Workers

SERVERS = os.environ.get("BOOTSTRAP_SERVERS", "localhost:9092")


async def prepare(purchase: Record[bytes, bytes]) -> None:
    await asyncio.sleep(0.05)  # the real work
    print(f"prepared offset {purchase.offset} of partition {purchase.partition}")


async def main() -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with (
        Producer(SERVERS) as producer,
        ConsumerGroup(SERVERS, group_id="workers") as group,
    ):
        failures = FailureTopics(producer, dead_letter="purchases.dead")
        workers = Workers(
            prepare, concurrency=32, order="key", attempts=3, timeout=10.0, on_failure=failures
        )
        consuming = asyncio.create_task(group.consume(["purchases"], workers))
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait([consuming, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        await workers.drain(timeout=25.0)  # less than the 30 seconds that Kubernetes waits
        await group.close()
        await consuming  # raises the error that ended it, if there was one
        print(f"stopped: {workers.metrics().to_dict()}")


asyncio.run(main())
