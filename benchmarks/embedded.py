"""The embedded cluster: throughput, start-up, connections, recovery, virtual time: ``python -m benchmarks embedded``.

librdkafka writes and reads records of 100 bytes on this cluster and on its own mock cluster, and on Apache Kafka if
``KAFKA_BOOTSTRAP`` names one. They take turns in each round. The client and the embedded cluster share one process.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable

import psutil
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from aiokafka_lite.aio.framed_stream import FramedStreamReader
from aiokafka_lite.aio.virtual_time import run
from aiokafka_lite.embedded import ClusterConfig, EmbeddedCluster
from aiokafka_lite.protocol.connection import ClientProtocol
from aiokafka_lite.protocol.messages import ProduceRequest, ProduceRequestPartition, ProduceRequestTopic
from aiokafka_lite.protocol.records import encode_batch

COUNT = 300_000
ROUNDS = 3
VALUE = b"x" * 100
CONNECTIONS = 1000
GIGABYTE = 1_000_000_000


def produce(servers: str, topic: str, **settings: object) -> float:
    """Records a second."""
    producer = Producer(
        {"bootstrap.servers": servers, "linger.ms": 5, "queue.buffering.max.messages": COUNT, **settings}
    )
    producer.list_topics(topic, timeout=10)
    began = time.perf_counter()
    for number in range(COUNT):
        producer.produce(topic, VALUE)
        if number % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0
    return COUNT / (time.perf_counter() - began)


def read(servers: str, topic: str, **settings: object) -> float:
    """Records a second."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "g", "enable.auto.commit": False, **settings})
    consumer.assign([TopicPartition(topic, index, 0) for index in range(3)])
    began, count_read = time.perf_counter(), 0
    while count_read < COUNT:
        count_read += len(consumer.consume(min(10_000, COUNT - count_read), timeout=5))
    consumer.close()
    return COUNT / (time.perf_counter() - began)


def on_embedded(replicas: int, security: str | None = None) -> tuple[float, float]:
    async def main() -> tuple[float, float]:
        config = ClusterConfig(history_limit=0)
        async with EmbeddedCluster(brokers=3, security=security, config=config) as cluster:
            await cluster.create_topic("t", 3, replicas)
            client = cluster.client_settings()
            servers = client["bootstrap_servers"]
            settings = {"security.protocol": "ssl", "ssl.ca.location": client["ssl_cafile"]} if security else {}
            written = await asyncio.to_thread(produce, servers, "t", **settings)
            return written, await asyncio.to_thread(read, servers, "t", **settings)

    return asyncio.run(main())


def on_mock() -> tuple[float, float]:
    """Measure librdkafka's mock cluster. It runs inside the client that starts it, so a third client does."""
    keeper = Producer({"bootstrap.servers": "none", "test.mock.num.brokers": 3})
    metadata = keeper.list_topics(timeout=10)
    servers = ",".join(f"{broker.host}:{broker.port}" for broker in metadata.brokers.values())
    keeper.list_topics("t", timeout=10)
    return produce(servers, "t"), float("nan")  # its default of four partitions and cut-off logs do not read back


def on_kafka(servers: str) -> tuple[float, float]:
    topic = f"embedded-{time.time_ns()}"
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, 3, 1)])[topic].result(30)
    return produce(servers, topic), read(servers, topic)


def start_up(tcp: bool) -> float:
    """Return the milliseconds until three nodes are ready."""

    async def main() -> float:
        began = time.perf_counter()
        async with EmbeddedCluster(brokers=3, tcp=tcp):
            return (time.perf_counter() - began) * 1000

    return min(asyncio.run(main()) for _ in range(5))


def memory_of_connections() -> float:
    """Return the KiB for each of many connections, both ends together."""

    async def main() -> float:
        async with EmbeddedCluster(brokers=1, tcp=False) as cluster:
            assert cluster.connector is not None
            node, process = cluster.nodes[1], psutil.Process()
            before = process.memory_info().rss
            streams = [
                (await cluster.connector.connect(node.host, node.port, lambda: FramedStreamReader(1 << 20, "n")))[1]
                for _ in range(CONNECTIONS)
            ]
            await asyncio.sleep(0)
            used: int = process.memory_info().rss - before
            for stream in streams:
                stream.abort()
            return used / CONNECTIONS / 1024

    return asyncio.run(main())


def recovery() -> tuple[float, float]:
    """Return seconds, and CPU seconds, until a broker is ready after a kill. Its log has one gigabyte."""

    async def start() -> tuple[float, float]:
        began, cpu = time.perf_counter(), time.process_time()
        async with EmbeddedCluster(brokers=1, data_dir=directory) as cluster:
            took = time.perf_counter() - began, time.process_time() - cpu
            assert cluster.nodes[1].replica_manager.partitions["t", 0].log.end_offset > 0
            return took

    with tempfile.TemporaryDirectory() as directory:
        writer = multiprocessing.get_context("spawn").Process(target=_fill_and_die, args=(directory,))
        writer.start()
        writer.join()
        return asyncio.run(start())


def _fill_and_die(directory: str) -> None:
    async def main() -> None:
        cluster = EmbeddedCluster(brokers=1, data_dir=directory, config=ClusterConfig(history_limit=0))
        async with cluster:
            await cluster.create_topic("t", 1)
            await asyncio.to_thread(_fill, cluster.bootstrap_servers)
            os._exit(0)  # as with kill -9, nothing is closed

    asyncio.run(main())


def _fill(servers: str) -> None:
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 5})
    for _ in range(GIGABYTE // 10_000):
        producer.produce("t", bytes(10_000))
        while len(producer) > 5_000:
            producer.poll(0.1)
    assert producer.flush(60) == 0


def virtual_hours_per_second() -> float:
    """Return a produce with acks=all every virtual second on three nodes."""

    async def main() -> None:
        async with EmbeddedCluster(
            brokers=3, tcp=False, config=ClusterConfig(wall_clock=lambda: 1e9, history_limit=0)
        ) as cluster:
            await cluster.create_topic("t", 1, 3)
            node, stream = cluster.nodes[cluster.leader_of("t", 0)], FramedStreamReader(1 << 20, "node")
            assert cluster.connector is not None
            await cluster.connector.connect(node.host, node.port, lambda: stream)
            protocol, loop = ClientProtocol[None]("node"), asyncio.get_running_loop()
            data = ProduceRequestPartition(index=0, records=encode_batch([(1000, None, VALUE, ())]))
            topic = ProduceRequestTopic(name="t", partition_data=[data])
            request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic])
            while loop.time() < 3600:
                stream.write([protocol.encode_request(request, 9, None, None)])
                await stream.read_frame()
                await asyncio.sleep(1)
            stream.abort()

    began = time.perf_counter()
    run(main())
    return 1 / (time.perf_counter() - began)


def main() -> None:
    kinds: dict[str, Callable[[], tuple[float, float]]] = {
        "embedded, 1 replica": lambda: on_embedded(1),
        "embedded, 3 replicas": lambda: on_embedded(3),
        "embedded, 1 replica, TLS": lambda: on_embedded(1, "SSL"),
        "librdkafka's mock": on_mock,
    }
    if servers := os.environ.get("KAFKA_BOOTSTRAP"):
        kinds["Apache Kafka"] = lambda: on_kafka(servers)
    rounds = [{kind: measure() for kind, measure in kinds.items()} for _ in range(ROUNDS)]
    print("| librdkafka on | produced, records/s | read, records/s |\n|---|---:|---:|")
    for kind in kinds:
        best = [max(round_[kind][column] for round_ in rounds) for column in (0, 1)]
        print(f"| {kind} | {best[0]:,.0f} | {best[1]:,.0f} |")
    print("\n| figure | |\n|---|---:|")
    print(f"| three nodes up, in memory | {start_up(tcp=False):.1f} ms |")
    print(f"| three nodes up, TCP | {start_up(tcp=True):.1f} ms |")
    print(f"| a connection, both ends in memory | {memory_of_connections():.0f} KiB |")
    took, cpu = recovery()
    print(f"| recovery of a log of 1 GB | {took:.1f} s, {cpu:.1f} s of CPU |")
    print(f"| virtual hours per real second | {virtual_hours_per_second():.2f} |")


if __name__ == "__main__":
    main()
