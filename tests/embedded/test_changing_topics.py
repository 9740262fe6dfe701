"""A few seconds in real time: topics are deleted, grown and created again under producers that name partitions.

Virtual time cannot show everything: the clock of the machine moves within an iteration of the loop.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random

import pytest

from aiokafka_lite import Consumer, Delivery, EmbeddedCluster, KafkaError, Producer
from aiokafka_lite.aio.service import ServiceState
from tests.embedded.producer.producers_and_logs import values_of

SECONDS = 1.5
TOPIC = "orders"


async def _churn(cluster: EmbeddedCluster, random: Random, until: float) -> float:
    """Delete, grow and create the topic again. Returns the time of the last deletion."""
    loop = asyncio.get_running_loop()
    deleted_at = 0.0
    while loop.time() < until - 0.5:
        await asyncio.sleep(random.uniform(0.05, 0.3))
        topic = cluster.controller.topics[TOPIC]
        if random.random() < 0.5 and len(topic.partitions) < 4:
            cluster.controller.create_partitions(TOPIC, len(topic.partitions) + 1, None)
        else:
            deleted_at = loop.time()
            await cluster.delete_topic(TOPIC)
            await asyncio.sleep(random.choice((0.0, 0.1)))
            await cluster.create_topic(TOPIC, random.randrange(1, 4))
    return deleted_at


@pytest.mark.thorough
async def test_topics_that_come_and_go_end_no_client_and_lose_no_record_but_their_own() -> None:
    random = Random(1)
    async with EmbeddedCluster(brokers=1, seed=1, auto_create_topics=False) as cluster:
        await cluster.create_topic(TOPIC, 3)
        await cluster.create_topic("audit", 2)
        loop = asyncio.get_running_loop()
        end = loop.time() + SECONDS
        sends: list[tuple[float, int, bytes, Delivery]] = []
        async with (
            Producer(cluster.bootstrap_servers, max_block=0.3, delivery_timeout=2.0, request_timeout=1.0) as producer,
            Consumer(
                cluster.bootstrap_servers, topics=[TOPIC, "audit"], group_id="billing", metadata_max_age=0.5
            ) as consumer,
        ):
            churning = asyncio.create_task(_churn(cluster, random, end))
            seen: set[bytes] = set()
            written = 0
            while loop.time() < end:
                for number in (*range(4), *[7] * 30):
                    value = b"%06d" % len(sends)
                    sends.append((loop.time(), number, value, producer.send_nowait(TOPIC, value, partition=number)))
                await producer.send("audit", b"%06d" % written, partition=0)
                written += 1
                seen.update(record.value for record in await consumer.poll(timeout=0.0))
                await asyncio.sleep(0.002)
            deleted_at = await churning
            async with asyncio.timeout(5.0):
                outcomes = await asyncio.gather(*(send[3] for send in sends), return_exceptions=True)
            assert producer.state is ServiceState.RUNNING
            assert all(
                not isinstance(outcome, BaseException) or isinstance(outcome, KafkaError) for outcome in outcomes
            )
            partitions = range(len(cluster.controller.topics[TOPIC].partitions))
            logs = {number: values_of(cluster, TOPIC, number) for number in partitions}
            counts = Counter(value for values in logs.values() for value in values)
            assert max(counts.values(), default=1) == 1
            for (sent_at, number, value, _), outcome in zip(sends, outcomes, strict=True):
                if not isinstance(outcome, BaseException) and sent_at > deleted_at:
                    assert value in logs[number], f"{value!r} was acknowledged and is lost"
            assert all(values == sorted(values) for values in logs.values())  # type: ignore[type-var]
            assert values_of(cluster, "audit", 0) == [b"%06d" % number for number in range(written)]
            last = [b"last-%d" % number for number in partitions]
            await asyncio.gather(*(producer.send(TOPIC, value, partition=number) for number, value in enumerate(last)))
            async with asyncio.timeout(20.0):
                while not seen.issuperset(last):
                    seen.update(record.value for record in await consumer.poll(timeout=0.5))
