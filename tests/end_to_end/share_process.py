"""A share consumer as a process, for tests that kill it: reads records, writes their offsets, and accepts none."""

from __future__ import annotations

import asyncio
import sys

from aiokafka_lite import ShareConsumer


async def main(servers: str, topic: str, group_id: str) -> None:
    async with ShareConsumer(servers, topics=[topic], group_id=group_id) as consumer:
        records = await consumer.poll(timeout=120.0)
        sys.stdout.write(" ".join(str(record.offset) for record in records) + "\n")
        sys.stdout.flush()
        await asyncio.sleep(3600)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
