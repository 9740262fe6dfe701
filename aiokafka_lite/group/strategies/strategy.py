"""What a strategy is given, and what it gives back."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from ...types import TopicPartition

TopicRacks: TypeAlias = Mapping[str, Sequence[frozenset[str]]]
"""Topics that exist: for each of a topic's partitions, the racks that hold a replica of it (empty where unknown)."""

Assignment: TypeAlias = dict[str, list[TopicPartition]]
"""Partitions by member id. Every member has an entry, and no partition is in two."""


@dataclass(frozen=True, slots=True)
class GroupMember:
    """One member, as the leader reads it from the answer to JoinGroup.

    ``owned`` is what it said it owns and ``generation`` when it was given that, -1 where it did not say.
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
        """Sort key of members: static ones by instance id and first, so that a restart changes nothing; then by id."""
        return (self.instance_id is None, self.member_id if self.instance_id is None else self.instance_id)


class AssignmentStrategy(Protocol):
    """Assigns the partitions of a group. Implement it for a strategy of your own; all members must name it alike.

    ``cooperative`` strategies never give a member what another has not yet let go of (KIP-429), so that members need
    not stop reading what they keep.
    """

    name: str
    cooperative: bool

    def user_data(self, owned: Collection[TopicPartition], generation: int) -> bytes | None:
        """What a member adds to its subscription, for the leader's ``assign`` to read."""

    def assign(self, members: Sequence[GroupMember], topics: TopicRacks) -> Assignment:
        """Every partition of every topic that a member subscribes to, given to exactly one of its subscribers.

        Deterministic: the same members and topics give the same assignment, whatever their order. Topics that a member
        names and that do not exist are left out.
        """


def subscribers(members: Iterable[GroupMember], topics: TopicRacks) -> dict[str, list[GroupMember]]:
    """Existing topics with a subscriber, in order of their names, each with its subscribers in their order."""
    found: dict[str, list[GroupMember]] = {}
    for member in sorted(members, key=lambda member: member.order):
        for topic in set(member.topics):
            if topic in topics:
                found.setdefault(topic, []).append(member)
    return dict(sorted(found.items()))
