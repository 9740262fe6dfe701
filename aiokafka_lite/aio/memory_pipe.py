"""Two connected asyncio transports in memory, which behave like TCP.

One side receives the bytes of the other by ``loop.call_soon``: in order, and never within the call of ``write``. No
socket is used, so a pipe works in virtual time. Flow control, half close, close and reset work as for a socket.

A protocol that only passes bytes on may inherit from ``AtOnce``. It receives them within the call of ``write``.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, cast

A = TypeVar("A", bound=asyncio.BaseProtocol)
B = TypeVar("B", bound=asyncio.BaseProtocol)

HIGH_WATER = 64 * 1024
"""Unread bytes above which ``pause_writing`` is called. ``resume_writing`` is called at a quarter of this number."""


class AtOnce(asyncio.Protocol):
    """A protocol that receives bytes, and their end, within the call of the other side: a turn of the loop less.

    It must not raise, and neither write to that side nor pause the reading meanwhile.
    """


def memory_pipe(
    client: Callable[[], A],
    server: Callable[[], B],
    *,
    client_address: tuple[str, int] = ("memory", 0),
    server_address: tuple[str, int] = ("memory", 1),
    segment_size: int | None = None,
) -> tuple[tuple[MemoryTransport, A], tuple[MemoryTransport, B]]:
    """Make a connected pair of (transport, protocol), client and server. The server is connected first.

    ``segment_size`` is the largest number of bytes in one delivery. Call this function in a running loop.
    """
    loop = asyncio.get_running_loop()
    near_protocol, far_protocol = client(), server()
    near = MemoryTransport(loop, near_protocol, client_address, server_address, segment_size)
    far = MemoryTransport(loop, far_protocol, server_address, client_address, segment_size)
    near._peer, far._peer = far, near
    far_protocol.connection_made(far)
    near_protocol.connection_made(near)
    return (near, near_protocol), (far, far_protocol)


class MemoryTransport(asyncio.Transport):
    """One end of a pipe. ``_incoming`` is its receive buffer: the other end has written it, this end has not read it.

    The two ends of a pipe use each other's private attributes. No other objects may do this.
    """

    _peer: MemoryTransport

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        protocol: asyncio.BaseProtocol,
        address: tuple[str, int],
        peer_address: tuple[str, int],
        segment_size: int | None,
    ) -> None:
        super().__init__({"sockname": address, "peername": peer_address})
        self._loop = loop
        self._protocol = protocol
        self._is_at_once = isinstance(protocol, AtOnce)
        self._segment_size = segment_size
        self._incoming: deque[memoryview] = deque()
        self._incoming_size = 0
        self._incoming_eof = False  # the other end closed its side; comes after _incoming
        self._eof_received = False
        self._eof_written = False
        self._closing = False
        self._lost = False  # connection_lost has been called, or is about to be
        self._reading = True
        self._receive_scheduled = False
        self._writing_paused = False
        self._high_water = HIGH_WATER
        self._low_water = HIGH_WATER // 4

    # Reading.

    def is_reading(self) -> bool:
        return self._reading and not self._closing

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        self._schedule_receive()

    # Writing.

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._closing or not data:
            return  # connection_lost reports it, as for a socket transport
        if self._eof_written:
            raise RuntimeError("cannot write after write_eof()")
        peer = self._peer
        if peer._closing:
            self._loop.call_soon(self._lose, ConnectionResetError("connection reset by peer"))
            return
        if peer._is_at_once:
            cast(AtOnce, peer._protocol).data_received(bytes(data))
            return
        peer._incoming.append(memoryview(bytes(data)))
        peer._incoming_size += len(data)
        peer._schedule_receive()
        if peer._incoming_size > self._high_water and not self._writing_paused:
            self._writing_paused = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def write_eof(self) -> None:
        self._eof_written = True
        self._peer._incoming_eof = True
        self._peer._schedule_receive()

    def can_write_eof(self) -> bool:
        return True

    def get_write_buffer_size(self) -> int:
        return self._peer._incoming_size

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low_water, self._high_water

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = HIGH_WATER if low is None else 4 * low
        self._high_water, self._low_water = high, high // 4 if low is None else low
        self._adjust_writing()

    # Closing.

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        """Close: the other end reads the written bytes, then the end. Bytes that still arrive here are dropped."""
        if not self._closing:
            self.write_eof()
            self._lose(None)

    def abort(self) -> None:
        """Reset: bytes that the other end has not read are dropped."""
        self._peer._lose(ConnectionResetError("connection reset by peer"))
        self._lose(None)

    # Protocols.

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol
        self._is_at_once = isinstance(protocol, AtOnce)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    # Delivery, one segment per callback, so that other callbacks run during a long transfer.

    def _schedule_receive(self) -> None:
        if self._is_at_once:
            self._receive()
        elif not self._receive_scheduled and not self._closing:
            self._receive_scheduled = True
            self._loop.call_soon(self._receive)

    def _receive(self) -> None:
        self._receive_scheduled = False
        if self._closing or not self._reading:
            return
        if self._incoming:
            self._deliver(self._next_segment())
            self._peer._adjust_writing()
        elif self._incoming_eof and not self._eof_received:
            self._eof_received = True
            if not cast(asyncio.Protocol, self._protocol).eof_received():
                self.close()
        if self._incoming or (self._incoming_eof and not self._eof_received):
            self._schedule_receive()

    def _next_segment(self) -> memoryview:
        piece = self._incoming.popleft()
        if self._segment_size is not None and len(piece) > self._segment_size:
            self._incoming.appendleft(piece[self._segment_size :])
            piece = piece[: self._segment_size]
        self._incoming_size -= len(piece)
        assert self._incoming_size >= 0, "no more bytes are read than were written"
        return piece

    def _deliver(self, piece: memoryview) -> None:
        protocol = self._protocol
        try:
            if not isinstance(protocol, asyncio.BufferedProtocol):
                cast(asyncio.Protocol, protocol).data_received(bytes(piece))
                return
            buffer = memoryview(cast(Any, protocol.get_buffer(len(piece))))
            count = min(len(buffer), len(piece))
            if count == 0:
                raise RuntimeError("get_buffer() returned an empty buffer")
            buffer[:count] = piece[:count]
            if count < len(piece):  # this comes before buffer_updated(), which may close the pipe
                self._incoming.appendleft(piece[count:])
                self._incoming_size += len(piece) - count
            protocol.buffer_updated(count)
        except Exception as error:  # noqa: BLE001 - an error of the protocol ends its connection and is reported, as in asyncio
            context = {"message": "a protocol failed to receive data", "exception": error, "transport": self}
            self._loop.call_exception_handler(context)
            self._peer._lose(ConnectionResetError("connection reset by peer"))
            self._lose(error)

    def _adjust_writing(self) -> None:
        if self._writing_paused and self._peer._incoming_size <= self._low_water and not self._lost:
            self._writing_paused = False
            self._protocol.resume_writing()

    def _lose(self, error: Exception | None) -> None:
        self._closing = True
        if self._lost:
            return
        self._lost = True
        self._incoming.clear()
        self._incoming_size = 0
        self._loop.call_soon(self._protocol.connection_lost, error)

    def __repr__(self) -> str:
        host, port = self.get_extra_info("sockname")
        state = "closed" if self._closing else "open"
        return f"<MemoryTransport {host}:{port} {state} unread={self._incoming_size}>"
