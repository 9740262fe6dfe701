"""What comes of records once they are handed over: the promise of a batch, and a record's light share in it.

Batches travel, not records, so it is the batch that has a fate, and a record's ``Delivery`` only points at (fate,
index). A record costs no future and no task. Each *waiting* call makes one future of its own, since a future that
several tasks await would be cancelled for all of them by the first that gives up.

A fate may also be to move: records held back until their topic is known go to batches then, and a batch that a broker
calls too large is split. Whoever waits follows.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator, Iterable
from functools import partial

from ..errors import IllegalStateError
from ..types import RecordMetadata

logger = logging.getLogger(__name__)

UNKNOWN_OFFSET = -1
"""The offset of a record that was written where the broker did not say: acks=0, or a batch that it had already."""


SHOWN = 10
"""Topics that a line of the log names."""


class Loss:
    """What many groups of records fail with together, as when a producer ends: a line of the log for all of them.

    It is written when the last of them is gone, and names the topics of those that nobody asked about.
    """

    __slots__ = ("_error", "_unobserved")

    def __init__(self, error: Exception) -> None:
        self._error = error
        self._unobserved: dict[str, None] = {}

    def add(self, fate: Fate) -> None:
        """These records are gone, and nobody was given the error."""
        self._unobserved[fate.topic] = None

    def __del__(self) -> None:
        if self._unobserved:
            logger.error("records for %s were not delivered: %r", _listed(self._unobserved), self._error)


class Lateness:
    """What groups of records fail with one after the other in an outage: a line for the first, and one in the end.

    Owned by the router, which says when it is over.
    """

    __slots__ = ("_groups", "_topics")

    def __init__(self) -> None:
        self._groups = 0
        self._topics: dict[str, None] = {}

    def add(self, fate: Fate) -> None:
        """These records are gone, and nobody was given the error."""
        self._groups += 1
        self._topics[fate.topic] = None
        if self._groups == 1:
            logger.error("records for %s were not delivered: %r; others are counted", fate.name, fate.error)

    def over(self) -> None:
        """Records are delivered again."""
        if self._groups > 1:
            logger.error("records for %s were not delivered: %d batches in all", _listed(self._topics), self._groups)
        self._groups = 0
        self._topics.clear()


def _listed(topics: Iterable[str]) -> str:
    """The first names, and how many more there are."""
    names = sorted(topics)
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")


class Fate:
    """What comes of a group of records: delivered, failed, or moved to other groups. Settled once, by its owner.

    ``moved`` says for each record where it went and its index there. ``observed`` tells that somebody was given the
    error; one that nobody was given is logged once when the last reference goes.
    """

    __slots__ = (
        "_followers",
        "_loss",
        "_waiters",
        "base_offset",
        "error",
        "log_append_time",
        "moved",
        "observed",
        "partition",
        "settled",
        "topic",
    )

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.settled = False
        self.error: Exception | None = None
        self.base_offset = UNKNOWN_OFFSET
        self.log_append_time = -1
        self.moved: list[tuple[Fate, int]] | None = None
        self.observed = False
        self._waiters: list[asyncio.Future[None]] | None = None
        self._followers: list[Callable[[], None]] | None = None
        self._loss: Loss | Lateness | None = None

    def wait(self) -> asyncio.Future[None]:
        """A future for one waiter, done when this is settled. It never carries an error; the fate does."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.settled:
            waiter.set_result(None)
        elif self._waiters is None:
            self._waiters = [waiter]
        else:
            self._waiters.append(waiter)
        return waiter

    def forget(self, waiter: asyncio.Future[None]) -> None:
        """A waiter has given up; without this, a caller that polls with a timeout would leave one behind each time."""
        if self._waiters is not None and not self.settled:
            self._waiters.remove(waiter)

    def follow(self, function: Callable[[], None]) -> None:
        """Have ``function`` called when this is settled, which it is not yet."""
        if self._followers is None:
            self._followers = [function]
        else:
            self._followers.append(function)

    def deliver(self, base_offset: int, log_append_time: int = -1) -> None:
        """The broker has the records, the first of them at ``base_offset``."""
        self.base_offset = base_offset
        self.log_append_time = log_append_time
        self._settle()

    @property
    def name(self) -> str:
        """The partition, or the topic where none was chosen yet."""
        return self.topic if self.partition < 0 else f"{self.topic}-{self.partition}"

    def fail(self, error: Exception, loss: Loss | Lateness | None = None) -> None:
        """The records are given up; together with others if they have that ``loss`` in common."""
        self.error = error
        self._loss = loss
        self._settle()

    def move(self, places: list[tuple[Fate, int]]) -> None:
        """The records are now in other groups, one place a record."""
        self.moved = places
        self._settle()

    def offset_of(self, index: int) -> int:
        """Where a delivered record is in the log."""
        return self.base_offset if self.base_offset < 0 else self.base_offset + index

    def _settle(self) -> None:
        self.settled = True
        waiters, self._waiters = self._waiters, None
        if waiters is not None:
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)
        followers, self._followers = self._followers, None
        if followers is not None:
            for function in followers:
                function()

    def __del__(self) -> None:
        if self.error is None or self.observed:
            return
        if self._loss is not None:
            self._loss.add(self)
        else:
            logger.error("records for %s were not delivered: %r", self.name, self.error)


class Delivery:
    """The promise of one record: await it for its `RecordMetadata`, or for the error that it failed with.

    Any number of tasks may await it, any number of times. Cancelling an await abandons the wait, not the record.
    """

    __slots__ = ("_fate", "_index", "_key_size", "_timestamp", "_value_size")

    def __init__(self, fate: Fate, index: int, timestamp: int, key_size: int, value_size: int) -> None:
        self._fate = fate
        self._index = index
        self._timestamp = timestamp
        self._key_size = key_size
        self._value_size = value_size

    def done(self) -> bool:
        """Whether the record is acknowledged or given up."""
        return self._follow().settled

    def result(self) -> RecordMetadata:
        """Where the record is, without waiting: raises what it failed with, or IllegalStateError while it is open."""
        fate = self._follow()
        if not fate.settled:
            raise IllegalStateError(f"a record for topic {fate.topic!r} is not settled yet: await its delivery")
        if fate.error is not None:
            fate.observed = True
            # Many may raise the one error of a batch; with a shared traceback it would grow by each of them.
            raise fate.error.with_traceback(None)
        return self._metadata(fate)

    def exception(self) -> Exception | None:
        """What the record failed with, None if it was delivered; IllegalStateError while it is open."""
        fate = self._follow()
        if not fate.settled:
            self.result()
        fate.observed = True
        return fate.error

    def __await__(self) -> Generator[object, None, RecordMetadata]:
        while not (fate := self._follow()).settled:
            waiter = fate.wait()
            try:
                yield from waiter
            except asyncio.CancelledError:
                fate.forget(waiter)
                raise
        return self.result()

    def report(self, function: Callable[[RecordMetadata, Exception | None], None]) -> None:
        """Have ``function`` called when the record is acknowledged or given up, maybe now. It must not raise."""
        fate = self._follow()
        if fate.settled:
            function(self._metadata(fate), fate.error)
        else:
            fate.follow(partial(self.report, function))

    def _metadata(self, fate: Fate) -> RecordMetadata:
        timestamp = self._timestamp if fate.log_append_time < 0 else fate.log_append_time
        offset = fate.offset_of(self._index)
        return RecordMetadata(fate.topic, fate.partition, offset, timestamp, self._key_size, self._value_size)

    def _follow(self) -> Fate:
        while (moved := self._fate.moved) is not None:
            self._fate, self._index = moved[self._index]
        return self._fate

    def __repr__(self) -> str:
        fate = self._follow()
        state = "open" if not fate.settled else "delivered" if fate.error is None else f"failed: {fate.error!r}"
        return f"<Delivery {fate.topic}-{fate.partition} {state}>"
