"""Exactly once from topic to topic: read purchases, write bills, and commit both together.

Start this program several times, each with a name of its own (WORKER=1, WORKER=2), and kill
one of them: each purchase has one bill. Ctrl-C stops the program after its batch. Readers of
the bills must have isolation_level="read_committed", which is the default of this package.
"""

import asyncio
import os
import signal

from aiokafka_lite import Consumer, ExactlyOnce, Producer, StrDeserializer, StrSerializer

SERVERS = os.environ.get("BOOTSTRAP_SERVERS", "localhost:9092")
WORKER = os.environ.get("WORKER", "1")


async def main() -> None:
    text = StrDeserializer()
    async with (
        Consumer(
            SERVERS,
            topics=["purchases"],
            group_id="exact-billing",
            auto_commit=False,
            key_deserializer=text,
            value_deserializer=text,
        ) as consumer,
        Producer(
            SERVERS,
            transactional_id=f"exact-billing-{WORKER}",
            value_serializer=StrSerializer(),
        ) as producer,
    ):
        batches = ExactlyOnce(consumer, producer)
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, batches.stop)
        async for records in batches:
            for record in records:
                producer.send_nowait("bills", f"{record.key}: {record.value}", key=record.key)
            print(f"billed {len(records)}")
    print("stopped")


asyncio.run(main())
