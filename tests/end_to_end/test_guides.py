"""What the guides promise about their programs, as they are printed: test_documents.py only runs each to its end."""

from __future__ import annotations

import asyncio
import re

from aiokafka_lite import Producer
from tests.end_to_end.conftest import Kafka
from tests.end_to_end.read_topic import read
from tests.end_to_end.test_documents import programs, running
from tests.end_to_end.test_examples import committed, delete
from tests.end_to_end.test_examples import newest as newest
from tests.pure.documents import PAGES, Block
from tests.waiting import DEADLINE

GUIDES = {page.name: page for page in PAGES}
READ_TO_THE_END = {block.title: block for block in programs(GUIDES["read-to-the-end.md"])}


async def output(block: Block, kafka: Kafka) -> str:
    async with running(block, kafka.bootstrap_servers) as program:
        status = await program.end()
    assert status == 0, program.printed
    return program.printed


async def test_each_run_of_a_job_reads_what_is_new_and_ends(newest: Kafka) -> None:
    await newest.create_topic("orders", partitions=3)
    write, nightly, count = READ_TO_THE_END.values()
    await output(write, newest)
    assert await output(nightly, newest) == "billed 1000 orders\n"
    assert await output(nightly, newest) == "billed 0 orders\n"
    # An aborted transaction leaves records that no one reads at the ends of the partitions.
    async with Producer(newest.bootstrap_servers, transactional_id="aborted") as producer:
        async with asyncio.timeout(DEADLINE):
            await producer.begin_transaction()
            for partition in range(3):
                await producer.send("orders", b"never", partition=partition)
            await producer.abort_transaction()
    assert await output(nightly, newest) == "billed 0 orders\n"
    await output(write, newest)
    assert await output(nightly, newest) == "billed 1000 orders\n"
    assert await committed(newest, "nightly") > 2000, "with the offsets of the transaction"
    assert await output(count, newest) == "2000 orders, by size: {8: 20, 9: 180, 10: 1800}\n"
    await delete(newest, "orders")


async def test_a_table_has_the_present_values_and_no_deleted_key(newest: Kafka) -> None:
    (prices,) = programs(GUIDES["topic-as-a-table.md"])
    printed = await output(prices, newest)
    assert re.findall(r"^loaded: (.*)$", printed, re.MULTILINE) == [
        "{'cake': {'cents': 400}, 'coffee': {'cents': 250}}"
    ]
    assert printed.endswith("after the changes: {'coffee': {'cents': 270}}\n")
    await delete(newest, "prices")


async def test_a_record_that_fails_passes_the_retry_topic_and_is_a_dead_letter(newest: Kafka) -> None:
    (retries,) = programs(GUIDES["workers.md"])
    for topic in ("orders", "billing.retry", "billing.dead"):
        await newest.create_topic(topic, partitions=1)
    assert (await output(retries, newest)).splitlines() == [
        "billed b'two coffees'",
        "billed b'one tea'",
        "dead: b'no coffee' because of cannot bill no coffee",
        "from orders at offset 1",
    ]
    assert len(await read(newest, "billing.retry", 1)) == 1
    await delete(newest, "orders", "billing.retry", "billing.dead")
