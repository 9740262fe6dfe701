"""The state of a consumer at one moment, for a bug report, and its health for probes."""

from __future__ import annotations

from dataclasses import dataclass

from ..aio.service import Service
from ..arguments import check_wait
from ..cluster.bootstrap import Address
from ..cluster.client import Client
from ..cluster.diagnosis import MOST_SHOWN, Diagnosis, common
from ..cluster.health import Health, health_of
from ..group.member_runner import MemberRunner
from ..group.states import MemberState
from ..types import IsolationLevel
from .metrics import MemberMetrics, lag_of
from .partition import AssignedPartition
from .settings import ReadingOptions
from .subscription import Subscription

_OUTSIDE = (MemberState.UNJOINED.name, MemberState.LEAVING.name, MemberState.FENCED.name, MemberState.FATAL.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupReport:
    """The membership. ``state`` is a name of ``MemberState``; ``coordinator`` is None while it is looked up.

    ``protocol`` is the protocol in use, ``"classic"`` or ``"consumer"``. With ``group_protocol="auto"``, it is
    ``"classic"`` until the choice. ``generation`` is the member epoch under the consumer protocol.
    """

    group_id: str
    protocol: str
    state: str
    member_id: str
    instance_id: str | None
    generation: int
    strategy: str
    is_leader: bool
    coordinator: str | None
    owned: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReport:
    """An assigned partition. ``lag`` is known from the last answer to a fetch, None before the first one.

    ``error`` is the failure that the next read raises, or the reason why the last lookup of the offset failed.
    """

    partition: str
    state: str
    position: int | None
    high_watermark: int | None
    lag: int | None
    leader: int | None
    buffered_bytes: int
    paused: bool
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerDiagnosis(Diagnosis):
    """The diagnosis of a consumer. ``partitions`` has the first 200 partitions; ``assigned`` counts all."""

    group: GroupReport | None
    assigned: int
    lag: int
    partitions: tuple[PartitionReport, ...]


def group_report(runner: MemberRunner | None) -> GroupReport | None:
    """Return the membership; None without one."""
    if runner is None:
        return None
    member = runner.member
    node = runner.node
    return GroupReport(
        group_id=member.group_id,
        protocol=member.protocol,
        state=member.state.name,
        member_id=member.member_id,
        instance_id=member.instance_id,
        generation=member.generation,
        strategy=member.strategy,
        is_leader=member.leadership is not None,
        coordinator=None if node is None else f"{node.node_id} at {Address(node.host, node.port)}",
        owned=len(member.partitions.owned),
    )


def _partition(assigned: AssignedPartition, isolation: IsolationLevel) -> PartitionReport:
    position = assigned.position
    waits = f", waits: {assigned.pause_reason.name}" if assigned.pause_reason else ""
    error = position.lookup_error if assigned.failure is None else str(assigned.failure)
    return PartitionReport(
        partition=str(assigned.partition),
        state=position.state.name + waits,
        position=assigned.offset,
        high_watermark=assigned.high_watermark,
        lag=lag_of(assigned, isolation),
        leader=assigned.node_id,
        buffered_bytes=assigned.buffer.bytes,
        paused=assigned.paused,
        error=error,
    )


def diagnose(
    service: Service,
    client: Client,
    subscription: Subscription,
    options: ReadingOptions,
    runner: MemberRunner | None,
) -> ConsumerDiagnosis:
    """Describe a consumer, or a running ``ConsumerGroup``."""
    partitions, isolation = list(subscription), options.consumer.isolation
    lags = [lag for partition in partitions if (lag := lag_of(partition, isolation)) is not None]
    configs = (options.consumer,) if options.group is None else (options.consumer, options.group)
    return ConsumerDiagnosis(
        **common(service, client, *configs),  # type: ignore[arg-type]
        group=group_report(runner),
        assigned=len(partitions),
        lag=sum(lags),
        partitions=tuple(_partition(partition, isolation) for partition in partitions[:MOST_SHOWN]),
    )


def consumer_health(
    service: Service,
    client: Client,
    member: MemberMetrics | None,
    *,
    max_silence: float,
    max_poll_ago: float,
    late_program: str | None = None,
) -> Health:
    """Return the health at this moment. ``member`` is None for a consumer that is not a member of a group.

    ``late_program`` is the text for a program that has not asked for records for too long.
    """
    check_wait(max_poll_ago, "max_poll_ago")
    fatal, transient = [], []
    if member is not None:
        if member.last_poll_ago > max_poll_ago:
            late = late_program or f"the program has not asked for records for {member.last_poll_ago:.0f} s"
            fatal.append(late)
        if member.state in _OUTSIDE:
            transient.append(f"it is not a member of its group: {member.state}")
        elif not member.rebalances.latency.count:
            transient.append("its group has not assigned partitions yet")
    return health_of(service, client, max_silence, fatal=fatal, transient=transient)
