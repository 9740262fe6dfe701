"""The assignor ``simple`` of share groups (KIP-932): each partition has members, and members have equal shares.

A partition may have many members. If there are more members than partitions, the numbers of members of two partitions
differ by at most one. As far as that allows, members keep the partitions that they have.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ..groups.assignors import TopicIdPartition

Assignment = dict[str, list[TopicIdPartition]]
"""Partitions by the id of the member."""


def assign(
    subscriptions: Mapping[str, Sequence[bytes]],
    partitions: Mapping[bytes, int],
    current: Mapping[str, Collection[TopicIdPartition]],
) -> Assignment:
    """Return a new assignment. ``subscriptions`` are topic ids by member, ``partitions`` the counts of the topics."""
    assignment: Assignment = {member: [] for member in sorted(subscriptions)}
    subscribers: dict[tuple[str, ...], list[bytes]] = {}
    for topic, _ in sorted(partitions.items()):
        members = tuple(member for member in assignment if topic in subscriptions[member])
        if members:
            subscribers.setdefault(members, []).append(topic)
    for members, topics in subscribers.items():  # topics with the same subscribers are one problem
        targets = [(topic, index) for topic in topics for index in range(partitions[topic])]
        for member, owned in _spread(targets, members, current).items():
            assignment[member] += owned
    return {member: sorted(owned) for member, owned in assignment.items()}


def _spread(
    targets: Sequence[TopicIdPartition], members: Sequence[str], current: Mapping[str, Collection[TopicIdPartition]]
) -> Assignment:
    # With more members than partitions, several members share each partition, so that no member is idle.
    sharing = -(-len(members) // len(targets))
    total = len(targets) * sharing
    # The rooms differ by one at most, and their sum is the total.
    rooms = {member: total * (n + 1) // len(members) - total * n // len(members) for n, member in enumerate(members)}
    assert sum(rooms.values()) == total, "every place of a partition has room at a member"
    missing = dict.fromkeys(targets, sharing)
    owned: Assignment = {member: [] for member in members}
    for member, room in rooms.items():
        for target in sorted(current.get(member, ())):
            if missing.get(target, 0) and len(owned[member]) < room:
                owned[member].append(target)
                missing[target] -= 1
    for member, room in rooms.items():
        # The partitions that lack the most members come first, so that no member is left with only its own partitions.
        for target in sorted(missing, key=lambda partition: -missing[partition]):
            if missing[target] and target not in owned[member] and len(owned[member]) < room:
                owned[member].append(target)
                missing[target] -= 1
    return owned
