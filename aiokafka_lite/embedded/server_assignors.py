"""The assignors of the coordinator (KIP-848): which member of a consumer group gets which partition.

``uniform`` gives all members of equal subscriptions equally many partitions, and moves as few as possible. ``range``
gives each member a part of every topic, so that members own the same numbers of topics with equal partition counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from typing import NamedTuple

TopicIdPartition = tuple[bytes, int]
"""The id of a topic, and the number of a partition."""


class Subscriber(NamedTuple):
    """A member: the ids of its topics, and the partitions that it was assigned before."""

    topics: AbstractSet[bytes]
    assigned: AbstractSet[TopicIdPartition]


Assignment = dict[str, set[TopicIdPartition]]
"""By member id."""
Assignor = Callable[[Mapping[str, Subscriber], Mapping[bytes, int]], Assignment]
"""Takes the members by id, and the number of partitions of each topic. All topics of the members are in it."""


def uniform(members: Mapping[str, Subscriber], topics: Mapping[bytes, int]) -> Assignment:
    """Balance first, then few moves: no partition could move to a member that would then own fewer than its owner."""
    subscribers = _subscribers(members, topics)
    found: Assignment = {member: set() for member in members}
    owners: dict[TopicIdPartition, str] = {}
    for member, subscriber in members.items():
        for partition in sorted(subscriber.assigned):
            if member in subscribers.get(partition[0], ()) and partition[1] < topics[partition[0]]:
                found[member].add(partition)
                owners[partition] = member
    # Topics with many partitions for few members come first: later ones can level out what they leave uneven.
    order = sorted(subscribers, key=lambda topic: (-topics[topic] / len(subscribers[topic]), topic))
    partitions = [(topic, number) for topic in order for number in range(topics[topic])]

    def smallest(topic: bytes) -> str:
        return min(subscribers[topic], key=lambda member: len(found[member]))

    for partition in partitions:
        if partition not in owners:
            owners[partition] = smallest(partition[0])
            found[owners[partition]].add(partition)
    moved = True
    while moved:
        moved = False
        for partition in partitions:
            owner, other = owners[partition], smallest(partition[0])
            if len(found[owner]) > len(found[other]) + 1:
                found[owner].remove(partition)
                found[other].add(partition)
                owners[partition], moved = other, True
    return found


def range_(members: Mapping[str, Subscriber], topics: Mapping[bytes, int]) -> Assignment:
    """Each topic by itself: equal parts for its members, which keep what they own up to the size of their part."""
    found: Assignment = {member: set() for member in members}
    for topic, subscribers in _subscribers(members, topics).items():
        quota, extra = divmod(topics[topic], len(subscribers))
        kept: dict[str, list[int]] = {}
        sizes: dict[str, int] = {}
        for member in subscribers:
            owned = sorted(number for each, number in members[member].assigned if each == topic)
            sizes[member] = quota
            if len(owned) > quota and extra:
                extra -= 1
                sizes[member] += 1
            kept[member] = owned[: sizes[member]]
        for member in subscribers:
            if extra and sizes[member] == quota:
                extra -= 1
                sizes[member] += 1
        taken = {number for numbers in kept.values() for number in numbers}
        free = iter([number for number in range(topics[topic]) if number not in taken])
        for member in subscribers:
            numbers = [*kept[member], *(next(free) for _ in range(sizes[member] - len(kept[member])))]
            found[member].update((topic, number) for number in numbers)
    return found


def _subscribers(members: Mapping[str, Subscriber], topics: Mapping[bytes, int]) -> dict[bytes, list[str]]:
    """The members of each topic that has any, in the order of the members."""
    found = {topic: [member for member, each in members.items() if topic in each.topics] for topic in topics}
    return {topic: subscribed for topic, subscribed in found.items() if subscribed}


ASSIGNORS: dict[str, Assignor] = {"uniform": uniform, "range": range_}
"""By the name in ``group.consumer.assignors``."""
