"""Plans the requests of one fetcher: which partitions of its broker to ask for, and from which offsets. Pure.

Rules of this file:

1. The plan is updated, not computed again: ``plan`` checks only partitions that have changed since the last call, so
   idle partitions cost nothing. A partition that changes adds itself to the ``FetchSource``. After new metadata, the
   planner checks all partitions once.
2. The plan has sums over its partitions. Before a ``PlannedPartition`` is updated, its old values are subtracted. So
   the sums always cover all partitions.
3. ``wanted`` of the session contains the partitions that are to be fetched now. Partitions that back off, are paused,
   or have enough data are not in it.
4. A request is made only of an up-to-date plan: first all removed partitions leave, then all changes of planned
   partitions are applied, if need be in several calls without targets. Only new partitions may wait meanwhile. A
   target with an old offset would fetch the same data again, and the sums would lack the data that is buffered.
5. Only ``plan`` changes planned partitions, and it does not run between a request and its answer. So ``find`` returns
   the position's version and the offset of the request, and an answer counts only if both are still the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

from ...cluster.metadata import ClusterView
from ...protocol.schema import ZERO_UUID
from ..partition import AssignedPartition, FetchSource
from .session import FetchSession
from .slices import SLICE, take_some


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
    """The content of the next request. It is never changed, but creating a frozen dataclass takes 2 µs more.

    ``targets`` is empty if there is nothing to fetch, if there is no room for it, or until all planned partitions are
    up to date.
    """

    targets: Mapping[FetchKey, FetchTarget]
    count: int
    """The number of partitions that are fetched from this broker, whether or not they need data now."""
    max_bytes: int
    has_full_buffers: bool
    """Whether partitions are left out only because enough data is buffered. They may need data soon."""
    has_backlog: bool
    """Whether the broker has data of a target, as far as the last answers say. It answers at once then."""
    by_name: bool
    """Whether a topic has no id, so that only versions with topic names can carry the request."""
    retry_at: float | None
    """The loop's time at which the next partition ends its backoff."""
    updated: int
    """The number of partitions that were checked to update the plan."""
    is_partial: bool
    """Whether changed partitions are left for the next plan, because there are too many for one."""

    @property
    def may_wait(self) -> bool:
        """Whether the request is better held back for a moment, because a reader may empty full buffers meanwhile."""
        return self.has_full_buffers and not self.has_backlog and not self.is_partial


class PlannedPartition:
    """One partition in the plan, and its part of the sums of the plan. Owner: the planner.

    ``key`` is None unless the partition is fetched now. ``version`` is the position's version, and ``offset`` the end
    of the buffer: an answer counts only if both are still the same.
    """

    __slots__ = ("assigned", "buffered", "has_backlog", "is_full", "is_paused", "key", "offset", "version")

    def __init__(self, assigned: AssignedPartition) -> None:
        self.assigned: AssignedPartition = assigned
        self.key: FetchKey | None = None
        self.version: int = 0
        self.offset: int = -1
        self.buffered: int = 0
        self.is_paused: bool = False
        self.is_full: bool = False
        self.has_backlog: bool = False


class FetchPlanner:
    """The plan of one broker. Owner: its ``BrokerFetcher``.

    The buffered bytes of the broker and the requested bytes together stay within ``max_bytes``. Paused partitions
    count, because their data stays. If paused partitions use all of ``max_bytes``, the other partitions get one batch
    at a time beyond it. Otherwise they would never be read.
    """

    def __init__(self, node_id: int, max_bytes: int, wake: Callable[[], None] = lambda: None) -> None:
        self.session: FetchSession[FetchKey, FetchTarget] = FetchSession()
        self.source: FetchSource = FetchSource(node_id, wake)
        self.max_bytes = max_bytes
        """The memory of this broker. ``Fetching`` changes it, because it depends on the number of brokers."""
        self._view = ClusterView()
        self._planned: dict[AssignedPartition, PlannedPartition] = {}
        # The changes of the source wait here for their update.
        self._outdated: dict[AssignedPartition, None] = {}  # planned, or with buffered data that the sums must have
        self._new: dict[AssignedPartition, None] = {}
        self._by_topic: dict[str, dict[int, PlannedPartition]] = {}
        self._backing_off: dict[AssignedPartition, None] = {}
        self._following: dict[AssignedPartition, None] = {}
        self._buffered = self._buffered_unpaused = 0
        self._full = self._backlogs = self._nameless = 0

    def __repr__(self) -> str:
        counts = f"partitions={len(self._planned)} wanted={len(self.session.wanted)}"
        return f"<FetchPlanner node={self.source.node_id} {counts}>"

    def plan(self, view: ClusterView, now: float) -> FetchPlan:
        """Bring the plan up to date. Partitions that were served longest ago are asked for first.

        One call removes and updates at most ``SLICE`` partitions, and adds as many new ones. So neither the plan nor
        the request holds the event loop for long.
        """
        updated = self._remove_some()
        is_current = not self.source.removed
        if is_current:
            self._collect_changes(view, now)
            updated += self._update_some(SLICE - updated, now)
            is_current = not self._outdated
        max_bytes = self.max_bytes - self._buffered
        has_room = max_bytes > 0 or not self._buffered_unpaused  # without room, a read of buffered data makes room
        return FetchPlan(
            targets=self.session.wanted if has_room and is_current else {},
            count=len(self._planned),
            max_bytes=max(max_bytes, 1),
            has_full_buffers=self._full > 0,
            has_backlog=self._backlogs > 0,
            by_name=self._nameless > 0,
            retry_at=min(map(_retry_at, self._backing_off), default=None),
            updated=updated,
            is_partial=not is_current or bool(self._new),
        )

    def find(self, topic: str, topic_id: bytes, partition: int) -> PlannedPartition | None:
        """Find the requested partition that an answer names: by the topic's id, before Fetch v13 by its name."""
        name = topic if topic_id == ZERO_UUID else self._view.topic_names.get(topic_id, "")
        planned = self._by_topic.get(name, {}).get(partition)
        return None if planned is None or planned.key is None else planned

    def targets(self) -> Iterator[tuple[PlannedPartition, FetchTarget]]:
        """Yield all targets that are fetched now."""
        for key, target in self.session.wanted.items():
            yield self._by_topic[key.topic][key.partition], target

    def wanted(self) -> list[AssignedPartition]:
        """Return the partitions that are fetched now."""
        return [planned.assigned for planned, _ in self.targets()]

    def expired_followers(self, now: float) -> list[AssignedPartition]:
        """Return the partitions that were fetched from this broker as a preferred follower for long enough."""
        return [assigned for assigned in self._following if now >= assigned.preferred_until]

    # Updates of the plan.

    def _remove_some(self) -> int:
        """Remove some partitions that are no longer fetched from this broker. Returns their number."""
        # They come first, because the same partition may have been assigned again, as another object.
        removed = take_some(self.source.removed, SLICE)
        for assigned in removed:
            self._remove(assigned)
        return len(removed)

    def _collect_changes(self, view: ClusterView, now: float) -> None:
        """Collect the partitions to update: after a change, at the end of a backoff, and after new metadata."""
        planned, outdated, new, changed = self._planned, self._outdated, self._new, self.source.changed
        for assigned in changed:
            waiting = outdated if assigned in planned or assigned.buffer.bytes else new
            waiting[assigned] = None
        changed.clear()
        if view is not self._view:
            self._view = view
            outdated.update(dict.fromkeys(planned))
        for assigned in self._backing_off:
            if assigned.retry_at <= now:
                outdated[assigned] = None

    def _update_some(self, limit: int, now: float) -> int:
        """Update at most ``limit`` planned partitions, and add some new ones if none is left. Returns their number."""
        outdated = take_some(self._outdated, limit)
        # New ones are not within the limit, so that they do not wait for ever while many others change all the time.
        new = [] if self._outdated else take_some(self._new, SLICE)
        for assigned in sorted(outdated + new, key=_last_served):
            assert assigned.source is self.source, "a partition is fetched from one broker"
            self._update(assigned, self._view, now)
        return len(outdated) + len(new)

    def _update(self, assigned: AssignedPartition, view: ClusterView, now: float) -> None:
        planned = self._planned.get(assigned)
        if planned is not None:
            self._subtract(planned)
        else:
            topic, number = assigned.partition
            planned = self._planned[assigned] = PlannedPartition(assigned)
            self._by_topic.setdefault(topic, {})[number] = planned
        self._add(planned, view, now)

    def _subtract(self, planned: PlannedPartition) -> None:
        self._buffered -= planned.buffered
        if not planned.is_paused:
            self._buffered_unpaused -= planned.buffered
        self._full -= planned.is_full
        self._backlogs -= planned.has_backlog
        self._backing_off.pop(planned.assigned, None)
        self._following.pop(planned.assigned, None)
        assert self._buffered >= 0, "the sums cover all planned partitions (rule 2)"

    def _add(self, planned: PlannedPartition, view: ClusterView, now: float) -> None:
        assigned = planned.assigned
        buffer = assigned.buffer
        planned.version = assigned.position.version
        planned.offset = buffer.end
        planned.buffered = buffer.bytes
        planned.is_paused = assigned.paused
        planned.is_full = planned.has_backlog = False
        self._buffered += buffer.bytes
        if not assigned.paused:
            self._buffered_unpaused += buffer.bytes
        if assigned.preferred == self.source.node_id:
            self._following[assigned] = None
        if not assigned.wants_data:
            # A paused partition needs no data soon, so it must not shorten the wait of the next request.
            planned.is_full = buffer.has_data and not assigned.paused
            self._full += planned.is_full
        elif assigned.retry_at > now:
            self._backing_off[assigned] = None
        else:
            # Before the first answer, the broker is assumed to have data.
            planned.has_backlog = assigned.high_watermark is None or buffer.end < assigned.high_watermark
            self._backlogs += planned.has_backlog
            self._want(planned, view)
            return
        self._drop(planned)

    def _want(self, planned: PlannedPartition, view: ClusterView) -> None:
        name, number = planned.assigned.partition
        topic = view.topics.get(name)
        partition = None if topic is None else topic.partition(number)
        if topic is None or partition is None:
            self._drop(planned)  # metadata has just lost the partition; the position keeper requests it
            return
        if ZERO_UUID != topic.topic_id != planned.assigned.topic_id != ZERO_UUID:
            self._drop(planned)  # the topic was created again; ``Fetching`` is about to reset the position
            return
        buffer = planned.assigned.buffer
        target = FetchTarget(
            buffer.end,
            buffer.fetch_size,
            -1 if partition.leader_epoch is None else partition.leader_epoch,
            -1 if buffer.end_epoch is None else buffer.end_epoch,
        )
        # A topic that was created again is another partition in the broker's session.
        if planned.key is None or planned.key.topic_id != topic.topic_id:
            self._drop(planned)
            planned.key = FetchKey(name, topic.topic_id, number)
            self._nameless += topic.topic_id == ZERO_UUID
        self.session.want(planned.key, target)

    def _drop(self, planned: PlannedPartition) -> None:
        if planned.key is not None:
            self.session.drop(planned.key)
            self._nameless -= planned.key.topic_id == ZERO_UUID
            planned.key = None

    def _remove(self, assigned: AssignedPartition) -> None:
        self._outdated.pop(assigned, None)
        self._new.pop(assigned, None)
        planned = self._planned.pop(assigned, None)
        if planned is None:
            return  # it was moved away before it was planned
        self._subtract(planned)
        self._drop(planned)
        topic, number = assigned.partition
        del self._by_topic[topic][number]
        if not self._by_topic[topic]:
            del self._by_topic[topic]


_last_served = attrgetter("last_served")
_retry_at = attrgetter("retry_at")
