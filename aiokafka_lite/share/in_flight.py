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
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

from ..errors import ErrorCode, IllegalStateError, KafkaError, error_for
from ..types import ShareRecord, TopicPartition
from .acknowledgements import AcknowledgeType, SettledRange
from .acquired import AcquiredRecords, DecodedBatch
from .session import TopicIdPartition

AnyShareRecord = ShareRecord[Any, Any]


class Acquisition:
    """Records of one partition under one acquisition lock. Owner: ``InFlight``."""

    __slots__ = (
        "acknowledged",
        "buffered",
        "expires_at",
        "key",
        "lost",
        "node_id",
        "partition",
        "returned",
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
    def waiting(self) -> int:
        """The number of records that were not returned to the user."""
        return len(self.buffered) + (len(self.unread) if self.unread else 0)

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
        """The reason why the broker would refuse acknowledgements (rule 1), or None."""
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

    def settle_unread(self, record: ShareRecord, kind: AcknowledgeType) -> None:
        """Acknowledge the next buffered record, which cannot be returned to the user."""
        assert self.buffered[0] is record
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
        settled = [each.offsets for each in self.settled if each.kind is not AcknowledgeType.GAP]
        return tuple(sorted(chain(self.types, *settled)))

    def counts(self) -> Counter[AcknowledgeType]:
        """The number of acknowledged records by type, without offsets that have no record."""
        counts = Counter(self.types.values())
        for each in self.settled:
            counts[each.kind] += len(each.offsets)
        del counts[AcknowledgeType.GAP]
        return counts


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
        return sum(each.waiting for each in self._acquisitions)

    @property
    def decoded(self) -> int:
        """The number of decoded records that were not returned to the user."""
        return sum(len(each.buffered) for each in self._acquisitions)

    @property
    def returned(self) -> int:
        """The number of records that are returned to the user and not acknowledged."""
        return sum(len(each.returned) for each in self._acquisitions)

    def next(self, now: float) -> Acquisition | None:
        """The acquisition of the next record for the user, or None. Drops buffered records whose lock has expired."""
        for acquisition in self._acquisitions:
            if acquisition.buffered or acquisition.unread:
                if now >= acquisition.expires_at:
                    self.expired += acquisition.waiting
                    acquisition.drop_waiting()
                elif acquisition.buffered:
                    return acquisition
        return None

    def next_unread(self, now: float) -> Acquisition | None:
        """An acquisition with a batch to decode, or None."""
        return next((each for each in self._acquisitions if each.unread and now < each.expires_at), None)

    def peek(self, max_records: int, now: float) -> list[tuple[Acquisition, list[ShareRecord]]]:
        """Up to ``max_records`` records for the user, without returning them."""
        found: list[tuple[Acquisition, list[ShareRecord]]] = []
        # Called for its effect: it drops records whose locks have expired.
        self.next(now)
        for acquisition in self._acquisitions:
            if max_records <= 0:
                break
            if acquisition.buffered and now < acquisition.expires_at:
                records = list(islice(acquisition.buffered, max_records))
                found.append((acquisition, records))
                max_records -= len(records)
        return found

    def take(self, acquisition: Acquisition, count: int) -> None:
        """Take the next ``count`` buffered records, which are returned to the user now."""
        buffered, returned = acquisition.buffered, acquisition.returned
        self.taken += count
        for _ in range(count):
            record = buffered.popleft()
            returned[record[2]] = record[9]  # an index takes half the time of a name, and this runs for each record

    # Acknowledgements of the user.

    def find(self, record: AnyShareRecord) -> Acquisition:
        """The acquisition of a returned record. Raises IllegalStateError if there is none."""
        partition, offset, count = record[:2], record.offset, record.delivery_count
        # The newest acquisition first: after a lock has expired, the same record may have been acquired again.
        for acquisition in reversed(self._acquisitions):
            if acquisition.partition == partition and acquisition.returned.get(offset) == count:
                return acquisition
        raise IllegalStateError(
            f"offset {offset} of {TopicPartition(*partition)} is not in flight: this consumer did not return the "
            "record, or it is acknowledged already"
        )

    def acknowledge(self, record: AnyShareRecord, kind: AcknowledgeType) -> Acquisition:
        """Acknowledge a returned record. Raises IllegalStateError like ``find``."""
        acquisition = self.find(record)
        del acquisition.returned[record.offset]
        acquisition.acknowledged[record.offset] = kind
        return acquisition

    def accept_returned(self) -> list[Acquisition]:
        """Accept all returned records. Returns their acquisitions."""
        some = [each for each in self._acquisitions if each.returned]
        for acquisition in some:
            acquisition.acknowledged.update(dict.fromkeys(acquisition.returned, AcknowledgeType.ACCEPT))
            acquisition.returned.clear()
        return some

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
        """The partition and offset of a returned record that is not acknowledged, or None."""
        for acquisition in self._acquisitions:
            for offset in acquisition.returned:
                return acquisition.partition, offset
        return None

    # Acknowledgements to brokers.

    def has_acknowledged(self, node_id: int) -> bool:
        """Whether there are acknowledgements to send to this broker."""
        return any(each.node_id == node_id and each.has_acknowledged for each in self._acquisitions)

    def holds_records_of(self, node_id: int) -> bool:
        """Whether records of this broker are acquired and not acknowledged, or their acknowledgements not sent."""
        return any(each.node_id == node_id and not each.is_over for each in self._acquisitions)

    def take_acknowledged(self, node_id: int, now: float) -> tuple[list[Acknowledgements], list[Acknowledgements]]:
        """The acknowledgements to send to this broker, and the ones that have failed already (rule 1)."""
        to_send: list[Acknowledgements] = []
        failed: list[Acknowledgements] = []
        for acquisition in self._acquisitions:
            if acquisition.node_id == node_id and acquisition.has_acknowledged:
                types, acquisition.acknowledged = acquisition.acknowledged, {}
                settled, acquisition.settled = acquisition.settled, []
                failure = acquisition.failure(now)
                taken = Acknowledgements(acquisition, types, failure, settled)
                (to_send if failure is None else failed).append(taken)
        self._drop_empty()
        return to_send, failed

    def put_back(self, taken: Acknowledgements) -> None:
        """Queue acknowledgements that the broker could not apply now, so that they are sent again later."""
        acquisition, self.last_error = taken.acquisition, taken.error
        # A newer acknowledgement of the same offset counts.
        acquisition.acknowledged = {**taken.types, **acquisition.acknowledged}
        acquisition.settled += taken.settled
        if acquisition not in self._acquisitions:
            self._acquisitions.append(acquisition)

    def renewed(self, acquisition: Acquisition, offset: int, expires_at: float) -> None:
        """Record that the lock of a returned record was renewed."""
        count = acquisition.returned.pop(offset, None)
        kind = acquisition.acknowledged.pop(offset, None)
        if count is None and kind is None:
            return  # the record was acknowledged, and the acknowledgement is sent
        # Another acquisition, because only this record of the old one has a new lock.
        renewed = Acquisition(acquisition.partition, acquisition.key, acquisition.node_id, expires_at)
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
        self._acquisitions = [each for each in self._acquisitions if not each.is_over]
