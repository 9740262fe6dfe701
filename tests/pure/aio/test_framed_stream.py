"""Frames arrive complete for any split of the bytes, and flow control works in both directions."""

from __future__ import annotations

import asyncio
import gc
import socket
import struct
import tracemalloc

import pytest

from aiokafka_lite.aio.framed_stream import (
    ABORT_AFTER,
    UNREAD_BYTES,
    UNREAD_FRAMES,
    Frame,
    FramedStream,
    FramedStreamReader,
)
from aiokafka_lite.aio.memory_pipe import MemoryTransport, memory_pipe
from aiokafka_lite.aio.virtual_time import run
from aiokafka_lite.errors import ConnectionLost, ProtocolError
from aiokafka_lite.protocol.framing import WaitingFrameMemory

FRAMES = [b"first", b"second frame", bytes(1_500_000), b"after a large one", bytes(70_000), b"last"]


class Collecting(FramedStream):
    """Keeps its frames."""

    def __init__(self, max_size: int, *, memory: WaitingFrameMemory) -> None:
        super().__init__(max_size, memory=memory)
        self.frames: list[Frame] = []
        self.error: Exception | None = None

    def frames_received(self, frames: list[Frame]) -> None:
        self.frames += frames

    def stream_ended(self, error: Exception | None) -> None:
        self.error = error


def framed(*bodies: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


def pipe(segment_size: int | None = None) -> tuple[FramedStreamReader, FramedStreamReader, MemoryTransport]:
    """Return two connected framed streams, and the transport of the second."""
    (_, near), (far_transport, far) = memory_pipe(
        lambda: FramedStreamReader(1 << 24, "near's peer"),
        lambda: FramedStreamReader(1 << 24, "far's peer"),
        segment_size=segment_size,
    )
    return near, far, far_transport


async def finish(*streams: FramedStream) -> None:
    for stream in streams:
        stream.abort()
        await stream.wait_closed()


@pytest.mark.parametrize("cut", [None, 1, 3, 1000])
async def test_frames_come_out_whole_in_any_cut(cut: int | None) -> None:
    sent = [body for body in FRAMES if cut is None or cut > 3 or len(body) < 1000]
    near, _, far_transport = pipe(cut)
    far_transport.write(framed(*sent))
    for body in sent:
        frame = await near.read_frame()
        assert frame is not None
        assert bytes(frame) == body
    far_transport.close()
    assert await near.read_frame() is None
    assert await near.read_frame() is None
    await near.wait_closed()


async def test_frames_keep_their_memory() -> None:
    near, far, far_transport = pipe()
    bodies = [bytes([number]) * 200_000 for number in range(10)]
    far_transport.write(framed(*bodies))
    frames = [await near.read_frame() for _ in bodies]
    assert [bytes(frame or b"") for frame in frames] == bodies
    await finish(near, far)


async def test_it_works_over_tcp() -> None:
    loop = asyncio.get_running_loop()
    accepted: asyncio.Future[FramedStreamReader] = loop.create_future()

    def serve() -> FramedStreamReader:
        accepted.set_result(FramedStreamReader(1 << 24, "client"))
        return accepted.result()

    server = await loop.create_server(serve, "127.0.0.1", 0)
    _, near = await loop.create_connection(lambda: FramedStreamReader(1 << 24), *server.sockets[0].getsockname())
    far = await accepted
    near.write([framed(*FRAMES)])
    near.write([struct.pack(">i", 6), b"abc", memoryview(b"def")])
    for body in [*FRAMES, b"abcdef"]:
        assert bytes(await far.read_frame() or b"") == body
    near.close()
    assert await far.read_frame() is None
    await near.wait_closed()
    await far.wait_closed()
    server.close()
    await server.wait_closed()


@pytest.mark.parametrize("part", [b"\x00", b"\x00\x00\x00\x09", b"\x00\x00\x00\x09half"])
async def test_an_end_within_a_frame_is_a_lost_connection(part: bytes) -> None:
    near, _, far_transport = pipe()
    far_transport.write(framed(b"whole") + part)
    far_transport.close()
    assert await near.read_frame() == b"whole"
    with pytest.raises(ConnectionLost, match="near's peer closed the connection within a frame"):
        await near.read_frame()
    await near.wait_closed()


async def test_a_connection_that_ends_within_a_frame_keeps_no_buffer() -> None:
    """Without a garbage collection: stream, transport and connection refer to one another."""
    gc.disable()
    tracemalloc.start()
    kept = []
    try:
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(5):
            near, far, far_transport = pipe()
            far_transport.write(struct.pack(">i", 15_000_000) + bytes(3_000_000))
            far_transport.close()
            with pytest.raises(ConnectionLost, match="within a frame"):
                await near.read_frame()
            await finish(near, far)
            kept.append((near, far))
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        gc.enable()
    assert after - before < 1_000_000


async def test_streams_without_room_stop_reading_until_another_frame_is_complete() -> None:
    size = 2_000_000
    memory = WaitingFrameMemory(limit=size, largest=size)
    pipes = [memory_pipe(lambda: Collecting(size, memory=memory), lambda: FramedStreamReader(size)) for _ in range(3)]
    for _, (transport, _far) in pipes:
        transport.write(framed(bytes(size))[:-1])
    for _ in range(1000):
        await asyncio.sleep(0)
    assert [near_transport.is_reading() for (near_transport, _), _ in pipes] == [True, False, False]
    for (_, near), (transport, _far) in pipes:
        transport.write(b"\0")
        while not near.frames:
            await asyncio.sleep(0)
        assert [len(frame) for frame in near.frames] == [size]
    assert memory.held == 0
    for (_, near), (_, far) in pipes:
        await finish(near, far)


@pytest.mark.parametrize("size", [b"\xff\xff\xff\xff", b"\x00\x00\x00\x00", b"\x7f\xff\xff\xff", b"HTTP"])
async def test_a_wrong_size_is_raised_after_the_frames_before_it(size: bytes) -> None:
    near, far, far_transport = pipe()
    far_transport.write(framed(b"good", b"also good") + size + b"noise")
    assert await near.read_frame() == b"good"
    assert await near.read_frame() == b"also good"
    for _ in range(2):
        with pytest.raises(ProtocolError, match="near's peer"):
            await near.read_frame()
    await near.wait_closed()
    await far.wait_closed()


async def test_a_reset_is_a_lost_connection() -> None:
    near, _, far_transport = pipe()
    reading = asyncio.create_task(near.read_frame())
    await asyncio.sleep(0)
    far_transport.abort()
    with pytest.raises(ConnectionLost, match="reset"):
        await reading
    with pytest.raises(ConnectionLost):
        near.write([b"x"])
    with pytest.raises(ConnectionLost):
        await near.drain()


async def test_a_cancelled_read_loses_no_frame() -> None:
    near, far, far_transport = pipe()
    for number in range(20):
        reading = asyncio.create_task(near.read_frame())
        await asyncio.sleep(0)
        far_transport.write(framed(b"frame%d" % number))
        if number % 2:
            await asyncio.sleep(0)
        reading.cancel()
        outcome = (await asyncio.gather(reading, return_exceptions=True))[0]
        frame = await near.read_frame() if isinstance(outcome, BaseException) else outcome
        assert frame == b"frame%d" % number
    await finish(near, far)


async def test_two_readers_at_a_time_are_refused() -> None:
    near, far, _ = pipe()
    first = asyncio.create_task(near.read_frame())
    await asyncio.sleep(0)
    with pytest.raises(RuntimeError):
        await near.read_frame()
    await finish(near, far)
    assert await first is None


@pytest.mark.parametrize("body", [bytes(UNREAD_BYTES // 4), b"tiny"])
async def test_unread_frames_are_bounded(body: bytes) -> None:
    near, far, _ = pipe()
    count = 4 * (6 if len(body) > 4 else UNREAD_FRAMES)

    async def flood() -> None:
        for _ in range(count):
            far.write([framed(body)])
            await far.drain()
            await asyncio.sleep(0)

    flooding = asyncio.create_task(flood())
    for _ in range(3000):
        await asyncio.sleep(0)
    assert near._transport is not None
    assert not near._transport.is_reading()
    assert near._unread <= UNREAD_BYTES + len(body) + 65536
    assert len(near._frames) <= UNREAD_FRAMES + 65536 // 8
    for _ in range(count):
        assert await near.read_frame() is not None
    await flooding
    await finish(near, far)


async def test_drain_waits_for_room_and_raises_at_the_end() -> None:
    near, _, far_transport = pipe()
    far_transport.pause_reading()
    near.write([bytes(1_000_000)])
    draining = [asyncio.create_task(near.drain()) for _ in range(3)]
    await asyncio.sleep(0)
    draining[0].cancel()
    await asyncio.sleep(0)
    assert not draining[1].done()
    far_transport.abort()
    for result in (await asyncio.gather(*draining, return_exceptions=True))[1:]:
        assert isinstance(result, ConnectionLost)


async def test_drain_returns_when_there_is_room() -> None:
    near, far, far_transport = pipe()
    far_transport.pause_reading()
    near.write([framed(bytes(1_000_000))])
    draining = asyncio.create_task(near.drain())
    await asyncio.sleep(0)
    assert not draining.done()
    far_transport.resume_reading()
    await draining
    assert await far.read_frame() == bytes(1_000_000)
    await finish(near, far)


async def test_writing_without_a_transport_is_an_unsent_request() -> None:
    with pytest.raises(ConnectionLost) as caught:
        FramedStreamReader(100).write([b"x"])
    assert not caught.value.sent


def test_close_aborts_for_a_peer_that_reads_nothing() -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        with socket.create_server(("127.0.0.1", 0)) as listening:  # the kernel accepts, and no task reads
            _, near = await loop.create_connection(lambda: FramedStreamReader(100), *listening.getsockname())
            near.write([bytes(50_000_000)])
            near.close()
            await near.wait_closed()
        return loop.time()

    assert run(main()) == pytest.approx(ABORT_AFTER)
