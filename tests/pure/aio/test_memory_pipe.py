"""A memory pipe behaves like a TCP connection, and asyncio's streams work on it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokafka_lite.aio.memory_pipe import AtOnce, MemoryTransport, memory_pipe


class Notes(asyncio.Protocol):
    def __init__(self, *, stays_open: bool = False) -> None:
        self.events: list[str] = []
        self.data = bytearray()
        self.stays_open = stays_open

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.events.append("made")

    def data_received(self, data: bytes) -> None:
        assert isinstance(data, bytes)
        self.data += data

    def eof_received(self) -> bool:
        self.events.append("eof")
        return self.stays_open

    def connection_lost(self, exc: Exception | None) -> None:
        self.events.append("lost" if exc is None else type(exc).__name__)

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")


class Buffered(asyncio.BufferedProtocol):
    def __init__(self, room: int) -> None:
        self.room = bytearray(room)
        self.data = bytearray()

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.room

    def buffer_updated(self, nbytes: int) -> None:
        self.data += self.room[:nbytes]


Pair = tuple[MemoryTransport, Notes, MemoryTransport, Notes]


def pair(**settings: Any) -> Pair:
    stays_open = settings.pop("stays_open", False)
    (near, client), (far, server) = memory_pipe(Notes, lambda: Notes(stays_open=stays_open), **settings)
    return near, client, far, server


async def turns(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_bytes_arrive_in_order_and_never_within_write() -> None:
    near, client, far, server = pair()
    near.write(b"one ")
    near.writelines([b"two ", bytearray(b"three"), memoryview(b"")])
    assert not server.data
    await turns()
    assert server.data == b"one two three"
    far.write(b"back")
    await turns()
    assert client.data == b"back"
    near.abort()
    await turns()


async def test_written_bytes_are_copied() -> None:
    near, _, _, server = pair()
    data = bytearray(b"before")
    near.write(data)
    data[:] = b"after!"
    await turns()
    assert server.data == b"before"
    near.abort()
    await turns()


async def test_segments_have_the_requested_size() -> None:
    (near, _), (_, server) = memory_pipe(Notes, Notes, segment_size=1)
    near.write(b"abcdef")
    for _ in range(3):
        await asyncio.sleep(0)
    assert len(server.data) == 3
    await turns()
    assert server.data == b"abcdef"
    near.abort()
    await turns()


async def test_a_buffered_protocol_with_a_small_buffer_receives_everything() -> None:
    (near, _), (_, server) = memory_pipe(Notes, lambda: Buffered(7))
    near.write(bytes(range(100)))
    near.write(b"rest")
    await turns(40)
    assert server.data == bytes(range(100)) + b"rest"
    near.abort()
    await turns()


async def test_closing_delivers_the_written_bytes_then_the_end() -> None:
    near, client, far, server = pair()
    near.write(b"last words")
    near.close()
    near.write(b"too late")
    assert near.is_closing()
    await turns()
    assert server.data == b"last words"
    assert server.events == ["made", "eof", "lost"]
    assert client.events == ["made", "lost"]
    assert far.is_closing()


async def test_a_half_close_leaves_the_other_direction_open() -> None:
    near, client, far, server = pair(stays_open=True)
    near.write_eof()
    with pytest.raises(RuntimeError):
        near.write(b"more")
    await turns()
    assert server.events == ["made", "eof"]
    far.write(b"answer")
    await turns()
    assert client.data == b"answer"
    far.close()
    await turns()
    assert client.events == ["made", "eof", "lost"]
    assert server.events == ["made", "eof", "lost"]


async def test_abort_drops_unread_bytes_and_resets_the_other_end() -> None:
    near, client, _, server = pair()
    near.write(b"never read")
    near.abort()
    near.abort()
    await turns()
    assert not server.data
    assert server.events == ["made", "ConnectionResetError"]
    assert client.events == ["made", "lost"]


async def test_writing_to_an_end_that_closed_is_a_reset() -> None:
    near, client, far, _ = pair()
    near.pause_reading()  # so that it does not see the end
    far.close()
    await turns()
    near.write(b"anybody there?")
    await turns()
    assert client.events == ["made", "ConnectionResetError"]


async def test_a_reader_that_pauses_makes_the_writer_pause() -> None:
    near, client, far, server = pair()
    near.set_write_buffer_limits(high=100, low=10)
    far.pause_reading()
    near.write(bytes(100))
    assert client.events == ["made"]
    near.write(b"!")
    assert client.events == ["made", "pause"]
    await turns()
    assert not server.data
    assert near.get_write_buffer_size() == 101
    assert not far.is_reading()
    far.resume_reading()
    await turns()
    assert len(server.data) == 101
    assert client.events == ["made", "pause", "resume"]
    near.abort()
    await turns()


async def test_closing_does_not_wait_for_a_reader_that_pauses() -> None:
    near, client, far, server = pair()
    far.pause_reading()
    near.write(b"letter")
    near.close()
    await turns()
    assert client.events == ["made", "lost"]
    assert server.events == ["made"]
    far.resume_reading()
    await turns()
    assert server.data == b"letter"
    assert server.events == ["made", "eof", "lost"]


async def test_addresses_are_known_to_both_ends() -> None:
    near, _, far, _ = pair(client_address=("client", 1), server_address=("server", 2))
    assert near.get_extra_info("peername") == far.get_extra_info("sockname") == ("server", 2)
    assert near.get_extra_info("socket") is None
    assert repr(near) == "<MemoryTransport client:1 open unread=0>"
    near.abort()
    await turns()


async def test_streams_of_asyncio_work_on_it() -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    (near, protocol), (far, _) = memory_pipe(lambda: asyncio.StreamReaderProtocol(reader), Notes)
    writer = asyncio.StreamWriter(near, protocol, reader, loop)
    far.write(b"line\nrest")
    far.write_eof()
    assert await reader.readline() == b"line\n"
    assert await reader.read() == b"rest"
    writer.write(b"x" * 1_000_000)
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    await turns()


async def test_a_protocol_that_passes_bytes_on_receives_them_within_the_call() -> None:
    class Relay(AtOnce):
        def __init__(self) -> None:
            self.events: list[bytes | None] = []

        def data_received(self, data: bytes) -> None:
            self.events.append(data)

        def eof_received(self) -> None:
            self.events.append(None)

    notes = Notes()
    (near, _), (far, relay) = memory_pipe(lambda: notes, Relay)
    near.write(b"one")
    near.write(b"two")
    assert relay.events == [b"one", b"two"]
    far.write(b"answer")
    assert notes.data == b""  # the other side still receives in the next turn
    near.close()
    assert relay.events == [b"one", b"two", None]
    await asyncio.sleep(0)
    assert notes.events == ["made", "lost"]
