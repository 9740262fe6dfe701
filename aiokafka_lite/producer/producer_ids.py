"""Producer ids, epochs and sequence numbers (KIP-98, KIP-360). Pure: this module sends no requests.

A broker remembers the epoch and the sequence numbers of the last five batches per partition and producer id. It accepts
a batch whose first sequence number is the next one, answers a repeated batch with success, and refuses a gap. A newer
epoch of the same producer id starts at sequence number 0 again, and excludes all requests of older epochs.

Therefore each partition keeps the id and epoch under which it started its sequence, and changes them only when all its
batches are resolved. A partition whose sequence is broken takes a newer epoch for itself. The other partitions keep
their epochs, because with a new epoch their unresolved batches could be written twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..types import TopicPartition

MAX_EPOCH = 2**15 - 1
MAX_SEQUENCE = 2**31 - 1
NO_SEQUENCE = -1


class ProducerIdAndEpoch(NamedTuple):
    """The identity under which a batch is written."""

    producer_id: int
    epoch: int


NO_PRODUCER_ID = ProducerIdAndEpoch(-1, -1)
"""The identity of batches of a producer without idempotence."""


def advance(sequence: int, count: int) -> int:
    """Return the sequence number ``count`` records later. After 2147483647 comes 0."""
    return (sequence + count) & MAX_SEQUENCE


def precedes(sequence: int, other: int) -> bool:
    """Return whether a sequence number comes before a close one of the same identity."""
    return 0 < (other - sequence) & MAX_SEQUENCE < MAX_SEQUENCE // 2


class ProducerIds:
    """The newest identity of a producer. Partitions get their identities from it. Owner: the producer.

    ``request`` is called when a partition needs an identity and there is none. ``received`` stores an assigned
    identity.
    """

    __slots__ = ("_request", "newest")

    def __init__(self, request: Callable[[], None]) -> None:
        self._request = request
        self.newest: ProducerIdAndEpoch | None = None

    def received(self, identity: ProducerIdAndEpoch) -> None:
        """Store the identity that a broker assigned."""
        self.newest = identity

    def admits(self, topic_partition: TopicPartition) -> bool:
        """Return whether batches of this partition may get sequence numbers. Without transactions, always."""
        return True

    def has_replaced(self, identity: ProducerIdAndEpoch) -> bool:
        """Return whether a newer identity has replaced this one. Always False without transactions."""
        return False

    def discard(self, identity: ProducerIdAndEpoch) -> None:
        """Stop using this producer id: a broker does not know it, or knows a newer epoch of it."""
        if self.newest is not None and self.newest.producer_id == identity.producer_id:
            self.newest = None

    def retire(self, identity: ProducerIdAndEpoch) -> None:
        """Use this identity for no other partition: brokers still know sequence numbers of a dropped partition."""
        if identity == self.newest:
            # Called for its effect: the next partition gets a newer epoch.
            self.newer_than(identity)

    def newer_than(self, used: ProducerIdAndEpoch | None) -> ProducerIdAndEpoch | None:
        """Return an identity for sequence numbers from 0 on; None if it must be requested first.

        ``used`` is the partition's previous identity. The epoch is increased locally, because brokers accept any higher
        epoch of a producer id. Only when all epochs of an id are used up, another id is requested.
        """
        newest = self.newest
        if newest is not None and newest == used:
            newest = ProducerIdAndEpoch(newest.producer_id, newest.epoch + 1) if newest.epoch < MAX_EPOCH else None
            self.newest = newest
        if newest is None:
            self._request()
        return newest
