r"""Splits bytes into lines. A newline ends a line; bytes after the last newline are a line too.

So ``a\n\nb`` is three lines, and the second one is empty. ``a\n`` is one line. Carriage returns belong to the line.
"""

from __future__ import annotations

from ...errors import ErrorCode, RecordTooLarge
from .descriptors import Reader


class LineSplitter:
    """Cuts blocks into lines. ``check`` refuses a line above ``limit`` bytes before all of it is read."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._tail: list[bytes] = []
        self._tail_size = 0

    def feed(self, block: bytes) -> bytes:
        """Add a block. Returns the lines that it completes, each with its newline."""
        end = block.rfind(b"\n") + 1
        whole = b""
        if end:
            whole = b"".join([*self._tail, block[:end]])
            self._tail = []
            self._tail_size = 0
        if end < len(block):
            self._tail.append(block[end:])
            self._tail_size += len(block) - end
        return whole

    def check(self, count: int) -> None:
        """Raise RecordTooLarge if the incomplete line is already too long. ``count`` lines came before it."""
        if self._tail_size > self._limit:
            text = f"line {count + 1} is longer than {self._limit} bytes (max.request.size)"
            raise RecordTooLarge(ErrorCode.MESSAGE_TOO_LARGE, reason=text)

    def end(self) -> bytes:
        """End the input. Returns the last line, with a newline added; empty if a newline ended it."""
        return b"".join([*self._tail, b"\n"]) if self._tail else b""


class Lines:
    """Reads lines from a descriptor. Each call returns the lines of one read."""

    def __init__(self, descriptor: int, limit: int) -> None:
        self._reader = Reader(descriptor)
        self._splitter = LineSplitter(limit)
        self._over = False

    async def next(self, count: int) -> bytes | None:
        """Read the next lines, each with a newline. Empty while a line is incomplete, None at the end.

        ``count`` lines came before. Raises RecordTooLarge for a line that is too long. Cancelling loses no bytes.
        """
        if self._over:
            return None
        self._splitter.check(count)
        block = await self._reader.read()
        if block:
            return self._splitter.feed(block)
        self._over = True
        return self._splitter.end()
