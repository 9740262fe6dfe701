"""Consumer groups: membership decided by a pure machine, driven by one task; assignment by strategies."""

from .member import MemberState
from .offsets import CommitResult
from .strategies import (
    AssignmentStrategy,
    CooperativeStickyStrategy,
    GroupMember,
    RangeStrategy,
    RoundRobinStrategy,
    StickyStrategy,
)

__all__ = [
    "AssignmentStrategy",
    "CommitResult",
    "CooperativeStickyStrategy",
    "GroupMember",
    "MemberState",
    "RangeStrategy",
    "RoundRobinStrategy",
    "StickyStrategy",
]
