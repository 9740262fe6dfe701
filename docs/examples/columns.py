"""Read a topic from its beginning to its present end as Arrow columns, and use pandas.

Needs ``pip install 'aiokafka_lite[arrow]' pandas``.
"""

import asyncio
import os

import pyarrow

from aiokafka_lite import Consumer

SERVERS = os.environ.get("BOOTSTRAP_SERVERS", "localhost:9092")


async def read_all(topic: str) -> pyarrow.Table:
    """Return all records of the topic as one table."""
    read = []
    async with Consumer(SERVERS, topics=[topic]) as consumer:
        batches = consumer.batches(max_records=50_000)
        while any((await consumer.lag()).values()):
            batch = await anext(batches)
            read.append(batch.to_arrow(["key", "value", "partition", "timestamp"]))
    if not read:
        raise SystemExit(f"{topic} is empty: run bulk_load.py first")
    return pyarrow.Table.from_batches(read)


async def main() -> None:
    table = await read_all("readings")
    print(f"{table.num_rows:,} rows, {table.nbytes:,} bytes as {table.schema.names}")
    readings = table.to_pandas()
    readings["sensor"] = readings["key"].str.decode("utf-8")
    readings["celsius"] = readings["value"].astype(float)
    print(readings.groupby("sensor")["celsius"].agg(["count", "mean", "max"]).round(2).head())


asyncio.run(main())
