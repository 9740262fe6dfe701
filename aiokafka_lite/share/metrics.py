"""Snapshots of a share consumer's counters. Imported at the first snapshot."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from ..cluster.metrics import ClientMetrics, client_metrics
from ..consumer.metrics import RequestMetrics, request_metrics
from ..snapshot import Snapshot

if TYPE_CHECKING:
    from .core import ShareCore


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareConsumerMetrics(Snapshot):
    """A share consumer at one moment. Counters begin at 0 with the consumer.

    ``member_state`` is the name of a state in docs/states.md. ``last_poll_ago`` is the time in seconds since the
    program last asked for records, 0 while it waits for some. ``records_buffered`` are acquired and not returned to the
    user, ``records_in_flight`` returned and not acknowledged. ``records_redelivered`` counts acquired records with a
    delivery count above 1, ``records_expired`` those whose lock expired before the user got them. ``accepted``,
    ``released`` and ``rejected`` count records by the type of the acknowledgement that a broker has confirmed,
    ``renewed`` renewed locks, ``refused`` records whose acknowledgement failed. ``acquisition_lock_timeout`` is in
    seconds, None before the first record.
    """

    group_id: str
    member_state: str
    member_epoch: int
    partitions_assigned: int
    last_poll_ago: float
    heartbeats: RequestMetrics
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
    acknowledge_requests: int
    sessions_opened: int
    sessions_lost: int
    acquisition_lock_timeout: float | None
    client: ClientMetrics


def share_consumer_metrics(core: ShareCore) -> ShareConsumerMetrics:
    """The metrics of one consumer now."""
    member, in_flight = core.membership.member, core.in_flight
    return ShareConsumerMetrics(
        **asdict(core.counters),
        group_id=member.group_id,
        member_state=member.state.name,
        member_epoch=member.epoch,
        partitions_assigned=len(member.assignment),
        last_poll_ago=core.last_poll_ago,
        heartbeats=request_metrics(core.membership.heartbeats),
        records_buffered=in_flight.buffered,
        records_in_flight=in_flight.returned,
        records_expired=in_flight.expired,
        acquisition_lock_timeout=core.lock_timeout,
        client=client_metrics(core.client),
    )
