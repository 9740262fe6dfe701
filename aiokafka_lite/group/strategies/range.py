"""Range: each member gets neighbouring partitions of each topic, in its own rack if that keeps the shares even.

Members and partitions are taken in order: 3 members get 4, 3 and 3 of 10 partitions. Topics with the same number of
partitions are divided at the same places. So one member reads partition 2 of all these topics. If members and replicas
have racks, a partition goes to a member in the rack of a replica (KIP-881). That member must not get more than its
share. Topics that are divided in the same way are matched to racks together first, so that they stay divided in the
same way.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from itertools import islice

from ...types import TopicPartition
from .strategy import Assignment, GroupMember, TopicRacks, subscribers


class RangeStrategy:
    """Assigns neighbouring partitions of each topic to each member.

    Of topics with the same partitions and the same subscribers, a member gets the same partition numbers.
    """

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
                topic.deal_remaining()
                for member_id, partitions in topic.shares.items():
                    assignment[member_id] += [TopicPartition(topic.name, number) for number in sorted(partitions)]
        return {member_id: sorted(partitions) for member_id, partitions in assignment.items()}


class _Topic:
    """One topic that is being divided: the remaining partitions, and the share of each reader."""

    def __init__(self, name: str, racks: Sequence[frozenset[str]], readers: list[GroupMember]) -> None:
        self.name = name
        self.racks = racks
        self.readers = readers
        self.remaining = dict.fromkeys(range(len(racks)))
        self.shares: defaultdict[str, list[int]] = defaultdict(list)
        self.share, self.extras = divmod(len(racks), len(readers))

    def room(self, reader: GroupMember) -> int:
        """Return the number of partitions that the reader can still get: its share, and one more while there are
        extras.
        """
        return self.share + (self.extras > 0) - len(self.shares.get(reader.member_id, ()))

    def give(self, reader: GroupMember, partitions: Iterable[int]) -> None:
        for partition in partitions:
            del self.remaining[partition]
            share = self.shares[reader.member_id]
            share.append(partition)
            if len(share) == self.share + 1:
                self.extras -= 1

    def deal_remaining(self) -> None:
        for reader in self.readers:
            if not self.remaining:
                return
            self.give(reader, list(islice(self.remaining, self.room(reader))))

    @property
    def racks_matter(self) -> bool:
        """Whether readers and replicas share racks, and some reader has no replica of a partition in its rack."""
        readers = {reader.rack for reader in self.readers if reader.rack is not None}
        return any(readers & racks for racks in self.racks) and not all(readers <= racks for racks in self.racks)


def _match_racks(group: list[_Topic]) -> None:
    if not any(topic.racks_matter for topic in group):
        return
    # First the partitions that one reader can get in all topics, so that the topics stay divided in the same way.
    for reader in group[0].readers:
        for number in list(group[0].remaining):
            together = all(number in topic.remaining and reader.rack in topic.racks[number] for topic in group)
            if together and all(topic.room(reader) > 0 for topic in group):
                for topic in group:
                    topic.give(reader, [number])
    # Then the remaining partitions of each topic by itself.
    for topic in group:
        for reader in topic.readers:
            near = [number for number in topic.remaining if reader.rack in topic.racks[number]]
            topic.give(reader, near[: topic.room(reader)])
