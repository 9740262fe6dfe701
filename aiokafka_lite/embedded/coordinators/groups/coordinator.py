"""The groups of one node: it leads their partitions of ``__consumer_offsets``.

Rules of this file:

 1. The memory of the coordinator is a cache of that partition. When the node becomes the leader, it reads the groups
    from the log, and the sessions of their members restart. When it is no longer the leader, it drops the groups, and
    requests that wait get NOT_COORDINATOR. So a group survives its coordinator if the topic has another replica.
 2. Some answers wait until all in-sync replicas have the records: to OffsetCommit, SyncGroup and LeaveGroup, to the
    heartbeats of consumer and share groups, and to the JoinGroup of a static member that returns.
 3. Writing takes time. Afterwards, the group may have been deleted, or belong to another node, so this is checked
    again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random

from ....errors import ErrorCode
from ...metadata.topics import PartitionKey
from ...metadata.view import MetadataView
from ...replicas.manager import ReplicaManager
from ...settings.configs import BrokerSettings
from ...settings.resource_configs import group_number
from ..log import Rows
from ..streams.group import StreamsGroup
from .classic_members import ClassicMembers
from .consumer_group import ConsumerGroup, HeartbeatResult, MemberHeartbeat
from .group import Group, check_commit
from .heartbeat_group import GroupRefusal
from .hosted_groups import AnyGroup, HostedGroup, HostedGroups, tombstones
from .log import CommittedOffset, GroupLog, encode_offset
from .members import JoiningMember, JoinResult
from .records import offset_key
from .transactional_offsets import TransactionalOffsets

NEVER = 0


class GroupCoordinator:
    """The groups of a node. Owner: the node. ``check`` returns whether the node coordinates a group."""

    def __init__(
        self,
        node_id: int,
        metadata: MetadataView,
        replica_manager: ReplicaManager,
        settings: BrokerSettings,
        *,
        now_ms: Callable[[], int],
        random: Random,
    ) -> None:
        self._node_id = node_id
        self.log: GroupLog = GroupLog(metadata, replica_manager, now_ms)
        self._settings = settings
        self._now_ms = now_ms
        self.transactional: TransactionalOffsets = TransactionalOffsets(self.log, self._store)
        self._led: dict[int, int] = {}  # partition of the offsets topic → leader epoch at which it was loaded
        self.hosted: HostedGroups = HostedGroups(self.log, metadata, settings, now_ms, random)

    def __repr__(self) -> str:
        return f"<GroupCoordinator node={self._node_id} partitions={len(self._led)} groups={len(self.hosted)}>"

    # Which groups are here.

    def apply(self) -> None:
        """Load the partitions that this node leads after a change of leaders, and drop the others."""
        led = self.log.leader_epochs(self._node_id)
        for index in [index for index in self._led if index not in led]:
            del self._led[index]
            self._unload(index)
        for index, epoch in led.items():
            if index not in self._led:
                self._led[index] = epoch
                self._load(index)

    def check(self, group_id: str) -> ErrorCode:
        """Return NONE if this node coordinates the group. The group "" may have offsets, but no members."""
        return ErrorCode.NONE if self.log.partition_for(group_id) in self._led else ErrorCode.NOT_COORDINATOR

    def require(self, group_id: str) -> None:
        """Raise GroupRefusal unless this node coordinates the group."""
        error = self.check(group_id)
        if error is not ErrorCode.NONE:
            raise GroupRefusal(error)

    def stop(self) -> None:
        """Cancel all timers, because the node stops. Requests that wait end with their connections."""
        for index in list(self._led):
            del self._led[index]
            self._unload(index)

    def _unload(self, index: int) -> None:
        self.transactional.unload(index)
        for group_id in [group_id for group_id in self.hosted if self.log.partition_for(group_id) in (index, None)]:
            self.hosted.pop(group_id).group.close(ErrorCode.NOT_COORDINATOR)

    def _load(self, index: int) -> None:
        records = self.log.read(index)
        for producer_id, pending in records.pending.items():
            for (group_id, topic, number), committed in pending.items():
                self.transactional.add(index, producer_id, group_id, {(topic, number): committed})
        self.hosted.load(records)

    # Membership.

    def join(
        self, group_id: str, request: JoiningMember, *, require_member_id: bool, is_share_group: bool = False
    ) -> JoinResult | asyncio.Future[JoinResult]:
        """Handle a JoinGroup request. The first member creates the group, unless the id belongs to a share group."""
        error = self.check(group_id) if group_id else ErrorCode.INVALID_GROUP_ID
        low = self._settings.seconds("group.min.session.timeout.ms")
        high = self._settings.seconds("group.max.session.timeout.ms")
        if error is ErrorCode.NONE and not low <= request.session_timeout <= high:
            error = ErrorCode.INVALID_SESSION_TIMEOUT
        if error is ErrorCode.NONE and is_share_group:
            return JoinResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")
        if error is ErrorCode.NONE and group_id not in self.hosted and request.member_id:
            error = ErrorCode.UNKNOWN_MEMBER_ID
        if error is not ErrorCode.NONE:
            return JoinResult(error, request.member_id)
        group = self.hosted.classic(group_id)
        if group is None:
            return JoinResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")
        result = group.join(request, require_member_id=require_member_id)
        if isinstance(group, Group):
            if group.members:
                self.hosted[group_id].empty_since = -1
            return result
        hosted = self.hosted[group_id].group
        if isinstance(hosted, ConsumerGroup):
            self.hosted.downgrade(hosted)  # the member may have replaced the last one of the consumer protocol
        return result

    def classic_group(self, group_id: str) -> Group | ClassicMembers:
        """Return the group of a SyncGroup, Heartbeat or LeaveGroup request. Raises GroupRefusal."""
        error = self.check(group_id) if group_id else ErrorCode.INVALID_GROUP_ID
        if error is not ErrorCode.NONE:
            raise GroupRefusal(error)
        hosted = self.hosted.get(group_id)
        if hosted is None or isinstance(hosted.group, StreamsGroup):
            raise GroupRefusal(ErrorCode.UNKNOWN_MEMBER_ID)
        return self.hosted.classic_members(hosted.group) if isinstance(hosted.group, ConsumerGroup) else hosted.group

    def consumer_heartbeat(
        self, group_id: str, request: MemberHeartbeat, may_describe: Callable[[str], bool]
    ) -> HeartbeatResult:
        """Handle a ConsumerGroupHeartbeat. The first member creates the group. Raises GroupRefusal."""
        group = self._consumer_group(group_id, request.epoch)
        if not request.member_id:
            request = request._replace(member_id=self.hosted.new_id())
        answer = group.heartbeat(request, may_describe)
        self.hosted.put(group)
        return answer

    def consumer_leave(self, group_id: str, member_id: str, instance_id: str | None, epoch: int) -> HeartbeatResult:
        """Handle the ConsumerGroupHeartbeat of a member that leaves. Raises GroupRefusal."""
        return self._consumer_group(group_id, epoch).leave(member_id, instance_id, epoch)

    def _consumer_group(self, group_id: str, epoch: int) -> ConsumerGroup:
        error = self.check(group_id)
        if error is not ErrorCode.NONE:
            raise GroupRefusal(error, "this broker is not the coordinator of the group")
        return self.hosted.consumer(group_id, epoch)

    def heartbeat_interval_ms(self, group_id: str, kind: str = "consumer") -> int:
        """Return the interval of heartbeats in a group of this type."""
        return group_number(self._settings, group_id, f"{kind}.heartbeat.interval.ms")

    # Offsets.

    def check_commit(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        partitions: Iterable[PartitionKey],
        *,
        knows_epochs: bool = False,
        transactional: bool = False,
    ) -> ErrorCode:
        """Return NONE if a commit is accepted: by a member of this generation, or by any client if there is no member.

        A client that ``knows_epochs`` (OffsetCommit v9) can be a member of a consumer group, and a missing group is
        GROUP_ID_NOT_FOUND instead of ILLEGAL_GENERATION. A ``transactional`` commit without a member is always
        accepted, because older producers do not name the member (KIP-447).
        """
        error = self.check(group_id)
        if error is not ErrorCode.NONE:
            return error
        hosted = self.hosted.get(group_id)
        if hosted is None and generation >= 0:
            return ErrorCode.GROUP_ID_NOT_FOUND if knows_epochs else ErrorCode.ILLEGAL_GENERATION
        if hosted is None:
            # A commit of an admin client or an assigned consumer creates a group without members.
            hosted = self.hosted.host(group_id)
            hosted.empty_since = NEVER  # the group is invisible until something is committed
        group = hosted.group
        if not knows_epochs and not transactional and _is_commit_by_epoch(group, member_id):
            return ErrorCode.UNSUPPORTED_VERSION
        if isinstance(group, Group):
            return check_commit(group, member_id, instance_id, generation, transactional=transactional)
        return group.check_commit(member_id, instance_id, generation, partitions, transactional=transactional)

    async def until_replicated(self, group_id: str) -> None:
        """Wait until the replicas have the records written for the members of a group. Raises GroupRefusal."""
        error = await self.log.until_all_replicated(group_id)
        error = error or self.check(group_id)  # the group may have moved to another node
        if error is not ErrorCode.NONE:
            raise GroupRefusal(error)

    async def commit(self, group_id: str, offsets: Mapping[PartitionKey, CommittedOffset]) -> ErrorCode:
        """Write offsets, and store them when the replicas have them."""
        rows = [(offset_key(group_id, *key), encode_offset(committed)) for key, committed in offsets.items()]
        error, first = await self.log.write(group_id, rows)
        error = error or self.check(group_id)  # the group may have moved to another node
        if error is ErrorCode.NONE:
            placed = {key: committed.at(first + row) for row, (key, committed) in enumerate(offsets.items())}
            self._store(group_id, placed)
        return error

    def _store(self, group_id: str, offsets: Mapping[PartitionKey, CommittedOffset]) -> None:
        hosted = self.hosted.host(group_id)
        for key, committed in offsets.items():
            former = hosted.offsets.get(key)
            # The offset that was written later counts, even if it is stored earlier, as with a transaction.
            if former is None or former.log_offset < committed.log_offset:
                hosted.offsets[key] = committed
        if hosted.empty_since == NEVER:
            hosted.empty_since = self._now_ms()

    def check_fetch(self, group_id: str, member_id: str | None, epoch: int) -> ErrorCode:
        """Return NONE if a client may fetch the offsets of a group. Members of classic groups are never refused."""
        hosted = self.hosted.get(group_id)
        if hosted is None or isinstance(hosted.group, Group):
            return ErrorCode.NONE
        return hosted.group.check_fetch(member_id, epoch)

    def committed(self, group_id: str) -> Mapping[PartitionKey, CommittedOffset]:
        """Return the committed offsets of a group that have not expired."""
        hosted = self.hosted.get(group_id)
        if hosted is None:
            return {}
        self._expire_offsets(hosted)
        return hosted.offsets

    def _expire_offsets(self, hosted: HostedGroup) -> None:
        """Drop the offsets of a group that lost its last member ``offsets.retention.minutes`` ago (KIP-211)."""
        if not hosted.group.is_empty:
            return
        now = self._now_ms()
        retention = self._settings.number("offsets.retention.minutes") * 60_000
        expired = []
        pending = self.transactional.pending(hosted.group.group_id)
        for key, committed in hosted.offsets.items():
            expires_at = committed.expires_at
            if expires_at < 0:
                expires_at = max(committed.committed_at, hosted.empty_since) + retention
            # As in Kafka, an offset stays while a transaction may replace it.
            if now >= expires_at and key not in pending:
                expired.append(key)
        self._drop_offsets(hosted, expired)

    def _drop_offsets(self, hosted: HostedGroup, keys: Sequence[PartitionKey]) -> None:
        for key in keys:
            del hosted.offsets[key]
        if keys:
            group_id = hosted.group.group_id
            self.transactional.remove(group_id, keys)
            self.log.append(group_id, [(offset_key(group_id, *key), None) for key in keys])

    async def delete_offsets(self, group_id: str, keys: Iterable[PartitionKey]) -> ErrorCode:
        keys = list(keys)
        error, _ = await self.log.write(group_id, [(offset_key(group_id, *key), None) for key in keys])
        hosted = self.hosted.get(group_id)  # the group may have been deleted or have moved meanwhile
        if error is ErrorCode.NONE:
            self.transactional.remove(group_id, keys)
        if error is ErrorCode.NONE and hosted is not None:
            for key in keys:
                hosted.offsets.pop(key, None)
        return error

    def drop_topic(self, topic: str) -> None:
        """Delete the committed offsets of a deleted topic."""
        for hosted in self.hosted.values():
            self._drop_offsets(hosted, [key for key in hosted.offsets if key[0] == topic])

    def clean_up(self) -> None:
        """Delete groups that have had no members and no offsets for ``offsets.retention.check.interval.ms``."""
        alive = {group.group_id for group in self.groups()}
        for group_id in [group_id for group_id in self.hosted if group_id not in alive]:
            group = self.hosted[group_id].group
            # A member that got an id in advance is about to join.
            if isinstance(group, Group) and group.pending:
                continue
            del self.hosted[group_id]
            group.close(ErrorCode.UNKNOWN_MEMBER_ID)
            rows = tombstones(group)
            if rows:
                self.log.append(group_id, rows)

    # Administration.

    def groups(self) -> list[AnyGroup]:
        """Return the groups of this node. A group that lost its last member and offset stays for some minutes."""
        groups = []
        recently = self._now_ms() - self._settings.number("offsets.retention.check.interval.ms")
        for hosted in self.hosted.values():
            self._expire_offsets(hosted)
            if not hosted.group.is_empty or hosted.offsets or hosted.empty_since > recently:
                groups.append(hosted.group)
        return groups

    def group(self, group_id: str) -> AnyGroup | None:
        return next((group for group in self.groups() if group.group_id == group_id), None)

    def replicated_group(self, group_id: str) -> AnyGroup | None:
        """Return a group. If the coordinator assigns, it contains only the changes that are replicated."""
        group = self.group(group_id)
        if group is None or isinstance(group, Group):
            return group
        if self.log.is_replicated(group_id, self.hosted[group_id].written):
            return group
        records = self.log.read_replicated(group_id)
        return self.hosted.read_only(group_id, records) if records else None

    async def delete_group(self, group_id: str) -> ErrorCode:
        """Delete a group that has no members."""
        error = self.check(group_id)
        if error is not ErrorCode.NONE:
            return error
        group = self.group(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if not group.is_empty:
            return ErrorCode.NON_EMPTY_GROUP
        # Removed before the write, so that no request uses the group meanwhile.
        hosted = self.hosted.pop(group_id)
        group.close(ErrorCode.UNKNOWN_MEMBER_ID)
        ends: Rows = [(offset_key(group_id, *key), None) for key in hosted.offsets]
        self.transactional.remove(group_id, self.transactional.pending(group_id))
        return (await self.log.write(group_id, [*ends, *tombstones(group)]))[0]


def _is_commit_by_epoch(group: AnyGroup, member_id: str) -> bool:
    """Return whether a commit needs OffsetCommit v9, because its member has an epoch in place of a generation."""
    if isinstance(group, StreamsGroup):
        return member_id in group.members
    if isinstance(group, ConsumerGroup):
        member = group.members.get(member_id)
        return member is not None and member.classic is None
    return False
