"""Read frames from a socket: FramedStreamReader against asyncio's StreamReader.readexactly, large and small frames.

Run as ``python -m benchmarks.framing``. A thread writes frames into one end of a socket pair; the time of the thread is
the same for both candidates and is part of both. The module also measures the time of one request without encoding and
decoding, on a connection in memory whose peer answers at once.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from aiokafka_lite.aio.framed_stream import FramedStreamReader
from aiokafka_lite.net.connection import Connection
from aiokafka_lite.protocol.connection import ClientProtocol, RequestHeader, encode_response
from aiokafka_lite.protocol.messages import (
    REQUESTS,
    ApiVersion,
    ApiVersionsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
)
from benchmarks.compare import compare

MIB = 1024 * 1024


class _Feed:
    """A socket pair. On request, the other end sends ``count`` frames of one size."""

    def __init__(self, size: int, count: int) -> None:
        near, self._far = socket.socketpair()
        near.setblocking(False)
        self.near, self.count = near, count
        burst = max(1, min(count, MIB // (size + 4)))
        self._burst = (struct.pack(">i", size) + bytes(size)) * burst
        self._bursts = count // burst
        self.count = self._bursts * burst
        self._go = threading.Semaphore(0)
        threading.Thread(target=self._send, daemon=True).start()

    def _send(self) -> None:
        while True:
            self._go.acquire()
            for _ in range(self._bursts):
                self._far.sendall(self._burst)

    def send(self) -> None:
        self._go.release()


def _framed(loop: asyncio.AbstractEventLoop, feed: _Feed) -> Callable[[], None]:
    _, reader = loop.run_until_complete(loop.create_connection(lambda: FramedStreamReader(16 * MIB), sock=feed.near))

    async def read() -> None:
        for _ in range(feed.count):
            await reader.read_frame()

    return _runs(loop, feed, read)


def _streams(loop: asyncio.AbstractEventLoop, feed: _Feed) -> Callable[[], None]:
    reader, writer = loop.run_until_complete(asyncio.open_connection(sock=feed.near, limit=4 * MIB))

    async def read() -> None:
        for _ in range(feed.count):
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            await reader.readexactly(size)

    call = _runs(loop, feed, read)

    def runs(_writer: object = writer) -> None:  # a writer that is collected closes the transport
        call()

    return runs


def _runs(
    loop: asyncio.AbstractEventLoop, feed: _Feed, read: Callable[[], Coroutine[Any, Any, None]]
) -> Callable[[], None]:
    def run() -> None:
        feed.send()
        loop.run_until_complete(read())

    return run


class _Echo(asyncio.Transport):
    """A transport whose peer has answered before ``write`` returns."""

    protocol: asyncio.BufferedProtocol
    answer: bytes

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def close(self) -> None:
        self.protocol.connection_lost(None)

    abort = close

    def write(self, data: Any) -> None:
        answer = bytearray(self.answer)
        answer[4:8] = data[8:12]
        self.protocol.get_buffer(-1)[: len(answer)] = answer
        self.protocol.buffer_updated(len(answer))


class _EchoConnector:
    async def connect(self, host: str, port: int, protocol_factory: Any) -> Any:
        transport, protocol = _Echo(), protocol_factory()
        ranges = [
            ApiVersion(api_key=k, min_version=r.versions.first, max_version=r.versions.last)
            for k, r in REQUESTS.items()
        ]
        transport.protocol = protocol
        transport.answer = bytes(
            encode_response(RequestHeader(18, 4, 0, None), ApiVersionsResponse(error_code=0, api_keys=ranges))
        )
        protocol.connection_made(transport)
        self.transport = transport
        return transport, protocol


def _requests(loop: asyncio.AbstractEventLoop, count: int) -> dict[str, Callable[[], None]]:
    request = HeartbeatRequest(group_id="group", generation_id=1, member_id="member")
    connector = _EchoConnector()

    async def opened() -> Connection:
        connection = Connection("h", 1, connector=connector, client_id="bench")
        await connection.connect(5.0)
        return connection

    connection = loop.run_until_complete(opened())
    answer = bytes(encode_response(RequestHeader(12, 4, 0, None), HeartbeatResponse(error_code=0)))
    connector.transport.answer = answer

    async def send() -> None:
        for _ in range(count):
            await connection.send(request)

    def codec() -> None:
        protocol = ClientProtocol[None]("h:1")
        frame = bytearray(answer[4:])
        for _ in range(count):
            sent = protocol.encode_request(request, 4, "bench", None)
            frame[0:4] = sent[8:12]
            protocol.receive(bytes(frame))

    return {"codec alone": codec, "Connection.send": lambda: loop.run_until_complete(send())}


def main() -> None:
    loop = asyncio.new_event_loop()
    for title, size, count in (("frames of 1 MB", 1_000_000, 200), ("frames of 100 bytes", 100, 100_000)):
        framed, streams = _Feed(size, count), _Feed(size, count)
        candidates = {"FramedStreamReader": _framed(loop, framed), "StreamReader": _streams(loop, streams)}
        table = compare(candidates, rounds=7, operations=framed.count, title=title, unit="frame")
        print(table)
        for result in table.results:
            print(f"  {result.name}: {1 / result.wall:,.0f} frames/s, {size / result.wall / 1e9:.2f} GB/s")
    print(compare(_requests(loop, 5_000), rounds=7, operations=5_000, title="one heartbeat", unit="request"))


if __name__ == "__main__":
    main()
