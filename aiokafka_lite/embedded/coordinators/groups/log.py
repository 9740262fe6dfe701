"""A node's access to ``__consumer_offsets``: the partition of each group, and reading and writing groups."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ....errors import ErrorCode
from ....protocol.codec import Buffer, decode_versioned, encode_versioned
from ...log.log import MAX_DECOMPRESSED_SIZE
from ...log.producer_state import Verification, read_marker
from ...metadata.topics import PartitionKey
from ...replicas.manager import ALL_ACKS, PartitionResponse, ProduceStatus
from ..log import WRITE_ERRORS, CoordinatorLog, Rows
from .consumer_group_records import read_consumer_key
from .group import Group
from .records import (
    OFFSETS_TOPIC,
    GroupMetadataKey,
    GroupMetadataMember,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    read_key,
)

COMMIT_TIMEOUT = 5.0
"""Seconds that a commit or a heartbeat waits for the replicas (offsets.commit.timeout.ms)."""


class CommittedOffset(NamedTuple):
    """The offset that a group committed for a partition. Times are in milliseconds since the epoch; -1 is none.

    ``log_offset`` is its place in the log of the group's partition: of two offsets the later one counts.
    """

    offset: int
    leader_epoch: int
    metadata: str
    committed_at: int
    expires_at: int = -1
    log_offset: int = -1

    def at(self, log_offset: int) -> CommittedOffset:
        return self._replace(log_offset=log_offset)


OffsetKey = tuple[str, str, int]
"""Group, topic, partition."""


@dataclass(slots=True)
class GroupRecords:
    """The content of a partition of the log: offsets, groups, and by producer id the offsets of open transactions.

    Consumer groups are records by kind and member, which the group itself reads.
    """

    offsets: dict[OffsetKey, CommittedOffset] = field(default_factory=dict)
    groups: dict[str, GroupMetadataValue] = field(default_factory=dict)
    consumer_groups: dict[str, dict[tuple[int, str], Buffer]] = field(default_factory=dict)
    pending: dict[int, dict[OffsetKey, CommittedOffset]] = field(default_factory=dict)


_FOR_MEMBERS = {
    **WRITE_ERRORS,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}
"""The errors of a commit of offsets, as Kafka translates them for group members. Other errors do not change."""
_OF_MEMBERSHIP = {
    **WRITE_ERRORS,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""The errors of a write that a heartbeat makes, as Kafka translates them."""


class GroupLog(CoordinatorLog):
    """The partitions of ``__consumer_offsets`` on one node. Owner: the GroupCoordinator."""

    topic = OFFSETS_TOPIC

    def read(self, index: int, end: int | None = None) -> GroupRecords:
        """Return the content of a partition, up to an offset if one is given."""
        records = GroupRecords()
        for stored in self._batches(index):
            if end is not None and stored.last_offset >= end:
                break
            batch = stored.view()
            if batch.is_control:
                marker = read_marker(batch)
                # A producer has one open transaction at a time, so its id alone finds the offsets.
                ended = {} if marker is None else records.pending.pop(marker.producer_id, {})
                if marker is not None and marker.committed:
                    # The marker is behind both offsets, so the places of the offsets themselves decide which is later.
                    for name, committed in ended.items():
                        former = records.offsets.get(name)
                        if former is None or former.log_offset < committed.log_offset:
                            records.offsets[name] = committed
                continue
            columns = batch.columns(MAX_DECOMPRESSED_SIZE)
            offsets = records.pending.setdefault(batch.producer_id, {}) if batch.is_transactional else records.offsets
            for key, value, log_offset in zip(columns.keys, columns.values, columns.offsets):
                if key is not None:
                    _replay(key, value, log_offset, offsets, records)
        return records

    def read_replicated(self, group_id: str) -> dict[tuple[int, str], Buffer]:
        """Return the records of a consumer group up to the high watermark: all in-sync replicas have them."""
        key = self._key(group_id)
        end = self._replica_manager.partitions[key].log.high_watermark
        return self.read(key[1], end).consumer_groups.get(group_id, {})

    async def write(self, group_id: str, rows: Rows) -> tuple[ErrorCode, int]:
        """Write, and wait for the replicas. Returns an error for group members, and the offset of the first row."""
        if not rows:
            return ErrorCode.NONE, -1
        response = await self._append(group_id, rows, COMMIT_TIMEOUT)
        return self.for_members(response.error), response.base_offset

    def append_membership(self, group_id: str, rows: Rows) -> ErrorCode:
        """Write the changes of a heartbeat, if enough replicas are in sync. ``until_replicated`` waits for them."""
        error = self.append_transactional(group_id, rows, (-1, -1), None).response.error
        return _OF_MEMBERSHIP.get(error, error)

    def store(self, group_id: str, rows: Rows, stored: Callable[[ErrorCode], None]) -> None:
        """Write the state of a group, then call ``stored``, at once or within ``COMMIT_TIMEOUT``: with NONE when the
        replicas have the records, or with an error for the members."""
        status = self.append_transactional(group_id, rows, (-1, -1), None)
        key, error = self._key(group_id), status.response.error
        if error is not ErrorCode.NONE:
            stored(_OF_MEMBERSHIP.get(error, error))
            return
        waiting = self._replica_manager.when_replicated(COMMIT_TIMEOUT, {key: status})

        def done(responses: asyncio.Future[dict[PartitionKey, PartitionResponse]]) -> None:
            error = responses.result()[key].error
            stored(_OF_MEMBERSHIP.get(error, error))

        # A callback runs only in the next turn of the loop. Without followers, the group goes on in this turn.
        if waiting.done():
            done(waiting)
        else:
            waiting.add_done_callback(done)

    async def until_all_replicated(self, group_id: str) -> ErrorCode:
        """Wait until the replicas have all records that a group's partition has now. Returns the error for a heartbeat.

        A heartbeat that wrote nothing waits too: its answer may follow from records that the replicas do not have yet.
        """
        partition = self._replica_manager.partitions.get(self._key(group_id))
        if partition is None or partition.log.high_watermark >= partition.log.end_offset:
            return ErrorCode.NONE
        error = await self.until_replicated(group_id, ProduceStatus(partition.log.end_offset, PartitionResponse()))
        return _OF_MEMBERSHIP.get(error, error)

    def append_transactional(
        self, group_id: str, rows: Rows, producer: tuple[int, int], verification: Verification | None
    ) -> ProduceStatus:
        """Write rows as a part of a producer's transaction. Does not wait for the replicas."""
        key = self._key(group_id)
        batch = self._batch(rows, producer, verification)
        return self._replica_manager.append_to_local_log(
            ALL_ACKS, {key: batch}, self._now_ms(), internal_topics_allowed=True
        )[key]

    async def until_replicated(self, group_id: str, status: ProduceStatus) -> ErrorCode:
        """Wait until the replicas have the written records."""
        key = self._key(group_id)
        return (await self._replica_manager.until_replicated(COMMIT_TIMEOUT, {key: status}))[key].error

    def for_members(self, error: ErrorCode) -> ErrorCode:
        """Return the error of a write, as group members expect it."""
        return _FOR_MEMBERS.get(error, error)


def _replay(
    key: Buffer,
    value: Buffer | None,
    log_offset: int,
    offsets: dict[OffsetKey, CommittedOffset],
    records: GroupRecords,
) -> None:
    """Apply one record to ``records``. A committed offset goes to ``offsets``: those that count, or a transaction's."""
    consumer = read_consumer_key(key)
    if consumer is not None:
        kind, group_id, member_id = consumer
        of_group = records.consumer_groups.setdefault(group_id, {})
        if value is None:
            of_group.pop((kind, member_id), None)
        else:
            of_group[kind, member_id] = value
        return
    about = read_key(key)
    if isinstance(about, GroupMetadataKey):
        if value is None:
            records.groups.pop(about.group, None)
        else:
            records.groups[about.group] = decode_versioned(GroupMetadataValue, value)[0]
    elif isinstance(about, OffsetCommitKey):
        name = (about.group, about.topic, about.partition)
        if value is None:
            # A deleted offset must not come back when an open transaction commits.
            for stored in (records.offsets, *records.pending.values()):
                stored.pop(name, None)
        else:
            read = decode_versioned(OffsetCommitValue, value)[0]
            offsets[name] = CommittedOffset(
                read.offset, read.leader_epoch, read.metadata, read.commit_timestamp, read.expire_timestamp, log_offset
            )


def encode_offset(committed: CommittedOffset) -> bytes:
    """Return the record value that stores a committed offset."""
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.committed_at,
        expire_timestamp=committed.expires_at,
    )
    # Only version 1 of the value has an expiry.
    return encode_versioned(value, 3 if committed.expires_at < 0 else 1)


def encode_group(group: Group, generation: int, assignments: Mapping[str, bytes], now_ms: int) -> bytes:
    """Return the record value that stores a group's generation, with the assignments of its members."""
    members = [
        GroupMetadataMember(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout=round(member.rebalance_timeout * 1000),
            session_timeout=round(member.session_timeout * 1000),
            subscription=member.subscription(group.protocol),
            assignment=assignments.get(member.member_id, b""),
        )
        for member in group.members.values()
    ]
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=generation,
        protocol=group.protocol,
        leader=group.members.leader,
        current_state_timestamp=now_ms,
        members=members,
    )
    return encode_versioned(value, 3)
