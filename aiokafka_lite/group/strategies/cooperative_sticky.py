"""Cooperative sticky: the sticky assignment, reached without anybody stopping what it keeps (KIP-429).

A partition that is to move is given to nobody in the round in which its owner learns that it loses it. The owner lets
go and joins again, and in that round nobody owns it. So no partition ever has two readers.
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
    """The sticky assignment in two rounds: partitions that move are let go in one and given in the next."""

    name = "cooperative-sticky"
    cooperative = True

    def user_data(self, owned: Collection[TopicPartition], generation: int) -> bytes | None:
        """The generation alone: what is owned is in the subscription itself, which had no generation before KIP-792."""
        return _GENERATION.pack(generation)

    def assign(self, members: Sequence[GroupMember], topics: TopicRacks) -> Assignment:
        told = [_with_generation(member) for member in members]
        assignment = spread(told, topics)
        owners = owners_of(told)  # None where two claim a partition: both let go of it before anyone gets it
        return {
            member_id: [each for each in partitions if owners.get(each, member_id) == member_id]
            for member_id, partitions in assignment.items()
        }


def _with_generation(member: GroupMember) -> GroupMember:
    if member.generation >= 0 or member.user_data is None or len(member.user_data) < _GENERATION.size:
        return member
    return replace(member, generation=_GENERATION.unpack_from(member.user_data)[0])
