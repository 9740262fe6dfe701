"""What faults do to effects outside Kafka, among them the commits of the database."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from random import Random

from .history import Effect, Outcome


class EffectFailed(ConnectionError):
    """An effect outside Kafka failed, or its answer was lost. The service cannot know which of the two."""


@dataclass(slots=True)
class FaultAtWork:
    """A fault that waits for ``steps`` more steps of the work of an instance; ``instance`` 0 is any of them.

    ``do`` gets the number of the instance that did the last step, and where it stands, as in "before a commit".
    """

    steps: int
    instance: int
    do: Callable[[int, str], None]
    context: Context = field(default_factory=copy_context)


class EffectFaults:
    """The faults of the effects of a world, which its schedule sets.

    The next effects are slow, fail or are cut off; or all effects fail for some time.
    """

    def __init__(self, random: Random) -> None:
        self.random = random
        self.slow: list[float] = []
        self.failing: list[Outcome] = []
        self.done: dict[tuple[str, str | None], str] = {}
        """The idempotence keys of the effects that happened, with the ids of their records."""
        self.at_work: list[FaultAtWork] = []
        self.down_until = 0.0
        """The loop's time at which the last outage is over."""

    def next_duration(self) -> float:
        """Return the seconds that the next effect takes."""
        return self.slow.pop(0) if self.slow else self.random.choice((0.001, 0.005, 0.02))

    def next_failure(self) -> Outcome | None:
        """Return how the next effect, or commit of the database, fails; None if it succeeds."""
        return self.failing.pop(0) if self.failing else None

    def outlasts_its_caller(self) -> bool:
        """Return whether an effect, or commit of the database, happens although its caller has cancelled it."""
        return self.random.random() < 0.5

    def apply(self, effect: Effect, outcome: Outcome) -> None:
        """Let an effect happen, unless its idempotence key was used before."""
        place = effect.name, effect.idempotence_key
        if effect.idempotence_key is not None and place in self.done:
            effect.outcome = Outcome.REPEATED
            first = self.done[place]
            effect.key_used_by = "" if first == effect.id else first
            return
        if effect.idempotence_key is not None:
            self.done[place] = effect.id
        effect.outcome = outcome

    def due_at_work(self, instance: int) -> list[FaultAtWork]:
        """Count a step of the work of an instance, and return the faults that have waited for it."""
        for fault in self.at_work:
            fault.steps -= fault.instance in (0, instance)
        due = [fault for fault in self.at_work if fault.steps == 0]
        if due:
            self.at_work = [fault for fault in self.at_work if fault.steps > 0]
        return due

    def are_down(self) -> bool:
        return asyncio.get_running_loop().time() < self.down_until

    def take_down(self, seconds: float) -> None:
        """Let all effects fail for some time, as if what the service calls were away."""
        self.down_until = max(self.down_until, asyncio.get_running_loop().time() + seconds)

    def clear(self) -> None:
        """End the faults that have hit no effect, and no work."""
        self.at_work.clear()
        self.slow.clear()
        self.failing.clear()
