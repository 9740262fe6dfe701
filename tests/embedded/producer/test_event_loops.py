"""Records to a broker and back, and a schema registry, over real sockets: on asyncio's own event loop and on uvloop."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable

import pytest

from aiokafka_lite import Consumer, Producer
from aiokafka_lite.embedded import EmbeddedCluster, EmbeddedSchemaRegistry
from aiokafka_lite.errors import IllegalStateError
from aiokafka_lite.schemas import Schema, SchemaRegistryClient


def factory(name: str) -> Callable[[], asyncio.AbstractEventLoop]:
    """Makes event loops of this module. Skips the test if it is not installed."""
    if name == "uvloop":
        pytest.importorskip("uvloop")
    make: Callable[[], asyncio.AbstractEventLoop] = importlib.import_module(name).new_event_loop
    return make


async def round_trip() -> None:
    async with EmbeddedCluster(brokers=2, tcp=True) as cluster:
        await cluster.create_topic("t", 3)
        values = [b"%d" % number for number in range(1_000)]
        large = bytes(900_000)
        async with Producer(cluster.bootstrap_servers, compression="lz4") as producer:
            for number in range(5):
                assert (await producer.send("t", b"lone", partition=0)).offset == number
            await asyncio.gather(*(producer.send("t", value, key=value) for value in values))
            results = await producer.send_many("t", values, keys=values)
            assert not [result for result in results if isinstance(result, Exception)]
            await producer.send("t", large)
        async with Consumer(cluster.bootstrap_servers, topics=["t"]) as consumer:
            values_read: list[bytes | None] = []
            while len(values_read) < 2_006:
                values_read += [record.value for record in await consumer.poll(timeout=30.0)]
        assert sorted(values_read, key=lambda value: value or b"") == sorted([*values, *values, *[b"lone"] * 5, large])


@pytest.mark.parametrize("name", ["asyncio", "uvloop"])
def test_records_go_to_a_broker_and_back_on_each_event_loop(name: str) -> None:
    with asyncio.Runner(loop_factory=factory(name)) as runner:
        runner.run(asyncio.wait_for(round_trip(), 60.0))


async def registration() -> None:
    async with EmbeddedSchemaRegistry() as server, SchemaRegistryClient(server.url) as registry:
        registered = await registry.register("orders-value", Schema('"string"'))
        assert registered.schema_id == 1


@pytest.mark.parametrize("name", ["asyncio", "uvloop"])
def test_a_schema_registry_answers_on_each_event_loop(name: str) -> None:
    with asyncio.Runner(loop_factory=factory(name)) as runner:
        runner.run(asyncio.wait_for(registration(), 60.0))


@pytest.mark.parametrize("name", ["asyncio", "uvloop"])
def test_a_producer_is_refused_in_another_event_loop_of_its_thread(name: str) -> None:
    with asyncio.Runner(loop_factory=factory(name)) as first, asyncio.Runner(loop_factory=factory(name)) as second:
        cluster = EmbeddedCluster(brokers=1, tcp=True)
        first.run(cluster.start())
        producer = Producer(cluster.bootstrap_servers)
        first.run(producer.start())

        async def send() -> None:
            producer.send_nowait("t", b"value")

        with pytest.raises(IllegalStateError, match="belongs to another event loop"):
            second.run(send())
        first.run(send())
        first.run(producer.close())
        first.run(cluster.close())
