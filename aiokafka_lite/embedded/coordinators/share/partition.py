"""A share partition (KIP-932): the records that members of a share group may process, and the records already
processed.

It decides and never waits; it has no log and no clock. Its owner passes the time (seconds of any one clock) and the
batches that the log has.

Rules:

 1. Records in flight have offsets from ``start_offset`` up to ``end_offset`` (excluded). Records before
    ``start_offset`` are done. Records from ``end_offset`` on have never been delivered.
 2. A delivery adds one to the delivery count of a record. An acquisition lock that runs out, and a member that ends its
    session, release the record; its count stays.
 3. A record that is released after its last allowed delivery is archived: it is never delivered again.
 4. The start offset moves over all records that are acknowledged or archived, and over offsets that the log lacks.
 5. An acknowledgement of records before the start offset has no effect and no error: they are done, or deleted.
 6. The acknowledgements of one request for one partition are all applied, or none of them.
 7. ``end_offset - start_offset`` stays below ``max_locks``, except for the end of a record batch. Without that limit,
    one record that no member acknowledges would let the state grow with the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum, IntEnum
from typing import NamedTuple

from ....errors import ErrorCode
from ....state_machine import next_state

UNINITIALIZED = -1
"""The start offset of a share partition that has never acknowledged or released a record."""
NOT_ACQUIRED = "The offset cannot be acknowledged. The offset is not acquired."
NOT_FOUND = "Batch record not found. The request batch offsets are not found in the cache."
NO_RENEWALS = "Renewing acquisition locks is not enabled for the group."


class RecordState(Enum):
    """The state of a record in flight. Its number is the delivery state in Kafka's own records."""

    AVAILABLE = "no member has the record, and it may be delivered"
    ACQUIRED = "a member has the record, until its acquisition lock ends"
    ACKNOWLEDGED = "a member has processed the record"
    ARCHIVED = (
        "the record is never delivered again: it was rejected, or delivered too often, or its offset has no record"
    )


class RecordEvent(Enum):
    """An event of a record in flight."""

    ACQUIRE = "the record is delivered to a member"
    ACCEPT = "the member has processed it"
    RELEASE = "the member returned it, or the lock or the session of the member ended"
    EXHAUST = "it was released after its last allowed delivery"
    REJECT = "the member rejected the record, or says that the offset has no record"
    RENEW = "the member extended its acquisition lock"
    DROP = "compaction has removed it, or its transaction was aborted and the group reads committed records"


_S, _E = RecordState, RecordEvent

TRANSITIONS: dict[RecordState, dict[RecordEvent, RecordState]] = {
    _S.AVAILABLE: {_E.ACQUIRE: _S.ACQUIRED, _E.DROP: _S.ARCHIVED},
    _S.ACQUIRED: {
        _E.ACCEPT: _S.ACKNOWLEDGED,
        _E.RELEASE: _S.AVAILABLE,
        _E.EXHAUST: _S.ARCHIVED,
        _E.REJECT: _S.ARCHIVED,
        _E.RENEW: _S.ACQUIRED,
    },
    _S.ACKNOWLEDGED: {},
    _S.ARCHIVED: {},
}
_DONE = (_S.ACKNOWLEDGED, _S.ARCHIVED)


class AcknowledgeType(IntEnum):
    """The types of acknowledgements, by their numbers in ShareFetch and ShareAcknowledge.

    ``AcknowledgeType`` of ``share`` is the member's side, and explains each type.
    """

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


_EVENTS = {
    AcknowledgeType.GAP: _E.REJECT,
    AcknowledgeType.ACCEPT: _E.ACCEPT,
    AcknowledgeType.RELEASE: _E.RELEASE,
    AcknowledgeType.REJECT: _E.REJECT,
    AcknowledgeType.RENEW: _E.RENEW,
}


class Acknowledgement(NamedTuple):
    """Offsets from ``first`` to ``last``, both included; ``types`` has one type for all of them, or one for each."""

    first: int
    last: int
    types: Sequence[int]


class AcquiredRange(NamedTuple):
    """Offsets from ``first`` to ``last``, both included, that a member got with the same delivery count."""

    first: int
    last: int
    delivery_count: int


class StateBatch(NamedTuple):
    """Offsets from ``first`` to ``last``, both included, with the same state and delivery count."""

    first: int
    last: int
    state: RecordState
    delivery_count: int


class BadAcknowledgement(Exception):
    """An acknowledgement is refused, and nothing is changed. ``code`` is Kafka's error code."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class _Record:
    __slots__ = ("delivery_count", "locked_until", "member_id", "state")

    def __init__(self, state: RecordState = RecordState.AVAILABLE, delivery_count: int = 0) -> None:
        self.state = state
        self.delivery_count = delivery_count
        self.member_id = ""
        self.locked_until = 0.0


class SharePartition:
    """A share partition. Owner: the ``SharePartitions`` of the node that leads the partition."""

    def __init__(self, start_offset: int, batches: Iterable[StateBatch] = ()) -> None:
        self.start_offset: int = start_offset
        stored = {
            offset: _Record(batch.state, batch.delivery_count)
            for batch in batches
            for offset in range(max(batch.first, start_offset), batch.last + 1)
        }
        self.end_offset: int = max(stored, default=start_offset - 1) + 1
        # By offset, in order. A record without state was acquired when the state was written.
        self._records = {offset: stored.get(offset) or _Record() for offset in range(start_offset, self.end_offset)}
        self._move_start()

    def __repr__(self) -> str:
        return f"<SharePartition {self.start_offset}..{self.end_offset} acquired={self.acquired}>"

    @property
    def acquired(self) -> int:
        """The number of acquired records."""
        return sum(record.state is RecordState.ACQUIRED for record in self._records.values())

    @property
    def delivery_complete_count(self) -> int:
        """The number of records from the start offset on that are done."""
        return sum(record.state in _DONE for record in self._records.values())

    @property
    def next_fetch_offset(self) -> int:
        """The first offset to read from the log: the first available record, or the end of the records in flight."""
        available = (offset for offset, record in self._records.items() if record.state is RecordState.AVAILABLE)
        return next(available, self.end_offset)

    def may_acquire(self, max_locks: int) -> bool:
        """Return whether there is an available record in flight, or room for another record."""
        return self.next_fetch_offset < self.end_offset or self.end_offset - self.start_offset < max_locks

    def state(self) -> list[StateBatch]:
        """Return the state to store with ``start_offset``.

        An acquired record is stored in its state before the acquisition.
        """
        batches: list[StateBatch] = []
        for offset, record in self._records.items():
            state, count = record.state, record.delivery_count
            if state is RecordState.ACQUIRED:
                state, count = RecordState.AVAILABLE, count - 1
            assert count >= 0, "an acquired record was delivered at least once"
            last = batches[-1] if batches else None
            if last is not None and (last.last + 1, last.state, last.delivery_count) == (offset, state, count):
                batches[-1] = last._replace(last=offset)
            else:
                batches.append(StateBatch(offset, offset, state, count))
        # Records that were never delivered need no state at the end.
        while batches and batches[-1].state is RecordState.AVAILABLE and batches[-1].delivery_count == 0:
            batches.pop()
        return batches

    # Acquiring.

    def acquire(
        self,
        member_id: str,
        batches: Sequence[tuple[int, int]],
        max_records: int,
        max_locks: int,
        locked_until: float,
        *,
        strict: bool = False,
        batch_size: int | None = None,
    ) -> list[AcquiredRange]:
        """Acquire records for a member. ``batches`` are the first and last offsets of the log's record batches, in
        order, from ``next_fetch_offset`` on.

        With ``strict``, at most ``max_records`` new records are acquired (KIP-1206). Otherwise the record batch in
        which ``max_records`` is reached is acquired to its end. New records are then returned in ranges of whole
        record batches. All ranges except the last have ``batch_size`` records or more.
        """
        acquired: list[AcquiredRange] = []
        if not batches:
            return acquired
        first, last = batches[0][0], batches[-1][1]
        # The log no longer has earlier records (rule 4).
        self._drop_available(offset for offset in self._records if offset < first)
        self._move_start()
        available = [
            offset
            for offset, record in self._records.items()
            if offset <= last and record.state is RecordState.AVAILABLE
        ][: max(0, max_records)]
        for offset in available:
            self._acquire(offset, self._records[offset], member_id, locked_until, acquired)
        if len(available) >= max_records or last < self.end_offset:
            return acquired
        first = max(self.end_offset, first)
        # Without records in flight, the state begins at the next record, so that ``max_locks`` (rule 7) does not
        # count offsets that the log lacks.
        if not self._records:
            self.start_offset = first
        assert not self._records or next(reversed(self._records)) < first, "new records come after those in flight"
        room = min(max_records - len(available), max_locks - (first - self.start_offset))
        if room > 0:
            end, splits = min(first + room, last + 1), set[int]()
            if not strict:
                end, splits = _whole_batches(batches, first, end, batch_size)
            for offset in range(first, end):
                record = self._records[offset] = _Record()
                self._acquire(offset, record, member_id, locked_until, acquired, begins=offset in splits)
            self.end_offset = end
        return acquired

    def _acquire(
        self,
        offset: int,
        record: _Record,
        member_id: str,
        locked_until: float,
        acquired: list[AcquiredRange],
        *,
        begins: bool = False,
    ) -> None:
        """Acquire one record. With ``begins``, it begins another range."""
        record.state = next_state(TRANSITIONS, record.state, RecordEvent.ACQUIRE)
        record.delivery_count += 1
        record.member_id = member_id
        record.locked_until = locked_until
        last = acquired[-1] if acquired else None
        assert last is None or last.last < offset, "acquired ranges ascend and do not overlap"
        continues = last is not None and (last.last + 1, last.delivery_count) == (offset, record.delivery_count)
        if last is not None and continues and not begins:
            acquired[-1] = last._replace(last=offset)
        else:
            acquired.append(AcquiredRange(offset, offset, record.delivery_count))

    def archive_aborted(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Archive records of aborted transactions, by their first and last offsets, before they are delivered.

        After that, they and the records before them are in flight.
        """
        for first, last in ranges:
            for offset in range(self.end_offset, last + 1):
                self._records[offset] = _Record()
            self.end_offset = max(self.end_offset, last + 1)
            self._drop_available(range(max(first, self.start_offset), last + 1))
        self._move_start()

    def _drop_available(self, offsets: Iterable[int]) -> None:
        for offset in offsets:
            record = self._records.get(offset)
            if record is not None and record.state is RecordState.AVAILABLE:
                record.state = next_state(TRANSITIONS, record.state, RecordEvent.DROP)

    # Acknowledging.

    def acknowledge(
        self,
        member_id: str,
        batches: Iterable[Acknowledgement],
        max_deliveries: int,
        locked_until: float,
        *,
        may_renew: bool = True,
    ) -> None:
        """Apply the acknowledgements of a member. Raises BadAcknowledgement; then nothing is changed."""
        # All acknowledgements are checked before the first one is applied (rule 6).
        changes: dict[_Record, RecordEvent] = {}
        for batch in batches:
            for record, event in self._checked(member_id, batch):
                if event is RecordEvent.RENEW and not may_renew:
                    raise BadAcknowledgement(ErrorCode.INVALID_RECORD_STATE, NO_RENEWALS)
                if record in changes:  # its first acknowledgement would end the acquisition
                    raise BadAcknowledgement(ErrorCode.INVALID_RECORD_STATE, NOT_ACQUIRED)
                changes[record] = event
        for record, event in changes.items():
            if event is RecordEvent.RELEASE:
                self._release(record, max_deliveries)
                continue
            record.state = next_state(TRANSITIONS, record.state, event)
            if event is RecordEvent.RENEW:
                record.locked_until = locked_until
        self._move_start()

    def _checked(self, member_id: str, batch: Acknowledgement) -> list[tuple[_Record, RecordEvent]]:
        """Return the records of an acknowledgement with their events. Raises BadAcknowledgement."""
        # Rule 5: the lock ended meanwhile, and another member processed the records, or they were deleted.
        if batch.last < self.start_offset:
            return []
        if not self._records:
            raise BadAcknowledgement(ErrorCode.INVALID_RECORD_STATE, NOT_FOUND)
        for place, offset in (("first", batch.first), ("last", batch.last)):
            if offset >= self.end_offset:
                raise BadAcknowledgement(
                    ErrorCode.INVALID_REQUEST,
                    f"Batch record not found. The {place} offset in request is past acquired records.",
                )
        acknowledged = []
        for offset in range(max(batch.first, self.start_offset), batch.last + 1):
            record = self._records.get(offset)
            if record is None:
                continue  # the log had no record at this offset when its neighbours were acquired
            if record.state is not RecordState.ACQUIRED:
                raise BadAcknowledgement(ErrorCode.INVALID_RECORD_STATE, NOT_ACQUIRED)
            if record.member_id != member_id:
                raise BadAcknowledgement(ErrorCode.INVALID_RECORD_STATE, "Member is not the owner of offset")
            kind = batch.types[0] if len(batch.types) == 1 else batch.types[offset - batch.first]
            acknowledged.append((record, _EVENTS[AcknowledgeType(kind)]))
        return acknowledged

    def _release(self, record: _Record, max_deliveries: int) -> None:
        event = RecordEvent.EXHAUST if record.delivery_count >= max_deliveries else RecordEvent.RELEASE
        record.state = next_state(TRANSITIONS, record.state, event)
        record.member_id = ""

    def release(self, member_id: str, max_deliveries: int) -> bool:
        """Release all records of a member whose session has ended. True if the member had records."""
        return self._release_all(
            [record for record in self._records.values() if record.member_id == member_id], max_deliveries
        )

    def expire(self, now: float, max_deliveries: int) -> bool:
        """Release the records whose acquisition locks have ended. True if there were any."""
        return self._release_all(
            [record for record in self._records.values() if record.locked_until <= now], max_deliveries
        )

    def _release_all(self, records: Iterable[_Record], max_deliveries: int) -> bool:
        # Records that are done, or available again, still have the member or the end of their last lock.
        acquired = [record for record in records if record.state is RecordState.ACQUIRED]
        for record in acquired:
            self._release(record, max_deliveries)
        self._move_start()  # the first records may be archived now (rule 3)
        return bool(acquired)

    @property
    def next_expiry(self) -> float | None:
        """When the first acquisition lock ends; None if no record is acquired."""
        # A scan of all records in flight; rule 7 limits their number.
        return min(
            (record.locked_until for record in self._records.values() if record.state is RecordState.ACQUIRED),
            default=None,
        )

    # The log.

    def delete_before(self, offset: int) -> None:
        """Drop the records before ``offset``, where the log starts now, also records that members have."""
        if offset <= self.start_offset:
            return
        for done in [record for record in self._records if record < offset]:
            del self._records[done]
        self.start_offset = offset
        self.end_offset = max(self.end_offset, offset)
        self._move_start()

    def _move_start(self) -> None:
        while self._records:
            offset, record = next(iter(self._records.items()))
            if record.state not in _DONE:
                assert self.start_offset <= offset < self.end_offset, "the start offset never moves back (rule 4)"
                self.start_offset = offset
                return
            del self._records[offset]
        self.start_offset = self.end_offset


def _whole_batches(
    batches: Sequence[tuple[int, int]], first: int, end: int, batch_size: int | None
) -> tuple[int, set[int]]:
    """Return ``end`` moved to the end of its record batch, and the starts of batches at which another range begins."""
    end = next(last + 1 for _, last in batches if last >= end - 1)
    splits = set[int]()
    if batch_size is not None and end - first > batch_size:
        for start, _ in batches:
            if start < end and start - first >= batch_size:
                splits.add(start)
                first = start
    return end, splits
