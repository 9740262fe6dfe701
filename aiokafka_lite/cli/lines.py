"""Bytes into lines, byte for byte: a line is what stands before a newline, and after the last one if there is more.

So ``a\n\nb`` is three lines, the second of them empty, and ``a\n`` is one. Carriage returns belong to the line.
"""

from __future__ import annotations

from aiokafka_lite.errors import ErrorCode, RecordTooLarge

from .descriptors import read


class LineSplitter:
    """Cuts blocks into lines. Pure. A line above ``limit`` bytes is RecordTooLarge before all of it is in memory."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._tail: list[bytes] = []
        self._tail_size = 0

    def feed(self, block: bytes) -> bytes:
        """The lines that a block completes, each with its newline."""
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
        """Raise if the line that follows the first ``count`` is too long already."""
        if self._tail_size > self._limit:
            text = f"line {count + 1} is longer than {self._limit} bytes"
            raise RecordTooLarge(ErrorCode.MESSAGE_TOO_LARGE, text)

    def end(self) -> bytes:
        """The last line with a newline, where none ended it."""
        return b"".join([*self._tail, b"\n"]) if self._tail else b""


class Lines:
    """Lines of a descriptor, as many at a time as a read gives."""

    def __init__(self, descriptor: int, limit: int) -> None:
        self._descriptor = descriptor
        self._splitter = LineSplitter(limit)
        self._over = False

    async def next(self, count: int) -> bytes | None:
        """Some lines, each with a newline, perhaps none yet; None at the end. ``count`` is how many there were.

        May be cancelled, and loses nothing by it. Raises RecordTooLarge for a line that does not end.
        """
        if self._over:
            return None
        self._splitter.check(count)
        block = await read(self._descriptor)
        if block:
            return self._splitter.feed(block)
        self._over = True
        return self._splitter.end()
