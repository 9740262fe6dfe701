"""The assignment strategies that come with this package. A new strategy is its own file and one entry here."""

from __future__ import annotations

from collections.abc import Iterable

from ...arguments import must_be
from ...errors import ConfigurationError
from .cooperative_sticky import CooperativeStickyStrategy
from .range import RangeStrategy
from .round_robin import RoundRobinStrategy
from .sticky import StickyStrategy
from .strategy import AssignmentStrategy

STRATEGIES: tuple[type[AssignmentStrategy], ...] = (
    RangeStrategy,
    RoundRobinStrategy,
    StickyStrategy,
    CooperativeStickyStrategy,
)

BY_NAME: dict[str, type[AssignmentStrategy]] = {strategy.name: strategy for strategy in STRATEGIES}
"""The strategies by their names in the protocol, which are those of Java's ``partition.assignment.strategy``."""


def checked_strategies(given: object) -> tuple[AssignmentStrategy, ...]:
    """One or more strategies with different names, given as instances or by name. Raises ConfigurationError."""
    wrong = must_be(
        "strategies", f"strategy instances, as in [RangeStrategy()], or names of {', '.join(BY_NAME)}", given
    )
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ConfigurationError(wrong)
    strategies = tuple(BY_NAME[each]() if isinstance(each, str) and each in BY_NAME else each for each in given)
    if any(isinstance(each, type) or not isinstance(getattr(each, "name", None), str) for each in strategies):
        raise ConfigurationError(wrong)
    names = [strategy.name for strategy in strategies]
    if not names or len(set(names)) != len(names):
        raise ConfigurationError(must_be("strategies", "one or more with different names", names))
    return strategies
