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
        self._count = 0

    def feed(self, block: bytes) -> list[bytes]:
        """The lines that a block completes."""
        lines = block.split(b"\n")
        if len(lines) > 1:
            lines[0] = b"".join([*self._tail, lines[0]])
            self._tail = []
            self._tail_size = 0
        rest = lines.pop()
        if rest:
            self._tail.append(rest)
            self._tail_size += len(rest)
        self._count += len(lines)
        if self._tail_size > self._limit:
            raise RecordTooLarge(
                ErrorCode.MESSAGE_TOO_LARGE, f"line {self._count + 1} is longer than {self._limit} bytes"
            )
        return lines

    def end(self) -> list[bytes]:
        """The last line, where no newline ends it."""
        return [b"".join(self._tail)] if self._tail else []


class Lines:
    """Lines of a descriptor, as many at a time as a read gives."""

    def __init__(self, descriptor: int, limit: int) -> None:
        self._descriptor = descriptor
        self._splitter = LineSplitter(limit)
        self._over = False

    async def next(self) -> list[bytes] | None:
        """Some lines, perhaps none yet; None at the end. May be cancelled, and loses nothing by it."""
        if self._over:
            return None
        block = await read(self._descriptor)
        if block:
            return self._splitter.feed(block)
        self._over = True
        return self._splitter.end()
