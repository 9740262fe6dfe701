"""Each background task of each client ends from outside. All promises of the client are settled, and it closes in time.

A task that ends is the same to the rest of the client whatever the reason: an error that one record causes, a bug, or a
cancellation by code of the user. Requests are held at the brokers, so that calls of every kind wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import pytest

from aiokafka_lite import (
    Admin,
    Consumer,
    ConsumerGroup,
    EmbeddedCluster,
    ExactlyOnce,
    KafkaError,
    OffsetAndMetadata,
    Producer,
    ShareConsumer,
    TopicPartition,
    Workers,
)
from aiokafka_lite.admin import ConfigResource, ConfigResourceType, OffsetSpec
from aiokafka_lite.aio.service import ServiceState
from aiokafka_lite.cluster.client import Client
from aiokafka_lite.cluster.otlp import MetricsReport
from aiokafka_lite.embedded import ClusterConfig
from aiokafka_lite.net.connector import Connector
from aiokafka_lite.producer import Delivery
from aiokafka_lite.protocol.messages import (
    EndTxnRequest,
    JoinGroupRequest,
    ListOffsetsRequest,
    OffsetCommitRequest,
    ProduceRequest,
    ShareAcknowledgeRequest,
    TxnOffsetCommitRequest,
)
from aiokafka_lite.settings.client import ClientConfig
from aiokafka_lite.types import GroupMetadata, Record
from tests.virtual import in_virtual_time
from tests.waiting import until

PARTITION = TopicPartition("orders", 0)
SETTLED_WITHIN = 5.0
"""Seconds from the end of a task until every promise is settled, and for ``close``."""


@dataclass(slots=True)
class Scene:
    """A client with calls that wait. ``promises`` are those of its deliveries."""

    close: Callable[[], Awaitable[object]]
    calls: dict[str, Coroutine[Any, Any, object]]
    promises: list[Delivery] = field(default_factory=list)


def settings(cluster: EmbeddedCluster) -> dict[str, Any]:
    return {"bootstrap_servers": cluster.bootstrap_servers, "connector": cluster.connector}


async def idempotent_producer(cluster: EmbeddedCluster) -> Scene:
    producer = Producer(**settings(cluster), buffer_memory=9_000, max_request_size=4_000)
    await producer.start()
    await producer.send("orders", b"v", partition=0)
    cluster.on(ProduceRequest, times=None).drop()
    promises = [producer.send_nowait("orders", bytes(1_000), partition=number % 2) for number in range(3)]
    promises.append(producer.send_nowait("missing", b"v"))
    promises.append(producer.send_nowait("orders", b"v", partition=7))
    return Scene(
        producer.close,
        {
            "send": producer.send("orders", bytes(3_500)),
            "put": producer.put("orders", bytes(3_500)),
            "send_many": producer.send_many("orders", [bytes(3_500)] * 3),
            "flush": producer.flush(),
            "drain": producer.drain(),
            "partitions_for": producer.partitions_for("missing"),
        },
        promises,
    )


async def transactional_producer(cluster: EmbeddedCluster) -> Scene:
    producer = Producer(**settings(cluster), transactional_id="orders")
    await producer.start()
    await producer.begin_transaction()
    await producer.send("orders", b"v")
    cluster.on(ProduceRequest, times=None).drop()
    cluster.on(TxnOffsetCommitRequest, times=None).drop()
    offsets = {PARTITION: OffsetAndMetadata(1)}
    return Scene(
        producer.close,
        {"send_offsets": producer.send_offsets_to_transaction(offsets, GroupMetadata("billing"))},
        [producer.send_nowait("orders", b"v", partition=number % 2) for number in range(3)],
    )


async def committing_producer(cluster: EmbeddedCluster) -> Scene:
    producer = Producer(**settings(cluster), transactional_id="orders")
    await producer.start()
    await producer.begin_transaction()
    promise = producer.send_nowait("orders", b"v", partition=0)
    cluster.on(EndTxnRequest, times=None).drop()
    return Scene(producer.close, {"commit": producer.commit_transaction()}, [promise])


async def _member(cluster: EmbeddedCluster, protocol: str) -> Scene:
    consumer = Consumer(
        **settings(cluster), topics=["orders"], group_id="billing", group_protocol=protocol, auto_commit_interval=0.5
    )
    await consumer.start()
    await until(lambda: len(consumer.assignment) == 2)
    cluster.on(OffsetCommitRequest, times=None).drop()
    cluster.on(ListOffsetsRequest, times=None).drop()
    return Scene(
        consumer.close,
        {
            "poll": consumer.poll(timeout=100.0),
            "getone": anext(consumer),  # type: ignore[dict-item]
            "commit": consumer.commit({PARTITION: OffsetAndMetadata(0)}),
            "end_offsets": consumer.end_offsets([PARTITION]),
        },
    )


async def classic_member(cluster: EmbeddedCluster) -> Scene:
    return await _member(cluster, "classic")


async def member(cluster: EmbeddedCluster) -> Scene:
    return await _member(cluster, "consumer")


async def joining_member(cluster: EmbeddedCluster) -> Scene:
    cluster.on(JoinGroupRequest, times=None).delay(60.0)
    consumer = Consumer(**settings(cluster), topics=["orders"], group_id="billing")
    await consumer.start()
    return Scene(consumer.close, {"poll": consumer.poll(timeout=100.0)})


async def assigned_consumer(cluster: EmbeddedCluster) -> Scene:
    consumer = Consumer(**settings(cluster), group_id="billing")
    await consumer.start()
    consumer.assign([PARTITION])
    await consumer.poll(timeout=1.0)
    cluster.on(OffsetCommitRequest, times=None).drop()
    cluster.on(ListOffsetsRequest, times=None).drop()
    return Scene(
        consumer.close,
        {
            "poll": consumer.poll(timeout=100.0),
            "commit": consumer.commit({PARTITION: OffsetAndMetadata(0)}),
            "seek_to_end": consumer.seek_to_end(),
        },
    )


async def share_member(cluster: EmbeddedCluster) -> Scene:
    async with Producer(**settings(cluster)) as producer:
        consumer = ShareConsumer(**settings(cluster), topics=["orders"], group_id="share")
        await consumer.start()
        await asyncio.sleep(8.0)  # the group begins at the end of the log
        await producer.send("orders", b"v", partition=0)
    records = await consumer.poll(timeout=30.0)
    cluster.on(ShareAcknowledgeRequest, times=None).drop()
    for record in records:
        consumer.accept(record)
    return Scene(consumer.close, {"commit": consumer.commit(), "poll": consumer.poll(timeout=100.0)})


async def group_with_workers(cluster: EmbeddedCluster) -> Scene:
    group = ConsumerGroup(**settings(cluster), group_id="billing")
    began = asyncio.Event()

    async def work(record: Record[Any, Any]) -> None:
        began.set()
        await asyncio.sleep(0.5)

    consuming = group.consume(["orders"], Workers(work, concurrency=4))
    async with Producer(**settings(cluster)) as producer:
        for number in range(8):
            await producer.send("orders", b"v", partition=number % 2)
    return Scene(group.close, {"consume": consuming})


async def exactly_once_worker(cluster: EmbeddedCluster) -> Scene:
    producer = Producer(**settings(cluster), transactional_id="job")
    consumer = Consumer(**settings(cluster), topics=["orders"], group_id="billing", auto_commit=False)
    job = ExactlyOnce(consumer, producer)

    async def run() -> None:
        async for records in job:
            for record in records:
                await producer.send("orders", record.value, partition=1)

    async def close() -> None:
        await asyncio.gather(consumer.close(), producer.close(), return_exceptions=True)

    await consumer.start()
    await producer.start()
    async with Producer(**settings(cluster)) as writer:
        await writer.send("orders", b"v", partition=0)
    await until(lambda: len(consumer.assignment) == 2)
    cluster.on(EndTxnRequest, times=None).drop()
    return Scene(close, {"batches": run()})


async def admin(cluster: EmbeddedCluster) -> Scene:
    client = Admin(**settings(cluster))
    await client.start()
    await client.topics.list()
    cluster.on(ListOffsetsRequest, times=None).drop()
    return Scene(client.close, {"offsets": client.offsets.list({PARTITION: OffsetSpec.LATEST})})


SCENES = (
    idempotent_producer,
    transactional_producer,
    committing_producer,
    classic_member,
    member,
    joining_member,
    assigned_consumer,
    share_member,
    group_with_workers,
    exactly_once_worker,
    admin,
)


async def _tasks_of_the_client(
    cluster: EmbeddedCluster, scene: Callable[[EmbeddedCluster], Awaitable[Scene]]
) -> tuple[Scene, dict[str, asyncio.Task[object]], dict[str, asyncio.Task[Any]]]:
    """Return the scene, its calls as tasks, and the client's own tasks by name, with a number if a name repeats."""
    before = asyncio.all_tasks()
    built = await scene(cluster)
    calls = {name: asyncio.ensure_future(call) for name, call in built.calls.items()}
    await asyncio.sleep(0.7)
    own: dict[str, asyncio.Task[Any]] = {}
    tasks = asyncio.all_tasks() - before - set(calls.values())
    for task in sorted(tasks, key=lambda item: item.get_name()):
        name = task.get_name()
        if not name.startswith(("node ", "Task-")):
            number = sum(other.startswith(name) for other in own)
            own[f"{name} #{number}" if number else name] = task
    return built, calls, own


def _cluster() -> EmbeddedCluster:
    configs = {
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
        "share.coordinator.state.topic.num.partitions": "1",
    }
    config = ClusterConfig(receive_client_metrics=lambda _: None)
    return EmbeddedCluster(brokers=2, tcp=False, seed=1, configs=configs, config=config, auto_create_topics=False)


@pytest.mark.thorough
@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
@in_virtual_time
async def test_whichever_task_ends_all_promises_are_settled_and_close_returns(
    scene: Callable[[EmbeddedCluster], Awaitable[Scene]], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "aiokafka_lite")
    names: list[str] = []
    position = 0
    while not names or position < len(names):
        async with _cluster() as cluster:
            await cluster.create_topic("orders", 2)
            built, calls, own = await _tasks_of_the_client(cluster, scene)
            names = names or list(own)
            assert names, "the client has tasks"
            name = names[position]
            assert name in own, "with the same seed, the client has the same tasks"
            await _kill(cluster, built, calls, own[name], name)
        position += 1


async def _kill(
    cluster: EmbeddedCluster,
    built: Scene,
    calls: dict[str, asyncio.Task[object]],
    victim: asyncio.Task[Any],
    name: str,
) -> None:
    victim.cancel()
    waiting = [*calls.values(), *(promise.future() for promise in built.promises)]
    _, open_calls = await asyncio.wait(waiting, timeout=SETTLED_WITHIN)
    if open_calls:  # then the client must have survived: it answers when the brokers answer
        cluster.faults.clear()
        await asyncio.wait(waiting, timeout=150.0)
    hanging = [call for call, task in calls.items() if not task.done()]
    assert not hanging, f"{name!r} ended, and these calls wait for ever: {hanging}"
    assert all(promise.done() for promise in built.promises), f"{name!r} ended, and a delivery is never settled"
    for call, task in calls.items():
        error = None if task.cancelled() else task.exception()
        assert error is None or isinstance(error, KafkaError), f"{name!r} ended, and {call} raised {error!r}"
    for promise in waiting[len(calls) :]:
        promise.exception()
    await _close(built, name)


async def _close(built: Scene, name: str) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    error = await _wait_closed(built)
    assert "did not end" not in str(error), f"{name!r} ended: {error}"
    assert loop.time() - began <= SETTLED_WITHIN + 0.01, f"{name!r} ended, and close() took too long"
    assert all(promise.done() for promise in built.promises), (
        f"{name!r} ended, and a delivery is not settled by close()"
    )


async def _wait_closed(built: Scene) -> KafkaError | None:
    try:
        await built.close()
    except KafkaError as error:
        return error
    return None


class TunnelError(Exception):
    """An error that a connector of the user raises, as the packages of tunnels and proxies do."""


class Tunnel:
    """A connector that fails while ``is_down``."""

    def __init__(self, inner: Connector) -> None:
        self.is_down = False
        self._inner = inner

    async def connect(self, host: str, port: int, protocol_factory: Callable[[], Any]) -> Any:
        if self.is_down:
            raise TunnelError("the tunnel is down")
        return await self._inner.connect(host, port, protocol_factory)


@in_virtual_time
async def test_an_exception_of_a_connector_ends_no_client() -> None:
    async with _cluster() as cluster:
        await cluster.create_topic("orders", 2)
        assert cluster.connector is not None
        tunnel = Tunnel(cluster.connector)
        shared: dict[str, Any] = {**settings(cluster), "connector": tunnel}
        async with (
            Producer(**shared) as producer,
            Consumer(**shared, topics=["orders"], group_id="billing") as consumer,
        ):
            await producer.send("orders", b"0", partition=0)
            assert await consumer.poll(timeout=20.0)
            tunnel.is_down = True
            await cluster.restart(1)
            await cluster.restart(2)
            waiting = producer.send_nowait("orders", b"1", partition=0)
            await asyncio.sleep(20.0)
            assert not waiting.done()
            tunnel.is_down = False
            assert (await waiting).offset == 1
            assert [record.value for record in await consumer.poll(timeout=60.0)] == [b"1"]


@in_virtual_time
async def test_metrics_that_cannot_be_made_end_no_client(caplog: pytest.LogCaptureFixture) -> None:
    def report() -> MetricsReport:
        raise ZeroDivisionError

    async with _cluster() as cluster:
        await cluster.create_topic("orders", 2)
        async with Admin(**settings(cluster)) as admin:
            resource = ConfigResource(ConfigResourceType.CLIENT_METRICS, "all")
            await admin.configs.alter({resource: {"metrics": "*", "interval.ms": "1000"}})
        config = ClientConfig(bootstrap_servers=cluster.bootstrap_servers)
        async with Client(config, connector=cluster.connector, report_metrics=report) as client:
            await asyncio.sleep(600.0)
            assert client.state is ServiceState.RUNNING
    assert sum("no more metrics are pushed" in record.getMessage() for record in caplog.records) == 1
