"""Groups are found at any broker, and their offsets are reset only while they have no members."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from aiokafka_lite import BrokerError, Consumer, OffsetAndMetadata, Producer, TopicPartition
from aiokafka_lite.admin import Admin, GroupState, GroupType, NewTopic, Reset, read_offsets, write_offsets
from aiokafka_lite.admin.batch_markers import marker_metadata
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import ErrorCode, UnsupportedVersion
from aiokafka_lite.protocol.messages import DescribeGroupsRequest, LeaveGroupRequest, ListOffsetsRequest
from tests.embedded.group.recording_members import ORDERS, member_of, until_stable

FIRST, SECOND = ORDERS[:2]


@asynccontextmanager
async def two_members(cluster: EmbeddedCluster) -> AsyncIterator[list[Consumer]]:
    """Yield a stable group of two members with the six partitions of ``orders``."""
    async with AsyncExitStack() as stack:
        members = [
            await stack.enter_async_context(member_of(cluster, client_id=name, auto_commit=False))
            for name in ("left", "right")
        ]
        await until_stable(*members)
        yield members


async def with_records(cluster: EmbeddedCluster, admin: Admin, count: int = 10, **settings: Any) -> None:
    """Create a topic of six partitions with this many records in each, a second apart."""
    (await admin.topics.create(NewTopic("orders", 6))).raise_for_errors()
    async with Producer(cluster.bootstrap_servers, connector=cluster.connector) as producer:
        for number in range(count):
            for partition in ORDERS:
                await producer.send("orders", b"x", partition=partition.partition, timestamp=1000 * (number + 1))


async def make_group(admin: Admin, name: str, offset: int = 5) -> None:
    (await admin.groups.alter_offsets(name, dict.fromkeys(ORDERS, offset))).raise_for_errors()


async def test_groups_of_all_brokers_are_listed_once(admin: Admin, cluster: EmbeddedCluster) -> None:
    await with_records(cluster, admin, 1)
    names = [f"group-{number}" for number in range(12)]
    for name in names:
        await make_group(admin, name, 0)
    listed = await admin.groups.list()
    assert [group.group_id for group in listed] == sorted(names)
    described = (await admin.groups.describe(names)).raise_for_errors()
    assert len({group.coordinator for group in described.values()}) > 1
    async with two_members(cluster):
        assert [group.group_id for group in await admin.groups.list(states=["stable"])] == ["workers"]
        assert len(await admin.groups.list(states=[GroupState.EMPTY])) == 12
        assert await admin.groups.list(types=[GroupType.CONSUMER]) == ()
        assert len(await admin.groups.list(types=["classic"])) == 13


async def test_repeated_lists_do_not_wait_for_the_pace_of_metadata(admin: Admin) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    for _ in range(20):
        await admin.groups.list()
    assert loop.time() - began < 1.0  # virtual seconds; a paced request alone may wait for one


async def test_coordinators_are_found_also_for_groups_that_do_not_exist(admin: Admin, cluster: EmbeddedCluster) -> None:
    await with_records(cluster, admin, 1)
    await make_group(admin, "billing")
    coordinators = (await admin.groups.coordinators(["billing", "none"])).raise_for_errors()
    assert coordinators["billing"] == (await admin.groups.describe("billing"))["billing"].coordinator
    assert coordinators["none"].node_id in (1, 2, 3)
    others = (await admin.transactions.coordinators("orders-1")).raise_for_errors()
    assert others["orders-1"].node_id in (1, 2, 3)


@pytest.mark.parametrize("kind", ["groups", "transactions"])
async def test_a_coordinator_that_moves_or_stops_is_not_named_again(
    admin: Admin, cluster: EmbeddedCluster, kind: str
) -> None:
    topic = "__consumer_offsets" if kind == "groups" else "__transaction_state"
    await cluster.create_topic(topic, assignments=[[1, 2, 3]])

    async def coordinator() -> int:
        calls = admin.groups if kind == "groups" else admin.transactions
        return (await calls.coordinators("orders"))["orders"].node_id

    assert await coordinator() == 1
    await cluster.move_leader(topic, 0, 2)
    assert await coordinator() == 2
    await cluster.stop(2)
    assert await coordinator() in (1, 3)


async def test_members_are_described_with_their_assignments(admin: Admin, cluster: EmbeddedCluster) -> None:
    await with_records(cluster, admin, 1)
    async with two_members(cluster) as members:
        group = (await admin.groups.describe("workers"))["workers"]
        owned = {name: tuple(sorted(member.assignment)) for name, member in zip(("left", "right"), members)}
    assert (group.state, group.type, group.protocol_type) == (GroupState.STABLE, GroupType.CLASSIC, "consumer")
    assert group.strategy == "range"
    assert {member.client_id: member.assignment for member in group.members} == owned
    assert sorted(partition for assignment in owned.values() for partition in assignment) == ORDERS
    assert {member.topics for member in group.members} == {("orders",)}


async def test_a_missing_group_is_not_found(admin: Admin, old_admin: Admin) -> None:
    for client in (admin, old_admin):
        with pytest.raises(BrokerError) as caught:
            (await client.groups.describe("missing"))["missing"]
        assert caught.value.code is ErrorCode.GROUP_ID_NOT_FOUND


async def test_only_empty_groups_are_deleted(admin: Admin, cluster: EmbeddedCluster) -> None:
    await with_records(cluster, admin, 1)
    await make_group(admin, "old", 0)
    async with two_members(cluster):
        results = await admin.groups.delete(["old", "workers", "missing"])
    assert list(results.done) == ["old"]
    assert {name: getattr(error, "code", None) for name, error in results.failed.items()} == {
        "workers": ErrorCode.NON_EMPTY_GROUP,
        "missing": ErrorCode.GROUP_ID_NOT_FOUND,
    }
    assert (await admin.groups.offsets("old"))["old"] == {}


async def test_offsets_are_committed_listed_and_deleted(admin: Admin, cluster: EmbeddedCluster) -> None:
    await with_records(cluster, admin)
    offsets: dict[TopicPartition, OffsetAndMetadata | int] = {FIRST: OffsetAndMetadata(3, "note", 0), SECOND: 4}
    (await admin.groups.alter_offsets("billing", offsets)).raise_for_errors()
    results = await admin.groups.offsets(["billing", "missing"])
    assert results["billing"] == {FIRST: OffsetAndMetadata(3, "note", 0), SECOND: OffsetAndMetadata(4)}
    assert results["missing"] == {}
    chosen = await admin.groups.offsets(["billing", "missing"], partitions=[SECOND, TopicPartition("orders", 5)])
    assert {**chosen.done} == {"billing": {SECOND: OffsetAndMetadata(4)}, "missing": {}}
    (await admin.groups.delete_offsets("billing", [FIRST])).raise_for_errors()
    assert list((await admin.groups.offsets("billing"))["billing"]) == [SECOND]


async def test_offsets_of_a_group_with_members_are_not_reset(admin: Admin, cluster: EmbeddedCluster) -> None:
    await with_records(cluster, admin)
    async with two_members(cluster):
        with pytest.raises(BrokerError, match="Stable with 2 members") as caught:
            await admin.groups.reset_offsets("workers", Reset.to_earliest(), topics=["orders"])
        assert caught.value.code is ErrorCode.NON_EMPTY_GROUP
        altered = await admin.groups.alter_offsets("workers", {FIRST: 1})
        assert "the group has members" in str(altered.failed[FIRST])
        assert isinstance(altered.failed[FIRST], BrokerError)


@pytest.mark.parametrize(
    "to, after",
    [
        (Reset.to_earliest(), 0),
        (Reset.to_latest(), 10),
        (Reset.to_current(), 5),
        (Reset.to_offset(7), 7),
        (Reset.to_offset(70), 10),
        (Reset.to_timestamp(2500), 2),
        (Reset.to_timestamp(99_000), 10),
        (Reset.by_duration(6.0, now=lambda: 10.0), 3),
        (Reset.shift_by(-2), 3),
        (Reset.shift_by(-20), 0),
        (Reset.shift_by(20), 10),
    ],
    ids=lambda value: value.kind.name if isinstance(value, Reset) else str(value),
)
async def test_offsets_of_a_group_are_reset(admin: Admin, cluster: EmbeddedCluster, to: Reset, after: int) -> None:
    await with_records(cluster, admin)
    await make_group(admin, "billing")
    planned = await admin.groups.reset_offsets("billing", to, dry_run=True)
    assert {(move.before, move.after) for move in planned.raise_for_errors().values()} == {(5, after)}
    assert {offset.offset for offset in (await admin.groups.offsets("billing"))["billing"].values()} == {5}
    moved = await admin.groups.reset_offsets("billing", to)
    assert moved.raise_for_errors() == planned.done
    assert {offset.offset for offset in (await admin.groups.offsets("billing"))["billing"].values()} == {after}


async def test_offsets_of_a_group_are_reset_from_a_file(admin: Admin, cluster: EmbeddedCluster, tmp_path: Path) -> None:
    await with_records(cluster, admin)
    await make_group(admin, "billing")
    plan = await admin.groups.reset_offsets("billing", Reset.shift_by(1), partitions=[FIRST], dry_run=True)
    file = tmp_path / "offsets.csv"
    file.write_text(write_offsets(plan.raise_for_errors()))
    assert file.read_text() == "orders,0,6\n"
    (await admin.groups.reset_offsets("billing", Reset.from_file(file))).raise_for_errors()
    offsets = (await admin.groups.offsets("billing"))["billing"]
    assert (offsets[FIRST].offset, offsets[SECOND].offset) == (6, 5)


@pytest.mark.parametrize("text", ["orders,0", "orders,x,1", "orders,0,-1", "orders,-1,1", "a,b,c,d"])
def test_a_wrong_line_of_a_file_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="line 2"):
        read_offsets(f"orders,0,1\n{text}\n")


@pytest.mark.parametrize(
    "content, says", [(b"orders,0,1\n\xff", "UTF-8"), (b'"' + b"x" * 200_000, "line 1")], ids=["bytes", "endless"]
)
def test_a_file_of_another_format_is_a_value_error(tmp_path: Path, content: bytes, says: str) -> None:
    file = tmp_path / "offsets.csv"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=says):
        Reset.from_file(file)


def test_a_duration_before_the_epoch_resets_to_the_epoch() -> None:
    assert Reset.by_duration(1e308).number == 0


async def test_partitions_that_cannot_be_reset_have_their_own_errors(admin: Admin, cluster: EmbeddedCluster) -> None:
    await with_records(cluster, admin)
    await make_group(admin, "billing")
    missing = TopicPartition("missing", 0)
    results = await admin.groups.reset_offsets("billing", Reset.to_latest(), partitions=[FIRST, missing])
    assert list(results.done) == [FIRST]
    assert list(results.failed) == [missing]


async def test_a_silent_coordinator_fails_only_the_lag_of_its_groups(admin: Admin, cluster: EmbeddedCluster) -> None:
    await with_records(cluster, admin, 1)
    names = [f"group-{number}" for number in range(6)]
    for name in names:
        await make_group(admin, name, 0)
    described = (await admin.groups.describe(names)).raise_for_errors()
    silent = described[names[0]].coordinator.node_id
    cluster.on(DescribeGroupsRequest, node=silent, times=None).drop()
    lags = await admin.groups.lag(names, timeout=10.0)
    theirs = [name for name in names if described[name].coordinator.node_id == silent]
    assert list(lags.failed) == theirs
    assert {name: lag.total for name, lag in lags.done.items()} == {name: 6 for name in names if name not in theirs}


async def test_a_marker_of_a_batch_has_no_lag(admin: Admin, cluster: EmbeddedCluster) -> None:
    await with_records(cluster, admin)
    for counts in ({"rows": 10, "size": 100}, {"tasks": 3}):
        await admin.groups.alter_offsets("query", {FIRST: OffsetAndMetadata(1, marker_metadata(counts))})
        (marker,) = (await admin.groups.lag("query"))["query"].partitions
        assert (marker.committed, marker.lag) == (1, None)
        assert marker.end is not None
    for metadata in ("", "mine", '{"rows": 1}', '{"rows": 10, "size": 100', "[]", '{"tasks": 1, "more": 2}'):
        await admin.groups.alter_offsets("reader", {FIRST: OffsetAndMetadata(0, metadata)})
        (position,) = (await admin.groups.lag("reader"))["reader"].partitions
        assert position.lag == position.end, metadata


async def test_a_silent_leader_fails_only_the_resets_of_its_partitions(admin: Admin, cluster: EmbeddedCluster) -> None:
    await with_records(cluster, admin)
    await make_group(admin, "billing")
    leaders = [partition.leader for partition in (await admin.topics.describe("orders"))["orders"].partitions]
    cluster.on(ListOffsetsRequest, node=2, times=None).drop()
    moved = await admin.groups.reset_offsets("billing", Reset.to_latest(), timeout=10.0)
    assert list(moved.failed) == [item for item in ORDERS if leaders[item.partition] == 2]
    assert {move.after for move in moved.done.values()} == {10}


async def test_lag_is_the_number_of_unread_records(admin: Admin, cluster: EmbeddedCluster) -> None:
    await with_records(cluster, admin)
    async with two_members(cluster) as members:
        await members[0].commit({members[0].assignment[0]: OffsetAndMetadata(4)})
        results = await admin.groups.lag(["workers", "missing"])
    group = results["workers"]
    assert [partition.partition for partition in group.partitions] == ORDERS
    committed = [partition for partition in group.partitions if partition.committed is not None]
    assert [(partition.committed, partition.end, partition.lag) for partition in committed] == [(4, 10, 6)]
    assert group.total == 6
    assert {partition.member.client_id for partition in group.partitions if partition.member} == {"left", "right"}
    assert list(results.failed) == ["missing"]


async def test_groups_of_old_kafka_are_administered_too(old_admin: Admin, old_cluster: EmbeddedCluster) -> None:
    await with_records(old_cluster, old_admin)
    await make_group(old_admin, "billing")
    await make_group(old_admin, "sales")
    assert [group.group_id for group in await old_admin.groups.list(states=["Empty"], types=["classic"])] == [
        "billing",
        "sales",
    ]
    assert await old_admin.groups.list(states=["Stable"]) == ()
    (await old_admin.groups.reset_offsets("billing", Reset.to_earliest())).raise_for_errors()
    lags = (await old_admin.groups.lag(["billing", "sales"])).raise_for_errors()
    assert [lag.total for lag in lags.values()] == [60, 30]
    with pytest.raises(UnsupportedVersion, match=r"2\.4"):
        (await old_admin.groups.delete_offsets("billing", [FIRST])).raise_for_errors()
    (await old_admin.groups.delete("billing")).raise_for_errors()


async def test_members_are_removed_by_their_ids(admin: Admin, old_admin: Admin, cluster: EmbeddedCluster) -> None:
    await with_records(cluster, admin, 1)
    async with two_members(cluster):
        first, second = (await admin.groups.describe("workers"))["workers"].members
        removed = await admin.groups.remove_members("workers", [first.member_id, "unknown"])
        assert (list(removed.done), list(removed.failed)) == ([first.member_id], ["unknown"])
        with pytest.raises(BrokerError, match="UNKNOWN_MEMBER_ID"):
            removed["unknown"]
        members = (await admin.groups.describe("workers"))["workers"].members
        assert first.member_id not in {member.member_id for member in members}
        with pytest.raises(UnsupportedVersion, match="removing members of groups"):
            (await old_admin.groups.remove_members("workers", [second.member_id])).raise_for_errors()


async def test_a_removal_whose_answer_is_lost_succeeds(admin: Admin, cluster: EmbeddedCluster) -> None:
    await with_records(cluster, admin, 1)
    async with two_members(cluster):
        (first, _) = (await admin.groups.describe("workers"))["workers"].members
        cluster.on(LeaveGroupRequest).apply_then_disconnect()
        (await admin.groups.remove_members("workers", [first.member_id])).raise_for_errors()
