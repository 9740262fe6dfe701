"""A batch of records for one partition, from its first record until it is settled."""

from __future__ import annotations

import asyncio

from ..protocol.records import BatchBuilder
from ..protocol.schema import ZERO_UUID
from .delivery import Fate
from .idempotence import NO_IDENTITY, NO_SEQUENCE, ProducerIdentity


class Batch(Fate):
    """Records that are sent, retried and settled together. Owned by its partition.

    ``opened`` is the loop's time of the first record: linger counts from there, and so does the delivery timeout,
    which ends at ``deadline``. ``due`` says that it need not wait for more records. ``reserved`` are the bytes of the
    budget that it holds, ``queued_bytes`` those that it counts for in the load of the broker ``queued_for``. A batch is
    given its sequence numbers when it is first sent, and keeps them (``sequence`` is the first one, `NO_SEQUENCE`
    before).
    """

    __slots__ = (
        "attempts",
        "builder",
        "deadline",
        "due",
        "identity",
        "last_error",
        "opened",
        "queued_bytes",
        "queued_for",
        "reserved",
        "sent_to",
        "sequence",
        "timer",
        "uncertain",
        "written",
    )

    def __init__(self, topic: str, partition: int, builder: BatchBuilder, opened: float, deadline: float) -> None:
        super().__init__(topic, partition)
        self.builder = builder
        self.opened = opened
        self.deadline = deadline
        self.due = False
        self.reserved = 0
        self.queued_for: int | None = None
        self.queued_bytes = 0
        self.identity: ProducerIdentity = NO_IDENTITY
        self.sequence = NO_SEQUENCE
        self.attempts = 0
        self.sent_to: bytes | None = None
        self.last_error: Exception | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.uncertain = False
        self.written = False

    @property
    def count(self) -> int:
        """How many records it has."""
        return self.builder.count

    def number(self, identity: ProducerIdentity, sequence: int) -> None:
        """Give the records their sequence numbers; not again before `unnumber`."""
        assert self.sequence == NO_SEQUENCE
        self.identity, self.sequence = identity, sequence

    def unnumber(self) -> None:
        """Take the numbers back: a broker has said that it does not have the batch under them."""
        self.identity, self.sequence = NO_IDENTITY, NO_SEQUENCE

    def note_topic(self, topic_id: bytes) -> None:
        """It goes out to the topic of this id; to whatever bears the name if that is zero."""
        if self.sent_to != ZERO_UUID:
            self.sent_to = topic_id

    def went_elsewhere(self, topic_id: bytes) -> bool:
        """Whether it was sent, but surely never to the topic of this id."""
        return self.sent_to not in (None, ZERO_UUID, topic_id)

    def encode(self) -> bytes:
        """The batch as it goes over the wire. The records themselves are encoded and compressed once only."""
        return self.builder.build(self.identity.producer_id, self.identity.epoch, self.sequence)

    def __repr__(self) -> str:
        return f"<Batch {self.topic}-{self.partition} records={self.count} sequence={self.sequence}>"
