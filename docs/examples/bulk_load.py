"""Write many records at once.

``send_many`` waits for room and returns the metadata or the error of each record.
"""

import asyncio
import os
import random
import time

from aiokafka_lite import Producer

SERVERS = os.environ.get("BOOTSTRAP_SERVERS", "localhost:9092")
COUNT = 100_000


async def main() -> None:
    sensors = [f"sensor-{random.randrange(50)}".encode() for _ in range(COUNT)]
    readings = [b"%.2f" % random.gauss(21, 3) for _ in range(COUNT)]
    async with Producer(SERVERS, compression="lz4") as producer:
        began = time.monotonic()
        results = await producer.send_many("readings", readings, keys=sensors)
        took = time.monotonic() - began
    errors = [result for result in results if isinstance(result, Exception)]
    written = len(results) - len(errors)
    print(f"{written:,} readings written in {took:.1f} s, {len(errors)} failed")
    for error in errors[:10]:
        print(error)


asyncio.run(main())
