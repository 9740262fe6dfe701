"""The programs of the documentation that process records, with slow functions in virtual time.

Each record reaches the program exactly once, although a function takes a second, or longer than the lock of a share
group and the heartbeats of a member. A limit that the program itself sets cancels the function.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
from collections import Counter
from types import FunctionType
from typing import Any

import pytest

from aiokafka_lite import Admin, Consumer, EmbeddedCluster, Producer
from aiokafka_lite.admin import ConfigResource
from tests.pure.documents import PAGES, Block, blocks
from tests.virtual import in_virtual_time

ENDLESS = ("async for ", "while True:", ".consume(")
ELSEWHERE = ("aiokafka_lite.blocking", "ExactlyOnceInto")
"""Programs with other tests: virtual time does not wait for threads, and the embedded cluster has no database."""

PROGRAMS = [
    block
    for page in PAGES
    for block in blocks(page)
    if block.is_part
    and any(f"{name}(" in block.text for name in ("bill", "process", "Workers"))
    and any(mark in block.text for mark in ENDLESS)
    and not any(name in block.text for name in ELSEWHERE)
    and "wrong" not in block.title
]


def test_the_pages_have_programs_of_each_kind() -> None:
    text = "".join(block.text for block in PROGRAMS)
    for kind in (
        "ShareConsumer",
        "Workers",
        "consume_claim",
        "async for record in consumer",
        "poll(",
        "PartitionReader",
    ):
        assert kind in text, kind


@pytest.mark.parametrize("seconds", [1.0, 40.0])
@pytest.mark.parametrize("block", PROGRAMS, ids=str)
@in_virtual_time
async def test_a_slow_documented_program_gets_each_record_once(block: Block, seconds: float) -> None:
    count = 60 if seconds == 1.0 else 6
    seen: Counter[bytes] = Counter()

    async def work(record: Any) -> None:
        await asyncio.sleep(seconds)
        seen[record if isinstance(record, bytes) else record.value] += 1

    async with EmbeddedCluster(brokers=1, tcp=False, seed=1) as cluster:
        await cluster.create_topic("orders", partitions=2)
        servers, connector = cluster.bootstrap_servers, cluster.connector
        async with Admin(servers, connector=connector) as admin:
            from_the_first = {ConfigResource.group("billing"): {"share.auto.offset.reset": "earliest"}}
            (await admin.configs.alter(from_the_first)).raise_for_errors()
        async with Producer(servers, connector=connector) as producer:
            values = [b"%d" % number for number in range(count)]
            await producer.send_many("orders", values, keys=values)
        async with Consumer(servers, connector=connector, topics=["orders"], group_id="given") as consumer:
            names = {"bill": work, "process": work, "consumer": consumer, "servers": servers, "connector": connector}
            text = block.text.replace('"localhost:9092"', "servers, connector=connector")
            code = compile(text, str(block), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            running = FunctionType(code, names)()
            assert inspect.isawaitable(running)
            task = asyncio.ensure_future(running)
            # Longer than all locks and intervals, so that a record that is delivered again is seen.
            await asyncio.wait([task], timeout=count * seconds + 400.0)
            error = task.exception() if task.done() else None
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    assert error is None
    if "timeout=30.0" in text and seconds > 30.0:
        assert not seen, "each attempt is cancelled after 30 s, and the rules of the program decide what comes then"
        return
    assert seen == dict.fromkeys(values, 1)
