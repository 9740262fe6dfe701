"""Cooperative sticky: the sticky assignment in two rounds, while members read the partitions they keep (KIP-429).

In the first round, a partition that moves is assigned to no member, so its owner releases it and joins again. In the
second round the partition has no owner and is assigned. So no partition ever has two readers.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Sequence
from dataclasses import replace

from ...types import TopicPartition
from .sticky import owners_of, spread
from .strategy import Assignment, GroupMember, TopicRacks

_GENERATION = struct.Struct(">i")


class CooperativeStickyStrategy:
    """The sticky assignment in two rounds: a moving partition is released in the first and assigned in the second."""

    name = "cooperative-sticky"
    cooperative = True

    def user_data(self, owned: Collection[TopicPartition], generation: int) -> bytes | None:
        """Return the generation, which subscriptions lack before KIP-792. The owned partitions are in the
        subscription."""
        return _GENERATION.pack(generation)

    def assign(self, members: Sequence[GroupMember], topics: TopicRacks) -> Assignment:
        dated = [_with_generation(member) for member in members]
        assignment = spread(dated, topics)
        owners = owners_of(dated)  # None if two members claim a partition: both release it first
        return {
            member_id: [partition for partition in partitions if owners.get(partition, member_id) == member_id]
            for member_id, partitions in assignment.items()
        }


def _with_generation(member: GroupMember) -> GroupMember:
    if member.generation >= 0 or member.user_data is None or len(member.user_data) < _GENERATION.size:
        return member
    return replace(member, generation=_GENERATION.unpack_from(member.user_data)[0])
