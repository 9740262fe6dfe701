"""Calls that wait: ``put`` for room, deliveries in asyncio's own calls, and the timeout of each call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from aiokafka_lite.cluster.metadata import ClusterView
from aiokafka_lite.embedded import EmbeddedCluster
from aiokafka_lite.errors import ConfigurationError, KafkaTimeout, RecordTooLarge, UnknownTopic
from aiokafka_lite.producer import Producer, RoundRobinPartitioner
from aiokafka_lite.protocol.messages import ProduceRequest
from tests.embedded.producer.producers_and_logs import producer_of, values_of


async def test_put_waits_for_room_and_returns_the_delivery(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster, buffer_memory=4_000) as producer:
        with cluster.on(ProduceRequest, times=None).delay(0.1):
            deliveries = [await producer.put("t", b"%04d" % number + bytes(900)) for number in range(20)]
            assert not deliveries[-1].done()
        assert [(await delivery).offset for delivery in deliveries] == list(range(20))
        assert producer.metrics().buffered_bytes == 0


async def test_put_raises_errors_of_the_record_at_once_and_later_errors_by_the_delivery(
    cluster: EmbeddedCluster,
) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster, max_block=1.0) as producer:
        with pytest.raises(RecordTooLarge):
            await producer.put("t", bytes(2_000_000))
        delivery = await producer.put("missing", b"v")
        with pytest.raises(UnknownTopic):
            await delivery


async def test_put_serializes_with_async_serializers_in_the_order_of_calls(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)

    async def slow_first(value: bytes) -> bytes:
        await asyncio.sleep(1.0 if value == b"0" else 0.0)
        return value

    async with producer_of(cluster, value_serializer=slow_first) as producer:
        deliveries = await asyncio.gather(*(producer.put("t", b"%d" % number) for number in range(3)))
        assert [(await delivery).offset for delivery in deliveries] == [0, 1, 2]
    assert values_of(cluster, "t") == [b"0", b"1", b"2"]


async def test_a_cancelled_put_holds_no_memory_and_sends_nothing(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster, buffer_memory=2_000) as producer:
        await producer.partitions_for("t")
        with cluster.on(ProduceRequest, times=1).delay(5.0):
            first = await producer.put("t", bytes(1_500))
            waiting = asyncio.create_task(producer.put("t", b"cancelled" + bytes(1_500)))
            await asyncio.sleep(1.0)
            waiting.cancel()
            await asyncio.wait([waiting])
            await first
        assert producer.metrics().buffered_bytes == 0
    assert values_of(cluster, "t") == [bytes(1_500)]


CALLS: dict[str, Callable[[Producer], Awaitable[object]]] = {
    "send": lambda producer: producer.send("t", bytes(900), timeout=1.0),
    "put": lambda producer: producer.put("t", bytes(900), timeout=1.0),
    "send_many": lambda producer: producer.send_many("t", [b"v"], timeout=1.0),
    "drain": lambda producer: producer.drain(timeout=1.0),
    "flush": lambda producer: producer.flush(timeout=1.0),
    "partitions_for": lambda producer: producer.partitions_for("missing", timeout=1.0),
}


@pytest.mark.parametrize("name", CALLS)
async def test_every_waiting_call_has_a_timeout(cluster: EmbeddedCluster, name: str) -> None:
    await cluster.create_topic("t", 1)
    loop = asyncio.get_running_loop()
    async with producer_of(cluster, buffer_memory=2_000) as producer:
        await producer.partitions_for("t")
        with cluster.on(ProduceRequest, times=1).drop():
            delivery = producer.send_nowait("t", bytes(1_500))
            began = loop.time()
            with pytest.raises(UnknownTopic if name == "partitions_for" else KafkaTimeout, match=r"1 s"):
                await CALLS[name](producer)
            assert loop.time() - began == pytest.approx(1.0, abs=0.2)
        await delivery


async def test_a_table_has_a_timeout_and_its_rows_are_sent(cluster: EmbeddedCluster) -> None:
    pa: Any = pytest.importorskip("pyarrow")
    await cluster.create_topic("t", 1)
    async with producer_of(cluster) as producer:
        with cluster.on(ProduceRequest, times=1).delay(3.0), pytest.raises(KafkaTimeout, match="timeout=1 s"):
            await producer.send_arrow("t", pa.table({"value": [b"v"]}), timeout=1.0)
        with pytest.raises(ConfigurationError, match="timeout must be"):
            await producer.put_arrow("t", pa.table({"value": [b"v"]}), timeout="1")  # type: ignore[arg-type]
    assert values_of(cluster, "t") == [b"v"]


async def test_send_many_with_a_timeout_sends_the_accepted_records(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster) as producer:
        with cluster.on(ProduceRequest, times=1).delay(3.0), pytest.raises(KafkaTimeout, match="timeout=1 s"):
            await producer.send_many("t", [b"a", b"b"], timeout=1.0)
    assert values_of(cluster, "t") == [b"a", b"b"]


async def test_a_delivery_works_in_the_calls_of_asyncio(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    async with producer_of(cluster) as producer:
        first, second, third = (producer.send_nowait("t", b"v") for _ in range(3))
        assert (await asyncio.wait_for(first, 5.0)).offset == 0
        assert [metadata.offset for metadata in await asyncio.gather(first, second, third)] == [0, 1, 2]
        done, pending = await asyncio.wait([first.future(), second.future()])
        assert sorted(future.result().offset for future in done) == [0, 1]
        assert not pending
        assert (await asyncio.create_task(third.wait())).offset == 2
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(second.wait())
        assert task.result().offset == 1


# The partitioner of the user.


async def test_on_new_batch_is_called_in_a_send_and_not_in_a_task_of_the_producer(cluster: EmbeddedCluster) -> None:
    await cluster.create_topic("t", 1)
    callers: list[tuple[str, int]] = []

    class Recording(RoundRobinPartitioner):
        def on_new_batch(self, topic: str, partition: int, size: int, view: ClusterView) -> None:
            task = asyncio.current_task()
            assert task is not None
            callers.append((task.get_name(), size))

    async with producer_of(cluster, partitioner=Recording(), batch_size=300) as producer:
        await producer.partitions_for("t")
        asyncio.current_task().set_name("user")  # type: ignore[union-attr]
        for _ in range(3):
            await producer.send("t", b"v")
        await asyncio.gather(*(producer.put("t", bytes(100)) for _ in range(4)))
    assert len(callers) > 3
    assert not [name for name, _ in callers if name.startswith("Producer")]
    assert all(size > 60 for _, size in callers)


class Leave(BaseException):
    """An exception that is not an error, as of a program that is ended."""


@pytest.mark.parametrize("way", ["send_nowait", "send_many"])
async def test_on_new_batch_is_called_before_the_next_record_is_kept(cluster: EmbeddedCluster, way: str) -> None:
    await cluster.create_topic("t", 1)
    calls: list[int] = []

    class Leaving(RoundRobinPartitioner):
        def on_new_batch(self, topic: str, partition: int, size: int, view: ClusterView) -> None:
            calls.append(partition)
            if len(calls) == 1:
                raise Leave

    async with producer_of(cluster, partitioner=Leaving(), linger=0.01) as producer:

        async def send(value: bytes) -> None:
            if way == "send_many":
                await producer.send_many("t", [value], partition=0)
            else:
                await producer.send_nowait("t", value, partition=0)

        await send(b"a")
        with pytest.raises(Leave):
            await send(b"b")
        for value in (b"c", b"d"):
            await send(value)
    assert values_of(cluster, "t") == [b"a", b"c", b"d"]
    assert len(calls) == 2  # once for each sealed batch: the last one is reported with the next record


async def test_optional_methods_of_a_partitioner_are_called(cluster: EmbeddedCluster) -> None:
    loads: list[object] = []

    class WithLoad(RoundRobinPartitioner):
        def use_load(self, load: Any) -> None:
            loads.append((load.queued(1), load.is_reachable(1)))

    class Plain:
        def partition(self, topic: str, key: bytes | None, value: bytes | None, view: ClusterView) -> int:
            return 0

        def on_new_batch(self, topic: str, partition: int, size: int, view: ClusterView) -> None: ...

    await cluster.create_topic("t", 1)
    for partitioner in (WithLoad(), Plain()):
        async with producer_of(cluster, partitioner=partitioner) as producer:
            await producer.send("t", b"v")
    assert loads == [(0, True)]
