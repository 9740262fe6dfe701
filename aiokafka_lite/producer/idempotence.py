"""Producer ids, epochs and sequence numbers (KIP-98, KIP-360): pure bookkeeping, no requests.

A broker remembers, per partition and producer id, the epoch and the last five batches' sequence numbers. It takes a
batch whose first sequence is the next one, answers a repeated one with success, and refuses a gap. A new epoch of the
same producer id may begin at sequence 0 again, and shuts out whatever of the old epoch is still under way.

So each partition keeps the identity that it began its sequence under, and changes it only when none of its batches is
unresolved. A partition in trouble takes a newer epoch for itself; the others go on under theirs, as a bump under
batches whose fate is open could write those twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

MAX_EPOCH = 2**15 - 1
MAX_SEQUENCE = 2**31 - 1
NO_SEQUENCE = -1


class ProducerIdentity(NamedTuple):
    """Who a batch says it is from."""

    producer_id: int
    epoch: int


NO_IDENTITY = ProducerIdentity(-1, -1)
"""What batches of a producer without idempotence say."""


def advance(sequence: int, count: int) -> int:
    """The sequence number ``count`` records further. After 2147483647 comes 0."""
    return (sequence + count) & MAX_SEQUENCE


def precedes(sequence: int, other: int) -> bool:
    """Whether a sequence number comes before another of the same identity; the two lie close together."""
    return 0 < (other - sequence) & MAX_SEQUENCE < MAX_SEQUENCE // 2


class Identities:
    """The newest identity of a producer, and where partitions get theirs. Owned by the producer.

    ``ask`` is called when there is none to give; once one is there, ``arrived`` puts it in.
    """

    __slots__ = ("_ask", "newest")

    def __init__(self, ask: Callable[[], None]) -> None:
        self._ask = ask
        self.newest: ProducerIdentity | None = None

    def arrived(self, identity: ProducerIdentity) -> None:
        """A broker has given out an identity."""
        self.newest = identity

    def discard(self, identity: ProducerIdentity) -> None:
        """Give out nothing of this producer id any more: brokers have seen a newer epoch of it than we know of."""
        if self.newest is not None and self.newest.producer_id == identity.producer_id:
            self.newest = None

    def retire(self, identity: ProducerIdentity) -> None:
        """Give it out no more: a partition that has used it is forgotten, and with it the numbers that brokers know."""
        if identity == self.newest:
            self.after(identity)

    def after(self, old: ProducerIdentity | None) -> ProducerIdentity | None:
        """An identity that a partition which used ``old`` may begin at sequence 0 under; None if it has to be awaited.

        Bumping is local, as brokers take any higher epoch of a producer id. Only when the epochs of an id are used up
        is another id needed.
        """
        newest = self.newest
        if newest is not None and newest == old:
            newest = ProducerIdentity(newest.producer_id, newest.epoch + 1) if newest.epoch < MAX_EPOCH else None
            self.newest = newest
        if newest is None:
            self._ask()
        return newest
