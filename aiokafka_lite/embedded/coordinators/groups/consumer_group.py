"""One consumer group of the protocol in which the coordinator assigns (KIP-848): epochs, targets, and fencing.

The group decides; it neither answers requests nor stores anything. A member sends only heartbeats, and all data of the
group is in their answers.

Rules of this file:

 1. The group epoch grows when a subscription changes, when a member leaves, and when the topics of the members or
    their partitions change.
 2. A heartbeat that finds the assignment older than the group computes the target of all members, at most once in
    ``consumer.assignment.interval.ms``. The assignment then has the epoch of the group.
 3. Each member moves to its target by its own heartbeats (``consumer_group_members``). When it has revoked the
    partitions that it lost, it gets the epoch of the assignment.
 4. A heartbeat with another epoch than the member's is fenced. One exception: a member that did not get the last answer
    has the previous epoch, and lists only partitions that it has.
 5. A static member that leaves for a while (epoch -2) keeps its partitions until its session expires. A new member with
    its instance id takes them over.
 6. A refused request changes nothing. If the log refuses the records of a request, the group is restored from the
    records that the log has, and all timers restart. A member that should have been fenced gets another session.
 7. A member with ``classic`` uses the classic protocol (``classic_members``). Its joins are heartbeats of this group.
    If the last other member leaves, the group becomes a classic one (``migration``), at the same epoch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import NamedTuple

from ....errors import ErrorCode
from ....protocol.codec import Buffer, decode_versioned, encode_versioned
from ...metadata.topics import PartitionKey
from ...settings.topic_patterns import InvalidPattern, topic_pattern
from ..log import Rows
from .assignors import ASSIGNORS, Subscriber, TopicIdPartition
from .consumer_group_members import LEAVE_STATIC, ClassicSupport, ConsumerMember
from .consumer_group_records import (
    CURRENT,
    GROUP,
    MEMBER,
    TARGET,
    TARGET_EPOCH,
    ConsumerGroupMetadataValue,
    StoredRecords,
    TargetAssignmentMetadataValue,
    encode_current,
    encode_subscription,
    encode_target,
    encode_target_epoch,
    read_current,
    read_subscription,
    read_target,
)
from .consumer_group_topics import GroupTopics
from .heartbeat_group import (
    JOIN,
    GroupEnvironment,
    GroupRefusal,
    HeartbeatGroup,
    check_epoch,
    check_size,
    unknown_member,
)

NO_TARGET: frozenset[TopicIdPartition] = frozenset()


class MemberHeartbeat(NamedTuple):
    """The content of a ConsumerGroupHeartbeat request. An unchanged value is None. The timeout is in seconds."""

    member_id: str
    epoch: int
    client_id: str
    client_host: str
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout: float | None = None
    topics: tuple[str, ...] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: frozenset[TopicIdPartition] | None = None
    classic: ClassicSupport | None = None

    @property
    def is_full(self) -> bool:
        """Whether the heartbeat has all values, as after an error. Then the answer has the assignment."""
        subscribes = self.topics is not None or self.regex is not None
        return self.rebalance_timeout is not None and subscribes and self.owned is not None

    def lists_only(self, member: ConsumerMember) -> bool:
        """Return whether the heartbeat lists partitions, and only partitions that the member has."""
        return self.owned is not None and self.owned <= member.assigned.keys()


class HeartbeatResult(NamedTuple):
    """The epoch of a member, and its partitions if they changed."""

    member_id: str
    epoch: int
    assignment: frozenset[TopicIdPartition] | None = None


class ConsumerGroup(HeartbeatGroup[ConsumerMember]):
    """A consumer group.

    ``persist`` takes the records that changed, and raises GroupRefusal if the log refuses them. ``assignors`` are the
    names that members may choose, the default first. ``downgrade`` is called after a member left. It may replace this
    group by a classic group, and returns whether it did.

    ``ConsumerGroup`` of ``consumer`` is a client that is a member of such a group.
    """

    type = protocol_type = "consumer"

    def __init__(
        self,
        group_id: str,
        environment: GroupEnvironment,
        *,
        assignors: Collection[str],
        persist: Callable[[Rows], None],
        downgrade: Callable[[ConsumerGroup], bool],
    ) -> None:
        super().__init__(group_id, environment)
        self.assignment_epoch: int = 0
        self.targets: dict[str, frozenset[TopicIdPartition]] = {}
        self._topics = GroupTopics(self._metadata, self.members)
        self._assignors = tuple(assignors)
        self._downgrade = downgrade
        self.stored: StoredRecords = StoredRecords(group_id, persist)

    @property
    def assignor(self) -> str:
        """The assignor that most members ask for, or the default."""
        votes = Counter(member.assignor for member in self.members.values() if member.assignor is not None)
        return votes.most_common(1)[0][0] if votes else self._assignors[0]

    # Heartbeats.

    def heartbeat(self, request: MemberHeartbeat, may_describe: Callable[[str], bool] | None) -> HeartbeatResult:
        """Handle the heartbeat of a new or known member. Raises GroupRefusal.

        ``may_describe`` limits the topics that regular expressions match. None keeps the topics of the last match.
        """
        if request.member_id not in self.members:
            check_size(self.type, self.members, self._max_size)
        # All checks come before the first change (rule 6).
        member = self._find_for(request)
        if request.regex and all(member.regex != request.regex for member in self.members.values()):
            _check_pattern(request.regex)
        returns = member.epoch == LEAVE_STATIC or member.member_id != request.member_id
        if returns:
            self._replace(member, request.member_id)
        self.members.setdefault(member.member_id, member)
        changed = _update(member, request)
        self._refresh(may_describe, changed=changed)
        assigns = self._assign()
        before = set(member.assigned)  # a copy, because a revocation changes the dict itself
        if not member.is_reconciled(self.assignment_epoch) or changed:
            self._reconcile(member, request.owned)
        self.touch(member)
        # A new assignment changes the targets of all members. A static member that returns may replace two members.
        self._save(*self.members.values() if returns or assigns else (member,))
        if assigns:
            # After the save: a refused write restores the group, and the next heartbeat may assign at once.
            self._last_assignment = self._now()
        # As in Kafka, an answer without partitions means that the partitions did not change.
        is_needed = request.epoch == JOIN or request.is_full or member.assigned.keys() != before
        return HeartbeatResult(member.member_id, member.epoch, frozenset(member.assigned) if is_needed else None)

    def _find_for(self, request: MemberHeartbeat) -> ConsumerMember:
        """Return the member of a heartbeat, or a new member. A static member that returns may still have its old id."""
        if request.instance_id is None:
            member = self.members.get(request.member_id)
            if member is None and request.epoch != JOIN:
                raise unknown_member(self.group_id, request.member_id)
        else:
            member = self._static_member(request.instance_id)
            if request.epoch != JOIN:
                member = self.owner(request.instance_id, request.member_id)
            # A running member keeps its instance id. In the classic protocol the new member takes it.
            elif member is not None and member.epoch != LEAVE_STATIC and not (member.classic or request.classic):
                raise GroupRefusal(
                    ErrorCode.UNRELEASED_INSTANCE_ID,
                    f"Static member {request.member_id} with instance id {request.instance_id} cannot join the group "
                    f"because the instance id is owned by {member.member_id} member.",
                )
        if member is None:
            # A member without an instance id may take one.
            return self.members.get(request.member_id) or ConsumerMember(request.member_id)
        if request.epoch != JOIN:
            check_epoch(
                self.type, request.epoch, member.epoch, member.previous_epoch, lists_only=request.lists_only(member)
            )
        return member

    def _static_member(self, instance_id: str) -> ConsumerMember | None:
        return next((member for member in self.members.values() if member.instance_id == instance_id), None)

    def owner(self, instance_id: str, member_id: str | None) -> ConsumerMember:
        """Return the member with an instance id. Raises GroupRefusal unless its id is ``member_id`` (None: any id)."""
        member = self._static_member(instance_id)
        if member is None:
            raise GroupRefusal(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        if member_id not in (None, member.member_id):
            raise GroupRefusal(
                ErrorCode.FENCED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}.",
            )
        return member

    def _replace(self, member: ConsumerMember, member_id: str) -> None:
        """Replace a static member that returns under a new id. If another member has this id, it is replaced too."""
        del self.members[member.member_id]
        self.targets[member_id] = self.targets.pop(member.member_id, NO_TARGET)
        if member_id in self.members:
            self.members[member_id].stop()
        self.members[member_id] = member
        member.member_id, member.epoch, member.previous_epoch = member_id, JOIN, JOIN

    # Topics.

    def _refresh(self, may_describe: Callable[[str], bool] | None, *, changed: bool) -> None:
        """Check the topics of all members. A new epoch begins if they changed, or if a subscription ``changed``."""
        if may_describe is not None:
            self._topics.match(may_describe)
        metadata_hash = self._topics.hash()
        if changed or metadata_hash != self._metadata_hash:
            self.epoch += 1
            self._metadata_hash = metadata_hash

    def subscribed_topics(self) -> set[str]:
        """Return the names of the topics that any member subscribes to."""
        return self._topics.names()

    # The assignment.

    def _assign(self) -> bool:
        """Compute the targets of all members, if they are older than the group and the interval allows it."""
        if self.epoch == self.assignment_epoch or self._is_within_interval():
            return False
        subscribers = {
            name: Subscriber(self._topics.ids_of(member), self.targets.get(name, NO_TARGET), member.instance_id)
            for name, member in self.members.items()
        }
        assignment = ASSIGNORS[self.assignor](subscribers, self._topics.partition_counts())
        self.targets = {member_id: frozenset(partitions) for member_id, partitions in assignment.items()}
        owners = Counter(partition for partitions in self.targets.values() for partition in partitions)
        assert all(count == 1 for count in owners.values()), "each partition of a target has one owner"
        self.assignment_epoch = self.epoch
        self._assigned_at = self._now_ms()
        return True

    def _reconcile(self, member: ConsumerMember, owned: Collection[TopicIdPartition] | None) -> None:
        changed = member.reconcile(
            self.assignment_epoch,
            self.targets.get(member.member_id, NO_TARGET),
            self._topics.ids_of(member),
            owned,
            partial(self._is_free_for, member),
        )
        if changed:
            self._restart_revocation(member)

    def renew_assignment(self) -> None:
        """Compute a new assignment if it is due. Raises GroupRefusal."""
        if self._assign():
            self._save(*self.members.values())
            self._last_assignment = self._now()

    def waits_for_others(self, member: ConsumerMember) -> bool:
        """Return whether another member still has a partition of the member's target."""
        missing = self.targets.get(member.member_id, NO_TARGET) - member.assigned.keys()
        return not all(self._is_free_for(member, partition) for partition in missing)

    def _is_free_for(self, member: ConsumerMember, partition: TopicIdPartition) -> bool:
        return not any(owner.has(partition) for owner in self.members.values() if owner is not member)

    # Leaving.

    def leave(self, member_id: str, instance_id: str | None, epoch: int) -> HeartbeatResult:
        """Handle a member that leaves, with epoch -1, or -2 if it is static and will return. Raises GroupRefusal.

        An operator removes a static member by its instance id alone.
        """
        if instance_id is not None:
            member = self.owner(instance_id, member_id or None)
        elif member_id in self.members:
            member = self.members[member_id]
        else:
            raise unknown_member(self.group_id, member_id)
        if instance_id is not None and epoch == LEAVE_STATIC:
            # A static member keeps its partitions while it is away, so no rebalance begins.
            member.stop_revocation()
            member.epoch = LEAVE_STATIC
            member.revoking = {}
            member.assigned = dict.fromkeys(member.assigned, 0)
            self._save(member)
        else:
            self._fence(member)
        return HeartbeatResult(member_id, epoch)

    def _session_timeout(self, member: ConsumerMember) -> float:
        return super()._session_timeout(member) if member.classic is None else member.classic.session_timeout

    def await_request(self, member: ConsumerMember) -> None:
        """Fence a classic member unless it joins or syncs within its rebalance timeout."""
        if member.revocation is None:
            self._limit_revocation(member)

    def _fence(self, member: ConsumerMember) -> None:
        member.stop()
        del self.members[member.member_id]
        self.targets.pop(member.member_id, None)
        # A classic group has replaced this group, and its records are written already.
        if self._downgrade(self):
            return
        self.epoch += 1
        self._metadata_hash = self._topics.hash()
        self._save(*self.members.values())

    def adopt(self, epoch: int, members: Collection[ConsumerMember]) -> None:
        """Begin with the members of a classic group, and its generation as the epoch."""
        # The assignment of the former leader is the first target: no partition moves until a subscription changes, and
        # the generations that the members send stay valid as epochs.
        self.epoch = self.assignment_epoch = epoch
        for member in members:
            self.members[member.member_id] = member
            self.targets[member.member_id] = frozenset(member.assigned)

    # Offsets.

    def _has_had(self, member: ConsumerMember, partitions: Iterable[PartitionKey], epoch: int) -> bool:
        topics = self._metadata.topics
        owned = [(topics[name].topic_id, number) for name, number in partitions if name in topics]
        return all(member.may_commit(partition, epoch) for partition in owned)

    # The log.

    def _save(self, *changed: ConsumerMember) -> None:
        """Write the records of the group and of the members that ``changed``. Raises GroupRefusal."""
        assert self.assignment_epoch <= self.epoch, "an assignment is never newer than its group"
        group = ConsumerGroupMetadataValue(epoch=self.epoch, metadata_hash=self._metadata_hash)
        target_epoch = encode_target_epoch(self.assignment_epoch, self._assigned_at)
        records = {(GROUP, ""): encode_versioned(group, 0), (TARGET_EPOCH, ""): target_epoch}
        for member in changed:
            name = member.member_id
            records[MEMBER, name] = encode_subscription(member)
            records[TARGET, name] = encode_target(self.targets.get(name, NO_TARGET))
            records[CURRENT, name] = encode_current(member)
        try:
            self.stored.save(records, self.members)
        except GroupRefusal:
            # The memory must equal the log, or members would know an epoch that a later coordinator does not know.
            self.restore(self.stored.values)
            raise

    def restore(self, records: Mapping[tuple[int, str], Buffer]) -> None:
        """Load the records that the log has, by kind and member. All timers restart."""
        self.close(ErrorCode.NONE)
        self.members.clear()
        self.targets.clear()
        self.stored.restore(records)
        for (kind, member_id), value in records.items():
            if kind == GROUP:
                group = decode_versioned(ConsumerGroupMetadataValue, value)[0]
                self.epoch: int = group.epoch
                self._metadata_hash = group.metadata_hash
            elif kind == TARGET_EPOCH:
                target = decode_versioned(TargetAssignmentMetadataValue, value)[0]
                self.assignment_epoch, self._assigned_at = target.assignment_epoch, target.assignment_timestamp
            elif kind == MEMBER:
                self.members[member_id] = read_subscription(member_id, value)
        # A second loop, because a target or an assignment may come before its member.
        for (kind, member_id), value in records.items():
            if kind == TARGET and member_id in self.members:
                self.targets[member_id] = frozenset(read_target(value))
            elif kind == CURRENT and member_id in self.members:
                read_current(self.members[member_id], value)
        self.start_sessions()


def _check_pattern(regex: str) -> None:
    try:
        topic_pattern(regex)
    except InvalidPattern as error:
        text = f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {error}."
        raise GroupRefusal(ErrorCode.INVALID_REGULAR_EXPRESSION, text) from None


def _update(member: ConsumerMember, request: MemberHeartbeat) -> bool:
    """Store the values of a heartbeat. Returns whether the subscription changed."""
    topics = member.topics if request.topics is None else tuple(sorted(set(request.topics)))
    regex = member.regex if request.regex is None else request.regex
    changed = topics != member.topics or (regex or None) != (member.regex or None)
    member.topics, member.regex = topics, regex
    member.client_id, member.client_host = request.client_id, request.client_host
    if member.classic is not None and request.classic is None:
        member.stop_revocation()  # the member no longer has to join and sync
    member.classic = request.classic
    member.update(request, "instance_id", "rack_id", "rebalance_timeout", "assignor")
    return changed
