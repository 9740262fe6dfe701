"""Tickets: many callers share one request, and no caller gets an answer that is older than its call.

A caller takes a ticket and waits for it. An answer serves every ticket that was issued before the request was sent. So
a thousand callers cost one request, and a cancelled caller ends only its own wait.
"""

from __future__ import annotations

from ..aio.light_event import LightEvent
from ..errors import KafkaError


class Tickets:
    """Tickets are numbers that grow: ``served <= sent <= issued``."""

    def __init__(self) -> None:
        self.served: int = 0
        """Tickets up to this one are answered."""
        self._issued = 0
        self._sent = 0
        self._failed = 0  # tickets up to this one ended with _error, and another attempt would not help
        self._error: KafkaError | None = None
        self._changed = LightEvent()  # replaced each time tickets are served or fail

    def issue(self) -> int:
        """Return a ticket for the next request. All callers share it until that request is sent."""
        if self._issued == self._sent:
            self._issued += 1
        return self._issued

    @property
    def pending(self) -> bool:
        """Whether a ticket waits for an answer."""
        return self._issued > max(self.served, self._failed)

    def send(self) -> int:
        """Record that a request is sent. Return the newest ticket that its answer will serve."""
        self._sent = self._issued
        return self._sent

    def serve(self, ticket: int) -> None:
        """Record that the answer to the request of this ticket has arrived."""
        self.served = ticket
        self._notify()

    def fail(self, error: KafkaError) -> None:
        """End all tickets issued so far with an error."""
        self._error, self._failed = error, self._issued
        self._sent = self._issued
        self._notify()

    async def wait(self, ticket: int) -> None:
        """Wait, without a timeout, until the ticket is served. Raises the error that ended the ticket."""
        while self.served < ticket:
            if self._failed >= ticket:
                assert self._error is not None
                raise self._error
            await self._changed.wait()

    def _notify(self) -> None:
        changed, self._changed = self._changed, LightEvent()
        changed.set()
