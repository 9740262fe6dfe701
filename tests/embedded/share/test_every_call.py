"""Every public coroutine of ``ShareConsumer``, cancelled at every turn of the event loop that it takes.

No record is acknowledged that no read returned, none is returned twice, and the next call works.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from aiokafka_lite import Admin, ShareConsumer, ShareRecord
from aiokafka_lite.embedded import EmbeddedCluster
from tests.cancelling import MOST_TURNS, Covered, at_every_turn, cancel_after, public_coroutines
from tests.embedded.share.billing_consumers import GROUP, read, share_consumer, write

TURNS_OF_CLOSE = 12
"""Turns until closing waits for the fetch under way, which takes time and no turns."""

covers = Covered()


async def doubled(data: bytes) -> bytes:
    await asyncio.sleep(0)
    return data * 2


READS: dict[str, Callable[[ShareConsumer], Awaitable[ShareRecord | list[ShareRecord]]]] = {
    "poll": lambda consumer: consumer.poll(2, timeout=1.0),
    "iterate": lambda consumer: anext(consumer),
}


@covers("ShareConsumer.poll", "ShareConsumer.__anext__")
@pytest.mark.parametrize("settings", [{}, {"value_deserializer": doubled}], ids=["bytes", "deserialized"])
@pytest.mark.parametrize("kind", READS)
async def test_a_read_that_is_cancelled_loses_and_accepts_no_record(
    cluster: EmbeddedCluster, kind: str, settings: dict[str, Any]
) -> None:
    returned: list[int] = []
    acknowledged: list[int] = []
    written = 0

    def note(partition: object, offsets: tuple[int, ...], error: object) -> None:
        assert error is None
        assert set(offsets) <= set(returned)
        acknowledged.extend(offsets)

    async with share_consumer(cluster, on_acknowledged=note, **settings) as consumer:

        async def call() -> None:
            records = await READS[kind](consumer)
            returned.extend(record.offset for record in (records if isinstance(records, list) else [records]))

        async def before() -> None:
            nonlocal written
            while len(returned) < written:
                await call()
            await write(cluster, b"a", b"b")
            written += 2

        await at_every_turn(call, before)
        while len(returned) < written:
            await call()
        assert await consumer.commit()
    assert returned == list(range(written))
    assert sorted(acknowledged) == returned


@covers("ShareConsumer.commit")
async def test_a_commit_that_is_cancelled_still_sends_the_acknowledgements(cluster: EmbeddedCluster) -> None:
    returned = 0
    acknowledged: list[int] = []

    def note(partition: object, offsets: tuple[int, ...], error: object) -> None:
        assert error is None
        acknowledged.extend(offsets)

    async with share_consumer(cluster, on_acknowledged=note) as consumer:

        async def before() -> None:
            nonlocal returned
            await write(cluster, b"a")
            await read(consumer, 1)
            returned += 1

        assert await at_every_turn(consumer.commit, before)
        await consumer.commit()
    assert sorted(acknowledged) == list(range(returned))


@covers("ShareConsumer.renew")
async def test_a_renewal_that_is_cancelled_leaves_the_record_in_flight(cluster: EmbeddedCluster) -> None:
    await write(cluster, b"a")
    async with share_consumer(cluster) as consumer:
        (record,) = await read(consumer, 1)
        assert await at_every_turn(lambda: consumer.renew(record))
        consumer.accept(record)
        assert await consumer.commit()


@covers("ShareConsumer.close", "ShareConsumer.__aenter__", "ShareConsumer.__aexit__", "ShareConsumer.start")
@pytest.mark.parametrize("call", ["start", "close"])
async def test_a_start_or_a_close_that_is_cancelled_holds_no_record(cluster: EmbeddedCluster, call: str) -> None:
    for turns in range(MOST_TURNS if call == "start" else TURNS_OF_CLOSE):
        await write(cluster, b"%d" % turns)
        consumer = share_consumer(cluster)
        if call == "close":
            await consumer.start()
            await consumer.poll(timeout=1.0)
        is_over = await cancel_after(turns, getattr(consumer, call)())
        await consumer.close()
        async with share_consumer(cluster) as successor:
            assert [record.value for record in await read(successor, 1)] == [b"%d" % turns]
            assert await successor.commit()
        if is_over:
            return


async def test_a_member_whose_close_is_cancelled_has_left(cluster: EmbeddedCluster) -> None:
    async with Admin(cluster.bootstrap_servers, connector=cluster.connector) as admin:
        for turns in range(1, TURNS_OF_CLOSE):
            consumer = share_consumer(cluster, fetch_max_wait=10.0)
            await consumer.start()
            await write(cluster, b"%d" % turns)
            await read(consumer, 1)
            await cancel_after(turns, consumer.close())
            assert (await admin.share_groups.describe(GROUP))[GROUP].members == ()


def test_every_public_coroutine_is_covered_here() -> None:
    assert public_coroutines(ShareConsumer) <= covers
