"""Snapshots of a share consumer's counters. Imported at the first snapshot."""

from __future__ import annotations

from dataclasses import dataclass

from ..cluster.client import Client
from ..cluster.metrics import ClientMetrics, client_metrics
from ..consumer.metrics import RequestMetrics, request_metrics
from ..net.metrics import LatencyMetrics
from ..snapshot import Snapshot
from .counters import ShareCounters
from .in_flight import InFlight
from .membership import ShareMembership


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareConsumerMetrics(Snapshot):
    """A share consumer at one moment. Counters begin at 0 with the consumer.

    ``member_state`` is the name of a state in docs/states.md. ``last_poll_ago`` is the time in seconds since the
    program last asked for records, 0 while it waits for some. ``rebalances`` counts the changes of the assigned
    partitions.

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
    partitions_assigned: int
    last_poll_ago: float
    heartbeats: RequestMetrics
    rebalances: int
    records_consumed: int
    records_buffered: int
    records_in_flight: int
    records_acquired: int
    records_redelivered: int
    records_expired: int
    bytes_fetched: int
    accepted: int
    released: int
    rejected: int
    renewed: int
    refused: int
    fetch_requests: int
    fetch_latency: LatencyMetrics
    fetch_failures: int
    acknowledge_requests: int
    acknowledge_latency: LatencyMetrics
    acknowledge_failures: int
    sessions_opened: int
    sessions_lost: int
    acquisition_lock_timeout: float | None
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
    """Return the metrics of one consumer now."""
    member = membership.member
    return ShareConsumerMetrics(
        group_id=member.group_id,
        member_state=member.state.name,
        member_epoch=member.epoch,
        partitions_assigned=len(member.assignment),
        last_poll_ago=last_poll_ago,
        heartbeats=request_metrics(membership.heartbeats),
        rebalances=membership.rebalances,
        records_consumed=in_flight.taken,
        records_buffered=in_flight.buffered,
        records_in_flight=in_flight.returned,
        records_acquired=counters.records_acquired,
        records_redelivered=counters.records_redelivered,
        records_expired=in_flight.expired,
        bytes_fetched=counters.bytes_fetched,
        accepted=counters.accepted,
        released=counters.released,
        rejected=counters.rejected,
        renewed=counters.renewed,
        refused=counters.refused,
        fetch_requests=counters.fetch_requests,
        fetch_latency=counters.fetches.latencies.snapshot(),
        fetch_failures=counters.fetches.failures,
        acknowledge_requests=counters.acknowledge_requests,
        acknowledge_latency=counters.acknowledges.latencies.snapshot(),
        acknowledge_failures=counters.acknowledges.failures,
        sessions_opened=counters.sessions_opened,
        sessions_lost=counters.sessions_lost,
        acquisition_lock_timeout=lock_timeout,
        client=client_metrics(client),
    )
