"""Share groups with slow programs: no record is archived that no program has seen, and none is doubled silently."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aiokafka_lite import Admin, Producer, ShareConsumer, ShareRecord, TopicPartition
from aiokafka_lite.admin import ConfigResource
from aiokafka_lite.embedded import ClusterConfig, EmbeddedCluster
from aiokafka_lite.errors import AcknowledgementFailed
from aiokafka_lite.protocol.messages import ShareAcknowledgeRequest, ShareFetchRequest
from tests.embedded.share.billing_consumers import GROUP, begin_at_the_first_record, share_consumer
from tests.virtual import in_virtual_time

RECORDS = 100
WITHOUT_RENEWALS: dict[int, tuple[int, int]] = {
    request.api_key: (1, 1) for request in (ShareFetchRequest, ShareAcknowledgeRequest)
}
"""The versions of Kafka 4.1, which has neither strict limits nor renewals."""


class Seen:
    """The records that a program has got: how often each, and the delivery counts."""

    def __init__(self) -> None:
        self.times: Counter[int] = Counter()
        self.deliveries: Counter[int] = Counter()

    def add(self, record: ShareRecord) -> None:
        self.times[record.offset] += 1
        self.deliveries[record.delivery_count] += 1

    def all(self, count: int = RECORDS) -> bool:
        return len(self.times) == count


@asynccontextmanager
async def jobs(
    count: int = RECORDS, versions: Mapping[int, tuple[int, int]] | None = None, **configs: str
) -> AsyncIterator[EmbeddedCluster]:
    """Yield a cluster with these records in one batch, and a group that begins with the first of them."""
    async with EmbeddedCluster(brokers=1, tcp=False, seed=1, config=ClusterConfig(versions=versions)) as cluster:
        await cluster.create_topic("jobs", partitions=1)
        await begin_at_the_first_record(cluster)
        if configs:
            async with Admin(cluster.bootstrap_servers, connector=cluster.connector) as admin:
                settings = {name.replace("_", "."): value for name, value in configs.items()}
                (await admin.configs.alter({ConfigResource.group(GROUP): settings})).raise_for_errors()
        async with Producer(cluster.bootstrap_servers, connector=cluster.connector) as producer:
            await producer.send_many("jobs", [b"%d" % number for number in range(count)])
        yield cluster


async def read_one_by_one(queue: ShareConsumer, seen: Seen, seconds: float) -> None:
    async for record in queue:
        seen.add(record)
        await asyncio.sleep(seconds)


async def poll_many(queue: ShareConsumer, seen: Seen, seconds: float) -> None:
    while True:
        for record in await queue.poll(timeout=1.0):
            seen.add(record)
            await asyncio.sleep(seconds)


async def accept_each(queue: ShareConsumer, seen: Seen, seconds: float) -> None:
    while True:
        for record in await queue.poll(max_records=100, timeout=1.0):
            seen.add(record)
            await asyncio.sleep(seconds)
            queue.accept(record)
        (await queue.commit()).raise_for_refused()


async def run(cluster: EmbeddedCluster, program: Callable[..., Any], seconds: float, limit: float, **kw: Any) -> Seen:
    """Run the program until the group has no lag, or for so many seconds."""
    seen = Seen()
    async with share_consumer(cluster, "jobs", **kw) as queue:
        task = asyncio.create_task(program(queue, seen, seconds))
        async with asyncio.timeout(limit):
            while await lag_of(cluster) != 0 and not task.done():
                await asyncio.sleep(10.0)
        if task.done():
            task.result()
        task.cancel()
        await asyncio.wait([task])
    return seen


async def lag_of(cluster: EmbeddedCluster) -> int | None:
    async with Admin(cluster.bootstrap_servers, connector=cluster.connector) as admin:
        offsets = await admin.share_groups.offsets(GROUP)
    partitions = offsets.done.get(GROUP, {})
    return partitions[TopicPartition("jobs", 0)].lag if partitions else 1


@pytest.mark.parametrize(
    ("program", "mode"), [(read_one_by_one, "implicit"), (poll_many, "implicit"), (accept_each, "explicit")]
)
@pytest.mark.parametrize("seconds", [1.0, 45.0])
@in_virtual_time
async def test_a_slow_program_gets_each_record_once(
    program: Callable[..., Any], mode: str, seconds: float, caplog: pytest.LogCaptureFixture
) -> None:
    """Those of a first read that it cannot take in time are released once."""
    count = RECORDS if seconds == 1.0 else 6
    async with jobs(count) as cluster:
        seen = await run(cluster, program, seconds, 900.0, acknowledgement_mode=mode)
    assert seen.all(count)
    assert set(seen.times.values()) == {1}
    assert set(seen.deliveries) <= {1, 2}
    assert "could not acknowledge" not in caplog.text


@in_virtual_time
async def test_a_slow_program_acquires_no_more_than_it_takes_within_half_a_lock() -> None:
    async with jobs() as cluster, share_consumer(cluster, "jobs") as queue:
        for _ in range(40):
            await anext(queue)
            assert queue.metrics().records_buffered <= 15
            await asyncio.sleep(1.0)


@in_virtual_time
async def test_a_program_that_sleeps_between_its_reads_gets_more_with_each_of_them() -> None:
    async with jobs(count=2_000) as cluster, share_consumer(cluster, "jobs") as queue:
        sizes = []
        for _ in range(4):
            sizes.append(len(await queue.poll(timeout=1.0)))
            await asyncio.sleep(20.0)
    assert sizes in ([16, 119, 500, 500], [16, 120, 500, 500])  # the figure ends on a whole number


@in_virtual_time
async def test_a_fast_program_soon_gets_as_many_records_as_a_fetch_has() -> None:
    async with jobs(count=1_500) as cluster, share_consumer(cluster, "jobs") as queue:
        assert [len(await queue.poll(timeout=1.0)) for _ in range(3)] == [16, 500, 500]


@in_virtual_time
async def test_a_record_that_a_program_has_for_longer_than_renewals_last_is_delivered_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with (
        jobs(count=1) as cluster,
        share_consumer(cluster, "jobs", renew_locks_for=100.0, acknowledgement_mode="explicit") as stuck,
        share_consumer(cluster, "jobs") as other,
    ):
        record = await anext(stuck)
        began = asyncio.get_running_loop().time()
        again = await anext(other)
        assert 100.0 <= asyncio.get_running_loop().time() - began <= 131.0
        assert (again.offset, again.delivery_count) == (record.offset, 2)
        assert "renew_locks_for=100 s" in caplog.text
        (problem,) = stuck.health().problems
        assert "the program has had 1 record for more than renew_locks_for=100 s" in problem
        stuck.accept(record)
        with pytest.raises(AcknowledgementFailed, match="acquisition lock had expired"):
            (await stuck.commit()).raise_for_refused()


@in_virtual_time
async def test_a_program_that_takes_too_long_for_the_records_of_one_read_gets_fewer_afterwards(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with jobs(30) as cluster, share_consumer(cluster, "jobs") as queue:
        assert len(await queue.poll(timeout=1.0)) == 16
        await asyncio.sleep(16 * 45.0)
        assert len(await queue.poll(timeout=1.0)) == 3
        assert caplog.text.count("could not acknowledge 16 records") == 1
        assert (await queue.commit()).refused


@in_virtual_time
async def test_a_program_that_becomes_slow_releases_what_it_cannot_take(caplog: pytest.LogCaptureFixture) -> None:
    """The other consumer gets the records. Records that were released once stay, because a delivery may be the last."""
    seen, elsewhere = Seen(), Seen()
    async with jobs(count=400, share_delivery_count_limit="2") as cluster, share_consumer(cluster, "jobs") as queue:
        for _ in range(40):
            seen.add(await anext(queue))
        assert queue.metrics().records_buffered > 200
        await asyncio.sleep(29.0)
        assert queue.health().is_ready is False
        assert "released that the program would have got too late" in caplog.text
        async with share_consumer(cluster, "jobs") as other, asyncio.timeout(60.0):
            while len(seen.times) + len(elsewhere.times) < 400:
                elsewhere.add(await anext(other))
                seen.times.update(await rest_of(queue, seen))
    assert set(elsewhere.deliveries) == {2}
    assert max((seen.times + elsewhere.times).values()) == 1


async def rest_of(queue: ShareConsumer, seen: Seen) -> list[int]:
    return [record.offset for record in await queue.poll(1)]


@pytest.mark.parametrize("versions", [{}, WITHOUT_RENEWALS], ids=["Kafka 4.2", "Kafka 4.1"])
@pytest.mark.parametrize("seconds", [1.0, 45.0])
@in_virtual_time
async def test_without_renewals_each_record_is_seen_and_a_late_acknowledgement_is_said(
    versions: Mapping[int, tuple[int, int]], seconds: float, caplog: pytest.LogCaptureFixture
) -> None:
    count = RECORDS if seconds == 1.0 else 12
    async with jobs(count, versions) as cluster:
        seen = await run(cluster, read_one_by_one, seconds, 5_000.0, renew_locks_for=0.0)
    assert seen.all(count), f"unseen: {sorted(set(range(count)) - set(seen.times))}"
    if max(seen.times.values()) > 1:
        assert "could not acknowledge" in caplog.text


@in_virtual_time
async def test_a_group_that_refuses_renewals_loses_no_acknowledgement(caplog: pytest.LogCaptureFixture) -> None:
    async with jobs(share_renew_acknowledge_enable="false") as cluster:
        with caplog.at_level(logging.WARNING):
            seen = await run(cluster, read_one_by_one, 1.0, 900.0)
    assert seen.all()
    assert set(seen.times.values()) == {1}
    assert "renews no locks" in caplog.text


@in_virtual_time
async def test_locks_are_renewed_for_a_program_that_blocks_the_event_loop() -> None:
    """A read yields to the event loop if the program has taken long, so that requests are sent and answered."""
    loop: Any = asyncio.get_running_loop()
    seen = Seen()
    async with jobs() as cluster, share_consumer(cluster, "jobs") as queue, asyncio.timeout(300.0):
        async for record in queue:
            seen.add(record)
            loop.now += 1.0
            if seen.all():
                await queue.commit()
                break
    assert set(seen.times.values()) == set(seen.deliveries) == {1}


@in_virtual_time
async def test_locks_of_records_that_are_not_decoded_yet_are_renewed(caplog: pytest.LogCaptureFixture) -> None:
    """The program has accepted all that it got, and takes long: only records that wait in the client have locks."""
    async with EmbeddedCluster(brokers=1, tcp=False, seed=1) as cluster:
        await cluster.create_topic("jobs", partitions=2)
        await begin_at_the_first_record(cluster)
        for partition in (0, 1):
            async with Producer(cluster.bootstrap_servers, connector=cluster.connector) as producer:
                await producer.send_many("jobs", [b"x"] * 4, partition=partition)
        async with share_consumer(cluster, "jobs", acknowledgement_mode="explicit") as queue:
            first = await queue.poll(max_records=4, timeout=1.0)
            assert len({record.partition for record in first}) == 1
            for record in first:
                queue.accept(record)
            await queue.commit()
            assert queue.metrics().records_buffered == 4
            await asyncio.sleep(100.0)
            rest = await queue.poll(max_records=4, timeout=1.0)
            assert [record.delivery_count for record in rest] == [1] * 4
            assert queue.metrics().renewed >= 8
    assert "renews no locks" not in caplog.text


@in_virtual_time
async def test_a_lock_that_has_ended_at_the_broker_does_not_end_the_renewals_of_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with jobs(count=40) as cluster, share_consumer(cluster, "jobs") as queue:
        task = asyncio.create_task(read_one_by_one(queue, Seen(), 45.0))
        await asyncio.sleep(100.0)
        # The broker stands still for longer than the rest of the lock.
        with cluster.on(ShareAcknowledgeRequest).delay(20.0) as delayed:
            await asyncio.sleep(60.0)
            assert delayed.hits
        renewed = queue.metrics().renewed
        assert renewed
        await asyncio.sleep(300.0)
        assert queue.metrics().renewed > renewed
        assert "renews no locks" not in caplog.text
        task.cancel()
