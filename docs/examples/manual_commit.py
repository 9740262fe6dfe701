"""Manual commits: write records to a database in batches, then commit their offsets.

After a crash between the two, the same records are read again. The primary key of the table
makes that harmless. sqlite3 blocks its thread, so it works in a thread of its own: a blocked
event loop sends no heartbeats, and the group would give the partitions to another member.
"""

import asyncio
import contextlib
import os
import sqlite3

from aiokafka_lite import Consumer
from aiokafka_lite.errors import CommitFailed

SERVERS = os.environ.get("BOOTSTRAP_SERVERS", "localhost:9092")
DATABASE = os.environ.get("DATABASE", "purchases.db")


def insert(rows: list[tuple[int, int, bytes | None]]) -> None:
    """Write the rows in one transaction. Runs in a thread; the connection stays in it."""
    with contextlib.closing(sqlite3.connect(DATABASE)) as database, database:
        database.execute(
            "create table if not exists purchases"
            " (part int, place int, item text, primary key (part, place))"
        )
        database.executemany("insert or ignore into purchases values (?, ?, ?)", rows)


async def main() -> None:
    async with Consumer(
        SERVERS, topics=["purchases"], group_id="archive", auto_commit=False
    ) as consumer:
        while True:
            records = await consumer.poll(max_records=500, timeout=1.0)
            if not records:
                continue
            rows = [(record.partition, record.offset, record.value) for record in records]
            await asyncio.to_thread(insert, rows)
            for record in records:
                consumer.mark(record)
            try:
                (await consumer.commit()).raise_for_refused()
            except CommitFailed as error:
                print(f"another member will read some of these again: {error}")
            else:
                print(f"archived {len(records)}")


with contextlib.suppress(KeyboardInterrupt):
    asyncio.run(main())
