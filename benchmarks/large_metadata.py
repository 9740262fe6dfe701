"""Metadata of 10,000 topics with 10 partitions each: ``python -m benchmarks.large_metadata``.

A stand-in for a broker, in a process of its own, answers from prepared bytes. The client asks for all topics, asks
again when nothing has changed, and asks again after one partition of each hundredth topic got another leader. A row has
the CPU of the client's process, the longest time for which one iteration of the event loop held its thread, and the
memory that the process has more than before. CPU and the hold are those of the thread: other work of the machine does
not count.
"""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import time
from collections.abc import Awaitable
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

from aiokafka_lite.aio.framed_stream import FramedStreamReader
from aiokafka_lite.cluster.client import Client
from aiokafka_lite.protocol.connection import ParsedRequest, encode_response, parse_request
from aiokafka_lite.protocol.framing import frame
from aiokafka_lite.protocol.messages import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from aiokafka_lite.settings.client import ClientConfig

TOPICS, PARTITIONS, BROKERS = 10_000, 10, 6
ROUNDS = 3
OFFERED = (ApiVersionsRequest, MetadataRequest)


def main() -> None:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_broker, args=(theirs,), daemon=True)
    process.start()
    print(f"{TOPICS * PARTITIONS:,} partitions: CPU, longest hold of the loop, memory")
    asyncio.run(_measure(ours))
    process.terminate()
    process.join()


async def _measure(broker: Connection) -> None:
    names = [_name(number) for number in range(TOPICS)]
    async with Client(ClientConfig(bootstrap_servers=[f"127.0.0.1:{broker.recv()}"])) as client:
        gc.collect()
        resident = _resident()
        client.add_topics(names)
        await _row("the first answer", client.refresh(timeout=60))
        assert len(client.view.topics) == TOPICS
        gc.collect()
        print(f"| memory of a partition | {(_resident() - resident) / TOPICS / PARTITIONS:.0f} bytes |")
        for _ in range(ROUNDS):
            await asyncio.sleep(1.1)  # requests are paced
            await _row("nothing has changed", client.refresh(timeout=60))
        for _ in range(ROUNDS):
            broker.send("move")
            await asyncio.sleep(1.1)
            await _row(f"{TOPICS // 100} leaders moved", client.refresh(timeout=60))


async def _row(what: str, work: Awaitable[object]) -> None:
    """Run the work beside a task that runs in each iteration of the loop."""
    loop = asyncio.get_running_loop()
    began = last = time.thread_time()
    longest = 0.0
    done = False

    def tick() -> None:
        nonlocal last, longest
        now = time.thread_time()
        longest, last = max(longest, now - last), now
        if not done:
            loop.call_later(0.001, tick)

    loop.call_soon(tick)
    await work
    done = True
    print(f"| {what} | {(time.thread_time() - began) * 1e3:.0f} ms | {longest * 1e3:.1f} ms |", flush=True)


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# The stand-in for a broker.


def _name(number: int) -> str:
    return f"a-topic-of-some-department-{number:05}"


def _broker(client: Connection) -> None:
    asyncio.run(_serve(client))


async def _serve(client: Connection) -> None:
    loop = asyncio.get_running_loop()
    answer = _answer(0)
    moves = 0

    async def serve(stream: FramedStreamReader) -> None:
        while (received := await stream.read_frame()) is not None:
            parsed = parse_request(received)
            assert isinstance(parsed, ParsedRequest)
            if isinstance(parsed.request, ApiVersionsRequest):
                keys = [
                    ApiVersion(api_key=request_class.api_key, min_version=request_class.versions.first, max_version=12)
                    for request_class in OFFERED
                ]
                keys[0].max_version = ApiVersionsRequest.versions.last
                stream.write((encode_response(parsed.header, ApiVersionsResponse(error_code=0, api_keys=keys)),))
            else:
                head = parsed.header.correlation_id.to_bytes(4, "big")
                body = answer if parsed.request.topics else _none(port)
                stream.write((frame(head + body),))

    server = await loop.create_server(partial(_Stream, serve), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    answer = _answer(port)
    client.send(port)
    while await loop.run_in_executor(None, client.recv):
        moves += 1
        answer = _answer(port, moves)


class _Stream(FramedStreamReader):
    def __init__(self, serve: partial[object]) -> None:
        super().__init__(64 * 1024 * 1024)
        self._serve = serve

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._task = asyncio.ensure_future(self._serve(self))  # type: ignore[arg-type]


def _none(port: int) -> bytes:
    return _encoded(MetadataResponse(brokers=_brokers(port), cluster_id="stand-in", controller_id=0, topics=[]))


def _answer(port: int, moves: int = 0) -> bytes:
    """Return the answer about all topics, without the correlation id."""
    topics = [
        MetadataResponseTopic(
            error_code=0,
            name=_name(number - 1),
            topic_id=number.to_bytes(16, "big"),
            partitions=[
                MetadataResponsePartition(
                    error_code=0,
                    partition_index=index,
                    leader_id=(number + index + moved) % BROKERS,
                    leader_epoch=5 + moved,
                    replica_nodes=[(number + index + replica) % BROKERS for replica in range(3)],
                    isr_nodes=[(number + index + replica) % BROKERS for replica in range(3)],
                )
                for index in range(PARTITIONS)
                for moved in [moves if number % 100 == 0 and index == 0 else 0]
            ],
        )
        for number in range(1, TOPICS + 1)
    ]
    return _encoded(MetadataResponse(brokers=_brokers(port), cluster_id="stand-in", controller_id=0, topics=topics))


def _brokers(port: int) -> list[MetadataResponseBroker]:
    """Return brokers that all have one address, since the client asks only one of them."""
    return [MetadataResponseBroker(node_id=node, host="127.0.0.1", port=port) for node in range(BROKERS)]


def _encoded(response: MetadataResponse) -> bytes:
    from aiokafka_lite.protocol.codec import encode_message

    out = bytearray(1)  # no tagged fields in the header
    encode_message(response, 12, out)
    return bytes(out)


if __name__ == "__main__":
    main()
