"""Consumer groups: membership decided by a pure machine, driven by one task; assignment by strategies.

Each name is imported when it is first asked for: who reads without a group has no use for the machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import lazy

if TYPE_CHECKING:
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

_HOMES = {
    "member": ("MemberState",),
    "offsets": ("CommitResult",),
    "strategies": (
        "AssignmentStrategy",
        "CooperativeStickyStrategy",
        "GroupMember",
        "RangeStrategy",
        "RoundRobinStrategy",
        "StickyStrategy",
    ),
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

if not TYPE_CHECKING:  # a checker would take any name whatever for one of ours
    __getattr__ = lazy.attributes(__name__, _HOMES)
