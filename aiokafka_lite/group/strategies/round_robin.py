"""Round robin: all partitions of all topics are assigned to the members in turn."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import cycle

from ...types import TopicPartition
from .strategy import Assignment, GroupMember, TopicRacks, subscribers


class RoundRobinStrategy:
    """Assigns partitions in turn and skips members that do not subscribe.

    If all members subscribe to the same topics, their numbers of partitions differ by at most one.
    """

    name = "roundrobin"
    cooperative = False

    def user_data(self, owned: Collection[TopicPartition], generation: int) -> bytes | None:
        return None

    def assign(self, members: Sequence[GroupMember], topics: TopicRacks) -> Assignment:
        assignment: Assignment = {member.member_id: [] for member in members}
        ordered = sorted(members, key=lambda member: member.order)
        turn = cycle([(frozenset(member.topics), assignment[member.member_id]) for member in ordered])
        for topic in subscribers(members, topics):
            for partition in range(len(topics[topic])):
                partitions = next(partitions for subscription, partitions in turn if topic in subscription)
                partitions.append(TopicPartition(topic, partition))
        return assignment
