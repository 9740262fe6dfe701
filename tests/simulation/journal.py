"""The notes of a simulation, and the checks of its promises. They read the journal and the cluster's history.

Sends are checked by ``tests.end_to_end.send_history``: values are unique, so each record in a log belongs to one send.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aiokafka_lite import TopicPartition
from aiokafka_lite.embedded.faults import Exchange
from aiokafka_lite.errors import ErrorCode
from aiokafka_lite.protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    FetchRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    OffsetCommitRequest,
    ProduceRequest,
    ShareFetchRequest,
    SyncGroupRequest,
)
from tests.end_to_end.send_history import Found, History, violations
from tests.simulation.workload import WriterPlan

SESSION_TIMEOUT = 6.0
HEARTBEAT_INTERVAL = 1.0
MAX_POLL_INTERVAL = 10.0
LAST_HEARTBEAT = 3.0
"""Seconds in which the last heartbeat of a session fails: ``request_timeout``."""

MOST_REQUESTS = 60
"""The most requests of one kind that a client may send to one broker in a second of virtual time.

The limit does not apply to Produce and Fetch: their number depends on the records."""
MOST_FETCHES = 150
"""The same for Fetch and ShareFetch. An answer has records, takes ``fetch_max_wait``, or is the answer of a fault.

A ShareFetch that acknowledges records for the first time does not count: a consumer that acquires one record at a time
sends one for each."""

_IN_THE_GROUP = (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)


@dataclass(eq=False)
class GroupJournal:
    """The history of the members of one group. ``owners`` has the last assigned member of each partition."""

    group_id: str
    owners: dict[TopicPartition, str] = field(default_factory=dict)
    done: defaultdict[TopicPartition, dict[int, float]] = field(default_factory=lambda: defaultdict(dict))
    """When the work on each record was done for the first time, by offset."""

    def note_done(self, partition: TopicPartition, offset: int, now: float) -> None:
        self.done[partition].setdefault(offset, now)

    def missing(self, logs: Mapping[TopicPartition, Sequence[object]]) -> dict[str, list[int]]:
        """Return the offsets that no member has processed."""
        return {
            str(partition): gaps
            for partition, log in logs.items()
            if (gaps := [offset for offset in range(len(log)) if offset not in self.done[partition]])
        }

    def done_before(self, partition: TopicPartition, offset: int) -> float | None:
        """Return the time at which all records before ``offset`` were processed; None if some are not."""
        done = self.done[partition]
        times = [done.get(number) for number in range(offset)]
        return None if None in times else max((time_ for time_ in times if time_ is not None), default=0.0)


def log_anomalies(
    plan: WriterPlan, history: History, logs: Mapping[TopicPartition, Sequence[bytes | None]]
) -> Iterator[str]:
    """Compare the sends of a writer with the logs."""
    prefix = f"{plan.name}-".encode()
    records = [
        Found(partition, offset, value)
        for partition, values in logs.items()
        for offset, value in enumerate(values)
        if value is not None and value.startswith(prefix)
    ]
    for violation, evidence in violations(history, records, plan.promises):
        yield f"writer {plan.name} {dict(plan.settings)}: {violation.value}: {evidence}"


def commit_anomalies(
    group: GroupJournal,
    exchanges: Iterable[Exchange],
    topics: Mapping[bytes, str],
    logs: Mapping[TopicPartition, Sequence[object]],
) -> Iterator[str]:
    """Check each commit of a member: when it arrived, all records before its offset were processed."""
    for exchange in exchanges:
        request = exchange.request
        if not isinstance(request, OffsetCommitRequest) or request.group_id != group.group_id:
            continue
        for topic in request.topics:
            for commit in topic.partitions:
                name = topic.name or topics.get(bytes(topic.topic_id), "")
                partition = TopicPartition(name, commit.partition_index)
                if partition not in logs:
                    continue
                done = group.done_before(partition, commit.committed_offset)
                if done is None or done > exchange.at:
                    yield (
                        f"{exchange.client_id} committed {partition} up to {commit.committed_offset} at "
                        f"{exchange.at:.3f} s, before all records up to there were done"
                    )


def rate_anomalies(exchanges: Iterable[Exchange]) -> Iterator[str]:
    """Check that no client sends requests at full speed, with any fault."""
    counts: Counter[tuple[str | None, int, type, int]] = Counter()
    acknowledged: set[tuple[str | None, bytes, int, int]] = set()
    for exchange in exchanges:
        request = exchange.request
        if isinstance(request, ShareFetchRequest):
            new = _acknowledged(exchange.client_id, request) - acknowledged
            acknowledged |= new
            if new:
                continue
        if not isinstance(request, ProduceRequest):
            counts[exchange.client_id, exchange.node_id, type(request), int(exchange.at)] += 1
    for (client, node, kind, second), count in counts.items():
        if count > (MOST_FETCHES if kind in (FetchRequest, ShareFetchRequest) else MOST_REQUESTS):
            yield f"{client} sent {count} {kind.__name__} to broker {node} in second {second}"


def _acknowledged(client: str | None, request: ShareFetchRequest) -> set[tuple[str | None, bytes, int, int]]:
    """Return the first records of the batches that a client acknowledges, with the client."""
    return {
        (client, bytes(topic.topic_id), partition.partition_index, batch.first_offset)
        for topic in request.topics
        for partition in topic.partitions
        for batch in partition.acknowledgement_batches
    }


def may_share(
    owner: str,
    new: str,
    now: float,
    exchanges: Sequence[Exchange],
    coordinator: int,
    *,
    cut_off: Callable[[int], bool],
    blocked: float,
) -> bool:
    """Return whether two members may own a partition for a while. This is allowed in three cases:

    - The session of the old owner ended, and its last heartbeat has not failed yet.
    - The old owner did not join again within the rebalance timeout.
    - One of the two members was in contact with an old coordinator, which is cut off from the cluster and does not know
      the new generation.

    ``blocked`` is the time for which the loop was blocked. The coordinator counts the rebalance timeout from the first
    JoinGroup. A member is notified of the rebalance by its next heartbeat, which may be late. So the rebalance may have
    begun as soon as the previous heartbeat was answered.
    """
    contact, calm_at = _contact(owner, exchanges)
    if contact is None:
        return True
    if _group_code(contact) is ErrorCode.REBALANCE_IN_PROGRESS and _elapsed(calm_at, now) >= MAX_POLL_INTERVAL:
        return True
    if SESSION_TIMEOUT <= _elapsed(contact.at, now) <= SESSION_TIMEOUT + LAST_HEARTBEAT + blocked:
        return True
    contacts = (contact, _last_contact(new, exchanges))
    return any(
        contact is not None and contact.node_id != coordinator and cut_off(contact.node_id) for contact in contacts
    )


def may_share_assigned(
    owner: str,
    new: str,
    partition: tuple[bytes, int],
    now: float,
    exchanges: Sequence[Exchange],
    coordinator: int,
    *,
    cut_off: Callable[[int], bool],
) -> bool:
    """Decide ``may_share`` for an owner with the consumer protocol; ``partition`` is a topic id and a number.

    Its members do not know the session timeout. A member that cannot reach a coordinator keeps its partitions until a
    heartbeat is answered, and its epoch fences its commits. The coordinator counts the rebalance timeout from the
    answer that revokes the partition.
    """
    answers = [exchange for exchange in exchanges if exchange.client_id == owner and _is_accepted_heartbeat(exchange)]
    if not answers or _elapsed(answers[-1].at, now) >= SESSION_TIMEOUT:
        return True
    asked_at: float | None = None
    for answer in answers:
        response: Any = answer.response
        if response.assignment is not None:
            is_assigned = any(
                topic.topic_id == partition[0] and partition[1] in topic.partitions
                for topic in response.assignment.topic_partitions
            )
            if is_assigned:
                asked_at = None
            elif asked_at is None:
                asked_at = answer.at
    if asked_at is not None and _elapsed(asked_at, now) >= MAX_POLL_INTERVAL:
        return True
    contacts = (answers[-1], _last_contact(new, exchanges))
    return any(
        contact is not None and contact.node_id != coordinator and cut_off(contact.node_id) for contact in contacts
    )


def _last_contact(member: str, exchanges: Sequence[Exchange]) -> Exchange | None:
    """Return the last successful request of a member of either protocol."""
    for exchange in reversed(exchanges):
        if exchange.client_id == member and (
            _group_code(exchange) in _IN_THE_GROUP or _is_accepted_heartbeat(exchange)
        ):
            return exchange
    return None


def _is_accepted_heartbeat(exchange: Exchange) -> bool:
    response: Any = exchange.response
    is_heartbeat = isinstance(exchange.request, ConsumerGroupHeartbeatRequest)
    return is_heartbeat and response is not None and response.error_code == ErrorCode.NONE


def _elapsed(since: float, now: float) -> float:
    """Return the seconds between two times, to the microsecond.

    The virtual clock is a sum of floats: a timer of 6 s may fire at 5.999999999999986 s. And without latency a session
    ends for the member and for the coordinator at the same time, so nothing separates the two from the limit.
    """
    return round(now - since, 6)


def _contact(member: str, exchanges: Sequence[Exchange]) -> tuple[Exchange | None, float]:
    """Return the last successful request of a member, and the time of the last one before the coordinator's
    rebalance."""
    contact: Exchange | None = None
    for exchange in reversed(exchanges):
        code = _group_code(exchange) if exchange.client_id == member else None
        if code not in _IN_THE_GROUP:
            continue
        contact = contact or exchange
        if code is not ErrorCode.REBALANCE_IN_PROGRESS:
            return contact, exchange.at
    return contact, 0.0


def _group_code(exchange: Exchange) -> ErrorCode | None:
    """Return the error code of the answer to a request of a member; None for other requests, and without an answer."""
    if not isinstance(exchange.request, HeartbeatRequest | JoinGroupRequest | SyncGroupRequest):
        return None
    response: Any = exchange.response
    return None if response is None else ErrorCode.of(response.error_code)
