"""Records a second of a share consumer: ``python benchmarks/share_groups.py localhost:9092``.

Writes records of 100 bytes to a new topic, and reads them as a new share group, from the constructor to the last
commit. For Java's figure, run Kafka's ``kafka-share-consumer-perf-test.sh`` over the same topic, with a group whose
``share.auto.offset.reset`` is ``earliest``.
"""

from __future__ import annotations

import argparse
import asyncio
import time

from aiokafka_lite import Admin, Producer, ShareConsumer
from aiokafka_lite.admin import ConfigResource, NewTopic


async def main(servers: str, records: int) -> None:
    topic = f"share-benchmark-{time.time_ns()}"
    async with Admin(servers) as admin, Producer(servers) as producer:
        (await admin.topics.create(NewTopic(topic, 1))).raise_for_errors()
        (
            await admin.configs.alter({ConfigResource.group(topic): {"share.auto.offset.reset": "earliest"}})
        ).raise_for_errors()
        await producer.send_many(topic, [b"x" * 100] * records)
    began, cpu = time.perf_counter(), time.process_time()
    async with ShareConsumer(servers, topics=[topic], group_id=topic) as consumer:
        read = 0
        joined = began
        while read < records:
            found = await consumer.poll(timeout=1.0)
            if found and not read:
                joined = time.perf_counter()
            read += len(found)
        (await consumer.commit()).raise_for_refused()
        ended = time.perf_counter()
    print(
        f"topic {topic}: {records} records in {ended - began:.1f} s, {joined - began:.1f} s of them to the first record"
    )
    print(
        f"{records / (ended - joined):,.0f} records/s, {(time.process_time() - cpu) / records * 1e6:.1f} µs of CPU each"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("servers")
    parser.add_argument("--records", type=int, default=200_000)
    arguments = parser.parse_args()
    asyncio.run(main(arguments.servers, arguments.records))
