"""The history of the members of a share group, and the checks of the promises of share groups (KIP-932).

The brokers' half of the history are acquisitions and acknowledgements, read from the requests that the cluster
answered. The members' half is a ``ShareJournal``. The rules:

1. An accepted or rejected record is never acquired again, once a broker has answered so.
2. One member has the lock of a record. Another member acquires the record only after its acknowledgement, after the
   lock duration, after the end of the share session, or at another leader. As in Kafka, a leader does not pass its
   locks on.
3. Each acquisition has a higher delivery count than the acquisition before it. The exception is a change of the leader:
   the new leader does not count deliveries that were in progress. A release that a broker has answered counts in any
   case. No count is above the limit.
4. A member accepts and rejects only what its user has acknowledged so. Its user receives a record only while the lock
   holds, which the client may have renewed. A redelivered record may come later, since its next delivery could be the
   last. A confirmed acknowledgement was applied by a broker.
5. At the end a user has accepted or rejected each record, or it was acquired as often as the limit allows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from aiokafka_lite import TopicPartition
from aiokafka_lite.embedded.faults import Exchange
from aiokafka_lite.errors import ErrorCode
from aiokafka_lite.protocol.messages import ShareAcknowledgeRequest, ShareFetchRequest
from aiokafka_lite.share.acknowledgements import AcknowledgeType

FINAL = (AcknowledgeType.ACCEPT, AcknowledgeType.REJECT)


class Place(NamedTuple):
    """A record."""

    partition: TopicPartition
    offset: int

    def __str__(self) -> str:
        return f"offset {self.offset} of {self.partition}"


class Session(NamedTuple):
    """A share session: the ``number``-th one of a member at a broker."""

    member: str
    node_id: int
    number: int


class Acquired(NamedTuple):
    """A member got the lock of a record."""

    at: float
    delivery_count: int
    session: Session


class Acknowledged(NamedTuple):
    """A broker applied an acknowledgement, at a time between ``began`` and ``at``."""

    at: float
    began: float
    member: str
    kind: AcknowledgeType


@dataclass(eq=False)
class ShareJournal:
    """The history of the users of the members of one group."""

    group_id: str
    delivered: list[tuple[str, Place, int, float]] = field(default_factory=list)
    """Members, records, delivery counts, and times."""
    acknowledged: dict[tuple[str, Place], set[AcknowledgeType]] = field(default_factory=lambda: defaultdict(set))
    confirmed: list[tuple[str, Place, float]] = field(default_factory=list)


class ShareHistory:
    """The acquisitions and acknowledgements of one group, each in the order of their times."""

    def __init__(self, group_id: str, exchanges: Iterable[Exchange], topics: Mapping[bytes, str]) -> None:
        self.acquired: defaultdict[Place, list[Acquired]] = defaultdict(list)
        self.acknowledged: defaultdict[Place, list[Acknowledged]] = defaultdict(list)
        self._topics = topics
        self.topics: frozenset[str] = frozenset(topics.values())
        """The topics whose history this is."""
        self.unanswered: list[float] = []
        """When fetches ended whose connections were cut: each may have acquired records that nobody saw."""
        self._last_requests: dict[Session, float] = {}
        numbers: defaultdict[tuple[str, int], int] = defaultdict(int)
        for exchange in exchanges:
            request: Any = exchange.request
            if not isinstance(request, ShareFetchRequest | ShareAcknowledgeRequest) or request.group_id != group_id:
                continue
            member = exchange.client_id or ""
            numbers[member, exchange.node_id] += request.share_session_epoch == 0
            self._add(exchange, Session(member, exchange.node_id, numbers[member, exchange.node_id]))
        for events in (*self.acquired.values(), *self.acknowledged.values()):
            events.sort()

    def _add(self, exchange: Exchange, session: Session) -> None:
        request: Any = exchange.request
        response: Any = exchange.response
        if response is None or exchange.handled_at is None:  # its connection ended before the broker answered
            if isinstance(request, ShareFetchRequest):
                self.unanswered.append(exchange.at + request.max_wait_ms / 1000)
            return
        if response.error_code != ErrorCode.NONE:
            return
        self._last_requests[session] = exchange.at
        applied: set[tuple[bytes, int]] = set()
        for topic in response.responses:
            if bytes(topic.topic_id) not in self._topics:
                continue
            for partition in topic.partitions:
                is_fetch = isinstance(request, ShareFetchRequest)
                if (partition.acknowledge_error_code if is_fetch else partition.error_code) == ErrorCode.NONE:
                    applied.add((topic.topic_id, partition.partition_index))
                for some in partition.acquired_records if is_fetch else ():
                    for offset in range(some.first_offset, some.last_offset + 1):
                        acquired = Acquired(exchange.handled_at, some.delivery_count, session)
                        self.acquired[self._place(topic.topic_id, partition.partition_index, offset)].append(acquired)
        for topic in request.topics:
            for partition in topic.partitions:
                if (topic.topic_id, partition.partition_index) in applied:
                    for batch in partition.acknowledgement_batches:
                        for offset in range(batch.first_offset, batch.last_offset + 1):
                            types = batch.acknowledge_types
                            kind = types[0] if len(types) == 1 else types[offset - batch.first_offset]
                            self.acknowledged[self._place(topic.topic_id, partition.partition_index, offset)].append(
                                Acknowledged(exchange.handled_at, exchange.at, session.member, AcknowledgeType(kind))
                            )

    def _place(self, topic_id: bytes, index: int, offset: int) -> Place:
        return Place(TopicPartition(self._topics[bytes(topic_id)], index), offset)

    def continues(self, session: Session, after: float) -> bool:
        """Return whether a broker accepted a request of a session that came after this time."""
        return self._last_requests.get(session, 0.0) > after


def lock_anomalies(
    history: ShareHistory, lock: float, limit: int, is_moved: Callable[[TopicPartition, float, float], bool]
) -> Iterator[str]:
    """Check rules 1 to 3. ``is_moved`` is whether a partition got another leader between two times."""
    for place, acquisitions in history.acquired.items():
        acknowledged = history.acknowledged[place]
        for acquisition in acquisitions:
            if acquisition.delivery_count > limit:
                yield f"{place} was delivered {acquisition.delivery_count} times, and the limit is {limit}"
        for done in acknowledged:
            for late in acquisitions:
                if late.at > done.at and (done.kind in FINAL or late.delivery_count <= _count(acquisitions, done)):
                    yield (
                        f"{late.session.member} acquired {place} at {late.at:.3f} s with delivery count "
                        f"{late.delivery_count}, after {done.kind.name} of {done.member} at {done.at:.3f} s"
                    )
        for one, other in pairwise(acquisitions):
            if one.session.node_id != other.session.node_id or is_moved(place.partition, one.at, other.at):
                continue
            both = f"{one.session.member} at {one.at:.3f} s and {other.session.member} at {other.at:.3f} s"
            if other.delivery_count <= one.delivery_count:
                yield f"{place} has the same delivery count {one.delivery_count} at {both}"
            if not _is_over(history, one, other.at, acknowledged, lock):
                yield f"{place} was locked twice: for {both}"


def _count(acquisitions: Sequence[Acquired], released: Acknowledged) -> int:
    """Return the delivery count that a release ended; 0 for other acknowledgements."""
    if released.kind is not AcknowledgeType.RELEASE:
        return 0
    counts = [acquisition.delivery_count for acquisition in acquisitions
              if acquisition.session.member == released.member and acquisition.at < released.began]  # fmt: skip
    return counts[-1] if counts else 0


def _is_over(
    history: ShareHistory, acquired: Acquired, at: float, acknowledged: Sequence[Acknowledged], lock: float
) -> bool:
    """Return whether a lock may be over at a time (rule 2)."""
    own = [event for event in acknowledged if event.member == acquired.session.member and event.at >= acquired.at]
    if any(event.kind is not AcknowledgeType.RENEW and event.began <= at for event in own):
        return True
    since = max(
        (event.at for event in own if event.kind is AcknowledgeType.RENEW and event.at < at), default=acquired.at
    )
    return round(at - since - lock, 6) >= 0 or not history.continues(acquired.session, at)


def user_anomalies(journal: ShareJournal, history: ShareHistory, lock: float) -> Iterator[str]:
    """Check rule 4."""
    for place, acknowledged in history.acknowledged.items():
        for event in acknowledged:
            if event.kind in FINAL and event.kind not in journal.acknowledged[event.member, place]:
                yield f"{event.member} sent {event.kind.name} of {place} at {event.at:.3f} s, and its user did not"
    for member, place, count, at in journal.delivered:
        if place.partition.topic not in history.topics:
            continue
        locks = [delivery for delivery in history.acquired[place]
                 if (delivery.session.member, delivery.delivery_count) == (member, count)]  # fmt: skip
        renewals = [renewal for renewal in history.acknowledged[place]
                    if renewal.member == member and renewal.kind is AcknowledgeType.RENEW]  # fmt: skip
        is_late = count > 1 and any(delivery.at <= at for delivery in locks)
        if not is_late and not (locks and any(event.at <= at < event.at + lock for event in (*locks, *renewals))):
            yield f"{member} returned {place} at {at:.3f} s with delivery count {count}, without a lock"
    for member, place, at in journal.confirmed:
        if place.partition.topic not in history.topics:
            continue
        if not any(event.member == member and event.at <= at for event in history.acknowledged[place]):
            yield f"{member} confirmed {place} at {at:.3f} s, and no broker applied an acknowledgement"


def lost_records(
    journal: ShareJournal, history: ShareHistory, logs: Mapping[TopicPartition, Sequence[object]], limit: int
) -> list[str]:
    """Return the records that no user has accepted or rejected although brokers may deliver them again (rule 5)."""
    done = {place for (_, place), kinds in journal.acknowledged.items() if not kinds.isdisjoint(FINAL)}
    done |= {
        place
        for place, acquired in history.acquired.items()
        if max(acquisition.delivery_count for acquisition in acquired)
        + sum(ended >= acquired[-1].at for ended in history.unanswered)
        >= limit
    }
    places = (Place(partition, offset) for partition, log in logs.items() for offset in range(len(log)))
    return [str(place) for place in places if place not in done]
