"""The bytes of a connection: frames in, within the memory of a broker, and responses out, written together."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable, Sequence

from ..aio.framed_stream import Frame, FramedStreamReader
from ..errors import ConnectionLost
from ..protocol.framing import FrameMemory
from .closing_log import ClosingLog
from .security.certificates import subject_of
from .settings.listeners import Listener

MOST_COLLECTED = 64 * 1024
"""Bytes of responses that are written together."""


class UnsentResponses:
    """A bound on the bytes of responses that the clients of one node do not read.

    A connection reads no request while its last response waits, so a client that reads nothing holds one response. If
    all of them together exceed ``limit`` bytes, the client that has read nothing for the longest time is disconnected.
    """

    def __init__(self, limit: int, closings: ClosingLog) -> None:
        self._limit = limit
        self._closings = closings
        self._sizes: dict[ServerStream, int] = {}  # in the order in which the responses were written
        self._sum = 0

    def add(self, stream: ServerStream, size: int) -> None:
        """Add a response of this stream that waits until the client reads."""
        self._sizes[stream] = size
        self._sum += size
        while self._sum > self._limit and len(self._sizes) > 1:
            slowest = next(iter(self._sizes))
            self._closings.closed(slowest.peer, f"{self._sum} bytes of responses wait for clients to read them")
            self.remove(slowest)
            slowest.abort()

    def remove(self, stream: ServerStream) -> None:
        """Remove the responses of a client that has read them or is disconnected."""
        self._sum -= self._sizes.pop(stream, 0)
        assert self._sum >= 0, "the sum is that of all responses that wait"


class ServerStream(FramedStreamReader):
    """The frames of a connection.

    ``memory`` bounds the requests of all connections of a node: frames that are being received, that wait, and that are
    being handled. The connection that exceeds it is closed. ``unsent`` bounds their responses. ``on_connected`` is
    called when the client has connected, and ``on_disconnected`` when it has disconnected.
    """

    def __init__(
        self,
        listener: Listener,
        max_size: int,
        memory: FrameMemory,
        unsent: UnsentResponses,
        closings: ClosingLog,
        on_connected: Callable[[ServerStream], None],
    ) -> None:
        super().__init__(max_size, "a client", memory=memory)
        self.listener = listener
        self.on_disconnected: Callable[[], None] | None = None
        self._memory = memory
        self._unsent = unsent
        self._closings = closings
        self._on_connected = on_connected
        self._frames_size = 0  # of the frames that wait or are being handled
        self._is_released = False
        self._responses: list[bytes | bytearray | memoryview] = []
        self._responses_size = 0
        self.incomplete_since: float | None = None
        """The loop's time when an incomplete large frame began to arrive; None without such a frame."""

    def buffer_updated(self, nbytes: int) -> None:
        super().buffer_updated(nbytes)
        if not self._splitter.holds_memory:
            self.incomplete_since = None
        elif self.incomplete_since is None:
            self.incomplete_since = asyncio.get_running_loop().time()

    def drop(self) -> None:
        """Close at once, and free the memory of an incomplete frame now."""
        self.abort()
        self._splitter.end()
        self.incomplete_since = None

    def write(self, parts: Sequence[bytes | bytearray | memoryview]) -> None:
        """Write a response, together with the others of this turn of the event loop: a system call takes 10 µs.

        Raises ConnectionLost if the connection is closed or closing.
        """
        if self.is_closing:
            raise ConnectionLost(f"the connection to {self.peer} is closed", sent=False)
        if not self._responses:
            asyncio.get_running_loop().call_soon(self._flush)
        self._responses += parts
        for part in parts:
            self._responses_size += len(part)

    def _flush(self) -> None:
        parts, self._responses, self._responses_size = self._responses, [], 0
        if parts and not self.is_closing:
            super().write(parts)

    def close(self) -> None:
        self._flush()
        super().close()

    def abort(self) -> None:
        self._flush()  # bytes that were written before may still arrive
        super().abort()

    def reset(self) -> None:
        """Close the connection so that the client sees a reset. Over TCP, a plain abort looks like a normal close."""
        sock = None if self.transport is None else self.transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.abort()

    @property
    def is_full(self) -> bool:
        """Whether the next response has to wait: the client does not read, or many responses are not written yet."""
        return self._writing_paused or self._responses_size > MOST_COLLECTED

    async def drain(self) -> None:
        """Wait until the client has read nearly everything. Raises ConnectionLost."""
        if self._responses_size > MOST_COLLECTED:
            self._flush()
        if self._writing_paused and self.transport is not None:
            self._unsent.add(self, self.transport.get_write_buffer_size())
        try:
            await super().drain()
        finally:
            self._unsent.remove(self)

    def frames_received(self, frames: list[Frame]) -> None:
        # Frames arrive until the transport is closed. Nothing would release the memory of these.
        if self._is_released:
            return
        size = sum(map(len, frames))
        if not self._memory.take(size):
            self._closings.closed(self.peer, f"all connections hold {self._memory.held} bytes of requests")
            self.abort()
            return
        self._frames_size += size
        super().frames_received(frames)

    def release(self, size: int) -> None:
        """Free the memory of a handled frame."""
        self._memory.give_back(size)
        self._frames_size -= size
        assert self._frames_size >= 0, "a frame is released once"

    def release_all(self) -> None:
        """Stop handling frames of this stream, and drop later ones."""
        self._is_released = True
        self.release(self._frames_size)

    @property
    def client_address(self) -> str:
        """The client's IP address, or "memory"."""
        address = None if self.transport is None else self.transport.get_extra_info("peername")
        return str(address[0]) if isinstance(address, tuple) else "memory"

    @property
    def subject(self) -> str | None:
        """The subject of the client's certificate on a listener with TLS alone, else None."""
        if self.transport is None or self.listener.uses_sasl:
            return None
        return subject_of(self.transport.get_extra_info("ssl_object"))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.peer: str = f"client {transport.get_extra_info('peername')}"
        self._on_connected(self)

    def stream_ended(self, error: Exception | None) -> None:
        super().stream_ended(error)
        if self.on_disconnected is not None:
            self.on_disconnected()
