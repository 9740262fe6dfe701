"""The producer id, epoch and partitions of a transactional producer. Pure: this module sends no requests.

Rule 1: all partitions write under the identity that the transaction coordinator assigned. The producer never raises the
  epoch itself, so a partition whose sequence has a gap continues only after the coordinator has raised the epoch.

Rule 2: in generation 1 of the protocol a partition is written to only after the coordinator has added it to the
transaction (AddPartitionsToTxn). In generation 2 (KIP-890) the Produce request adds it.

Rule 3: in generation 1 the epoch stays the same from transaction to transaction. So a request of this transaction whose
answer was lost could still arrive in the next one. ``needs_new_epoch`` is True then (KIP-360). In generation 2, each
transaction has its own epoch.
"""

from __future__ import annotations

from collections.abc import Callable

from ..types import TopicPartition
from .producer_ids import ProducerIdAndEpoch, ProducerIds


class TransactionalIds(ProducerIds):
    """The identity of a transactional producer, and the partitions of its open transaction.

    ``request_partitions`` is called when a partition has to be added to the transaction. ``waiting`` contains the
    partitions that wait for that.
    """

    __slots__ = ("_added", "_is_open", "_is_outdated", "_request_partitions", "generation", "waiting")

    def __init__(self, request_partitions: Callable[[], None]) -> None:
        super().__init__(_nothing)
        self.generation: int = 1
        self.waiting: dict[TopicPartition, None] = {}
        self._added: set[TopicPartition] = set()
        self._request_partitions = request_partitions
        self._is_open = False  # batches may get sequence numbers
        self._is_outdated = False

    def begin(self, generation: int) -> None:
        """Begin a transaction without partitions. Batches may get sequence numbers until ``close``."""
        self.generation = generation
        self.waiting.clear()
        self._added.clear()
        self._is_open = True

    def close(self) -> None:
        """Give no more sequence numbers in this transaction: it has failed, or is aborted or over."""
        self._is_open = False

    def received(self, identity: ProducerIdAndEpoch) -> None:
        """Store the identity that the coordinator assigned."""
        self.newest: ProducerIdAndEpoch | None = identity
        self._is_outdated = False

    def answer_lost(self) -> None:
        """Record that a request of the transaction has no answer, and may still arrive in the next one (rule 3)."""
        self._is_outdated = True

    def sequence_broken(self) -> None:
        """Record that the sequence of a partition may have a gap, which in generation 1 only a new epoch repairs."""
        self._is_outdated = True

    @property
    def needs_new_epoch(self) -> bool:
        """Whether the next transaction cannot use this epoch. Never in generation 2, where each transaction has one."""
        return self._is_outdated and self.generation < 2

    def added(self, topic_partition: TopicPartition) -> None:
        """Record that the coordinator has added a partition to the transaction."""
        self.waiting.pop(topic_partition, None)
        self._added.add(topic_partition)

    @property
    def partitions(self) -> int:
        """The number of partitions in the transaction."""
        return len(self._added)

    def admits(self, topic_partition: TopicPartition) -> bool:
        """Return whether a batch of this partition may get sequence numbers now. Adds the partition if necessary."""
        if not self._is_open:
            return False
        if topic_partition in self._added:
            return True
        if self.generation >= 2:
            self._added.add(topic_partition)
            return True
        self.waiting[topic_partition] = None
        self._request_partitions()
        return False

    def has_replaced(self, identity: ProducerIdAndEpoch) -> bool:
        """Return whether the coordinator has assigned another identity after this one."""
        return identity != self.newest

    def newer_than(self, used: ProducerIdAndEpoch | None) -> ProducerIdAndEpoch | None:
        """Return the identity that the coordinator assigned (rule 1), also if the partition has used it already."""
        return self.newest

    def discard(self, identity: ProducerIdAndEpoch) -> None:
        """Does nothing, because the answer with a newer epoch also ends the transaction."""

    def retire(self, identity: ProducerIdAndEpoch) -> None:
        """Handle a dropped partition. Brokers know its sequence numbers, so the next transaction needs a new epoch."""
        if identity == self.newest:
            self.sequence_broken()


def _nothing() -> None:
    """Does nothing: identities are requested from the coordinator only between transactions, never by a partition."""
