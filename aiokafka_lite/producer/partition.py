"""One partition of the producer: its batches in order, and when they may be sent. Pure: no I/O, no clock, no tasks.

A batch belongs to its partition from its first record until it is settled, so that a retry can lose nothing. It is
*open* while records are added, *unsent* when sealed, and *sent* while a request carries it or an answer said "again".

Order through retries needs one fact: has everything that was sent come back? A counter tells. At the first failure the
partition drains: nothing new is sent until ``in_flight`` is 0. Then it backs off, and resumes one ``level`` higher with
its first unsettled batch. What was queued for sending at an older level is stale, and is skipped.

The methods that are told of an event return what is to be done about it (`Next`), and do none of it.

Rules that have been bugs in other clients:

 - Without idempotence a partition has one batch in flight. With two, the second could be written before the first is
   retried.
 - A batch with sequence numbers that is given up leaves a gap, and a broker takes nothing after a gap. Batches that
   were sent with numbers before keep them and are resolved first: either the broker has them (success), or it refuses
   them for the gap, which proves that it does not. Only then does the partition begin anew under a newer epoch
   (KIP-360). To renumber a batch that the broker may have would write it twice.
 - A refused sequence does not always prove that. A batch that was written while its answer was lost, and that failed
   again when those behind it went through, is forgotten by the broker after five of those (it remembers no more) and
   refused. But what went through behind it proves that it is written: it could not have, after a gap.
 - The first batch under an identity goes alone. A log that does not know the producer takes any sequence, so the second
   batch could be written in the first one's stead.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from ..aio.retry import Backoff
from ..protocol.state import next_state
from ..types import TopicPartition
from .batch import Batch
from .idempotence import NO_SEQUENCE, Identities, ProducerIdentity, advance, precedes
from .verdict import is_uncertain


class PartitionState(Enum):
    """What happens to the batches of a partition."""

    OPEN = "batches go to the leader as they become due"
    DRAINING = "something failed or the leader moved; nothing new is sent until all requests under way are answered"
    BACKING_OFF = "nothing is under way; metadata is being refreshed and a pause runs"
    LEADERLESS = "batches wait for metadata that names a leader"


class PartitionEvent(Enum):
    """What happens to a partition."""

    FAILED = "a batch has to be sent again, or its leader could not be reached"
    LEADER_CHANGED = "metadata names another leader than the one that batches go to, or none"
    DRAINED = "the last request under way was answered"
    LEADER_KNOWN = "batches may go on, and there is a leader to take them"
    LEADER_UNKNOWN = "batches may go on, but there is no leader"


_S, _E = PartitionState, PartitionEvent

TRANSITIONS: dict[PartitionState, dict[PartitionEvent, PartitionState]] = {
    _S.LEADERLESS: {
        _E.LEADER_CHANGED: _S.LEADERLESS,
        _E.LEADER_UNKNOWN: _S.LEADERLESS,
        _E.LEADER_KNOWN: _S.OPEN,
    },
    _S.OPEN: {_E.FAILED: _S.DRAINING, _E.LEADER_CHANGED: _S.DRAINING},
    _S.DRAINING: {_E.FAILED: _S.DRAINING, _E.LEADER_CHANGED: _S.DRAINING, _E.DRAINED: _S.BACKING_OFF},
    _S.BACKING_OFF: {
        _E.LEADER_CHANGED: _S.BACKING_OFF,
        _E.LEADER_KNOWN: _S.OPEN,
        _E.LEADER_UNKNOWN: _S.LEADERLESS,
    },
}
START = PartitionState.LEADERLESS


class Next(Enum):
    """What has to be done for a partition after an event."""

    NOTHING = "nothing"
    OFFER = "put it into the queue of its leader: it may have something to send"
    PAUSE = "refresh metadata, wait `pause()` seconds, and call `backed_off()`"
    RESUME = "call `backed_off()` now: the pause has lost its reason"


class PartitionProducer:
    """Owner of a partition's batches. ``broker`` is the node that batches of this level go to.

    ``on_sealed`` is called whenever the open batch is closed. ``depth`` bounds the batches in flight.
    """

    __slots__ = (
        "_backoff",
        "_depth",
        "_failed",
        "_gap",
        "_hurry",
        "_idempotent",
        "_identities",
        "_introduced",
        "_make_backoff",
        "_next_sequence",
        "_on_sealed",
        "_renumber",
        "broker",
        "identity",
        "in_flight",
        "leader",
        "leader_epoch",
        "level",
        "open",
        "sent",
        "state",
        "topic_id",
        "topic_partition",
        "unsent",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        *,
        identities: Identities | None,
        depth: int,
        make_backoff: Callable[[], Backoff],
        on_sealed: Callable[[Batch], None],
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id: bytes | None = None  # once the topic was created anew
        self.state = START
        self.level = 0
        self.leader: int | None = None
        self.leader_epoch: int | None = None
        self.broker: int | None = None
        self.open: Batch | None = None
        # Lists, as ten thousand idle partitions should cost little: an empty deque takes 760 bytes, a list 56.
        self.unsent: list[Batch] = []
        self.sent: list[Batch] = []
        self.in_flight = 0
        self.identity: ProducerIdentity | None = None
        self._identities = identities
        self._idempotent = identities is not None
        self._depth = depth if identities is not None else 1
        self._make_backoff = make_backoff
        self._on_sealed = on_sealed
        self._backoff: Backoff | None = None  # made on the first failure: idle partitions should cost little
        self._next_sequence = 0
        self._introduced = False  # the leader has a batch under this identity
        self._failed = False
        self._hurry = False
        self._gap = False
        self._renumber = False

    # Records come in.

    def seal(self) -> None:
        """Close the open batch: no more records."""
        batch, self.open = self.open, None
        if batch is not None:
            self.unsent.append(batch)
            self._on_sealed(batch)

    @property
    def is_ready(self) -> bool:
        """Whether `take` might give a batch now."""
        if self.state is not PartitionState.OPEN or self.in_flight >= (self._depth if self._introduced else 1):
            return False
        return bool(self.unsent) or (self.open is not None and self.open.due)

    @property
    def has_batches(self) -> bool:
        """Whether anything is not settled. A partition without is nobody's concern, and its topic may be forgotten."""
        return self.open is not None or bool(self.unsent) or bool(self.sent)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is to be sent, and nothing under way."""
        quiet = self.state is PartitionState.OPEN or self.state is PartitionState.LEADERLESS
        return quiet and self.open is None and not (self.unsent or self.sent or self.in_flight)

    @property
    def next_size(self) -> int:
        """Bytes of the batch that `take` would give, as estimated."""
        batch = self.unsent[0] if self.unsent else self.open
        return 0 if batch is None else batch.builder.size

    # Batches go out.

    def take(self) -> Batch | None:
        """The next batch to send now, numbered; None if there is none or it may not be sent yet.

        The caller sends it at once, and tells exactly one of `delivered`, `failed`, `refused`, `split` of the answer.
        """
        if not self.is_ready:
            return None
        batch = self.unsent[0] if self.unsent else self.open
        assert batch is not None
        if self.topic_id is not None and batch.went_elsewhere(self.topic_id) and not self.in_flight:
            self._renumber = True  # the topic that it was sent to is gone, and this one has never seen it
            self._take_numbers_back()
        if self._identities is not None and batch.sequence == NO_SEQUENCE and not self._number(batch, self._identities):
            return None
        if batch is self.open:
            self.seal()
        del self.unsent[0]
        self.sent.append(batch)
        self.in_flight += 1
        batch.attempts += 1
        return batch

    def _number(self, batch: Batch, identities: Identities) -> bool:
        if self._gap or self.identity is None:
            if self.sent or self.in_flight:
                return False  # what was sent under the old numbers is resolved first
            identity = identities.after(self.identity)
            if identity is None:
                return False
            self.identity, self._next_sequence, self._gap, self._introduced = identity, 0, False, False
        batch.number(self.identity, self._next_sequence)
        self._next_sequence = advance(self._next_sequence, batch.count)
        return True

    # Answers come back. A batch may have been given up in the meantime: then only its request is over.

    def delivered(self, batch: Batch) -> Next:
        """The broker has the batch; it leaves the partition."""
        self.in_flight -= 1
        if self._idempotent:
            self._prove_written_before(batch)
        if not batch.settled:
            self.sent.remove(batch)  # the first one, as brokers answer in order
            self._backoff = None
            self._introduced = self._introduced or batch.identity == self.identity
        return self._after_answer()

    def _prove_written_before(self, batch: Batch) -> None:
        """A broker takes no batch after a gap, so it has what was sent before one that it acknowledged.

        A broker that has forgotten the producer takes anything, however: so nothing is proven of a batch that was
        surely not written.
        """
        for earlier in self.sent:
            if earlier is batch:
                break
            if earlier.identity == batch.identity and precedes(earlier.sequence, batch.sequence):
                earlier.written = earlier.uncertain

    def failed(self, batch: Batch, error: Exception, *, unknown_sequence: bool = False) -> Next:
        """The batch has to be sent again. ``unknown_sequence``: the broker refused its sequence numbers.

        Behind a batch that failed, a refused sequence is only the consequence. For the first one it proves that the
        broker has neither it nor any after it, so that all of them may be given new numbers; unless it is ``written``:
        then the caller tells `delivered` instead.
        """
        self.in_flight -= 1
        if not batch.settled:
            batch.last_error = error
            batch.uncertain = batch.uncertain or is_uncertain(error)
            if unknown_sequence and batch is self.sent[0]:
                self._renumber = True
        self._failed = True
        self._happened(PartitionEvent.FAILED)
        return self._after_answer()

    def outdated(self, batch: Batch, error: Exception) -> Next:
        """The broker has seen a newer epoch of the batch's producer id: what goes on does so under another id.

        It has not written the batch now. If it may have before, under the same numbers, then it cannot be asked any
        more, and the caller has to give the batch up (`expired`) first. Those behind it are asked about on their own.
        """
        if self._identities is not None:
            self._identities.discard(batch.identity)
        self._gap = self._gap or batch.identity == self.identity
        return self.failed(batch, error, unknown_sequence=True)

    def refused(self, batch: Batch) -> Next:
        """The broker will never take the batch: the caller fails it, the partition forgets it."""
        self.in_flight -= 1
        if not batch.settled:
            self._refuse(batch)
            self.sent.remove(batch)
        return self._after_answer()

    def split(self, batch: Batch, parts: list[Batch]) -> Next:
        """The broker wants other batches in place of this one: ``parts`` take its place in the order."""
        self.in_flight -= 1
        if not batch.settled:
            self._refuse(batch)
            position = self.sent.index(batch)
            self.sent.remove(batch)
            for part in reversed(parts):
                self.sent.insert(position, part)
            self._happened(PartitionEvent.FAILED)
        return self._after_answer()

    def _refuse(self, batch: Batch) -> None:
        if self._idempotent:
            # Not written, so nothing after it was written either: the first one may take the others along.
            self._gap = True
            if batch is self.sent[0]:
                self._renumber = True
                if self.state is PartitionState.OPEN:
                    self._happened(PartitionEvent.FAILED)

    def expired(self, batch: Batch) -> Next:
        """The batch's time is over: the caller fails it, the partition forgets it, answered or not."""
        if batch is self.open:
            self.open = None
        elif batch in self.sent:
            self.sent.remove(batch)
            self._gap = self._gap or (batch.sequence != NO_SEQUENCE and not batch.written)
        else:
            self.unsent.remove(batch)
            self._gap = self._gap or (batch.sequence != NO_SEQUENCE and not batch.written)
        return Next.OFFER if self.is_ready else Next.NOTHING

    # The leader and the pace.

    def unreachable(self, error: Exception) -> Next:
        """No connection to the leader could be made."""
        if self.state is not PartitionState.OPEN:
            return Next.NOTHING
        for batch in self.unsent:
            batch.last_error = error
        if self.open is not None:
            self.open.last_error = error
        self._failed = True
        self._happened(PartitionEvent.FAILED)
        return self._after_answer()

    def led_by(self, leader: int | None, leader_epoch: int | None) -> Next:
        """Metadata says who leads now."""
        known = self.leader_epoch
        newer = leader_epoch is not None and known is not None and leader_epoch > known
        self.leader, self.leader_epoch = leader, leader_epoch if leader_epoch is not None else known
        if self.state is PartitionState.LEADERLESS:
            return self.backed_off()
        if self.state is PartitionState.OPEN:
            if leader == self.broker:
                return Next.NOTHING
            self._happened(PartitionEvent.LEADER_CHANGED)
            return self._after_answer()
        # A leader newer than the one that failed is worth trying without the pause (KIP-951). Epochs only grow, so
        # brokers that contradict one another cannot make a hot loop of it.
        if newer and leader is not None:
            self._hurry = True
            if self.state is PartitionState.BACKING_OFF:
                return Next.RESUME
        return Next.NOTHING

    def pause(self) -> float:
        """How many seconds to back off for: none if only the leader moved."""
        if self._hurry or not self._failed:
            return 0.0
        if self._backoff is None:
            self._backoff = self._make_backoff()
        return self._backoff.next()

    def backed_off(self) -> Next:
        """The pause is over, or a leader may have been found: go on if there is one."""
        if self.state not in (PartitionState.BACKING_OFF, PartitionState.LEADERLESS):
            return Next.NOTHING
        if self.leader is None:
            self._happened(PartitionEvent.LEADER_UNKNOWN)
            return Next.NOTHING
        self._happened(PartitionEvent.LEADER_KNOWN)
        self.level += 1
        self.broker = self.leader
        self._failed = self._hurry = False
        return Next.OFFER if self.is_ready else Next.NOTHING

    def new_topic(self, topic_id: bytes) -> None:
        """The topic was deleted and created again: its log, and what brokers knew of sequences, are gone.

        So the partition begins afresh, with batches that were sent to the old topic by its id, too. Those that were
        sent by name are resolved under their numbers, as the new log may have them already.
        """
        self.topic_id = topic_id
        self._gap = self._idempotent
        self._introduced = False
        self.leader_epoch = None

    def retire(self) -> None:
        """Be forgotten. Who writes to the partition next begins at sequence 0, so it must not be as the same one."""
        if self._identities is not None and self.identity is not None:
            self._identities.retire(self.identity)

    def abandon(self) -> None:
        """Forget all batches, for the caller to fail; answers may still come."""
        if any(batch.sequence != NO_SEQUENCE for batch in (*self.sent, *self.unsent)):
            self._gap = True
        self.sent.clear()
        self.unsent.clear()
        self.open = None

    def _after_answer(self) -> Next:
        if self.state is PartitionState.DRAINING and not self.in_flight:
            self._happened(PartitionEvent.DRAINED)
            self.unsent[:0] = self.sent
            self.sent.clear()
            self._take_numbers_back()
            return Next.PAUSE
        return Next.OFFER if self.is_ready else Next.NOTHING

    def _take_numbers_back(self) -> None:
        """With all answers in: unnumber what the broker surely lacks.

        That is everything after a proven gap, and everything behind a batch without numbers (the parts of one that was
        split), as it could not be written without what comes before it.
        """
        if not self._idempotent:
            return
        lacking = self._renumber
        for batch in self.unsent:
            lacking = lacking or batch.sequence == NO_SEQUENCE
            if lacking:
                self._gap = self._gap or batch.sequence != NO_SEQUENCE
                batch.unnumber()
        self._renumber = False

    def _happened(self, event: PartitionEvent) -> None:
        self.state = next_state(TRANSITIONS, self.state, event)

    def __repr__(self) -> str:
        return (
            f"<PartitionProducer {self.topic_partition} {self.state.name} broker={self.broker} level={self.level}"
            f" unsent={len(self.unsent)} in_flight={self.in_flight}>"
        )
