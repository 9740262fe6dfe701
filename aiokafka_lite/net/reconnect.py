"""How long to wait before the next attempt to connect to a broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import anyio

from ..aio.light_event import LightEvent
from ..aio.retry import Backoff

STABLE_AFTER = 1.0
"""The shortest life of a stable connection, in seconds. If it is lost sooner, the attempt counts as failed."""


REFUSED_PAUSE = 1.0
"""The shortest pause in seconds after a refused login or certificate. A server may lock a user out after some failed
logins, and a provider that limits the rate of logins would refuse quick attempts again."""


class ReconnectBackoff:
    """The pause between attempts to one broker. It grows with each failure. Owned by that broker.

    The broker is healthy only if a connection lived longer than both ``STABLE_AFTER`` and the pause before it. Without
    this rule, the client would connect without a pause to a broker that accepts connections and drops them at once.
    """

    def __init__(self, initial: float, maximum: float, random: Callable[[], float]) -> None:
        self.retry_at: float = 0.0
        """The loop's time of the next attempt; in the past, or 0.0, if it may begin at once."""
        self._backoff = Backoff(initial, maximum, random=random)
        self._after_refusal = Backoff(max(initial, REFUSED_PAUSE), maximum, random=random)
        self._pause = 0.0
        self._was_reset = LightEvent()

    @property
    def stable_after(self) -> float:
        """Seconds that the next connection must live to show that the broker is healthy."""
        return max(self._pause, STABLE_AFTER)

    def attempt_failed(self, *, refused: bool = False) -> None:
        """Begin a pause, unless a pause has begun already: connections that are lost together are one failure.

        ``refused``: the broker has refused the login or the certificate, so the pause is at least ``REFUSED_PAUSE``.
        """
        now = asyncio.get_running_loop().time()
        if now >= self.retry_at:
            self._pause = self._backoff.next()
            if refused:
                self._pause = max(self._pause, self._after_refusal.next())
            else:
                self._after_refusal.reset()
            self.retry_at = now + self._pause

    def connection_lost(self, opened_at: float) -> None:
        """Begin a pause after a lost connection. After a stable connection, it is the shortest pause."""
        if asyncio.get_running_loop().time() - opened_at >= self.stable_after:
            self._backoff.reset()
        self.attempt_failed()

    def reset(self) -> None:
        """End the pause: the address has changed, or the broker is closed."""
        self._backoff.reset()
        self._after_refusal.reset()
        self.retry_at = 0.0
        self._was_reset.set()

    async def wait(self) -> None:
        """Wait until the pause has passed, or until ``reset``."""
        loop = asyncio.get_running_loop()
        while loop.time() < self.retry_at:
            self._was_reset.clear()
            with anyio.CancelScope(deadline=self.retry_at):
                await self._was_reset.wait()
