"""The records of consumer groups in ``__consumer_offsets`` (KIP-848), in Kafka's own format.

A group has two records: its epoch, and the epoch of its assignment. Each member has three: its subscription, its
target, and its present partitions. The version of a key is the number of its kind. The last value of a key counts; a
null value deletes the key. Streams groups have keys of the same form, with values of ``streams.records``.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping

from ....arguments import by_topic
from ....protocol.codec import Buffer, decode_versioned, encode_versioned
from ....protocol.schema import Message, array, blob, int8, int32, int64, message, nested, string, struct, uuid
from ..log import Rows
from .assignors import TopicIdPartition
from .consumer_group_members import ClassicSupport, ConsumerMember, MemberState

GROUP, MEMBER, TARGET_EPOCH, TARGET, CURRENT = 3, 5, 6, 7, 8
"""The kinds of records: the versions of their keys."""
STREAMS_GROUP, STREAMS_MEMBER, STREAMS_TARGET_EPOCH = 17, 19, 20
STREAMS_TARGET, STREAMS_CURRENT, STREAMS_TOPOLOGY = 21, 22, 23
STREAMS_KINDS = (
    *(STREAMS_GROUP, STREAMS_MEMBER, STREAMS_TARGET_EPOCH),
    *(STREAMS_TARGET, STREAMS_CURRENT, STREAMS_TOPOLOGY),
)
"""The kinds of records of streams groups."""
KINDS = (GROUP, MEMBER, TARGET_EPOCH, TARGET, CURRENT, *STREAMS_KINDS)
_OF_GROUPS = (GROUP, TARGET_EPOCH, STREAMS_GROUP, STREAMS_TARGET_EPOCH, STREAMS_TOPOLOGY)


@message(key=-1, versions=(3, 23))
class ConsumerGroupKey(Message):
    """The key of a record of a group: versions 3 and 6, and 17, 20 and 23 of a streams group."""

    group: str = string()


@message(key=-1, versions=(5, 22))
class ConsumerGroupMemberKey(Message):
    """The key of a record of a member: versions 5, 7 and 8, and 19, 21 and 22 of a streams group."""

    group: str = string()
    member_id: str = string()


@message(key=-1, versions=(0, 0), flexible=0)
class ConsumerGroupMetadataValue(Message):
    """The epoch of a group. The hash changes with the topics of its members, and their partitions."""

    epoch: int = int32()
    metadata_hash: int = int64(default=0, tag=0)


@struct
class StoredClassicProtocol:
    """A protocol of a classic member, and its subscription under that protocol."""

    name: str = string()
    metadata: bytes = blob()


@struct
class StoredClassicMember:
    """The stored data of a classic member. The timeout is in milliseconds."""

    session_timeout_ms: int = int32()
    supported_protocols: list[StoredClassicProtocol] = array(StoredClassicProtocol)


@message(key=-1, versions=(0, 0), flexible=0)
class ConsumerGroupMemberMetadataValue(Message):
    """A member and its subscription. The timeout is in milliseconds."""

    instance_id: str | None = string(nullable="0+")
    rack_id: str | None = string(nullable="0+")
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)
    subscribed_topic_regex: str | None = string(nullable="0+")
    rebalance_timeout_ms: int = int32(default=-1)
    server_assignor: str | None = string(nullable="0+")
    classic_member_metadata: StoredClassicMember | None = nested(
        StoredClassicMember, nullable="0+", default=None, tag=0
    )


@message(key=-1, versions=(0, 0), flexible=0)
class TargetAssignmentMetadataValue(Message):
    """The epoch of a group's assignment, and when it was computed, in milliseconds. Streams groups have it too."""

    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(default=0, tag=0)


@struct
class TargetTopicPartitions:
    """Partitions of one topic."""

    topic_id: bytes = uuid()
    partitions: list[int] = array(int32)


@message(key=-1, versions=(0, 0), flexible=0)
class ConsumerGroupTargetAssignmentMemberValue(Message):
    """The target of a member."""

    topic_partitions: list[TargetTopicPartitions] = array(TargetTopicPartitions)


@struct
class CurrentTopicPartitions:
    """Partitions of one topic, and for each the member epoch at which it was assigned."""

    topic_id: bytes = uuid()
    partitions: list[int] = array(int32)
    assignment_epochs: list[int] | None = array(int32, nullable="0+", default=None, tag=0)


@message(key=-1, versions=(0, 0), flexible=0)
class ConsumerGroupCurrentMemberAssignmentValue(Message):
    """The epochs, the state and the partitions of a member."""

    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[CurrentTopicPartitions] = array(CurrentTopicPartitions)
    partitions_pending_revocation: list[CurrentTopicPartitions] = array(CurrentTopicPartitions)


def read_consumer_key(key: Buffer) -> tuple[int, str, str] | None:
    """Return the kind, the group and the member of a key; None for other records."""
    kind = int.from_bytes(bytes(key[:2]), "big", signed=True)
    if kind in _OF_GROUPS:
        return kind, decode_versioned(ConsumerGroupKey, key)[0].group, ""
    if kind in KINDS:
        read = decode_versioned(ConsumerGroupMemberKey, key)[0]
        return kind, read.group, read.member_id
    return None


def consumer_key(kind: int, group: str, member_id: str = "") -> bytes:
    """Return the key of a record; ``member_id`` is for the kinds of members."""
    if kind in _OF_GROUPS:
        return encode_versioned(ConsumerGroupKey(group=group), kind)
    return encode_versioned(ConsumerGroupMemberKey(group=group, member_id=member_id), kind)


class StoredRecords:
    """The records of a group that the log has, by kind and member. Owner: the ConsumerGroup.

    ``persist`` takes the rows that change the log. If it raises, the log has none of them.
    """

    def __init__(self, group_id: str, persist: Callable[[Rows], None]) -> None:
        self._group_id = group_id
        self._persist = persist
        self.values: dict[tuple[int, str], bytes] = {}

    def restore(self, records: Mapping[tuple[int, str], Buffer]) -> None:
        """Begin with the records that the log has."""
        self.values = {record: bytes(value) for record, value in records.items()}

    def save(self, records: Mapping[tuple[int, str], bytes], members: Container[str]) -> None:
        """Write the records that differ from the stored records, and delete the records of members that left."""
        ended = [(kind, member_id) for kind, member_id in self.values if member_id and member_id not in members]
        written = {record: value for record, value in records.items() if self.values.get(record) != value}
        rows: Rows = [*self._tombstones(ended), *((self._key(record), value) for record, value in written.items())]
        if rows:
            self._persist(rows)
        for record in ended:
            del self.values[record]
        self.values.update(written)

    def tombstones(self) -> list[tuple[bytes, bytes | None]]:
        return self._tombstones(self.values)

    def _tombstones(self, records: Iterable[tuple[int, str]]) -> list[tuple[bytes, bytes | None]]:
        return [(self._key(record), None) for record in records]

    def _key(self, record: tuple[int, str]) -> bytes:
        kind, member_id = record
        return consumer_key(kind, self._group_id, member_id)


def encode_subscription(member: ConsumerMember) -> bytes:
    classic = member.classic
    value = ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topics),
        subscribed_topic_regex=member.regex,
        rebalance_timeout_ms=round(member.rebalance_timeout * 1000),
        server_assignor=member.assignor,
        classic_member_metadata=None
        if classic is None
        else StoredClassicMember(
            session_timeout_ms=round(classic.session_timeout * 1000),
            supported_protocols=[StoredClassicProtocol(name=name, metadata=data) for name, data in classic.protocols],
        ),
    )
    return encode_versioned(value, 0)


def encode_target_epoch(epoch: int, assigned_at: int) -> bytes:
    value = TargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=assigned_at)
    return encode_versioned(value, 0)


def encode_target(partitions: Iterable[TopicIdPartition]) -> bytes:
    topics = [
        TargetTopicPartitions(topic_id=topic_id, partitions=numbers)
        for topic_id, numbers in by_topic(sorted(partitions)).items()
    ]
    return encode_versioned(ConsumerGroupTargetAssignmentMemberValue(topic_partitions=topics), 0)


def encode_current(member: ConsumerMember) -> bytes:
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=member.state,
        assigned_partitions=_with_epochs(member.assigned),
        partitions_pending_revocation=_with_epochs(member.revoking),
    )
    return encode_versioned(value, 0)


def _with_epochs(partitions: Mapping[TopicIdPartition, int]) -> list[CurrentTopicPartitions]:
    return [
        CurrentTopicPartitions(
            topic_id=topic_id,
            partitions=numbers,
            assignment_epochs=[partitions[topic_id, number] for number in numbers],
        )
        for topic_id, numbers in by_topic(sorted(partitions)).items()
    ]


def read_subscription(member_id: str, value: Buffer) -> ConsumerMember:
    read = decode_versioned(ConsumerGroupMemberMetadataValue, value)[0]
    stored = read.classic_member_metadata
    classic = None
    if stored is not None:
        protocols = tuple((protocol.name, bytes(protocol.metadata)) for protocol in stored.supported_protocols)
        classic = ClassicSupport(stored.session_timeout_ms / 1000, protocols)
    return ConsumerMember(
        member_id,
        read.rack_id,
        read.client_id,
        read.client_host,
        read.rebalance_timeout_ms / 1000,
        instance_id=read.instance_id,
        topics=tuple(read.subscribed_topic_names),
        regex=read.subscribed_topic_regex,
        assignor=read.server_assignor,
        classic=classic,
    )


def read_target(value: Buffer) -> set[TopicIdPartition]:
    read = decode_versioned(ConsumerGroupTargetAssignmentMemberValue, value)[0]
    return {(topic.topic_id, number) for topic in read.topic_partitions for number in topic.partitions}


def read_current(member: ConsumerMember, value: Buffer) -> None:
    read = decode_versioned(ConsumerGroupCurrentMemberAssignmentValue, value)[0]
    member.epoch, member.previous_epoch = read.member_epoch, read.previous_member_epoch
    member.state = MemberState(read.state)
    member.assigned = _from_epochs(read.assigned_partitions)
    member.revoking = _from_epochs(read.partitions_pending_revocation)


def _from_epochs(topics: Iterable[CurrentTopicPartitions]) -> dict[TopicIdPartition, int]:
    return {
        (topic.topic_id, number): 0 if topic.assignment_epochs is None else topic.assignment_epochs[place]
        for topic in topics
        for place, number in enumerate(topic.partitions)
    }
