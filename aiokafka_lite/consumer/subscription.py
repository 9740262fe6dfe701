"""The assigned partitions, and the methods through which all changes of them go. Pure: nothing here waits.

Rules of this file:

1. Every change of an assignment, a position or a pause by the user or the group goes through ``assign``, ``extend`` or
   ``change``. Each does the same steps in the same order: settle the iteration over records, report moved and removed
   partitions, change, update the turns, notify. A caller that forgets one of these steps leaves readers waiting
   although there are records, or repeats records.
2. Fetchers and the position keeper change one partition at a time (a batch, an offset, an error), and call
   ``update_ready`` for each. After all partitions of an answer they call ``on_ready`` or ``on_located`` of the observer
   once.
3. A partition in ``ready`` is readable, assigned, and without a reader of its own. The consumer's reader takes the
   first partition, and moves it to the end when its turn is over. So a partition with an endless backlog does not block
   the rest, and idle partitions cost nothing.
4. An ``AssignedPartition`` that was removed and assigned again is another object. After a wait, code checks ``holds``
   before it changes such an object.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import count
from typing import NamedTuple

from ..aio.retry import is_refusal
from ..errors import IllegalStateError, KafkaError
from ..types import TopicPartition
from .partition import AssignedPartition
from .position import PauseReason, ResetReason, ResetStrategy


class Consumed(NamedTuple):
    """The records of one partition that were returned to the program, and the bytes of their batches."""

    records: int
    unpacked_bytes: int


NOTHING_CONSUMED = Consumed(0, 0)


class SubscriptionObserver:
    """The reactions of the owner of a subscription. Override the methods that the owner needs."""

    def settle(self) -> None:
        """Stop the iteration over decoded records, and store its position, because positions are about to change."""

    def on_moved(self, partitions: Sequence[TopicPartition]) -> None:
        """Prepare for a move of these positions by the user or a reset. Later marks may be lower than earlier ones."""

    def on_removed(self, partitions: Sequence[TopicPartition]) -> None:
        """Prepare for the removal of these partitions from the assignment."""

    def on_change(self, partitions: Sequence[AssignedPartition]) -> None:
        """Fetch other data if needed: the assignment has changed, or the position or pause of these partitions."""

    def on_ready(self) -> None:
        """Read on, because there may be records or an error."""

    def on_located(self) -> None:
        """Continue after positions were found, or cannot be found."""
        self.on_ready()

    def on_reset(self, partition: TopicPartition, old: int, new: int, reason: ResetReason) -> None:
        """Record a reset: reading continues at ``new``, because ``old`` cannot be read."""


class Subscription:
    """The assigned partitions, in the order of the assignment. Owner: the consumer.

    All partitions of ``whole_topics`` are assigned, also partitions that are added later. ``is_new`` returns whether a
    partition was created after the consumer had first known its topic.
    """

    def __init__(
        self,
        reset: ResetStrategy,
        fetch_size: int,
        observer: SubscriptionObserver,
        whole_topics: Sequence[str] = (),
        *,
        is_new: Callable[[TopicPartition], bool] = lambda partition: False,
    ) -> None:
        self.reset = reset
        self.whole_topics: tuple[str, ...] = tuple(whole_topics)
        self.partitions: dict[TopicPartition, AssignedPartition] = {}
        self.ready: dict[TopicPartition, AssignedPartition] = {}
        self.earlier_assignments: dict[TopicPartition, Consumed] = {}
        """The counts of partitions at the end of their last assignment. A partition that is assigned again counts on,
        so that a counter of it never falls."""
        self.waits_out_refusals: bool = False
        """Whether a missing permission for a topic that was read before is only retried. A handler reads the partitions
        then, and an error would end it."""
        self.read_topics: set[str] = set()
        """The topics that a broker has let this consumer read."""
        self.answer_numbers: Iterator[int] = count(1)
        """The number of the next answer with data, for ``last_served``: it orders partitions without a clock."""
        self.revision: int = 0
        """The number of changes of the assignment, to see whether another call has changed it."""
        self.observer: SubscriptionObserver = observer
        """Fetchers and the position keeper call it before and after they change partitions (rule 2)."""
        self._fetch_size = fetch_size
        self._is_new = is_new

    def __repr__(self) -> str:
        return f"<Subscription partitions={len(self.partitions)} ready={len(self.ready)}>"

    def __getitem__(self, partition: TopicPartition) -> AssignedPartition:
        """Return the state of an assigned partition. Raises IllegalStateError for any other partition."""
        try:
            return self.partitions[partition]
        except KeyError:
            remedy = "assign() it first, or in a group, await wait_assigned()"
            raise IllegalStateError(f"{partition} is not assigned to this consumer; {remedy}") from None

    def __iter__(self) -> Iterator[AssignedPartition]:
        return iter(self.partitions.values())

    @property
    def topics(self) -> set[str]:
        return {partition.topic for partition in self.partitions}

    def consumed(self, assigned: AssignedPartition) -> Consumed:
        """Return the counts of an assigned partition, with its earlier assignments."""
        earlier = self.earlier_assignments.get(assigned.partition, NOTHING_CONSUMED)
        return Consumed(
            earlier.records + assigned.buffer.consumed, earlier.unpacked_bytes + assigned.buffer.unpacked_bytes
        )

    def holds(self, assigned: AssignedPartition) -> bool:
        """Return whether this very object is still part of the assignment."""
        return self.partitions.get(assigned.partition) is assigned

    def select(self, partitions: Iterable[TopicPartition]) -> list[AssignedPartition]:
        """Return the given partitions that are assigned."""
        return [self.partitions[partition] for partition in partitions if partition in self.partitions]

    # Changes.

    def assign(self, partitions: Iterable[TopicPartition], pause_reason: PauseReason = PauseReason.NONE) -> None:
        """Make these the assignment. Partitions that stay keep position, pause and data.

        New partitions begin without an offset. With ``pause_reason``, they wait until ``change`` clears the reason.
        """
        before, assignment = self.partitions, dict.fromkeys(partitions)
        self.revision += 1
        self._end_fetching([partition for partition in before if partition not in assignment])
        added = {
            partition: self._new(partition, None, pause_reason) for partition in assignment if partition not in before
        }
        self.partitions = {partition: before.get(partition) or added[partition] for partition in assignment}
        self.observer.on_change(list(added.values()))

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Remove these partitions from the assignment."""
        removed = {partition for partition in partitions if partition in self.partitions}
        self.revision += 1
        self._end_fetching(removed)
        self.partitions = {
            partition: assigned for partition, assigned in self.partitions.items() if partition not in removed
        }
        self.observer.on_change(())

    def _end_fetching(self, removed: Collection[TopicPartition]) -> None:
        # The running iteration contains the true position of its partition. It must be stored before the partition
        # leaves. Otherwise processed records would not be committed.
        self.observer.settle()
        if removed:
            self.observer.on_removed(list(removed))
        for partition in removed:
            assigned = self.partitions[partition]
            assigned.fetch_from(None)
            self.earlier_assignments[partition] = self.consumed(assigned)
            self.ready.pop(partition, None)  # the others keep their turns

    def extend(
        self,
        partitions: Iterable[TopicPartition],
        prepare: Callable[[AssignedPartition], object] = lambda assigned: None,
        *,
        reset: ResetStrategy | None = None,
        pause_reason: PauseReason = PauseReason.NONE,
        was_listed: bool = True,
    ) -> list[AssignedPartition]:
        """Assign more partitions. Each has a new state. ``was_listed``: metadata has them, here or at the group's
        leader.

        ``prepare`` is called with each state before it is in the assignment. ``reset`` is by default its policy.
        """
        self.revision += 1
        self.observer.settle()
        added: list[AssignedPartition] = []
        for partition in partitions:
            assert partition not in self.partitions, "a partition has one state, and one owner"
            assigned = self._new(partition, reset, pause_reason)
            assigned.was_listed = was_listed
            prepare(assigned)
            self.partitions[partition] = assigned
            added.append(assigned)
        self.observer.on_change(added)
        return added

    def reset_of(self, partition: TopicPartition) -> ResetStrategy:
        """Return the way to choose the first offset of a partition that has none: the policy, with one exception.

        A policy that skips old records must not skip those of a new partition, because all of them are younger than the
        consumer. (Java's "latest" skips the records that were written before it detected the partition.)
        """
        return ResetStrategy.EARLIEST if self.skips_old_records and self._is_new(partition) else self.reset

    @property
    def skips_old_records(self) -> bool:
        """Whether the first offset of a partition depends on the time at which it is looked up."""
        return self.reset in (ResetStrategy.LATEST, ResetStrategy.BY_DURATION)

    def _new(
        self, partition: TopicPartition, reset: ResetStrategy | None, pause_reason: PauseReason
    ) -> AssignedPartition:
        strategy = self.reset_of(partition) if reset is None else reset
        assigned = AssignedPartition(partition, strategy, self._fetch_size)
        assigned.is_new = strategy is not self.reset
        assigned.pause_reason = pause_reason
        return assigned

    def change(
        self,
        partitions: Iterable[AssignedPartition],
        apply: Callable[[AssignedPartition], object],
        *,
        moves: bool = False,
    ) -> None:
        """Apply a change to each partition that is still assigned. ``moves``: the change sets the position."""
        # Callers may have waited since they took the objects (rule 4).
        present = [assigned for assigned in partitions if self.holds(assigned)]
        self.observer.settle()
        if moves:
            self.observer.on_moved([assigned.partition for assigned in present])
        # Always after ``settle`` and ``on_moved``: an iteration that is settled later would overwrite the new position.
        for assigned in present:
            apply(assigned)
            self.update_ready(assigned)
        self.observer.on_change(present)

    def replace_pause(self, old: PauseReason, new: PauseReason) -> None:
        """Give each partition with the reason ``old`` the reason ``new``. Other reasons stay."""
        matching = [assigned for assigned in self.partitions.values() if assigned.pause_reason is old]
        self.change(matching, lambda assigned: assigned.pause_for(new))

    def is_raised(self, partition: TopicPartition, error: KafkaError) -> bool:
        """Return whether a read raises this error of a partition."""
        is_waited_out = self.waits_out_refusals and partition.topic in self.read_topics
        return not (is_waited_out and is_refusal(error))

    # Turns.

    def update_ready(self, assigned: AssignedPartition) -> bool:
        """Give the partition a turn, or take its turn away. Call this after any change that may affect ``readable``.

        Returns whether it is readable, here or by a reader of its own.
        """
        partition, readable = assigned.partition, assigned.readable
        if readable and not assigned.has_reader and self.partitions.get(partition) is assigned:
            # A partition that is ready already keeps its turn.
            self.ready.setdefault(partition, assigned)
        else:
            self.ready.pop(partition, None)
        return readable

    def end_turn(self, assigned: AssignedPartition) -> None:
        """Move the partition to the end of the order."""
        self.ready.pop(assigned.partition, None)
        self.update_ready(assigned)
