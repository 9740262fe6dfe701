"""Consumer groups: a pure state machine decides about the membership, a task drives it, strategies assign partitions.

Names are imported on first use: a consumer without a group does not load the state machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import lazy

if TYPE_CHECKING:
    from .offsets import CommitResult as CommitResult
    from .states import MemberState as MemberState
    from .strategies import AssignmentStrategy as AssignmentStrategy
    from .strategies import CooperativeStickyStrategy as CooperativeStickyStrategy
    from .strategies import GroupMember as GroupMember
    from .strategies import RangeStrategy as RangeStrategy
    from .strategies import RoundRobinStrategy as RoundRobinStrategy
    from .strategies import StickyStrategy as StickyStrategy
else:  # with a __getattr__, a type checker would accept every name
    __all__, __getattr__, __dir__ = lazy.exports(
        __name__,
        {
            ".offsets": "CommitResult",
            ".states": "MemberState",
            ".strategies": """
                AssignmentStrategy CooperativeStickyStrategy GroupMember RangeStrategy RoundRobinStrategy
                StickyStrategy
            """,
        },
    )
