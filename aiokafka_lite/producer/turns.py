"""Lines of callers: who came first passes first, however long each of them takes to get ready."""

from __future__ import annotations

import asyncio
from collections import deque


class Turns:
    """One line for each name. Owned by one event loop.

    A caller joins, gets ready, awaits its turn, acts, and leaves; it leaves in any case, so that a caller that fails or
    is cancelled holds up nobody.
    """

    __slots__ = ("_lines",)

    def __init__(self) -> None:
        self._lines: dict[str, deque[asyncio.Future[None]]] = {}

    def join(self, name: str) -> asyncio.Future[None]:
        """Stand at the end of the line; the future is done when all before have left."""
        turn = asyncio.get_running_loop().create_future()
        line = self._lines.get(name)
        if line is None:
            self._lines[name] = line = deque()
            turn.set_result(None)
        line.append(turn)
        return turn

    def leave(self, name: str, turn: asyncio.Future[None]) -> None:
        """Leave the line, from its head or out of the middle."""
        line = self._lines[name]
        line.remove(turn)
        if not line:
            del self._lines[name]
        elif not line[0].done():
            line[0].set_result(None)

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))
