"""Every public coroutine of ``EmbeddedCluster``, cancelled at every turn of the event loop that it takes.

Whatever was cancelled, the cluster works, the call can be repeated, and a closed cluster leaves no task and no port.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from aiokafka_lite import Consumer, EmbeddedCluster, Producer
from aiokafka_lite.testing.ports import free_port
from aiokafka_lite.testing.server import EmbeddedKafkaServer
from tests.cancelling import Covered, cancel_after, public_coroutines, turns_to_try

covers = Covered()


async def works(cluster: EmbeddedCluster) -> None:
    """Send a record through the cluster."""
    await cluster.until_in_sync("orders")
    async with Producer(cluster.bootstrap_servers) as producer:
        written = await producer.send("orders", b"soup", partition=0)
    async with Consumer(cluster.bootstrap_servers, topics=["orders"]) as consumer:
        consumer.seek(consumer.assignment[0], written.offset)
        assert (await anext(consumer)).value == b"soup"


async def waited_for_records(cluster: EmbeddedCluster) -> None:
    await cluster.produce("orders", b"tea", partition=0)
    await cluster.wait_for_records("orders", len(cluster.records("orders")))


CALLS: dict[str, Callable[[EmbeddedCluster], Awaitable[object]]] = {
    "produce": lambda cluster: cluster.produce("orders", b"tea", partition=0),
    "until_in_sync": lambda cluster: cluster.until_in_sync("orders"),
    "wait_for_records": waited_for_records,
    "restart": lambda cluster: cluster.restart(1),
    "move_leader": lambda cluster: cluster.move_leader("orders", 0),
    "set_isr": lambda cluster: cluster.set_isr("orders", 0, [cluster.leader_of("orders", 0)]),
    "create_topic": lambda cluster: cluster.create_topic(f"topic-{len(cluster.controller.topics)}", 2, 2),
    "partition_network": lambda cluster: cluster.partition_network([1], [2]),
    "freeze": lambda cluster: cluster.freeze(2),
    "stop": lambda cluster: cluster.stop(2),
    "kill": lambda cluster: cluster.kill(2),
}


async def repair(cluster: EmbeddedCluster, name: str) -> None:
    """End the fault that a call may have begun."""
    await cluster.heal_network()
    for node_id, node in cluster.nodes.items():
        if node.clients.is_frozen:
            await cluster.thaw(node_id)
        elif not node.is_running:
            await cluster.start_node(node_id)


@covers(*(f"EmbeddedCluster.{name}" for name in CALLS), "EmbeddedCluster.delete_topic", "EmbeddedCluster.start_node")
@covers("EmbeddedCluster.heal_network", "EmbeddedCluster.thaw")
@pytest.mark.parametrize("name", CALLS)
async def test_a_cluster_works_after_a_call_that_was_cancelled(name: str) -> None:
    async with EmbeddedCluster(brokers=2) as cluster:
        await cluster.create_topic("orders", 1, 2)
        for turns in turns_to_try():
            is_over = await cancel_after(turns, CALLS[name](cluster))
            for repairing in range(3):
                await cancel_after(repairing, repair(cluster, name))
            await repair(cluster, name)
            if is_over:
                break
        await works(cluster)
        for topic in [topic for topic in cluster.controller.topics if topic.startswith("topic-")]:
            await cancel_after(0, cluster.delete_topic(topic))
            await cluster.delete_topic(topic)
        assert [topic for topic in cluster.controller.topics if topic.startswith("topic-")] == []


@pytest.mark.parametrize("is_on_disk", [False, True], ids=["memory", "disk"])
@covers("EmbeddedCluster.start", "EmbeddedCluster.close", "EmbeddedCluster.__aenter__", "EmbeddedCluster.__aexit__")
@pytest.mark.parametrize("call", ["start", "close"])
async def test_a_cancelled_start_or_close_leaves_no_task_and_no_port(
    call: str, is_on_disk: bool, tmp_path: Path
) -> None:
    before = asyncio.all_tasks()
    ports = [free_port(), free_port()]
    settings: dict[str, Any] = {"data_dir": tmp_path} if is_on_disk else {}
    for turns in turns_to_try():
        cluster = EmbeddedCluster(brokers=2, ports=ports, **settings)
        if call == "close":
            await cluster.start()
        is_over = await cancel_after(turns, getattr(cluster, call)())
        await cluster.close()
        assert asyncio.all_tasks() <= before
        if is_over:
            return


def test_every_public_coroutine_is_covered_here() -> None:
    assert public_coroutines(EmbeddedCluster) <= covers
    assert public_coroutines(EmbeddedKafkaServer) == set(), "its calls block"
