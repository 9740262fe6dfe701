"""A process whose handler hangs: ``python -m tests.end_to_end.hanging_worker SERVERS TOPIC GROUP [VALUE]``.

It writes the value of each record that it has processed, never ends with the record VALUE, and ends when its input is
closed.
"""

from __future__ import annotations

import asyncio
import sys

from aiokafka_lite import ConsumerGroup, Record, Workers


async def main(servers: str, topic: str, group_id: str, hanging: str = "") -> None:
    async def handle(record: Record[bytes, bytes]) -> None:
        value = record.value.decode()
        if value == hanging:
            await asyncio.Event().wait()
        sys.stdout.write(f"{value}\n")
        sys.stdout.flush()

    group = ConsumerGroup(
        servers, group_id=group_id, session_timeout=6.0, heartbeat_interval=0.5, auto_commit_interval=0.2
    )
    workers: Workers[bytes, bytes] = Workers(handle)
    consuming = asyncio.create_task(group.consume([topic], workers))
    await asyncio.to_thread(sys.stdin.buffer.read)
    await workers.drain(timeout=1.0)
    await group.close()
    await consuming


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
