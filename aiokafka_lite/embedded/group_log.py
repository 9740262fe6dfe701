"""A node's access to ``__consumer_offsets``: which partition a group has, and reading and writing the groups in it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..errors import ErrorCode
from ..protocol.codec import Buffer, decode_versioned, encode_versioned
from ..protocol.records import encode_batch, single_batch
from ..types import Header
from .group import Group
from .group_records import (
    OFFSETS_TOPIC,
    GroupMetadataKey,
    GroupMetadataMember,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    partition_of,
    read_key,
)
from .log import MAX_DECOMPRESSED_SIZE
from .metadata_view import MetadataView
from .replica_manager import ALL_ACKS, ProducedBatch, ReplicaManager
from .topics import PartitionKey

logger = logging.getLogger(__name__)

COMMIT_TIMEOUT = 5.0
"""Seconds that a commit waits for the replicas (offsets.commit.timeout.ms)."""

Rows = Sequence[tuple[bytes, bytes | None]]
"""Keys and values to write; a null value deletes its key."""


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """The offset that a group committed for a partition. Times are in milliseconds since the epoch; -1 is none."""

    offset: int
    leader_epoch: int
    metadata: str
    committed_at: int
    expires_at: int = -1


OffsetKey = tuple[str, str, int]
"""Group, topic, partition."""

_FOR_MEMBERS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}
"""The errors of a write, as Kafka translates them for group members. Other errors stay as they are."""


class GroupLog:
    """The partitions of ``__consumer_offsets`` on one node. Owner: the GroupCoordinator."""

    def __init__(self, metadata: MetadataView, replica_manager: ReplicaManager, now_ms: Callable[[], int]) -> None:
        self._metadata = metadata
        self._replica_manager = replica_manager
        self._now_ms = now_ms

    def leader_epochs(self, node_id: int) -> dict[int, int]:
        """The partitions that a node leads, with their leader epochs."""
        topic = self._metadata.topics.get(OFFSETS_TOPIC)
        states = () if topic is None else topic.partitions
        return {index: state.leader_epoch for index, state in enumerate(states) if state.leader == node_id}

    def partition_for(self, group_id: str) -> int | None:
        """The group's partition; None if the topic does not exist yet."""
        topic = self._metadata.topics.get(OFFSETS_TOPIC)
        return None if topic is None else partition_of(group_id, len(topic.partitions))

    def read(self, index: int) -> tuple[dict[OffsetKey, CommittedOffset], dict[str, GroupMetadataValue]]:
        """The offsets and the groups of a partition."""
        offsets: dict[OffsetKey, CommittedOffset] = {}
        groups: dict[str, GroupMetadataValue] = {}
        partition = self._replica_manager.partitions.get((OFFSETS_TOPIC, index))
        for stored in () if partition is None else partition.log.batches():
            columns = stored.view().columns(MAX_DECOMPRESSED_SIZE)
            for key, value in zip(columns.keys, columns.values):
                if key is not None:
                    _replay(key, value, offsets, groups)
        return offsets, groups

    def append(self, group_id: str, rows: Rows) -> None:
        """Write, without waiting for the replicas."""
        key, batch = self._batch(group_id, rows)
        statuses = self._replica_manager.append_to_local_log(
            1, {key: batch}, self._now_ms(), internal_topics_allowed=True
        )
        error = statuses[key].response.error
        if error is not ErrorCode.NONE:
            logger.warning("failed to write group %s to %s-%d: %s", group_id, *key, error.name)

    async def write(self, group_id: str, rows: Rows) -> ErrorCode:
        """Write, and wait for the replicas. The error is one that group members expect."""
        if not rows:
            return ErrorCode.NONE
        key, batch = self._batch(group_id, rows)
        responses = await self._replica_manager.append_records(
            COMMIT_TIMEOUT, ALL_ACKS, {key: batch}, self._now_ms(), internal_topics_allowed=True
        )
        return _FOR_MEMBERS.get(responses[key].error, responses[key].error)

    def _batch(self, group_id: str, rows: Rows) -> tuple[PartitionKey, ProducedBatch]:
        now = self._now_ms()
        no_headers: tuple[Header, ...] = ()
        data = encode_batch([(now, key, value, no_headers) for key, value in rows])
        return (OFFSETS_TOPIC, self.partition_for(group_id) or 0), ProducedBatch(data, single_batch(data))


def _replay(
    key: Buffer,
    value: Buffer | None,
    offsets: dict[OffsetKey, CommittedOffset],
    groups: dict[str, GroupMetadataValue],
) -> None:
    about = read_key(key)
    if isinstance(about, GroupMetadataKey):
        if value is None:
            groups.pop(about.group, None)
        else:
            groups[about.group] = decode_versioned(GroupMetadataValue, value)[0]
    elif isinstance(about, OffsetCommitKey):
        name = (about.group, about.topic, about.partition)
        if value is None:
            offsets.pop(name, None)
        else:
            read = decode_versioned(OffsetCommitValue, value)[0]
            offsets[name] = CommittedOffset(
                read.offset, read.leader_epoch, read.metadata, read.commit_timestamp, read.expire_timestamp
            )


def encode_offset(committed: CommittedOffset) -> bytes:
    """The record value that stores a committed offset."""
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.committed_at,
        expire_timestamp=committed.expires_at,
    )
    return encode_versioned(value, 3 if committed.expires_at < 0 else 1)


def encode_group(group: Group, now_ms: int) -> bytes:
    """The record value that stores a group's generation."""
    members = [
        GroupMetadataMember(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout=round(member.rebalance_timeout * 1000),
            session_timeout=round(member.session_timeout * 1000),
            subscription=member.subscription(group.protocol),
            assignment=member.assignment,
        )
        for member in group.members.values()
    ]
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=group.protocol,
        leader=group.members.leader,
        current_state_timestamp=now_ms,
        members=members,
    )
    return encode_versioned(value, 3)
