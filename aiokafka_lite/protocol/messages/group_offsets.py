"""Commit and look up the offsets of a group.

OffsetCommit:

- v1: members, and the time of the commit.
- v2: a retention time instead of the time of the commit.
- v5: no retention time, because it is a setting of newer brokers.
- v6: the leader epoch (KIP-320).
- v7: static members.
- v8: flexible.
- v9: the consumer group protocol (KIP-848).
- v10: topics by id.

OffsetFetch:

- v2: null requests all topics; the response has a top-level error.
- v5: the leader epoch.
- v6: flexible.
- v7: can wait for pending transactions (KIP-447).
- v8: many groups in one request; the fields for a single group are removed.
- v9: the consumer group protocol.
- v10: topics by id.
"""

from __future__ import annotations

from ..schema import (
    ZERO_UUID,
    Request,
    Response,
    array,
    boolean,
    int16,
    int32,
    int64,
    message,
    since,
    string,
    struct,
    uuid,
)


@struct
class OffsetCommitResponsePartition:
    """Whether one offset was committed."""

    partition_index: int = int32()
    error_code: int = int16()


@struct
class OffsetCommitResponseTopic:
    """The partitions of one topic: named before v10, by id from then on."""

    name: str = string("0-9", default="", ignorable=True)
    topic_id: bytes = uuid("10+", default=ZERO_UUID, ignorable=True)
    partitions: list[OffsetCommitResponsePartition] = array(OffsetCommitResponsePartition)


@message(key=8, versions=(0, 10), flexible=8)
class OffsetCommitResponse(Response):
    """A result for each partition. There is no top-level error."""

    CLIENT_THROTTLES = since(4)

    throttle_time_ms: int = int32("3+", default=0, ignorable=True)
    topics: list[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic)


@struct
class OffsetCommitRequestPartition:
    """The offset of the next record to read, with its metadata."""

    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32("6+", default=-1, ignorable=True)
    commit_timestamp: int = int64("1", default=-1)
    committed_metadata: str | None = string(nullable="0+")


@struct
class OffsetCommitRequestTopic:
    """The partitions of one topic: named before v10, by id from then on."""

    name: str = string("0-9", default="", ignorable=True)
    topic_id: bytes = uuid("10+", default=ZERO_UUID, ignorable=True)
    partitions: list[OffsetCommitRequestPartition] = array(OffsetCommitRequestPartition)


@message(key=8, versions=(0, 10), flexible=8)
class OffsetCommitRequest(Request[OffsetCommitResponse]):
    """Commit offsets. Generation -1 and no member id commit for a group without members."""

    GROUP_ID_NOT_FOUND = since(9)
    TOPIC_IDS = since(10)

    group_id: str = string()
    generation_id_or_member_epoch: int = int32("1+", default=-1, ignorable=True)
    member_id: str = string("1+", default="", ignorable=True)
    group_instance_id: str | None = string("7+", nullable="7+", default=None)
    retention_time_ms: int = int64("2-4", default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic)


@struct
class OffsetFetchResponsePartition:
    """A committed offset (versions below 8). -1 means that there is none."""

    partition_index: int = int32("0-7", default=0)
    committed_offset: int = int64("0-7", default=0)
    committed_leader_epoch: int = int32("5-7", default=-1, ignorable=True)
    metadata: str | None = string("0-7", nullable="0-7", default="")
    error_code: int = int16("0-7", default=0)


@struct
class OffsetFetchResponseTopic:
    """The partitions of one topic (versions below 8)."""

    name: str = string("0-7", default="")
    partitions: list[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition, "0-7", default=[])


@struct
class OffsetFetchResponsePartitions:
    """A committed offset. -1 means that there is none."""

    partition_index: int = int32("8+", default=0)
    committed_offset: int = int64("8+", default=0)
    committed_leader_epoch: int = int32("8+", default=-1, ignorable=True)
    metadata: str | None = string("8+", nullable="8+", default="")
    error_code: int = int16("8+", default=0)


@struct
class OffsetFetchResponseTopics:
    """The partitions of one topic: named before v10, by id from then on."""

    name: str = string("8-9", default="", ignorable=True)
    topic_id: bytes = uuid("10+", default=ZERO_UUID, ignorable=True)
    partitions: list[OffsetFetchResponsePartitions] = array(OffsetFetchResponsePartitions, "8+", default=[])


@struct
class OffsetFetchResponseGroup:
    """The offsets of one group, or an error."""

    group_id: str = string("8+", default="")
    topics: list[OffsetFetchResponseTopics] = array(OffsetFetchResponseTopics, "8+", default=[])
    error_code: int = int16("8+", default=0)


@message(key=9, versions=(0, 10), flexible=6)
class OffsetFetchResponse(Response):
    """Committed offsets: ``topics`` and ``error_code`` before v8, ``groups`` since v8."""

    CLIENT_THROTTLES = since(4)

    throttle_time_ms: int = int32("3+", default=0, ignorable=True)
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic, "0-7", default=[])
    error_code: int = int16("2-7", default=0, ignorable=True)
    groups: list[OffsetFetchResponseGroup] = array(OffsetFetchResponseGroup, "8+", default=[])


@struct
class OffsetFetchRequestTopic:
    """The requested partitions of one topic (versions below 8)."""

    name: str = string("0-7", default="")
    partition_indexes: list[int] = array(int32, "0-7", default=[])


@struct
class OffsetFetchRequestTopics:
    """The requested partitions of one topic."""

    name: str = string("8-9", default="", ignorable=True)
    topic_id: bytes = uuid("10+", default=ZERO_UUID, ignorable=True)
    partition_indexes: list[int] = array(int32, "8+", default=[])


@struct
class OffsetFetchRequestGroup:
    """A group and its requested topics. Null means all topics."""

    group_id: str = string("8+", default="")
    member_id: str | None = string("9+", nullable="9+", default=None, ignorable=True)
    member_epoch: int = int32("9+", default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None = array(OffsetFetchRequestTopics, "8+", nullable="8+", default=[])


@message(key=9, versions=(0, 10), flexible=6)
class OffsetFetchRequest(Request[OffsetFetchResponse]):
    """Request committed offsets: ``group_id`` and ``topics`` before v8, ``groups`` since v8.

    Null topics mean all, which version 1 does not have.
    """

    NO_OFFSET_IS_NO_ERROR = since(1)
    TOP_LEVEL_ERROR = since(2)
    REQUIRE_STABLE = since(7)
    MANY_GROUPS = since(8)
    TOPIC_IDS = since(10)

    group_id: str = string("0-7", default="")
    topics: list[OffsetFetchRequestTopic] | None = array(OffsetFetchRequestTopic, "0-7", nullable="2-7", default=[])
    groups: list[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, "8+", default=[])
    require_stable: bool = boolean("7+", default=False)


@struct
class OffsetDeleteResponsePartition:
    """Whether one offset was removed."""

    partition_index: int = int32()
    error_code: int = int16()


@struct
class OffsetDeleteResponseTopic:
    """The partitions of one topic."""

    name: str = string()
    partitions: list[OffsetDeleteResponsePartition] = array(OffsetDeleteResponsePartition)


@message(key=47, versions=(0, 0))
class OffsetDeleteResponse(Response):
    """A result for each partition, or only a top-level error."""

    error_code: int = int16()
    throttle_time_ms: int = int32(default=0, ignorable=True)
    topics: list[OffsetDeleteResponseTopic] = array(OffsetDeleteResponseTopic)


@struct
class OffsetDeleteRequestPartition:
    """A partition whose offset to delete."""

    partition_index: int = int32()


@struct
class OffsetDeleteRequestTopic:
    """The partitions of one topic."""

    name: str = string()
    partitions: list[OffsetDeleteRequestPartition] = array(OffsetDeleteRequestPartition)


@message(key=47, versions=(0, 0))
class OffsetDeleteRequest(Request[OffsetDeleteResponse]):
    """Delete offsets of topics that the group is not subscribed to (KIP-496)."""

    INTRODUCED = since(0, kafka="2.4")

    group_id: str = string()
    topics: list[OffsetDeleteRequestTopic] = array(OffsetDeleteRequestTopic)
