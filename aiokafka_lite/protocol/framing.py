"""Split a byte stream into frames: four bytes of size, then that many bytes.

A reader passes received bytes to ``feed``. Or it lets the transport write into ``get_buffer()`` and then calls
``received``, which saves one copy of a large frame. The rules:

1. Small frames are copied out of one intake buffer. A frame larger than half of it is received in its own buffer. The
   intake begins with ``FIRST_INTAKE`` and grows when the peer fills it, so that an idle connection has little memory.
2. The announced size of a frame is not trusted. Memory grows with the received bytes. A frame takes ``FIRST_CHUNK``,
   then ``SECOND_CHUNK``, and after that at most ``GROWTH`` times the bytes that the peer has sent.
3. After a wrong size the stream is unusable: frames before it are still returned, then every call raises ``error``.
4. After the end of the stream the buffers are dropped (``end``). Otherwise they would stay in memory until the next
   full garbage collection, because a transport, its protocol and its connection refer to one another.
5. A frame has at least the four bytes of a correlation id. Smaller frames are legal only in the exchange without
   headers after SaslHandshake v0. The client does not use it. The embedded broker can get one smaller message, the
   client's last one after a refused OAUTHBEARER token. Kafka closes the connection after this message as well.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from mmap import ACCESS_COPY, ACCESS_WRITE, mmap

from ..errors import ProtocolError
from .codec import Buffer

if sys.platform == "linux":
    from mmap import MADV_HUGEPAGE

SIZE_PREFIX = 4
LONGEST_FRAME = 0x7FFFFFFF
"""The largest frame in bytes: its size is a signed number of four bytes."""
LEAST_FRAME = 4
"""The smallest frame in bytes. Every header has at least a correlation id."""

FIRST_INTAKE = 2 * 1024
"""Bytes of the intake buffer of a new stream. Responses to an idle client are smaller."""
INTAKE_SIZE = 64 * 1024
"""The maximum bytes of the intake buffer."""
FIRST_CHUNK = 64 * 1024
"""Bytes of the first buffer of a large frame."""
SECOND_CHUNK = 1024 * 1024
"""Bytes of the buffer after half of ``FIRST_CHUNK`` was received. Most fetch responses then need no larger buffer. This
saves time: the allocator returns the pages of two freed buffers of some hundred KiB, which takes ten times as long as
the copy."""
GROWTH = 4
"""Buffers grow by this factor. So all copies together are at most a third of the frame's size."""

MAPPED = 8 * 1024 * 1024
"""The size in bytes from which a buffer is mapped memory, which Python does not fill with zeros. Filling 64 MiB blocked
the event loop for 40 ms."""

_read_size = struct.Struct(">i").unpack_from
_write_size = struct.Struct(">i").pack_into


class FrameTooLarge(ProtocolError):
    """The peer sends a frame that is larger than the limit."""


class WrongProtocol(ProtocolError):
    """The peer speaks another protocol, such as HTTP. A retry does not help."""


def mapped(size: int) -> mmap:
    """Map new private memory. The system fills each page with zeros when it is first written.

    If the system has large pages, they are used. With small pages, page faults took 0.7 of 0.9 ms per MB.
    """
    # Windows copies on write only what is mapped from a file; its other mappings are private without that.
    memory = mmap(-1, size, access=ACCESS_WRITE if sys.platform == "win32" else ACCESS_COPY)
    if sys.platform == "linux":
        with suppress(OSError):  # the kernel has no large pages
            memory.madvise(MADV_HUGEPAGE)
    return memory


class FrameMemory:
    """A limit for the bytes that the large frames of several streams hold while they are being received.

    Owned by the component that owns the connections, and shared by their splitters. A frame counts until it is complete
    or its stream ends. The owner may count complete frames as well, and keep ``reserved`` bytes for them. Otherwise two
    peers that never complete their frames could use up the memory. If an incomplete frame does not fit, ``make_room``
    is called: it ends another stream and returns True, or returns False.
    """

    __slots__ = ("_make_room", "held", "limit", "reserved")

    def __init__(self, limit: int, *, reserved: int = 0, make_room: Callable[[], bool] = lambda: False) -> None:
        self.limit: int = limit
        self.reserved: int = reserved
        self._make_room = make_room
        self.held: int = 0

    def __repr__(self) -> str:
        return f"<FrameMemory held={self.held} limit={self.limit}>"

    def take(self, count: int) -> bool:
        """Count ``count`` more bytes. Returns False, and counts nothing, if they do not fit."""
        if self.held + count > self.limit:
            return False
        self.held += count
        return True

    def take_incomplete(self, count: int) -> bool:
        """Count like ``take``, for an incomplete frame. Such a frame cannot use the reserved bytes."""
        while self.held + count > self.limit - self.reserved:
            # Each call ends one other stream, whose bytes are given back before this returns.
            if not self._make_room():
                return False
        return self.take(count)

    def give_back(self, count: int) -> None:
        """Subtract bytes that belong to a complete frame now, or are dropped."""
        self.held -= count
        assert self.held >= 0, "no bytes are given back twice"


class WaitingFrameMemory:
    """A bound like ``FrameMemory``, but a stream without room waits: its transport stops reading, which slows its peer.

    ``limit`` is the bound, and ``largest`` the maximum size of one frame. All streams share ``limit - largest`` bytes.
    When these bytes are used up, one stream at a time may use the other ``largest`` bytes. So this stream can always
    complete its frame, and the others wait in order. The first ``FIRST_CHUNK`` bytes of each frame do not count.

    Some event loops pass received bytes on although reading is paused (asyncio on Windows). There, the connection of a
    waiting stream may close, as if the broker had closed it.
    """

    __slots__ = ("_first", "_shared", "_waiting", "held", "limit")

    def __init__(self, limit: int, largest: int) -> None:
        self.limit: int = limit
        self._shared = limit - largest
        self.held: int = 0
        self._first: FrameSplitter | None = None
        self._waiting: dict[FrameSplitter, Callable[[], bool]] = {}

    def __repr__(self) -> str:
        return f"<WaitingFrameMemory held={self.held} limit={self.limit} waiting={len(self._waiting)}>"

    def take(self, count: int, stream: FrameSplitter) -> bool:
        """Count ``count`` more bytes of ``stream``. Returns False, and counts nothing, if the stream has to wait."""
        if count and self.held + count > self._shared:
            # One stream at a time may exceed the shared part. So one frame can always be completed, and the memory
            # cannot be held by incomplete frames that all wait for each other.
            if self._first is None:
                self._first = stream
            if self._first is not stream:
                return False
        self.held += count
        return True

    def wait(self, stream: FrameSplitter, retry: Callable[[], bool]) -> None:
        """Call ``retry`` whenever bytes are given back, until it returns True or the frame of ``stream`` is dropped."""
        self._waiting[stream] = retry

    def give_back(self, count: int, stream: FrameSplitter) -> None:
        """Subtract the bytes of a frame of ``stream`` that is complete or dropped."""
        self.held -= count
        assert self.held >= 0, "no bytes are given back twice"
        self._waiting.pop(stream, None)
        if self._first is stream:
            self._first = None
        for waiting, retry in tuple(self._waiting.items()):
            # In order: if a small frame could pass a large one, the large one might wait forever.
            if not retry():
                return
            self._waiting.pop(waiting, None)


class FrameSplitter:
    """Returns whole frames of one stream. Owned by the reader of one connection.

    A frame is ``bytes``, or a read-only ``memoryview`` if it is large. The memory of a frame is never reused.
    ``max_size`` is in bytes, without the size prefix; ``accept`` changes it. ``peer`` is for error texts. ``memory`` is
    shared with other streams; with None, their sum has no bound. With a ``WaitingFrameMemory``, the reader checks
    ``starved`` after ``received``: as long as it is true, ``get_buffer`` has no room, and ``retry`` asks for room.

    Raises ``ProtocolError`` for a wrong size, see rule 3, and for a frame that a ``FrameMemory`` has no room for.
    """

    __slots__ = (
        "_counted",
        "_end",
        "_filled",
        "_intake",
        "_intake_size",
        "_intake_view",
        "_large",
        "_large_size",
        "_large_view",
        "_limit",
        "_memory",
        "_writable",
        "error",
        "max_size",
        "peer",
        "starved",
    )

    def __init__(
        self,
        max_size: int,
        peer: str,
        *,
        intake_size: int = INTAKE_SIZE,
        memory: FrameMemory | WaitingFrameMemory | None = None,
    ) -> None:
        self.max_size: int = max_size
        self.peer: str = peer
        self._memory = memory
        self.error: ProtocolError | None = None
        self._limit = -1  # negative at first, so that the first size is compared with other protocols; then max_size
        self._intake_size = max(intake_size, 64)
        self._intake = bytearray(min(FIRST_INTAKE, self._intake_size))
        self._intake_view = memoryview(self._intake)
        self._end = 0
        self._large: bytearray | mmap | None = None  # the buffer of the large frame that is being received
        self._large_view = memoryview(b"")
        self._large_size = 0
        self._filled = 0
        self._writable = 0  # the end of the part of the large buffer that may be written
        self._counted = 0  # bytes that ``memory`` counts for the large frame
        self.starved: bool = False
        """Whether the large frame waits for room in a ``WaitingFrameMemory``."""

    def __repr__(self) -> str:
        return f"<FrameSplitter peer={self.peer} waiting={self.waiting}>"

    @property
    def holds_memory(self) -> bool:
        """Whether a large frame is being received."""
        return self._large is not None

    @property
    def waiting(self) -> int:
        """Received bytes of an incomplete frame. If it is not 0 at the end, the stream was cut off."""
        return self._end if self._large is None else SIZE_PREFIX + self._filled

    def accept(self, max_size: int) -> None:
        """Accept frames of up to ``max_size`` bytes from now on."""
        self.max_size = max_size
        if self._limit >= 0:
            self._limit = max_size

    def end(self) -> None:
        """Drop the buffers, because the stream has ended (rule 4). Later bytes are refused."""
        if self.error is None:
            self.error = ProtocolError(f"{self.peer} sent bytes after the end of the stream")
        self._release_large()
        self._intake, self._end = bytearray(), 0
        self._intake_view = memoryview(self._intake)

    def feed(self, data: Buffer) -> list[bytes | memoryview]:
        """Add the next bytes of the stream; return the frames that are now complete."""
        frames: list[bytes | memoryview] = []
        view = memoryview(data)
        while len(view) and not (frames and self.error):
            room = self.get_buffer()
            count = min(len(room), len(view))
            room[:count] = view[:count]
            try:
                frames += self.received(count)
            except ProtocolError:
                if not frames:
                    raise
            view = view[count:]
        return frames

    def get_buffer(self) -> memoryview:
        """Return the buffer for the next bytes, until ``received`` is called. Empty only if ``starved``."""
        if self.error:
            raise self.error
        if self._large is not None:
            return self._large_view[self._filled : self._writable]
        return self._intake_view[self._end :]

    def received(self, count: int) -> list[bytes | memoryview]:
        """Note that ``count`` bytes were written to ``get_buffer()``; return the frames that are now complete."""
        if self.error:
            raise self.error
        if self._large is not None:
            return self._received_in_place(count)
        return self._received_in_intake(count)

    # Hot: 725,000 frames of 100 bytes a second on the machine where benchmarks/framing was first run.
    def _received_in_intake(self, count: int) -> list[bytes | memoryview]:
        start, end = 0, self._end + count
        if end == len(self._intake) < self._intake_size:
            self._widen_intake()
        intake, view, limit = self._intake, self._intake_view, self._limit
        frames: list[bytes | memoryview] = []
        while end - start >= SIZE_PREFIX:
            (size,) = _read_size(intake, start)
            if not LEAST_FRAME <= size <= limit:
                self.error = self._check_size(size)
                if self.error and not frames:
                    raise self.error
                if self.error:
                    return frames
                limit = self._limit
            stop = start + SIZE_PREFIX + size
            if stop > end:
                # The intake is free for the next frame: this frame gets a buffer of its own (rule 1).
                if size > len(intake) // 2:
                    self._end = 0
                    self._receive_in_place(size, view[start + SIZE_PREFIX : end])
                    if self.error and not frames:
                        raise self.error
                    return frames
                break
            # A copy, because the intake is used again.
            frames.append(bytes(view[start + SIZE_PREFIX : stop]))
            start = stop
        if start:
            self._end = end - start
            view[: self._end] = view[start:end]
        else:
            self._end = end
        return frames

    def _widen_intake(self) -> None:
        """Continue in a larger intake buffer, because the peer has filled the present one."""
        widened = bytearray(min(self._intake_size, len(self._intake) * GROWTH))
        widened[: len(self._intake)] = self._intake
        self._intake, self._intake_view = widened, memoryview(widened)

    def _receive_in_place(self, size: int, begun: memoryview) -> None:
        self._large_size = size
        self._filled = len(begun)
        self._grow(FIRST_CHUNK if len(begun) < FIRST_CHUNK // 2 else SECOND_CHUNK, begun)

    def _grow(self, room: int, begun: memoryview) -> None:
        """Make ``room`` bytes of the frame writable. Sets ``error`` or ``starved`` if shared memory has too few."""
        memory = self._memory
        if memory is None and room >= MAPPED:
            room = self._large_size  # mapped memory costs nothing before bytes come, and this saves the later copies
        room = min(self._large_size, room)
        if isinstance(memory, FrameMemory):
            if not memory.take_incomplete(room - self._counted):
                self.error = self._no_room(memory)
                self._release_large()
                return
            self._counted = room
        elif memory is not None:
            self.starved = not memory.take(max(room - FIRST_CHUNK - self._counted, 0), self)
            if not self.starved:
                self._counted = max(room - FIRST_CHUNK, 0)
            # The received part stays. The transport does not read until ``retry`` has found room.
            elif self._large is not None:
                return
            else:
                room = FIRST_CHUNK
        if self._large is None or room > len(self._large):
            # Mapped memory gets its final size at once, because its pages are free until bytes come. ``_writable``
            # keeps the transport within the bytes that ``memory`` counts.
            size = self._large_size if room >= MAPPED and isinstance(memory, WaitingFrameMemory) else room
            grown: bytearray | mmap = bytearray(size) if size < MAPPED else mapped(size)
            view = memoryview(grown)
            view[: len(begun)] = begun
            self._large, self._large_view = grown, view
        self._writable = room

    def retry(self) -> bool:
        """Ask again for the room that a starved frame waits for. Returns whether the frame can be received now."""
        if self.starved:
            self._grow(self._next_room(), self._large_view[: self._filled])
        return not self.starved

    def _next_room(self) -> int:
        """Return the bytes of the frame that may be received before the next growth."""
        if self._filled >= MAPPED and isinstance(self._memory, WaitingFrameMemory):
            return self._filled + MAPPED  # the buffer has its final size already
        return max(SECOND_CHUNK, self._filled * GROWTH)

    def _received_in_place(self, count: int) -> list[bytes | memoryview]:
        self._filled += count
        if self._filled < self._writable:
            return []
        if self._filled < self._large_size:
            self._grow(self._next_room(), self._large_view[: self._filled])
            if self.error:
                raise self.error
            return []
        frame = self._large_view.toreadonly()
        self._release_large()
        return [frame]

    def _release_large(self) -> None:
        if self._large is not None and self._memory is not None:
            if isinstance(self._memory, FrameMemory):
                self._memory.give_back(self._counted)
            else:
                self._memory.give_back(self._counted, self)
        self._large, self._large_view = None, memoryview(b"")
        self._writable, self._counted, self.starved = 0, 0, False

    def _no_room(self, memory: FrameMemory) -> ProtocolError:
        return ProtocolError(
            f"{self.peer} sends a frame of {self._large_size} bytes, but frames of all connections that are not "
            f"complete hold {memory.held} bytes already; together they may have {memory.limit - memory.reserved}"
        )

    def _check_size(self, size: int) -> ProtocolError | None:
        """Check a size. Returns its error, or None.

        The first size of a stream is also compared with the first bytes of other protocols, which may be within the
        limit.
        """
        first, self._limit = self._limit < 0, self.max_size
        fits = LEAST_FRAME <= size <= self.max_size
        other = _other_protocol(size.to_bytes(4, "big", signed=True)) if first or not fits else ""
        if fits and not other:
            return None
        if other:
            return WrongProtocol(f"{self.peer} does not speak Kafka: {other} (read as a frame size: {size})")
        if size < 0:
            return ProtocolError(f"{self.peer} announced a frame of {size} bytes; a size is never negative")
        if size < LEAST_FRAME:
            return ProtocolError(f"{self.peer} announced a frame of {size} bytes, too small for a header")
        return FrameTooLarge(f"{self.peer} announced a frame of {size} bytes; at most {self.max_size} are accepted")


_HTTP_METHODS = frozenset({b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI", b"DELE", b"PATC", b"CONN", b"PRI "})


def _other_protocol(prefix: bytes) -> str:
    """Return a description of the peer if its first bytes belong to another known protocol; else empty."""
    if prefix == b"HTTP":
        return "an HTTP server responded, so the port is probably wrong"
    if prefix in _HTTP_METHODS:
        return "it sent an HTTP request"
    if prefix[:2] == b"\x15\x03":
        return 'it responded with a TLS alert, so the port requires TLS: set security_protocol to "SSL" or "SASL_SSL"'
    if prefix[:2] == b"\x16\x03":
        return "it began a TLS handshake on a plaintext connection"
    return ""


def open_frame() -> bytearray:
    """Begin a frame, to which a message is appended. It has room for its size, which ``close_frame`` writes."""
    return bytearray(SIZE_PREFIX)


def size_of(out: bytearray) -> int:
    """Return the size to write at the start of a frame. Raises ValueError if it does not fit there."""
    size = len(out) - SIZE_PREFIX
    if size > LONGEST_FRAME:
        raise ValueError(f"a frame must be at most {LONGEST_FRAME} bytes long, got {size} bytes")
    return size


def close_frame(out: bytearray) -> bytearray:
    """Write the size at the start of the frame; return the same object."""
    _write_size(out, 0, size_of(out))
    return out


def frame(body: Buffer) -> bytes:
    """Put the size of ``body`` in front of it."""
    return struct.pack(">i", len(body)) + body
