"""The assignors of the coordinator (KIP-848): which member of a consumer group gets which partition.

``uniform`` gives all members of equal subscriptions equally many partitions, and moves as few as possible. ``range``
gives each member a range of every topic: of topics with equal partition counts, a member owns the same partitions.
Both give the results of Apache Kafka 4.3, except that ``uniform`` may choose other partitions and extra members.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from typing import NamedTuple

TopicIdPartition = tuple[bytes, int]
"""The id of a topic, and the number of a partition."""


class Subscriber(NamedTuple):
    """A member: the ids of its topics, the partitions that it was assigned before, and the name of a static member."""

    topics: AbstractSet[bytes]
    assigned: AbstractSet[TopicIdPartition]
    instance_id: str | None = None


Assignment = dict[str, set[TopicIdPartition]]
"""The partitions by member id."""
Assignor = Callable[[Mapping[str, Subscriber], Mapping[bytes, int]], Assignment]
"""Takes the members by id, and the number of partitions of each topic to which a member subscribes."""


def uniform(members: Mapping[str, Subscriber], topics: Mapping[bytes, int]) -> Assignment:
    """Balance the members first, and keep moves few.

    At the end, no partition of a member can move to a subscriber that has at least two partitions fewer.
    """
    subscribers = _subscribers(members, topics)
    assignment: Assignment = {member: set() for member in members}
    owners: dict[TopicIdPartition, str] = {}
    for member, subscriber in members.items():
        for partition in sorted(subscriber.assigned):
            # The leader of a classic group may have given a partition to two members: the first one keeps it.
            is_free = partition not in owners
            if is_free and member in subscribers.get(partition[0], ()) and partition[1] < topics[partition[0]]:
                assignment[member].add(partition)
                owners[partition] = member
    # Topics with many partitions for few members come first: later topics can balance what these leave uneven.
    order = sorted(subscribers, key=lambda topic: (-topics[topic] / len(subscribers[topic]), topic))
    partitions = [(topic, number) for topic in order for number in range(topics[topic])]

    def smallest(topic: bytes) -> str:
        return min(subscribers[topic], key=lambda member: len(assignment[member]))

    for partition in partitions:
        if partition not in owners:
            owners[partition] = smallest(partition[0])
            assignment[owners[partition]].add(partition)
    moved = True
    while moved:
        moved = False
        for partition in reversed(partitions):
            owner, other = owners[partition], smallest(partition[0])
            if len(assignment[owner]) > len(assignment[other]) + 1:
                assignment[owner].remove(partition)
                assignment[other].add(partition)
                owners[partition], moved = other, True
    return assignment


def range_(members: Mapping[str, Subscriber], topics: Mapping[bytes, int]) -> Assignment:
    """Divide each topic by itself: a range for each of its members, static members first.

    The present assignment has no influence.
    """
    assignment: Assignment = {member: set() for member in members}
    order = sorted(
        members, key=lambda member: (members[member].instance_id is None, members[member].instance_id or member)
    )
    for topic, subscribers in _subscribers({member: members[member] for member in order}, topics).items():
        quota, extra = divmod(topics[topic], len(subscribers))
        start = 0
        for place, member in enumerate(subscribers):
            end = start + quota + (place < extra)
            assignment[member].update((topic, number) for number in range(start, end))
            start = end
    return assignment


def _subscribers(members: Mapping[str, Subscriber], topics: Mapping[bytes, int]) -> dict[bytes, list[str]]:
    """Return the members of each topic that has at least one, in the order of the members."""
    subscribers = {
        topic: [member for member, subscriber in members.items() if topic in subscriber.topics] for topic in topics
    }
    return {topic: subscribed for topic, subscribed in subscribers.items() if subscribed}


ASSIGNORS: dict[str, Assignor] = {"uniform": uniform, "range": range_}
"""The assignors by their names in ``group.consumer.assignors``."""
