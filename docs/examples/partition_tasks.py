"""A handler with one task per partition: a slow record delays only its own partition."""

import asyncio
import contextlib
import os

from aiokafka_lite import (
    Claim,
    ConsumerGroup,
    ConsumerGroupHandler,
    ConsumerGroupSession,
    StrDeserializer,
)

SERVERS = os.environ.get("BOOTSTRAP_SERVERS", "localhost:9092")


async def prepare(item: str | None) -> None:
    await asyncio.sleep(0.001)  # the real work


class Kitchen(ConsumerGroupHandler[bytes, str]):
    async def setup(self, session: ConsumerGroupSession) -> None:
        print(f"this kitchen has {dict(session.claims)}")

    async def consume_claim(
        self, session: ConsumerGroupSession, claim: Claim[bytes, str]
    ) -> None:
        async for record in claim:
            await prepare(record.value)
            print(f"prepared {record.value} of partition {record.partition}")
            session.mark(record)

    async def cleanup(self, session: ConsumerGroupSession) -> None:
        print("the marked offsets are committed next")


async def main() -> None:
    async with ConsumerGroup(
        SERVERS, group_id="kitchen", value_deserializer=StrDeserializer()
    ) as group:
        await group.consume(["purchases"], Kitchen())


with contextlib.suppress(KeyboardInterrupt):
    asyncio.run(main())
