"""Plans the lookups of offsets. Pure: times and views are passed in.

The position keeper sends the lookups of ``plan_lookups`` and decides nothing itself. ``plan`` plans the fetches.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ...cluster.metadata import ClusterView
from ..partition import AssignedPartition
from ..position import PauseReason, PositionState


@dataclass(slots=True)
class LookupPlan:
    """The partitions whose offset should be looked up now, by leader, and the partitions that need metadata first."""

    by_node: dict[int, list[AssignedPartition]] = field(default_factory=dict)
    leaderless: list[AssignedPartition] = field(default_factory=list)
    """Partitions without a known leader, whether or not they need an offset."""
    retry_at: float | None = None


def plan_lookups(partitions: Iterable[AssignedPartition], view: ClusterView, now: float) -> LookupPlan:
    """Return the partitions that need an offset, and those that need metadata first."""
    plan = LookupPlan()
    for partition in partitions:
        leader = view.leader_of(partition.partition)
        position = partition.position
        if leader is None:
            plan.leaderless.append(partition)
        elif (
            position.state is not PositionState.UNKNOWN
            or partition.failure is not None
            or partition.pause_reason is PauseReason.LOCATING
        ):
            continue
        elif partition.retry_at > now:
            plan.retry_at = partition.retry_at if plan.retry_at is None else min(plan.retry_at, partition.retry_at)
        else:
            plan.by_node.setdefault(leader.node_id, []).append(partition)
    return plan
