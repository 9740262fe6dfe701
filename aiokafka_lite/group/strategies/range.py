"""Range: a run of neighbouring partitions of each topic for each member, and racks respected where that costs nothing.

Members in order, partitions in order: of 10 partitions 3 members get 4, 3 and 3, and topics with the same number of
partitions are cut at the same places, so that whoever reads partition 2 of one reads partition 2 of the other. When
members and replicas name racks, a partition goes to a member in a rack that has a replica of it, as long as the member
is within its share (KIP-881); topics cut alike are matched together first, so that the property above survives.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from ...types import TopicPartition
from .strategy import Assignment, GroupMember, TopicRacks, subscribers


class RangeStrategy:
    """Give each member neighbouring partitions of every topic, the same numbers of topics that are alike."""

    name = "range"
    cooperative = False

    def user_data(self, owned: Collection[TopicPartition], generation: int) -> bytes | None:
        return None

    def assign(self, members: Sequence[GroupMember], topics: TopicRacks) -> Assignment:
        assignment: Assignment = {member.member_id: [] for member in members}
        alike: dict[tuple[int, tuple[str, ...]], list[_Topic]] = {}
        for name, readers in subscribers(members, topics).items():
            key = (len(topics[name]), tuple(reader.member_id for reader in readers))
            alike.setdefault(key, []).append(_Topic(name, topics[name], readers))
        for group in alike.values():
            _match_racks(group)
            for topic in group:
                topic.deal_the_rest()
                for member_id, partitions in topic.given.items():
                    assignment[member_id] += [TopicPartition(topic.name, number) for number in sorted(partitions)]
        return {member_id: sorted(partitions) for member_id, partitions in assignment.items()}


class _Topic:
    """One topic being cut: what is left of it, and how much each reader may still get."""

    def __init__(self, name: str, racks: Sequence[frozenset[str]], readers: list[GroupMember]) -> None:
        self.name = name
        self.racks = racks
        self.readers = readers
        self.left = dict.fromkeys(range(len(racks)))
        self.given: dict[str, list[int]] = {reader.member_id: [] for reader in readers}
        self.share, self.extras = divmod(len(racks), len(readers))

    def room(self, reader: GroupMember) -> int:
        """How many more partitions the reader may get: its share, and one more while there are extras."""
        return self.share + (self.extras > 0) - len(self.given[reader.member_id])

    def give(self, reader: GroupMember, partitions: Iterable[int]) -> None:
        for partition in partitions:
            del self.left[partition]
            got = self.given[reader.member_id]
            got.append(partition)
            if len(got) == self.share + 1:
                self.extras -= 1

    def deal_the_rest(self) -> None:
        for reader in self.readers:
            self.give(reader, list(self.left)[: self.room(reader)])

    @property
    def racks_matter(self) -> bool:
        """Whether readers and replicas share racks, and some partition is missing in a rack that has a reader."""
        readers = {reader.rack for reader in self.readers if reader.rack is not None}
        return any(readers & racks for racks in self.racks) and not all(readers <= racks for racks in self.racks)


def _match_racks(group: list[_Topic]) -> None:
    if not any(topic.racks_matter for topic in group):
        return
    for reader in group[0].readers:
        for number in list(group[0].left):
            together = all(number in topic.left and reader.rack in topic.racks[number] for topic in group)
            if together and all(topic.room(reader) > 0 for topic in group):
                for topic in group:
                    topic.give(reader, [number])
    for topic in group:
        for reader in topic.readers:
            near = [number for number in topic.left if reader.rack in topic.racks[number]]
            topic.give(reader, near[: topic.room(reader)])
