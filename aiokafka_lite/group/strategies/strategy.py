"""The interface of assignment strategies: their input, and the assignment that they return."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from ...types import TopicPartition

TopicRacks: TypeAlias = Mapping[str, Sequence[frozenset[str]]]
"""Existing topics: for each partition, the racks that hold a replica of it (empty if unknown)."""

Assignment: TypeAlias = dict[str, list[TopicPartition]]
"""Partitions by member id. Every member has an entry, and no partition is in two entries."""


@dataclass(frozen=True, slots=True)
class GroupMember:
    """One member in the JoinGroup answer that the leader gets.

    ``owned`` are the partitions that the member owns. ``generation`` is the generation in which it got them, -1 if the
    member did not report the generation.
    """

    member_id: str
    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1
    instance_id: str | None = None
    rack: str | None = None
    user_data: bytes | None = None

    @property
    def order(self) -> tuple[bool, str]:
        """Sort key: static members by instance id, which a restart does not change; then all others by member id."""
        return (self.instance_id is None, self.member_id if self.instance_id is None else self.instance_id)


class AssignmentStrategy(Protocol):
    """Assigns the partitions of a group. Implement it for your own strategy; all members must use the same ``name``.

    A ``cooperative`` strategy never assigns a partition that another member has not released yet (KIP-429), so members
    continue to read the partitions that they keep.

    Two more methods are optional. They pass data of the strategy from the leader to the members:

    - ``assignment_data(member_id, partitions, generation) -> bytes | None``: the leader calls it for each member, after
      ``assign``. It returns the bytes to send to this member with its partitions.
    - ``on_assignment(partitions, user_data, generation) -> None``: each member calls it with its new assignment, before
      its listener. ``partitions`` are all its partitions. ``user_data`` are the leader's bytes for the member, or None.

    No method may wait. An exception of a strategy ends the consumer, and reads raise it. The leader of a large group,
    for example of 100 members with 200 topics, calls its strategy in a thread.
    """

    name: str
    cooperative: bool

    def user_data(self, owned: Collection[TopicPartition], generation: int) -> bytes | None:
        """Return bytes to add to a member's subscription, for the leader's ``assign``."""

    def assign(self, members: Sequence[GroupMember], topics: TopicRacks) -> Assignment:
        """Assign every partition of every subscribed topic to exactly one subscriber of that topic.

        Deterministic: the same members and topics give the same assignment in any order. Subscribed topics that do not
        exist are not in ``topics``.
        """


def subscribers(members: Iterable[GroupMember], topics: TopicRacks) -> dict[str, list[GroupMember]]:
    """Return the subscribers of each existing topic, in their ``order``. Topics are sorted by name."""
    by_topic: dict[str, list[GroupMember]] = {}
    for member in sorted(members, key=lambda member: member.order):
        for topic in set(member.topics):
            if topic in topics:
                by_topic.setdefault(topic, []).append(member)
    return dict(sorted(by_topic.items()))
