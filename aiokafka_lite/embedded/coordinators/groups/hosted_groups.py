"""The groups in the memory of a coordinator, with their offsets: creation, storage, and changes of their type.

A group id belongs to one group, which has one type. An empty classic group takes the type of its first member; an empty
consumer or streams group can become only a classic group. A group with members changes its type as ``migration`` says,
if ``group.consumer.migration.policy`` allows it.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from random import Random

from ....aio.forks import call_later
from ....errors import ErrorCode
from ....protocol.codec import Buffer
from ...metadata.topics import PartitionKey
from ...metadata.view import MetadataView
from ...settings.configs import BrokerSettings
from ...settings.resource_configs import group_number
from ..log import Rows
from ..streams.group import StreamsGroup
from .assignors import ASSIGNORS
from .classic_members import ClassicMembers
from .consumer_group import ConsumerGroup
from .consumer_group_records import STREAMS_KINDS
from .group import Group
from .heartbeat_group import JOIN, LEAVE, GroupEnvironment, GroupRefusal
from .log import CommittedOffset, GroupLog, GroupRecords, encode_group
from .members import Member
from .migration import downgrade, is_classic, upgrade
from .records import GroupMetadataValue, group_key

logger = logging.getLogger(__name__)

AnyGroup = Group | ConsumerGroup | StreamsGroup


@dataclass(slots=True)
class HostedGroup:
    """A group, its offsets, and when it became empty: milliseconds, -1 while it has members.

    ``written`` is the end of the log after the last records of a consumer group or a streams group.
    """

    group: AnyGroup
    offsets: dict[PartitionKey, CommittedOffset]
    empty_since: int
    written: int = 0


class HostedGroups(dict[str, HostedGroup]):
    """The groups by id. Owner: the GroupCoordinator."""

    def __init__(
        self, log: GroupLog, metadata: MetadataView, settings: BrokerSettings, now_ms: Callable[[], int], random: Random
    ) -> None:
        super().__init__()
        self._log = log
        self._metadata = metadata
        self._settings = settings
        self._now_ms = now_ms
        self._random = random

    def new_classic_id(self) -> str:
        """Return the random part of the id of a member of a classic group."""
        return str(uuid.UUID(bytes=self._random.randbytes(16), version=4))

    def new_id(self) -> str:
        """Return a random id of a member of a consumer group, in the form of Kafka's ids."""
        return base64.urlsafe_b64encode(self._random.randbytes(16)).decode().rstrip("=")

    def load(self, contents: GroupRecords) -> None:
        """Restore the groups and offsets of a partition of the log."""
        for (group_id, topic, number), committed in contents.offsets.items():
            hosted = self.host(group_id)
            hosted.offsets[topic, number] = committed
            hosted.empty_since = -1
        for group_id, metadata in contents.groups.items():
            hosted = self.host(group_id)
            assert isinstance(hosted.group, Group)
            _restore(hosted.group, metadata)
            # The group has been empty since this was written, not since this node loaded it.
            hosted.empty_since = -1 if metadata.members else metadata.current_state_timestamp
        for group_id, records in contents.consumer_groups.items():
            if records:
                hosted = self.host(group_id)
                group = self._group_of(group_id, records)
                hosted.group, hosted.empty_since = group, -1
                group.restore(records)
                hosted.written = self._log.end_offset(group_id)

    def host(self, group_id: str) -> HostedGroup:
        """Return the group of this id, or make an empty classic group, as the first commit of offsets does."""
        hosted = self.get(group_id)
        if hosted is None:
            hosted = self[group_id] = HostedGroup(self._classic_group(group_id), {}, self._now_ms())
        return hosted

    def classic(self, group_id: str) -> Group | ClassicMembers | None:
        """Return the group that a classic member joins; None if its members have another type and may not migrate."""
        hosted = self.host(group_id)
        if isinstance(hosted.group, Group):
            return hosted.group
        if hosted.group.is_empty:
            new = self._classic_group(group_id)
            self._replace(hosted, new)
            return new
        if isinstance(hosted.group, StreamsGroup) or self._policy() == "disabled":
            return None
        return self.classic_members(hosted.group)

    def classic_members(self, group: ConsumerGroup) -> ClassicMembers:
        return ClassicMembers(group, self._metadata, self.new_id)

    def consumer(self, group_id: str, epoch: int) -> ConsumerGroup:
        """Return the group for a heartbeat of a consumer protocol member; a new one, not hosted yet, if it joins.

        Raises GroupRefusal.
        """
        hosted = self.get(group_id)
        old = None if hosted is None else hosted.group
        if isinstance(old, ConsumerGroup):
            return old
        if epoch != JOIN or isinstance(old, StreamsGroup):
            text = f"Group {group_id} is not a consumer group."
            if old is None:
                text = f"{'Consumer group' if epoch > JOIN else 'Group'} {group_id} not found."
            raise GroupRefusal(ErrorCode.GROUP_ID_NOT_FOUND, text)
        # ``put`` hosts the group when the heartbeat is accepted. A refused one leaves neither a group nor a migration.
        new = self._consumer_group(group_id)
        if old is not None and not old.is_empty:
            allowed = self._policy() in ("upgrade", "bidirectional")
            size = self._settings.number("group.consumer.max.size")
            upgrade(old, new, self._metadata, allowed=allowed, max_size=size)
        return new

    def streams(self, group_id: str, epoch: int) -> StreamsGroup:
        """Return the group for a heartbeat of a streams group; a new one, not hosted yet, if the member joins.

        Raises GroupRefusal.
        """
        hosted = self.get(group_id)
        old = None if hosted is None else hosted.group
        if isinstance(old, StreamsGroup):
            return old
        if epoch == JOIN and (old is None or (isinstance(old, Group) and old.is_empty)):
            return self._streams_group(group_id)
        text = f"Group {group_id} is not a streams group."
        if old is None:
            text = f"{'Group' if epoch == LEAVE else 'Streams group'} {group_id} not found."
        raise GroupRefusal(ErrorCode.GROUP_ID_NOT_FOUND, text)

    def put(self, group: ConsumerGroup | StreamsGroup) -> None:
        """Host a group that has got its first member."""
        assert group.members, "a group is hosted when it has a member"
        hosted = self.host(group.group_id)
        if hosted.group is not group:
            self._replace(hosted, group)
            group.start_sessions()
            hosted.empty_since = -1
            hosted.written = self._log.end_offset(group.group_id)

    def read_only(self, group_id: str, records: Mapping[tuple[int, str], Buffer]) -> ConsumerGroup | StreamsGroup:
        """Make a group from its records. It has no timers, and is not hosted."""
        group = self._group_of(group_id, records)
        group.restore(records)
        group.close(ErrorCode.NONE)  # ``restore`` has started the sessions of its members
        return group

    def downgrade(self, group: ConsumerGroup) -> bool:
        """Replace a consumer group by a classic group, if all members are classic. The members then rebalance once."""
        hosted = self.get(group.group_id)
        if hosted is None or hosted.group is not group or not is_classic(group):
            return False
        too_large = len(group.members) > self._settings.number("group.max.size")
        if too_large or self._policy() not in ("downgrade", "bidirectional"):
            return False
        classic = self._classic_group(group.group_id)
        downgrade(group, classic, self._metadata)
        self._replace(hosted, classic)
        # The next generation is stored. If this node stops before the members have joined, its successor refuses their
        # generation, so they join there. Otherwise no member would get the partitions of the member that has left.
        assignments = {name: member.assignment for name, member in classic.members.items()}
        self._persist(classic, assignments, lambda error: None, classic.generation + 1)
        classic.rebalance()
        return True

    def _policy(self) -> str:
        return self._settings.value("group.consumer.migration.policy").lower()

    def _replace(self, hosted: HostedGroup, group: AnyGroup) -> None:
        # Without tombstones the next coordinator would read two groups of this id.
        old, hosted.group = hosted.group, group
        old.close(ErrorCode.REBALANCE_IN_PROGRESS)  # the waiting members join the other group
        rows = tombstones(old)
        if rows:
            self._log.append(group.group_id, rows)

    def _classic_group(self, group_id: str) -> Group:
        return Group(
            group_id,
            call_later=call_later(asyncio.get_running_loop()),
            new_id=self.new_classic_id,
            initial_delay=self._settings.seconds("group.initial.rebalance.delay.ms"),
            max_size=self._settings.number("group.max.size"),
            persist=self._persist,
        )

    def _consumer_group(self, group_id: str) -> ConsumerGroup:
        return ConsumerGroup(
            group_id,
            self._environment(group_id, "consumer"),
            assignors=[assignor for assignor in self.assignors() if assignor in ASSIGNORS],
            persist=partial(self._persist_consumer, group_id),
            downgrade=self.downgrade,
        )

    def _streams_group(self, group_id: str) -> StreamsGroup:
        persist = partial(self._persist_consumer, group_id)
        return StreamsGroup(group_id, self._environment(group_id, "streams"), persist=persist)

    def _environment(self, group_id: str, kind: str) -> GroupEnvironment:
        loop = asyncio.get_running_loop()
        return GroupEnvironment(
            metadata=self._metadata,
            setting=partial(group_number, self._settings, group_id),
            max_size=self._settings.number(f"group.{kind}.max.size"),
            call_later=call_later(loop),
            now=loop.time,
            now_ms=self._now_ms,
        )

    def _group_of(self, group_id: str, records: Mapping[tuple[int, str], Buffer]) -> ConsumerGroup | StreamsGroup:
        """Return a new group of the type that its records have."""
        is_streams = any(kind in STREAMS_KINDS for kind, _ in records)
        return self._streams_group(group_id) if is_streams else self._consumer_group(group_id)

    def assignors(self) -> list[str]:
        """Return the names of the assignors that members may choose, the default first."""
        return [name.strip() for name in self._settings.value("group.consumer.assignors").split(",")]

    def _persist(
        self,
        group: Group,
        assignments: Mapping[str, bytes],
        stored: Callable[[ErrorCode], None],
        generation: int | None = None,
    ) -> None:
        """Write a classic group, by default in its present generation. ``stored`` gets the result."""
        now = self._now_ms()
        generation = group.generation if generation is None else generation
        hosted = self.get(group.group_id)
        if hosted is not None and not group.members:
            hosted.empty_since = now
        rows = [(group_key(group.group_id), encode_group(group, generation, assignments, now))]
        if group.is_empty:  # its members have left, whether the log takes this or not
            self._log.append(group.group_id, rows)
            return

        def done(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                logger.warning("failed to write the state of group %s: %s", group.group_id, error.name)
            stored(error)

        self._log.store(group.group_id, rows, done)

    def _persist_consumer(self, group_id: str, rows: Rows) -> None:
        error = self._log.append_membership(group_id, rows)
        if error is not ErrorCode.NONE:
            raise GroupRefusal(error)
        hosted = self.get(group_id)
        if hosted is not None and not isinstance(hosted.group, Group):
            hosted.empty_since = self._now_ms() if hosted.group.is_empty else -1
            hosted.written = self._log.end_offset(group_id)


def tombstones(group: AnyGroup) -> list[tuple[bytes, bytes | None]]:
    """Return the rows that delete a group from the log."""
    if not isinstance(group, Group):
        return group.stored.tombstones()
    return [(group_key(group.group_id), None)] if group.generation > 0 else []


def _restore(group: Group, metadata: GroupMetadataValue) -> None:
    members = [
        Member(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            member.session_timeout / 1000,
            member.rebalance_timeout / 1000,
            metadata.protocol_type,
            ((metadata.protocol or "", member.subscription),),
            assignment=member.assignment,
        )
        for member in metadata.members
    ]
    group.restore(metadata.generation, metadata.leader, metadata.protocol, members)
