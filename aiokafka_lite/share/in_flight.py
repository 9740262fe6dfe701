"""The records that this consumer has acquired: buffered, returned to the user, or acknowledged but not yet sent. Pure.

An acquired record is in exactly one place of its ``Acquisition``:

- ``unread`` or ``buffered``: it is not yet returned to the user, so it is never acknowledged as processed. The batches
  in ``unread`` are not decoded.
- ``returned``: it is returned to the user, who has not yet acknowledged it.
- ``acknowledged``: the user has acknowledged it; the next request to its broker carries the acknowledgement.

Acquired offsets that the user never gets are in ``settled``: the next request carries their acknowledgements, too.

Rule 1: An acquisition belongs to one session with one broker and to one acquisition lock. When the session is lost or
        the lock expires, the broker delivers the records again, and an acknowledgement would be refused. So
        acknowledgements of such records fail here and are not sent. If one acknowledgement of a partition is wrong, a
        broker refuses all of them in that request.
Rule 2: Times are times of the event loop's clock. A lock counts from the moment at which the request was sent, so it
        expires here before it expires at the broker.
Rule 3: A record that waits here must reach the user before its lock ends. ``keep`` decides, at half of the lock, which
        locks are renewed and which records are released. A release keeps the delivery count, and the last allowed
        delivery archives the record. So only records of a first delivery are released unseen: all groups allow two.
Rule 4: Without renewals, a redelivered record that waits is returned also after the end of its lock: the next delivery
        could be the last. Its acknowledgement is refused, which the user and the log hear of.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, NamedTuple

from ..errors import ErrorCode, IllegalStateError, KafkaError, error_for
from ..types import ShareRecord, TopicPartition
from .acknowledgements import AcknowledgeType, SettledRange
from .acquired import AcquiredRecords, DecodedBatch
from .session import TopicIdPartition

AnyShareRecord = ShareRecord[Any, Any]

LAST_SECOND = 1.0
"""Seconds before the end of a lock at which all waiting records are released, if the lock cannot be renewed. It is a
tenth of a lock of less than 10 s."""


class Acquisition:
    """Records of one partition under one acquisition lock. Owner: ``InFlight``."""

    __slots__ = (
        "acknowledged",
        "buffered",
        "expires_at",
        "is_abandoned",
        "is_halved",
        "key",
        "lock",
        "lost",
        "may_renew",
        "node_id",
        "partition",
        "returned",
        "returned_at",
        "settled",
        "unread",
    )

    def __init__(
        self,
        partition: TopicPartition,
        key: TopicIdPartition,
        node_id: int,
        expires_at: float,
        records: Iterable[ShareRecord] = (),
        *,
        unread: AcquiredRecords | None = None,
        lock: float = 0.0,
        may_renew: bool = False,
    ) -> None:
        self.partition: TopicPartition = partition
        self.key: TopicIdPartition = key
        self.node_id: int = node_id
        self.expires_at: float = expires_at
        self.lost: KafkaError | None = None
        """The error that ended the session in which the records were acquired, or None."""
        self.buffered: deque[ShareRecord] = deque(records)
        self.unread = unread
        self.returned: dict[int, int] = {}
        """The delivery counts of the records, by their offset."""
        self.returned_at: float | None = None
        """When the user last got or acknowledged one of its records; None before."""
        self.lock = lock
        """The seconds of the lock; 0 if the lock is not watched."""
        self.may_renew = may_renew
        """Whether the broker renews locks."""
        self.is_halved = False
        """Whether the half of a lock that is not renewed is over."""
        self.is_abandoned = False
        """Whether the lock ends, and nothing more can be done about it."""
        self.acknowledged: dict[int, AcknowledgeType] = {}
        self.settled: list[SettledRange] = []

    def __repr__(self) -> str:
        return (
            f"<Acquisition {self.partition} broker={self.node_id} buffered={len(self.buffered)} "
            f"returned={len(self.returned)} acknowledged={len(self.acknowledged)}>"
        )

    @property
    def is_over(self) -> bool:
        return not (self.unread or self.buffered or self.returned or self.has_acknowledged)

    @property
    def has_acknowledged(self) -> bool:
        """Whether there are acknowledgements to send."""
        return bool(self.acknowledged or self.settled)

    @property
    def acknowledgements(self) -> int:
        """The number of offsets whose acknowledgements wait for the next request."""
        return len(self.acknowledged) + sum(len(settled.offsets) for settled in self.settled)

    @property
    def waiting(self) -> int:
        """The number of records that were not returned to the user."""
        return len(self.buffered) + (len(self.unread) if self.unread else 0)

    @property
    def is_late(self) -> bool:
        """Whether the waiting records are returned although their lock may have ended (rule 4)."""
        return self.is_abandoned and not self.may_renew and self.is_halved

    @property
    def keep_at(self) -> float | None:
        """When to renew the lock, or to release records that would come too late (rule 3); None for never."""
        if self.lost is not None or not self.lock or self.is_abandoned:
            return None
        if not self.may_renew and self.is_halved:
            return self.expires_at - min(self.lock / 10, LAST_SECOND)
        return self.expires_at - self.lock / 2

    def locked(self) -> Acknowledgements:
        """Return a renewal of all its offsets: also those whose acknowledgements wait for the next request."""
        offsets = chain(self.returned, self.acknowledged, (record.offset for record in self.buffered))
        ranges = [*self.settled, *(self.unread.released() if self.unread else ())]
        renewed = [settled_range._replace(kind=AcknowledgeType.RENEW) for settled_range in ranges]
        return Acknowledgements(self, dict.fromkeys(offsets, AcknowledgeType.RENEW), settled=renewed)

    def release_waiting(self, keep: float, *, also_redelivered: bool) -> int:
        """Release the waiting records behind the first ``keep``. Returns their number.

        A redelivered record is released only with ``also_redelivered`` (rule 3).
        """
        released = 0
        records, self.buffered = self.buffered, deque()
        for position, record in enumerate(records):
            if position < keep or not (also_redelivered or record.delivery_count == 1):
                self.buffered.append(record)
            else:
                self.acknowledged[record.offset] = AcknowledgeType.RELEASE
                released += 1
        if self.unread:
            ranges = self.unread.release_behind(max(0.0, keep - len(self.buffered)), also_redelivered=also_redelivered)
            self.settled += ranges
            released += sum(len(settled_range.offsets) for settled_range in ranges)
        return released

    def decode(self) -> DecodedBatch:
        """Decode the next unread batch, and buffer its records."""
        assert self.unread is not None
        decoded = self.unread.decode()
        self.buffered.extend(decoded.records)
        self.settled += decoded.settled
        return decoded

    def drop_waiting(self) -> None:
        """Drop the records that are not yet returned to the user. The broker delivers them again."""
        self.buffered.clear()
        self.unread = None

    def failure(self, now: float) -> KafkaError | None:
        """Return the reason why the broker would refuse acknowledgements (rule 1), or None."""
        if self.lost is not None:
            return self.lost
        if now < self.expires_at:
            return None
        return error_for(
            ErrorCode.INVALID_RECORD_STATE,
            f"records of {self.partition} were acknowledged after their acquisition lock had expired; process fewer "
            "records at once, renew() them, or raise share.record.lock.duration.ms of the group",
            at=self.partition,
        )

    def is_next(self, record: ShareRecord) -> bool:
        """Return whether this is the next record for the user. The order stays when other records are released."""
        return bool(self.buffered) and self.buffered[0] is record

    def settle_unread(self, record: ShareRecord, kind: AcknowledgeType) -> None:
        """Acknowledge the next buffered record, which cannot be returned to the user."""
        assert self.is_next(record)
        self.buffered.popleft()
        self.acknowledged[record.offset] = kind


@dataclass(frozen=True, slots=True)
class Acknowledgements:
    """Acknowledgements of one acquisition, by offset and by range: in a request, or with their result."""

    acquisition: Acquisition
    types: Mapping[int, AcknowledgeType]
    error: KafkaError | None = None
    settled: Sequence[SettledRange] = ()

    @property
    def offsets(self) -> tuple[int, ...]:
        """The acknowledged records, without offsets that have no record."""
        ranges = [settled.offsets for settled in self.settled if settled.kind is not AcknowledgeType.GAP]
        return tuple(sorted(chain(self.types, *ranges)))

    def counts(self) -> Counter[AcknowledgeType]:
        """Return the number of acknowledged records by type, without offsets that have no record."""
        counts = Counter(self.types.values())
        for settled in self.settled:
            counts[settled.kind] += len(settled.offsets)
        del counts[AcknowledgeType.GAP]
        return counts


class Kept(NamedTuple):
    """What ``InFlight.keep`` has decided.

    The locks of ``renewals`` are to be renewed. ``released`` records are released, and ``abandoned`` records of the
    user lose their lock, because the user has had them for too long.
    """

    renewals: Sequence[Acknowledgements]
    released: int
    abandoned: int


class InFlight:
    """All acquisitions of one consumer, in the order in which they came. Owner: the ``ShareCore``."""

    def __init__(self) -> None:
        self._acquisitions: list[Acquisition] = []
        self.taken: int = 0
        """The number of records that were returned to the user."""
        self.expired: int = 0
        """The number of records that were dropped before they were returned to the user, because their lock had
        expired."""

        self.last_error: KafkaError | None = None
        """The last error after which acknowledgements were queued again."""

    def add(self, acquisition: Acquisition) -> None:
        self._acquisitions.append(acquisition)

    @property
    def acquisitions(self) -> Sequence[Acquisition]:
        """All acquisitions with records that this consumer holds."""
        return self._acquisitions

    # Records for the user.

    @property
    def buffered(self) -> int:
        """The number of records that were not returned to the user."""
        return sum(acquisition.waiting for acquisition in self._acquisitions)

    @property
    def decoded(self) -> int:
        """The number of decoded records that were not returned to the user."""
        return sum(len(acquisition.buffered) for acquisition in self._acquisitions)

    @property
    def returned(self) -> int:
        """The number of records that are returned to the user and not acknowledged."""
        return sum(len(acquisition.returned) for acquisition in self._acquisitions)

    def next(self, now: float) -> Acquisition | None:
        """Return the acquisition of the next record for the user, or None. Drops records whose lock has expired."""
        for acquisition in self._acquisitions:
            if acquisition.buffered or acquisition.unread:
                if now >= acquisition.expires_at and not acquisition.is_late:
                    self.expired += acquisition.waiting
                    acquisition.drop_waiting()
                elif acquisition.buffered:
                    return acquisition
        return None

    def next_unread(self, now: float) -> Acquisition | None:
        """Return an acquisition with a batch to decode, or None."""
        return next(
            (
                acquisition
                for acquisition in self._acquisitions
                if acquisition.unread and (now < acquisition.expires_at or acquisition.is_late)
            ),
            None,
        )

    def peek(self, max_records: int, now: float) -> list[tuple[Acquisition, list[ShareRecord]]]:
        """Return up to ``max_records`` records for the user, by acquisition. They stay buffered until ``take``."""
        peeked: list[tuple[Acquisition, list[ShareRecord]]] = []
        # Called for its effect: it drops records whose locks have expired.
        self.next(now)
        for acquisition in self._acquisitions:
            if max_records <= 0:
                break
            if acquisition.buffered and (now < acquisition.expires_at or acquisition.is_late):
                records = list(islice(acquisition.buffered, max_records))
                peeked.append((acquisition, records))
                max_records -= len(records)
        return peeked

    def take(self, acquisition: Acquisition, count: int, now: float) -> None:
        """Take the next ``count`` buffered records, which are returned to the user now."""
        buffered, returned = acquisition.buffered, acquisition.returned
        assert count <= len(buffered), "only buffered records are returned"
        acquisition.returned_at = now
        self.taken += count
        for _ in range(count):
            record = buffered.popleft()
            returned[record[2]] = record[9]  # an index takes half the time of a name, and this runs for each record

    # Locks (rules 3 and 4).

    def keep_at(self, node_id: int) -> float | None:
        """Return when ``keep`` has to be called for this broker; None for never."""
        times = (acquisition.keep_at for acquisition in self._acquisitions if acquisition.node_id == node_id)
        return min((time for time in times if time is not None), default=None)

    def keep(
        self, node_id: int, now: float, *, taken_within_lock: float, longest: float, reads_no_more: bool = False
    ) -> Kept:
        """Decide about the locks of this broker that are half over.

        ``taken_within_lock`` is the number of records that the program takes in the time of a lock, ``longest`` the
        seconds for which the locks of records of the user are renewed. With ``reads_no_more``, the program has not
        read for longer than that.
        """
        renewals: list[Acknowledgements] = []
        released = abandoned = 0
        room = taken_within_lock
        for acquisition in self._acquisitions:
            keep_at = acquisition.keep_at
            if acquisition.node_id != node_id or keep_at is None or keep_at > now:
                room -= acquisition.waiting
                continue
            if not acquisition.may_renew:
                rest = taken_within_lock * max(0.0, acquisition.expires_at - now) / acquisition.lock
                room -= taken_within_lock - rest
                released += acquisition.release_waiting(0 if acquisition.is_halved else room, also_redelivered=False)
                room += taken_within_lock - rest - acquisition.waiting
                acquisition.is_halved, acquisition.is_abandoned = True, acquisition.is_halved
                continue
            is_stuck = acquisition.returned_at is not None and now - acquisition.returned_at >= longest
            is_last = is_stuck or reads_no_more
            released += acquisition.release_waiting(0 if is_last else room, also_redelivered=is_last)
            room -= acquisition.waiting
            if now >= acquisition.expires_at:
                acquisition.is_abandoned = True  # nothing can be renewed
            elif is_stuck and acquisition.returned:
                acquisition.is_abandoned = True
                abandoned += len(acquisition.returned)
            else:
                renewals.append(acquisition.locked())
        return Kept(renewals, released, abandoned)

    def extend(self, acquisition: Acquisition, expires_at: float, lock: float) -> None:
        """Record that the lock of all records of an acquisition was renewed."""
        acquisition.expires_at, acquisition.lock = expires_at, lock

    def refuse_renewal(self, acquisition: Acquisition) -> None:
        """Record that the lock of an acquisition is not renewed any more."""
        acquisition.may_renew = False

    def refuse_renewals(self, node_id: int) -> None:
        """Record that this broker renews no locks."""
        for acquisition in self._acquisitions:
            if acquisition.node_id == node_id:
                acquisition.may_renew = False

    # Acknowledgements of the user.

    def find(self, record: AnyShareRecord) -> Acquisition:
        """Find the acquisition of a returned record. Raises IllegalStateError if there is none."""
        partition, offset, count = record[:2], record.offset, record.delivery_count
        # The newest acquisition first: after a lock has expired, the same record may have been acquired again.
        for acquisition in reversed(self._acquisitions):
            if acquisition.partition == partition and acquisition.returned.get(offset) == count:
                return acquisition
        raise IllegalStateError(
            f"offset {offset} of {TopicPartition(*partition)} is not in flight: this consumer did not return the "
            "record, or it is acknowledged already"
        )

    def acknowledge(self, record: AnyShareRecord, kind: AcknowledgeType, now: float) -> Acquisition:
        """Acknowledge a returned record. Raises IllegalStateError like ``find``.

        This shows that the user is at work, so the time for the records that came with it begins again.
        """
        acquisition = self.find(record)
        acquisition.returned_at = now
        del acquisition.returned[record.offset]
        acquisition.acknowledged[record.offset] = kind
        return acquisition

    def accept_returned(self) -> list[Acquisition]:
        """Accept all returned records. Returns their acquisitions."""
        acquisitions = [acquisition for acquisition in self._acquisitions if acquisition.returned]
        for acquisition in acquisitions:
            acquisition.acknowledged.update(dict.fromkeys(acquisition.returned, AcknowledgeType.ACCEPT))
            acquisition.returned.clear()
        return acquisitions

    def release_all(self) -> None:
        """Release the buffered records, and the returned records that are not acknowledged."""
        for acquisition in self._acquisitions:
            offsets = [*acquisition.returned, *(record.offset for record in acquisition.buffered)]
            acquisition.acknowledged.update(dict.fromkeys(offsets, AcknowledgeType.RELEASE))
            if acquisition.unread:
                acquisition.settled += acquisition.unread.released()
            acquisition.returned.clear()
            acquisition.drop_waiting()

    def unacknowledged(self) -> tuple[TopicPartition, int] | None:
        """Return the partition and offset of a returned record that is not acknowledged, or None."""
        for acquisition in self._acquisitions:
            for offset in acquisition.returned:
                return acquisition.partition, offset
        return None

    # Acknowledgements to brokers.

    def has_acknowledged(self, node_id: int) -> bool:
        """Return whether there are acknowledgements to send to this broker."""
        return any(
            acquisition.node_id == node_id and acquisition.has_acknowledged for acquisition in self._acquisitions
        )

    def holds_records_of(self, node_id: int) -> bool:
        """Return whether records of this broker are acquired, and their acknowledgements are not sent yet."""
        return any(acquisition.node_id == node_id and not acquisition.is_over for acquisition in self._acquisitions)

    def take_acknowledged(self, node_id: int, now: float) -> tuple[list[Acknowledgements], list[Acknowledgements]]:
        """Take the acknowledgements to send to this broker, and the ones that have failed already (rule 1)."""
        to_send: list[Acknowledgements] = []
        failed: list[Acknowledgements] = []
        for acquisition in self._acquisitions:
            if acquisition.node_id == node_id and acquisition.has_acknowledged:
                types, acquisition.acknowledged = acquisition.acknowledged, {}
                settled, acquisition.settled = acquisition.settled, []
                failure = acquisition.failure(now)
                acknowledgements = Acknowledgements(acquisition, types, failure, settled)
                (to_send if failure is None else failed).append(acknowledgements)
        self._drop_empty()
        return to_send, failed

    def put_back(self, refused: Acknowledgements) -> None:
        """Queue acknowledgements that the broker could not apply now, so that they are sent again later."""
        acquisition, self.last_error = refused.acquisition, refused.error
        # A newer acknowledgement of the same offset counts.
        acquisition.acknowledged = {**refused.types, **acquisition.acknowledged}
        acquisition.settled += refused.settled
        if acquisition not in self._acquisitions:
            self._acquisitions.append(acquisition)

    def renewed(self, acquisition: Acquisition, offset: int, expires_at: float, now: float) -> None:
        """Record that the user has renewed the lock of a returned record."""
        count = acquisition.returned.pop(offset, None)
        kind = acquisition.acknowledged.pop(offset, None)
        if count is None and kind is None:
            return  # the record was acknowledged, and the acknowledgement is sent
        # Another acquisition, because only this record of the old one has a new lock.
        renewed = Acquisition(
            acquisition.partition,
            acquisition.key,
            acquisition.node_id,
            expires_at,
            lock=acquisition.lock,
            may_renew=acquisition.may_renew,
        )
        renewed.returned_at = now
        if count is not None:
            renewed.returned[offset] = count
        if kind is not None:
            renewed.acknowledged[offset] = kind
        self._acquisitions.append(renewed)
        self._drop_empty()

    def lose(self, node_id: int, error: KafkaError) -> None:
        """Drop the buffered records of a lost session with this broker, which delivers them again.

        Returned records stay until the user acknowledges them; then the acknowledgement fails with ``error``.
        """
        for acquisition in self._acquisitions:
            if acquisition.node_id == node_id and acquisition.lost is None:
                # An acquisition that was lost before keeps the error of its own session.
                acquisition.lost = error
                acquisition.drop_waiting()
        self._drop_empty()

    def _drop_empty(self) -> None:
        self._acquisitions = [acquisition for acquisition in self._acquisitions if not acquisition.is_over]
