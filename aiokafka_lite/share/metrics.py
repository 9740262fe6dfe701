"""Snapshots of a share consumer's counters. Imported at the first snapshot."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated

from ..cluster.client import Client
from ..cluster.metrics import ClientMetrics, client_metrics, loop_time
from ..net.metrics import LatencyMetrics, RequestMetrics
from ..snapshot import BYTES, MILLISECONDS, SECONDS, Counter, Gauge, Latency, Pushed, Snapshot
from .counters import ShareCounters
from .in_flight import InFlight
from .membership import ShareMembership


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareConsumerMetrics(Snapshot):
    """A share consumer at one moment. Counters begin at 0 with the consumer.

    ``member_state`` is the name of a state in docs/states.md. ``last_poll_ago`` is the time in seconds since the
    program last asked for records, 0 while it waits for some. ``rebalances`` counts changes of the assignment.
    ``thread_heartbeats`` of the heartbeats were sent by a thread, because the event loop was blocked.

    ``records_consumed`` were returned to the program. ``records_buffered`` are acquired and not returned,
    ``records_in_flight`` returned and not acknowledged. ``records_redelivered`` counts acquired records with a delivery
    count above 1, ``records_expired`` counts records whose lock expired before the program got them. ``accepted``,
    ``released`` and ``rejected`` count records by the type of the acknowledgement that a broker has confirmed,
    ``renewed`` renewed locks, ``refused`` records whose acknowledgement failed.

    ``fetch_latency`` is from a ShareFetch request to its response, with the time that the broker waits for records;
    ``fetch_failures`` counts the requests without a response. ``acknowledge_latency`` and ``acknowledge_failures`` are
    the same for ShareAcknowledge requests. ``acquisition_lock_timeout`` is in seconds, None before the first record.
    """

    group_id: str
    member_state: str
    member_epoch: int
    partitions_assigned: Annotated[
        int, Gauge("assigned.partitions", "Partitions that the group has assigned to this member.")
    ]
    last_poll_ago: Annotated[
        float,
        Gauge("last.poll.ago", "Time since the program last asked for records.", SECONDS),
        Pushed("consumer.share.last.poll.seconds.ago"),
    ]
    heartbeats: Annotated[
        RequestMetrics,
        Latency("heartbeats", "heartbeat", "Heartbeats that were answered", of="latency"),
        Counter("heartbeat.failures", "Heartbeats without an answer, or refused.", of="failures"),
        Gauge("last.heartbeat.ago", "Time since the last answer to a heartbeat.", SECONDS, of="last_success_ago"),
        Pushed("consumer.share.coordinator.heartbeat.total", of="latency.count"),
        Pushed("consumer.share.coordinator.heartbeat.response.time.max", of="latency.max", scale=MILLISECONDS),
        Pushed("consumer.share.coordinator.last.heartbeat.seconds.ago", of="last_success_ago"),
    ]
    thread_heartbeats: Annotated[
        int, Counter("thread.heartbeats", "Heartbeats that a thread has sent while the event loop was blocked.")
    ]
    rebalances: Annotated[
        int,
        Counter("rebalances", "Changes of the partitions that are assigned to this member."),
        Pushed("consumer.share.coordinator.rebalance.total"),
    ]
    records_consumed: Annotated[int, Counter("records.consumed", "Records that were returned to the program.")]
    records_buffered: Annotated[int, Gauge("records.buffered", "Acquired records that the program has not got.")]
    records_in_flight: Annotated[
        int, Gauge("records.in.flight", "Records that the program has got and not acknowledged.")
    ]
    records_acquired: Annotated[
        int,
        Counter("records.acquired", "Records that were acquired for this consumer."),
        Pushed("consumer.share.fetch.manager.records.consumed.total"),
    ]
    records_redelivered: Annotated[
        int, Counter("records.redelivered", "Acquired records that had been delivered before.")
    ]
    records_expired: Annotated[int, Counter("records.expired", "Records whose lock ended before the program got them.")]
    bytes_fetched: Annotated[
        int,
        Counter("fetched", "Size of the batches that were fetched.", BYTES),
        Pushed("consumer.share.fetch.manager.bytes.consumed.total"),
    ]
    accepted: Annotated[int, Counter("records.accepted", "Records that a broker has confirmed as accepted.")]
    released: Annotated[int, Counter("records.released", "Records that a broker has confirmed as released.")]
    rejected: Annotated[int, Counter("records.rejected", "Records that a broker has confirmed as rejected.")]
    renewed: Annotated[int, Counter("locks.renewed", "Acquisition locks that were renewed.")]
    refused: Annotated[
        int,
        Counter("records.refused", "Records whose acknowledgement failed or was refused."),
        Pushed("consumer.share.fetch.manager.acknowledgements.error.total"),
    ]
    fetch_requests: int
    fetch_latency: Annotated[
        LatencyMetrics,
        Latency("fetches", "fetch", "ShareFetch requests that were answered"),
        Pushed("consumer.share.fetch.manager.fetch.total", of="count"),
        Pushed("consumer.share.fetch.manager.fetch.latency.avg", of="average", scale=MILLISECONDS),
        Pushed("consumer.share.fetch.manager.fetch.latency.max", of="max", scale=MILLISECONDS),
    ]
    fetch_failures: Annotated[int, Counter("fetch.failures", "ShareFetch requests without a response.")]
    acknowledge_requests: int
    acknowledge_latency: Annotated[
        LatencyMetrics, Latency("acknowledgements", "acknowledge", "ShareAcknowledge requests that were answered")
    ]
    acknowledge_failures: Annotated[
        int, Counter("acknowledge.failures", "ShareAcknowledge requests without a response.")
    ]
    sessions_opened: Annotated[int, Counter("sessions.opened", "Share sessions that were opened with brokers.")]
    sessions_lost: Annotated[
        int, Counter("sessions.lost", "Share sessions that were lost, with all records of the broker.")
    ]
    acquisition_lock_timeout: Annotated[
        float | None, Gauge("lock.timeout", "Length of the last acquisition lock.", SECONDS)
    ]
    client: ClientMetrics


def share_consumer_metrics(
    client: Client,
    membership: ShareMembership,
    in_flight: InFlight,
    counters: ShareCounters,
    *,
    last_poll_ago: float,
    lock_timeout: float | None,
) -> ShareConsumerMetrics:
    member = membership.member
    counts = {field.name: getattr(counters, field.name) for field in fields(counters)}
    fetches, acknowledges = counts.pop("fetches"), counts.pop("acknowledges")
    return ShareConsumerMetrics(
        **counts,
        group_id=member.group_id,
        member_state=member.state.name,
        member_epoch=member.epoch,
        partitions_assigned=len(member.assignment),
        last_poll_ago=last_poll_ago,
        heartbeats=membership.heartbeats.snapshot(loop_time()),
        thread_heartbeats=membership.thread_heartbeats,
        rebalances=membership.rebalances,
        records_consumed=in_flight.taken,
        records_buffered=in_flight.buffered,
        records_in_flight=in_flight.returned,
        records_expired=in_flight.expired,
        fetch_latency=fetches.latencies.snapshot(),
        fetch_failures=fetches.failures,
        acknowledge_latency=acknowledges.latencies.snapshot(),
        acknowledge_failures=acknowledges.failures,
        acquisition_lock_timeout=lock_timeout,
        client=client_metrics(client),
    )
