"""One partition of the producer: its batches in order, and when they may be sent. Pure: no I/O, no timers, no tasks.

Rule 1: the partition owns its batches. It is the only writer of their attributes, from the first record until the batch
leaves. A batch is *open* while records are added, and *unsent* when it is sealed. It is *sent* while a request carries
it, and after an answer that asks for another attempt. So a retry never loses a batch.

Rule 2: calls go down only. ``append`` returns the place of the record (``Appended``). Methods that report an event
return the next action (``Next``); the caller performs it.

Rule 3: to keep the order through retries, the partition must know whether all requests have returned. ``in_flight``
counts the requests that have not. At the first failure the partition is DRAINING: no batch is sent until ``in_flight``
is 0. Then it is BACKING_OFF, and after the pause OPEN again one ``level`` higher, starting with its first unsettled
batch. Queue entries of an older level are stale and are skipped.

Invariants that have been bugs in Kafka clients:

 - Without idempotence a partition has one batch in flight. With two, the second could be written before the first is
   retried. With idempotence, ``sequences`` has the rules for batches in flight.
 - An expired batch that a broker acknowledges later must not be removed twice: every answer first checks
   ``batch.settled``.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable
from enum import Enum

from ..aio.retry import Backoff
from ..protocol.schema import ZERO_UUID
from ..state_machine import next_state
from ..types import TopicPartition
from .batch import BatchFactory, ProducerBatch
from .outcome import may_be_written
from .partition_batches import PartitionBatches, Sealed
from .producer_ids import NO_SEQUENCE, ProducerIds
from .sequences import Sequences

logger = logging.getLogger(__name__)


class PartitionState(Enum):
    """The state of a partition: whether its batches may be sent."""

    OPEN = "batches go to the leader as they become due"
    DRAINING = "an attempt failed or the leader moved; no batch is sent until all requests in flight are answered"
    BACKING_OFF = "no request is in flight; metadata is refreshed and a pause runs"
    LEADERLESS = "batches wait for metadata that names a leader"


class PartitionEvent(Enum):
    """An event that moves a partition to another state."""

    FAILED = "a batch has to be sent again, or the leader cannot be reached"
    LEADER_CHANGED = "the leader in metadata differs from the broker that batches go to, or there is none"
    DRAINED = "the last request in flight was answered"
    LEADER_KNOWN = "batches may be sent, and there is a leader"
    LEADER_UNKNOWN = "batches may be sent, but there is no leader"


_S, _E = PartitionState, PartitionEvent

TRANSITIONS: dict[PartitionState, dict[PartitionEvent, PartitionState]] = {
    _S.LEADERLESS: {
        _E.LEADER_CHANGED: _S.LEADERLESS,
        _E.LEADER_UNKNOWN: _S.LEADERLESS,
        _E.LEADER_KNOWN: _S.OPEN,
    },
    _S.OPEN: {_E.FAILED: _S.DRAINING, _E.LEADER_CHANGED: _S.DRAINING},
    # DRAINED always leads to BACKING_OFF, also if no pause is required: ``resume`` is the only way to a new level.
    _S.DRAINING: {_E.FAILED: _S.DRAINING, _E.LEADER_CHANGED: _S.DRAINING, _E.DRAINED: _S.BACKING_OFF},
    _S.BACKING_OFF: {
        _E.LEADER_CHANGED: _S.BACKING_OFF,
        _E.LEADER_KNOWN: _S.OPEN,
        _E.LEADER_UNKNOWN: _S.LEADERLESS,
    },
}
START = PartitionState.LEADERLESS


class Next(Enum):
    """The action that a partition requires after an event."""

    NOTHING = "nothing"
    OFFER = "put the partition into the queue of its leader: it may have a batch to send"
    PAUSE = "refresh metadata, wait ``pause()`` seconds, and call ``resume()``"
    RESUME = "call ``resume()`` now: a newer leader is known"


class PartitionProducer(PartitionBatches):
    """A partition: its batches, the state in which they are sent, and their sequence numbers.

    ``broker`` is the node that batches of this ``level`` go to. ``depth`` bounds the batches in flight. ``sequences``
    is None without idempotence. ``compress(partition, batch)`` is called for each large sealed batch. If it begins to
    compress the batch and returns True, it calls ``compressed`` at the end.

    The flags besides the state, and why each exists:

     - ``_must_pause``: this level ended with a failure, not only with a new leader, so a pause is required.
     - ``_skip_pause``: metadata names a newer leader than the leader that failed, so no pause is required.
    """

    __slots__ = (
        "_backoff",
        "_compress",
        "_depth",
        "_make_backoff",
        "_must_pause",
        "_skip_pause",
        "in_flight",
        "leader",
        "leader_epoch",
        "level",
        "sequences",
        "state",
        "topic_id",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        *,
        batches: BatchFactory,
        ids: ProducerIds | None,
        load: Counter[int],
        sealed: deque[Sealed],
        depth: int,
        make_backoff: Callable[[], Backoff],
        now: Callable[[], float],
        compress: Callable[[PartitionProducer, ProducerBatch], bool],
    ) -> None:
        super().__init__(topic_partition, batches, load, sealed, now)
        self.topic_id: bytes | None = None  # known after the topic was created again
        self.state: PartitionState = START
        self.level: int = 0
        self.leader: int | None = None
        self.leader_epoch: int | None = None
        self.in_flight: int = 0
        self.sequences: Sequences | None = None if ids is None else Sequences(topic_partition, ids)
        self._compress = compress
        self._depth = depth if ids is not None else 1
        self._make_backoff = make_backoff
        self._backoff: Backoff | None = None  # created at the first failure, because idle partitions should be small
        self._must_pause = False
        self._skip_pause = False

    @property
    def is_ready(self) -> bool:
        """Whether ``take`` might return a batch now."""
        if self.state is not PartitionState.OPEN:
            return False
        sequences = self.sequences
        # Until a batch is acknowledged under the identity, one batch is in flight (rule 3 of ``sequences``).
        if self.in_flight >= (self._depth if sequences is None or sequences.is_pipelined else 1):
            return False
        # The batches behind one that is being compressed wait for it, also those that are compressed already.
        if self.unsent:
            return not self.unsent[0].compressing
        # A batch that is due stays open until it is taken, so that it grows while the leader is busy.
        return self.open is not None and self.open.due

    @property
    def is_idle(self) -> bool:
        """Whether there is no batch and no request in flight."""
        # In DRAINING and BACKING_OFF, an answer or a timer still refers to this object. If the topic were dropped now,
        # that event would change a partition that has no owner.
        quiet = self.state is PartitionState.OPEN or self.state is PartitionState.LEADERLESS
        return quiet and not self.in_flight and not self.has_batches

    def is_first(self, batch: ProducerBatch) -> bool:
        """Return whether this batch is the first that is not settled."""
        return bool(self.sent) and self.sent[0] is batch

    # Batches to send.

    def seal(self) -> None:
        """Seal the open batch, as ``PartitionBatches.seal``. A large batch is compressed while it is unsent."""
        batch = self.open
        super().seal()
        if batch is not None and self._batches.is_large(batch):
            batch.compressing = self._compress(self, batch)

    def compressed(self, batch: ProducerBatch, buffer: bytearray | None) -> Next:
        """Take the compressed form of a batch, which may be sent now.

        None if the attempt has failed: ``encode`` repeats it, and raises the error to the maker of the request.
        """
        batch.compressing = False
        if batch.settled:  # it has expired, or its transaction was aborted
            return Next.NOTHING
        if buffer is not None:
            batch.builder.packed(buffer)
        return Next.OFFER if self.is_ready else Next.NOTHING

    def take(self) -> ProducerBatch | None:
        """Take the next batch to send now, with sequence numbers. Returns None if none may be sent yet.

        The caller sends it at once, and reports exactly one of ``delivered``, ``failed``, ``refused``, ``split`` later.
        """
        if not self.is_ready:
            return None
        batch = self.unsent[0] if self.unsent else self.open
        assert batch is not None
        # A large batch is compressed before it gets numbers. If it expires meanwhile, its numbers would be a gap.
        if batch is self.open and self._batches.is_large(batch):
            self.seal()
            if batch.compressing:
                return None
        sequences = self.sequences
        if sequences is not None:
            # Numbers are removed only without a request in flight: batches with the old numbers are resolved first.
            if self.topic_id is not None and not self.in_flight and not batch.has_numbers_of(self.topic_id):
                for waiting in self.unsent:
                    waiting.move_to(self.topic_id)
            # The batch is numbered before it is sealed, because a batch that waits for a producer id takes records.
            if batch.sequence == NO_SEQUENCE:
                is_resolved = not self.sent and not self.in_flight
                if not sequences.number(batch, is_resolved=is_resolved):
                    return None
        if batch is self.open:
            self.seal()
        del self.unsent[0]
        assert not batch.settled, "a settled batch is not sent again"
        self.sent.append(batch)
        self.in_flight += 1
        batch.attempts += 1
        return batch

    def sent_to(self, batch: ProducerBatch, topic_id: bytes) -> None:
        """Record that the taken batch is sent to the topic with this id; zero if it is sent by name."""
        # A batch that was once sent by name keeps the zero id. If the topic was created again under that name, either
        # log may have received the batch, so its numbers must stay.
        if batch.sent_to != ZERO_UUID:
            batch.sent_to = topic_id

    # Answers. If a batch has expired before its answer, the answer only ends its request.

    def delivered(self, batch: ProducerBatch) -> Next:
        """Remove a batch that the broker has written."""
        self.in_flight -= 1
        # This also holds for an expired batch: its acknowledgement proves the same about the batches before it.
        if self.sequences is not None:
            self.sequences.acknowledged(batch, self.sent)
        if not batch.settled:
            is_draining = self.state is PartitionState.DRAINING
            assert self.sent[0] is batch or is_draining, "brokers answer in order, so an earlier batch has failed"
            self.sent.remove(batch)
            self._left(batch)
            self._backoff = None  # the next outage begins with the shortest pause
        return self._after_answer()

    def failed(self, batch: ProducerBatch, error: Exception, *, unknown_sequence: bool = False) -> Next:
        """Keep the batch for another attempt, and pause first.

        ``unknown_sequence``: the broker refused its sequence numbers. If this is the first unsettled batch, the broker
        has neither it nor a later one, so all of them may get new numbers. For a later batch, the refusal only follows
        from the failure before it. For a batch that ``is_written``, the caller reports ``delivered`` instead.
        """
        self.in_flight -= 1
        if not batch.settled:
            batch.last_error = error
            # One uncertain attempt is enough. A later attempt that the broker surely refused does not undo it.
            batch.may_be_written = batch.may_be_written or may_be_written(error)
            if unknown_sequence and self.sequences is not None and batch is self.sent[0]:
                self.sequences.first_not_written()
        # This also applies if the batch has expired meanwhile, because the broker would fail the next batches as well.
        self._must_pause = True
        self._happened(PartitionEvent.FAILED)
        return self._after_answer()

    def id_refused(self, batch: ProducerBatch, error: Exception) -> Next:
        """Continue with unwritten batches under another id, because the broker refuses the producer id or its epoch.

        The broker has not written the batch with this request. If an earlier request may have written it, the caller
        cannot find out any more, so it fails the batch first (``expired``). The batches behind it are handled
        separately.
        """
        if self.sequences is not None:
            self.sequences.id_refused(batch)
        return self.failed(batch, error, unknown_sequence=True)

    def refused(self, batch: ProducerBatch) -> Next:
        """Remove a batch that the broker will never accept. The caller fails it."""
        self.in_flight -= 1
        if not batch.settled:
            self._refuse(batch)
            self.sent.remove(batch)
            self._left(batch)
        return self._after_answer()

    def split(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> Next:
        """Replace a batch by ``parts``, which take its place and share its memory."""
        self.in_flight -= 1
        if not batch.settled:
            self._refuse(batch)
            position = self.sent.index(batch)
            # The parts stay among the sent batches, in the place of the whole. When the partition is drained, all of
            # them return to the front of ``unsent`` in their order.
            self.sent[position : position + 1] = parts
            self._left(batch)
            share, rest = divmod(batch.reserved, len(parts))
            for part in parts:
                part.reserved = share
                if self._batches.is_large(part):
                    part.compressing = self._compress(self, part)
            # No byte may get lost in the division. It would never be released, and ``buffer_memory`` would shrink
            # permanently.
            parts[0].reserved += rest
            assert sum([part.reserved for part in parts]) == batch.reserved, "the parts share all of its memory"
            # The partition must drain before the parts are sent. It does not pause, because the broker is healthy.
            self._happened(PartitionEvent.FAILED)
        return self._after_answer()

    def _refuse(self, batch: ProducerBatch) -> None:
        if self.sequences is None:
            return
        is_first = batch is self.sent[0]
        self.sequences.refused(batch, is_first=is_first)
        # Numbers can change only when no request is in flight, so the partition drains even though no batch is retried.
        if is_first and self.state is PartitionState.OPEN:
            self._happened(PartitionEvent.FAILED)

    def expired(self, batch: ProducerBatch) -> Next:
        """Remove a batch whose ``delivery_timeout`` has ended, also if it is in flight. The caller fails it."""
        if batch is self.open:
            self.open: ProducerBatch | None = None
        else:
            # ``in_flight`` does not change: the request is still with the broker, and its answer ends it.
            (self.sent if batch in self.sent else self.unsent).remove(batch)
            if self.sequences is not None:
                self.sequences.dropped(batch)
        self._left(batch)
        return Next.OFFER if self.is_ready else Next.NOTHING

    # The leader and the pauses.

    def unreachable(self, error: Exception) -> Next:
        """Record that no connection to the leader could be made."""
        # In the other states, the partition already waits for another event, which decides when it continues.
        if self.state is not PartitionState.OPEN:
            return Next.NOTHING
        self.delayed(error)
        self._must_pause = True
        self._happened(PartitionEvent.FAILED)
        return self._after_answer()

    def led_by(self, leader: int | None, leader_epoch: int | None) -> Next:
        """Apply the leader that metadata names; None if there is no leader."""
        known_epoch = self.leader_epoch
        newer = leader_epoch is not None and known_epoch is not None and leader_epoch > known_epoch
        # A missing leader, or a leader without an epoch, must not erase the newest known epoch. Otherwise the next
        # leader could not count as newer than the failed one.
        self.leader, self.leader_epoch = leader, leader_epoch if leader_epoch is not None else known_epoch
        # No request is in flight and no pause runs, so the new leader can be used at once.
        if self.state is PartitionState.LEADERLESS:
            return self.resume()
        if self.state is PartitionState.OPEN:
            # The same broker with a newer epoch needs no draining: it answers in the order of its requests.
            if leader == self.broker:
                return Next.NOTHING
            # The old leader may still write batches in flight. A batch that the new leader writes first would overtake
            # them.
            self._happened(PartitionEvent.LEADER_CHANGED)
            return self._after_answer()
        # If the leader is newer than the failed leader, the next attempt needs no pause (KIP-951). Epochs only grow, so
        # brokers that contradict one another cannot cause a busy loop.
        if newer and leader is not None:
            self._skip_pause = True
            if self.state is PartitionState.BACKING_OFF:
                return Next.RESUME
        return Next.NOTHING

    def pause(self) -> float:
        """Return the seconds to back off: 0 if only the leader moved."""
        if self._skip_pause or not self._must_pause:
            return 0.0
        if self._backoff is None:
            self._backoff = self._make_backoff()
        return self._backoff.next()

    def resume(self) -> Next:
        """Continue after the pause if a leader is known."""
        if self.state not in (PartitionState.BACKING_OFF, PartitionState.LEADERLESS):
            return Next.NOTHING
        if self.leader is None:
            self._happened(PartitionEvent.LEADER_UNKNOWN)
            return Next.NOTHING
        assert not self.in_flight, "all requests are answered before the next level (rule 3)"
        self._happened(PartitionEvent.LEADER_KNOWN)
        # From now on, entries in the queue of the old leader are stale. Without the level, its sender would take a
        # batch and send it to a broker that does not lead the partition.
        self.level += 1
        self.broker: int | None = self.leader
        self._must_pause = self._skip_pause = False
        return Next.OFFER if self.is_ready else Next.NOTHING

    def topic_recreated(self, topic_id: bytes) -> None:
        """Handle a topic that was deleted and created again: its old log and sequence numbers no longer exist.

        So the partition continues under a new epoch, also with batches that were sent to the old topic by its id.
        Batches that were sent by name are resolved under their numbers, because the new log may have them. So are those
        that were sent to the "new" topic before: brokers that lag behind can name the old one for a while.
        """
        self.topic_id = topic_id
        if self.sequences is not None:
            self.sequences.topic_recreated()
        # Epochs of the new topic begin at 0. If they were compared with epochs of the old topic, no leader would count
        # as newer.
        self.leader_epoch = None

    def retire(self) -> None:
        """Drop the partition. Its successor starts at sequence number 0, so it must use another identity."""
        if self.sequences is not None:
            self.sequences.retire()

    def abandon(self) -> None:
        """Drop all batches, which the caller fails. Answers may still arrive."""
        # The state and ``in_flight`` stay: the remaining answers drain the partition as usual.
        for batch in self.batches:
            self._left(batch)
            if self.sequences is not None:
                self.sequences.dropped(batch)
        self.sent.clear()
        self.unsent.clear()
        self.open = None

    def _after_answer(self) -> Next:
        assert self.in_flight >= 0, "each request is answered once"
        if self.state is PartitionState.DRAINING and not self.in_flight:
            self._happened(PartitionEvent.DRAINED)
            # The batches go to the front in their order, so that the oldest batch is sent again first.
            self.unsent[:0] = self.sent
            self.sent.clear()
            if self.sequences is not None:
                self.sequences.remove_unwritten(self.unsent)
            return Next.PAUSE
        return Next.OFFER if self.is_ready else Next.NOTHING

    def _happened(self, event: PartitionEvent) -> None:
        before, self.state = self.state, next_state(TRANSITIONS, self.state, event)
        if before is not self.state:
            logger.debug("%r moved from %s after %s", self, before.name, event.name)

    def __repr__(self) -> str:
        return (
            f"<PartitionProducer {self.topic_partition} {self.state.name} broker={self.broker} level={self.level}"
            f" unsent={len(self.unsent)} in_flight={self.in_flight}>"
        )
