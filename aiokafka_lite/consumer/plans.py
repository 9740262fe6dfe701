"""Plans the requests to brokers: ``plan_fetch`` and ``plan_lookups``. Pure: times and cluster views are passed in.

The fetchers and the position keeper send what the plans say and decide nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from ..cluster.metadata import ClusterView
from ..protocol.schema import ZERO_UUID
from ..types import TopicPartition
from .partition import AssignedPartition
from .position import PauseReason, PositionState


class FetchTarget(NamedTuple):
    """One partition of a fetch request."""

    offset: int
    max_bytes: int
    current_leader_epoch: int
    last_fetched_epoch: int


class FetchKey(NamedTuple):
    """A partition as brokers identify it; the topic id is zero where the topic has none."""

    topic: str
    topic_id: bytes
    partition: int


@dataclass(slots=True)
class FetchPlan:
    """The partitions to ask one broker for, and those that wait for its answer."""

    targets: dict[FetchKey, FetchTarget] = field(default_factory=dict)
    assigned: dict[FetchKey, tuple[AssignedPartition, int]] = field(default_factory=dict)
    """The partitions with the version of their position: an answer to an older version is dropped."""
    max_bytes: int = 0
    count: int = 0
    """How many partitions are fetched from this broker, whether or not they want data now."""
    has_full_buffers: bool = False
    """Whether partitions are left out only because enough is buffered: they may want data soon."""
    retry_at: float | None = None
    """The loop's time at which the next partition ends its backoff."""

    @property
    def by_name(self) -> bool:
        """Whether some topic has no id, so that only versions with names can carry the request."""
        return any(key.topic_id == ZERO_UUID for key in self.targets)

    @property
    def partitions(self) -> list[AssignedPartition]:
        return [assigned for assigned, _ in self.assigned.values()]


def plan_fetch(
    partitions: Iterable[AssignedPartition], view: ClusterView, node_id: int, now: float, fetch_max_bytes: int
) -> FetchPlan:
    """Everything to ask of one broker in one request, the partitions that were served longest ago first.

    What is buffered from a broker and what is asked of it stay within ``fetch_max_bytes`` together. Paused partitions
    count, because their data stays. Only where paused partitions fill all of it, the others get one batch at a time
    beyond the limit; otherwise they would never be read.
    """
    plan = FetchPlan()
    wanted: list[AssignedPartition] = []
    buffered = 0
    buffered_unpaused = 0
    for each in partitions:
        if each.node_id != node_id:
            continue
        plan.count += 1
        buffered += each.buffer.bytes
        if not each.position.paused:
            buffered_unpaused += each.buffer.bytes
        if not each.wants_data:
            plan.has_full_buffers = plan.has_full_buffers or (each.buffer.has_data and not each.position.paused)
        elif each.retry_at > now:
            plan.retry_at = each.retry_at if plan.retry_at is None else min(plan.retry_at, each.retry_at)
        else:
            wanted.append(each)
    plan.max_bytes = fetch_max_bytes - buffered
    if plan.max_bytes <= 0:
        if buffered_unpaused:
            return plan  # reading makes room
        plan.max_bytes = 1
    wanted.sort(key=lambda each: each.last_served)
    for each in wanted:
        _add_target(plan, each, view)
    return plan


def _add_target(plan: FetchPlan, assigned: AssignedPartition, view: ClusterView) -> None:
    topic = view.topics.get(assigned.partition.topic)
    partition = None if topic is None else topic.partition(assigned.partition.partition)
    if topic is None or partition is None:
        return  # metadata has just lost it; the position keeper asks for it
    key = FetchKey(topic.name, topic.topic_id, assigned.partition.partition)
    buffer = assigned.buffer
    plan.targets[key] = FetchTarget(
        buffer.end,
        buffer.fetch_size,
        -1 if partition.leader_epoch is None else partition.leader_epoch,
        -1 if buffer.end_epoch is None else buffer.end_epoch,
    )
    plan.assigned[key] = (assigned, assigned.position.version)


@dataclass(slots=True)
class LookupPlan:
    """The partitions whose offset should be looked up now, by leader, and the partitions that need metadata first."""

    by_node: dict[int, list[AssignedPartition]] = field(default_factory=dict)
    leaderless: list[AssignedPartition] = field(default_factory=list)
    """Partitions without a known leader, whether or not they need an offset."""
    retry_at: float | None = None


def plan_lookups(partitions: Iterable[AssignedPartition], view: ClusterView, now: float) -> LookupPlan:
    """The partitions that need an offset, and those that need metadata first."""
    plan = LookupPlan()
    for each in partitions:
        leader = view.leader_of(each.partition)
        position = each.position
        if leader is None:
            plan.leaderless.append(each)
        elif (
            position.state is not PositionState.UNKNOWN
            or each.failure is not None
            or position.pause_reason is PauseReason.LOCATING
        ):
            continue
        elif each.retry_at > now:
            plan.retry_at = each.retry_at if plan.retry_at is None else min(plan.retry_at, each.retry_at)
        else:
            plan.by_node.setdefault(leader.node_id, []).append(each)
    return plan


def source_of(assigned: AssignedPartition, view: ClusterView) -> int | None:
    """The broker to fetch a partition from: the preferred follower, else the leader; None if neither is known."""
    if assigned.preferred is not None and assigned.preferred in view.nodes:
        return assigned.preferred
    leader = view.leader_of(assigned.partition)
    return None if leader is None else leader.node_id


def new_partitions(
    view: ClusterView, topics: Iterable[str], known: Iterable[TopicPartition]
) -> list[TopicPartition]:
    """The partitions of these topics that metadata lists and ``known`` lacks."""
    known = set(known)
    return [
        partition
        for name in topics
        if (topic := view.topics.get(name)) is not None
        for view_of in topic.partitions
        if (partition := TopicPartition(name, view_of.partition)) not in known
    ]
