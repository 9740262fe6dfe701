"""Every public coroutine of ``admin.groups`` and ``admin.share_groups``, cancelled at every turn of the event loop.

Whether the cancelled call reached the broker or not, the next one works, and no task is left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from aiokafka_lite.admin import Admin, Reset
from aiokafka_lite.admin.groups import Groups
from aiokafka_lite.admin.share_groups import ShareGroups
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.types import TopicPartition
from tests.cancelling import at_every_turn, public_coroutines
from tests.embedded.group.recording_members import member_of, until_stable

FIRST = TopicPartition("orders", 0)

Call = Callable[[Admin], Awaitable[Any]]


def client_tasks() -> list[str]:
    """Return the names of the tasks that are not tasks of a broker's connections."""
    return sorted(task.get_name() for task in asyncio.all_tasks() if not task.get_name().startswith("node "))


async def make_groups(admin: Admin) -> None:
    await admin.groups.alter_offsets("g", {FIRST: 3})
    await admin.share_groups.alter_offsets("s", {FIRST: 3})


CALLS: dict[str, tuple[Call, Callable[[Any], Any], Any]] = {
    "Groups.list": (lambda admin: admin.groups.list(), lambda groups: [group.group_id for group in groups], ["g", "s"]),
    "Groups.describe": (lambda admin: admin.groups.describe("g"), lambda groups: groups["g"].members, ()),
    "Groups.coordinators": (
        lambda admin: admin.groups.coordinators("g"), lambda nodes: nodes["g"].node_id in (1, 2, 3), True,
    ),
    "Groups.offsets": (lambda admin: admin.groups.offsets("g"), lambda offsets: offsets["g"][FIRST].offset, 3),
    "Groups.lag": (lambda admin: admin.groups.lag("g"), lambda lags: lags["g"].total, 7),
    "Groups.alter_offsets": (
        lambda admin: admin.groups.alter_offsets("g", {FIRST: 3}), lambda results: list(results.done), [FIRST],
    ),
    "Groups.delete_offsets": (
        lambda admin: admin.groups.delete_offsets("g", [FIRST]), lambda results: list(results.done), [FIRST],
    ),
    "Groups.reset_offsets": (
        lambda admin: admin.groups.reset_offsets("g", Reset.to_earliest(), topics=["orders"]),
        lambda moves: moves[FIRST].after,
        0,
    ),
    "Groups.delete": (lambda admin: admin.groups.delete("g"), lambda results: list(results.done), ["g"]),
    "ShareGroups.list": (
        lambda admin: admin.share_groups.list(), lambda groups: [group.group_id for group in groups], ["s"],
    ),
    "ShareGroups.describe": (lambda admin: admin.share_groups.describe("s"), lambda groups: groups["s"].members, ()),
    "ShareGroups.offsets": (
        lambda admin: admin.share_groups.offsets("s"), lambda offsets: offsets["s"][FIRST].offset, 3,
    ),
    "ShareGroups.alter_offsets": (
        lambda admin: admin.share_groups.alter_offsets("s", {FIRST: 3}), lambda results: list(results.done), [FIRST],
    ),
    "ShareGroups.delete_offsets": (
        lambda admin: admin.share_groups.delete_offsets("s", "orders"), lambda results: list(results.done), ["orders"],
    ),
    "ShareGroups.reset_offsets": (
        lambda admin: admin.share_groups.reset_offsets("s", Reset.to_earliest(), topics=["orders"]),
        lambda moves: moves[FIRST].after,
        0,
    ),
    "ShareGroups.delete": (lambda admin: admin.share_groups.delete("s"), lambda results: list(results.done), ["s"]),
}  # fmt: skip
"""The calls, the part of their results that is checked, and its value."""


@pytest.mark.parametrize("name", CALLS)
async def test_a_call_about_groups_that_is_cancelled_can_be_repeated(
    cluster: EmbeddedCluster, admin: Admin, name: str
) -> None:
    call, part, expected = CALLS[name]
    await cluster.create_topic("orders")
    for _ in range(10):
        await cluster.produce("orders", b"x", partition=0)
    await make_groups(admin)
    await call(admin)  # all connections are open now, so that no turn waits for the time of another attempt
    await make_groups(admin)
    tasks = client_tasks()

    async def before() -> None:
        await asyncio.sleep(1.0)  # refreshes of the metadata have a pace, and turns take no time
        await make_groups(admin)

    results = await at_every_turn(lambda: call(admin), before)
    assert part(results[-1]) == expected
    await make_groups(admin)
    assert part(await call(admin)) == expected
    assert client_tasks() == tasks


async def test_a_removal_of_members_that_is_cancelled_can_be_repeated(cluster: EmbeddedCluster, admin: Admin) -> None:
    await cluster.create_topic("orders", partitions=6)
    async with member_of(cluster, group_instance_id="i") as member:
        await until_stable(member)

        async def back_in_group() -> None:
            await asyncio.sleep(10.0)  # a heartbeat notices the removal, if there was one
            await until_stable(member)

        await admin.groups.remove_members("workers", instances=["i"])
        await back_in_group()
        tasks = client_tasks()
        assert await at_every_turn(lambda: admin.groups.remove_members("workers", instances=["i"]), back_in_group)
        await back_in_group()
        assert list((await admin.groups.remove_members("workers", instances=["i"])).done) == ["i"]
        await back_in_group()
        assert client_tasks() == tasks


def test_every_public_coroutine_is_covered_here() -> None:
    assert public_coroutines(Groups, ShareGroups) == {*CALLS, "Groups.remove_members"}
