"""Well-formed answers with wrong values, while a producer, a consumer and a group work.

The promises for every alteration: users see only KafkaErrors, requests are not repeated at full speed, and calls end by
their deadline. Correct answers repair the effects of wrong ones.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import pytest

from aiokafka_lite import Consumer, Producer, TopicPartition
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import KafkaError
from aiokafka_lite.protocol.messages import (
    ApiVersionsRequest,
    JoinGroupResponseMember,
    MetadataResponse,
    MetadataResponseBroker,
)
from aiokafka_lite.testing.virtual_time import run
from tests.embedded.cluster.alterations import Alteration, alterations
from tests.embedded.cluster.apis import APIS
from tests.embedded.cluster.simulation import memory_cluster, now

WRONG_FOR = 12.0
"""Seconds of wrong answers."""
HEALED_WITHIN = 90.0
"""Seconds of right answers after which everything works: session and delivery timeouts and a rebalance fit in."""
MOST_A_SECOND = 40
"""Requests of one API a second, on average, from the three clients together."""

GROUP: dict[str, Any] = {"session_timeout": 6, "heartbeat_interval": 1, "max_poll_interval": 20}

UNREADABLE = b"\xff" * 20

LEGAL = {
    # An empty assignment is right for a member of a group with more members than partitions: it waits.
    "SyncGroupResponse.assignment=b''",
    # A member that is not the leader sends no assignments, so the group is stable and its members own nothing.
    "JoinGroupResponse.leader=''",
    "JoinGroupResponse.leader='another'",
    "JoinGroupResponse.members=[]",
    # The leader assigns everything to another member, or nothing to a member whose subscription it cannot read.
    "JoinGroupResponseMember.member_id=''",
    "JoinGroupResponseMember.member_id='another'",
    "JoinGroupResponseMember.metadata=b''",
    str(Alteration(JoinGroupResponseMember, "metadata", UNREADABLE)),
}
"""Values whose effects last until the next rebalance, because each value is correct for some member of some group."""


class Scene:
    """A producer, a consumer and a member of a group, which work in turns of a second and report what they raise."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.cluster = cluster
        self.wrong: list[str] = []
        self.generation = 0  # clients of an older one are closed, and new ones start
        self.progress: Counter[str] = Counter()
        self.settings: dict[str, Any] = {
            "bootstrap_servers": cluster.bootstrap_servers,
            "connector": cluster.connector,
            "api_timeout": 8,
            "request_timeout": 4,
            "metadata_max_age": 3,
        }

    async def call(self, what: str, call: Callable[[], Awaitable[object]], bound: float) -> None:
        began = now()
        try:
            async with asyncio.timeout(bound):
                await call()
            self.progress[what] += 1
        except KafkaError:
            pass
        except TimeoutError:
            self.wrong.append(f"{what} took longer than {bound:g} s")
        except Exception as error:  # noqa: BLE001 - what this test is about
            self.wrong.append(f"{what} raised {error!r}")
        await asyncio.sleep(max(0.0, began + 1 - now()))

    async def work(self, make: Callable[[], Any], what: str, call: Callable[[Any], Awaitable[object]]) -> None:
        """Work with a client. After a failure, work with a new one, like a service that is restarted."""
        while True:
            client, generation = make(), self.generation
            try:
                await self.call(f"{what}: start", client.start, 12)
                while client.state.name == "RUNNING" and generation == self.generation:
                    await self.call(what, lambda client=client: call(client), 14)
            finally:
                await self.call(f"{what}: close", client.close, 10)

    def start(self, group: asyncio.TaskGroup) -> list[asyncio.Task[None]]:
        def consumer() -> Any:
            consumer = Consumer(**self.settings)
            consumer.assign([TopicPartition("t", 0)])
            return consumer

        async def read(client: Any) -> None:
            records = await client.poll(timeout=5)
            if not records:
                raise KafkaError("nothing")

        async def read_and_commit(client: Any) -> None:
            await read(client)
            (await client.commit(timeout=5)).raise_for_refused()

        produce = self.work(
            lambda: Producer(**self.settings, delivery_timeout=8, max_block=8),
            "send",
            lambda client: client.send("t", b"x", partition=0),
        )
        fetch = self.work(consumer, "read", read)
        member = self.work(
            lambda: Consumer(topics=["t"], group_id="g", **GROUP, **self.settings),
            "member",
            read_and_commit,
        )
        return [group.create_task(function) for function in (produce, fetch, member)]


async def _heals(api: Any, alteration: Alteration) -> list[str]:
    async with memory_cluster(1) as cluster:
        await cluster.create_topic("t", partitions=1)
        scene = Scene(cluster)
        async with asyncio.TaskGroup() as group:
            tasks = scene.start(group)
            while not (scene.progress["send"] and scene.progress["read"] and scene.progress["member"]):
                await asyncio.sleep(1)
                assert now() < 60
            fault = cluster.on(api, times=None).alter(alteration)
            cluster.history.clear()
            await asyncio.sleep(WRONG_FOR / 3)
            scene.generation += 1
            await asyncio.sleep(WRONG_FOR * 2 / 3)
            sent = Counter(type(exchange.request).__name__ for exchange in cluster.history)
            fault.remove()
            if api is ApiVersionsRequest:
                scene.generation += 1  # the versions count as long as their connection
            scene.progress.clear()
            until = now() + HEALED_WITHIN
            while now() < until and len({"send", "read", "member"} & scene.progress.keys()) < 3:
                await asyncio.sleep(1)
            for name in ("send", "read", "member"):
                if not scene.progress[name]:
                    scene.wrong.append(f"{name} has not healed after {HEALED_WITHIN:g} s")
            for task in tasks:
                task.cancel()
    for name, count in sent.items():
        if count > MOST_A_SECOND * WRONG_FOR:
            scene.wrong.append(f"{count / WRONG_FOR:.0f} {name} a second")
    return [f"{alteration}: {fromkey}" for fromkey in dict.fromkeys(scene.wrong)]


def _failures(api: Any, chosen: Iterable[Alteration]) -> str:
    return "\n".join(
        line for alteration in chosen if str(alteration) not in LEGAL for line in run(_heals(api, alteration))
    )


def test_an_alteration_changes_the_structs_of_lists() -> None:
    broker = MetadataResponseBroker(node_id=1, host="a", port=9092, rack=None)
    answer = MetadataResponse(brokers=[broker], cluster_id="c", controller_id=1, topics=[])
    assert [broker.port for broker in Alteration(MetadataResponseBroker, "port", -1)(answer).brokers] == [-1]


@pytest.mark.thorough
@pytest.mark.parametrize("api", [ApiVersionsRequest, *APIS], ids=lambda api: api.__name__)
def test_some_wrong_values_cost_kafka_errors_and_right_ones_heal(api: Any) -> None:
    all_of_them = list(alterations(api))
    assert not _failures(api, random.Random(1).sample(all_of_them, min(3, len(all_of_them))))


@pytest.mark.long
@pytest.mark.parametrize("api", [ApiVersionsRequest, *APIS], ids=lambda api: api.__name__)
def test_wrong_values_cost_kafka_errors_and_right_ones_heal(api: Any) -> None:
    assert not _failures(api, alterations(api))
