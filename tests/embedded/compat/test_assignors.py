"""Assignors of a program: both libraries call them with the same values."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from typing import Any

import pytest

from aiokafka_lite import EmbeddedCluster
from aiokafka_lite.compat.aiokafka import assignors
from tests.waiting import DEADLINE

PLACES = {
    "aiokafka": ("aiokafka.coordinator.assignors.abstract", "aiokafka.coordinator.protocol"),
    "compat": (assignors.__name__, assignors.__name__),
}


def lowest_rank_first(library: Any, rank: int, assigned: list[Any]) -> Any:
    """Return an assignor that gives all partitions to the member of the lowest rank. Appends assignments to
    ``assigned``.
    """
    abstract, protocol = map(importlib.import_module, PLACES[library.name])

    class LowestRankFirst(abstract.AbstractPartitionAssignor):  # type: ignore[name-defined, misc]
        name = "lowest-rank-first"

        def metadata(self, topics: Iterable[str]) -> Any:
            assert set(topics) == {"orders"}
            return protocol.ConsumerProtocolMemberMetadata(0, list(topics), b"%d" % rank)

        def assign(self, cluster: Any, members: Mapping[str, Any]) -> dict[str, Any]:
            first = min(members, key=lambda member: members[member].user_data)
            assignments = {}
            for member in members:
                numbers = sorted(cluster.partitions_for_topic("orders")) if member == first else []
                listed = [("orders", numbers)] if numbers else []
                assignments[member] = protocol.ConsumerProtocolMemberAssignment(0, listed, b"of %d" % len(members))
            return assignments

        def on_assignment(self, assignment: Any) -> None:
            assigned.append(([tuple(topic) for topic in assignment.assignment], assignment.user_data))
            assert [tuple(partition) for partition in assignment.partitions()] == [
                (topic, number) for topic, numbers in assignment.assignment for number in numbers
            ]

    return LowestRankFirst()


async def test_an_assignor_of_the_program_assigns_partitions(library: Any, cluster: EmbeddedCluster) -> None:
    assigned: dict[int, list[Any]] = {1: [], 2: []}
    async with AsyncExitStack() as stack:
        members = {}
        for rank in (2, 1):
            members[rank] = library.AIOKafkaConsumer(
                "orders",
                bootstrap_servers=cluster.bootstrap_servers,
                group_id="billing",
                heartbeat_interval_ms=50,
                partition_assignment_strategy=[lowest_rank_first(library, rank, assigned[rank])],
            )
            await stack.enter_async_context(members[rank])
        async with asyncio.timeout(DEADLINE):
            while len(assigned[2]) < 2:
                await members[2].getmany(timeout_ms=10)
        assert {partition.partition for partition in members[1].assignment()} == {0, 1}
        assert members[2].assignment() == set()
    assert assigned == {
        2: [([("orders", [0, 1])], b"of 1"), ([], b"of 2")],
        1: [([("orders", [0, 1])], b"of 2")],
    }


def assignor_of(library: Any, name: str) -> Any:
    """Return one of aiokafka's assignors."""
    if library.name == "compat":
        return getattr(assignors, f"{name}PartitionAssignor")
    package = {"Sticky": "sticky.sticky_assignor"}.get(name, name.lower())
    return getattr(importlib.import_module(f"aiokafka.coordinator.assignors.{package}"), f"{name}PartitionAssignor")


@pytest.mark.parametrize("name", ["Range", "RoundRobin", "Sticky"])
async def test_an_assignor_may_extend_one_of_aiokafka(library: Any, cluster: EmbeddedCluster, name: str) -> None:
    calls = []

    class Counted(assignor_of(library, name)):  # type: ignore[misc]
        name = "counted"

        @classmethod
        def assign(cls, cluster: Any, members: Mapping[str, Any]) -> Any:
            calls.append(sorted(cluster.topics()))
            return super().assign(cluster, members)

    consumer = library.AIOKafkaConsumer(
        "orders",
        bootstrap_servers=cluster.bootstrap_servers,
        group_id="billing",
        partition_assignment_strategy=[Counted],
    )
    async with consumer:
        assert {partition.partition for partition in consumer.assignment()} == {0, 1}
    assert calls == [["orders"]]


async def test_members_with_an_extended_sticky_assignor_keep_partitions(library: Any, cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("bills", 6)
    base = assignor_of(library, "Sticky")
    async with AsyncExitStack() as stack:
        members = []

        async def join() -> None:
            members.append(
                library.AIOKafkaConsumer(
                    "bills",
                    bootstrap_servers=cluster.bootstrap_servers,
                    group_id="billing",
                    heartbeat_interval_ms=50,
                    # A class for each member: aiokafka's assignor has its partitions as attributes of the class.
                    partition_assignment_strategy=[type("Extended", (base,), {})],
                )
            )
            await stack.enter_async_context(members[-1])
            async with asyncio.timeout(DEADLINE):
                while {len(member.assignment()) for member in members} != {6 // len(members)}:
                    for member in members:
                        await member.getmany(timeout_ms=5)

        await join()
        await join()
        before = [member.assignment() for member in members]
        await join()
        assert [member.assignment() < owned for member, owned in zip(members, before, strict=False)] == [True, True]
