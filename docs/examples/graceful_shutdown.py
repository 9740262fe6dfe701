"""End on SIGTERM or Ctrl-C: finish the record in progress, commit it, and leave the group."""

import asyncio
import os
import signal

from aiokafka_lite import Consumer, Record

SERVERS = os.environ.get("BOOTSTRAP_SERVERS", "localhost:9092")


async def bill(record: Record[bytes, bytes]) -> None:
    print(f"began {record.value!r}")
    await asyncio.sleep(0.2)  # the real work
    print(f"ended {record.value!r}")


async def main() -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with Consumer(SERVERS, topics=["purchases"], group_id="shutdown") as consumer:
        while not stop.is_set():
            for record in await consumer.poll(max_records=100, timeout=1.0):
                await bill(record)
                consumer.mark(record)  # leaving the block commits the marked records
                if stop.is_set():
                    break
    print("stopped")


asyncio.run(main())
