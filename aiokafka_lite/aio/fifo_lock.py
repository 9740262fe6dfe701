"""A first-in, first-out lock per name: holders proceed in the order in which they joined the queue."""

from __future__ import annotations

import asyncio
from collections import deque


class FifoLock:
    """One queue for each name. Owned by one event loop.

    A caller joins a queue, prepares its work while it waits, awaits its turn, does the work and leaves. It always
    leaves, from any place in the queue, so that a failed or cancelled caller does not block the queue.
    """

    __slots__ = ("_queues",)

    def __init__(self) -> None:
        self._queues: dict[str, deque[asyncio.Future[None]]] = {}

    def join(self, name: str) -> asyncio.Future[None]:
        """Join the end of the queue. The future is done when all earlier callers have left."""
        turn = asyncio.get_running_loop().create_future()
        queue = self._queues.get(name)
        if queue is None:
            self._queues[name] = queue = deque()
            turn.set_result(None)
        queue.append(turn)
        return turn

    def leave(self, name: str, turn: asyncio.Future[None]) -> None:
        """Leave the queue and wake its new head."""
        queue = self._queues[name]
        queue.remove(turn)
        if not queue:
            del self._queues[name]
        # If the caller has left from the middle of the queue, its head is unchanged and has its turn already.
        elif not queue[0].done():
            queue[0].set_result(None)

    def is_used(self, name: object) -> bool:
        """Return whether a caller is in the queue of this name."""
        return isinstance(name, str) and name in self._queues

    def __len__(self) -> int:
        """Return the number of callers in all queues."""
        return sum(map(len, self._queues.values()))
