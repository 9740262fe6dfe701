"""Share the work in a group; what is done with is committed by itself. Ctrl-C ends it, and nothing is done twice.

Asking for the next record says that this one is done with. Start this program again, and it goes on where it was; start
it twice at the same time, and each reads half of the partitions.
"""

import asyncio
import contextlib
import os

from aiokafka_lite import Consumer, StrDeserializer

SERVERS = os.environ.get("BOOTSTRAP_SERVERS", "localhost:9092")


async def main() -> None:
    text = StrDeserializer()
    async with Consumer(
        SERVERS, topics=["purchases"], group_id="billing", key_deserializer=text, value_deserializer=text
    ) as consumer:
        async for record in consumer:
            print(f"billed {record.key} for {record.value} ({record.partition}, {record.offset})")


with contextlib.suppress(KeyboardInterrupt):
    asyncio.run(main())
