"""The coordinator drops expired offsets of empty groups, and groups without offsets."""

from __future__ import annotations

import asyncio

from aiokafka_lite.aio.virtual_time import run
from aiokafka_lite.embedded import ClusterConfig, EmbeddedCluster
from aiokafka_lite.embedded.coordinators.groups.log import CommittedOffset
from aiokafka_lite.errors import ErrorCode
from tests.virtual import in_virtual_time

WEEK_AND_A_DAY = 8 * 86_400


def test_expired_offsets_do_not_return_with_another_coordinator() -> None:
    now = [1_000.0]

    async def main() -> None:
        async with EmbeddedCluster(brokers=2, tcp=False, config=ClusterConfig(wall_clock=lambda: now[0])) as cluster:
            await cluster.create_topic("__consumer_offsets", assignments=[[1, 2]])
            committed = CommittedOffset(5, -1, "", cluster.nodes[1].now_ms())
            await cluster.nodes[1].groups.commit("g", {("t", 0): committed})
            now[0] += WEEK_AND_A_DAY
            await cluster.stop(1)
            assert not cluster.nodes[2].groups.committed("g")

    run(main())


def test_groups_without_offsets_are_dropped_with_their_record() -> None:
    now = [1_000.0]

    async def main() -> None:
        async with EmbeddedCluster(brokers=1, tcp=False, config=ClusterConfig(wall_clock=lambda: now[0])) as cluster:
            await cluster.create_topic("__consumer_offsets")
            groups = cluster.nodes[1].groups
            for number in range(100):
                await groups.commit(f"g{number}", {("t", 0): CommittedOffset(5, -1, "", cluster.nodes[1].now_ms())})
            now[0] += WEEK_AND_A_DAY
            cluster.clean_up()
            assert repr(groups).endswith("groups=0>")
            await cluster.restart(1)
            assert repr(groups).endswith("groups=0>")

    run(main())


@in_virtual_time
async def test_offsets_of_a_deleted_topic_are_dropped_if_no_coordinator_had_the_group() -> None:
    async with EmbeddedCluster(brokers=2, tcp=False) as cluster:
        await cluster.create_topic("__consumer_offsets", assignments=[[1]])
        for topic in ("kept", "deleted"):
            await cluster.create_topic(topic, assignments=[[2]])
        committed = CommittedOffset(5, -1, "", cluster.nodes[1].now_ms())
        await cluster.nodes[1].groups.commit("g", {("kept", 0): committed, ("deleted", 0): committed})
        await cluster.stop(1)
        await cluster.delete_topic("deleted")
        for _ in ("the first time", "and not written down again"):
            await cluster.restart(1) if cluster.nodes[1].is_running else await cluster.start_node(1)
            assert list(cluster.nodes[1].groups.committed("g")) == [("kept", 0)]


@in_virtual_time
async def test_a_group_deleted_while_its_offsets_are_being_deleted_is_no_error() -> None:
    async with EmbeddedCluster(brokers=2, tcp=False, config=ClusterConfig(replication_delay=0.5)) as cluster:
        await cluster.create_topic("__consumer_offsets", assignments=[[1, 2]])
        groups = cluster.nodes[1].groups
        await groups.commit("g", {("t", 0): CommittedOffset(5, -1, "", cluster.nodes[1].now_ms())})
        results = await asyncio.gather(groups.delete_offsets("g", [("t", 0)]), groups.delete_group("g"))
        assert results == [ErrorCode.NONE, ErrorCode.NONE]
        assert groups.groups() == []
