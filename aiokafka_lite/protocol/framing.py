"""Cut a byte stream into frames: four bytes of size, then that many bytes.

This module owns the cutting and the memory that it takes. It knows nothing of sockets: a reader either feeds it what
came (``feed``), or lets the transport write straight into it (``get_buffer``, ``received``), which spares a large frame
one copy.

A size is only a claim. A frame is given memory in proportion to the bytes of it that have come, so a peer that
announces 100 MB and sends none costs no more than one first chunk.
"""

from __future__ import annotations

import struct

from ..errors import ProtocolError
from .codec import Buffer

SIZE_PREFIX = 4
LEAST_FRAME = 4
"""Every header begins with at least a correlation id, so that nothing smaller is a frame."""

INTAKE_SIZE = 64 * 1024
FIRST_CHUNK = 1024 * 1024
GROWTH = 4
"""A large frame's memory is at most this many times what has come of it; the factor bounds the copying to a third."""

_read_size = struct.Struct(">i").unpack_from
_write_size = struct.Struct(">i").pack_into


class WrongProtocol(ProtocolError):
    """The peer speaks what is known not to be Kafka, as HTTP; so it will not speak Kafka the next time, either."""


class FrameSplitter:
    """Yields whole frames, whatever way the stream was cut. Owned by the reader of one connection.

    Frames are ``bytes``, or a read-only ``memoryview`` for large ones, which were received in place; no frame's memory
    is used again. ``max_size`` is in bytes and does not count the size prefix; ``peer`` is only for messages.

    A size that no frame can have is a ``ProtocolError``. Frames that came whole before it are still returned: the error
    then waits in ``error``, and every later call raises it.
    """

    __slots__ = (
        "_end",
        "_filled",
        "_intake",
        "_intake_view",
        "_large",
        "_large_size",
        "_large_view",
        "_limit",
        "error",
        "max_size",
        "peer",
    )

    def __init__(self, max_size: int, peer: str, *, intake_size: int = INTAKE_SIZE) -> None:
        self.max_size = max_size
        self.peer = peer
        self.error: ProtocolError | None = None
        self._limit = -1  # so that the first size is looked at closely; max_size from then on
        self._intake = bytearray(max(intake_size, 64))
        self._intake_view = memoryview(self._intake)
        self._end = 0
        self._large: bytearray | None = None  # the frame that is received in place, if any
        self._large_view = memoryview(b"")
        self._large_size = 0
        self._filled = 0

    def __repr__(self) -> str:
        return f"<FrameSplitter peer={self.peer} waiting={self.waiting}>"

    @property
    def waiting(self) -> int:
        """Bytes that have come of a frame that is not whole yet; not zero at the end of a stream that was cut short."""
        return self._end if self._large is None else SIZE_PREFIX + self._filled

    def feed(self, data: Buffer) -> list[bytes | memoryview]:
        """Take the next bytes of the stream; return the frames that they complete."""
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
        """Where the next bytes of the stream belong: never empty, and good until ``received`` is told of them."""
        if self.error:
            raise self.error
        if self._large is not None:
            return self._large_view[self._filled :]
        return self._intake_view[self._end :]

    def received(self, count: int) -> list[bytes | memoryview]:
        """``count`` bytes were written to ``get_buffer()``; return the frames that they complete."""
        if self.error:
            raise self.error
        if self._large is not None:
            return self._received_in_place(self._large, count)
        return self._received_in_intake(count)

    # Hot: 725,000 frames of 100 bytes a second on the machine where benchmarks/framing was first run.
    def _received_in_intake(self, count: int) -> list[bytes | memoryview]:
        intake, view, limit = self._intake, self._intake_view, self._limit
        frames: list[bytes | memoryview] = []
        start, end = 0, self._end + count
        while end - start >= SIZE_PREFIX:
            (size,) = _read_size(intake, start)
            if not LEAST_FRAME <= size <= limit:
                self.error = self._judge(size)
                if self.error and not frames:
                    raise self.error
                if self.error:
                    return frames
                limit = self._limit
            stop = start + SIZE_PREFIX + size
            if stop > end:
                if size > len(intake) // 2:
                    self._receive_in_place(size, view[start + SIZE_PREFIX : end])
                    self._end = 0
                    return frames
                break
            frames.append(bytes(view[start + SIZE_PREFIX : stop]))
            start = stop
        if start:
            self._end = end - start
            view[: self._end] = view[start:end]
        else:
            self._end = end
        return frames

    def _receive_in_place(self, size: int, begun: memoryview) -> None:
        self._large_size = size
        self._filled = len(begun)
        self._allocate(max(FIRST_CHUNK, len(begun)), begun)

    def _allocate(self, room: int, begun: memoryview) -> None:
        self._large = bytearray(min(self._large_size, room))
        self._large_view = memoryview(self._large)
        self._large_view[: len(begun)] = begun

    def _received_in_place(self, large: bytearray, count: int) -> list[bytes | memoryview]:
        self._filled += count
        if self._filled < len(large):
            return []
        if self._filled < self._large_size:
            self._allocate(self._filled * GROWTH, self._large_view)
            return []
        frame = self._large_view.toreadonly()
        self._large, self._large_view = None, memoryview(b"")
        return [frame]

    def _judge(self, size: int) -> ProtocolError | None:
        """What is wrong with a size, if anything.

        The first size of a stream is where a wrong port shows: other protocols' first bytes, read as a size, can lie
        within a generous limit.
        """
        first, self._limit = self._limit < 0, self.max_size
        fits = LEAST_FRAME <= size <= self.max_size
        stranger = _stranger(size.to_bytes(4, "big", signed=True)) if first or not fits else ""
        if fits and not stranger:
            return None
        if stranger:
            return WrongProtocol(f"{self.peer} does not speak Kafka here: {stranger} (read as a frame size: {size})")
        if size < 0:
            return ProtocolError(f"{self.peer} announced a frame of {size} bytes; a size is never negative")
        if size < LEAST_FRAME:
            return ProtocolError(f"{self.peer} announced a frame of {size} bytes, too small for a header")
        return ProtocolError(f"{self.peer} announced a frame of {size} bytes; at most {self.max_size} are accepted")


_HTTP_METHODS = frozenset({b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI", b"DELE", b"PATC", b"CONN", b"PRI "})


def _stranger(prefix: bytes) -> str:
    """Whose first bytes these are, if they are known not to be Kafka's."""
    if prefix == b"HTTP":
        return "an HTTP server answered, so the port is probably wrong"
    if prefix in _HTTP_METHODS:
        return "it sent an HTTP request"
    if prefix[:2] == b"\x15\x03":
        return 'it answered with a TLS alert, so the port wants TLS: set security_protocol to "SSL" or "SASL_SSL"'
    if prefix[:2] == b"\x16\x03":
        return "it began a TLS handshake where plain text was expected"
    return ""


def open_frame() -> bytearray:
    """An empty frame to append to: room for the size, which ``close_frame`` fills in."""
    return bytearray(SIZE_PREFIX)


def close_frame(out: bytearray) -> bytearray:
    """Write the size in front of what was appended since ``open_frame``; return the same object."""
    size = len(out) - SIZE_PREFIX
    if size > 0x7FFFFFFF:
        raise ValueError(f"a frame of {size} bytes is more than its size prefix can say")
    _write_size(out, 0, size)
    return out


def frame(body: Buffer) -> bytes:
    """``body`` with its size in front."""
    return struct.pack(">i", len(body)) + body
