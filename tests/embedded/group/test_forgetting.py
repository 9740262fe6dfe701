"""What a coordinator forgets: offsets of groups long empty, for good, and groups that have nothing left."""

from __future__ import annotations

from aiokafka_lite.aio.virtual_time import run
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.embedded.group_coordinator import CommittedOffset

WEEK_AND_A_DAY = 8 * 86_400


def test_offsets_that_have_expired_do_not_come_back_with_another_coordinator() -> None:
    now = [1_000.0]

    async def main() -> None:
        async with EmbeddedCluster(brokers=2, tcp=False, wall_clock=lambda: now[0]) as cluster:
            await cluster.create_topic("__consumer_offsets", assignments=[[1, 2]])
            committed = CommittedOffset(5, -1, "", cluster.nodes[1].now_ms())
            await cluster.nodes[1].groups.commit("g", {("t", 0): committed})
            now[0] += WEEK_AND_A_DAY
            await cluster.stop(1)
            assert not cluster.nodes[2].groups.committed("g")

    run(main())


def test_groups_with_nothing_left_are_forgotten_and_so_is_their_record() -> None:
    now = [1_000.0]

    async def main() -> None:
        async with EmbeddedCluster(brokers=1, tcp=False, wall_clock=lambda: now[0]) as cluster:
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
