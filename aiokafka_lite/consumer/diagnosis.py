"""What a consumer is doing at one moment, for a bug report."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..aio.service import Service
from ..cluster.client import Client
from ..cluster.diagnosis import MOST_SHOWN, Diagnosis, common
from ..config import ConsumerConfig, GroupConfig
from ..group.coordinator import Coordinator
from ..types import IsolationLevel
from .partition import Hold, PartitionState
from .subscription import Subscription


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupReport:
    """A membership. ``state`` is `MemberState`'s; ``coordinator`` None while it is looked for."""

    group_id: str
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
    """An assigned partition. ``lag`` is by the last answer to a fetch, None where there was none."""

    partition: str
    state: str
    position: int | None
    high_watermark: int | None
    lag: int | None
    leader: int | None
    buffered_bytes: int
    paused: bool
    trouble: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerDiagnosis(Diagnosis):
    """A consumer. ``partitions`` has the first of them; ``assigned`` says how many there are."""

    group: GroupReport | None
    assigned: int
    lag: int
    partitions: tuple[PartitionReport, ...]


def group_report(coordinator: Coordinator | None) -> GroupReport | None:
    """The membership, if there is one."""
    if coordinator is None:
        return None
    member = coordinator.member
    node = coordinator.node
    return GroupReport(
        group_id=member.group_id,
        state=member.state.name,
        member_id=member.member_id,
        instance_id=member.instance_id,
        generation=member.generation,
        strategy=member.strategy,
        is_leader=member.leadership is not None,
        coordinator=None if node is None else f"{node.node_id} at {node.host}:{node.port}",
        owned=len(member.partitions.owned),
    )


def partition_reports(states: Iterable[PartitionState], isolation: IsolationLevel) -> tuple[PartitionReport, ...]:
    """The first of the partitions, without asking anybody."""
    return tuple(_partition(state, isolation) for state in list(states)[:MOST_SHOWN])


def lag_of(state: PartitionState, isolation: IsolationLevel) -> int | None:
    """By the end that the last answer named, or None."""
    end, position = state.known_end(isolation), state.position
    return None if end is None or position is None else max(0, end - position)


def _partition(state: PartitionState, isolation: IsolationLevel) -> PartitionReport:
    held = "" if state.hold is Hold.NOT else f", held: {state.hold.name}"
    trouble = state.failure if state.failure is not None else state.trouble
    return PartitionReport(
        partition=str(state.partition),
        state=state.state.name + held,
        position=state.position,
        high_watermark=state.high_watermark,
        lag=lag_of(state, isolation),
        leader=state.node_id,
        buffered_bytes=state.buffered,
        paused=state.paused,
        trouble=None if trouble is None else str(trouble),
    )


def diagnose(
    service: Service,
    client: Client,
    subscription: Subscription,
    config: ConsumerConfig,
    coordinator: Coordinator | None,
    group_config: GroupConfig | None,
) -> ConsumerDiagnosis:
    """Put it together."""
    states = list(subscription)
    known = [lag for state in states if (lag := lag_of(state, config.isolation)) is not None]
    configs = (config,) if group_config is None else (config, group_config)
    return ConsumerDiagnosis(
        **common(service, client, *configs),  # type: ignore[arg-type]
        group=group_report(coordinator),
        assigned=len(states),
        lag=sum(known),
        partitions=partition_reports(states, config.isolation),
    )
