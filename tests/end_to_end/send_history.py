"""Compare the sends, their outcomes, and the records in the log. Pure: nothing is sent or read here.

Every value is unique, so that each found record can be traced to its send. A ``History`` is written while sending;
``violations`` compares it with all records that an independent reader found, in the reader's order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from aiokafka_lite import TopicPartition
from aiokafka_lite.errors import BufferFull, RecordTooLarge, SerializationError

UNKNOWN_OFFSET = -1

NOT_WRITTEN = (BufferFull, RecordTooLarge, SerializationError)
"""Errors after which certainly no broker has the record. After all others, it may be in the log."""


class Outcome(Enum):
    """How a send ended."""

    PENDING = "it has not ended"
    ACKNOWLEDGED = "it was acknowledged"
    REFUSED = "it failed, and is surely not written"
    UNKNOWN = "it failed, and may be written all the same"


@dataclass(slots=True, eq=False)
class Send:
    """One send. Sends to a partition are numbered in the order of their calls."""

    number: int
    topic_partition: TopicPartition
    value: bytes
    outcome: Outcome = Outcome.PENDING
    offset: int = UNKNOWN_OFFSET
    error: BaseException | None = None

    def acknowledged(self, topic_partition: TopicPartition, offset: int) -> None:
        self.outcome, self.topic_partition, self.offset = Outcome.ACKNOWLEDGED, topic_partition, offset

    def failed(self, error: BaseException) -> None:
        self.outcome = Outcome.REFUSED if isinstance(error, NOT_WRITTEN) else Outcome.UNKNOWN
        self.error = error

    def __str__(self) -> str:
        where = f"{self.topic_partition.topic}-{self.topic_partition.partition}"
        at = f" at {self.offset}" if self.outcome is Outcome.ACKNOWLEDGED else ""
        return f"{self.value.decode()} of {where}, {self.outcome.name}{at}"


class Found(NamedTuple):
    """One record that a reader received."""

    topic_partition: TopicPartition
    offset: int
    value: bytes


@dataclass(slots=True)
class History:
    """All sends of a producer, in the order of their calls."""

    sends: list[Send] = field(default_factory=list)

    def invoke(self, topic_partition: TopicPartition, value: bytes) -> Send:
        """Note that a send begins. The caller notes the outcome in the returned ``Send``."""
        send = Send(len(self.sends), topic_partition, value)
        self.sends.append(send)
        return send

    def of(self, outcome: Outcome) -> list[Send]:
        return [send for send in self.sends if send.outcome is outcome]


@dataclass(frozen=True, slots=True)
class Promises:
    """Promises that follow from the producer's settings and the topic's replication. The order is always promised."""

    lossless: bool = True
    """An acknowledged record stays at the offset of its acknowledgement."""
    once: bool = True
    """No record is written twice, and a failed record is not written after records that were sent later."""


class Violation(Enum):
    """A promise that was broken."""

    UNSETTLED = "a send never ended"
    LOST = "acknowledged, and not in the log"
    MISPLACED = "acknowledged with a place in the log that holds something else"
    DUPLICATED = "written more than once"
    REORDERED = "written before a record that was sent earlier to the same partition"
    RESURRECTED = "in the log although its send was refused"
    INVENTED = "in the log although it was not sent"
    REPEATED = "the reader was given an offset that it had passed"


class Finding(NamedTuple):
    """A broken promise, and the evidence."""

    violation: Violation
    evidence: str


def violations(history: History, records: Sequence[Found], promises: Promises = Promises()) -> list[Finding]:
    """Return every broken promise, each with its evidence. An empty list means that all promises were kept."""
    sends = {send.value: send for send in history.sends}
    assert len(sends) == len(history.sends), "values must be unique"
    places: dict[bytes, list[Found]] = defaultdict(list)
    for record in records:
        places[record.value].append(record)
    findings = [
        *_unsettled(history.sends),
        *_repeated(records),
        *_invented(records, sends),
        *_resurrected(history.sends, places),
        *_reordered(records, sends, promises),
    ]
    if promises.lossless:
        findings += _lost(history.sends, places)
        findings += _misplaced(history.sends, places)
        findings += _acknowledged_out_of_order(history.sends)
    if promises.once:
        findings += _duplicated(places)
    return findings


def _unsettled(sends: Iterable[Send]) -> Iterable[Finding]:
    return (Finding(Violation.UNSETTLED, str(send)) for send in sends if send.outcome is Outcome.PENDING)


def _repeated(records: Iterable[Found]) -> Iterable[Finding]:
    positions: dict[TopicPartition, int] = {}
    for record in records:
        position = positions.get(record.topic_partition, 0)
        if record.offset < position:
            yield Finding(Violation.REPEATED, f"{record} after offset {position - 1}")
        positions[record.topic_partition] = max(position, record.offset + 1)


def _invented(records: Iterable[Found], sends: dict[bytes, Send]) -> Iterable[Finding]:
    for record in records:
        send = sends.get(record.value)
        if send is None or send.topic_partition != record.topic_partition:
            yield Finding(Violation.INVENTED, str(record))


def _resurrected(sends: Iterable[Send], places: dict[bytes, list[Found]]) -> Iterable[Finding]:
    for send in sends:
        if send.outcome is Outcome.REFUSED and send.value in places:
            yield Finding(Violation.RESURRECTED, f"{send}: {places[send.value]}")


def _lost(sends: Iterable[Send], places: dict[bytes, list[Found]]) -> Iterable[Finding]:
    for send in sends:
        if send.outcome is Outcome.ACKNOWLEDGED and send.value not in places:
            yield Finding(Violation.LOST, str(send))


def _misplaced(sends: Iterable[Send], places: dict[bytes, list[Found]]) -> Iterable[Finding]:
    for send in sends:
        if send.outcome is not Outcome.ACKNOWLEDGED or send.offset == UNKNOWN_OFFSET or send.value not in places:
            continue
        if not any(place.offset == send.offset for place in places[send.value]):
            yield Finding(Violation.MISPLACED, f"{send}, found: {places[send.value]}")


def _duplicated(places: dict[bytes, list[Found]]) -> Iterable[Finding]:
    for value, copies in places.items():
        offsets: Collection[tuple[TopicPartition, int]] = {(copy.topic_partition, copy.offset) for copy in copies}
        if len(offsets) > 1:
            yield Finding(Violation.DUPLICATED, f"{value.decode()}: {sorted(offsets)}")


def _reordered(records: Iterable[Found], sends: dict[bytes, Send], promises: Promises) -> Iterable[Finding]:
    """Compare with the log: the first copy of each record comes after the first copies of all records that were sent
    before it.

    A request that timed out may wait in a broker's socket, and be executed after later requests. Idempotence rejects
    such a request. Without idempotence, its failed records can appear anywhere.
    """
    latest: dict[TopicPartition, Send] = {}
    seen: set[bytes] = set()
    for record in sorted(records, key=lambda record: (record.topic_partition, record.offset)):
        send = sends.get(record.value)
        if send is None or record.value in seen:
            continue
        seen.add(record.value)
        if send.outcome is not Outcome.ACKNOWLEDGED and not promises.once:
            continue
        before = latest.get(record.topic_partition)
        if before is not None and before.number > send.number:
            yield Finding(Violation.REORDERED, f"{send}, found at {record.offset} after {before}")
        else:
            latest[record.topic_partition] = send


def _acknowledged_out_of_order(sends: Iterable[Send]) -> Iterable[Finding]:
    """Yield acknowledged offsets that do not grow in the order of sending."""
    latest: dict[TopicPartition, Send] = {}
    for send in sends:
        if send.outcome is not Outcome.ACKNOWLEDGED or send.offset == UNKNOWN_OFFSET:
            continue
        before = latest.get(send.topic_partition)
        if before is not None and before.offset >= send.offset:
            yield Finding(Violation.REORDERED, f"{send}, acknowledged after {before}")
        latest[send.topic_partition] = send
