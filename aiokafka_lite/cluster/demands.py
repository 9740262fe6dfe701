"""The metadata that callers demand: many callers share one request, and no caller gets an answer older than its call.

A caller takes a ticket and waits for it. An answer serves every ticket that was issued before the request was sent. So
a thousand callers cost one request, and a cancelled caller ends only its own wait. ``aio.shared_calls`` is for answers
that never change: there, a caller may join a request that was sent before its call.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ..aio.light_event import LightEvent
from ..errors import KafkaError


class Demands:
    """The demanded topics, by ticket. Tickets are numbers that grow. Owner: the ``Updater``."""

    def __init__(self) -> None:
        self.left_out: set[str] = set()
        """Topics that the last response omitted although they were requested. Their requests are paced."""
        self._served = self._sent = self._issued = 0
        self._failed = 0  # tickets up to this one ended with _error, and another attempt would not help
        self._error: KafkaError | None = None
        self._changed = LightEvent()  # replaced each time tickets are served or fail
        self._all_topics_ticket = 0  # the newest ticket that asks for all tracked topics
        self._topics: dict[str, int] = {}  # the newest ticket that asks for this topic
        self._never_asked: set[str] = set()  # demanded and unknown
        self._at_once = False

    @property
    def is_urgent(self) -> bool:
        """Whether the next request is not paced: a new topic is demanded, or a caller demands it ``at_once``."""
        return bool(self._never_asked) or self._at_once

    @property
    def is_pending(self) -> bool:
        """Whether a ticket waits for an answer."""
        return self._issued > max(self._served, self._failed)

    @property
    def asks_for_all(self) -> bool:
        """Whether a ticket for all tracked topics waits for an answer."""
        return self._all_topics_ticket > self._served

    @property
    def topics(self) -> set[str]:
        """The topics that are demanded by name."""
        return set(self._topics)

    def issue(self, topics: Iterable[str] | None, present: Collection[str], *, at_once: bool) -> int:
        """Issue a ticket for these topics, or for all tracked ones. ``present`` are the topics of the snapshot.

        All callers share one ticket until its request is sent.
        """
        if self._issued == self._sent:
            self._issued += 1
        ticket = self._issued
        self._at_once = self._at_once or at_once
        if topics is None:
            self._all_topics_ticket = ticket
        else:
            for name in topics:
                self._topics[name] = ticket
                if name not in present and name not in self.left_out:
                    self._never_asked.add(name)
        return ticket

    def send(self) -> int:
        """Record that a request is sent. Return the newest ticket that its answer will serve.

        From here on the topics are paced, even if this request fails.
        """
        self._sent = self._issued
        self._never_asked.clear()
        self._at_once = False
        return self._sent

    def settle(
        self, ticket: int, requested: set[str], answered: Collection[str | None], tracked: Collection[str]
    ) -> None:
        """Apply the answer to the request of this ticket: it decides about the topics that it was requested for."""
        # A newer ticket demands metadata that is newer than this answer.
        self._topics = {name: newest for name, newest in self._topics.items() if newest > ticket}
        # The other topics stay while a caller may still ask for them.
        self.left_out = {name for name in self.left_out - requested if name in tracked or name in self._topics}
        self.left_out |= requested.difference(answered)

    def serve(self, ticket: int) -> None:
        """Wake the callers of the tickets up to this one: the answer to its request has arrived.

        Of two hedged requests, the newer one may be answered first, and both in one turn of the event loop.
        """
        assert ticket <= self._sent <= self._issued, "served <= sent <= issued"
        self._served = max(self._served, ticket)
        self._notify()

    def fail(self, error: KafkaError) -> None:
        """End all tickets issued so far with an error. Their topics are still demanded."""
        self._error, self._failed = error, self._issued
        self._sent = self._issued
        self._notify()

    def drop_urgency(self) -> None:
        """Let the next request be paced, because the last one failed in a way that a quick repetition cannot mend."""
        self._never_asked.clear()
        self._at_once = False

    async def wait(self, ticket: int) -> None:
        """Wait, without a timeout, until the ticket is served. Raises the error that ended the ticket."""
        while self._served < ticket:
            if self._failed >= ticket:
                assert self._error is not None
                raise self._error
            await self._changed.wait()

    def _notify(self) -> None:
        changed, self._changed = self._changed, LightEvent()
        changed.set()
