"""Who reads what: pure functions that the leader of a group runs, one file a strategy.

Every strategy is compatible with the Java client's and librdkafka's of the same name: the same protocol name, the same
user data on the wire, and assignments that those clients can live with. So a group may mix clients.
"""

from .cooperative_sticky import CooperativeStickyStrategy
from .range import RangeStrategy
from .round_robin import RoundRobinStrategy
from .sticky import StickyStrategy
from .strategy import AssignmentStrategy, GroupMember, TopicRacks

BY_NAME: dict[str, type[AssignmentStrategy]] = {
    strategy.name: strategy
    for strategy in (RangeStrategy, RoundRobinStrategy, StickyStrategy, CooperativeStickyStrategy)
}
"""The strategies by the names that they have in the protocol."""

__all__ = [
    "BY_NAME",
    "AssignmentStrategy",
    "CooperativeStickyStrategy",
    "GroupMember",
    "RangeStrategy",
    "RoundRobinStrategy",
    "StickyStrategy",
    "TopicRacks",
]
