"""What faults do to effects outside Kafka, among them the commits of the database."""

from __future__ import annotations

import asyncio
from random import Random

from .history import Outcome


class EffectFailed(ConnectionError):
    """An effect outside Kafka failed, or its answer was lost. The service cannot know which of the two."""


class EffectFaults:
    """The faults of the effects of a world, which its schedule sets.

    The next effects are slow, fail or are cut off; or all effects fail for some time.
    """

    def __init__(self, random: Random) -> None:
        self.random = random
        self.slow: list[float] = []
        self.failing: list[Outcome] = []
        self.done: dict[tuple[str, str], str] = {}
        """The idempotence keys of the effects that happened, with the ids of their records."""
        self.down_until = 0.0
        """The loop's time at which the last outage is over."""

    def next_duration(self) -> float:
        """Return the seconds that the next effect takes."""
        return self.slow.pop(0) if self.slow else self.random.choice((0.001, 0.005, 0.02))

    def next_failure(self) -> Outcome | None:
        """Return how the next effect, or commit of the database, fails; None if it succeeds."""
        return self.failing.pop(0) if self.failing else None

    def are_down(self) -> bool:
        return asyncio.get_running_loop().time() < self.down_until

    def take_down(self, seconds: float) -> None:
        """Let all effects fail for some time, as if what the service calls were away."""
        self.down_until = max(self.down_until, asyncio.get_running_loop().time() + seconds)

    def clear(self) -> None:
        """End the faults that have hit no effect."""
        self.slow.clear()
        self.failing.clear()
