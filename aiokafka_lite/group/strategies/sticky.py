"""Sticky: balances the partitions, with few moves.

First, members keep the partitions that they own and still subscribe to. Then each partition without an owner goes to
the member with the fewest. Then partitions move from members with more to members with fewer while that reduces the
difference. At the end, a member has at most one partition more than any other member that subscribes to the topic of
one of its partitions.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ...errors import ProtocolError
from ...protocol.codec import decode_message, encode_message
from ...protocol.schema import Message, array, int32, message, string, struct
from ...types import TopicPartition
from .strategy import Assignment, GroupMember, TopicRacks, subscribers


@struct
class StickyUserDataTopic:
    """Partitions of one topic that the member owns."""

    topic: str = string()
    partitions: list[int] = array(int32)


@message(key=-1, versions=(0, 1))
class StickyUserData(Message):
    """A member's last assignment, for the leader, in the format of the Java client's sticky assignor."""

    topics: list[StickyUserDataTopic] = array(StickyUserDataTopic)
    generation: int = int32("1+", default=-1, ignorable=True)


class StickyStrategy:
    """Balances the partitions within the limits of the subscriptions, with few moves."""

    name = "sticky"
    cooperative = False

    def user_data(self, owned: Collection[TopicPartition], generation: int) -> bytes | None:
        numbers: dict[str, list[int]] = {}
        for topic, partition in sorted(owned):
            numbers.setdefault(topic, []).append(partition)
        data = StickyUserData(
            topics=[StickyUserDataTopic(topic=topic, partitions=partitions) for topic, partitions in numbers.items()],
            generation=generation,
        )
        out = bytearray()
        encode_message(data, 1, out)
        return bytes(out)

    def assign(self, members: Sequence[GroupMember], topics: TopicRacks) -> Assignment:
        return spread([_with_user_data(member) for member in members], topics)


def _with_user_data(member: GroupMember) -> GroupMember:
    """The member with the owned partitions of its user data. Unreadable user data counts as owning nothing."""
    if not member.user_data:
        return member
    # The bytes do not name their version. Those of version 0 end before the generation, so version 1 cannot read them.
    data = _read(member.user_data, 1) or _read(member.user_data, 0)
    if data is None:
        return member
    owned = tuple(TopicPartition(topic.topic, number) for topic in data.topics for number in topic.partitions)
    return GroupMember(
        member.member_id, member.topics, owned, data.generation, member.instance_id, member.rack, member.user_data
    )


def _read(user_data: bytes, version: int) -> StickyUserData | None:
    try:
        return decode_message(StickyUserData, version, user_data)[0]
    except ProtocolError:
        return None


def spread(members: Sequence[GroupMember], topics: TopicRacks) -> Assignment:
    """The sticky assignment for the ``owned`` and ``generation`` of the members."""
    readers = {
        topic: [member.member_id for member in subscribed] for topic, subscribed in subscribers(members, topics).items()
    }
    by_order = {member.member_id: number for number, member in enumerate(sorted(members, key=lambda each: each.order))}
    assignment: Assignment = {member_id: [] for member_id in by_order}
    owners = owners_of(members)
    free: list[TopicPartition] = []
    for topic in readers:
        for number in range(len(topics[topic])):
            partition = TopicPartition(topic, number)
            owner = owners.get(partition)
            if owner in readers[topic] and owner is not None:
                assignment[owner].append(partition)
            else:
                free.append(partition)
    racks = {member.member_id: member.rack for member in members}
    # Partitions with the fewest possible readers come first, because their few readers might be full later.
    for partition in sorted(free, key=lambda each: (len(readers[each.topic]), each)):
        near = topics[partition.topic][partition.partition]
        taker = min(
            readers[partition.topic],
            key=lambda member_id: (len(assignment[member_id]), racks[member_id] not in near, by_order[member_id]),
        )
        assignment[taker].append(partition)
    _level(assignment, readers, by_order)
    return {member_id: sorted(partitions) for member_id, partitions in assignment.items()}


def owners_of(members: Sequence[GroupMember]) -> dict[TopicPartition, str | None]:
    """The owner of each partition.

    If two members claim a partition, the claim of the later generation counts. In the same generation, neither counts.
    """
    owners: dict[TopicPartition, str | None] = {}
    generations: dict[TopicPartition, int] = {}
    for member in members:
        for partition in member.owned:
            known = generations.get(partition)
            if known is None or member.generation > known:
                owners[partition], generations[partition] = member.member_id, member.generation
            elif member.generation == known:
                owners[partition] = None
    return owners


def _level(assignment: Assignment, readers: Mapping[str, list[str]], by_order: Mapping[str, int]) -> None:
    """Move one partition at a time from the fullest member, until no move reduces the difference between two members.

    Each move goes to a member with at least two fewer, so the sum of squares falls and the loop ends. Starting at the
    fullest member keeps the number of moves small.
    """

    def move() -> bool:
        for giver in sorted(assignment, key=lambda each: (-len(assignment[each]), by_order[each])):
            # Backwards, because partitions that a member keeps come first. The others have to move anyway.
            for partition in reversed(assignment[giver]):
                taker = min(readers[partition.topic], key=lambda each: (len(assignment[each]), by_order[each]))
                if len(assignment[taker]) + 1 < len(assignment[giver]):
                    assignment[giver].remove(partition)
                    assignment[taker].append(partition)
                    return True
        return False

    while move():
        pass
