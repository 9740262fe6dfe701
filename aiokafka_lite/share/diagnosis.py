"""The state of a share consumer at one moment, for a bug report, and its health for probes."""

from __future__ import annotations

from dataclasses import dataclass

from ..aio.service import Service, ServiceState
from ..arguments import check_wait
from ..cluster.bootstrap import Address
from ..cluster.diagnosis import MOST_SHOWN, Diagnosis, common
from ..cluster.health import Health, health_of
from ..cluster.metrics import loop_time
from ..types import TopicPartition
from .core import ShareCore
from .in_flight import Acquisition
from .member import ShareMemberState


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupReport:
    """The membership. ``state`` is a name of ``ShareMemberState``; ``coordinator`` is None while it is looked up.

    ``assigned`` is the number of assigned partitions, also of those whose topic names are not known yet.
    """

    group_id: str
    state: str
    member_id: str
    epoch: int
    coordinator: str | None
    assigned: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SharePartitionReport:
    """A partition that is assigned, or whose records this consumer holds.

    ``buffered`` records are not yet returned to the program. ``returned`` records are not yet acknowledged. The
    acknowledgements of ``acknowledged`` records are not yet sent to the broker. ``lock_ends_in`` is the time in seconds
    until their first acquisition lock ends. It is negative if the lock has ended, and None without records.
    """

    partition: str
    is_assigned: bool
    leader: int | None
    buffered: int
    returned: int
    acknowledged: int
    lock_ends_in: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareConsumerDiagnosis(Diagnosis):
    """The diagnosis of a share consumer. ``partitions`` has the first 200 partitions."""

    group: ShareGroupReport
    partitions: tuple[SharePartitionReport, ...]


def share_diagnosis(service: Service, core: ShareCore) -> ShareConsumerDiagnosis:
    """Describe a share consumer. Asks no broker."""
    member = core.membership.member
    node = core.client.known_coordinator(member.group_id)
    return ShareConsumerDiagnosis(
        **common(service, core.client, core.options.share),  # type: ignore[arg-type]
        group=ShareGroupReport(
            group_id=member.group_id,
            state=member.state.name,
            member_id=member.member_id,
            epoch=member.epoch,
            coordinator=None if node is None else f"{node.node_id} at {Address(node.host, node.port)}",
            assigned=len(member.assignment),
        ),
        partitions=_partitions(core),
    )


def share_health(service: Service, core: ShareCore, *, max_silence: float, max_poll_ago: float | None) -> Health:
    """Return the health at this moment. ``max_poll_ago`` is None if the program may take any time between two reads."""
    fatal, transient = [], []
    if max_poll_ago is not None:
        check_wait(max_poll_ago, "max_poll_ago")
        if core.pace.last_read_ago > max_poll_ago:
            fatal.append(f"the program has not asked for records for {core.pace.last_read_ago:.0f} s")
    state = core.membership.member.state
    if service.state is ServiceState.RUNNING and state is not ShareMemberState.STABLE:
        transient.append(f"it is not a member of its group: {state.name}")
    if (slow := core.pace.slow_reason) is not None:
        transient.append(slow)
    return health_of(service, core.client, max_silence, fatal=fatal, transient=transient)


def _partitions(core: ShareCore) -> tuple[SharePartitionReport, ...]:
    acquisitions: dict[TopicPartition, list[Acquisition]] = {partition: [] for partition in core.assignment}
    assigned = frozenset(acquisitions)
    for acquisition in core.in_flight.acquisitions:
        acquisitions.setdefault(acquisition.partition, []).append(acquisition)
    return tuple(
        _partition(core, partition, partition in assigned, acquisitions[partition])
        for partition in sorted(acquisitions)[:MOST_SHOWN]
    )


def _partition(
    core: ShareCore, partition: TopicPartition, is_assigned: bool, acquisitions: list[Acquisition]
) -> SharePartitionReport:
    view = core.client.view.partition(partition)
    ends_at = min((acquisition.expires_at for acquisition in acquisitions), default=None)
    return SharePartitionReport(
        partition=str(partition),
        is_assigned=is_assigned,
        leader=None if view is None else view.leader,
        buffered=sum(acquisition.waiting for acquisition in acquisitions),
        returned=sum(len(acquisition.returned) for acquisition in acquisitions),
        acknowledged=sum(acquisition.acknowledgements for acquisition in acquisitions),
        lock_ends_in=None if ends_at is None else round(ends_at - loop_time(), 3),
    )
