"""The figures of a cluster for an exporter."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafka_lite import Admin, Consumer, EmbeddedCluster, Producer, TopicPartition
from aiokafka_lite.metrics.cluster import MOST_SAMPLES, ClusterWatch, EndTimes
from tests.virtual import virtual_loops
from tests.waiting import until

pytest_asyncio_loop_factories = virtual_loops

ORDERS = TopicPartition("orders", 0)
ANY = re.compile(".*")


def values(watch: ClusterWatch) -> dict[str, dict[tuple[str, ...], float]]:
    return {family.name: dict(family.samples) for family in watch.figures}


def watch_of(admin: Admin, clock: Callable[[], float] = lambda: 0.0, **settings: Any) -> ClusterWatch:
    return ClusterWatch(admin, **{"groups": ANY, "topics": ANY, "clock": clock, **settings})


# The age of a record.


def test_the_age_is_between_the_samples_around_the_record() -> None:
    times = EndTimes()
    times.add({ORDERS: 100}, 1000.0)
    times.add({ORDERS: 200}, 1010.0)
    assert times.age(ORDERS, 200, 1020.0) == 0.0
    assert times.age(ORDERS, 250, 1020.0) == 0.0
    assert times.age(ORDERS, 150, 1020.0) == 15.0
    assert times.age(ORDERS, 100, 1020.0) == 20.0
    assert times.age(ORDERS, 5, 1020.0) == 20.0  # written before the first sample
    assert times.age(TopicPartition("other", 0), 5, 1020.0) is None


def test_a_record_after_a_quiet_time_has_its_own_age() -> None:
    times = EndTimes()
    for now in range(1000, 2000, 10):
        times.add({ORDERS: 100}, float(now))
    times.add({ORDERS: 110}, 2000.0)
    assert times.age(ORDERS, 100, 2000.0) == 10.0


def test_a_topic_that_is_created_again_has_no_old_ends() -> None:
    times = EndTimes()
    times.add({ORDERS: 100}, 1000.0)
    times.add({ORDERS: 5}, 1010.0)
    assert times.age(ORDERS, 3, 1020.0) == 10.0


def test_a_topic_that_is_gone_is_forgotten_and_one_without_a_leader_is_not() -> None:
    times = EndTimes()
    times.add({ORDERS: 100}, 1000.0)
    times.add({}, 1010.0)
    times.add({ORDERS: 120}, 1020.0)
    assert times.age(ORDERS, 110, 1020.0) == 10.0
    times.forget({"orders"})
    assert times.age(ORDERS, 110, 1020.0) == 10.0
    times.forget({"payments"})
    assert times.age(ORDERS, 110, 1020.0) is None


@pytest.mark.parametrize("before", range(4))
def test_a_record_after_a_quiet_week_is_not_a_week_old_however_many_samples_follow(before: int) -> None:
    times, now, end = EndTimes(), 1000.0, 100
    week = 7 * 86_400.0

    def samples(number: int) -> None:
        nonlocal now, end
        for _ in range(number):
            now, end = now + 10, end + 10
            times.add({ORDERS: end}, now)

    samples(before + 1)
    quiet_end = end
    now += week
    times.add({ORDERS: end}, now)
    week_over = now
    samples(3 * MOST_SAMPLES)
    assert (times.age(ORDERS, quiet_end + 1, now) or week) <= now - week_over
    if before:
        assert (times.age(ORDERS, quiet_end - 1, now) or 0.0) > week


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 100)), min_size=1, max_size=4 * MOST_SAMPLES))
def test_an_older_record_is_never_younger(steps: list[tuple[int, int]]) -> None:
    times, now, end = EndTimes(), 0.0, 0
    for records, seconds in steps:
        now += seconds
        end += records
        times.add({ORDERS: end}, now)
    ages = [times.age(ORDERS, offset, now) for offset in range(0, end + 1, max(1, end // 50))]
    assert all(age is not None and 0 <= age <= now for age in ages)
    assert ages == sorted(ages, reverse=True)  # type: ignore[type-var]


# A cluster.


async def test_a_lag_without_a_known_age_has_no_seconds() -> None:
    now = 1000.0
    async with EmbeddedCluster(brokers=1, tcp=False, seed=1) as cluster:
        await cluster.create_topic("orders")
        settings: dict[str, Any] = {"connector": cluster.connector}
        async with (
            Admin(cluster.bootstrap_servers, **settings) as admin,
            Producer(cluster.bootstrap_servers, **settings) as producer,
        ):
            await producer.send_many("orders", [b"x"] * 10)
            await admin.groups.alter_offsets("billing", {ORDERS: 4})
            watch = watch_of(admin, lambda: now)
            list_offsets = admin.offsets.list
            with pytest.MonkeyPatch.context() as patch:

                async def failed(partitions: Any) -> Any:
                    answered = await list_offsets(partitions)
                    return type(answered)({}, answered.failed)

                patch.setattr(admin.offsets, "list", failed)
                await watch.look()
            figures = values(watch)
    assert figures["kafka_group_lag_records"] == {("billing", "orders"): 6}
    assert figures["kafka_group_lag_seconds"] == {}


async def test_lag_in_records_and_seconds_of_groups_of_all_kinds() -> None:
    now = 1000.0
    async with EmbeddedCluster(brokers=3, tcp=False, seed=1) as cluster:
        await cluster.create_topic("orders", 2, 3)
        settings: dict[str, Any] = {"connector": cluster.connector}
        async with (
            Admin(cluster.bootstrap_servers, **settings) as admin,
            Producer(cluster.bootstrap_servers, **settings) as producer,
        ):
            watch = watch_of(admin, lambda: now)
            assert values(watch)["kafka_exporter_up"] == {(): 0}
            await producer.send_many("orders", [b"x"] * 10, partition=0)
            assert await watch.look() is None
            await admin.share_groups.alter_offsets("shared", {ORDERS: 4})
            async with Consumer(
                cluster.bootstrap_servers, topics=["orders"], group_id="billing", **settings
            ) as consumer:
                await consumer.wait_assigned()
                await consumer.commit({ORDERS: 10})
                await producer.send_many("orders", [b"x"] * 20, partition=0)
                now += 20
                assert await watch.look() is None
                now += 5
                assert await watch.look() is None
                figures = values(watch)
                members = figures["kafka_group_members"]
                assert figures["kafka_group_state"] == {("billing", "Stable"): 1}
    assert figures["kafka_group_lag_records"] == {("billing", "orders"): 20}
    assert figures["kafka_group_lag_seconds"] == {("billing", "orders"): 25.0}
    assert members == {("billing",): 1}
    assert figures["kafka_share_group_lag_records"] == {("shared", "orders"): 26}
    assert figures["kafka_topic_end_offsets"]["orders",] == 30
    assert figures["kafka_topic_partitions"]["orders",] == 2
    assert figures["kafka_topic_replicas_out_of_sync"]["orders",] == 0
    assert figures["kafka_brokers"] == {(): 3}
    assert len(figures["kafka_broker_log_bytes"]) == 3
    assert figures["kafka_exporter_up"] == {(): 1}
    assert figures["kafka_exporter_failures_total"] == {(): 0}


async def test_members_without_partitions_are_counted_as_members() -> None:
    settings: dict[str, Any] = {"group_id": "billing", "topics": ["orders", "bills"], "strategies": ["range"]}
    async with EmbeddedCluster(brokers=1, tcp=False, seed=1) as cluster:
        await cluster.create_topic("orders", 2)
        await cluster.create_topic("bills")
        settings["connector"] = cluster.connector
        async with (
            Admin(cluster.bootstrap_servers, connector=cluster.connector) as admin,
            Consumer(cluster.bootstrap_servers, **settings) as first,
            Consumer(cluster.bootstrap_servers, **settings) as second,
            Consumer(cluster.bootstrap_servers, **settings) as third,
        ):
            members = (first, second, third)
            await until(lambda: sorted(len(member.assignment) for member in members) == [0, 1, 2])
            watch = watch_of(admin)
            assert await watch.look() is None
            figures = values(watch)
    assert figures["kafka_group_members"] == {("billing",): 3}
    assert figures["kafka_group_members_without_partitions"] == {("billing",): 1}
    assert figures["kafka_group_topic_members"] == {("billing", "bills"): 1, ("billing", "orders"): 2}
    assert figures["kafka_group_topic_partitions"] == {("billing", "bills"): 1, ("billing", "orders"): 2}


async def test_starts_and_sizes_and_settings_of_topics_and_the_brokers() -> None:
    async with EmbeddedCluster(brokers=3, tcp=False, seed=1) as cluster:
        await cluster.create_topic("orders", 2, 2)
        await cluster.create_topic("prices", 1, 3, configs={"cleanup.policy": "compact"})
        settings: dict[str, Any] = {"connector": cluster.connector}
        async with (
            Admin(cluster.bootstrap_servers, **settings) as admin,
            Producer(cluster.bootstrap_servers, **settings) as producer,
        ):
            await producer.send_many("orders", [b"x"] * 10, partition=0)
            await producer.send_many("orders", [b"x"] * 5, partition=1)
            await admin.records.delete({ORDERS: 4})
            await admin.groups.alter_offsets("billing", {ORDERS: 2, TopicPartition("orders", 1): 5})
            watch = watch_of(
                admin, by_partition=True, internal=True, topic_settings=("cleanup.policy", "min.insync.replicas")
            )
            assert await watch.look() is None
            figures = values(watch)
            described = await admin.cluster.describe()
            sizes = await admin.log_dirs.describe()
    assert figures["kafka_topic_start_offsets"]["orders",] == 4
    assert figures["kafka_partition_start_offset"]["orders", "0"] == 4
    assert figures["kafka_partition_end_offset"]["orders", "1"] == 5
    assert figures["kafka_group_committed_offsets"] == {("billing", "orders", "0"): 2, ("billing", "orders", "1"): 5}
    assert figures["kafka_group_lag_records"] == {("billing", "orders", "0"): 8, ("billing", "orders", "1"): 0}
    assert figures["kafka_topic_info"]["orders", "2", "delete", "1"] == 1
    assert figures["kafka_topic_info"]["prices", "3", "compact", "1"] == 1
    assert figures["kafka_topic_partitions"]["__consumer_offsets",] >= 1
    assert figures["kafka_cluster_info"] == {(described.cluster_id,): 1}
    assert figures["kafka_broker_info"] == {
        (str(node.node_id), node.host, str(node.port), ""): 1 for node in described.brokers
    }
    replicas = [
        replica for directories in sizes.done.values() for directory in directories for replica in directory.replicas
    ]
    of_orders = [replica.size for replica in replicas if replica.partition.topic == "orders"]
    assert len(of_orders) == 4
    assert figures["kafka_topic_log_bytes"]["orders",] == sum(of_orders) > 0
    assert figures["kafka_topic_log_bytes"]["prices",] == 0
    assert sum(figures["kafka_topic_log_bytes"].values()) == sum(figures["kafka_broker_log_bytes"].values())


async def test_sums_are_missing_where_a_broker_with_a_part_of_them_is_down() -> None:
    async with EmbeddedCluster(brokers=2, tcp=False, seed=1) as cluster:
        await cluster.create_topic("orders", 2)
        async with Admin(cluster.bootstrap_servers, connector=cluster.connector, api_timeout=5.0) as admin:
            leaders = {item.leader for item in (await admin.topics.describe("orders"))["orders"].partitions}
            assert leaders == {1, 2}
            await cluster.stop(2)
            watch = watch_of(admin, by_partition=True)
            assert await watch.look() is None
            figures = values(watch)
    assert figures["kafka_topic_partitions_without_leader"] == {("orders",): 1}
    assert len(figures["kafka_partition_end_offset"]) == len(figures["kafka_partition_start_offset"]) == 1
    assert figures["kafka_topic_start_offsets"] == figures["kafka_topic_end_offsets"] == {}
    assert figures["kafka_broker_log_bytes"] == {("1",): 0}
    assert figures["kafka_topic_log_bytes"] == {}


async def test_committed_offsets_have_no_lower_sum_while_a_partition_has_no_leader() -> None:
    async with EmbeddedCluster(brokers=2, tcp=False, seed=1) as cluster:
        await cluster.create_topic("orders", 2)
        async with Admin(cluster.bootstrap_servers, connector=cluster.connector, api_timeout=5.0) as admin:
            await admin.groups.alter_offsets("billing", {ORDERS: 0, TopicPartition("orders", 1): 0})
            coordinator = (await admin.groups.describe("billing"))["billing"].coordinator
            assert coordinator is not None
            (lost,) = {1, 2} - {coordinator.node_id}
            async with Producer(cluster.bootstrap_servers, connector=cluster.connector) as producer:
                for number in range(2):
                    await producer.send_many("orders", [b"x"] * 10, partition=number)
            await admin.groups.alter_offsets("billing", {ORDERS: 3, TopicPartition("orders", 1): 4})
            watch = watch_of(admin)
            assert await watch.look() is None
            assert values(watch)["kafka_group_committed_offsets"] == {("billing", "orders"): 7}
            await cluster.stop(lost)
            assert await watch.look() is None
            figures = values(watch)
    assert figures["kafka_topic_partitions_without_leader"] == {("orders",): 1}
    assert figures["kafka_group_committed_offsets"] == {}


async def test_patterns_and_the_limit_bound_the_series() -> None:
    async with (
        EmbeddedCluster(brokers=1, tcp=False, seed=1) as cluster,
        Admin(cluster.bootstrap_servers, connector=cluster.connector) as admin,
        Producer(cluster.bootstrap_servers, connector=cluster.connector) as producer,
    ):
        for number in range(4):
            await cluster.create_topic(f"topic-{number}", 2)
            await producer.send_many(f"topic-{number}", [b"x"] * number)
            for group in ("billing", "shipping"):
                offsets = {TopicPartition(f"topic-{number}", partition): 0 for partition in range(2)}
                await admin.groups.alter_offsets(group, offsets)
        watch = watch_of(admin, groups=re.compile("bill.*"), topics=re.compile("topic-[1-3]"), most_series=2)
        await watch.look()
        figures = values(watch)
        assert figures["kafka_group_lag_records"] == {("billing", "topic-3"): 3, ("billing", "topic-2"): 2}
        assert figures["kafka_topic_end_offsets"] == {("topic-3",): 3, ("topic-2",): 2}
        assert figures["kafka_exporter_series_left_out"][()] >= 2
        detailed = watch_of(admin, groups=re.compile("shipping"), topics=re.compile("topic-3"), by_partition=True)
        await detailed.look()
        lags = values(detailed)["kafka_group_lag_records"]
        assert lags.keys() == {("shipping", "topic-3", "0"), ("shipping", "topic-3", "1")}
        assert sum(lags.values()) == 3


async def test_a_cluster_that_does_not_answer_has_no_figures_until_it_is_back() -> None:
    async with EmbeddedCluster(brokers=1, tcp=False, seed=1) as cluster:
        await cluster.create_topic("orders")
        async with Admin(cluster.bootstrap_servers, connector=cluster.connector, api_timeout=5.0) as admin:
            watch = watch_of(admin)
            assert await watch.look() is None
            await cluster.stop(1)
            assert await watch.look() is not None
            figures = values(watch)
            assert figures["kafka_exporter_up"] == {(): 0}
            assert figures["kafka_exporter_failures_total"] == {(): 1}
            assert "kafka_brokers" not in figures
            await cluster.start_node(1)
            assert await watch.look() is None
            assert values(watch)["kafka_exporter_up"] == {(): 1}
