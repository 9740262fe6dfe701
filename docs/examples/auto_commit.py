"""Share the partitions of a topic in a group, with automatic commits of processed records.

Requesting the next record marks the current one as processed. A restarted program continues at
the last commit. Two running programs share the partitions. Ctrl-C stops the program.
"""

import asyncio
import contextlib
import os

from aiokafka_lite import Consumer, StrDeserializer

SERVERS = os.environ.get("BOOTSTRAP_SERVERS", "localhost:9092")


async def main() -> None:
    text = StrDeserializer()
    async with Consumer(
        SERVERS,
        topics=["purchases"],
        group_id="billing",
        key_deserializer=text,
        value_deserializer=text,
    ) as consumer:
        async for record in consumer:
            print(
                f"billed {record.key} for {record.value} ({record.partition}, {record.offset})"
            )


with contextlib.suppress(KeyboardInterrupt):
    asyncio.run(main())
