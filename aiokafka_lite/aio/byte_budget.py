"""A limit for the bytes that many tasks hold in memory together."""

from __future__ import annotations

import asyncio
from collections import deque


class ByteBudget:
    """A fixed number of bytes that callers acquire and release, in the order of their calls. Owned by one event loop.

    Rule 1: A small request does not overtake a large one that waits, because the large one could wait forever.

    Rule 2: A request does not overtake a caller that has received its bytes and has not run yet. Otherwise a later
    record would enter its partition before an earlier one.
    """

    __slots__ = ("_free", "_granted", "_total", "_waiters")

    def __init__(self, total: int) -> None:
        self._total = total
        self._free = total
        self._waiters: deque[tuple[asyncio.Future[None], int, int]] = deque()  # bytes that must be free, bytes to take
        self._granted = 0  # callers that received their bytes and have not run since

    @property
    def total(self) -> int:
        return self._total

    @property
    def free(self) -> int:
        """The bytes that no caller holds. Callers that wait already get them first."""
        return self._free

    @property
    def used(self) -> int:
        return self._total - self._free

    @property
    def waiting(self) -> int:
        """The number of callers that wait in ``acquire`` or ``room_for``."""
        return sum(not granted.cancelled() for granted, _, _ in self._waiters)

    @property
    def is_short(self) -> bool:
        """Whether a caller waits, or has received its bytes and has not run since."""
        return bool(self._waiters or self._granted)

    def try_acquire(self, size: int) -> bool:
        """Take ``size`` bytes if they are free and no caller waits. Raises ValueError as ``acquire`` does."""
        if 0 <= size <= self._free and not self._waiters and not self._granted:
            self._free -= size
            return True
        self._check_size(size)
        return False

    async def acquire(self, size: int) -> None:
        """Take ``size`` bytes, after the callers that wait already. A cancelled call takes none.

        Raises ValueError if ``size`` is above the total, since the call could wait forever.
        """
        if not self.try_acquire(size):
            await self._wait(size, size)

    async def room_for(self, size: int) -> None:
        """Wait until ``size`` bytes are free, after the callers that wait already, and take none.

        Callers cannot use ``acquire`` and ``release`` instead: two of them could in turn hold the bytes, so that each
        prevents the other from taking them.
        """
        if self.try_acquire(size):
            self.release(size)
        else:
            await self._wait(size, 0)

    async def _wait(self, size: int, reserved: int) -> None:
        loop = asyncio.get_running_loop()
        granted = loop.create_future()
        self._waiters.append((granted, size, reserved))
        # There may be room already, but callers that are about to run come first. So check in the next turn of the
        # loop.
        loop.call_soon(self._grant)
        try:
            await granted
            self._granted -= reserved
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():  # granted and cancelled in the same turn
                self._granted -= reserved
                self.release(reserved)
            else:
                self._grant()  # a smaller request may fit
            raise

    def release(self, size: int) -> None:
        """Give ``size`` bytes back. Raises ValueError for more bytes than are in use."""
        if size < 0 or self._free + size > self._total:
            raise ValueError(f"size must be at most the {self.used} bytes in use, got {size}")
        self._free += size
        self._grant()

    def _grant(self) -> None:
        # The bytes are taken here and not when the caller runs, because another caller could take them before. A
        # cancelled caller is removed when it reaches the head of the queue, because removing it at once would cost a
        # search.
        while self._waiters:
            granted, size, reserved = self._waiters[0]
            if not granted.cancelled():
                if size > self._free:
                    return
                self._free -= reserved
                self._granted += reserved
                assert self._free >= 0, "the bytes of all holders are at most the total"
                granted.set_result(None)
            self._waiters.popleft()

    def _check_size(self, size: int) -> None:
        if not 0 <= size <= self._total:
            raise ValueError(f"size must be from 0 to {self._total} bytes, got {size}")

    def __repr__(self) -> str:
        return f"<ByteBudget used={self.used} total={self._total} waiting={self.waiting}>"
