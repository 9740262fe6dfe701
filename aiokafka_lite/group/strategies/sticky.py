"""Sticky: balances the partitions, with few moves.

First, members keep the partitions that they own and still subscribe to. Then each partition without an owner goes to
the member with the fewest. Then partitions move from members with more to members with fewer while that reduces the
difference. At the end, a member has at most one partition more than any other member that subscribes to the topic of
one of its partitions.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Sequence

from ...errors import ProtocolError
from ...protocol.codec import decode_message, encode_message
from ...protocol.schema import Message, array, int32, message, string, struct
from ...types import TopicPartition
from .strategy import Assignment, GroupMember, TopicRacks


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
    """Decode the owned partitions in the user data of a member. Unreadable user data counts as owning nothing."""
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
    """Compute the sticky assignment for the ``owned`` and ``generation`` of the members."""
    names = sorted({topic for member in members for topic in member.topics if topic in topics})
    loads = _Loads(sorted(members, key=lambda member: member.order), names)
    owners = owners_of(members)
    free: list[tuple[int, int]] = []
    for topic, name in enumerate(names):
        for number in range(len(topics[name])):
            owner = owners.get(TopicPartition(name, number))
            if owner is None or not loads.keep(owner, topic, number):
                free.append((topic, number))
    # Partitions with the fewest possible readers come first, because their few readers might be full later.
    readers = loads.readers_by_topic()
    for topic, number in sorted(free, key=lambda partition: (readers[partition[0]], partition)):
        loads.assign(topic, number, topics[names[topic]][number])
    loads.level()
    return loads.assignment()


def owners_of(members: Sequence[GroupMember]) -> dict[TopicPartition, str | None]:
    """Return the owner of each partition.

    If two members claim a partition, the claim of the later generation counts. In the same generation, neither counts.
    """
    owners: dict[TopicPartition, str | None] = {}
    generations: dict[TopicPartition, int] = {}
    for member in members:
        for partition in member.owned:
            generation = generations.get(partition)
            if generation is None or member.generation > generation:
                owners[partition], generations[partition] = member.member_id, member.generation
            elif member.generation == generation:
                owners[partition] = None
    return owners


class _Loads:
    """The partitions of each member while they are being balanced.

    Members and topics are numbers here: members in their ``order``, topics by name. A set of topics is an integer with
    a bit for each, so one ``&`` finds the topics that one member has and another can read. A group of 100 members and
    10,000 partitions is balanced in some hundredths of a second, whatever the members subscribe to.
    """

    def __init__(self, members: Sequence[GroupMember], names: Sequence[str]) -> None:
        numbers = {name: number for number, name in enumerate(names)}
        self._names = names
        self._ids = [member.member_id for member in members]
        self._by_id = {member_id: number for number, member_id in enumerate(self._ids)}
        self._racks = [member.rack for member in members]
        self._has_racks = any(rack is not None for rack in self._racks)
        self._subscribed = [_bits(numbers[topic] for topic in member.topics if topic in numbers) for member in members]
        self._counts = [0] * len(members)
        # Partition numbers by topic: those that the member keeps, and those that come to it in this assignment.
        self._kept: list[dict[int, list[int]]] = [{} for _ in members]
        self._moving: list[dict[int, list[int]]] = [{} for _ in members]
        self._kept_topics = [0] * len(members)
        self._moving_topics = [0] * len(members)
        # All members, sorted by load and then by order. Each is the number count * len(members) + member.
        self._ranking = list(range(len(members)))

    def readers_by_topic(self) -> list[int]:
        """Return the number of subscribers of each topic."""
        counts = [0] * len(self._names)
        for topics in self._subscribed:
            while topics:
                lowest = topics & -topics
                counts[lowest.bit_length() - 1] += 1
                topics ^= lowest
        return counts

    def keep(self, member_id: str, topic: int, number: int) -> bool:
        """Leave a partition with its owner; return False if the owner left, or no longer subscribes to the topic."""
        member = self._by_id.get(member_id)
        if member is None or not self._subscribed[member] >> topic & 1:
            return False
        self._kept[member].setdefault(topic, []).append(number)
        self._kept_topics[member] |= 1 << topic
        self._change_count(member, 1)
        return True

    def assign(self, topic: int, number: int, racks: frozenset[str]) -> None:
        """Assign a partition to the subscriber with the fewest; of several, to one in a rack of a replica."""
        bit = 1 << topic
        taker = -1
        for rank in self._ranking:
            count, member = divmod(rank, len(self._ids))
            if taker >= 0 and count > self._counts[taker]:
                break  # no other member has as few
            if self._subscribed[member] & bit:
                if not self._has_racks or self._racks[member] in racks:
                    taker = member
                    break
                if taker < 0:
                    taker = member
        assert taker >= 0, "each of the topics has a subscriber"
        self._add(taker, topic, number)

    def level(self) -> None:
        """Move one partition at a time from the fullest member, until no move reduces the difference of two members.

        Each move goes to a member with at least two fewer, so the sum of squares falls and the loop ends. Starting at
        the fullest member keeps the number of moves small.
        """
        stuck: set[int] = set()  # members none of whose partitions can move, until another load changes
        while True:
            giver = next((m for m in map(self._member_of, reversed(self._ranking)) if m not in stuck), None)
            if giver is None:
                return
            move = self._move_from(giver)
            if move is None:
                stuck.add(giver)
                continue
            taker, topics = move
            topic, number = self._remove(giver, topics)
            self._add(taker, topic, number)
            # Only the giver became a better taker, and only the taker has a topic that it did not have.
            stuck.discard(taker)
            room = self._counts[giver] + 1
            readable = self._subscribed[giver]
            stuck = {
                member
                for member in stuck
                if self._counts[member] <= room
                or not readable & (self._kept_topics[member] | self._moving_topics[member])
            }

    def assignment(self) -> Assignment:
        """Return the partitions of each member, sorted."""
        result: Assignment = {}
        for member, member_id in enumerate(self._ids):
            numbers = [*self._kept[member].items(), *self._moving[member].items()]
            result[member_id] = sorted(
                TopicPartition(self._names[topic], number) for topic, partitions in numbers for number in partitions
            )
        return result

    def _member_of(self, rank: int) -> int:
        return rank % len(self._ids)

    def _move_from(self, giver: int) -> tuple[int, int] | None:
        """Return the member that can take a partition of the giver, and the topics to choose from; None if none can.

        Partitions that the giver does not own yet are tried first, because they have to move anyway.
        """
        for topics in (self._moving_topics[giver], self._kept_topics[giver]):
            if topics:
                for rank in self._ranking:
                    count, taker = divmod(rank, len(self._ids))
                    if count + 1 >= self._counts[giver]:
                        break
                    common = topics & self._subscribed[taker]
                    if common:
                        return taker, common
        return None

    def _remove(self, member: int, topics: int) -> tuple[int, int]:
        """Take the last partition of the last of these topics from the member; of those that it does not own first."""
        topic = (topics & self._moving_topics[member] or topics).bit_length() - 1
        if self._moving_topics[member] >> topic & 1:
            partitions = self._moving[member]
        else:
            partitions = self._kept[member]
        number = partitions[topic].pop()
        if not partitions[topic]:
            del partitions[topic]
            if partitions is self._kept[member]:
                self._kept_topics[member] ^= 1 << topic
            else:
                self._moving_topics[member] ^= 1 << topic
        self._change_count(member, -1)
        return topic, number

    def _add(self, member: int, topic: int, number: int) -> None:
        self._moving[member].setdefault(topic, []).append(number)
        self._moving_topics[member] |= 1 << topic
        self._change_count(member, 1)

    def _change_count(self, member: int, difference: int) -> None:
        rank = self._counts[member] * len(self._ids) + member
        del self._ranking[bisect_left(self._ranking, rank)]
        self._counts[member] += difference
        insort(self._ranking, rank + difference * len(self._ids))


def _bits(numbers: Iterable[int]) -> int:
    bits = 0
    for number in numbers:
        bits |= 1 << number
    return bits
