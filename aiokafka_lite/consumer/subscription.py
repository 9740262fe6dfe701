"""Which partitions are assigned, whose turn it is to be read, and which of them a broker should be asked for.

Pure: times and cluster views are passed in, nothing waits. ``plan_fetch`` and ``plan_lookups`` decide; the fetchers and
the position keeper do what they say.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ..cluster.metadata import ClusterView
from ..errors import IllegalStateError
from ..protocol.schema import ZERO_UUID
from ..types import TopicPartition
from .partition import Hold, PartitionState, PositionState, Reset


class Subscription:
    """The assigned partitions, in the order of the assignment. Owner: the consumer.

    ``ready`` are those with something to read, in the order of their turns: the reader takes the first, and puts it
    behind the others when it has had its turn. That keeps a partition with an endless backlog from starving the rest,
    and costs nothing for partitions that have nothing.
    """

    def __init__(self, reset: Reset, fetch_size: int) -> None:
        self.reset = reset
        self.fetch_size = fetch_size
        self.partitions: dict[TopicPartition, PartitionState] = {}
        self.ready: dict[TopicPartition, PartitionState] = {}
        self.answers = 0
        """How many fetch answers with data have been counted, to know who was served longest ago."""

    def __repr__(self) -> str:
        return f"<Subscription partitions={len(self.partitions)} ready={len(self.ready)}>"

    def __getitem__(self, partition: TopicPartition) -> PartitionState:
        """The state of an assigned partition; IllegalStateError for any other."""
        try:
            return self.partitions[partition]
        except KeyError:
            raise IllegalStateError(f"{_name(partition)} is not assigned to this consumer; assign() it first") from None

    def __iter__(self) -> Iterator[PartitionState]:
        return iter(self.partitions.values())

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Make these the assignment. Partitions that stay keep position, pause and data; the others are forgotten."""
        before, after = self.partitions, dict.fromkeys(TopicPartition(*partition) for partition in partitions)
        self.partitions = {
            partition: before.get(partition) or PartitionState(partition, self.reset, self.fetch_size)
            for partition in after
        }
        self.ready = {partition: state for partition, state in self.ready.items() if partition in after}

    def add(self, partition: TopicPartition, reset: Reset) -> PartitionState:
        """Take one more partition in."""
        state = self.partitions[partition] = PartitionState(partition, reset, self.fetch_size)
        return state

    def holds(self, state: PartitionState) -> bool:
        """Whether this very state is still part of the assignment."""
        return self.partitions.get(state.partition) is state

    @property
    def topics(self) -> set[str]:
        return {partition.topic for partition in self.partitions}

    # ---- turns

    def update_ready(self, state: PartitionState) -> None:
        """To be called after anything that may have changed ``state.readable``."""
        if state.readable and self.holds(state):
            self.ready.setdefault(state.partition, state)
        else:
            self.ready.pop(state.partition, None)

    def end_turn(self, state: PartitionState) -> None:
        """The next partition comes first now."""
        self.ready.pop(state.partition, None)
        self.update_ready(state)


class FetchTarget(NamedTuple):
    """What a fetch request says of one partition."""

    offset: int
    max_bytes: int
    current_leader_epoch: int
    last_fetched_epoch: int


class FetchKey(NamedTuple):
    """A partition as brokers know it; the id is zero where there is none."""

    topic: str
    topic_id: bytes
    partition: int


@dataclass(slots=True)
class FetchPlan:
    """What to ask one broker for, and what to know when the answer comes."""

    targets: dict[FetchKey, FetchTarget] = field(default_factory=dict)
    states: dict[FetchKey, tuple[PartitionState, int]] = field(default_factory=dict)
    """With the version of the state at the time of asking: an answer to another version is dropped."""
    max_bytes: int = 0
    assigned: int = 0
    """Partitions that this broker would be asked for if they wanted data."""
    holding: bool = False
    """Whether some are left out only because they have enough data, so that they may soon want more."""
    retry_at: float | None = None
    """When a partition that is backing off may be asked for again."""

    @property
    def by_name(self) -> bool:
        """Whether some topic has no id, so that only versions with names can carry the request."""
        return any(key.topic_id == ZERO_UUID for key in self.targets)


def wants_data(state: PartitionState) -> bool:
    """Whether the partition should be fetched: little is left, nothing is in the way.

    A partition asks again when half of what it may get at once is read, so that the next data is there, or at least
    under way, when the reader comes to it.
    """
    return (
        state.state is PositionState.KNOWN
        and not state.paused
        and not state.hold
        and state.failure is None
        and 2 * state.buffered < state.fetch_size
    )


def plan_fetch(
    subscription: Subscription, view: ClusterView, node_id: int, now: float, fetch_max_bytes: int
) -> FetchPlan:
    """All that a broker should be asked for in one request, those first that were served longest ago.

    What is buffered from a broker and what is asked of it together stay within ``fetch_max_bytes``, paused partitions
    included, since their data stays. Only where paused partitions fill all of it may others get one batch at a time
    beyond the bound, as they would never be read otherwise.
    """
    plan = FetchPlan()
    wanted: list[PartitionState] = []
    buffered = 0
    for state in subscription:
        if state.node_id != node_id:
            continue
        plan.assigned += 1
        buffered += state.buffered
        if not wants_data(state):
            plan.holding = plan.holding or (state.has_data and not state.paused)
        elif state.retry_at > now:
            plan.retry_at = state.retry_at if plan.retry_at is None else min(plan.retry_at, state.retry_at)
        else:
            wanted.append(state)
    plan.max_bytes = fetch_max_bytes - buffered
    if plan.max_bytes <= 0:
        if any(state.buffered for state in subscription if state.node_id == node_id and not state.paused):
            return plan  # reading goes on, and makes room
        plan.max_bytes = 1
    wanted.sort(key=_last_served)
    for state in wanted:
        topic = view.topics.get(state.partition.topic)
        partition = None if topic is None else topic.partition(state.partition.partition)
        if topic is None or partition is None:
            continue  # metadata has just lost it; the position keeper sees to that
        key = FetchKey(topic.name, topic.topic_id, state.partition.partition)
        plan.targets[key] = FetchTarget(
            state.fetch_offset,
            state.fetch_size,
            -1 if partition.leader_epoch is None else partition.leader_epoch,
            -1 if state.leader_epoch is None else state.leader_epoch,
        )
        plan.states[key] = (state, state.version)
    return plan


@dataclass(slots=True)
class LookupPlan:
    """Whose offset should be looked up now, by leader; and what keeps the others waiting."""

    by_node: dict[int, list[PartitionState]] = field(default_factory=dict)
    leaderless: list[PartitionState] = field(default_factory=list)
    """Partitions whose leader is not known, whether or not they need an offset."""
    retry_at: float | None = None


def plan_lookups(subscription: Subscription, view: ClusterView, now: float) -> LookupPlan:
    """Which partitions need an offset, and which need metadata first."""
    plan = LookupPlan()
    for state in subscription:
        leader = view.leader_of(state.partition)
        if leader is None:
            plan.leaderless.append(state)
        elif state.state is not PositionState.UNKNOWN or state.failure is not None or state.hold is Hold.LOCATING:
            continue
        elif state.retry_at > now:
            plan.retry_at = state.retry_at if plan.retry_at is None else min(plan.retry_at, state.retry_at)
        else:
            plan.by_node.setdefault(leader.node_id, []).append(state)
    return plan


def source_of(state: PartitionState, view: ClusterView) -> int | None:
    """The broker to fetch a partition from: the follower that the leader named, or the leader, if there is one."""
    if state.preferred is not None and state.preferred in view.nodes:
        return state.preferred
    leader = view.leader_of(state.partition)
    return None if leader is None else leader.node_id


def new_partitions(
    view: ClusterView, topics: Iterable[str], partitions: Mapping[TopicPartition, PartitionState]
) -> list[TopicPartition]:
    """The partitions of these topics that metadata knows and the assignment lacks."""
    return [
        partition
        for name in topics
        if (topic := view.topics.get(name)) is not None
        for view_of in topic.partitions
        if (partition := TopicPartition(name, view_of.partition)) not in partitions
    ]


def _last_served(state: PartitionState) -> int:
    return state.last_served


def _name(partition: object) -> str:
    return str(partition) if isinstance(partition, TopicPartition) else repr(partition)
