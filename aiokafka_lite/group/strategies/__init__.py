"""Assignment strategies: pure functions that the leader of a group runs, one file each; ``registry`` lists them.

Each is compatible with the strategy of the same name in Java's client and librdkafka. It has the same protocol name and
the same user data, and those clients accept its assignments. So a group may mix clients.
"""

from .cooperative_sticky import CooperativeStickyStrategy
from .range import RangeStrategy
from .registry import BY_NAME, checked_strategies
from .round_robin import RoundRobinStrategy
from .sticky import StickyStrategy
from .strategy import AssignmentStrategy, GroupMember, TopicRacks

__all__ = [
    "BY_NAME",
    "AssignmentStrategy",
    "CooperativeStickyStrategy",
    "GroupMember",
    "RangeStrategy",
    "RoundRobinStrategy",
    "StickyStrategy",
    "TopicRacks",
    "checked_strategies",
]
