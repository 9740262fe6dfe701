"""Consumer groups: a pure state machine decides about the membership, a task drives it, strategies assign partitions.

Names are imported on first use: a consumer without a group does not load the state machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import lazy

if TYPE_CHECKING:
    from .offsets import CommitResult
    from .states import MemberState
    from .strategies import (
        AssignmentStrategy,
        CooperativeStickyStrategy,
        GroupMember,
        RangeStrategy,
        RoundRobinStrategy,
        StickyStrategy,
    )

_HOMES = {
    "offsets": ("CommitResult",),
    "strategies": (
        "AssignmentStrategy",
        "CooperativeStickyStrategy",
        "GroupMember",
        "RangeStrategy",
        "RoundRobinStrategy",
        "StickyStrategy",
    ),
    "states": ("MemberState",),
}

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

if not TYPE_CHECKING:  # with a __getattr__, a type checker would accept every name
    __getattr__ = lazy.attributes(__name__, _HOMES)
