"""One streams group (KIP-1071): the group protocol of Kafka Streams, in which the coordinator assigns tasks.

The group decides; it neither answers requests nor stores anything. A member sends only heartbeats.

Rules of this file:

 1. The first member brings the topology, and every later member must have the same one. As in Kafka 4.3 it cannot be
    changed, not even when the group is empty. A member with an older topology epoch joins, and gets the
    status STALE_TOPOLOGY.
 2. The group epoch grows when a member joins, changes or leaves, and when the topology becomes ready or its topics
    change. ``topology`` says when it is ready.
 3. A heartbeat computes the target of all members if the assignment is older than the group. It does so at most once in
    ``streams.assignment.interval.ms``; in a new group, not before ``streams.initial.rebalance.delay.ms`` have passed.
    If the topology is not ready, the target has no tasks. In a group that was just loaded, neither time runs.
 4. Each member moves to its target by its own heartbeats (``members``).
 5. A heartbeat with another epoch than the member's is fenced. There are two exceptions. A member with the previous
    epoch that lists no more than it has did not get the last answer. A member with epoch 0 joins again.
 6. A refused request changes nothing. If the log refuses the records of a request, the group is restored from the
    records that the log has. Then the timers of the members restart, and the initial delay goes on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from ....errors import ErrorCode
from ....protocol.codec import Buffer, decode_versioned
from ....protocol.messages import StreamsTopicInfo, StreamsTopology
from ...metadata.topics import PartitionKey
from ...metadata.view import MetadataView
from ..groups.consumer_group_records import (
    STREAMS_CURRENT,
    STREAMS_GROUP,
    STREAMS_MEMBER,
    STREAMS_TARGET,
    STREAMS_TARGET_EPOCH,
    STREAMS_TOPOLOGY,
    StoredRecords,
    TargetAssignmentMetadataValue,
    encode_target_epoch,
)
from ..groups.consumer_group_topics import topics_hash
from ..groups.heartbeat_group import (
    JOIN,
    GroupEnvironment,
    GroupRefusal,
    HeartbeatGroup,
    check_epoch,
    check_size,
    unknown_member,
)
from ..log import Rows
from .assignor import TaskMember, Tasks, assign_tasks
from .members import NO_TASKS, StreamsMember
from .records import (
    StreamsGroupMetadataValue,
    encode_current,
    encode_group,
    encode_member,
    encode_target,
    encode_topology,
    read_current,
    read_member,
    read_target,
    read_topology,
)
from .topology import Status, StreamsStatusCode, TopologyTasks, required_topics, source_topics, tasks_of

logger = logging.getLogger(__name__)


class StreamsHeartbeat(NamedTuple):
    """The content of a StreamsGroupHeartbeat request. An unchanged value is None. The timeout is in seconds."""

    member_id: str
    epoch: int
    client_id: str
    client_host: str
    endpoint_epoch: int
    rack_id: str | None = None
    rebalance_timeout: float | None = None
    topology: StreamsTopology | None = None
    owned: Tasks | None = None
    process_id: str | None = None
    endpoint: tuple[str, int] | None = None
    tags: Mapping[str, str] | None = None
    shutdown: bool = False

    def lists_only(self, member: StreamsMember) -> bool:
        """Return whether the heartbeat lists tasks, and only tasks that the member has."""
        owned = self.owned
        return owned is not None and owned.active <= member.active.keys() and owned.standby <= member.standby


class StreamsAnswer(NamedTuple):
    """The epoch of a member, its tasks if they changed, and the internal topics that are missing with their partitions.

    ``endpoints`` are the partitions of each application, active and standby, if the member does not know them yet.
    """

    member_id: str
    epoch: int
    tasks: Tasks | None
    status: list[Status]
    endpoint_epoch: int
    endpoints: dict[tuple[str, int], tuple[list[PartitionKey], list[PartitionKey]]] | None
    missing: list[tuple[StreamsTopicInfo, int]]


class StreamsGroup(HeartbeatGroup[StreamsMember]):
    """A streams group. ``persist`` takes the records that changed, and raises GroupRefusal if the log refuses them."""

    type = protocol_type = "streams"

    def __init__(self, group_id: str, environment: GroupEnvironment, *, persist: Callable[[Rows], None]) -> None:
        super().__init__(group_id, environment)
        self.targets: dict[str, Tasks] = {}
        self.topology: StreamsTopology = StreamsTopology(epoch=-1, subtopologies=[])
        self.configured: TopologyTasks | None = None
        self._stored_topology: StreamsTopology | None = None  # the object whose record the log has
        self._validated_epoch, self._standby_replicas = -1, -1
        self._endpoint_epoch = 0
        self._shutdown_by: str | None = None
        self._first_assignment: asyncio.TimerHandle | None = None
        self.stored: StoredRecords = StoredRecords(group_id, persist)

    @property
    def _is_ready(self) -> bool:
        return self._validated_epoch == self.topology.epoch

    def subscribed_topics(self) -> set[str]:
        """Return the names of the topics that the members read."""
        subtopologies = self.topology.subtopologies if self.members else []
        return {name for subtopology in subtopologies for name in source_topics(subtopology)}

    # Heartbeats.

    def heartbeat(self, request: StreamsHeartbeat) -> StreamsAnswer:
        """Handle the heartbeat of a new or known member. Raises GroupRefusal."""
        member = self._find_for(request)
        topology = self._topology_for(request.topology)
        # Counted in each heartbeat: topics may have been created, enlarged or deleted since the last one (rule 2).
        partitions = {name: len(topic.partitions) for name, topic in self._metadata.topics.items()}
        configured = tasks_of(topology, partitions)
        if configured.status is None and request.owned is not None:
            _check_tasks(request.owned, configured)
        is_first = not self.stored.values
        before = member.description if member.member_id in self.members else None
        _update(member, request)
        # Before the member is added, because the delay is for an empty group (rule 3).
        self._delay_first_assignment()
        self.members[member.member_id] = member
        self.topology, self.configured = topology, configured
        status = _stale(member, topology)
        self._refresh(topology, configured, changed=member.description != before)
        status += self._assign()
        tasks = member.tasks
        self._reconcile(member, request.owned)
        self.touch(member)
        self._save(member)
        if request.shutdown and self._shutdown_by is None:
            self._shutdown_by = member.member_id
        changed = request.epoch == JOIN or member.tasks != tasks
        endpoint_epoch = self._endpoint_epoch + (changed and member.endpoint is not None)
        if not is_first:  # as in Kafka, the epoch of a group begins with its second heartbeat
            self._endpoint_epoch = endpoint_epoch
        knows_endpoints = endpoint_epoch == request.endpoint_epoch
        return self._answer(member, status, changed=changed, knows_endpoints=knows_endpoints)

    def _find_for(self, request: StreamsHeartbeat) -> StreamsMember:
        """Return the member of a heartbeat, or a new member. Raises GroupRefusal."""
        member = self.members.get(request.member_id)
        if request.epoch == JOIN:
            check_size(self.type, self.members, self._max_size)
            return member or StreamsMember(request.member_id)
        if member is None:
            raise unknown_member(self.group_id, request.member_id)
        check_epoch(
            self.type, request.epoch, member.epoch, member.previous_epoch, lists_only=request.lists_only(member)
        )
        return member

    def _topology_for(self, topology: StreamsTopology | None) -> StreamsTopology:
        """Return the topology of the group after a heartbeat that may bring one (rule 1). Raises GroupRefusal."""
        present = self.topology
        # During a rolling upgrade older instances join too. Their status says that they are stale (rule 1).
        if topology is None or present.epoch > topology.epoch:
            return present
        if present.epoch >= 0 and _by_id(present) != _by_id(topology):
            raise GroupRefusal(ErrorCode.INVALID_REQUEST, "Topology updates are not supported yet.")
        return topology if present.epoch < 0 else present

    def _refresh(self, topology: StreamsTopology, configured: TopologyTasks, *, changed: bool) -> None:
        """Begin a new epoch if a member ``changed``, or if the topology or its topics did (rule 2)."""
        topics = self._metadata.topics
        existing = [topics[name] for name in required_topics(topology) if name in topics]
        basis = (
            topics_hash({topic.topic_id: len(topic.partitions) for topic in existing}),
            topology.epoch if configured.status is None else -1,
            self._setting("streams.num.standby.replicas"),
        )
        if changed or basis != (self._metadata_hash, self._validated_epoch, self._standby_replicas):
            self._metadata_hash, self._validated_epoch, self._standby_replicas = basis
            self.epoch += 1

    def _answer(
        self, member: StreamsMember, status: list[Status], *, changed: bool, knows_endpoints: bool
    ) -> StreamsAnswer:
        configured = self.configured
        assert configured is not None
        if configured.status is not None:
            status.append(configured.status)
        if self._shutdown_by is not None:
            text = (
                f"Streams group member {self._shutdown_by} encountered a fatal error and requested a shutdown for the "
                "entire application."
            )
            status.append(Status(StreamsStatusCode.SHUTDOWN_APPLICATION, text))
        return StreamsAnswer(
            member.member_id,
            member.epoch,
            member.tasks if changed else None,
            status,
            self._endpoint_epoch,
            None if knows_endpoints else _endpoints(self.members, self.topology, self._metadata),
            [(info, configured.partitions[info.name]) for info in configured.missing],
        )

    # The assignment.

    def _assign(self) -> list[Status]:
        """Compute the targets of all members if they are older than the group, and if it is time for that (rule 3)."""
        if self.epoch == self.assignment_epoch:
            return []
        if self._first_assignment is not None:
            text = "Assignment delayed due to the configured initial rebalance delay."
            return [Status(StreamsStatusCode.ASSIGNMENT_DELAYED, text)]
        if self._is_within_interval():
            text = "Assignment delayed due to the configured assignment interval."
            return [Status(StreamsStatusCode.ASSIGNMENT_DELAYED, text)]
        configured = self.configured
        members = {
            name: TaskMember(member.process_id, self.targets.get(name, NO_TASKS))
            for name, member in self.members.items()
        }
        is_ready = configured is not None and configured.status is None
        counts = configured.counts if configured is not None and is_ready else {}
        stateful = configured.stateful if configured is not None else ()
        self.targets = assign_tasks(members, counts, stateful, self._standby_replicas)
        self.assignment_epoch: int = self.epoch
        self._assigned_at = self._now_ms()
        return []

    def _delay_first_assignment(self) -> None:
        """Start the initial delay before the first member joins, so that others can join before the assignment."""
        delay = self._setting("streams.initial.rebalance.delay.ms") / 1000
        if self.is_empty and delay > 0 and self._first_assignment is None:
            self._first_assignment = self._call_later(delay, self._assign_first)

    def _assign_first(self) -> None:
        """Compute the first assignment, after the initial delay of a new group."""
        self._first_assignment = None
        if not self.members:
            return
        self._assign()
        try:
            self._save()
        except GroupRefusal as refusal:
            logger.warning("failed to assign the tasks of group %s: %s", self.group_id, refusal)

    def _reconcile(self, member: StreamsMember, owned: Tasks | None) -> None:
        target = NO_TASKS if self._first_assignment is not None else self.targets.get(member.member_id, NO_TASKS)
        if member.reconcile(self.assignment_epoch, target, owned, self.members.values()):
            self._restart_revocation(member)

    # Leaving.

    def leave(self, member_id: str, *, shutdown: bool) -> None:
        """Handle a member that leaves, and may ask the whole application to shut down. Raises GroupRefusal."""
        member = self.members.get(member_id)
        if member is None:
            raise unknown_member(self.group_id, member_id)
        self._fence(member)
        # Without other members there is nobody left to shut down.
        if shutdown and self.members and self._shutdown_by is None:
            self._shutdown_by = member_id

    def _fence(self, member: StreamsMember) -> None:
        member.stop()
        del self.members[member.member_id]
        self.targets.pop(member.member_id, None)
        self.epoch += 1
        self._save()
        if not self.members:
            self._shutdown_by = None

    def close(self, error: ErrorCode) -> None:
        super().close(error)
        if self._first_assignment is not None:
            self._first_assignment.cancel()
            self._first_assignment = None

    # Offsets.

    def _has_had(self, member: StreamsMember, partitions: Iterable[PartitionKey], epoch: int) -> bool:
        readers = {
            name: subtopology.subtopology_id
            for subtopology in self.topology.subtopologies
            for name in source_topics(subtopology)
        }
        return all(member.may_commit((readers.get(name, ""), number), epoch) for name, number in partitions)

    # The log.

    def _save(self, *changed: StreamsMember) -> None:
        """Write the records of the group, of the members that ``changed``, and of all after an assignment.

        Raises GroupRefusal.
        """
        assert self.assignment_epoch <= self.epoch, "an assignment is never newer than its group"
        target_epoch = (STREAMS_TARGET_EPOCH, "")
        records = {
            (STREAMS_GROUP, ""): encode_group(
                self.epoch, self._metadata_hash, self._validated_epoch, self._standby_replicas
            ),
            target_epoch: encode_target_epoch(self.assignment_epoch, self._assigned_at),
        }
        if self.topology is not self._stored_topology:
            records[STREAMS_TOPOLOGY, ""] = encode_topology(self.topology)
        is_assigned = self.stored.values.get(target_epoch) != records[target_epoch]
        for member in self.members.values() if is_assigned else changed:
            name = member.member_id
            records[STREAMS_MEMBER, name] = encode_member(member)
            records[STREAMS_TARGET, name] = encode_target(self.targets.get(name, NO_TASKS))
            records[STREAMS_CURRENT, name] = encode_current(member)
        first_assignment = self._first_assignment
        try:
            self.stored.save(records, self.members)
        except GroupRefusal:
            # The memory must equal the log, or members would know an epoch that a later coordinator does not know.
            self.restore(self.stored.values)
            # ``restore`` has cancelled the initial delay; its remaining time starts again.
            if first_assignment is not None and self.members:
                delay = max(first_assignment.when() - self._now(), 0.0)
                self._first_assignment = self._call_later(delay, self._assign_first)
            raise
        self._stored_topology = self.topology
        if is_assigned and self._assigned_at:
            self._last_assignment = self._now()

    def restore(self, records: Mapping[tuple[int, str], Buffer]) -> None:
        """Load the records that the log has, by kind and member. All timers restart."""
        self.close(ErrorCode.NONE)
        self.members.clear()
        self.targets.clear()
        self.stored.restore(records)
        for (kind, name), value in sorted(records.items(), key=lambda record: record[0]):  # a member before its tasks
            if kind == STREAMS_GROUP:
                group = decode_versioned(StreamsGroupMetadataValue, value)[0]
                self.epoch: int = group.epoch
                self._metadata_hash = group.metadata_hash
                self._validated_epoch = group.validated_topology_epoch
                configs = group.last_assignment_configs or ()
                self._standby_replicas = next((int(config.value) for config in configs), 0)
            elif kind == STREAMS_TARGET_EPOCH:
                target = decode_versioned(TargetAssignmentMetadataValue, value)[0]
                self.assignment_epoch, self._assigned_at = target.assignment_epoch, target.assignment_timestamp
            elif kind == STREAMS_TOPOLOGY:
                self.topology = self._stored_topology = read_topology(value)
            elif kind == STREAMS_MEMBER:
                self.members[name] = read_member(name, value)
            elif kind == STREAMS_TARGET:
                self.targets[name] = read_target(value)
            elif kind == STREAMS_CURRENT and name in self.members:
                read_current(self.members[name], value)
        self.start_sessions()


def _endpoints(
    members: Mapping[str, StreamsMember], topology: StreamsTopology, metadata: MetadataView
) -> dict[tuple[str, int], tuple[list[PartitionKey], list[PartitionKey]]]:
    """Return the partitions of each application, of its active and of its standby tasks."""
    sources = {subtopology.subtopology_id: source_topics(subtopology) for subtopology in topology.subtopologies}
    endpoints: dict[tuple[str, int], tuple[list[PartitionKey], list[PartitionKey]]] = {}
    for member in members.values():
        if member.endpoint is None:
            continue
        for keys, tasks in zip(endpoints.setdefault(member.endpoint, ([], [])), member.tasks):
            keys += [
                (name, number)
                for subtopology, number in sorted(tasks)
                for name in sources.get(subtopology, ())
                if metadata.partition_state((name, number)) is not None
            ]
    return endpoints


def _by_id(topology: StreamsTopology) -> tuple[int, dict[str, object]]:
    return topology.epoch, {subtopology.subtopology_id: subtopology for subtopology in topology.subtopologies}


def _stale(member: StreamsMember, topology: StreamsTopology) -> list[Status]:
    if member.topology_epoch >= topology.epoch:
        return []
    text = f"The member's topology epoch {member.topology_epoch} is behind the group's topology epoch {topology.epoch}."
    return [Status(StreamsStatusCode.STALE_TOPOLOGY, text)]


def _check_tasks(owned: Tasks, configured: TopologyTasks) -> None:
    for subtopology, number in sorted(owned.active | owned.standby):
        count = configured.counts.get(subtopology)
        text = ""
        if count is None:
            text = f"Subtopology {subtopology} does not exist in the topology."
        elif not 0 <= number < count:
            text = f"Task {number} for subtopology {subtopology} is invalid. Number of tasks for this subtopology: "
            text += str(count)
        if text:
            raise GroupRefusal(ErrorCode.INVALID_REQUEST, text)


def _update(member: StreamsMember, request: StreamsHeartbeat) -> None:
    member.client_id, member.client_host = request.client_id, request.client_host
    member.update(request, "rack_id", "rebalance_timeout", "process_id", "endpoint", "tags")
    if request.topology is not None:
        member.topology_epoch = request.topology.epoch
