"""The classic protocol's requests to a consumer group (KIP-848): members that migrate one after the other.

Rules of this file:

 1. A join is a heartbeat with all values. Its subscription contains the partitions that the member has. No member
    leads: the group assigns, so every join is answered at once and no subscriptions are in the answer.
 2. The generation of a member is its epoch. The answer to a sync has the member's partitions at this epoch.
 3. A heartbeat asks the member to join again in three cases. Its assignment is out of date, it has to revoke
    partitions, or the partitions that it waits for are free.
 4. A member that is asked to join must join within its rebalance timeout. A member that has joined must sync within its
    rebalance timeout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from ....arguments import by_topic
from ....errors import ErrorCode, ProtocolError
from ....protocol.codec import decode_versioned, encode_versioned
from ....protocol.messages import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)
from ...metadata.view import MetadataView
from .assignors import TopicIdPartition
from .consumer_group import ConsumerGroup, MemberHeartbeat
from .consumer_group_members import ClassicSupport, ConsumerMember, MemberState
from .heartbeat_group import JOIN, LEAVE, GroupRefusal
from .members import JoiningMember, JoinResult, SyncResult

CONSUMER = "consumer"
"""The protocol type of consumers."""


class ClassicMembers:
    """A consumer group with the methods of a classic group. Owner: the request."""

    def __init__(self, group: ConsumerGroup, metadata: MetadataView, new_id: Callable[[], str]) -> None:
        self._group = group
        self._metadata = metadata
        self._new_id = new_id

    def join(self, request: JoiningMember, *, require_member_id: bool) -> JoinResult:
        """Handle a JoinGroup request of a new member, or of a member that joins again."""
        if not self._supports(request):
            return JoinResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")
        member_id = request.member_id or self._new_id()
        if not request.member_id and request.instance_id is None and require_member_id:
            return JoinResult(ErrorCode.MEMBER_ID_REQUIRED, member_id)
        protocol, metadata = request.protocols[0]
        try:
            if request.member_id and request.instance_id is not None:
                self._group.owner(request.instance_id, request.member_id)
            subscription = decode_versioned(ConsumerProtocolSubscription, metadata)[0]
            owned = partitions_with_ids(
                self._metadata,
                ((topic.topic, topic.partitions) for topic in subscription.owned_partitions),
            )
            heartbeat = MemberHeartbeat(
                member_id,
                JOIN,
                request.client_id,
                request.client_host,
                request.instance_id,
                subscription.rack_id or None,
                request.rebalance_timeout,
                tuple(subscription.topics),
                "",
                owned=owned,
                classic=ClassicSupport(request.session_timeout, request.protocols),
            )
            self._group.heartbeat(heartbeat, None)
        except GroupRefusal as refusal:
            return JoinResult(refusal.error, request.member_id)
        except ProtocolError:
            return JoinResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")
        # The member has joined, and from now on it has its rebalance timeout to sync (rule 4).
        member = self._group.members[member_id]
        member.stop_revocation()
        self._group.await_request(member)
        return JoinResult(ErrorCode.NONE, member_id, member.epoch, CONSUMER, protocol)

    def _supports(self, request: JoiningMember) -> bool:
        """Return whether all classic members have one of the protocols."""
        names = {name for name, _ in request.protocols}
        for member in self._group.members.values():
            if member.classic is not None:
                names &= {name for name, _ in member.classic.protocols}
        return request.protocol_type == CONSUMER and bool(names)

    def sync(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        assignments: Mapping[str, bytes],
        *,
        protocol_type: str | None = None,
        protocol: str | None = None,
    ) -> SyncResult:
        """Answer a member's request for its partitions. The ``assignments`` of a former leader do not count."""
        try:
            member, classic = self._member(member_id, instance_id, generation)
        except GroupRefusal as refusal:
            return SyncResult(refusal.error)
        name, metadata = classic.protocols[0]
        if protocol_type not in (None, CONSUMER) or protocol not in (None, name):
            return SyncResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        # A newer assignment exists, so the member must join again. A member that has to revoke keeps its older epoch
        # until it has revoked (rule 1 of ``consumer_group_members``), so it gets its present partitions.
        if member.epoch < self._group.assignment_epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._group.await_request(member)
            return SyncResult(ErrorCode.REBALANCE_IN_PROGRESS)
        member.stop_revocation()
        self._group.touch(member)
        return SyncResult(ErrorCode.NONE, encode_assignment(self._metadata, member.assigned, metadata), CONSUMER, name)

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Handle a heartbeat. REBALANCE_IN_PROGRESS asks the member to join again."""
        try:
            member, _ = self._member(member_id, instance_id, generation)
            self._group.touch(member)
            self._group.renew_assignment()
        except GroupRefusal as refusal:
            return refusal.error
        must_join = (
            member.epoch < self._group.assignment_epoch
            or member.state is MemberState.UNREVOKED_PARTITIONS
            or (member.state is MemberState.UNRELEASED_PARTITIONS and not self._group.waits_for_others(member))
        )
        if not must_join:
            return ErrorCode.NONE
        self._group.await_request(member)
        return ErrorCode.REBALANCE_IN_PROGRESS

    def leave(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Remove a member that leaves, or a static member that an operator names by its instance id alone."""
        try:
            self._group.leave(member_id, instance_id, LEAVE)
        except GroupRefusal as refusal:
            return refusal.error
        return ErrorCode.NONE

    def _member(
        self, member_id: str, instance_id: str | None, generation: int
    ) -> tuple[ConsumerMember, ClassicSupport]:
        """Return the classic member with this id and this generation. Raises GroupRefusal."""
        if instance_id is not None:
            self._group.owner(instance_id, member_id)
        member = self._group.members.get(member_id)
        if member is None or member.classic is None:
            raise GroupRefusal(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a classic member.")
        if member.epoch != generation:
            raise GroupRefusal(ErrorCode.ILLEGAL_GENERATION, f"Member {member_id} has the epoch {member.epoch}.")
        return member, member.classic


def partitions_with_ids(
    metadata: MetadataView, topics: Iterable[tuple[str, Iterable[int]]]
) -> frozenset[TopicIdPartition]:
    """Return the partitions by the ids of their topics. Topics that do not exist are left out."""
    existing = metadata.topics
    return frozenset(
        (existing[name].topic_id, number) for name, numbers in topics if name in existing for number in numbers
    )


def encode_assignment(metadata: MetadataView, partitions: Iterable[TopicIdPartition], subscription: bytes) -> bytes:
    """Return an assignment for a classic member, in the version of its ``subscription``."""
    named = ((metadata.topic_name(topic_id), number) for topic_id, number in sorted(partitions))
    topics = by_topic((name, number) for name, number in named if name is not None)
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignmentTopicPartition(topic=topic, partitions=numbers)
            for topic, numbers in topics.items()
        ]
    )
    version = decode_versioned(ConsumerProtocolSubscription, subscription)[1]
    return encode_versioned(assignment, min(version, ConsumerProtocolAssignment.versions.last))
