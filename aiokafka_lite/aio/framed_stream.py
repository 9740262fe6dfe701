"""A stream of frames over an asyncio transport. A frame is a size and that many bytes.

``protocol.framing`` splits the bytes into frames and does no I/O; this is the transport side. It is a
``BufferedProtocol``, so the transport receives into the splitter's memory, and a large frame is not copied. Both ends
of a connection use it: the client handles frames when they arrive (``FramedStream``), the embedded broker reads them
one after another (``FramedStreamReader``).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import TypeAlias, cast

from ..errors import ConnectionLost, ProtocolError
from ..protocol.framing import FrameMemory, FrameSplitter, WaitingFrameMemory
from . import forks
from .light_event import LightEvent

Frame: TypeAlias = bytes | memoryview
"""A frame without its size. Its memory is not reused, so views of it may be kept."""

ABORT_AFTER = 2.0
"""Seconds after ``close()`` in which the written bytes must be sent. After this time, the connection is reset."""

UNREAD_BYTES = 4 * 1024 * 1024
"""Bytes of frames that may wait for ``read_frame`` before the transport stops reading."""

UNREAD_FRAMES = 128
"""Frames that may wait for ``read_frame``, because a small frame costs more memory than its bytes."""


class FramedStream(asyncio.BufferedProtocol):
    """Receives frames and sends bytes over one transport. A subclass implements ``frames_received`` and
    ``stream_ended``.

    A frame that the splitter refuses aborts the connection: the bytes after a wrong size have no meaning. ``memory``
    bounds the frames that several streams receive together. With a ``WaitingFrameMemory``, the transport stops reading
    while a large frame has no room.
    """

    def __init__(
        self, max_size: int, peer: str = "the peer", *, memory: FrameMemory | WaitingFrameMemory | None = None
    ) -> None:
        self.peer: str = peer
        self._shared_memory = memory
        self._splitter = FrameSplitter(max_size, peer, memory=memory)
        self._transport: asyncio.Transport | None = None
        self._writing_paused = False
        self._drainers: list[asyncio.Future[None]] = []
        self._lost = LightEvent()
        self._abort_timer: asyncio.TimerHandle | None = None

    # For subclasses. These methods must not raise.

    def frames_received(self, frames: list[Frame]) -> None:
        """Handle frames, in order."""
        raise NotImplementedError

    def stream_ended(self, error: Exception | None) -> None:
        """Handle the connection's end. ``error`` is None after ``close``, or if the peer ended it between frames."""
        raise NotImplementedError

    def accept(self, max_size: int) -> None:
        """Accept frames of up to ``max_size`` bytes from now on."""
        self._splitter.accept(max_size)

    # Writing and closing.

    @property
    def transport(self) -> asyncio.Transport | None:
        return self._transport

    @property
    def gone(self) -> bool:
        """Whether there is no transport: the stream is not connected yet, or has lost its connection."""
        return self._transport is None or self._lost.is_set()

    @property
    def is_closing(self) -> bool:
        """Whether ``write`` raises ConnectionLost."""
        return self._transport is None or self._transport.is_closing()

    def write(self, parts: Sequence[bytes | bytearray | memoryview]) -> None:
        """Write the parts one after another. They must not change afterwards: the transport may still hold them.

        Raises ConnectionLost(sent=False) if the connection is closed or closing.
        """
        transport = self._transport
        if transport is None or transport.is_closing():
            raise ConnectionLost(f"the connection to {self.peer} is closed", sent=False)
        if len(parts) == 1:
            transport.write(parts[0])
        else:
            transport.writelines(parts)

    async def drain(self) -> None:
        """Wait until the transport's buffer has room. Raises ConnectionLost if the connection ends first."""
        if self._lost.is_set():
            raise ConnectionLost(f"the connection to {self.peer} is closed", sent=True)
        if not self._writing_paused:
            return
        drainer = asyncio.get_running_loop().create_future()
        self._drainers.append(drainer)
        await drainer

    def close(self) -> None:
        """Close after the written bytes are sent, or abort after ``ABORT_AFTER`` seconds."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        transport.close()
        # A peer that does not read would keep the transport open forever.
        if transport.get_write_buffer_size():
            self._abort_timer = asyncio.get_running_loop().call_later(ABORT_AFTER, transport.abort)

    def abort(self) -> None:
        """Close at once, and drop the bytes that are not sent."""
        if self._transport is not None:
            self._transport.abort()

    async def wait_closed(self) -> None:
        """Wait until the transport is closed. Raises nothing."""
        if self._transport is not None:
            await self._lost.wait()

    # Callbacks of the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        forks.notify(self)

    def forked(self) -> None:
        """Neither read nor write in a forked process: both belong to the parent."""
        if self._transport is not None:
            forks.detach_transport(self._transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._splitter.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            frames = self._splitter.received(nbytes)
        except ProtocolError as error:
            self._refuse(error)
            return
        memory = self._shared_memory
        if self._splitter.starved and isinstance(memory, WaitingFrameMemory) and self._transport is not None:
            self._transport.pause_reading()
            memory.wait(self._splitter, self._continue_reading)
        if frames:
            self.frames_received(frames)
            if self._splitter.error is not None:  # complete frames, then a wrong size
                self._refuse(self._splitter.error)

    def _continue_reading(self) -> bool:
        """Read again if the large frame has room now."""
        has_room = self._splitter.retry()
        if has_room and self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
        return has_room

    def eof_received(self) -> bool | None:
        if self._splitter.waiting:
            self._end(ConnectionLost(f"{self.peer} closed the connection within a frame", sent=True))
        return None  # the transport closes itself

    def connection_lost(self, exc: Exception | None) -> None:
        if self._abort_timer is not None:
            self._abort_timer.cancel()
        self._lost.set()
        self._splitter.end()
        for drainer in self._drainers:
            if not drainer.done():
                drainer.set_exception(ConnectionLost(f"the connection to {self.peer} ended while writing", sent=True))
        self._drainers.clear()
        if exc is None:
            self._end(None)
        else:
            self._end(ConnectionLost(f"the connection to {self.peer} was lost: {exc}", sent=True))

    def pause_writing(self) -> None:
        self._writing_paused = True

    def resume_writing(self) -> None:
        self._writing_paused = False
        for drainer in self._drainers:
            if not drainer.done():
                drainer.set_result(None)
        self._drainers.clear()

    # Inside.

    _ended = False

    def _refuse(self, error: ProtocolError) -> None:
        self._end(error)
        self.abort()

    def _end(self, error: Exception | None) -> None:
        if not self._ended:
            self._ended = True
            self.stream_ended(error)


class FramedStreamReader(FramedStream):
    """A stream whose frames are read by ``await read_frame()``, one reader at a time.

    Unread frames are bounded: above ``UNREAD_BYTES`` or ``UNREAD_FRAMES`` the transport stops reading, which slows the
    peer down. It continues when half of them have been read.
    """

    def __init__(self, max_size: int, peer: str = "the peer", *, memory: FrameMemory | None = None) -> None:
        super().__init__(max_size, peer, memory=memory)
        self._frames: deque[Frame] = deque()
        self._unread = 0
        self._reading_paused = False
        self._at_end = False
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None

    async def read_frame(self) -> Frame | None:
        """Read the next frame, without its size; None when the peer has closed the connection between two frames.

        Raises ProtocolError for a wrong size, and ConnectionLost for an end within a frame or a reset connection.
        Complete frames that came earlier are returned first. A cancelled call loses no frame.
        """
        while not self._frames:
            if self._error is not None:
                raise self._error.with_traceback(None)
            if self._at_end:
                return None
            if self._waiter is not None:
                raise RuntimeError("another task is in read_frame() already")
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        frame = self._frames.popleft()
        self._unread -= len(frame)
        assert self._frames or not self._unread, "unread bytes belong to waiting frames"
        if self._reading_paused and self._unread * 2 <= UNREAD_BYTES and len(self._frames) * 2 <= UNREAD_FRAMES:
            self._reading_paused = False
            if self._transport is not None and not self._transport.is_closing():
                self._transport.resume_reading()
        return frame

    def frames_received(self, frames: list[Frame]) -> None:
        self._frames.extend(frames)
        self._unread += sum(map(len, frames))
        if not self._reading_paused and (self._unread > UNREAD_BYTES or len(self._frames) > UNREAD_FRAMES):
            self._reading_paused = True
            if self._transport is not None and not self._transport.is_closing():
                self._transport.pause_reading()
        self._wake()

    def stream_ended(self, error: Exception | None) -> None:
        self._at_end = True
        self._error = error
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
