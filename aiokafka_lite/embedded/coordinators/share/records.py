"""The records that store share groups, in Kafka's own format, so that Kafka's tools can read them.

``__consumer_offsets`` has the epoch of each share group, ``__share_group_state`` the state of each share partition. A
key begins with its type as an int16. The last value of a key counts; a null value deletes the key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from ....protocol.codec import Buffer, decode_versioned, encode_versioned
from ....protocol.schema import Message, array, int8, int16, int32, int64, message, string, struct, uuid
from .group import ShareState
from .partition import RecordState, StateBatch

B = TypeVar("B")

SHARE_STATE_TOPIC = "__share_group_state"
_GROUP_KEY = 11
_STATE_KEY = 0

DELIVERY_STATES = {0: RecordState.AVAILABLE, 2: RecordState.ACKNOWLEDGED, 4: RecordState.ARCHIVED}
DELIVERY_STATE_OF = {state: number for number, state in DELIVERY_STATES.items()}


@message(key=-1, versions=(_GROUP_KEY, _GROUP_KEY))
class ShareGroupMetadataKey(Message):
    """The key of a share group."""

    group_id: str = string()


@message(key=-1, versions=(0, 0), flexible=0)
class ShareGroupMetadataValue(Message):
    """A share group. ``metadata_hash`` is for Kafka; 0 means that it has to be computed again."""

    epoch: int = int32()
    metadata_hash: int = int64(default=0)


@message(key=-1, versions=(_STATE_KEY, _STATE_KEY))
class ShareSnapshotKey(Message):
    """The key of a share partition."""

    group_id: str = string()
    topic_id: bytes = uuid()
    partition: int = int32()


@struct
class ShareSnapshotBatch:
    """Records with the same state."""

    first_offset: int = int64()
    last_offset: int = int64()
    delivery_state: int = int8()
    delivery_count: int = int16()


@message(key=-1, versions=(0, 0), flexible=0)
class ShareSnapshotValue(Message):
    """The state of a share partition. Times are in milliseconds."""

    snapshot_epoch: int = int32(default=0)
    state_epoch: int = int32(default=0)
    leader_epoch: int = int32(default=0)
    start_offset: int = int64()
    delivery_complete_count: int = int32(default=-1, tag=0)
    create_timestamp: int = int64(default=-1)
    write_timestamp: int = int64()
    state_batches: list[ShareSnapshotBatch] = array(ShareSnapshotBatch)


def group_key(group_id: str) -> bytes:
    return encode_versioned(ShareGroupMetadataKey(group_id=group_id), _GROUP_KEY)


def encode_group(epoch: int) -> bytes:
    return encode_versioned(ShareGroupMetadataValue(epoch=epoch), 0)


def read_group(key: Buffer, value: Buffer | None) -> tuple[str, int | None] | None:
    """Return the id and the epoch of a share group; the epoch of a deleted group is None. None for other records."""
    if int.from_bytes(bytes(key[:2]), "big", signed=True) != _GROUP_KEY:
        return None
    group_id = decode_versioned(ShareGroupMetadataKey, key)[0].group_id
    return group_id, None if value is None else decode_versioned(ShareGroupMetadataValue, value)[0].epoch


def state_key(group_id: str, topic_id: bytes, partition: int) -> bytes:
    return encode_versioned(ShareSnapshotKey(group_id=group_id, topic_id=topic_id, partition=partition), _STATE_KEY)


def batches_as(kind: Callable[..., B], batches: Iterable[StateBatch]) -> list[B]:
    """Return batches as parts ``kind`` of a record, or of a message: all have these four fields."""
    return [
        kind(
            first_offset=batch.first,
            last_offset=batch.last,
            delivery_state=DELIVERY_STATE_OF[batch.state],
            delivery_count=batch.delivery_count,
        )
        for batch in batches
    ]


def read_batches(parts: Iterable[Any]) -> list[StateBatch]:
    """Return the batches of such parts, whose states must be right."""
    return [
        StateBatch(part.first_offset, part.last_offset, DELIVERY_STATES[part.delivery_state], part.delivery_count)
        for part in parts
    ]


def encode_state(state: ShareState, now_ms: int) -> bytes:
    value = ShareSnapshotValue(
        state_epoch=state.state_epoch,
        leader_epoch=max(state.leader_epoch, 0),
        start_offset=state.start_offset,
        delivery_complete_count=state.delivery_complete_count,
        write_timestamp=now_ms,
        state_batches=batches_as(ShareSnapshotBatch, state.batches),
    )
    return encode_versioned(value, 0)


def read_state(key: Buffer, value: Buffer | None) -> tuple[ShareSnapshotKey, ShareState | None]:
    """Return the key and the state of a share partition; the state of a deleted partition is None."""
    about = decode_versioned(ShareSnapshotKey, key)[0]
    if value is None:
        return about, None
    read = decode_versioned(ShareSnapshotValue, value)[0]
    return about, ShareState(
        read.start_offset,
        read_batches(read.state_batches),
        read.delivery_complete_count,
        read.leader_epoch,
        read.state_epoch,
    )
