"""``Workers`` after a crash: records that were finished ahead of an unfinished one are not processed again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokafka_lite import Workers
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.group.finished_offsets import encode
from tests.embedded.group.recording_members import member_of
from tests.embedded.group.test_sessions import Running, committed, until
from tests.embedded.group.test_workers import ONE, Handling, finish, keyed


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("hung", [0, 4])
async def test_a_hanging_record_and_a_crash_repeat_only_that_record(
    cluster: EmbeddedCluster, protocol: Any, hung: int
) -> None:
    await keyed(cluster, 100, keys=100)
    first = Handling()
    first.hold = {b"%d" % hung}
    workers = Workers(first)
    running = Running(cluster, workers, group_protocol=protocol)
    await until(lambda: workers.metrics().pending == 1 and workers.metrics().processed == 99)
    await asyncio.sleep(10.0)  # virtual; an automatic commit
    async with member_of(cluster, topics=(), group_id="workers") as reader:
        stored = (await reader.committed([ONE]))[ONE]
    assert stored is not None, "it is committed before the end, so a crash would find it"
    assert (stored.offset, stored.metadata) == (hung, encode(hung, [(hung + 1, 100)]))
    await running.cancel()  # the hanging record is not finished
    assert (await committed(cluster))[ONE] == hung
    second = Handling()
    workers = Workers(second)
    running = Running(cluster, workers, group_protocol=protocol)
    await until(lambda: workers.metrics().finished_before == 99 - hung)
    await until(lambda: bool(second.seen))
    await finish(running)
    assert second.values == [hung]
    assert (await committed(cluster))[ONE] == 100
