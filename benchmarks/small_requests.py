"""CPU of one embedded broker for a small request over TCP: ``python -m benchmarks.small_requests``.

Another process sends the same frame again and again on one connection, with five requests in flight, and reads only the
sizes of the responses. The figure is the CPU time of the broker's process for one request, the minimum of
many rounds. The requests take turns in each round, so that a busy machine disturbs all of them.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import socket
import struct
import time
from multiprocessing.connection import Connection
from typing import Any

from aiokafka_lite.aio.framed_stream import FramedStreamReader
from aiokafka_lite.embedded import ClusterConfig, EmbeddedCluster
from aiokafka_lite.protocol.connection import ClientProtocol, decode_response
from aiokafka_lite.protocol.messages import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from aiokafka_lite.protocol.records import encode_batch
from aiokafka_lite.protocol.schema import Request

COUNT = 2_000
ROUNDS = 30
IN_FLIGHT = 5
VALUE = b"x" * 50


def send_frames(orders: Connection, port: int) -> None:
    """Send each requested frame ``COUNT`` times, as the other process."""
    with socket.create_connection(("127.0.0.1", port)) as connection, connection.makefile("rb") as responses:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while frame := orders.recv_bytes():
            connection.sendall(frame * IN_FLIGHT)
            for number in range(COUNT):
                (size,) = struct.unpack(">i", responses.read(4))
                response = responses.read(size)
                if number < COUNT - IN_FLIGHT:
                    connection.sendall(frame)
            orders.send_bytes(response)


def produce(acks: int) -> Request[Any]:
    data = ProduceRequestPartition(index=0, records=encode_batch([(1000, None, VALUE, ())]))
    topic = ProduceRequestTopic(name="t", partition_data=[data])
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[topic])


def fetch() -> Request[Any]:
    partition = FetchRequestPartition(partition=0, fetch_offset=0, partition_max_bytes=100)
    topic = FetchRequestTopic(topic="t", partitions=[partition])
    return FetchRequest(max_wait_ms=500, min_bytes=1, topics=[topic], session_epoch=-1)


def commit(member_id: str) -> Request[Any]:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    topic = OffsetCommitRequestTopic(name="t", partitions=[partition])
    return OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=1, member_id=member_id, topics=[topic])


async def member_of_group(port: int) -> str:
    """Return the id of a member of the group ``g``, which is in its first generation."""
    _, stream = await asyncio.get_running_loop().create_connection(
        lambda: FramedStreamReader(1 << 20, "the node"), "127.0.0.1", port
    )
    protocol = ClientProtocol[None]("the node")

    async def ask(request: Request[Any], version: int) -> Any:
        stream.write([protocol.encode_request(request, version, None, None)])
        frame = await stream.read_frame()
        assert frame is not None
        return protocol.receive(frame)[1]

    await ask(FindCoordinatorRequest(key="g"), 0)  # the first request creates the topic of the offsets
    protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
    joining = JoinGroupRequest(
        group_id="g", session_timeout_ms=300_000, rebalance_timeout_ms=300_000, member_id="", protocol_type="consumer",
        protocols=protocols,
    )  # fmt: skip
    member_id: str = (await ask(joining, 2)).member_id
    assignments = [SyncGroupRequestAssignment(member_id=member_id, assignment=b"")]
    await ask(SyncGroupRequest(group_id="g", generation_id=1, member_id=member_id, assignments=assignments), 1)
    stream.close()
    return member_id


async def measure() -> dict[str, float]:
    """Return the microseconds of CPU by the name of the request."""
    best: dict[str, float] = {}
    async with EmbeddedCluster(brokers=1, config=ClusterConfig(history_limit=0)) as cluster:
        await cluster.create_topic("t")
        await cluster.produce("t", VALUE)
        port = cluster.nodes[1].port
        member_id = await member_of_group(port)
        requests: dict[str, tuple[Request[Any], int]] = {
            "Produce, one record, acks=all": (produce(-1), 9),
            "Produce, one record, acks=1": (produce(1), 9),
            "Fetch, one record": (fetch(), 11),
            "OffsetCommit of a member": (commit(member_id), 7),
            "Heartbeat": (HeartbeatRequest(group_id="g", generation_id=1, member_id=member_id), 3),
        }
        near, far = multiprocessing.Pipe()
        client = multiprocessing.get_context("spawn").Process(target=send_frames, args=(far, port), daemon=True)
        client.start()
        for _ in range(ROUNDS):
            for name, (request, version) in requests.items():
                frame = bytes(ClientProtocol[None]("the node").encode_request(request, version, "client", None))
                before = time.process_time()
                near.send_bytes(frame)
                response = await asyncio.to_thread(near.recv_bytes)
                answer = repr(decode_response(type(request), version, response, "the node"))
                assert "error_code=0" in answer, answer
                microseconds = (time.process_time() - before) / COUNT * 1e6
                best[name] = min(microseconds, best.get(name, microseconds))
        near.send_bytes(b"")
        client.join()
    return best


def main() -> None:
    print("| request | CPU | requests/s on one core |\n|---|---:|---:|")
    for name, microseconds in asyncio.run(measure()).items():
        print(f"| {name} | {microseconds:.1f} µs | {1e6 / microseconds:,.0f} |")


if __name__ == "__main__":
    main()
