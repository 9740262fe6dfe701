"""Snapshots of the counters of a consumer, or of a running ``ConsumerGroup``. Imported at the first snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from ..cluster.client import Client
from ..cluster.metrics import ClientMetrics, client_metrics, loop_time
from ..group.member_runner import MemberRunner
from ..group.offsets import Offsets
from ..net.metrics import LatencyMetrics, RequestMetrics
from ..net.traffic import RequestCounters
from ..snapshot import BYTES, MILLISECONDS, SECONDS, Counter, Gauge, Latency, Pushed, Snapshot
from ..types import IsolationLevel, TopicPartition
from .partition import AssignedPartition
from .subscription import Subscription


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionMetrics(Snapshot):
    """An assigned partition.

    ``position`` is the offset of the next record to return, None while it is looked up. ``lag`` is the number of
    offsets from there to the end that the isolation level shows, known from the last answer to a fetch. It is None
    before the first one, and while the partition is paused. ``last_stable_offset`` is the end that ``read_committed``
    shows, by the last answer; None before the first one. ``buffered_bytes`` were fetched and are not unpacked yet.
    ``records_consumed`` and ``bytes_consumed`` count over all assignments of the partition to this consumer.
    """

    position: Annotated[int | None, Gauge("position", "Offset of the next record to return.")]
    lag: Annotated[int | None, Gauge("records.lag", "Offsets between the position and the end of the partition.")]
    last_stable_offset: int | None
    buffered_bytes: Annotated[
        int, Gauge("buffered", "Fetched batches of the partition that are not unpacked yet.", BYTES)
    ]
    is_paused: bool
    records_consumed: Annotated[
        int, Counter("records.consumed", "Records of the partition that were returned to the program.")
    ]
    bytes_consumed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberMetrics(Snapshot):
    """A membership. ``state`` is the name of a ``MemberState``.

    A rebalance lasts from joining to the assignment; ``rebalances.failures`` counts rebalances that ended without an
    assignment. ``last_poll_ago`` is the time in seconds since the program last asked for records, 0 while it waits for
    some. For a ``ConsumerGroup``, it is the time that the handler has worked on a record, the longest of all.
    ``thread_heartbeats`` of the heartbeats were sent by a thread, because the event loop was blocked.
    """

    state: str
    generation: int
    assigned_partitions: Annotated[
        int,
        Gauge("assigned.partitions", "Partitions that the group has assigned to this member."),
        Pushed("consumer.coordinator.assigned.partitions"),
    ]
    last_poll_ago: Annotated[float, Gauge("last.poll.ago", "Time since the program last asked for records.", SECONDS)]
    heartbeats: Annotated[
        RequestMetrics,
        Latency("heartbeats", "heartbeat", "Heartbeats that renewed the session", of="latency"),
        Counter("heartbeat.failures", "Heartbeats without an answer, or refused.", of="failures"),
        Gauge("last.heartbeat.ago", "Time since the session was last renewed.", SECONDS, of="last_success_ago"),
        Pushed("consumer.coordinator.heartbeat.total", of="latency.count"),
    ]
    thread_heartbeats: Annotated[
        int, Counter("thread.heartbeats", "Heartbeats that a thread has sent while the event loop was blocked.")
    ]
    rebalances: Annotated[
        RequestMetrics,
        Latency("rebalances", "rebalance", "Rebalances that ended with an assignment", of="latency"),
        Counter("rebalance.failures", "Rebalances that ended without an assignment.", of="failures"),
        Gauge("last.rebalance.ago", "Time since the last rebalance.", SECONDS, of="last_success_ago"),
        Pushed("consumer.coordinator.rebalance.total", of="latency.count"),
        Pushed("consumer.coordinator.failed.rebalance.total", of="failures"),
        Pushed("consumer.coordinator.rebalance.latency.total", of="latency.total", scale=MILLISECONDS),
        Pushed("consumer.coordinator.rebalance.latency.avg", of="latency.average", scale=MILLISECONDS),
        Pushed("consumer.coordinator.rebalance.latency.max", of="latency.max", scale=MILLISECONDS),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetrics(Snapshot):
    """The group of a consumer. ``member`` is None for a consumer that only commits.

    ``commits`` are requests, so that a commit that is retried counts more than once.
    """

    group_id: str
    commits: Annotated[
        RequestMetrics,
        Latency("commits", "commit", "Requests that committed offsets", of="latency"),
        Counter("commit.failures", "Requests to commit offsets that failed or were refused.", of="failures"),
        Pushed("consumer.coordinator.commit.total", of="latency.count"),
        Pushed("consumer.coordinator.commit.latency.avg", of="latency.average", scale=MILLISECONDS),
        Pushed("consumer.coordinator.commit.latency.max", of="latency.max", scale=MILLISECONDS),
    ]
    member: MemberMetrics | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMetrics(Snapshot):
    """A consumer at one moment. Bytes, counts and seconds; counters begin at 0 with the consumer.

    ``records_consumed`` were returned to the program. ``bytes_consumed`` is the size of their batches as the brokers
    sent them. A batch counts as a whole when its first record is returned. Small batches count together.
    ``fetch_latency`` is from a Fetch request to its response, with the time that the broker waits for data;
    ``fetch_failures`` counts the requests without a response. ``lag`` is the sum and ``lag_max`` the maximum over the
    partitions whose lag is known, None if there is none. ``group`` is None without a ``group_id``.
    """

    records_consumed: Annotated[
        int,
        Counter("records.consumed", "Records that were returned to the program."),
        Pushed("consumer.fetch.manager.records.consumed.total"),
    ]
    bytes_consumed: Annotated[
        int,
        Counter("consumed", "Size of the batches of these records, as the brokers sent them.", BYTES),
        Pushed("consumer.fetch.manager.bytes.consumed.total"),
    ]
    buffered_bytes: Annotated[int, Gauge("buffered", "Fetched batches that are not unpacked yet.", BYTES)]
    fetch_latency: Annotated[
        LatencyMetrics,
        Latency("fetches", "fetch", "Fetch requests that were answered"),
        Pushed("consumer.fetch.manager.fetch.total", of="count"),
        Pushed("consumer.fetch.manager.fetch.latency.avg", of="average", scale=MILLISECONDS),
        Pushed("consumer.fetch.manager.fetch.latency.max", of="max", scale=MILLISECONDS),
    ]
    fetch_failures: Annotated[int, Counter("fetch.failures", "Fetch requests without a response.")]
    lag: int | None
    lag_max: Annotated[
        int | None,
        Gauge("records.lag.max", "Maximum of the lags of the assigned partitions."),
        Pushed("consumer.fetch.manager.records.lag.max"),
    ]
    partitions: Mapping[TopicPartition, PartitionMetrics]
    group: GroupMetrics | None
    client: ClientMetrics


def consumer_metrics(
    client: Client,
    subscription: Subscription,
    isolation: IsolationLevel,
    fetches: RequestCounters,
    group: GroupMetrics | None,
) -> ConsumerMetrics:
    partitions = {assigned.partition: _partition(assigned, subscription, isolation) for assigned in subscription}
    present = partitions.values()
    earlier = subscription.earlier_assignments.items()
    removed = [counts for partition, counts in earlier if partition not in partitions]
    lags = [metrics.lag for metrics in present if metrics.lag is not None]
    return ConsumerMetrics(
        records_consumed=sum(counts.records for counts in removed)
        + sum(metrics.records_consumed for metrics in present),
        bytes_consumed=sum(counts.unpacked_bytes for counts in removed)
        + sum(metrics.bytes_consumed for metrics in present),
        buffered_bytes=sum(metrics.buffered_bytes for metrics in present),
        fetch_latency=fetches.latencies.snapshot(),
        fetch_failures=fetches.failures,
        lag=sum(lags) if lags else None,
        lag_max=max(lags, default=None),
        partitions=partitions,
        group=group,
        client=client_metrics(client),
    )


def group_metrics(group_id: str, offsets: Offsets, runner: MemberRunner | None, last_poll_ago: float) -> GroupMetrics:
    member, now = None, loop_time()
    if runner is not None:
        member = MemberMetrics(
            state=runner.member.state.name,
            generation=runner.member.generation,
            assigned_partitions=len(runner.member.partitions.owned),
            last_poll_ago=last_poll_ago,
            heartbeats=runner.heartbeats.snapshot(now),
            thread_heartbeats=runner.thread_heartbeats,
            rebalances=runner.rebalances.snapshot(now),
        )
    return GroupMetrics(group_id=group_id, commits=offsets.commits.snapshot(now), member=member)


def lag_of(assigned: AssignedPartition, isolation: IsolationLevel) -> int | None:
    """Return the lag, by the end in the last answer; None if there was no answer."""
    end, offset = assigned.known_end(isolation), assigned.offset
    return None if end is None or offset is None else max(0, end - offset)


def _partition(assigned: AssignedPartition, subscription: Subscription, isolation: IsolationLevel) -> PartitionMetrics:
    consumed = subscription.consumed(assigned)
    return PartitionMetrics(
        position=assigned.offset,
        lag=lag_of(assigned, isolation),
        last_stable_offset=assigned.last_stable_offset,
        buffered_bytes=assigned.buffer.bytes,
        is_paused=assigned.paused,
        records_consumed=consumed.records,
        bytes_consumed=consumed.unpacked_bytes,
    )
