"""``buffer_memory``: the bytes of records that are accepted and not settled, and the senders that wait for room."""

from __future__ import annotations

from collections.abc import Callable

from ..aio.byte_budget import ByteBudget
from ..aio.deadline import deadline
from ..aio.service import Service, ServiceState
from ..errors import IllegalStateError


class BufferMemory:
    """Waits for bytes of the budget, in the order of the calls, for at most ``max_block`` seconds.

    ``expedite`` is called when a sender starts to wait, because no batch may linger then.
    """

    __slots__ = ("_expedite", "_max_block", "_service", "budget", "waiting")

    def __init__(self, budget: ByteBudget, max_block: float, service: Service, expedite: Callable[[], None]) -> None:
        self.budget: ByteBudget = budget
        self.waiting: int = 0
        self._max_block = max_block
        self._service = service
        self._expedite = expedite

    async def acquire(self, size: int, topic: str) -> None:
        """Take ``size`` bytes. Raises KafkaTimeout after ``max_block`` seconds. A cancelled call holds nothing."""
        budget, bound = self.budget, self._max_block

        def describe() -> str:
            return (
                f"no room for a record of {size} bytes for topic {topic!r} within max_block={bound:g} s:"
                f" {budget.used} of buffer_memory={budget.total} bytes are in use"
            )

        self.hurry()
        self.waiting += 1
        try:
            with deadline(bound, describe):
                await self._service.while_running(budget.acquire(size))
        except IllegalStateError as error:
            self.raise_if_closed(topic, error)
            raise
        finally:
            self.waiting -= 1
        try:
            self._service.check()  # the producer may have been closed meanwhile
        except BaseException as error:
            budget.release(size)
            self.raise_if_closed(topic, error)
            raise

    def raise_if_closed(self, topic: str, error: BaseException, what: str = "the record") -> None:
        """Raise IllegalStateError that says what was not accepted, if a call waited while the producer was closed."""
        is_closed = self._service.state in (ServiceState.CLOSING, ServiceState.CLOSED)
        if is_closed and isinstance(error, IllegalStateError):
            raise IllegalStateError(
                f"{what} for topic {topic!r} was not accepted: the producer was closed while the call waited"
            ) from None

    async def drain(self, size: int) -> None:
        """Wait until ``size`` bytes are free, and take none."""
        # Senders that wait already come first, although there may be room for this size.
        if self.budget.free < size or self.budget.is_short:
            self.hurry()
            await self._service.while_running(self.budget.room_for(size))

    def hurry(self) -> None:
        """Send the open batches now, without waiting for ``linger``.

        One call is enough, because batches that are begun while senders wait do not linger.
        """
        if not self.budget.is_short:
            self._expedite()
