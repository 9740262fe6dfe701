"""A bound on bytes that many producers of bytes share."""

from __future__ import annotations

import asyncio
from collections import deque


class ByteBudget:
    """So many bytes and no more, given out first come, first served. Owned by one event loop.

    A small request does not overtake a large one that waits: else the large one could wait forever. Nor does it
    overtake one that was given its bytes and has not run since: what they do with them would be in the wrong order.
    """

    __slots__ = ("_free", "_granted", "_total", "_waiters")

    def __init__(self, total: int) -> None:
        self._total = total
        self._free = total
        self._waiters: deque[tuple[asyncio.Future[None], int, int]] = deque()  # with the bytes to take
        self._granted = 0  # bytes taken for callers that have not run since

    @property
    def total(self) -> int:
        return self._total

    @property
    def free(self) -> int:
        """Bytes that nobody holds. Those who wait may have a claim on them."""
        return self._free

    @property
    def used(self) -> int:
        return self._total - self._free

    @property
    def waiting(self) -> int:
        """How many callers wait in ``acquire``."""
        return sum(not granted.cancelled() for granted, _, _ in self._waiters)

    @property
    def is_short(self) -> bool:
        """Whether anybody waits in ``acquire``, or is about to wake there."""
        return bool(self._waiters or self._granted)

    def try_acquire(self, size: int) -> bool:
        """Take ``size`` bytes if they are free and nobody was here before."""
        if 0 <= size <= self._free and not self._waiters and not self._granted:
            self._free -= size
            return True
        self._check_size(size)
        return False

    async def acquire(self, size: int) -> None:
        """Take ``size`` bytes, waiting for them in turn. When cancelled, it holds nothing.

        Raises ValueError when ``size`` is above the total, since that would wait forever.
        """
        if not self.try_acquire(size):
            await self._wait(size, size)

    async def room_for(self, size: int) -> None:
        """Wait in turn until ``size`` bytes are free, and take none.

        To take them and give them back would not do: of two callers that do so in turn, each would hold them while the
        other tries.
        """
        if self.try_acquire(size):
            self.release(size)
        else:
            await self._wait(size, 0)

    async def _wait(self, size: int, taken: int) -> None:
        loop = asyncio.get_running_loop()
        granted = loop.create_future()
        self._waiters.append((granted, size, taken))
        # There may be room already, behind those that are about to wake; if it were given now, this one would go first.
        loop.call_soon(self._grant)
        try:
            await granted
            self._granted -= taken
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():  # granted and cancelled in the same turn of the loop
                self._granted -= taken
                self.release(taken)
            else:
                self._grant()  # those behind may fit where this one did not
            raise

    def release(self, size: int) -> None:
        """Give ``size`` bytes back."""
        if size < 0 or self._free + size > self._total:
            raise ValueError(f"{size} bytes given back, but {self.used} are in use")
        self._free += size
        self._grant()

    def _grant(self) -> None:
        # The bytes are taken here and not when the waiter wakes: in between, another could take them.
        # One that gave up leaves the queue when it comes to the head: to search it out would cost a pass over all.
        while self._waiters:
            granted, size, taken = self._waiters[0]
            if not granted.cancelled():
                if size > self._free:
                    return
                self._free -= taken
                self._granted += taken
                granted.set_result(None)
            self._waiters.popleft()

    def _check_size(self, size: int) -> None:
        if not 0 <= size <= self._total:
            raise ValueError(f"{size} bytes asked for; the budget is {self._total}")

    def __repr__(self) -> str:
        return f"<ByteBudget used={self.used} total={self._total} waiting={self.waiting}>"
