"""The records of ``__consumer_offsets``, in Kafka's own format, so that its tools can read them.

A key belongs to an offset (versions 0 and 1) or to a group (version 2); it starts with its version as an int16. The
last value of a key counts; a null value deletes the key.
"""

from __future__ import annotations

from functools import lru_cache

from ....protocol.codec import Buffer, decode_versioned, encode_versioned
from ....protocol.schema import Message, array, blob, int32, int64, message, string, struct

OFFSETS_TOPIC = "__consumer_offsets"


@message(key=-1, versions=(0, 1))
class OffsetCommitKey(Message):
    """The key of a committed offset."""

    group: str = string()
    topic: str = string()
    partition: int = int32()


@message(key=-1, versions=(0, 3))
class OffsetCommitValue(Message):
    """A committed offset. Timestamps are in milliseconds; only version 1 has the time of expiration."""

    offset: int = int64()
    leader_epoch: int = int32("3+", default=-1, ignorable=True)
    metadata: str = string()
    commit_timestamp: int = int64()
    expire_timestamp: int = int64("1", default=-1, ignorable=True)


@message(key=-1, versions=(2, 2))
class GroupMetadataKey(Message):
    """The key of a group."""

    group: str = string()


@struct
class GroupMetadataMember:
    """A member and its assignment, in the format of the group's protocol; timeouts in milliseconds."""

    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None, ignorable=True)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout: int = int32("1+", default=-1, ignorable=True)
    session_timeout: int = int32()
    subscription: bytes = blob()
    assignment: bytes = blob()


@message(key=-1, versions=(0, 3))
class GroupMetadataValue(Message):
    """A generation of a group."""

    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = string(nullable="0+")
    leader: str | None = string(nullable="0+")
    current_state_timestamp: int = int64("2+", default=-1, ignorable=True)
    members: list[GroupMetadataMember] = array(GroupMetadataMember)


def offset_key(group: str, topic: str, partition: int) -> bytes:
    return encode_versioned(OffsetCommitKey(group=group, topic=topic, partition=partition), 1)


def group_key(group: str) -> bytes:
    return encode_versioned(GroupMetadataKey(group=group), 2)


def read_key(key: Buffer) -> OffsetCommitKey | GroupMetadataKey | None:
    """Return the key of a record; None for an unknown version."""
    version = int.from_bytes(bytes(key[:2]), "big", signed=True)
    if 0 <= version <= 1:
        return decode_versioned(OffsetCommitKey, key)[0]
    if version == 2:
        return decode_versioned(GroupMetadataKey, key)[0]
    return None


@lru_cache(maxsize=1024)
def partition_of(group_id: str, partitions: int) -> int:
    """Return the partition of a group: Java's hash of the string, modulo the number of partitions."""
    value = 0
    units = group_id.encode("utf-16-be")
    for high, low in zip(units[::2], units[1::2]):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    # As Java's abs(), except for the one hash without a positive counterpart, which Kafka maps to 0.
    value = value - 2**32 if value >= 2**31 else value
    return (0 if value == -(2**31) else abs(value)) % partitions
