"""Sticky: as even as can be, and as little moved as can be.

First what members own stays with them, as far as it is still theirs to have. Then what nobody owns goes to whoever has
least. Then partitions move from those with more to those with fewer as long as that makes the difference smaller.
Evenness comes before stickiness: at the end nobody has two more than another that could take one of them.
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
    """What a member tells the leader of its last assignment, as the Java client's sticky assignor writes it."""

    topics: list[StickyUserDataTopic] = array(StickyUserDataTopic)
    generation: int = int32("1+", default=-1, ignorable=True)


class StickyStrategy:
    """Spread partitions as evenly as subscriptions allow, and leave them where they are as far as that allows."""

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
    """The member with what its user data says it owns. Bytes that cannot be read count as owning nothing."""
    if not member.user_data:
        return member
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
    """The sticky assignment, by what ``owned`` and ``generation`` of the members say."""
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
    # Those with fewest possible readers first: whoever is choosy at the end has nobody left to choose.
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
    """Who owns what. Of two that claim a partition the later generation is right; of the same one, neither (None)."""
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
    """Move one partition at a time, from whoever has most, until no move makes two members more equal.

    Each move takes from a member to one that has at least two fewer, so the sum of squares falls and the loop ends.
    Taking from the fullest each time is what keeps the number of moves small.
    """

    def move() -> bool:
        for giver in sorted(assignment, key=lambda each: (-len(assignment[each]), by_order[each])):
            for partition in reversed(assignment[giver]):
                taker = min(readers[partition.topic], key=lambda each: (len(assignment[each]), by_order[each]))
                if len(assignment[taker]) + 1 < len(assignment[giver]):
                    assignment[giver].remove(partition)
                    assignment[taker].append(partition)
                    return True
        return False

    while move():
        pass
