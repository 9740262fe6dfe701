"""The time of day and the random numbers of a client, in one value that every component receives from its owner.

Durations never use this clock. They use the loop's own clock, so that tests can run in virtual time.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass

from ..arguments import check_function

is_seeded: ContextVar[bool] = ContextVar("is_seeded", default=False)
"""Whether the module ``random`` was seeded in order to repeat a run, as ``virtual_time.run`` does."""


def wall_clock() -> float:
    """Return the time of day in seconds since the epoch.

    ``time.time`` is looked up at each call. A reference that was bound before a test freezes or moves the time, as
    freezegun does, would show the real time.
    """
    return time.time()


@dataclass(frozen=True, slots=True)
class Runtime:
    """``clock`` returns seconds since the epoch, for record timestamps; ``random`` a number in [0, 1), for jitter.

    A test that passes both, and runs in virtual time, gets the same trace from the same seed. The constructor raises
    ConfigurationError if one of the two is not a function.
    """

    clock: Callable[[], float] = wall_clock
    random: Callable[[], float] = random.random

    def __post_init__(self) -> None:
        check_function("clock", self.clock)
        check_function("random", self.random)

    def new_id(self) -> str:
        """Make a random UUID.

        It comes from the operating system, because two programs may seed the module ``random`` with the same value. If
        ``random`` was given, or the run must be repeatable, it comes from ``random``.
        """
        import uuid  # imported here, because few clients need it

        if self.random is random.random and not is_seeded.get():
            return str(uuid.uuid4())
        return str(uuid.UUID(int=int(self.random() * (1 << 64)) << 64 | int(self.random() * (1 << 64)), version=4))
