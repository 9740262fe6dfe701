"""Random schedules of faults over a whole cluster, by seed, and a checker of the guarantees.

``PRODUCER_SEEDS=1000-3000`` runs other seeds, ``PRODUCER_SEEDS=17`` repeats one seed.
"""

from __future__ import annotations

import asyncio
import os
from random import Random

import pytest

from aiokafka_lite.aio.virtual_time import run
from aiokafka_lite.embedded import ClusterConfig, EmbeddedCluster
from aiokafka_lite.errors import BufferFull, ErrorCode, KafkaError, KafkaTimeout
from aiokafka_lite.producer import Delivery, Producer
from aiokafka_lite.protocol.messages import ProduceRequest
from tests.embedded.producer.producers_and_logs import producer_of, values_of

PARTITIONS = 4
CODES = [
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
]
"""Errors that a correct broker may answer for any batch. It refuses no sequence or size of a batch that it wrote."""


def seeds() -> range:
    first, _, last = os.environ.get("PRODUCER_SEEDS", "0-60").partition("-")
    return range(int(first), int(last) if last else int(first) + 1)


class Nemesis:
    """Causes one fault after another, and repairs all of them at the end."""

    def __init__(self, cluster: EmbeddedCluster, random: Random) -> None:
        self._cluster = cluster
        self._random = random
        self._down: set[int] = set()
        self._frozen: set[int] = set()

    async def run(self, steps: int) -> None:
        for _ in range(steps):
            await asyncio.sleep(self._random.choice([0.001, 0.05, 0.5, 3.0]))
            faults = [self._request, self._request, self._leader, self._kill, self._freeze, self._heal]
            await self._random.choice(faults)()
        await self._heal()

    async def _request(self) -> None:
        fault = self._cluster.on(ProduceRequest, nth=self._random.randrange(1, 4), times=self._random.randrange(1, 4))
        kind = self._random.randrange(7)
        if kind == 0:
            fault.disconnect()
        elif kind == 1:
            fault.apply_then_disconnect()
        elif kind == 2:
            fault.truncate(self._random.randrange(40))
        elif kind == 3:
            fault.delay(self._random.choice([0.1, 1.0, 4.0]))
        elif kind == 4:
            fault.drop()
        else:
            fault.fail(self._random.choice(CODES))

    async def _leader(self) -> None:
        await self._cluster.move_leader("t", self._random.randrange(PARTITIONS))

    async def _kill(self) -> None:
        if not self._down and not self._frozen:
            node = self._random.choice([1, 2, 3])
            self._down.add(node)
            await self._cluster.kill(node, noticed_after=self._random.choice([0.0, 1.0]))

    async def _freeze(self) -> None:
        if not self._down and not self._frozen:
            node = self._random.choice([1, 2, 3])
            self._frozen.add(node)
            await self._cluster.freeze(node)

    async def _heal(self) -> None:
        while self._down:
            await self._cluster.start_node(self._down.pop())
        while self._frozen:
            await self._cluster.thaw(self._frozen.pop())
        await self._cluster.until_in_sync("t", 60.0)


async def write(producer: Producer, random: Random, count: int) -> list[list[tuple[bytes, Delivery]]]:
    """Send unique, increasing values to each partition, at changing speed."""
    sent: list[list[tuple[bytes, Delivery]]] = [[] for _ in range(PARTITIONS)]
    for number in range(count):
        partition = random.randrange(PARTITIONS)
        value = b"%08d" % number
        while True:
            try:
                sent[partition].append((value, producer.send_nowait("t", value, partition=partition)))
                break
            except BufferFull:
                await producer.drain()
        if random.random() < 0.05:
            await asyncio.sleep(random.choice([0, 0.001, 0.1, 1.0]))
    return sent


async def one_schedule(seed: int) -> None:
    random = Random(seed)
    delivery_timeout = random.choice([4.0, 15.0, 120.0])
    async with EmbeddedCluster(
        brokers=3, tcp=False, seed=seed, config=ClusterConfig(broker_session_timeout=3.0)
    ) as cluster:
        await cluster.create_topic("t", PARTITIONS, 3, configs={"min.insync.replicas": "2"})
        async with producer_of(
            cluster,
            batch_size=random.choice([100, 300, 5_000]),
            linger=random.choice([0.0, 0.0, 0.02]),
            request_timeout=2.0,
            delivery_timeout=delivery_timeout,
            buffer_memory=20_000,
            max_request_size=4_000,
            max_in_flight_requests_per_connection=random.choice([1, 2, 5]),
            compression=random.choice(["none", "lz4"]),
            random=random.random,
        ) as producer:
            await producer.send("t", b"first", partition=0)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(Nemesis(cluster, random).run(random.randrange(3, 15)))
                writing = tasks.create_task(write(producer, random, 600))
            await producer.flush(delivery_timeout + 1.0)
            cluster.faults.clear()
            for partition in range(PARTITIONS):
                await producer.send("t", b"last", partition=partition, timeout=5.0)
            assert producer.metrics().buffered_bytes == 0
        await cluster.until_in_sync("t", 60.0)
        for partition, sent in enumerate(writing.result()):
            check([value for value in values_of(cluster, "t", partition) if value not in (b"first", b"last")], sent)


def check(log: list[bytes | None], sent: list[tuple[bytes, Delivery]]) -> None:
    """Check that acknowledged values are in the log, none twice, all in order, and that errors are typed."""
    assert len(log) == len(set(log)), "written twice"
    assert log == sorted(log), "reordered"  # type: ignore[type-var]
    assert set(log) <= {value for value, _ in sent}
    logged = set(log)
    for value, delivery in sent:
        error = delivery.exception()
        if error is None:
            assert value in logged, f"{value!r} was acknowledged and is lost"
        else:
            assert isinstance(error, KafkaTimeout | KafkaError)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", seeds())
def test_no_acknowledged_record_is_lost_doubled_or_reordered(seed: int) -> None:
    run(one_schedule(seed), seed=seed)
