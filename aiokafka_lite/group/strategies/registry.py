"""The assignment strategies that come with this package. A new strategy is its own file and one entry here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

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
"""The strategies by their names in the protocol, which are the same as for Java's strategies."""


def checked_strategies(value: object) -> tuple[AssignmentStrategy, ...]:
    """Check one or more strategies with different names: instances or names. Raises ConfigurationError.

    A name is the protocol's name, or the name of Java's class with or without its package: ``RangeAssignor``.
    """
    wrong = must_be("strategies", f"instances, as in [RangeStrategy()], or names of {', '.join(BY_NAME)}", value)
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise ConfigurationError(wrong)
    strategies = tuple(_create(item) if isinstance(item, str) else item for item in value)
    if any(
        isinstance(strategy, type) or not isinstance(getattr(strategy, "name", None), str) for strategy in strategies
    ):
        raise ConfigurationError(wrong)
    names = [strategy.name for strategy in strategies]
    if not names or len(set(names)) != len(names):
        raise ConfigurationError(must_be("strategies", "one or more with different names", names))
    return strategies


def _create(name: str) -> Any:
    """Create the strategy of that name. An unknown name is returned unchanged, and the caller refuses it."""
    short_name = name.rpartition(".")[2].lower().removesuffix("assignor").replace("-", "")
    return next((strategy() for strategy in STRATEGIES if strategy.name.replace("-", "") == short_name), name)
